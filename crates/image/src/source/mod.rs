//! Sources of an image: their kinds, and how they are read into one [`Tree`].
//!
//! ```text
//!   directory ─┐
//!   tar, tgz ──┼─► one tree each ──► merged, later over earlier ──► excludes ──► owners, modes
//!   OCI image ─┘
//! ```

mod directory;
mod holes;
mod oci;
mod pack;
mod tar;
mod zeros;

pub use holes::data_ranges;

use crate::error::SourceError;
use crate::exclude::Excludes;
use crate::merge::{filter, merge};
use crate::overlay::Overlay;
use crate::owner::{ModeChange, Ownership, change_mode};
use crate::tree::Tree;
use extant::Progress;
use pack::{MAGIC_LEN, Packing, peek};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tar::{Meaning, Region, Spool};

/// One source: its path and, unless it is to be detected, its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSpec {
    /// A path; `-` is standard input.
    pub path: PathBuf,
    /// The kind of the source; `None` to detect it.
    pub kind: Option<SourceKind>,
}

/// The kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A directory.
    Directory,
    /// A tar archive, plain or compressed with gzip or zstd.
    Tar,
    /// An OCI layout (a directory or a tar of one) or the output of `docker save`.
    Image,
}

impl SourceSpec {
    /// A source whose kind is detected.
    pub fn new(path: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec { path: path.into(), kind: None }
    }

    /// Reads `PATH`, or `dir:PATH`, `tar:PATH` or `oci:PATH`, which give the kind. A path that
    /// starts like one of these is written `./dir:…`.
    pub fn parse(text: &OsStr) -> SourceSpec {
        let bytes = text.as_bytes();
        let kinds = [
            (&b"dir:"[..], SourceKind::Directory),
            (b"tar:", SourceKind::Tar),
            (b"oci:", SourceKind::Image),
        ];
        for (prefix, kind) in kinds {
            if let Some(path) = bytes.strip_prefix(prefix) {
                return SourceSpec { path: OsStr::from_bytes(path).into(), kind: Some(kind) };
            }
        }
        SourceSpec::new(text)
    }
}

impl<P: AsRef<Path>> From<P> for SourceSpec {
    fn from(path: P) -> SourceSpec {
        SourceSpec::new(path.as_ref())
    }
}

/// Options for reading sources.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    pub(crate) threads: usize,
    pub(crate) one_file_system: bool,
    pub(crate) keep_going: bool,
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) mode: Option<ModeChange>,
    pub(crate) ownership: Option<Ownership>,
    pub(crate) excludes: Excludes,
    pub(crate) spool_dir: Option<PathBuf>,
    pub(crate) max_entries: usize,
    pub(crate) max_unpacked: Option<u64>,
    pub(crate) zero_block: usize,
    pub(crate) links_outside: bool,
    pub(crate) choice: oci::Choice,
    pub(crate) skipped: Vec<((u32, u32), u64)>,
}

impl SourceOptions {
    /// The defaults: all cores, all filesystems, stop at the first error, owners of the sources.
    pub fn new() -> SourceOptions {
        SourceOptions::default()
    }

    /// The number of threads that list directories; 0 for one per core. The result does not depend
    /// on it.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Whether mount points below a source directory become empty directories.
    pub fn one_file_system(mut self, yes: bool) -> Self {
        self.one_file_system = yes;
        self
    }

    /// Whether to skip entries of source directories that cannot be read or that vanish;
    /// [`Tree::take_problems`] returns them. Damaged archives are never skipped.
    pub fn keep_going(mut self, yes: bool) -> Self {
        self.keep_going = yes;
        self
    }

