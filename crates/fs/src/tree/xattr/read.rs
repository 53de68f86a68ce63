//! Reading attributes: finding, listing, and reading values from value inodes.
//!
//! ```text
//!   get(name) ──► inode tail ── not there ──► block ── not there ──► None
//!                   └─ value here: copied        └─ in an inode: read, its crc checked
//!   system.posix_acl_*: the stored list, converted to the format of the system calls
//! ```
//!
//! A block's checksum is verified when it enters the cache. Source: ext4 documentation, "Extended
//! Attributes".

use crate::context::role::Role;
use crate::inodes::inline::INLINE_NAME;
use crate::tree::xattr::{XattrStore, Xattrs};
use extant_base::{BlockNr, Ino, LogicalBlock, Result, Site, What};
use extant_journal::MetaBlock;
use extant_ondisk::acl::Acl;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::FileKind;
use extant_ondisk::xattr::{
    BlockHeader, NameIndex, ValueRef, XattrArea, XattrEntry, entry_hash_of_inode_value,
};

/// A value that was found and copied.
enum Value {
    Bytes(Vec<u8>),
    InInode { ino: Ino, size: u32, name: Vec<u8>, hash: u32 },
}

impl Value {
    fn of(entry: &XattrEntry<'_>) -> Value {
        match entry.value {
            ValueRef::Here(bytes) => Value::Bytes(bytes.to_vec()),
            ValueRef::InInode { ino, size } => {
                Value::InInode { ino, size, name: entry.name.to_vec(), hash: entry.hash }
            }
        }
    }
}

impl Xattrs<'_> {
    /// The full names of all visible attributes: first those in the inode's tail, then those in the
    /// block.
    ///
    /// Errors: `Corrupt` if tail or block is malformed; `Device`. Locks: the caller holds the
    /// inode's; takes `Leaf`.
    pub(crate) fn names(self) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.each(|entry| {
            let hidden = entry.index == NameIndex::SYSTEM && entry.name == INLINE_NAME;
            if let Some(prefix) = entry.index.prefix().filter(|_| !hidden) {
                names.push([prefix.as_bytes(), entry.name].concat());
            }
        })?;
        Ok(names)
    }

    /// The value of the attribute with this full name; `None` if there is none, or if no attribute
    /// can have the name. Access control lists are returned in the format of the system calls.
    ///
    /// Errors: as [`Xattrs::names`]; `XattrInode`, `XattrHash` for a bad value inode; `Acl`.
    pub(crate) fn get(self, full: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some((index, name)) = NameIndex::split(full) else { return Ok(None) };
        if index == NameIndex::SYSTEM && name == INLINE_NAME {
            return Ok(None);
        }
        let Some(value) = self.stored(index, name)? else { return Ok(None) };
        if matches!(index, NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT) {
            return Ok(Some(Acl::from_disk(&value, Site::of_ino(self.ino()))?.to_call()));
        }
        Ok(Some(value))
    }

    /// The value of an attribute as it is stored, by prefix index and stored name.
    pub(crate) fn stored(self, index: NameIndex, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        self.each(|entry| {
            if found.is_none() && entry.index == index && entry.name == name {
                found = Some(Value::of(entry));
            }
        })?;
        match found {
            None => Ok(None),
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Value::InInode { ino: value, size, name, hash }) => self
                .volume
                .xattr_store()
                .inode_value(Site::of_ino(self.ino()), value, size, &name, hash)
                .map(Some),
        }
    }

    /// Calls `visit` with every attribute of both places, including hidden ones.
    ///
    /// `visit` must not take locks: the lock on a block's bytes is held during the call.
    pub(crate) fn each(self, mut visit: impl FnMut(&XattrEntry<'_>)) -> Result<()> {
        let at = Site::of_ino(self.ino());
        let ea_inode = self.volume.has_incompat(Incompat::EA_INODE);
        if let Some(area) =
            XattrArea::in_inode(self.body.xattr_tail(self.volume.context()), ea_inode, at)?
        {
            area.entries().for_each(|entry| visit(&entry));
        }
        if let Some(nr) = self.body.disk.file_acl {
            let block = self.volume.xattr_store().block(self.ino(), nr)?;
            let bytes = block.read();
            let (_, area) = XattrArea::in_block(&bytes, ea_inode, at.block(nr))?;
            area.entries().for_each(|entry| visit(&entry));
        }
        Ok(())
    }
}

impl XattrStore<'_> {
    /// The attribute block `nr`. Its checksum is verified when the block enters the cache.
    ///
    /// Errors: `XattrMagic`, `XattrHeader`, `XattrChecksum`; `Device`. `ino` is the inode named in
    /// them.
    pub(crate) fn block(self, ino: Ino, nr: BlockNr) -> Result<MetaBlock> {
        let block = self.volume.journal().cache().get(nr)?;
        let kind = Role::Xattrs.kind();
        if !block.is_verified_as(kind) {
            let at = Site::of_ino(ino).block(nr);
            self.volume.journal().cache().checked(&block, |bytes| {
                match self.volume.checksums().seed() {
                    Some(seed) => BlockHeader::verify_checksum(bytes, seed, nr, at),
                    None => BlockHeader::read(bytes, at).map(drop),
                }
            })?;
            block.set_verified_as(kind);
        }
        Ok(block)
    }

    /// The value in inode `value`, checked against the entry that points to it.
    pub(crate) fn inode_value(
        self,
        at: Site,
        value: Ino,
        size: u32,
        name: &[u8],
        hash: u32,
    ) -> Result<Vec<u8>> {
        let body = self.volume.inodes().value(value)?;
        let site = Site::of_ino(value);
        if body.file_kind() != FileKind::Regular || body.disk.size != u64::from(size) {
            return Err(site.corrupt(What::XattrInode));
        }
        // A value has no holes: all bytes collected here are on the device, so memory use is
        // bounded.
        let mut bytes = Vec::new();
        let mut block = 0;
        while bytes.len() < size as usize {
            let part = self.volume.file(&body).content_block(LogicalBlock(block))?;
            let part = part.ok_or_else(|| site.corrupt(What::XattrInode))?;
            let left = (size as usize - bytes.len()).min(self.volume.block_size().bytes());
            bytes.extend_from_slice(&part.read()[..left]);
            block += 1;
        }
        let crc = extant_crc32c::crc32c(self.volume.checksum_seed(), &bytes);
        // An old style stores the owner's number and generation instead of the crc and the count.
        let old_style = at.ino.is_some_and(|owner| body.disk.value_owner() == owner.get())
            && body.disk.value_crc() != crc;
        if !old_style {
            let right = body.disk.value_crc() == crc
                && (hash == entry_hash_of_inode_value(name, crc)
                    || XattrEntry {
                        offset: 0,
                        index: NameIndex::USER,
                        name,
                        value: ValueRef::InInode { ino: value, size },
                        hash,
                    }
                    .hash_matches(|| crc));
            if !right {
                return Err(site.corrupt(What::XattrHash));
            }
        }
        Ok(bytes)
    }
}
