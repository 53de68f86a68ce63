//! Comparing all data with its checksums.
//!
//! ```text
//!   inodes ──group by group──► runs ──in disk order──► pieces of 4 MiB ──► read, compute, compare
//! ```

use super::view::View;
use crate::inodes::data_csum::{CoveredRun, CoveredVisitor};
use crate::parallel;
use crate::progress::Phase;
use crate::state::inode::Body;
use crate::volume::{Volume, VolumeOptions};
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, Error, GroupNr, Ino, Result, Site, What};
use extant_ondisk::data_sums;
use extant_ondisk::features::RoCompat;
use std::ops::Range;
use std::sync::Arc;

/// How many bytes one read covers.
const PIECE: usize = 4 << 20;

#[derive(Default)]
struct Runs(Vec<CoveredRun>);

impl CoveredVisitor for Runs {
    fn inode(&mut self, _: &Body) -> Result<()> {
        Ok(())
    }

    fn run(&mut self, run: CoveredRun) -> Result<()> {
        self.0.push(run);
        Ok(())
    }

    fn damage(&mut self, _: Error) -> Result<()> {
        // Other passes have reported it.
        Ok(())
    }
}

/// Checks each block of the checksum file; with `data`, also all data, or the part of it that lies
/// `within` these bytes. Returns how many data blocks were checked, if data was to be checked.
pub(super) fn run(view: &View<'_>, data: bool, within: Option<&[Range<u64>]>) -> Option<u64> {
    if !view.has_ro_compat(RoCompat::DATA_CSUM) {
        return None;
    }
    let checked = check_all(view, data, within);
    data.then_some(checked)
}

fn check_all(view: &View<'_>, data: bool, within: Option<&[Range<u64>]>) -> u64 {
    let volume = match Volume::open_parts(Arc::clone(&view.device), &VolumeOptions::default()) {
        Ok(volume) => volume,
        Err(error) => {
            view.corrupt(&error, "");
            return 0;
        }
    };
    if let Err(error) = volume.data_checksums().checksum_file() {
        view.corrupt(&error, "");
        return 0;
    }
    check_file(view, &volume);
    if data { check_data(view, &volume, within) } else { 0 }
}

fn check_file(view: &View<'_>, volume: &Volume) {
    let size = volume.block_size();
    let blocks = data_sums::file_blocks(size, volume.geometry().blocks_count());
    let words = data_sums::words_per_block(size);
    // As many checksum blocks as cover about one group of blocks.
    let at_once = (u64::from(volume.geometry().blocks_per_group()) / words).max(1);
    let items = usize::try_from(blocks.div_ceil(at_once)).unwrap_or(usize::MAX);
    let check_blocks = |bytes: &mut Vec<u8>, item: usize| {
        let first = item as u64 * at_once;
        for index in first..(first + at_once).min(blocks) {
            let Ok(nr) = volume.data_checksums().place_of_checksums(index) else { continue };
            let at = Site::of_ino(Ino::CHECKSUM_FILE);
            bytes.resize(size.bytes(), 0);
            if view.read_blocks(nr.0, bytes, at)
                && let Err(error) = data_sums::check(bytes, index, view.csum_seed, at.block(nr.0))
            {
                view.corrupt(&error, "");
            }
        }
    };
    parallel::each(view.threads, items, Vec::new, check_blocks);
}

fn check_data(view: &View<'_>, volume: &Volume, within: Option<&[Range<u64>]>) -> u64 {
    view.progress.begin(Phase::CheckData, 0);
    let groups = volume.geometry().groups_count();
    let found = parallel::each(view.threads, groups as usize, Runs::default, |runs, group| {
        if let Err(error) = volume.data_checksums().walk_covered(GroupNr(len_u32(group)), runs) {
            view.corrupt(&error, "");
        }
    });
    let log2 = volume.block_size().log2();
    let most = len_u32(PIECE >> log2);
    let mut pieces = Vec::new();
    let mut total = 0;
    let runs = found.into_iter().flat_map(|runs| runs.0);
    for mut run in runs.flat_map(|run| parts(run, log2, within)) {
        total += u64::from(run.len);
        while run.len > 0 {
            let len = run.len.min(most);
            pieces.push(CoveredRun { len, ..run });
            (run.block, run.len) = (BlockNr(run.block.0 + u64::from(len)), run.len - len);
        }
    }
    pieces.sort_unstable_by_key(|run| run.block);
    view.progress.begin(Phase::CheckData, total);
    parallel::each(view.threads, pieces.len(), Vec::new, |bytes, n| {
        check_piece(view, volume, &pieces[n], bytes);
        view.progress.advance(Phase::CheckData, pieces[n].len.into());
    });
    total
}

/// The part of `run` that lies `within` these bytes, rounded to whole blocks.
fn parts(run: CoveredRun, log2: u32, within: Option<&[Range<u64>]>) -> Vec<CoveredRun> {
    let Some(within) = within else { return vec![run] };
    let end = run.block.0 + u64::from(run.len);
    let first = within.partition_point(|bytes| bytes.end <= run.block.0 << log2);
    let blocks = within[first..].iter().map(|bytes| {
        let last = bytes.end.div_ceil(1 << log2);
        (bytes.start >> log2).max(run.block.0)..last.min(end)
    });
    let parts = blocks.take_while(|blocks| blocks.start < end);
    let part = |b: Range<u64>| CoveredRun {
        block: BlockNr(b.start),
        len: fits_u32(b.end - b.start),
        ..run
    };
    parts.filter(|blocks| !blocks.is_empty()).map(part).collect()
}

fn check_piece(view: &View<'_>, volume: &Volume, run: &CoveredRun, bytes: &mut Vec<u8>) {
    let block = volume.block_size().bytes();
    let at = Site::of_ino(run.ino);
    let words = match volume.data_checksums().load_checksums(run.block, run.len) {
        Ok(words) => words,
        // Already reported with the checksum file itself.
        Err(Error::Corrupt { .. }) => return,
        Err(error) => return view.corrupt(&error, ""),
    };
    bytes.resize(run.len as usize * block, 0);
    if !view.read_blocks(run.block, bytes, at) {
        return;
    }
    for (n, (bytes, word)) in (run.block.0..).zip(bytes.chunks(block).zip(words)) {
        if data_sums::sum_of(bytes) != word {
            view.error(What::DataChecksum, at.block(BlockNr(n)));
        }
    }
}