    /// Gives all entries this owner and group.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        self.owner = Some((uid, gid));
        self
    }

    /// Changes the permission bits of everything but symbolic links.
    pub fn mode(mut self, change: ModeChange) -> Self {
        self.mode = Some(change);
        self
    }

    /// Sets owners and modes by path, after [`owner`](Self::owner) and
    /// [`mode`](Self::mode).
    pub fn ownership(mut self, ownership: Ownership) -> Self {
        self.ownership = Some(ownership);
        self
    }

    /// Leaves out names. Those of a source directory are not examined.
    pub fn excludes(mut self, excludes: Excludes) -> Self {
        self.excludes = excludes;
        self
    }

    /// The directory in which the contents of compressed archives are spooled, in files without a
    /// name. It needs as much free space as the archives have bytes when unpacked. Default: the
    /// directory for temporary files.
    pub fn spool_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.spool_dir = Some(dir.into());
        self
    }

    /// Leaves out one file of a source directory, given by device (major, minor) and inode number.
    /// With it, an image that is being written does not become part of itself.
    pub fn skip_inode(mut self, device: (u32, u32), ino: u64) -> Self {
        self.skipped.push((device, ino));
        self
    }

    /// Which of several images to read: `os/architecture` or `os/architecture/variant`. An image
    /// whose platform is written exactly like this is preferred, then one with an equivalent
    /// platform (`arm64` is `arm64/v8`), then, if no variant is given, the only variant. Default:
    /// `linux/amd64`, or the only image.
    pub fn platform(mut self, platform: impl Into<String>) -> Self {
        self.choice.platform = Some(platform.into());
        self
    }

    /// Which of several images to read, by its name or tag.
    pub fn image_name(mut self, name: impl Into<String>) -> Self {
        self.choice.reference = Some(name.into());
        self
    }

    /// The most names in an archive; larger archives are refused. This limits memory to about 200
    /// bytes per name. 0 is the default of 16 million.
    pub fn max_archive_entries(mut self, entries: usize) -> Self {
        self.max_entries = entries;
        self
    }

    /// Refuses a source whose archives unpack to more bytes, including their headers; the layers of
    /// an image count together. The limit is checked during unpacking, so that no archive fills the
    /// spool. Default: no limit.
    pub fn max_unpacked(mut self, bytes: u64) -> Self {
        self.max_unpacked = Some(bytes);
        self
    }

    /// Makes a hole of every block that contains only zeros, in files of at least 64 KiB. A block
    /// has `block_bytes` bytes, a power of two. The data of these files is read for that. 0, the
    /// default, leaves the holes that the sources have.
    pub fn zeros_are_holes(mut self, block_bytes: usize) -> Self {
        self.zero_block = block_bytes;
        self
    }

    /// Accepts hard links in an archive to files that none of its entries made, for a tree that is
    /// added to an existing volume: see [`Tree::outside`].
    pub fn links_outside(mut self, yes: bool) -> Self {
        self.links_outside = yes;
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

    pub(crate) fn max_entries(&self) -> usize {
        match self.max_entries {
            0 => 16 << 20,
            n => n,
        }
    }

    /// An empty tree with the limits for archives.
    pub(crate) fn overlay(&self) -> Overlay {
        Overlay::new(self.max_entries()).limit_unpacked(self.max_unpacked.unwrap_or(u64::MAX))
    }

    pub(crate) fn spool(&self) -> Result<Spool, SourceError> {
        let dir = self.spool_dir.clone().unwrap_or_else(std::env::temp_dir);
        Spool::new(&dir).map_err(|e| SourceError::io("make a temporary file in", dir, e))
    }

    pub(crate) fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        !self.excludes.is_empty() && self.excludes.match_bytes(path, is_directory)
    }
}

