//! Where the blocks of the data checksum file are.

use crate::context::lazy_table::LazyTable;
use extant_base::BlockNr;
use std::sync::atomic::{AtomicU32, Ordering};

/// The checksum file, once it was needed. It gets longer when the volume grows; threads that use an
/// earlier version find in it all blocks that the volume had before.
#[derive(Default)]
pub(crate) struct ChecksumFileCell {
    versions: LazyTable<ChecksumFile>,
    /// How many versions there are.
    count: AtomicU32,
}

impl ChecksumFileCell {
    /// The newest version; `None` before the first.
    pub(crate) fn get(&self) -> Option<&ChecksumFile> {
        let newest = self.count.load(Ordering::Acquire).checked_sub(1)?;
        self.versions.cell(newest).get()
    }

    /// The newest version; `file` if there is none.
    pub(crate) fn get_or_put(&self, file: ChecksumFile) -> &ChecksumFile {
        let first = self.versions.cell(0).get_or_init(|| file);
        let _ = self.count.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        self.get().unwrap_or(first)
    }

    /// From now on the file is `file`, which is longer. One thread at a time calls this, after
    /// [`ChecksumFileCell::get_or_put`].
    pub(crate) fn replace(&self, file: ChecksumFile) {
        let count = self.count.load(Ordering::Acquire);
        if self.versions.cell(count).set(file).is_ok() {
            self.count.store(count + 1, Ordering::Release);
        }
    }
}

/// Where the blocks of the checksum file are. The file is complete from the moment the feature is
/// enabled, and its blocks never move.
pub(crate) struct ChecksumFile {
    /// For each run: first block of the file, first block of the volume, length.
    runs: Vec<(u64, BlockNr, u64)>,
}

impl ChecksumFile {
    /// A file with these runs, in the order of the file.
    pub(crate) fn new(runs: Vec<(u64, BlockNr, u64)>) -> ChecksumFile {
        ChecksumFile { runs }
    }

    /// Which of the file's blocks `block` is.
    pub(crate) fn index_of(&self, block: BlockNr) -> Option<u64> {
        let run = self.runs.iter().find(|(_, start, len)| block.0.wrapping_sub(start.0) < *len)?;
        Some(run.0 + (block.0 - run.1.0))
    }

    /// Where block `index` of the file is, and how many blocks from there on are neighbours.
    pub(crate) fn place(&self, index: u64) -> Option<(BlockNr, u64)> {
        let n = self.runs.partition_point(|(first, ..)| *first <= index).checked_sub(1)?;
        let (first, block, len) = self.runs[n];
        let skip = index - first;
        (skip < len).then(|| (BlockNr(block.0 + skip), len - skip))
    }
}
