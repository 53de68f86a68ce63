//! Pass 5: bitmaps and counts compared with what the other passes found.
//!
//! ```text
//!   group ─┬─ block bitmap   checksum, padding, each bit = claimed     ─┬─► free counts of the
//!          ├─ inode bitmap   checksum, padding, each bit = in use       │   descriptor
//!          └─ directories                                               └─► totals: superblock
//! ```
//!
//! On most volumes bitmaps are next to each other, so many are read at once.

use super::inodes::IN_USE;
use super::pass1::Tables;
use super::scatter::each_block;
use super::view::View;
use crate::progress::Phase;
use extant_base::{BlockNr, GroupNr, Ino, Site, What};
use extant_ondisk::bitmap::{self, Kind};
use extant_ondisk::group_desc::bitmap_csum_agrees;

/// How many runs of differing bits are reported for one bitmap.
const RUNS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    free_clusters: u64,
    free_inodes: u64,
}

/// Runs the pass.
pub(super) fn run(view: &View<'_>, tables: &mut Tables) {
    let mut wanted: Vec<(u64, u32, Kind)> = Vec::new();
    let mut totals = Totals::default();
    for group in view.geometry.groups() {
        let entry = view.group(group);
        let block = !entry.desc.block_uninit(&view.csum) && entry.block_bitmap_ok;
        let inode = !entry.desc.inode_uninit(&view.csum) && entry.inode_bitmap_ok;
        match block {
            true => wanted.push((entry.desc.block_bitmap.0, group.0, Kind::Block)),
            false => check_blocks(view, tables, group, None, &mut totals),
        }
        match inode {
            true => wanted.push((entry.desc.inode_bitmap.0, group.0, Kind::Inode)),
            false => check_inodes(view, tables, group, None, &mut totals),
        }
    }
    wanted.sort_unstable_by_key(|(block, ..)| *block);
    view.progress.begin(Phase::CheckBitmaps, wanted.len() as u64);
    let shared: &Tables = tables;
    let parts = each_block(
        view,
        &wanted,
        |(block, ..)| *block,
        Totals::default,
        |totals, (_, group, kind), map| {
            let group = GroupNr(*group);
            match kind {
                Kind::Block => check_blocks(view, shared, group, Some(map), totals),
                Kind::Inode => check_inodes(view, shared, group, Some(map), totals),
            }
            view.progress.advance(Phase::CheckBitmaps, 1);
        },
    );
    for part in parts {
        totals.free_clusters += part.free_clusters;
        totals.free_inodes += part.free_inodes;
    }
    check_totals(view, &totals);
    let free_blocks = totals.free_clusters << view.geometry.log_cluster_ratio();
    tables.stats.blocks_used = view.geometry.blocks_count().saturating_sub(free_blocks);
}

fn check_totals(view: &View<'_>, totals: &Totals) {
    let free_blocks = totals.free_clusters << view.geometry.log_cluster_ratio();
    let rows = [
        (What::FreeBlocksCount, 0x0C, view.sb.free_blocks, free_blocks),
        (What::FreeInodesCount, 0x10, u64::from(view.sb.free_inodes), totals.free_inodes),
    ];
    for (what, offset, says, free) in rows {
        let at = Site::NOWHERE.offset(offset);
        let detail = format!("says {says}, {free} are free");
        match says == free {
            true => {}
            // A mounted volume counts only in its descriptors; unmounting adds them up for the
            // superblock.
            false if view.recovered => view.note(what, at, detail),
            false => view.error_with(what, at, detail),
        }
    }
}

/// The claimed clusters of `group`, as a bitmap without padding.
fn claimed(view: &View<'_>, tables: &Tables, group: GroupNr) -> Vec<u8> {
    let mut map = vec![0; view.block_bytes()];
    tables.usage.fill(group, &mut map);
    map
}

fn in_use(view: &View<'_>, tables: &Tables, group: GroupNr) -> (Vec<u8>, u32) {
    let ipg = view.geometry.inodes_per_group();
    let first = group.0 * ipg + 1;
    let mut map = vec![0; view.block_bytes()];
    let mut dirs = 0;
    // Reserved numbers count as used in any case, even if their inode table could not be read.
    for number in first..view.sb.first_ino.min(first + ipg) {
        bitmap::set(&mut map, number - first);
    }
    if tables.inodes.any_in(first, first + ipg - 1) {
        for bit in 0..ipg {
            let state = tables.inodes.get(first + bit);
            if state.has(IN_USE) {
                bitmap::set(&mut map, bit);
                dirs += u32::from(state.is_dir());
            }
        }
    }
    (map, dirs)
}

