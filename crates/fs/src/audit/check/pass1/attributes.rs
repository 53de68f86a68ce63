//! Extended attributes: those in inodes at once, those in blocks after all inodes.
//!
//! ```text
//!   inode tail ──► entries checked, inline data and value inodes noted
//!   i_file_acl ──► (block, inode) noted ──sorted──► each block once: header, checksum, entries,
//!                                                   refcount compared with the number of inodes
//! ```

use super::encryption::{Context, Policy};
use super::inode::Role;
use super::tables::{Out, Scan};
use crate::audit::check::claim::Usage;
use crate::audit::check::finding_of;
use crate::audit::check::scatter::each_block;
use crate::audit::check::view::View;
use extant_base::{BlockNr, Ino, Site, What};
use extant_ondisk::acl::Acl;
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::inode::{FileKind, Inode as DiskInode, InodeFlags};
use extant_ondisk::xattr::{
    BlockHeader, NameIndex, ValueRef, XattrArea, XattrEntry, block_checksum,
    entry_hash_of_inode_value,
};

/// An inode's use of an attribute block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct XattrUse {
    pub(super) block: u64,
    pub(super) ino: u32,
}

/// An entry with a value inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueUse {
    pub(super) value: u32,
    pub(super) owner: u32,
    pub(super) size: u32,
    /// The stored hash, and the name's part of it: for bytes taken as unsigned and as signed.
    pub(super) hash: u32,
    pub(super) names: [u32; 2],
}

/// The results for one inode's attributes.
#[derive(Default)]
pub(super) struct Found {
    /// The value of the attribute that holds inline data.
    pub(super) inline_value: Option<Box<[u8]>>,
    /// There is an attribute block.
    has_block: bool,
    /// Sectors of value inodes that are charged to this inode.
    pub(super) charged_sectors: u64,
    /// Value inodes that are charged to this inode.
    pub(super) value_inodes: u64,
    /// The encryption context, if it is in the inode.
    context: Option<Context>,
    /// Something could not be read, so counts are not compared.
    pub(super) partial: bool,
}

impl Found {
    pub(super) fn block_sectors(&self, view: &View<'_>) -> u64 {
        if self.has_block { view.cluster_sectors() } else { 0 }
    }

    /// All sectors that attributes add to the inode's count.
    pub(super) fn sectors(&self, view: &View<'_>) -> u64 {
        self.block_sectors(view) + self.charged_sectors
    }
}

/// How many sectors a value of `size` bytes adds: whole clusters.
fn charge(view: &View<'_>, size: u32) -> u64 {
    let cluster = view.cluster_sectors() << 9;
    u64::from(size).div_ceil(cluster) * view.cluster_sectors()
}

/// A context is too small for a value inode.
fn context_of(entry: &XattrEntry<'_>) -> Context {
    match entry.value {
        ValueRef::Here(value) => Context::of(value),
        ValueRef::InInode { .. } => Context::Malformed,
    }
}

fn value_use(owner: u32, entry: &XattrEntry<'_>) -> Option<ValueUse> {
    let ValueRef::InInode { ino, size } = entry.value else { return None };
    // An entry's hash is its name's hash with the value's mixed in. This is the name's part.
    let signed = entry.name.iter().fold(0u32, |hash, &byte| {
        hash.rotate_left(5) ^ i32::from(byte.cast_signed()).cast_unsigned()
    });
    let names = [entry_hash_of_inode_value(entry.name, 0), signed.rotate_left(16)];
    Some(ValueUse { value: ino.get(), owner, size, hash: entry.hash, names })
}

/// Checks the entries of one place. In a block (`is_block`) hashes must be right; in an inode they
/// may be 0.
fn check_entries(view: &View<'_>, area: &XattrArea<'_>, is_block: bool, at: Site) {
    if let Err(error) = area.check_layout(at) {
        match finding_of(&error) {
            // Readers look at every entry; only other writers stop a search early.
            (what @ What::XattrOrder, at, _) => view.note(what, at, ""),
            _ => view.corrupt(&error, ""),
        }
    }
    for entry in area.entries() {
        let at = at.offset(entry.offset);
        // Only these indexes are complete names; all others need a name after the prefix.
        let whole = [NameIndex::ACL_ACCESS, NameIndex::ACL_DEFAULT, NameIndex::RICHACL];
        if entry.index == NameIndex(0) || (entry.name.is_empty() && !whole.contains(&entry.index)) {
            view.error_with(What::XattrEntry, at, "no name");
        }
        let right = match entry.value {
            // Checked together with the value.
            ValueRef::InInode { .. } => true,
            ValueRef::Here(_) => (!is_block && entry.hash == 0) || entry.hash_matches(|| 0),
        };
        if !right {
            view.error(What::XattrHash, at);
        }
        if let ValueRef::Here(value) = entry.value
            && matches!(entry.index, NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT)
            && let Err(error) = Acl::from_disk(value, at)
        {
            let (what, at, _) = finding_of(&error);
            view.note(what, at, "");
        }
    }
}