impl Tree {
    /// Reads all sources and merges them in order, later over earlier.
    ///
    /// # Errors
    /// The first that occurs; see [`SourceOptions::keep_going`].
    pub fn read(
        sources: &[SourceSpec],
        options: &SourceOptions,
        progress: &dyn Progress,
    ) -> Result<Tree, SourceError> {
        let mut tree: Option<Tree> = None;
        for source in sources {
            let mut next = read_source(source, options, progress)?;
            // The listing of a directory left out excluded names; trees of archives still contain
            // them.
            if !options.excludes.is_empty() && !next.archives.is_empty() {
                next = filter(&next, &|path, directory| !options.leaves_out(path, directory))?;
            }
            tree = Some(match tree {
                None => next,
                Some(below) => merge(&below, &next)?,
            });
        }
        let mut tree = tree.unwrap_or_default();
        tree.keep_going = options.keep_going;
        for node in &mut tree.nodes {
            if let Some((uid, gid)) = options.owner {
                (node.meta.uid, node.meta.gid) = (uid, gid);
            }
            if let Some(change) = &options.mode {
                change_mode(node, change);
            }
        }
        if let Some(ownership) = &options.ownership {
            ownership.apply(&mut tree);
        }
        if options.zero_block > 0 {
            zeros::leave_out(&mut tree, options.zero_block, options.thread_count())?;
        }
        Ok(tree)
    }
}

fn read_source(
    source: &SourceSpec,
    options: &SourceOptions,
    progress: &dyn Progress,
) -> Result<Tree, SourceError> {
    let path = &source.path;
    if path.as_os_str() == "-" {
        let stdin = std::io::stdin();
        let fd = stdin.as_fd().try_clone_to_owned();
        let fd = fd.map_err(|e| SourceError::io("open", "standard input", e))?;
        return read_archive(File::from(fd), "standard input".as_ref(), source, options, progress);
    }
    let stat = std::fs::metadata(path).map_err(|e| SourceError::io("open", path, e))?;
    if stat.is_dir() {
        return match source.kind {
            Some(SourceKind::Tar) => Err(SourceError::source(path, "is a directory, not a tar")),
            Some(SourceKind::Image) => {
                oci::read_image(&oci::Store::Directory(path), options, progress)
            }
            None if oci::is_image(&oci::Store::Directory(path)) => {
                oci::read_image(&oci::Store::Directory(path), options, progress)
            }
            _ => directory::read_directory(path, options, progress),
        };
    }
    if source.kind == Some(SourceKind::Directory) {
        return Err(SourceError::source(path, "is not a directory"));
    }
    let file = File::open(path).map_err(|e| SourceError::io("open", path, e))?;
    read_archive(file, path, source, options, progress)
}

/// Reads a tar, or the image in a tar, from a file or a pipe.
fn read_archive(
    file: File,
    name: &Path,
    source: &SourceSpec,
    options: &SourceOptions,
    progress: &dyn Progress,
) -> Result<Tree, SourceError> {
    let broken = |e| SourceError::io("read", name, e);
    let kind = file.metadata().map_err(broken)?.file_type();
    let mut overlay = options.overlay();
    overlay.links_outside = options.links_outside;
    if kind.is_file() {
        let region = Region::rest_of(file).map_err(broken)?;
        let mut start = [0; MAGIC_LEN];
        let len = region.read_at(0, &mut start).map_err(broken)?;
        match Packing::detect(&start[..len]).map_err(|fault| SourceError::source(name, fault))? {
            Packing::Plain => {
                tar::read_in_place(region, name, Meaning::Plain, &mut overlay, progress)?;
            }
            packing => {
                let reader = packing.unpack(region.reader()).map_err(broken)?;
                let mut spool = options.spool()?;
                let spool = &mut spool;
                tar::read_ahead(reader, spool, name, Meaning::Plain, &mut overlay, progress)?;
            }
        }
    } else if kind.is_dir() || kind.is_socket() {
        return Err(SourceError::source(name, "is neither a directory by name nor an archive"));
    } else {
        let (start, stream) = peek(file).map_err(broken)?;
        let packing = Packing::detect(&start).map_err(|fault| SourceError::source(name, fault))?;
        let reader = packing.unpack(stream).map_err(broken)?;
        let mut spool = options.spool()?;
        tar::read_stream(reader, &mut spool, name, Meaning::Plain, &mut overlay, progress)?;
    }
    let tree = overlay.finish()?;
    let store = oci::Store::Tree { tree: &tree, name };
    match source.kind {
        Some(SourceKind::Image) => oci::read_image(&store, options, progress),
        None if oci::is_image(&store) => oci::read_image(&store, options, progress),
        _ => Ok(tree),
    }
}
