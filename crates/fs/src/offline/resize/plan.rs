//! The superblock of a volume of another size, and which sizes are large enough for the content.
//!
//! ```text
//!   wanted blocks ─fit─► possible blocks ─geometry─► superblock of the new size
//!
//!   smallest:  data and maps  +  tables of the remaining groups  +  tables of removed groups that
//!              occupy space until the end  +  space to move in   ≤  remaining clusters
//! ```
//!
//! Groups, inodes per group and block size never change. The rule for the tail is that of mke2fs: a
//! last group with less than 50 blocks besides its own metadata is omitted.

use crate::inodes::map::used::Used;
use crate::volume::{Volume, VolumeOptions};
use extant_base::narrow::{fits_u16, len_u32};
use extant_base::{Error, GroupNr, Ino, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::superblock::Superblock;
use std::sync::Arc;

/// A last group must have at least this many blocks besides its metadata.
const TAIL_MIN: u64 = 50;

/// The largest number of blocks, at most `wanted`, that a volume like `old` can have.
///
/// Errors: `Invalid` if there is none.
pub(super) fn fit(old: &Superblock, wanted: u64) -> Result<u64> {
    if wanted == old.blocks_count {
        return Ok(wanted);
    }
    let mut blocks = wanted >> old.log_cluster_ratio << old.log_cluster_ratio;
    loop {
        let new = geometry(old, blocks)?;
        let geometry = Geometry::new(&new)?;
        let last = GroupNr(geometry.groups_count() - 1);
        let have = u64::from(geometry.blocks_in_group(last).unwrap_or(0));
        if have == u64::from(geometry.blocks_per_group())
            || have >= own_blocks(&geometry, last) + TAIL_MIN
        {
            return Ok(blocks);
        }
        if last.0 == 0 {
            return Err(Error::Invalid("a volume of that size has no space for its own metadata"));
        }
        blocks -= have;
        if blocks == old.blocks_count {
            return Ok(blocks);
        }
    }
}

/// The number of blocks of a group's own metadata, wherever they are.
fn own_blocks(geometry: &Geometry, group: GroupNr) -> u64 {
    let base = geometry.base_blocks(group).map_or(0, |base| base.end - base.start);
    base + 2 + u64::from(geometry.itable_blocks())
}

/// The superblock of the volume with `blocks` blocks. The caller sets the free counters and the
/// checksum.
///
/// Errors: `Invalid` if a volume like `old` cannot have this many.
pub(super) fn geometry(old: &Superblock, blocks: u64) -> Result<Superblock> {
    let mut new = old.clone();
    new.blocks_count = blocks;
    let wide = old.features.incompat.contains(Incompat::IS_64BIT);
    if blocks > 1 << 32 && !wide {
        return Err(Error::Invalid("more than 2^32 blocks need the 64bit feature"));
    }
    let too_small = Error::Invalid("a volume needs more blocks than that");
    let groups = new.groups_count().ok_or(too_small)?;
    new.inodes_count = groups
        .checked_mul(old.inodes_per_group)
        .ok_or(Error::Invalid("the new groups would hold more than 2^32 inodes"))?;
    let of_all = u128::from(old.reserved_blocks) * u128::from(blocks);
    new.reserved_blocks = u64::try_from(of_all / u128::from(old.blocks_count.max(1)))
        .map_err(|_| Site::NOWHERE.corrupt(What::SuperblockField))?;

    let per_block = len_u32(old.block_size.bytes()) / u32::from(old.desc_size);
    let had = old.groups_count().unwrap_or(1).div_ceil(per_block);
    let needs = groups.div_ceil(per_block);
    size_table(&mut new, had, needs);
    if old.features.compat.contains(Compat::SPARSE_SUPER2) {
        let last = old.groups_count().unwrap_or(1) - 1;
        for backup in new.backup_bgs.iter_mut().filter(|backup| **backup != 0) {
            if *backup >= groups {
                *backup = 0;
            } else if *backup == last && *backup > 1 && groups - 1 > last {
                *backup = groups - 1;
            }
        }
    }
    new.check_fields(Site::NOWHERE)?;
    Ok(new)
}

/// Decides where the descriptor table is when it grows or shrinks from `had` to `needs` blocks.
fn size_table(new: &mut Superblock, had: u32, needs: u32) {
    let reserved = u32::from(new.reserved_gdt_blocks);
    let most = len_u32(new.block_size.bytes()) / 4;
    if new.features.incompat.contains(Incompat::META_BG) {
        // The part of the table at its old location cannot grow there any more.
        new.first_meta_bg = new.first_meta_bg.min(needs);
        if needs > had {
            new.first_meta_bg = new.first_meta_bg.min(had);
        }
        return;
    }
    let reserves = new.features.compat.contains(Compat::RESIZE_INODE);
    if needs <= had {
        if reserves && reserved > 0 {
            new.reserved_gdt_blocks = fits_u16((reserved + (had - needs)).min(most));
        }
        return;
    }
    let more = needs - had;
    if reserves && more <= reserved && new.blocks_count <= 1 << 32 {
        new.reserved_gdt_blocks -= fits_u16(more);
        return;
    }
    new.features.incompat.insert(Incompat::META_BG);
    new.features.compat.remove(Compat::RESIZE_INODE);
    new.first_meta_bg = if reserves { (had + reserved).min(needs) } else { had };
    new.reserved_gdt_blocks = 0;
}

/// As [`super::minimum`], for the volume on a device.
pub(super) fn minimum_of(device: &Arc<dyn BlockDevice>) -> Result<u64> {
    minimum(&Volume::open_parts(Arc::clone(device), &VolumeOptions::default())?)
}

/// The smallest number of blocks for the volume's content.
pub(super) fn minimum(volume: &Volume) -> Result<u64> {
    let needs = Needs::of(volume)?;
    let old = &volume.context().superblock().read().clone();
    let (mut low, mut high) = (0, old.blocks_count);
    // A smaller size that fits may exist. The search accepts that; every size that it returns does
    // fit.
    while low < high {
        let middle = low + (high - low) / 2;
        // Many numbers are impossible: they end inside a cluster, or the last group would be too
        // small.
        match fit(old, middle) {
            Ok(blocks) if needs.fit_into(old, blocks) => high = blocks,
            _ => low = middle + 1,
        }
    }
    Ok(high)
}

/// What a volume contains, as far as it matters for the size.
struct Needs {
    descs: Vec<GroupDesc>,
    /// Clusters of content and of maps.
    clusters: u64,
    inodes: u64,
    /// Runs of blocks of the journal, which moves as a whole: (first, number).
    journal: Vec<(u64, u64)>,
}

impl Needs {
    fn of(volume: &Volume) -> Result<Needs> {
        let geometry = volume.geometry();
        let descs = geometry
            .groups()
            .map(|nr| volume.space().descriptor(nr))
            .collect::<Result<Vec<GroupDesc>>>()?;
        let free: u64 = descs.iter().map(|desc| u64::from(desc.free_clusters)).sum();
        let free_inodes: u64 = descs.iter().map(|desc| u64::from(desc.free_inodes)).sum();
        let fixed = super::switch::fixed_clusters(geometry, &descs, geometry.clusters_count());
        let fixed: u64 = fixed.iter().map(|run| run.end - run.start).sum();
        let mut journal = Vec::new();
        if let Some(ino) = Ino::new(volume.at_open().journal_inum) {
            let body = volume.inodes().read(ino)?;
            volume.file(&body).each_block(&mut |used| {
                journal.push(match used {
                    Used::Data { start, len, .. } => (start.0, len.into()),
                    Used::Node(block) => (block.0, 1),
                });
                Ok(())
            })?;
        }
        Ok(Needs {
            journal,
            clusters: geometry.clusters_count().saturating_sub(free).saturating_sub(fixed),
            inodes: u64::from(geometry.inodes_count()).saturating_sub(free_inodes),
            descs,
        })
    }

    /// Whether a volume like `old` with `blocks` blocks, a result of [`fit`], is large enough.
    fn fit_into(&self, old: &Superblock, blocks: u64) -> bool {
        let Ok(new) = geometry(old, blocks) else { return false };
        let Ok(geometry) = Geometry::new(&new) else { return false };
        let groups = geometry.groups_count() as usize;
        if u64::from(geometry.inodes_count()) < self.inodes {
            return false;
        }
        // The MMP block, which other hosts watch, does not move.
        if old.features.incompat.contains(Incompat::MMP) && old.mmp_block.0 >= blocks {
            return false;
        }
        // Metadata locations of removed groups become free only with the removal. Remaining groups
        // may have metadata in the part that is removed, which moves.
        let stay = geometry.clusters_count();
        let old_layout = match Geometry::new(old) {
            Ok(old_layout) => old_layout,
            Err(_) => return false,
        };
        let mut fixed: u64 = super::switch::fixed_clusters(&old_layout, &self.descs, stay)
            .iter()
            .map(|run| run.end - run.start)
            .sum();
        let itable = u64::from(geometry.itable_blocks());
        let ratio = u64::from(geometry.cluster_ratio());
        for desc in &self.descs[..groups] {
            let places =
                [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, itable)];
            let moves = places.iter().filter(|(at, len)| at.0 + len > blocks);
            fixed += moves.map(|(_, len)| len.div_ceil(ratio)).sum::<u64>();
        }
        if self.journal.iter().any(|(first, len)| first + len > blocks) {
            // The old location becomes free only when the new one is in use.
            let below = |(first, len): &(u64, u64)| blocks.saturating_sub(*first).min(*len);
            fixed += self.journal.iter().map(|run| below(run).div_ceil(ratio)).sum::<u64>();
        }
        // Extent trees grow if free space is fragmented, and the last step of a move needs some
        // space.
        let spare = 32 + self.clusters / 256;
        fixed + self.clusters + spare <= stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_base::BlockSize;

    fn volume(reserved_blocks: u64) -> Superblock {
        let mut sb = Superblock::new(BlockSize::from_bytes(4096).unwrap());
        sb.features.incompat = Incompat::IS_64BIT;
        sb.desc_size = 64;
        (sb.blocks_count, sb.reserved_blocks) = (65_536, reserved_blocks);
        (sb.blocks_per_group, sb.clusters_per_group) = (32_768, 32_768);
        (sb.inodes_per_group, sb.inodes_count) = (8192, 2 * 8192);
        (sb.inode_size, sb.first_ino) = (256, 11);
        sb
    }

    #[test]
    fn reserved_blocks_grow_with_the_volume() {
        assert_eq!(geometry(&volume(100), 131_072).unwrap().reserved_blocks, 200);
    }

    #[test]
    fn a_forged_number_of_reserved_blocks_is_refused_if_it_grows_past_2_64() {
        let error = geometry(&volume(1 << 63), 131_072).unwrap_err();
        assert!(matches!(error, Error::Corrupt { what: What::SuperblockField, .. }), "{error}");
    }
}
