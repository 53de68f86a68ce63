//! Group descriptors: checksums, locations, counts and flags. No two pieces of metadata may
//! overlap.
//!
//! ```text
//!   descriptor block ──► all checksums in it right? ── no ──► a backup in which they are
//!         │
//!         ▼            bitmap │ bitmap │ table … of every group and the fixed blocks, sorted:
//!   Group: desc, csum_ok, *_ok          an overlap is reported, and its bitmaps are not used
//! ```

use crate::audit::check::view::{Group, View};
use extant_base::narrow::{fits_u32, len_u8};
use extant_base::{BlockNr, GroupNr, Site, What};
use extant_ondisk::group_desc::{GroupDesc, GroupFlags, checksum_is_right};

/// Reads all descriptors into `view.groups`.
pub(super) fn load(view: &mut View<'_>) {
    let geometry = view.geometry;
    let (block_bytes, desc_size) = (view.block_bytes(), geometry.desc_size());
    let per_block = geometry.descs_per_block();
    let mut groups = Vec::with_capacity(geometry.groups_count() as usize);
    let mut bytes = vec![0; block_bytes];
    for k in 0..geometry.desc_blocks() {
        let first = k * per_block;
        let count = per_block.min(geometry.groups_count() - first);
        let Some(block) = geometry.desc_block(k) else {
            view.error(What::DescriptorBlock, Site::of_group(GroupNr(first)));
            groups.extend((0..count).map(|_| Group::default()));
            continue;
        };
        view.read_blocks(block, &mut bytes, Site::of_group(GroupNr(first)));
        let (good, plausible) = judge(view, &bytes, first, count);
        if !good || !plausible {
            report(view, &bytes, first, count, block);
            if let Some(copy) = good_copy(view, k, first, count) {
                view.note(
                    What::Backup,
                    Site::of_group(GroupNr(first)).block(block),
                    "the descriptors of a backup are used",
                );
                bytes.copy_from_slice(&copy);
            }
        }
        for n in 0..count {
            let desc = &bytes[n as usize * desc_size..][..desc_size];
            let csum_ok = checksum_is_right(desc, GroupNr(first + n), &view.csum);
            let desc = GroupDesc::parse(desc);
            groups.push(Group { desc, csum_ok, ..Group::default() });
        }
    }
    view.groups = groups;
    check_places(view);
    for group in geometry.groups() {
        check_counts(view, group);
    }
}

/// Whether all checksums of a descriptor block are right, and whether all locations are possible.
fn judge(view: &View<'_>, bytes: &[u8], first: u32, count: u32) -> (bool, bool) {
    let desc_size = view.geometry.desc_size();
    let (mut good, mut plausible) = (true, true);
    for n in 0..count {
        let desc = &bytes[n as usize * desc_size..][..desc_size];
        let group = GroupNr(first + n);
        good &= checksum_is_right(desc, group, &view.csum);
        let desc = GroupDesc::parse(desc);
        plausible &=
            places(view, &desc).iter().all(|(start, len)| may_hold(view, group, *start, *len));
    }
    (good, plausible)
}

fn report(view: &View<'_>, bytes: &[u8], first: u32, count: u32, block: BlockNr) {
    let desc_size = view.geometry.desc_size();
    for n in 0..count {
        let start = n as usize * desc_size;
        let desc = &bytes[start..][..desc_size];
        let group = GroupNr(first + n);
        let at = Site::of_group(group).block(block);
        if !checksum_is_right(desc, group, &view.csum) {
            view.error(What::DescriptorChecksum, at.offset(start + 0x1E));
        }
        let desc = GroupDesc::parse(desc);
        for (k, (place, len)) in places(view, &desc).into_iter().enumerate() {
            if !may_hold(view, group, place, len) {
                let what = NAMES[k];
                let detail = format!("{what} at block {place}");
                view.error_with(What::DescriptorBlock, at.offset(start + k * 4), detail);
            }
        }
    }
}

/// A backup of descriptor block `k` in which everything is right.
fn good_copy(view: &View<'_>, k: u32, first: u32, count: u32) -> Option<Vec<u8>> {
    let mut bytes = vec![0; view.block_bytes()];
    for (_, block) in view.geometry.desc_block_backups(k).take(8) {
        let start = view.geometry.block_size().start_of(block);
        if view.device.read_at(start, &mut bytes).is_ok()
            && judge(view, &bytes, first, count) == (true, true)
        {
            return Some(bytes);
        }
    }
    None
}

const NAMES: [&str; 3] = ["block bitmap", "inode bitmap", "inode table"];

