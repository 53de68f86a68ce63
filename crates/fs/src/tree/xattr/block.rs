//! Attribute blocks: written, shared by inodes that have the same attributes, and freed.
//!
//! ```text
//!   new content ──► the same in a known block, refcount < 1024? ─── yes ──► refcount + 1
//!                     │ no
//!                     ├─ own block, refcount 1 ──► rewritten in place
//!                     └─ else a new block;  own block: refcount - 1, at 0 freed
//! ```
//!
//! Content is compared and reference counts are changed under the block's own byte lock. A block
//! that is freed first loses its magic under that lock, so a thread that found it among the known
//! blocks notices that it is gone. Every owner counts the block (with bigalloc, the cluster) in its
//! own `i_blocks`. The references that entries hold on value inodes belong to the block, however
//! many inodes share it.

use super::list::{Attribute, Stored};
use crate::context::role::Role;
use crate::space::reservations::Allowance;
use crate::tree::xattr::{XattrStore, XattrsMut};
use extant_base::{BlockNr, Ino, Result, Site};
use extant_journal::{Handle, Ineligible, MetaBlock, MetaMut};
use extant_ondisk::features::Compat;
use extant_ondisk::xattr::{BLOCK_HEADER_LEN, BlockHeader, REFCOUNT_MAX, encode_block};

/// Memory for the known blocks, in bytes.
const KNOWN_BYTES: usize = 4 << 20;

impl XattrsMut<'_> {
    /// Makes `list` the content of the inode's attribute block. With an empty list, the inode loses
    /// its block.
    ///
    /// Entries of `list` that were already in the old block get references of their own where they
    /// need them; new entries come with theirs. Errors: `NoSpace` (nothing changed), `Corrupt`,
    /// `Device`.
    pub(super) fn store_block(&mut self, handle: &Handle<'_>, list: &[Attribute]) -> Result<()> {
        let old = self.as_ref().block_list()?;
        if list.is_empty() {
            return match self.body.disk.file_acl {
                Some(nr) => self.leave_block(handle, nr, &old),
                None => Ok(()),
            };
        }
        let new: Vec<_> = list.iter().map(Attribute::to_new).collect();
        let content = encode_block(&new, self.volume.block_size().bytes())?;
        let hash = BlockHeader::read(&content, Site::of_ino(self.ino()))?.hash;

        // This is done before the first change, so that nothing after that can fail because of it.
        self.volume.context().add_compat(handle, Compat::EXT_ATTR)?;
        // From here on this call owns one reference for each value that `list` names.
        let mut added = Vec::new();
        for attribute in list.iter().filter(|attribute| !attribute.fresh) {
            if let Stored::InInode { ino: value, .. } = attribute.value {
                self.volume.xattr_store().value_add(handle, value)?;
                added.push(value);
            }
        }
        let own = self.body.disk.file_acl;
        if let Some(nr) = self.volume.xattr_store().join_block(handle, hash, &content, own)? {
            if own != Some(nr) {
                if let Some(own) = own {
                    self.leave_block(handle, own, &old)?;
                }
                self.body.disk.file_acl = Some(nr);
                self.body.disk.sectors += self
                    .volume
                    .context()
                    .sectors(u64::from(self.volume.geometry().cluster_ratio()));
            }
            // The joined block already has its own references.
            return values(list).try_for_each(|value| {
                self.volume.xattr_store().value_drop(handle, self.body, value)
            });
        }
        if let Some(nr) = own
            && let Some(block) =
                self.volume.xattr_store().rewrite_block(handle, self.ino(), nr, &content)?
        {
            self.volume.xattr_store().note_block(hash, block);
            return values(&old).try_for_each(|value| {
                self.volume.xattr_store().value_drop(handle, self.body, value)
            });
        }
        let goal = self.volume.space().group_start(self.ino());
        // No space is reserved for attributes: they must not use clusters that are reserved for
        // data.
        let nr = match self.volume.file_mut(self.body).allocate_metadata(
            handle,
            goal,
            Allowance::Data,
        ) {
            Ok(nr) => nr,
            Err(error) => {
                for value in added {
                    self.volume.xattr_store().value_drop(handle, self.body, value)?;
                }
                return Err(error);
            }
        };
        let block = self.volume.journal().cache().get_new(nr)?;
        self.volume.xattr_store().write_block(handle, &block, &content)?;
        block.set_verified_as(Role::Xattrs.kind());
        if let Some(own) = own {
            self.leave_block(handle, own, &old)?;
        }
        self.body.disk.file_acl = Some(nr);
        self.volume.xattr_store().note_block(hash, block);
        Ok(())
    }
}

