//! Where the blocks of the data checksum file are.

use extant_base::BlockNr;

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