impl Scan<'_, '_> {
    /// Checks an inode's attributes as far as that needs only the inode.
    pub(super) fn attributes(
        &mut self,
        ino: Ino,
        role: Role,
        inode: &DiskInode,
        bytes: &[u8],
    ) -> Found {
        let view = self.view;
        let mut found = Found::default();
        let ea_inode = view.has_incompat(Incompat::EA_INODE);
        let at = Site::of_ino(ino);
        let tail = bytes.get(inode.xattr_area(&view.format)).unwrap_or_default();
        match XattrArea::in_inode(tail, ea_inode, at) {
            Ok(None) => {}
            Ok(Some(area)) => {
                check_entries(view, &area, false, at);
                for entry in area.entries() {
                    self.note_entry(ino.get(), &entry, &mut found);
                    if let ValueRef::InInode { size, .. } = entry.value {
                        found.charged_sectors += charge(view, size);
                        found.value_inodes += 1;
                    }
                }
                if let Some(entry) = area.find(NameIndex::SYSTEM, b"data")
                    && let ValueRef::Here(value) = entry.value
                {
                    found.inline_value = Some(value.into());
                }
            }
            Err(error) => {
                view.corrupt(&error, "");
                found.partial = true;
            }
        }
        if let Some(block) = inode.file_acl {
            self.note_block(ino, block, &mut found);
        }
        let encrypted = inode.flags.contains(InodeFlags::ENCRYPT)
            && matches!(
                inode.kind(),
                Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink)
            );
        if encrypted && role == Role::Ordinary {
            self.encryption(ino, inode, &found);
        }
        found
    }

    /// Records the policy of an encrypted inode.
    fn encryption(&mut self, ino: Ino, inode: &DiskInode, found: &Found) {
        let at = Site::of_ino(ino);
        let context = match (found.context, inode.file_acl) {
            (Some(context), _) => Ok(Some(context)),
            (None, Some(block)) => self.context_in_block(block),
            (None, None) => Ok(None),
        };
        let policy = match context {
            Ok(Some(Context::Policy(policy))) => self.policies.number(policy),
            Ok(Some(Context::Malformed)) => return self.view.error(What::EncryptionContext, at),
            Ok(None) if !found.partial => return self.view.error(What::InodeEncryption, at),
            // Other findings report what is wrong there.
            Ok(None) | Err(()) => Policy::UNREAD,
        };
        self.out.policies.push((ino.get(), policy));
    }

    /// The encryption context in an attribute block, if the block can be read.
    fn context_in_block(&self, block: BlockNr) -> Result<Option<Context>, ()> {
        let view = self.view;
        let mut bytes = vec![0; view.block_bytes()];
        let range = view.geometry.block_range();
        if block.0 <= range.start || block.0 >= range.end {
            return Err(());
        }
        let start = view.geometry.block_size().start_of(block);
        view.device.read_at(start, &mut bytes).map_err(drop)?;
        let ea_inode = view.has_incompat(Incompat::EA_INODE);
        let (_, area) =
            XattrArea::in_block(&bytes, ea_inode, Site::of_block(block)).map_err(drop)?;
        let entry = area.find(NameIndex::ENCRYPTION, b"c");
        Ok(entry.map(|entry| context_of(&entry)))
    }

    fn note_entry(&mut self, owner: u32, entry: &XattrEntry<'_>, found: &mut Found) {
        if entry.index == NameIndex::ENCRYPTION && entry.name == b"c" {
            found.context = Some(context_of(entry));
        }
        self.out.value_uses.extend(value_use(owner, entry));
    }

    fn note_block(&mut self, ino: Ino, block: BlockNr, found: &mut Found) {
        let view = self.view;
        let at = Site::of_ino(ino).offset(0x68);
        let range = view.geometry.block_range();
        if block.0 <= range.start || block.0 >= range.end {
            view.error_with(What::InodeFileAcl, at, format!("block {block}"));
            found.partial = true;
            return;
        }
        if !view.has_compat(Compat::EXT_ATTR) {
            view.error_with(What::InodeFileAcl, at, "attributes without the feature");
        }
        found.has_block = true;
        self.out.xattr_uses.push(XattrUse { block: block.0, ino: ino.get() });
        if !view.has_incompat(Incompat::EA_INODE) {
            return;
        }
        // The values in the block may be charged to this inode, too, so the block is read now.
        let (sectors, inodes) = match self.charges.get(&block.0) {
            Some(charge) => *charge,
            None => {
                let charge = self.block_charge(block);
                if self.charges.len() >= 4096 {
                    self.charges.clear();
                }
                self.charges.insert(block.0, charge);
                charge
            }
        };
        found.charged_sectors += sectors;
        found.value_inodes += inodes;
    }

    fn block_charge(&self, block: BlockNr) -> (u64, u64) {
        let view = self.view;
        let mut bytes = vec![0; view.block_bytes()];
        let start = view.geometry.block_size().start_of(block);
        if view.device.read_at(start, &mut bytes).is_err() {
            return (0, 0);
        }
        let at = Site::of_block(block);
        let Ok((_, area)) = XattrArea::in_block(&bytes, true, at) else { return (0, 0) };
        area.entries().fold((0, 0), |(sectors, inodes), entry| match entry.value {
            ValueRef::InInode { size, .. } => (sectors + charge(view, size), inodes + 1),
            ValueRef::Here(_) => (sectors, inodes),
        })
    }
}

