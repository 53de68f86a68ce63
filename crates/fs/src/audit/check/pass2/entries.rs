//! One directory: its blocks in logical order, and every entry in them.
//!
//! ```text
//!   block ─┬─ htree root   "." and "..", then the index      ──► htree
//!          ├─ htree node                                     ──► htree
//!          └─ leaf         checksum ─► entries ─┬─ "." ".."  own number, parent recorded
//!                                               ├─ name      legal, unique, in its hash range
//!                                               └─ inode     in use, its kind, one more link
//! ```

use super::htree::Tree;
use super::names::Names;
use crate::audit::check::inodes::VALUE;
use crate::audit::check::pass1::{Dir, DirBlock as Place, Policy, Tables};
use crate::audit::check::view::View;
use extant_base::{BlockNr, Ino, Site, What};
use extant_ondisk::casefold::CaseFold;
use extant_ondisk::dirent::{DirBlock, DirFormat, Dirent, EntryKind, HEAD_LEN};
use extant_ondisk::features::Incompat;
use extant_ondisk::inline_dir::{BLOCK_AREA_LEN, InlineDir};
use std::sync::atomic::Ordering::Relaxed;

/// The shortest encrypted name: one block of the cipher.
const CIPHER_BLOCK: usize = 16;

/// A directory that is being checked.
pub(super) struct Directory<'d, 'v> {
    pub(super) view: &'d View<'v>,
    pub(super) tables: &'d Tables,
    /// The directory's index in the tables.
    n: usize,
    pub(super) dir: &'d Dir,
    pub(super) format: DirFormat,
    pub(super) fold: Option<CaseFold>,
    names: Names,
    tree: Option<Tree>,
    names_seen: u64,
    /// The directory's encryption policy, if it is known.
    policy: Option<Policy>,
}

impl<'d, 'v> Directory<'d, 'v> {
    pub(super) fn new(view: &'d View<'v>, tables: &'d Tables, n: usize) -> Directory<'d, 'v> {
        let dir = &tables.dirs[n];
        let format = DirFormat {
            filetype: view.has_incompat(Incompat::FILETYPE),
            checksums: view.csum.seed().is_some(),
            hash_words: dir.encrypted && dir.casefold,
            opaque_names: dir.encrypted,
            inodes_count: view.geometry.inodes_count(),
        };
        let fold = match dir.casefold && !dir.encrypted {
            true => CaseFold::new(view.sb.encoding, view.sb.encoding_flags).ok(),
            false => None,
        };
        Directory {
            view,
            tables,
            n,
            dir,
            format,
            fold,
            names: Names::default(),
            tree: None,
            names_seen: 0,
            policy: tables.policy(dir.ino).filter(|policy| *policy != Policy::UNREAD),
        }
    }

    pub(super) fn site(&self) -> Site {
        Site { ino: Ino::new(self.dir.ino), ..Site::NOWHERE }
    }

    /// Checks the next block.
    pub(super) fn block(&mut self, place: &Place, bytes: &[u8]) {
        let at = self.site().block(BlockNr(place.physical));
        if self.dir.indexed {
            if place.logical == 0 {
                self.tree = Tree::root(self, bytes, at);
                if self.tree.is_some() {
                    let plain = DirBlock::new(bytes, self.format.without_tail(), at);
                    return self.first_block(&plain, bytes, at);
                }
            } else if Tree::is_node(&self.format, bytes) {
                if let Some(tree) = &mut self.tree {
                    tree.node(self.view, &self.format, self.dir.seed, place.logical, bytes, at);
                }
                return;
            }
        }
        let mut format = self.format;
        if format.checksums {
            match extant_ondisk::dirent::tail_of(bytes) {
                Some(_) => {
                    let leaf = DirBlock::new(bytes, format, at);
                    if let Err(error) = leaf.verify_checksum(self.dir.seed) {
                        self.view.corrupt(&error, "");
                    }
                }
                None => {
                    self.view.error(What::DirectoryTail, at);
                    format = format.without_tail();
                }
            }
        }
        let leaf = DirBlock::new(bytes, format, at);
        if let Some(tree) = &mut self.tree {
            tree.begin_leaf(place.logical);
        }
        match place.logical {
            0 => self.first_block(&leaf, bytes, at),
            _ => self.entries(leaf.entries(), at, place.logical, bytes),
        }
    }

    /// Checks the block that starts with "." and "..".
    fn first_block(&mut self, block: &DirBlock<'_>, bytes: &[u8], at: Site) {
        let mut entries = block.entries();
        for dots in [&b"."[..], b".."] {
            let start = entries.offset();
            match entries.next() {
                Some(Ok(entry)) if entry.name == dots && entry.ino.is_some() => {
                    // Old readers treat these names as C strings.
                    if bytes.get(start + HEAD_LEN + dots.len()) != Some(&0) {
                        self.view.error_with(What::DirentDot, at.offset(start), "no NUL after it");
                    }
                    self.dots(&entry, at);
                }
                Some(Ok(entry)) => {
                    let detail = format!("{} is missing", dots.escape_ascii());
                    self.view.error_with(What::DirentDot, at.offset(start), detail);
                    self.entry(&entry, at, 0);
                }
                Some(Err(error)) => self.view.corrupt(&error, ""),
                None => self.view.error(What::DirentDot, at.offset(start)),
            }
        }
        self.entries(entries, at, 0, bytes);
    }

    fn dots(&mut self, entry: &Dirent<'_>, at: Site) {
        let at = at.offset(entry.offset);
        let Some(ino) = entry.ino else { return };
        if self.format.filetype && entry.kind != EntryKind::Directory {
            self.view.error_with(What::DirentType, at, "of \".\" or \"..\"");
        }
        if entry.name == b"." {
            if ino.get() != self.dir.ino {
                self.view.error_with(What::DirentDot, at, format!("\".\" names inode {ino}"));
            }
            self.tables.inodes.count_link(self.dir.ino);
        } else {
            self.dotdot(ino.get());
        }
    }

