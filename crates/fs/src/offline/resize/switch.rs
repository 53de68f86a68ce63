//! The step that changes the size of a volume: everything that depends on it changes in one
//! transaction.
//!
//! ```text
//!   old descriptors ──► new ones: groups added or removed, moved tables
//!   old fixed clusters \ new ones ──► freed      tables of removed groups
//!   new fixed clusters \ old ones ──► taken      tables that moved
//!   last group: padding bits cleared (growing) or set (shrinking)
//!   table, resize inode, superblock ──► one step ──► backups
//! ```
//!
//! Blocks after the old end are written at once, because nothing reads them before the step.

use super::{backups, new_groups, resize_inode};
use crate::context::superblock::raw_superblock;
use crate::offline::mkfs::place::{Places, static_runs};
use crate::open::exclusive::Exclusive;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, ByteOffset, Error, GroupNr, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_crc32c::crc32c;
use extant_ondisk::bitmap::{self, Kind};
use extant_ondisk::checksum::Checksums;
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, Superblock, VolumeState};
use std::ops::Range;
use zerocopy::IntoBytes;

/// The volume between two sizes.
pub(super) struct Switch<'a> {
    pub(super) exclusive: &'a mut Exclusive,
    pub(super) old: Geometry,
    pub(super) new: Geometry,
    pub(super) sb: Superblock,
    pub(super) csum: Checksums,
    /// The descriptors before the change.
    pub(super) before: Vec<GroupDesc>,
    /// The descriptors after the change.
    pub(super) after: Vec<GroupDesc>,
}

/// Changes the volume to `sb`. `moved` are the descriptors of the remaining groups, if tables have
/// moved; the content of the tables is already at the new location.
///
/// Errors: `NotSupported` if the step does not fit into the log (nothing has changed then);
/// `Corrupt`, `Device`.
pub(super) fn to(
    exclusive: &mut Exclusive,
    sb: Superblock,
    moved: Option<Vec<GroupDesc>>,
) -> Result<()> {
    let old = Geometry::new(&exclusive.at_begin)?;
    let new = Geometry::new(&sb)?;
    let csum = sb.checksums();
    let before = read_descriptors(&*exclusive.staged.device(), &old, &csum)?;
    let stay = old.groups_count().min(new.groups_count()) as usize;
    let after = moved.unwrap_or_else(|| before[..stay].to_vec());
    let mut switch = Switch { exclusive, old, new, sb, csum, before, after };
    let home = switch.exclusive.staged.home().clone();
    let added = new_groups::write_new_groups(&*home, (&old, &new), &switch.csum)?;
    switch.after.extend(added);
    switch.adjust_groups()?;
    switch.write_table()?;
    resize_inode::rewrite(&mut switch)?;
    switch.write_superblock()?;
    let now = switch.exclusive.now();
    backups::write_after_old_end(&switch)?;
    let end = switch.old.blocks_count();
    switch.exclusive.staged.commit_whole_step(end, now)?;
    backups::write_before_old_end(&mut switch)
}

/// All descriptors, checked.
pub(crate) fn read_descriptors(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    csum: &Checksums,
) -> Result<Vec<GroupDesc>> {
    let bs = geometry.block_size();
    let mut descs = Vec::new();
    let mut block = vec![0; bs.bytes()];
    let mut read = None;
    for nr in geometry.groups() {
        let missing = || Site::of_group(nr).corrupt(What::DescriptorBlock);
        let (k, offset) = geometry.desc_place(nr).ok_or_else(missing)?;
        if read != Some(k) {
            let place = geometry.desc_block(k).ok_or_else(missing)?;
            device.read_at(bs.start_of(place), &mut block)?;
            read = Some(k);
        }
        descs.push(GroupDesc::check(
            &block[offset..offset + geometry.desc_size()],
            nr,
            geometry,
            csum,
        )?);
    }
    Ok(descs)
}

/// The clusters with metadata at fixed locations below cluster `end`, sorted and without overlap.
pub(super) fn fixed_clusters(
    geometry: &Geometry,
    descs: &[GroupDesc],
    end: u64,
) -> Vec<Range<u64>> {
    let places: Vec<Places> = descs
        .iter()
        .map(|desc| Places {
            block_bitmap: desc.block_bitmap,
            inode_bitmap: desc.inode_bitmap,
            inode_table: desc.inode_table,
        })
        .collect();
    let ratio = geometry.log_cluster_ratio();
    let first = geometry.first_data_block().0;
    let mut clusters: Vec<Range<u64>> = Vec::new();
    for run in static_runs(geometry, &places) {
        let start = (run.start.max(first) - first) >> ratio;
        let stop = (((run.end.max(first + 1) - 1 - first) >> ratio) + 1).min(end);
        match clusters.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(stop),
            _ if start < stop => clusters.push(start..stop),
            _ => {}
        }
    }
    clusters
}

