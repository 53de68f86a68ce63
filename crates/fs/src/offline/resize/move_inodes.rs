//! Giving inodes of removed groups new numbers in the remaining groups.
//!
//! ```text
//!   slot ─► free slot, other number, other generation ─► every name ─► quota and orphan files
//!
//!   seed of an inode's blocks = crc(crc(volume, number), generation)
//!                             = F(crc(volume, number) ^ generation)     one generation for each
//!                                                                       number gives the same seed
//! ```
//!
//! The new generation is chosen so that the seed does not change. All checksums of the inode's
//! blocks then stay right: a move changes the slots, the bitmaps and the names, however large the
//! file is.

use super::references::{Reference, References};
use super::shrink::{CREDITS, Shrink};
use crate::state::inode::Body;
use extant_base::{Error, Feature, FeatureSet, GroupNr, Ino, Result, Site, What};
use extant_crc32c::crc32c;
use extant_ondisk::bitmap;
use extant_ondisk::dirent::DirBlockMut;
use extant_ondisk::features::Compat;
use extant_ondisk::htree::{IndexMut, levels_max, looks_like_node};
use extant_ondisk::inode::{Inode as DiskInode, InodeFlags};
use extant_ondisk::xattr::BlockHeader;
use std::collections::HashMap;

impl Shrink<'_> {
    /// Moves every inode whose number is removed, one after the other.
    pub(super) fn move_inodes(&mut self) -> Result<()> {
        let removed = self.removed_numbers()?;
        if removed.is_empty() {
            return Ok(());
        }
        if self.volume.has_compat(Compat::STABLE_INODES) {
            let feature = Feature { set: FeatureSet::Compat, bits: 0x800, name: "stable_inodes" };
            return Err(Error::Unsupported { feature });
        }
        let references = self.references()?;
        let mut renamed = HashMap::new();
        let mut group = 0;
        for old in removed {
            let Some(body) = self.body(old)? else { continue };
            let new = self.free_number(&mut group)?;
            self.move_inode(old, new, body, &references, &mut renamed)?;
            self.done.moved_inodes += 1;
            self.commit_if_large()?;
        }
        Ok(())
    }

    /// The lowest free number that remains.
    fn free_number(&self, group: &mut u32) -> Result<Ino> {
        while *group < self.new.groups_count() {
            let nr = GroupNr(*group);
            let inodes = self.volume.geometry().inodes_per_group();
            let slot = self
                .volume
                .space()
                .inode_bitmap(nr)?
                .with(|bytes| bitmap::next_zero(bytes, 0..inodes));
            if let Some(ino) = slot.and_then(|slot| self.volume.geometry().ino_of_slot(nr, slot)) {
                return Ok(ino);
            }
            *group += 1;
        }
        Err(Error::NoSpace)
    }

    fn move_inode(
        &mut self,
        old: Ino,
        new: Ino,
        mut body: Body,
        references: &References,
        renamed: &mut HashMap<Ino, Ino>,
    ) -> Result<()> {
        let is_dir = body.disk.is_dir();
        body.disk.generation = self.generation_for(old, new, body.disk.generation);
        {
            let handle = self.volume.journal().start(CREDITS)?;
            self.volume.space().mark_inode(&handle, new, is_dir)?;
            self.volume.space().free_inode(&handle, old, is_dir)?;
            handle.stop()?;
        }
        self.store(&mut body.renumbered(new))?;
        self.store(&mut Body::fresh(self.volume.context(), old, DiskInode::default()))?;
        renamed.insert(old, new);
        for reference in references.get(&old).into_iter().flatten() {
            self.update_reference(*reference, new, renamed)?;
        }
        let sb = &mut *self.volume.context().superblock().write();
        for number in [
            &mut sb.usr_quota_inum,
            &mut sb.grp_quota_inum,
            &mut sb.prj_quota_inum,
            &mut sb.orphan_file_inum,
            &mut sb.lpf_ino,
        ] {
            if *number == old.get() {
                *number = new.get();
            }
        }
        Ok(())
    }

    /// The generation with which `new` has the seed of `old`.
    fn generation_for(&self, old: Ino, new: Ino, generation: u32) -> u32 {
        let Some(seed) = self.volume.checksums().seed() else { return generation };
        let with = |ino: Ino| crc32c(seed, &ino.get().to_le_bytes());
        with(old) ^ with(new) ^ generation
    }

    /// Changes one reference to `new`.
    fn update_reference(
        &self,
        reference: Reference,
        new: Ino,
        renamed: &HashMap<Ino, Ino>,
    ) -> Result<()> {
        let now = |ino: Ino| renamed.get(&ino).copied().unwrap_or(ino);
        let cache = self.volume.journal().cache();
        let word = new.get().to_le_bytes();
        match reference {
            Reference::Slot { holder, offset } => {
                let holder = now(holder);
                let mut body = self.reread(holder)?;
                // Fields are stored from the body, attributes from the bytes of the slot.
                let i_block = 0x28..0x28 + body.disk.i_block.len();
                if i_block.contains(&offset) {
                    let at = offset - i_block.start;
                    body.disk.i_block[at..at + 4].copy_from_slice(&word);
                } else {
                    body.raw[offset..offset + 4].copy_from_slice(&word);
                }
                self.store(&mut body)?;
            }
            Reference::AttributeBlock { block, offset } => {
                let handle = self.volume.journal().start(CREDITS)?;
                let held = cache.get(block)?;
                let held = held.write(&handle)?;
                let mut bytes = held.bytes_mut();
                bytes[offset..offset + 4].copy_from_slice(&word);
                if let Some(seed) = self.volume.checksums().seed() {
                    BlockHeader::set_checksum(&mut bytes, seed, block);
                }
            }
            Reference::DirBlock { dir, block, offset } => {
                let dir = now(dir);
                let body = self.reread(dir)?;
                let handle = self.volume.journal().start(CREDITS)?;
                let held = cache.get(block)?;
                let held = held.write(&handle)?;
                // This lookup is done first, because no other block can be read while this block's
                // bytes are locked.
                let first = self.volume.file(&body).map(extant_base::LogicalBlock(0), 1)?;
                let is_first = first.target.block() == Some(block);
                let mut bytes = held.bytes_mut();
                bytes[offset..offset + 4].copy_from_slice(&word);
                self.update_directory_checksum(dir, &body, (block, is_first), offset, &mut bytes)?;
            }
        }
        Ok(())
    }

    fn reread(&self, ino: Ino) -> Result<Body> {
        self.body(ino)?.ok_or_else(|| Site::of_ino(ino).corrupt(What::InodeMode))
    }

    /// Sets the checksum of a directory block of any of the three kinds.
    fn update_directory_checksum(
        &self,
        dir: Ino,
        body: &Body,
        (block, is_first): (extant_base::BlockNr, bool),
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<()> {
        let Some(seed) = body.seed(self.volume.context()) else { return Ok(()) };
        let format = self.volume.file(body).dir_format();
        let at = Site::of_ino(dir).block(block);
        let indexed = body.disk.flags.contains(InodeFlags::INDEX);
        // An index root contains only "." and "..", and is the first block, which is never a leaf
        // in an indexed directory.
        if indexed && is_first {
            let large = self.volume.has_incompat(extant_ondisk::features::Incompat::LARGEDIR);
            IndexMut::root(bytes, &format, levels_max(large), seed, at)?.set_checksum();
            return Ok(());
        }
        if indexed && offset == 0 && looks_like_node(bytes) {
            return Err(at.corrupt(What::DirentInode));
        }
        DirBlockMut::new(bytes, format, seed, at).set_checksum();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use extant_base::Ino;
    use extant_crc32c::crc32c;
    use extant_ondisk::checksum::inode_seed;

    #[test]
    fn one_generation_keeps_the_seed_under_another_number() {
        let volume = 0x1234_5678;
        for (old, new, generation) in [(12, 13, 0), (70_000, 11, 0xDEAD_BEEF), (5, 5, 7)] {
            let (old, new) = (Ino::new(old).unwrap(), Ino::new(new).unwrap());
            let with = |ino: Ino| crc32c(volume, &ino.get().to_le_bytes());
            let chosen = with(old) ^ with(new) ^ generation;
            assert_eq!(inode_seed(volume, old, generation), inode_seed(volume, new, chosen));
        }
    }
}
