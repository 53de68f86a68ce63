//! Sources of an image: what they are, and how they are read into one [`Tree`].
//!
//!   directory ─┐
//!   tar, tgz ──┼─► one tree each ──► merged, later over earlier ──► excludes ──► owners, modes
//!   OCI image ─┘

mod beneath;
mod directory;

pub(crate) use beneath::open_beneath;

use crate::error::SourceError;
use crate::progress::Progress;
use crate::tree::Tree;
use std::path::{Path, PathBuf};

/// One source: where it is and, unless it shall be found out, what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// A path; `-` is standard input.
    pub path: PathBuf,
    /// What it is; `None` to find out.
    pub kind: Option<SourceKind>,
}

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A directory, taken as it is.
    Directory,
    /// A tar archive, plain or compressed with gzip or zstd.
    Tar,
    /// An OCI layout (a directory or a tar of one) or the output of `docker save`.
    Image,
}

impl SourceSpec {
    /// A source whose kind is found out by looking at it.
    pub fn new(path: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec { path: path.into(), kind: None }
    }
}

impl<P: AsRef<Path>> From<P> for SourceSpec {
    fn from(path: P) -> SourceSpec {
        SourceSpec::new(path.as_ref())
    }
}

/// How sources are read.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    pub(crate) threads: usize,
    pub(crate) one_file_system: bool,
    pub(crate) keep_going: bool,
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) spool_dir: Option<PathBuf>,
    pub(crate) skipped: Vec<((u32, u32), u64)>,
}

impl SourceOptions {
    /// The defaults: all cores, all filesystems, stop at the first error, owners as found.
    pub fn new() -> SourceOptions {
        SourceOptions::default()
    }

    /// How many threads list directories; 0 for one a core. The result does not depend on it.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Keeps mount points below a source directory as empty directories.
    pub fn one_file_system(mut self, yes: bool) -> Self {
        self.one_file_system = yes;
        self
    }

    /// Goes past entries of source directories that cannot be read or that vanish; they are
    /// told by [`Tree::take_problems`]. Damaged archives are never gone past.
    pub fn keep_going(mut self, yes: bool) -> Self {
        self.keep_going = yes;
        self
    }

    /// Gives everything to one owner and group.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = Some((uid, gid));
        self
    }

    /// Where the contents of compressed archives are spooled, in files without a name: a
    /// directory with as much room as the archives have bytes when unpacked. Default: the
    /// directory for temporary files.
    pub fn spool_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.spool_dir = Some(dir.into());
        self
    }

    /// Leaves out a file of a source directory by device (major, minor) and inode number: the
    /// image that is being written must not become part of itself.
    pub fn skip_inode(mut self, device: (u32, u32), ino: u64) -> Self {
        self.skipped.push((device, ino));
        self
    }

    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()).min(32),
            n => n.min(256),
        }
    }

    pub(crate) fn skips(&self, device: (u32, u32), ino: u64) -> bool {
        self.skipped.contains(&(device, ino))
    }

    pub(crate) fn leaves_out(&self, _path: &[u8], _is_directory: bool) -> bool {
        false
    }
}

impl Tree {
    /// Reads all sources and merges them in order, later over earlier.
    ///
    /// Errors: the first that occurs; see [`SourceOptions::keep_going`].
    pub fn read(
        sources: &[SourceSpec],
        options: &SourceOptions,
        progress: &dyn Progress,
    ) -> Result<Tree, SourceError> {
        let mut tree = Tree::empty();
        for source in sources {
            tree = directory::read_directory(&source.path, options, progress)?;
        }
        if let Some((uid, gid)) = options.owner {
            for node in &mut tree.nodes {
                (node.meta.uid, node.meta.gid) = (uid, gid);
            }
        }
        Ok(tree)
    }
}
