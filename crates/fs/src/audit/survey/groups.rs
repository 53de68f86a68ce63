//! Groups: the content of their descriptors and block bitmaps.
//!
//! ```text
//!   up to 64 groups ──► descriptors ──► bitmaps, adjacent ones at once ──► runs of clear bits
//! ```
//!
//! This does not use the table of groups, which would keep all of them in memory.

use super::cells::{Cells, Content};
use super::{Groups, Options, Problems, Runs};
use crate::parallel;
use crate::progress::{Phase, Progress};
use crate::volume::Volume;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, GroupNr, Result};
use extant_ondisk::bitmap;
use extant_ondisk::group_desc::GroupDesc;

/// How many groups a thread takes at once: as many as a flex group usually has, or a part of them.
const STEP: u32 = 64;

/// The results of one thread.
#[derive(Default)]
pub(super) struct GroupsFound {
    pub(super) groups: Groups,
    pub(super) free: Runs,
    pub(super) unknown_blocks: u64,
    pub(super) problems: Problems,
}

pub(super) fn survey(
    volume: &Volume,
    cells: &Cells,
    options: &Options,
    progress: &dyn Progress,
) -> GroupsFound {
    let count = volume.geometry().groups_count();
    progress.begin(Phase::SurveyGroups, count.into());
    let states = parallel::each(
        options.threads,
        count.div_ceil(STEP) as usize,
        GroupsFound::default,
        |found, item| {
            let first = len_u32(item) * STEP;
            let last = first.saturating_add(STEP).min(count);
            some(volume, cells, options, first..last, found);
            progress.advance(Phase::SurveyGroups, u64::from(last - first));
        },
    );
    let mut all = GroupsFound::default();
    for found in states {
        let (sum, part) = (&mut all.groups, found.groups);
        sum.full += part.full;
        sum.uninit += part.uninit;
        sum.damaged += part.damaged;
        all.free.merge(&found.free);
        all.unknown_blocks += found.unknown_blocks;
        all.problems.merge(options.problems, found.problems);
    }
    all.groups.count = count;
    all
}

fn some(
    volume: &Volume,
    cells: &Cells,
    options: &Options,
    groups: std::ops::Range<u32>,
    found: &mut GroupsFound,
) {
    let mut descriptors: Vec<(GroupNr, GroupDesc)> = Vec::with_capacity(groups.len());
    for nr in groups.map(GroupNr) {
        if let Some(base) = volume.geometry().base_blocks(nr) {
            cells.add(Content::Metadata, base);
        }
        match volume.context().recording_errors(|| descriptor(volume, nr)) {
            Ok(desc) => descriptors.push((nr, desc)),
            Err(error) => {
                found.problems.add(options.problems, || None, error);
                damaged(volume, cells, nr, found);
            }
        }
    }
    prefetch(volume, &descriptors);
    for (nr, desc) in &descriptors {
        let tables = u64::from(volume.geometry().itable_blocks());
        for (first, len) in
            [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, tables)]
        {
            cells.add(Content::Metadata, first.0..first.0.saturating_add(len));
        }
        if let Err(error) =
            volume.context().recording_errors(|| one(volume, cells, *nr, desc, found))
        {
            found.problems.add(options.problems, || None, error);
            damaged(volume, cells, *nr, found);
        }
    }
}

fn damaged(volume: &Volume, cells: &Cells, nr: GroupNr, found: &mut GroupsFound) {
    found.groups.damaged += 1;
    found.unknown_blocks += u64::from(volume.geometry().blocks_in_group(nr).unwrap_or(0));
    cells.add_unknown(nr);
}

fn descriptor(volume: &Volume, nr: GroupNr) -> Result<GroupDesc> {
    let (block, place) = volume.space().groups().descriptor_block(nr)?;
    let bytes = block.read();
    GroupDesc::check(&bytes[place], nr, volume.geometry(), volume.checksums())
}

/// Reads adjacent bitmaps into the cache with one read.
fn prefetch(volume: &Volume, descriptors: &[(GroupNr, GroupDesc)]) {
    let stored = descriptors.iter().filter(|(_, desc)| !desc.block_uninit(volume.checksums()));
    let mut run: Option<(u64, u32)> = None;
    let read = |run: Option<(u64, u32)>| {
        if let Some((first, count)) = run.filter(|(_, count)| *count > 1) {
            // Only a hint: an error recurs when the bitmap itself is read.
            let _ = volume.journal().cache().prefetch(BlockNr(first), count);
        }
    };
    for (_, desc) in stored {
        run = match run {
            Some((first, count)) if first + u64::from(count) == desc.block_bitmap.0 => {
                Some((first, count + 1))
            }
            before => {
                read(before);
                Some((desc.block_bitmap.0, 1))
            }
        };
    }
    read(run);
}

fn one(
    volume: &Volume,
    cells: &Cells,
    nr: GroupNr,
    desc: &GroupDesc,
    found: &mut GroupsFound,
) -> Result<()> {
    let map = volume.space().groups().block_bitmap_of(nr, desc)?;
    let uninit = desc.block_uninit(volume.checksums());
    let clusters = volume.geometry().clusters_in_group(nr).unwrap_or(0);
    let Some(blocks) = volume.geometry().blocks_of_group(nr) else { return Ok(()) };
    let ratio = volume.geometry().log_cluster_ratio();
    let mut free = 0;
    map.with(|bytes| {
        for run in bitmap::zero_runs(bytes, 0..clusters) {
            let at = |bit: u32| (blocks.start + (u64::from(bit) << ratio)).min(blocks.end);
            let run = at(run.start)..at(run.end);
            free += run.end - run.start;
            found.free.add(run.end - run.start);
            cells.add_free_run(run);
        }
    });
    found.groups.full += u32::from(free == 0);
    found.groups.uninit += u32::from(uninit);
    Ok(())
}