/// What is in `a` and not in `b`. Both are sorted and without overlap.
fn without(a: &[Range<u64>], b: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    let mut n = 0;
    for run in a {
        let mut start = run.start;
        while n < b.len() && b[n].end <= start {
            n += 1;
        }
        let mut m = n;
        while start < run.end {
            match b.get(m) {
                Some(taken) if taken.start < run.end => {
                    if start < taken.start {
                        rest.push(start..taken.start);
                    }
                    start = start.max(taken.end);
                    m += 1;
                }
                _ => {
                    rest.push(start..run.end);
                    break;
                }
            }
        }
    }
    rest
}

impl Switch<'_> {
    /// Changes the bitmaps of the remaining groups to the new size.
    fn adjust_groups(&mut self) -> Result<()> {
        let end = self.old.clusters_count().min(self.new.clusters_count());
        let was = fixed_clusters(&self.old, &self.before, end);
        let is = fixed_clusters(&self.new, &self.after, end);
        let mut freed = without(&was, &is);
        freed.extend(self.freed_resize_block()?);
        let taken = without(&is, &was);
        let stay = len_u32(self.before.len().min(self.after.len()));
        let per_group = u64::from(self.old.clusters_per_group());
        let mut touched: Vec<u32> = freed
            .iter()
            .chain(&taken)
            .flat_map(|run| run.start / per_group..=(run.end - 1) / per_group)
            .map(fits_u32)
            .collect();
        let differs = |g: &u32| {
            let nr = GroupNr(*g);
            let (before, after) = (&self.before[*g as usize], &self.after[*g as usize]);
            self.old.clusters_in_group(nr) != self.new.clusters_in_group(nr)
                || before.block_bitmap != after.block_bitmap
                || before.flags != after.flags
                // The last group's bitmap is never uninitialized.
                || (*g as usize + 1 == self.after.len() && before.block_uninit(&self.csum))
        };
        touched.extend((0..stay).filter(differs));
        touched.sort_unstable();
        touched.dedup();
        for g in touched.into_iter().filter(|g| *g < stay) {
            let bits = |runs: &[Range<u64>]| -> Vec<Range<u32>> {
                let base = u64::from(g) * per_group;
                let here =
                    runs.iter().map(|run| run.start.max(base)..run.end.min(base + per_group));
                let here = here.filter(|run| run.start < run.end);
                here.map(|run| fits_u32(run.start - base)..fits_u32(run.end - base)).collect()
            };
            self.adjust_group(GroupNr(g), &bits(&freed), &bits(&taken))?;
        }
        Ok(())
    }

    fn adjust_group(
        &mut self,
        nr: GroupNr,
        freed: &[Range<u32>],
        taken: &[Range<u32>],
    ) -> Result<()> {
        let g = nr.0 as usize;
        let mut bytes = vec![0; self.old.block_size().bytes()];
        if self.before[g].block_uninit(&self.csum) {
            bitmap::init_block_bitmap(&mut bytes, nr, &self.before[g], &self.old);
        } else {
            self.read(self.before[g].block_bitmap, &mut bytes)?;
            bitmap::check(&bytes, Kind::Block, nr, &self.before[g], &self.old, &self.csum)?;
        }
        let had = self.old.clusters_in_group(nr).unwrap_or(0);
        let has = self.new.clusters_in_group(nr).unwrap_or(0);
        if has > had {
            bitmap::clear_range(&mut bytes, had..has);
        } else {
            bitmap::set_range(&mut bytes, has..had);
        }
        for run in freed {
            bitmap::clear_range(&mut bytes, run.clone());
        }
        for run in taken {
            if bitmap::count_set(&bytes, run.clone()) > 0 {
                return Err(Site::of_group(nr).corrupt(What::BitmapCount));
            }
            bitmap::set_range(&mut bytes, run.clone());
        }
        let covered = self.new.clusters_per_group() as usize / 8;
        let checksum = self.csum.seed().map_or(0, |seed| crc32c(seed, &bytes[..covered]));
        let desc = &mut self.after[g];
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        desc.free_clusters = bitmap::count_zeros(&bytes, 0..has);
        desc.block_bitmap_csum = checksum;
        let place = desc.block_bitmap;
        self.write(place, &bytes)
    }

    /// The cluster of the resize inode's list, if the volume drops the resize inode.
    fn freed_resize_block(&self) -> Result<Option<Range<u64>>> {
        let had = self.exclusive.at_begin.features.compat.contains(Compat::RESIZE_INODE);
        if !had || self.sb.features.compat.contains(Compat::RESIZE_INODE) {
            return Ok(None);
        }
        let Some(list) = resize_inode::list_block(self)? else { return Ok(None) };
        let cluster = (list.0 - self.old.first_data_block().0) >> self.old.log_cluster_ratio();
        Ok(Some(cluster..cluster + 1))
    }

    /// Writes the descriptor table.
    fn write_table(&mut self) -> Result<()> {
        let bs = self.new.block_size();
        for k in 0..self.new.desc_blocks() {
            let bytes = self.table_block(k)?;
            let place = self.new.desc_block(k).ok_or(Error::NoSpace)?;
            debug_assert_eq!(bytes.len(), bs.bytes());
            self.write(place, &bytes)?;
        }
        Ok(())
    }

    /// Block `k` of the future descriptor table.
    pub(super) fn table_block(&self, k: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.new.block_size().bytes()];
        if let Some(old) = self.old.desc_block(k) {
            self.read(old, &mut bytes)?;
        }
        let per_block = self.new.descs_per_block();
        let size = self.new.desc_size();
        for (n, place) in bytes.chunks_exact_mut(size).enumerate() {
            let nr = GroupNr(k * per_block + len_u32(n));
            match self.after.get(nr.0 as usize) {
                Some(desc) => {
                    if nr.0 >= self.old.groups_count() {
                        place.fill(0);
                    }
                    desc.write(place, nr, &self.csum);
                }
                None => place.fill(0),
            }
        }
        Ok(bytes)
    }

    fn write_superblock(&mut self) -> Result<()> {
        let ratio = self.new.log_cluster_ratio();
        let free: u64 = self.after.iter().map(|desc| u64::from(desc.free_clusters)).sum();
        let inodes: u64 = self.after.iter().map(|desc| u64::from(desc.free_inodes)).sum();
        let fixed = |geometry: &Geometry, descs: &[GroupDesc]| -> u64 {
            let runs = fixed_clusters(geometry, descs, geometry.clusters_count());
            runs.iter().map(|run| run.end - run.start).sum()
        };
        let had = u64::from(self.sb.overhead_clusters);
        let was = fixed(&self.old, &self.before);
        if had >= was {
            let overhead = had - was + fixed(&self.new, &self.after);
            self.sb.overhead_clusters = u32::try_from(overhead).unwrap_or(0);
        }
        self.sb.free_blocks = free << ratio;
        self.sb.free_inodes = u32::try_from(inodes).unwrap_or(u32::MAX);
        self.sb.wtime = self.exclusive.now().0;
        let device = self.exclusive.staged.device();
        let mut raw = raw_superblock(&*device, SUPERBLOCK_OFFSET)?;
        let now = raw.parse(Site::NOWHERE)?;
        let mut sb = self.sb.clone();
        // The marks of a volume that is being changed stay until the end.
        sb.features.incompat |= now.features.incompat & Incompat::RECOVER;
        sb.state = now.state;
        sb.update_raw(&mut raw);
        device.write_at(ByteOffset(SUPERBLOCK_OFFSET), raw.as_bytes())
    }

    /// The backup of the superblock for `group`.
    pub(super) fn superblock_copy(&self, group: GroupNr) -> Result<Vec<u8>> {
        let mut raw = raw_superblock(&*self.exclusive.staged.device(), SUPERBLOCK_OFFSET)?;
        let mut sb = self.sb.clone();
        sb.block_group = group;
        sb.state.remove(VolumeState::VALID);
        sb.features.incompat.remove(Incompat::LIVE);
        sb.update_raw(&mut raw);
        Ok(raw.as_bytes().to_vec())
    }

    /// Reads a block of the old volume, including staged changes.
    pub(super) fn read(&self, block: BlockNr, bytes: &mut [u8]) -> Result<()> {
        self.exclusive.staged.device().read_at(self.new.block_size().start_of(block), bytes)
    }

    /// Writes a block: as a part of the step, or at once if only the new volume has the block.
    pub(super) fn write(&self, block: BlockNr, bytes: &[u8]) -> Result<()> {
        let at = self.new.block_size().start_of(block);
        match block.0 < self.old.blocks_count() {
            true => self.exclusive.staged.device().write_at(at, bytes),
            false => self.exclusive.staged.home().write_at(at, bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str) -> Vec<Range<u64>> {
        let run = |word: &str| {
            let (start, end) = word.split_once('-').unwrap();
            start.parse().unwrap()..end.parse().unwrap()
        };
        text.split_whitespace().map(run).collect()
    }

    #[test]
    fn a_difference_of_runs_has_the_blocks_of_one_side_only() {
        for (a, b, expected) in [
            ("0-10", "", "0-10"),
            ("0-10", "0-10", ""),
            ("0-10", "2-4 6-8", "0-2 4-6 8-10"),
            ("0-4 6-9", "3-7", "0-3 7-9"),
            ("5-6", "0-5 6-9", "5-6"),
        ] {
            assert_eq!(without(&runs(a), &runs(b)), runs(expected), "{a} without {b}");
        }
    }
}
