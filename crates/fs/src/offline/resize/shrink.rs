//! Making a volume smaller: emptying the part to remove, then the switch.
//!
//! ```text
//!   journal moved away ─► each inode's blocks ─► inodes of removed groups ─► tables ─► switch
//!        one step            steps of bounded size     one inode at a time      with the switch
//! ```

use super::Resized;
use super::free_map::FreeMap;
use super::switch;
use crate::open::exclusive::Exclusive;
use crate::progress::{Phase, Progress};
use crate::recovery::{self, RecoveryReport};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, ByteOffset, Error, GroupNr, Ino, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_journal::Credits;
use extant_ondisk::bitmap;
use extant_ondisk::features::RoCompat;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::superblock::Superblock;
use std::collections::HashMap;

/// Handles here belong to a journal that is off, so only the size of the step matters.
pub(super) const CREDITS: Credits = Credits::blocks(64);

/// A volume whose end is being emptied.
pub(super) struct Shrink<'a> {
    pub(super) exclusive: &'a mut Exclusive,
    pub(super) volume: Volume,
    pub(super) free: FreeMap,
    /// The first block that is removed.
    pub(super) end: u64,
    /// The future geometry.
    pub(super) new: Geometry,
    /// The new location of each moved attribute block, which several inodes may share.
    pub(super) attribute_blocks: HashMap<BlockNr, BlockNr>,
    /// The size of what inodes occupy has changed, so quota files must be recounted.
    pub(super) usage_changed: bool,
    pub(super) done: &'a mut Resized,
}

/// Changes the volume to `sb`, which has fewer blocks.
///
/// If a step fails, all earlier steps are complete: the volume has its old size and is consistent.
/// Errors: `NoSpace` if the content does not fit; those of [`super::resize`].
pub(super) fn run(
    exclusive: &mut Exclusive,
    sb: Superblock,
    done: &mut Resized,
    progress: &dyn Progress,
) -> Result<()> {
    let volume = exclusive.volume()?;
    let free = FreeMap::read(&volume, sb.blocks_count)?;
    let mut shrink = Shrink {
        end: sb.blocks_count,
        new: Geometry::new(&sb)?,
        exclusive,
        volume,
        free,
        attribute_blocks: HashMap::new(),
        usage_changed: false,
        done,
    };
    shrink.empty(progress)?;
    let moved = shrink.move_tables()?;
    let Shrink { exclusive, volume, .. } = shrink;
    let now = volume.context().superblock().read().clone();
    drop(volume);
    let sb = Superblock {
        journal_inum: now.journal_inum,
        jnl_blocks: now.jnl_blocks,
        usr_quota_inum: now.usr_quota_inum,
        grp_quota_inum: now.grp_quota_inum,
        prj_quota_inum: now.prj_quota_inum,
        orphan_file_inum: now.orphan_file_inum,
        lpf_ino: now.lpf_ino,
        ..sb
    };
    switch::to(exclusive, sb, Some(moved))
}

