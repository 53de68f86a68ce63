//! One step of a growth: what it changes, block by block.
//!
//! ```text
//!   Step          the geometry before and after, descriptors of the new groups, superblock
//!   TableBlocks   descriptor blocks: new descriptors in the last one, new blocks after it
//!   ResizeInode   fewer reserved blocks, or copies of them in new groups; gone with meta_bg
//! ```
//!
//! `read` brings all blocks into memory before anything changes; after that, `write` fails only if
//! the journal does.

use crate::inodes::lookup::Slot;
use crate::offline::resize::resize_inode::Lists;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Error, GroupNr, Ino, Result, Site, What};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::Inode as DiskInode;
use extant_ondisk::superblock::Superblock;

/// One step: the volume before and after it.
pub(super) struct Step {
    pub(super) old: Geometry,
    pub(super) new: Geometry,
    /// The superblock with the new size.
    pub(super) sb: Superblock,
    /// The descriptors of the new groups.
    pub(super) added: Vec<GroupDesc>,
}

impl Step {
    /// Whether a new group has backups, which the resize inode must list.
    fn adds_backups(&self) -> bool {
        let first = self.old.groups_count();
        self.new.super_groups().any(|nr| nr.0 >= first)
    }

    /// Whether it changes what the resize inode lists. `had` is the superblock before it.
    fn changes_lists(&self, had: &Superblock) -> bool {
        let table_grows = self.new.desc_blocks() > self.old.desc_blocks();
        had.features.compat.contains(Compat::RESIZE_INODE) && (table_grows || self.adds_backups())
    }

    /// Most blocks that descriptors and the resize inode dirty, known before anything is read.
    pub(super) fn most_credits(&self, had: &Superblock) -> u32 {
        let first = self.old.groups_count() / self.new.descs_per_block();
        let lists = if self.changes_lists(had) { ResizeInode::credits_for(self) } else { 0 };
        self.new.desc_blocks().saturating_sub(first) + lists
    }

    /// Puts the new size into `sb`, and all that follows from it except free counts.
    pub(super) fn put_into(&self, sb: &mut Superblock) {
        let fixed = |(nr, desc): (u32, &GroupDesc)| {
            let all = self.new.clusters_in_group(GroupNr(nr)).unwrap_or(0);
            u64::from(all - desc.free_clusters.min(all))
        };
        let fixed: u64 = (self.old.groups_count()..).zip(&self.added).map(fixed).sum();
        if sb.overhead_clusters != 0 && sb.blocks_count == self.old.blocks_count() {
            let all = u64::from(sb.overhead_clusters) + fixed;
            sb.overhead_clusters = u32::try_from(all).unwrap_or(0);
        }
        sb.blocks_count = self.sb.blocks_count;
        sb.inodes_count = self.sb.inodes_count;
        sb.reserved_blocks = self.sb.reserved_blocks;
        sb.reserved_gdt_blocks = self.sb.reserved_gdt_blocks;
        sb.first_meta_bg = self.sb.first_meta_bg;
        let new = &self.sb.features;
        sb.features.incompat.set(Incompat::META_BG, new.incompat.contains(Incompat::META_BG));
        sb.features.compat.set(Compat::RESIZE_INODE, new.compat.contains(Compat::RESIZE_INODE));
    }

    /// Descriptor block `k` with the new descriptors.
    pub(super) fn table_block(&self, volume: &Volume, k: u32) -> Result<Vec<u8>> {
        let mut bytes = match self.old.desc_block(k) {
            Some(block) => volume.journal().cache().get(block)?.read().to_vec(),
            None => vec![0; self.new.block_size().bytes()],
        };
        self.put_descriptors(volume, k, &mut bytes);
        Ok(bytes)
    }

    /// Writes the descriptors of the new groups that belong into descriptor block `k`.
    fn put_descriptors(&self, volume: &Volume, k: u32, bytes: &mut [u8]) {
        let size = self.new.desc_size();
        let first = k * self.new.descs_per_block();
        for (n, place) in bytes.chunks_exact_mut(size).enumerate() {
            let nr = first + len_u32(n);
            let added = nr.checked_sub(self.old.groups_count());
            if let Some(desc) = added.and_then(|n| self.added.get(n as usize)) {
                place.fill(0);
                desc.write(place, GroupNr(nr), volume.checksums());
            }
        }
    }
}

