//! What a volume contains and where: for pictures and reports.
//!
//! ```text
//!   groups   descriptors and bitmaps, in parallel   ──► free runs, metadata ─┐
//!   own      the journal and internal files         ──► their blocks         ├─► cells: the volume
//!   names    the tree from the root, in parallel    ──► counts, pieces, top ─┘   in <= N parts
//! ```
//!
//! Memory does not grow with the number of files: one bit per inode, the rows of the lists, and a
//! bounded number of cells. Damage is not an error: it is listed in [`Survey::problems`], and
//! everything that can be read is counted.

mod cells;
mod groups;
mod names;
mod queue;
mod top;

pub use cells::{Cell, Parts};

use crate::api::filesystem::Filesystem;
use crate::progress::Progress;
use cells::Cells;
use extant_base::{Error, Ino, Result};
use groups::GroupsFound;
use names::NamesFound;
use std::path::PathBuf;

/// Options of a survey.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The length of each list of the largest files or directories, 1..=1000.
    pub top: usize,
    /// Into how many parts the volume is divided at most, 1..=65536.
    pub cells: usize,
    /// How many problems are kept. Further ones are only counted.
    pub problems: usize,
    /// Worker threads, 1..=64.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Options { top: 10, cells: 2048, problems: 100, threads }
    }
}

/// What a volume contains. Blocks are filesystem blocks. Each list is sorted, the largest first.
#[derive(Debug, Default)]
pub struct Survey {
    /// Blocks by their content.
    pub parts: Parts,
    /// Blocks of groups whose bitmap could not be read, so that free blocks are unknown.
    pub unknown_blocks: u64,
    /// The volume from its first block to its last. Each cell is a group, several groups, or a part
    /// of one.
    pub cells: Vec<Cell>,
    /// Groups by the state of their descriptors and bitmaps.
    pub groups: Groups,
    /// Runs of free blocks. A run ends at the end of its group, as every allocation does.
    pub free: Runs,
    /// The files that have names. A file with several names is counted once.
    pub files: Files,
    /// Files by their allocated blocks.
    pub largest_files: Vec<FileRow>,
    /// Files by their number of pieces, those with more than one.
    pub most_pieces: Vec<FileRow>,
    /// Directories by the blocks of everything below them.
    pub largest_dirs: Vec<DirRow>,
    /// Directories by their number of names.
    pub fullest_dirs: Vec<DirRow>,
    /// What could not be read.
    pub problems: Vec<Problem>,
    /// How many problems there are, those that were not kept included.
    pub problems_count: u64,
}

/// Block groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// The number of groups.
    pub count: u32,
    /// Groups without a free block.
    pub full: u32,
    /// Groups whose bitmap is uninitialized, because nothing was ever allocated there.
    pub uninit: u32,
    /// Groups whose descriptor or block bitmap cannot be used.
    pub damaged: u32,
}

/// Runs of adjacent blocks, by length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// The number of runs.
    pub count: u64,
    /// The number of blocks in them.
    pub blocks: u64,
    /// The length of the longest run.
    pub longest: u64,
    /// Entry `n` counts the runs of `2^n` to `2^(n+1) - 1` blocks.
    pub by_length: Vec<Bucket>,
}

/// A part of what is counted, and its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The number of items.
    pub count: u64,
    /// Their blocks.
    pub blocks: u64,
}

/// Files that have names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Regular files.
    pub regular: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub special: u64,
    /// Names.
    pub names: u64,
    /// Bytes of all regular files, holes included.
    pub bytes: u64,
    /// Regular files with inline data.
    pub inline: u64,
    /// Regular files with blocks.
    pub with_blocks: u64,
    /// Blocks of data of regular files, unwritten ones included.
    pub data_blocks: u64,
    /// Runs of adjacent blocks of regular files.
    pub pieces: u64,
    /// Regular files with more than one piece.
    pub fragmented: u64,
    /// Entry `n` counts the regular files of `2^n` to `2^(n+1) - 1` pieces.
    pub by_pieces: Vec<Bucket>,
    /// Regular files whose written blocks have checksums (`data_csum`), and their blocks.
    pub covered: Bucket,
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// The path from the volume's root; of several names, the one that was found first. If a path
    /// is longer than 64 KiB, only both ends, with `[...]` between them.
    pub path: PathBuf,
    /// The inode's number.
    pub ino: Ino,
    /// Size in bytes, holes included.
    pub size: u64,
    /// Blocks of data.
    pub blocks: u64,
    /// Runs of adjacent blocks in which they are.
    pub pieces: u64,
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirRow {
    /// The path from the volume's root. If it is longer than 64 KiB, only both ends, with `[...]`
    /// between them.
    pub path: PathBuf,
    /// The inode's number.
    pub ino: Ino,
    /// The number of names in the directory.
    pub names: u64,
    /// The number of files below it, directories included.
    pub below: u64,
    /// Blocks of the directory and of everything below it.
    pub blocks: u64,
}

