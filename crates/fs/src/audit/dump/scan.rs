//! Which blocks hold metadata: found from the descriptors and from every inode in use.
//!
//! ```text
//!   descriptors ──► superblocks, descriptors, bitmaps, used parts of tables    Fixed, Table
//!   inodes ─┬─ map ──► nodes, pointer blocks                                   Node, Pointers
//!           ├─ directory, symlink, value, internal file ──► all blocks         Directory, …
//!           ├─ attribute block                                                 Attributes
//!           └─ any other file ──► its data blocks are only remembered          `files`
//! ```

use crate::audit::check::claim::{Claims, Usage};
use crate::audit::check::map::{Buffers, Map, Run, Sink, walk};
use crate::audit::check::pass1::inode::{Role, role};
use crate::audit::check::pass1::tables::each_slot;
use crate::audit::check::view::View;
use extant_base::{BlockNr, Error, GroupNr, Ino};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::inode::{FileKind, Inode as DiskInode, InodeFlags, is_zero_slot};

/// What blocks contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Superblocks, descriptors and their copies, bitmaps, the MMP block.
    Fixed,
    /// The used part of the inode table of this group.
    Table(GroupNr),
    /// A node of an extent tree.
    Node,
    /// A block of pointers of a block map.
    Pointers,
    /// Entries of a directory.
    Directory,
    /// The target of a symbolic link.
    Symlink,
    /// Extended attributes.
    Attributes,
    /// The value of an attribute.
    Value,
    /// An internal file: quota, orphans, checksums of data.
    Own,
    /// A block of the log.
    Log,
}

/// Adjacent blocks of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    pub(super) first: u64,
    pub(super) len: u64,
    pub(super) kind: Kind,
}

/// A directory with blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Directory {
    pub(super) ino: u32,
    /// The seed of its blocks' checksums.
    pub(super) seed: u32,
    pub(super) indexed: bool,
    pub(super) casefold: bool,
}

/// A run of a directory's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirRun {
    pub(super) ino: u32,
    pub(super) logical: u32,
    pub(super) first: u64,
    pub(super) len: u32,
}

/// All metadata of a volume.
pub(super) struct Metadata {
    pub(super) pieces: Vec<Piece>,
    /// Directories whose names are readable, by number.
    pub(super) dirs: Vec<Directory>,
    /// Their blocks, by directory and logical block.
    pub(super) dir_runs: Vec<DirRun>,
    /// Clusters with metadata.
    pub(super) claimed: Usage,
    /// Clusters with content of files.
    pub(super) files: Usage,
}

impl Metadata {
    /// Whether a file has the block as content, here or in the state after recovery.
    pub(super) fn is_content(&self, later: Option<&Metadata>, block: u64) -> bool {
        self.files.holds(block) || later.is_some_and(|later| later.files.holds(block))
    }
}

#[derive(Default)]
struct Found {
    pieces: Vec<Piece>,
    dirs: Vec<Directory>,
    dir_runs: Vec<DirRun>,
}

/// The state of one thread.
struct Scan<'s, 'v> {
    view: &'s View<'v>,
    claims: Claims<'s>,
    files: Claims<'s>,
    buffers: Buffers,
    found: Found,
}

/// Finds all metadata. Memory: 24 bytes for each run of blocks with metadata, and up to two bits
/// for each cluster.
pub(super) fn find(view: &View<'_>) -> Metadata {
    let (claimed, files) = (Usage::new(view.geometry), Usage::new(view.geometry));
    let fixed = fixed(view);
    fixed.iter().for_each(|piece| claimed.mark(piece.first..piece.first + piece.len));
    let make = || Scan {
        view,
        claims: Claims::new(&claimed),
        files: Claims::new(&files),
        buffers: Buffers::default(),
        found: Found::default(),
    };
    let scans = each_slot(view, make, |scan, ino, bytes| scan.slot(ino, bytes));
    let mut all = Found { pieces: fixed, ..Found::default() };
    for scan in scans {
        all.pieces.extend(scan.found.pieces);
        all.dirs.extend(scan.found.dirs);
        all.dir_runs.extend(scan.found.dir_runs);
    }
    let Found { mut pieces, mut dirs, mut dir_runs } = all;
    pieces.sort_unstable();
    dirs.sort_unstable_by_key(|dir| dir.ino);
    dir_runs.sort_unstable();
    Metadata { pieces, dirs, dir_runs, claimed, files }
}

/// What lies at places that the superblock and the descriptors give.
fn fixed(view: &View<'_>) -> Vec<Piece> {
    let geometry = &view.geometry;
    let mut pieces = Vec::new();
    let mut put = |first: u64, len: u64, kind| {
        if geometry.holds(BlockNr(first), len) {
            pieces.push(Piece { first, len, kind });
        }
    };
    if geometry.first_data_block().0 == 0 || view.block_bytes() == 1024 {
        // The block of the primary superblock, also where a group starts after it.
        put(1024 / view.block_bytes() as u64, 1, Kind::Fixed);
    }
    for group in geometry.groups() {
        if let Some(base) = geometry.base_blocks(group) {
            put(base.start, base.end - base.start, Kind::Fixed);
        }
        let entry = view.group(group);
        put(entry.desc.block_bitmap.0, 1, Kind::Fixed);
        put(entry.desc.inode_bitmap.0, 1, Kind::Fixed);
        if entry.itable_ok {
            let used = match entry.csum_ok {
                true => entry.desc.used_slots(geometry, &view.csum),
                false => geometry.inodes_per_group(),
            };
            let blocks = u64::from(used.div_ceil(geometry.inodes_per_block().max(1)));
            put(entry.desc.inode_table.0, blocks, Kind::Table(group));
        }
    }
    if view.has_incompat(Incompat::MMP) {
        put(view.sb.mmp_block.0, 1, Kind::Fixed);
    }
    pieces.retain(|piece| piece.len > 0);
    pieces
}