/// The descriptor blocks that a step changes.
pub(super) struct TableBlocks {
    /// Those that exist before the step.
    present: Vec<(u32, MetaBlock)>,
    /// Those that it adds.
    added: Vec<(u32, BlockNr)>,
}

impl TableBlocks {
    pub(super) fn read(volume: &Volume, step: &Step) -> Result<TableBlocks> {
        let (mut present, mut added) = (Vec::new(), Vec::new());
        for k in step.old.groups_count() / step.new.descs_per_block()..step.new.desc_blocks() {
            match step.old.desc_block(k) {
                Some(block) => present.push((k, volume.journal().cache().get(block)?)),
                None => added.push((k, step.new.desc_block(k).ok_or(Error::NoSpace)?)),
            }
        }
        Ok(TableBlocks { present, added })
    }

    pub(super) fn credits(&self) -> u32 {
        len_u32(self.present.len() + self.added.len())
    }

    pub(super) fn write(&self, volume: &Volume, step: &Step, handle: &Handle<'_>) -> Result<()> {
        for (k, block) in &self.present {
            step.put_descriptors(volume, *k, &mut block.write(handle)?.bytes_mut());
        }
        for (k, nr) in &self.added {
            // A block that was reserved for descriptors held pointers of the resize inode.
            let block = volume.journal().cache().get_new(*nr)?;
            step.put_descriptors(volume, *k, &mut block.write(handle)?.bytes_mut());
        }
        Ok(())
    }
}

/// The resize inode, if the step changes what it lists.
pub(super) struct ResizeInode {
    body: Body,
    slot: Slot,
    /// Its list of reserved blocks.
    list: BlockNr,
}

/// Blocks that freeing the list dirties: its bitmap and descriptor.
const FREE_CREDITS: u32 = 2;

impl ResizeInode {
    /// Errors: `InodeBlocks` if its list is outside the volume.
    pub(super) fn read(volume: &Volume, step: &Step) -> Result<Option<ResizeInode>> {
        if !step.changes_lists(&volume.context().superblock().read()) {
            return Ok(None);
        }
        let body = volume.inodes().read(Ino::RESIZE)?;
        let word = body.disk.i_block[52..56].first_chunk().copied().unwrap_or_default();
        let list = BlockNr(u64::from(u32::from_le_bytes(word)));
        if list.0 == 0 {
            return Ok(None);
        }
        if !step.old.holds(list, 1) || volume.space().is_system(list, 1) {
            return Err(Site::of_ino(Ino::RESIZE).block(list).corrupt(What::InodeBlocks));
        }
        if step.sb.features.compat.contains(Compat::RESIZE_INODE) {
            // A block that no pointer can name is found before anything changes. The copies of the
            // last block have the highest numbers.
            let lists = Lists::new(&step.new, u32::from(step.sb.reserved_gdt_blocks))?;
            lists.list()?;
            lists.blocks().last().map(|block| lists.copies(block)).transpose()?;
        }
        let slot = volume.inodes().slot(Ino::RESIZE)?;
        Ok(Some(ResizeInode { body, slot, list }))
    }

    pub(super) fn credits_for(step: &Step) -> u32 {
        let copies = if step.adds_backups() { u32::from(step.sb.reserved_gdt_blocks) } else { 0 };
        2 + FREE_CREDITS + copies
    }

    pub(super) fn write(mut self, volume: &Volume, step: &Step, handle: &Handle<'_>) -> Result<()> {
        if !step.sb.features.compat.contains(Compat::RESIZE_INODE) {
            self.body.disk = DiskInode::default();
            self.body.store_in(volume, handle, &self.slot)?;
            return volume.space().free(handle, self.list, 1);
        }
        let lists = Lists::new(&step.new, u32::from(step.sb.reserved_gdt_blocks))?;
        let cache = volume.journal().cache();
        let put = |block: BlockNr, bytes: &[u8]| -> Result<()> {
            cache.get_new(block)?.write(handle)?.bytes_mut().copy_from_slice(bytes);
            Ok(())
        };
        put(self.list, &lists.list()?)?;
        if step.adds_backups() {
            for block in lists.blocks() {
                put(block, &lists.copies(block)?)?;
            }
        }
        let blocks = lists.inode_blocks() * u64::from(step.new.cluster_ratio());
        self.body.disk.sectors = volume.context().sectors(blocks);
        self.body.store_in(volume, handle, &self.slot)
    }
}