/// Reports where `map` differs from `right`, run by run.
fn differences(map: &[u8], right: &[u8], bits: u32, mut report: impl FnMut(bool, u32, u32)) {
    let bytes = (bits as usize).div_ceil(8);
    if map[..bits as usize / 8] == right[..bits as usize / 8] && bits.is_multiple_of(8) {
        return;
    }
    let differ: Vec<u8> = map.iter().zip(right).take(bytes).map(|(a, b)| a ^ b).collect();
    for (n, run) in bitmap::set_runs(&differ, 0..bits).enumerate() {
        if n == RUNS_MAX {
            break;
        }
        // A run of differing bits may contain both kinds of difference.
        let mut start = run.start;
        for bit in run.clone() {
            let next = bit + 1;
            let kind = bitmap::test(map, bit);
            if next == run.end || bitmap::test(map, next) != kind {
                report(kind, start, next - start);
                start = next;
            }
        }
    }
}

fn check_map(view: &View<'_>, kind: Kind, group: GroupNr, map: &[u8]) {
    let geometry = &view.geometry;
    let desc = &view.group(group).desc;
    let (stored, block) = match kind {
        Kind::Block => (desc.block_bitmap_csum, desc.block_bitmap),
        Kind::Inode => (desc.inode_bitmap_csum, desc.inode_bitmap),
    };
    let at = Site::of_group(group).block(block);
    if let Some(computed) = bitmap::compute_checksum(map, kind, geometry, &view.csum)
        && !bitmap_csum_agrees(stored, computed, geometry.desc_size())
    {
        view.error_with(What::BitmapChecksum, at, name(kind));
    }
    if !bitmap::padding_is_set(map, kind.used_bits(geometry, group)) {
        view.error_with(What::BitmapPadding, at, name(kind));
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Block => "block bitmap",
        Kind::Inode => "inode bitmap",
    }
}

/// `map` is `None` for a bitmap that is uninitialized or cannot be read.
fn check_blocks(
    view: &View<'_>,
    tables: &Tables,
    group: GroupNr,
    map: Option<&[u8]>,
    totals: &mut Totals,
) {
    let geometry = &view.geometry;
    let entry = view.group(group);
    let clusters = geometry.clusters_in_group(group).unwrap_or(0);
    let right = claimed(view, tables, group);
    let at = Site::of_group(group);
    let mut computed;
    let map = match map {
        Some(map) => {
            check_map(view, Kind::Block, group, map);
            Some(map)
        }
        None if entry.desc.block_uninit(&view.csum) => {
            computed = vec![0; view.block_bytes()];
            bitmap::init_block_bitmap(&mut computed, group, &entry.desc, geometry);
            Some(&computed[..])
        }
        None => None,
    };
    if let Some(map) = map {
        differences(map, &right, clusters, |marked, bit, len| {
            let what = if marked { What::BlockLeaked } else { What::BlockNotMarked };
            let block = geometry.block_of_bit(group, bit).unwrap_or(BlockNr(0));
            let blocks = u64::from(len) << geometry.log_cluster_ratio();
            view.error_with(what, at.block(block), format!("{blocks} blocks"));
        });
    }
    let free = bitmap::count_zeros(&right, 0..clusters);
    totals.free_clusters += u64::from(free);
    if entry.desc.free_clusters != free {
        let detail = format!("says {}, {free} are free", entry.desc.free_clusters);
        view.error_with(What::FreeBlocksCount, at.offset(0x0C), detail);
    }
}

fn check_inodes(
    view: &View<'_>,
    tables: &Tables,
    group: GroupNr,
    map: Option<&[u8]>,
    totals: &mut Totals,
) {
    let entry = view.group(group);
    let ipg = view.geometry.inodes_per_group();
    let (right, dirs) = in_use(view, tables, group);
    let at = Site::of_group(group);
    let first = group.0 * ipg + 1;
    let empty;
    let map = match map {
        Some(map) => {
            check_map(view, Kind::Inode, group, map);
            Some(map)
        }
        None if entry.desc.inode_uninit(&view.csum) => {
            empty = vec![0; view.block_bytes()];
            Some(&empty[..])
        }
        None => None,
    };
    if let Some(map) = map {
        differences(map, &right, ipg, |marked, bit, len| {
            let what = if marked { What::InodeLeaked } else { What::InodeNotMarked };
            let at = Site { ino: Ino::new(first + bit), ..at };
            view.error_with(what, at, format!("{len} inodes"));
        });
    }
    let free = bitmap::count_zeros(&right, 0..ipg);
    totals.free_inodes += u64::from(free);
    if entry.desc.free_inodes != free {
        let detail = format!("says {}, {free} are free", entry.desc.free_inodes);
        view.error_with(What::FreeInodesCount, at.offset(0x0E), detail);
    }
    if entry.desc.used_dirs != dirs {
        let detail = format!("says {}, there are {dirs}", entry.desc.used_dirs);
        view.error_with(What::UsedDirsCount, at.offset(0x10), detail);
    }
}