/// Claims every attribute block once, however many inodes use it.
pub(super) fn claim_blocks(usage: &Usage, out: &mut Out) {
    out.xattr_uses.sort_unstable();
    let mut before = 0;
    for one in &out.xattr_uses {
        if one.block != before {
            usage.claim(one.block..one.block + 1);
        }
        before = one.block;
    }
}

/// Checks every attribute block once. `claim_blocks` must have run before.
pub(super) fn check_blocks(view: &View<'_>, out: &mut Out) {
    let uses = &out.xattr_uses;
    // Block, first user, number of users.
    let mut blocks: Vec<(u64, u32, u32)> = Vec::new();
    for one in uses {
        match blocks.last_mut() {
            Some((block, _, count)) if *block == one.block => *count += 1,
            _ => blocks.push((one.block, one.ino, 1)),
        }
    }
    out.stats.xattr_blocks = blocks.len() as u64;
    let found = each_block(
        view,
        &blocks,
        |block| block.0,
        Vec::new,
        |uses, block, bytes| {
            check_block(view, *block, bytes, uses);
        },
    );
    out.value_uses.extend(found.into_iter().flatten());
}

fn check_block(
    view: &View<'_>,
    (nr, ino, users): (u64, u32, u32),
    bytes: &[u8],
    uses: &mut Vec<ValueUse>,
) {
    let at = Site { ino: Ino::new(ino), ..Site::of_block(BlockNr(nr)) };
    let ea_inode = view.has_incompat(Incompat::EA_INODE);
    let header = match BlockHeader::read(bytes, at) {
        Ok(header) => header,
        Err(error) => return view.corrupt(&error, ""),
    };
    if let Some(seed) = view.csum.seed()
        && header.checksum != block_checksum(seed, BlockNr(nr), bytes)
    {
        view.error(What::XattrChecksum, at.offset(0x10));
    }
    if header.refcount != users {
        let detail = format!("counts {}, used by {users} inodes", header.refcount);
        view.error_with(What::XattrRefcount, at.offset(4), detail);
    }
    match XattrArea::in_block(bytes, ea_inode, at) {
        Ok((_, area)) => {
            check_entries(view, &area, true, at);
            if header.hash != 0 && header.hash != area.block_hash() {
                view.note(What::XattrHash, at.offset(0x0C), "of the block");
            }
            uses.extend(area.entries().filter_map(|entry| value_use(ino, &entry)));
        }
        Err(error) => view.corrupt(&error, ""),
    }
}