impl XattrStore<'_> {
    /// Takes a reference on a known block with this content (not if it is `own`). `None` if there
    /// is no such block.
    fn join_block(
        self,
        handle: &Handle<'_>,
        hash: u32,
        content: &[u8],
        own: Option<BlockNr>,
    ) -> Result<Option<BlockNr>> {
        if hash == 0 {
            return Ok(None);
        }
        let Some(block) = self.volume.shared_xattrs().blocks().lock().find(hash) else {
            return Ok(None);
        };
        let count = share_count(&block.read(), content);
        let Some(count) = count else { return Ok(None) };
        if own == Some(block.nr()) {
            return Ok(Some(block.nr()));
        }
        if count >= REFCOUNT_MAX {
            return Ok(None);
        }
        let block_mut = self.change_block(handle, &block)?;
        let mut bytes = block_mut.bytes_mut();
        // Another thread may have changed it in between.
        match share_count(&bytes, content) {
            Some(count) if count < REFCOUNT_MAX => {
                BlockHeader::set_refcount(&mut bytes, count + 1);
                self.update_checksum(&mut bytes, block.nr());
                Ok(Some(block.nr()))
            }
            _ => Ok(None),
        }
    }

    /// Writes new content over a block that no other inode shares; `None` if one does.
    fn rewrite_block(
        self,
        handle: &Handle<'_>,
        ino: Ino,
        nr: BlockNr,
        content: &[u8],
    ) -> Result<Option<MetaBlock>> {
        let block = self.block(ino, nr)?;
        let at = Site::of_ino(ino).block(nr);
        let before = BlockHeader::read(&block.read(), at)?;
        if before.refcount > 1 {
            return Ok(None);
        }
        self.volume.shared_xattrs().blocks().lock().drop_block(before.hash, nr);
        {
            let block_mut = self.change_block(handle, &block)?;
            let mut bytes = block_mut.bytes_mut();
            if BlockHeader::read(&bytes, at)?.refcount > 1 {
                return Ok(None);
            }
            bytes.copy_from_slice(content);
            self.update_checksum(&mut bytes, nr);
        }
        Ok(Some(block))
    }
}

impl XattrsMut<'_> {
    /// Drops the inode's reference on block `nr`, which holds `list`. Dropping the last one frees
    /// the block.
    fn leave_block(&mut self, handle: &Handle<'_>, nr: BlockNr, list: &[Attribute]) -> Result<()> {
        let block = self.volume.xattr_store().block(self.ino(), nr)?;
        let before = {
            let block_mut = self.volume.xattr_store().change_block(handle, &block)?;
            let mut bytes = block_mut.bytes_mut();
            let before = BlockHeader::read(&bytes, Site::of_ino(self.ino()).block(nr))?;
            if before.refcount > 1 {
                BlockHeader::set_refcount(&mut bytes, before.refcount - 1);
                self.volume.xattr_store().update_checksum(&mut bytes, nr);
            } else {
                bytes[..4].fill(0); // the magic
            }
            before
        };
        self.body.disk.file_acl = None;
        if before.refcount > 1 {
            let sectors =
                self.volume.context().sectors(u64::from(self.volume.geometry().cluster_ratio()));
            self.body.disk.sectors = self.body.disk.sectors.saturating_sub(sectors);
            return Ok(());
        }
        self.volume.shared_xattrs().blocks().lock().drop_block(before.hash, nr);
        for value in values(list) {
            self.volume.xattr_store().value_drop(handle, self.body, value)?;
        }
        self.volume.file_mut(self.body).free_metadata(handle, nr)
    }
}

impl XattrStore<'_> {
    /// Permission to change an attribute block. No fast commit can record this change.
    fn change_block<'m>(self, handle: &'m Handle<'_>, block: &'m MetaBlock) -> Result<MetaMut<'m>> {
        self.volume.context().require_full_commit(handle, Ineligible::Xattr);
        block.write(handle)
    }

    fn write_block(self, handle: &Handle<'_>, block: &MetaBlock, content: &[u8]) -> Result<()> {
        let block_mut = self.change_block(handle, block)?;
        let mut bytes = block_mut.bytes_mut();
        bytes.copy_from_slice(content);
        self.update_checksum(&mut bytes, block.nr());
        Ok(())
    }

    fn update_checksum(self, bytes: &mut [u8], nr: BlockNr) {
        if let Some(seed) = self.volume.checksums().seed() {
            BlockHeader::set_checksum(bytes, seed, nr);
        }
    }

    fn note_block(self, hash: u32, block: MetaBlock) {
        if hash != 0 {
            let most = (KNOWN_BYTES >> self.volume.block_size().log2()).max(16);
            self.volume.shared_xattrs().blocks().lock().note(hash, block, most);
        }
    }
}

/// How many inodes share `block`, if its content is `content`.
fn share_count(block: &[u8], content: &[u8]) -> Option<u32> {
    let header = BlockHeader::read(block, Site::NOWHERE).ok()?;
    (block[BLOCK_HEADER_LEN..] == content[BLOCK_HEADER_LEN..]).then_some(header.refcount)
}

fn values(list: &[Attribute]) -> impl Iterator<Item = Ino> + '_ {
    list.iter().filter_map(|attribute| match attribute.value {
        Stored::InInode { ino, .. } => Some(ino),
        Stored::Here(_) => None,
    })
}
