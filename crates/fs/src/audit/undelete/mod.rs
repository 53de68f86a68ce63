//! Files that were deleted and whose content is still there, and the tree as it was at a time.
//!
//! ```text
//!   journal   old copies of ── inode tables ──► inodes as they were ─┐
//!             (the whole ring, map nodes ────────────────────────────┼─► files: whole, partly
//!             also untagged)   directories ───► their names ─────────┤   reused, or without blocks
//!             fast commits ──► names, inodes and their maps ─────────┤
//!   home      map nodes that the removal left ──► inodes without size┘
//!             block bitmaps ──► which blocks are in use again
//! ```
//!
//! Linux clears the map in an inode that it deletes, so the inode at home has nothing left. But the
//! log is a ring: until it is written over, it has the inode as it was before, and the directory
//! with the name. A file with many extents leaves more: the nodes of its map stay where they are,
//! with checksums that name the inode.
//!
//! Rules:
//! - Nothing is written.
//! - Nothing that was read is trusted: an inode, a node, a name is taken if its checksum and its
//!   fields are right, and left out if not.
//! - Content is never proven. A block counts as lost if a file uses it now, if a file had it that
//!   was deleted later, or if the log shows that it was written as metadata afterwards. A file with
//!   all its blocks is [`State::Whole`]; the log may have forgotten that one was written over.
//!
//! Memory: about 60 bytes for each copy in the log, and what the files found need.

mod as_of;
mod evidence;
mod examine;
mod fast_commits;
mod files;
mod inodes;
mod left;
mod map;
mod names;
mod owner;
mod paths;
mod untagged;
mod xattrs;

pub use as_of::{AsOf, PastTree};
pub use files::{PastFile, PastFiles, State};

use crate::api::filesystem::Filesystem;
use crate::progress::Progress;
use crate::state::inode::Body;
use evidence::Evidence;
use extant_base::{Ino, Result, Tid};
use left::Since;
use map::Map;
use rangemap::RangeSet;

/// Options of a search.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Worker threads, 1..=64.
    pub threads: usize,
    /// How many files are kept. Further ones are only counted.
    pub files_limit: usize,
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Options { threads, files_limit: 1 << 20 }
    }
}

/// An inode as it was, before its names and blocks are examined.
struct Candidate {
    body: Body,
    /// The newest transaction that has it with a name; `None` for what was found at home.
    seen: Option<Tid>,
    /// The oldest transaction after that, which has it deleted.
    gone: Option<Tid>,
    deleted_at: Option<u64>,
    size_known: bool,
    /// The most links that it had in any copy.
    links_max: u16,
    /// Its map, if fast commits recorded it.
    recorded: Option<Map>,
}

impl Candidate {
    fn new(body: Body) -> Candidate {
        Candidate {
            seen: None,
            gone: None,
            deleted_at: None,
            size_known: true,
            links_max: body.disk.links,
            recorded: None,
            body,
        }
    }

    fn ino(&self) -> Ino {
        self.body.ino()
    }

    /// What no other inode has.
    fn identity(&self) -> (Ino, u32) {
        (self.ino(), self.body.disk.generation)
    }

    /// An older copy has this many links.
    fn note_links(&mut self, links: u16) {
        self.links_max = self.links_max.max(links);
    }

    /// How many names it can have had at a time.
    fn names_max(&self) -> usize {
        match self.body.is_dir() {
            true => 1,
            false => usize::from(self.links_max).max(1),
        }
    }
}

impl Filesystem {
    /// Finds deleted files, see [`undelete`](crate::undelete). Changes nothing.
    ///
    /// The less was written since the files were deleted, the more is found: open the volume
    /// read-only, and do not mount it before.
    ///
    /// # Errors
    /// `Corrupt` if the journal cannot be read; `Device`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let fs = extant::Filesystem::open("disk.img")?;
    /// let deleted = fs.deleted_files(&extant::undelete::Options::default(), &())?;
    /// for file in deleted.files() {
    ///     println!("{:?}: {} bytes, {:?}", file.path(), file.metadata().len(), file.state());
    /// }
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn deleted_files(&self, options: &Options, progress: &dyn Progress) -> Result<PastFiles> {
        let evidence = Evidence::read(self.volume())?;
        let found = inodes::find(&evidence, options, progress)?;
        let names = names::find(&evidence, &found)?;
        let mut paths = paths::Paths::new(&evidence, &found.candidates, &names);
        let mut files = Vec::new();
        // The files that were deleted last come first: the blocks that they had are lost for the
        // others.
        let newest = evidence.newest();
        let age = |n: &usize| {
            found.candidates[*n].seen.map_or(u32::MAX, |tid| newest.0.wrapping_sub(tid.0))
        };
        let mut order: Vec<usize> = (0..found.candidates.len()).collect();
        order.sort_by_key(age);
        let (mut later, own) = (RangeSet::new(), RangeSet::new());
        for n in order {
            let candidate = &found.candidates[n];
            let gone = candidate.gone.or(candidate.seen);
            let since = Since { later: &later, own: &own, gone };
            let Some((mut file, blocks)) = examine::examine(&evidence, candidate, &since)? else {
                continue;
            };
            later.extend(blocks);
            file.paths = paths.of(n);
            files.push(file);
        }
        let count = files.len() as u64 + found.not_kept;
        Ok(PastFiles::sorted(self.clone(), files, count))
    }
}