/// Damage that the survey found.
#[derive(Debug)]
pub struct Problem {
    /// The path, if the problem was found through a name.
    pub path: Option<PathBuf>,
    /// What is wrong.
    pub error: Error,
}

impl Filesystem {
    /// Counts what the volume contains and where. Changes nothing.
    ///
    /// Reads all descriptors, block bitmaps, directories, inodes in use and maps. If others change
    /// the volume during the survey, the numbers belong to different moments.
    ///
    /// # Errors
    /// `NoMemory` if there is no memory for one bit per inode. Damage is no error; it is listed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let fs = extant::Filesystem::open("disk.img")?;
    /// let survey = fs.survey(&extant::survey::Options::default(), &())?;
    /// let files = &survey.files;
    /// let whole = files.with_blocks - files.fragmented;
    /// println!("{whole} of {} files in one piece", files.with_blocks);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn survey(&self, options: &Options, progress: &dyn Progress) -> Result<Survey> {
        let options = Options {
            top: options.top.clamp(1, 1000),
            cells: options.cells.clamp(1, 1 << 16),
            threads: options.threads.clamp(1, 64),
            ..*options
        };
        let cells = Cells::new(self.volume().geometry(), options.cells);
        let groups = groups::survey(self.volume(), &cells, &options, progress);
        let own = names::own_files(self, &cells, &options);
        let names = names::survey(self, &cells, &options, progress)?;
        Ok(joined(cells, groups, own, names, &options))
    }
}

fn joined(
    cells: Cells,
    groups: GroupsFound,
    own: Problems,
    mut names: NamesFound,
    options: &Options,
) -> Survey {
    let (cells, parts) = cells.finish();
    let rows = names.take_rows();
    let mut survey = Survey {
        parts,
        unknown_blocks: groups.unknown_blocks,
        cells,
        groups: groups.groups,
        free: groups.free,
        files: names.files,
        largest_files: rows.largest_files,
        most_pieces: rows.most_pieces,
        largest_dirs: rows.largest_dirs,
        fullest_dirs: rows.fullest_dirs,
        ..Survey::default()
    };
    for problems in [groups.problems, own, names.problems] {
        survey.problems_count += problems.count;
        survey.problems.extend(problems.kept);
    }
    survey.problems.truncate(options.problems);
    survey
}

impl Runs {
    fn add(&mut self, blocks: u64) {
        self.count += 1;
        self.blocks += blocks;
        self.longest = self.longest.max(blocks);
        put(&mut self.by_length, blocks, blocks);
    }

    fn merge(&mut self, other: &Runs) {
        self.count += other.count;
        self.blocks += other.blocks;
        self.longest = self.longest.max(other.longest);
        merge(&mut self.by_length, &other.by_length);
    }
}

/// Counts an item of size `value` (at least 1), with its blocks.
fn put(buckets: &mut Vec<Bucket>, value: u64, blocks: u64) {
    let n = value.max(1).ilog2() as usize;
    if buckets.len() <= n {
        buckets.resize(n + 1, Bucket::default());
    }
    buckets[n].count += 1;
    buckets[n].blocks += blocks;
}

fn merge(into: &mut Vec<Bucket>, other: &[Bucket]) {
    if into.len() < other.len() {
        into.resize(other.len(), Bucket::default());
    }
    for (bucket, other) in into.iter_mut().zip(other) {
        bucket.count += other.count;
        bucket.blocks += other.blocks;
    }
}

/// The first problems, and the number of all.
#[derive(Debug, Default)]
struct Problems {
    kept: Vec<Problem>,
    count: u64,
}

impl Problems {
    fn add(&mut self, limit: usize, path: impl FnOnce() -> Option<PathBuf>, error: Error) {
        self.count += 1;
        if self.kept.len() < limit {
            self.kept.push(Problem { path: path(), error });
        }
    }

    fn merge(&mut self, limit: usize, other: Problems) {
        self.count += other.count;
        let left = limit.saturating_sub(self.kept.len());
        self.kept.extend(other.kept.into_iter().take(left));
    }
}

#[cfg(test)]
mod tests;