/// What becomes of the blocks to which a map leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// They are metadata.
    Metadata(Kind),
    /// They are a file's content.
    File,
    /// Neither: bad blocks, copies of descriptors, the log.
    Ignored,
}

impl Scan<'_, '_> {
    fn slot(&mut self, ino: Ino, bytes: &[u8]) {
        let view = self.view;
        if is_zero_slot(bytes) {
            return;
        }
        let Ok(inode) = DiskInode::parse_unverified(bytes, ino, &view.format) else { return };
        let role = role(view, ino);
        // An orphan without links has the number of the next one as its deletion time.
        let is_deleted = inode.links == 0 && inode.dtime > view.geometry.inodes_count();
        if role == Role::Ordinary && (is_deleted || inode.links == 0 && inode.mode == 0) {
            return;
        }
        let content = self.content(ino, role, &inode);
        if let Some(block) = inode.file_acl
            && view.geometry.holds(block, 1)
            && self.claims.node(block.0)
        {
            self.put(block.0, 1, Kind::Attributes);
        }
        if content == Content::Metadata(Kind::Directory)
            && !inode.flags.contains(InodeFlags::ENCRYPT)
            && !inode.has_inline_data()
        {
            self.found.dirs.push(Directory {
                ino: ino.get(),
                seed: inode.seed(ino, &view.format).unwrap_or(0),
                indexed: inode.flags.contains(InodeFlags::INDEX)
                    && view.has_compat(Compat::DIR_INDEX),
                casefold: inode.flags.contains(InodeFlags::CASEFOLD)
                    && view.has_incompat(Incompat::CASEFOLD),
            });
        }
        if self.has_map(&inode) {
            self.map(ino, &inode, content);
        }
    }

    fn content(&self, ino: Ino, role: Role, inode: &DiskInode) -> Content {
        let view = self.view;
        match role {
            Role::BadBlocks | Role::Resize => return Content::Ignored,
            // The log's blocks are chosen one by one.
            Role::Own if ino.get() == view.sb.journal_inum => return Content::Ignored,
            Role::Own => return Content::Metadata(Kind::Own),
            Role::BootLoader if view.has_ro_compat(RoCompat::DATA_CSUM) => {
                return Content::Metadata(Kind::Own);
            }
            Role::BootLoader | Role::Unused | Role::Ordinary => {}
        }
        let is_value =
            view.has_incompat(Incompat::EA_INODE) && inode.flags.contains(InodeFlags::EA_INODE);
        match inode.kind() {
            Some(FileKind::Directory) => Content::Metadata(Kind::Directory),
            // Ciphertext stays as it is.
            Some(FileKind::Symlink) if inode.flags.contains(InodeFlags::ENCRYPT) => {
                Content::Metadata(Kind::Own)
            }
            Some(FileKind::Symlink) => Content::Metadata(Kind::Symlink),
            _ if is_value => Content::Metadata(Kind::Value),
            _ => Content::File,
        }
    }

    fn has_map(&self, inode: &DiskInode) -> bool {
        let is_special = matches!(
            inode.kind(),
            Some(FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket)
        );
        let is_fast = inode.is_fast_symlink(&self.view.format);
        !is_special && !inode.has_inline_data() && !is_fast
    }

    fn map(&mut self, ino: Ino, inode: &DiskInode, content: Content) {
        let map = Map {
            ino,
            extents: inode.has_extents(),
            i_block: &inode.i_block,
            seed: inode.seed(ino, &self.view.format),
        };
        let mut buffers = std::mem::take(&mut self.buffers);
        let view = self.view;
        let node = if map.extents { Kind::Node } else { Kind::Pointers };
        walk(view, &map, &mut buffers, &mut OfInode { scan: self, ino, content, node });
        self.buffers = buffers;
    }

    fn put(&mut self, first: u64, len: u64, kind: Kind) {
        self.found.pieces.push(Piece { first, len, kind });
    }
}

/// The blocks of one inode.
struct OfInode<'o, 's, 'v> {
    scan: &'o mut Scan<'s, 'v>,
    ino: Ino,
    content: Content,
    node: Kind,
}

impl Sink for OfInode<'_, '_, '_> {
    fn data(&mut self, run: Run) -> bool {
        let Run { logical, physical, len, .. } = run;
        let blocks = physical..physical + u64::from(len);
        let ratio = u64::from(self.scan.view.geometry.cluster_ratio());
        let clusters = u64::from(len).div_ceil(ratio) + 1;
        match self.content {
            Content::Ignored => true,
            Content::File => self.scan.files.data(blocks, clusters),
            Content::Metadata(kind) => {
                self.scan.put(physical, len.into(), kind);
                if kind == Kind::Directory {
                    let ino = self.ino.get();
                    self.scan.found.dir_runs.push(DirRun { ino, logical, first: physical, len });
                }
                self.scan.claims.data(blocks, clusters)
            }
        }
    }

    fn node(&mut self, block: u64, _level: u32) -> bool {
        let is_first = self.scan.claims.node(block);
        if is_first {
            self.scan.put(block, 1, self.node);
        }
        is_first
    }

    fn wrong(&mut self, _error: Error) -> bool {
        true
    }
}