fn places(view: &View<'_>, desc: &GroupDesc) -> [(BlockNr, u32); 3] {
    let itable = view.geometry.itable_blocks();
    [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, itable)]
}

/// Whether metadata of `group` may be there: on the volume, and without flex_bg in the group
/// itself.
fn may_hold(view: &View<'_>, group: GroupNr, start: BlockNr, len: u32) -> bool {
    let geometry = &view.geometry;
    let own = match geometry.blocks_of_group(group) {
        Some(blocks) if !geometry.metadata_roams() => blocks,
        _ => geometry.block_range(),
    };
    start.0 >= own.start.max(1) && start.0.checked_add(len.into()).is_some_and(|end| end <= own.end)
}

/// Finds overlapping metadata, and decides which bitmaps and tables can be read.
fn check_places(view: &mut View<'_>) {
    let geometry = view.geometry;
    // First block, length, group, and kind; kind 3 is the fixed blocks at the start of a group.
    let mut runs: Vec<(u64, u32, u32, u8)> = Vec::with_capacity(view.groups.len() * 3);
    for group in geometry.groups() {
        if let Some(base) = geometry.base_blocks(group)
            && base.start < base.end
        {
            runs.push((base.start, fits_u32(base.end - base.start), group.0, 3));
        }
        let desc = view.group(group).desc;
        for (k, (start, len)) in places(view, &desc).into_iter().enumerate() {
            let good = may_hold(view, group, start, len);
            if good {
                runs.push((start.0, len, group.0, len_u8(k)));
            }
            let entry = &mut view.groups[group.0 as usize];
            match k {
                0 => entry.block_bitmap_ok = good,
                1 => entry.inode_bitmap_ok = good,
                _ => entry.itable_ok = good,
            }
        }
    }
    runs.sort_unstable();
    let mut end = 0u64;
    let mut before = 0usize;
    for n in 0..runs.len() {
        let (start, len, group, kind) = runs[n];
        if start < end {
            let (.., other, other_kind) = runs[before];
            let name =
                |kind: u8| *NAMES.get(usize::from(kind)).unwrap_or(&"superblock or descriptors");
            let detail =
                format!("{} of group {group} on {} of group {other}", name(kind), name(other_kind));
            let at = Site::of_group(GroupNr(group)).block(BlockNr(start));
            view.error_with(What::DescriptorOverlap, at, detail);
            // Neither of two bitmaps can be trusted: any bytes look like a bitmap. Fixed blocks
            // were judged by their own checksums. An inode table is read even so, as e2fsck does:
            // each inode is judged by itself, and the blocks under an overlap are few. Without the
            // table, every file of its group would be reported as missing, and its blocks as free.
            for (group, kind) in [(group, kind), (other, other_kind)] {
                let entry = &mut view.groups[group as usize];
                match kind {
                    0 => entry.block_bitmap_ok = false,
                    1 => entry.inode_bitmap_ok = false,
                    _ => {}
                }
            }
        }
        if start + u64::from(len) > end {
            end = start + u64::from(len);
            before = n;
        }
    }
}

fn check_counts(view: &View<'_>, group: GroupNr) {
    let geometry = &view.geometry;
    let desc = &view.group(group).desc;
    let at = Site::of_group(group);
    let ipg = geometry.inodes_per_group();
    let clusters = geometry.clusters_in_group(group).unwrap_or(0);
    if desc.free_clusters > clusters {
        view.error_with(What::DescriptorCount, at.offset(0x0C), "free clusters");
    }
    if desc.free_inodes > ipg {
        view.error_with(What::DescriptorCount, at.offset(0x0E), "free inodes");
    }
    if desc.used_dirs > ipg {
        view.error_with(What::DescriptorCount, at.offset(0x10), "directories");
    }
    let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
    if !view.csum.groups_may_be_uninit() {
        if desc.flags.intersects(uninit) || desc.itable_unused != 0 {
            view.error_with(What::DescriptorFlags, at.offset(0x12), "volume has no such groups");
        }
        return;
    }
    if desc.itable_unused > ipg || desc.itable_unused > desc.free_inodes {
        view.error_with(What::DescriptorCount, at.offset(0x1C), "inodes never used");
    }
    if desc.inode_uninit(&view.csum) && desc.itable_unused < ipg {
        view.error_with(What::DescriptorFlags, at.offset(0x12), "INODE_UNINIT with inodes in use");
    }
    if desc.block_uninit(&view.csum) && group.0 + 1 == geometry.groups_count() {
        view.error_with(What::DescriptorFlags, at.offset(0x12), "BLOCK_UNINIT on the last group");
    }
}