    fn dotdot(&self, parent: u32) {
        self.tables.dotdots[self.n].store(parent, Relaxed);
        self.tables.inodes.count_link(parent);
    }

    fn entries<'a>(
        &mut self,
        entries: impl Iterator<Item = extant_base::Result<Dirent<'a>>>,
        at: Site,
        logical: u32,
        bytes: &[u8],
    ) {
        for entry in entries {
            if let Ok(entry) = &entry
                && !self.format.filetype
                && entry.ino.is_some()
                && bytes.get(entry.offset + 7).is_some_and(|kind| *kind != 0)
            {
                let at = at.offset(entry.offset);
                self.view.error_with(
                    What::DirentType,
                    at,
                    "a file type, but the volume stores none in entries",
                );
            }
            self.next(entry, at, logical);
        }
    }

    fn next(&mut self, entry: extant_base::Result<Dirent<'_>>, at: Site, logical: u32) {
        match entry {
            Ok(entry) => self.entry(&entry, at, logical),
            Err(error) => self.view.corrupt(&error, ""),
        }
    }

    /// Checks an entry other than "." and "..".
    fn entry(&mut self, entry: &Dirent<'_>, at: Site, logical: u32) {
        let Some(ino) = entry.ino else { return };
        let at = at.offset(entry.offset);
        let view = self.view;
        let number = ino.get();
        self.names_seen += 1;
        if entry.is_dot_or_dotdot() {
            return view.error_with(What::DirentDot, at, "is not the last entry");
        }
        self.check_name(entry, at, logical);
        let detail = || format!("\"{}\", inode {number}", entry.name.escape_ascii());
        if view.is_hidden(number) {
            return view.error_with(What::DirentInode, at, detail());
        }
        if number == Ino::ROOT.get() || number == self.dir.ino {
            return view.error_with(What::DirentLink, at, detail());
        }
        let state = self.tables.inodes.get(number);
        if state.0 == 0 {
            return view.error_with(self.unused(ino), at, detail());
        }
        if state.has(VALUE) {
            return view.error_with(What::DirentInode, at, detail());
        }
        let kind = EntryKind::from_mode(state.mode_type());
        if self.format.filetype && kind != EntryKind::Unknown && entry.kind != kind {
            view.error_with(What::DirentType, at, detail());
        }
        if state.is_dir()
            && let Some(n) = self.tables.dir(number)
            && self.tables.parents[n].compare_exchange(0, self.dir.ino, Relaxed, Relaxed).is_err()
        {
            return view.error_with(What::DirentLink, at, detail());
        }
        self.check_encryption(EntryKind::from_mode(state.mode_type()), number, at, detail);
        self.tables.inodes.count_link(number);
    }

    /// Files in an encrypted directory must have the directory's policy. Special files have no
    /// policy.
    fn check_encryption(
        &self,
        kind: EntryKind,
        number: u32,
        at: Site,
        detail: impl Fn() -> String,
    ) {
        let under_one =
            matches!(kind, EntryKind::Regular | EntryKind::Directory | EntryKind::Symlink);
        let Some(policy) = self.policy.filter(|_| under_one) else { return };
        let why = match self.tables.policy(number) {
            None => "is not encrypted",
            Some(own) if own == Policy::UNREAD || own == policy => return,
            Some(_) => "is under another policy",
        };
        let detail = format!("{} {why}", detail());
        self.view.error_with(What::DirentEncryption, at, detail);
    }

    fn unused(&self, ino: Ino) -> What {
        let Some(place) = self.view.geometry.inode_place(ino) else { return What::DirentInode };
        let group = self.view.group(place.group);
        match place.slot >= group.desc.used_slots(&self.view.geometry, &self.view.csum) {
            true => What::ItableUnused,
            false => What::DirentUnused,
        }
    }

    fn check_name(&mut self, entry: &Dirent<'_>, at: Site, logical: u32) {
        let view = self.view;
        if self.dir.encrypted && entry.name.len() < CIPHER_BLOCK {
            view.error_with(What::DirentName, at, "too short for an encrypted name");
        }
        if let Some(fold) = &self.fold
            && fold.check_new(entry.name).is_err()
        {
            let detail = entry.name.escape_ascii().to_string();
            view.error_with(What::DirentEncoding, at, detail);
        }
        self.names.add(self.fold.as_ref(), entry, logical);
        if let Some(tree) = &mut self.tree {
            tree.name(self.fold.as_ref(), entry, logical);
        }
    }

    /// Ends the directory after its last block. Returns the number of names.
    pub(super) fn finish(mut self) -> u64 {
        if self.dir.inline.is_some() {
            self.inline();
        }
        let names = std::mem::take(&mut self.names);
        names.finish(&self);
        if let Some(tree) = self.tree.take() {
            tree.finish(&self);
        }
        self.names_seen
    }

    fn inline(&mut self) {
        let Some(areas) = self.dir.inline.as_deref() else { return };
        let Some((i_block, value)) = areas.split_first_chunk::<BLOCK_AREA_LEN>() else { return };
        let at = self.site();
        let inline = InlineDir::new(i_block, value, self.format, at);
        self.tables.inodes.count_link(self.dir.ino);
        match inline.parent() {
            Ok(parent) => self.dotdot(parent.get()),
            Err(error) => self.view.corrupt(&error, ""),
        }
        for entry in inline.entries() {
            self.next(entry, at, 0);
        }
    }
}