impl Shrink<'_> {
    /// Moves the blocks of inodes, and then inodes, out of the part that is removed.
    fn empty(&mut self, progress: &dyn Progress) -> Result<()> {
        let all = u64::from(self.volume.geometry().groups_count()) + 1;
        progress.begin(Phase::ResizeMove, all);
        self.move_journal()?;
        for nr in self.volume.geometry().groups() {
            for ino in self.inodes_of(nr)? {
                self.move_blocks_of(ino)?;
            }
            progress.advance(Phase::ResizeMove, 1);
        }
        self.commit_step()?;
        self.move_inodes()?;
        self.commit_step()?;
        progress.advance(Phase::ResizeMove, 1);
        Ok(())
    }

    /// The inodes of a group that are in use.
    pub(super) fn inodes_of(&self, nr: GroupNr) -> Result<Vec<Ino>> {
        let geometry = self.volume.geometry();
        let desc = self.volume.space().descriptor(nr)?;
        let used = desc.used_slots(geometry, self.volume.checksums());
        if desc.free_inodes == geometry.inodes_per_group() {
            return Ok(Vec::new());
        }
        let slots: Vec<u32> = self
            .volume
            .space()
            .inode_bitmap(nr)?
            .with(|bytes| bitmap::set_runs(bytes, 0..used).flatten().collect());
        Ok(slots.into_iter().filter_map(|slot| geometry.ino_of_slot(nr, slot)).collect())
    }

    /// An inode in use; `None` for a reserved number without an inode.
    pub(super) fn body(&self, ino: Ino) -> Result<Option<Body>> {
        let reserved = ino.get() < self.volume.at_open().first_ino;
        match self.volume.inodes().read(ino) {
            Ok(body) => Ok(Some(body)),
            Err(Error::Corrupt { what: What::InodeMode, .. }) if reserved => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a block is beyond the new end.
    pub(super) fn is_past_end(&self, block: BlockNr) -> bool {
        block.0 >= self.end
    }

    /// Marks `blocks` blocks from `first` on as used.
    pub(super) fn mark_used(&self, first: BlockNr, blocks: u64) -> Result<()> {
        let handle = self.volume.journal().start(CREDITS)?;
        self.volume.space().mark_blocks(&handle, first, blocks, true)?;
        handle.stop()
    }

    /// Marks `blocks` blocks from `first` on as free. Those below the new end can be used after the
    /// next commit.
    pub(super) fn mark_free(&mut self, first: BlockNr, blocks: u64) -> Result<()> {
        let handle = self.volume.journal().start(CREDITS)?;
        for n in 0..blocks {
            handle.forget(BlockNr(first.0 + n));
        }
        self.volume.space().mark_blocks(&handle, first, blocks, false)?;
        handle.stop()?;
        self.free.add_freed(first, blocks);
        Ok(())
    }

    /// Stores a changed inode without updating the quota files, which are updated with the step.
    pub(super) fn store(&self, body: &mut Body) -> Result<()> {
        let (volume, ino) = (&self.volume, body.ino());
        body.disk.write(&mut body.raw, ino, volume.inode_format())?;
        let handle = volume.journal().start(CREDITS)?;
        let (block, place) = volume.inodes().slot(ino)?;
        block.write(&handle)?.bytes_mut()[place].copy_from_slice(&body.raw);
        handle.stop()?;
        volume.inode_table().forget(ino);
        Ok(())
    }

    /// Copies `blocks` blocks to free blocks.
    pub(super) fn copy(&self, from: BlockNr, to: BlockNr, blocks: u64) -> Result<()> {
        const CHUNK_BYTES: u64 = 1 << 20;
        let bs = self.volume.block_size();
        let device = self.exclusive.staged.device();
        let (mut at, mut left) = (0, blocks << bs.log2());
        let mut bytes = vec![0; left.min(CHUNK_BYTES) as usize];
        while left > 0 {
            let part = &mut bytes[..left.min(CHUNK_BYTES) as usize];
            device.read_at(ByteOffset(bs.start_of(from).0 + at), part)?;
            self.exclusive.staged.write_free(ByteOffset(bs.start_of(to).0 + at), part)?;
            at += part.len() as u64;
            left -= part.len() as u64;
        }
        Ok(())
    }

    /// Commits the step. The volume is consistent after it.
    pub(super) fn commit_step(&mut self) -> Result<()> {
        self.prepare()?;
        let now = self.exclusive.now();
        self.exclusive.staged.commit_whole_step(self.volume.geometry().blocks_count(), now)?;
        self.free.step_committed();
        Ok(())
    }

    /// Writes all changes of the step to the staged device.
    pub(super) fn prepare(&mut self) -> Result<()> {
        if std::mem::take(&mut self.usage_changed) && self.volume.has_ro_compat(RoCompat::QUOTA) {
            self.volume.journal().sync()?;
            recovery::recount_quota(&self.volume, &mut RecoveryReport::default())?;
        }
        self.volume.mount_state().update_superblock()?;
        self.volume.journal().sync()
    }

    /// Commits the step if it has become large.
    pub(super) fn commit_if_large(&mut self) -> Result<()> {
        self.volume.journal().sync()?;
        match self.exclusive.staged.is_large() {
            true => self.commit_step(),
            false => Ok(()),
        }
    }

    /// Copies bitmaps and inode tables of remaining groups that are beyond the new end. Returns the
    /// descriptors with the new locations.
    fn move_tables(&mut self) -> Result<Vec<GroupDesc>> {
        let geometry = self.volume.geometry();
        let ratio = u64::from(geometry.cluster_ratio());
        let mut moved = Vec::new();
        for nr in self.new.groups() {
            let mut desc = self.volume.space().descriptor(nr)?;
            let itable = u64::from(geometry.itable_blocks());
            for (place, len) in [
                (&mut desc.block_bitmap, 1),
                (&mut desc.inode_bitmap, 1),
                (&mut desc.inode_table, itable),
            ] {
                if place.0 + len > self.end {
                    let clusters =
                        u32::try_from(len.div_ceil(ratio)).map_err(|_| Error::NoSpace)?;
                    let to = self.free.take_whole(clusters)?;
                    self.copy(*place, to, len)?;
                    *place = to;
                }
            }
            desc.check_fields(nr, &self.new, self.volume.checksums()).or_else(|error| {
                // The last group's counters are still those of its old size.
                match nr.0 + 1 == self.new.groups_count() {
                    true => Ok(()),
                    false => Err(error),
                }
            })?;
            moved.push(desc);
        }
        self.check_empty()?;
        Ok(moved)
    }

    /// Checks that the part to remove contains only metadata at fixed locations.
    fn check_empty(&self) -> Result<()> {
        let geometry = self.volume.geometry();
        let descs = geometry
            .groups()
            .map(|nr| self.volume.space().descriptor(nr))
            .collect::<Result<Vec<_>>>()?;
        let fixed = switch::fixed_clusters(geometry, &descs, geometry.clusters_count());
        let per_group = u64::from(geometry.clusters_per_group());
        let first = (self.end - geometry.first_data_block().0) >> geometry.log_cluster_ratio();
        let mut n = fixed.partition_point(|run| run.end <= first);
        for nr in (fits_u32(first / per_group)..geometry.groups_count()).map(GroupNr) {
            let clusters = geometry.clusters_in_group(nr).unwrap_or(0);
            let base = u64::from(nr.0) * per_group;
            let from = first.max(base) - base;
            let used: Vec<_> = self
                .volume
                .space()
                .block_bitmap(nr)?
                .with(|bytes| bitmap::set_runs(bytes, fits_u32(from)..clusters).collect());
            for run in used {
                let (start, end) = (base + u64::from(run.start), base + u64::from(run.end));
                while fixed.get(n).is_some_and(|fixed| fixed.end <= start) {
                    n += 1;
                }
                // Adjacent fixed runs are joined, so a single one must contain the whole run.
                if !fixed.get(n).is_some_and(|fixed| fixed.start <= start && end <= fixed.end) {
                    let at = geometry.block_of_bit(nr, run.start).unwrap_or_default();
                    return Err(Site::of_group(nr).block(at).corrupt(What::BitmapCount));
                }
            }
        }
        Ok(())
    }
}
