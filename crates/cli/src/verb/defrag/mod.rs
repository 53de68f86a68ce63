//! `extant defrag`: moves files to fewer runs of blocks.
//!
//! ```text
//!   walk ──► regular file, each inode once ─┬─ --dry-run: count extents
//!                                           └─ move (the engine), count again
//! ```

mod free_space;
mod mounted;

use crate::failure::{Failure, explained, print_message};
use crate::image::{Image, as_path, inner_path};
use crate::out::Out;
use crate::shown::{Shown, Whole, encoded};
use extant::{Error, File, FileKind, Filesystem, Ino, WalkEntry};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Move files to fewer extents.
///
/// A file moves if free blocks in fewer runs are there; its content, its times and its holes stay.
/// A power cut or a kill leaves each extent at its old place or at its new one. With --dry-run,
/// nothing is changed, and each file that has more extents than it needs is listed. Files with
/// several names move once, immutable files move, too. These files stay: swap files, files with
/// journaled data, files without extents (`extant chattr +e` gives them some), and all files of
/// volumes with clusters (bigalloc). With --free-space, pieces of files move so that the free space
/// is in fewer and longer runs. IMG may also be a file or directory on a mount by extant: its files
/// move while programs use them, those of other owners as root only.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant defrag --dry-run disk.img
  extant defrag disk.img
  extant defrag --verbose disk.img /var/lib/db
  extant defrag /mnt/disk/var/lib/db             on a mount
  extant defrag --free-space disk.img
  extant defrag --free-space --dry-run disk.img     only the runs of free blocks

With --free-space, no file gets more extents, and each piece of a file stays in its block group.

Exit status: 0 done, 1 something could not be read or moved.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER; or a file or directory on a mount
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Only files at or below these paths
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Change nothing: list the files that have more extents than they need, or the free runs
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Move pieces of files so that the free space is in fewer runs, and print its runs as
    /// e2freefrag does
    #[arg(short, long, conflicts_with_all = ["paths", "verbose"])]
    free_space: bool,
    /// List the files that moved
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON object for each such file, then one with totals (docs/JSON.md)
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
    /// Print errors only
    #[arg(short, long, conflicts_with_all = ["verbose", "json"])]
    quiet: bool,
}

/// A file as JSON.
#[derive(Serialize)]
struct Record {
    path: String,
    ino: u32,
    extents: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents_now: Option<u64>,
    extents_needed: u64,
}

/// All files as JSON.
#[derive(Serialize)]
struct Totals {
    files: u64,
    fragmented: u64,
    moved: u64,
    extents: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents_now: Option<u64>,
    extents_needed: u64,
    /// Files that cannot move, by reason.
    left: BTreeMap<&'static str, u64>,
}

/// The extents of one file.
#[derive(Clone, Copy, Default)]
struct Extents {
    before: u64,
    /// As many as holes and unwritten blocks make.
    needed: u64,
    after: u64,
    moved: bool,
}

#[derive(Default)]
struct Counts {
    files: u64,
    fragmented: u64,
    moved: u64,
    sum: Extents,
    left: BTreeMap<&'static str, u64>,
    failed: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let is_image = image.names_a_place() || image.len.is_some();
        if !is_image && mounted::is_on_mount(&image.name) {
            return mounted::run(&self, &image.name);
        }
        if self.free_space {
            return free_space::run(&self, &image);
        }
        let paths: Vec<Vec<u8>> = match self.paths.is_empty() {
            true => vec![b"/".to_vec()],
            false => self.paths.iter().map(|path| inner_path(path)).collect::<Result<_, _>>()?,
        };
        let fs = open(&image, self.dry_run)?;
        let mut out = Out::of_report();
        let mut counts = Counts::default();
        let mut seen = HashSet::new();
        for path in &paths {
            for entry in fs.walk(as_path(path)) {
                match entry {
                    Ok(entry) if entry.file_type() == FileKind::Regular => {
                        self.entry(&image, &entry, &mut seen, &mut counts, &mut out)?;
                    }
                    Ok(_) => {}
                    Err(error) => report(&image, path, &error, &mut counts),
                }
            }
        }
        fs.close().map_err(|error| Failure::of_image(&image.name, &error))?;
        counts.print(&self, &image.name, &mut out)?;
        out.finish()?;
        Ok(u8::from(counts.failed))
    }

    /// One file of the walk.
    fn entry(
        &self,
        image: &Image,
        entry: &WalkEntry,
        seen: &mut HashSet<Ino>,
        counts: &mut Counts,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let path = entry.path().as_os_str().as_bytes();
        let done = entry.open().and_then(|file| {
            let is_new = file.metadata().nlink() < 2 || seen.insert(entry.ino());
            is_new.then(|| move_file(&file, self.dry_run)).transpose()
        });
        let extents = match done {
            Ok(Some(extents)) => extents,
            Ok(None) => return Ok(()),
            Err(Error::NotSupported(why)) => {
                *counts.left.entry(why).or_default() += 1;
                return Ok(());
            }
            Err(error) => {
                report(image, path, &error, counts);
                return Ok(());
            }
        };
        self.list(path, entry.ino(), extents, counts, out)
    }

    /// Counts a file, and prints it if that is requested.
    fn list(
        &self,
        path: &[u8],
        ino: Ino,
        extents: Extents,
        counts: &mut Counts,
        out: &mut Out,
    ) -> Result<(), Failure> {
        counts.add(extents);
        let is_listed = match self.dry_run {
            true => extents.before > extents.needed,
            false => extents.moved,
        };
        if !is_listed || self.quiet {
            return Ok(());
        }
        let Extents { before, needed, after, .. } = extents;
        if self.json {
            let extents_now = (!self.dry_run).then_some(after);
            let (path, ino) = (encoded(path), ino.get());
            out.json(&Record { path, ino, extents: before, extents_now, extents_needed: needed })?;
        } else if self.dry_run {
            out.text(format_args!("{}: {before} extents, needs {needed}\n", Whole(path)))?;
        } else if self.verbose {
            out.text(format_args!("{}: {before} extents, now {after}\n", Whole(path)))?;
        }
        Ok(())
    }
}

impl Counts {
    fn add(&mut self, one: Extents) {
        self.files += 1;
        self.fragmented += u64::from(one.before > one.needed);
        self.moved += u64::from(one.moved);
        self.sum.before += one.before;
        self.sum.needed += one.needed;
        self.sum.after += one.after;
    }

    fn print(&self, args: &Args, name: &Path, out: &mut Out) -> Result<(), Failure> {
        let Counts { files, fragmented, moved, sum, left, .. } = self;
        if args.json {
            out.json(&Totals {
                files: *files,
                fragmented: *fragmented,
                moved: *moved,
                extents: sum.before,
                extents_now: (!args.dry_run).then_some(sum.after),
                extents_needed: sum.needed,
                left: left.clone(),
            })?;
        } else if !args.quiet {
            let name = Shown::path(name);
            let before = sum.before;
            match args.dry_run {
                true => out.text(format_args!(
                    "{name}: {fragmented} of {files} files are fragmented: {before} extents, \
                     needs {}\n",
                    sum.needed
                ))?,
                false => out.text(format_args!(
                    "{name}: {moved} of {files} files moved: {before} extents, now {}\n",
                    sum.after
                ))?,
            }
            for (why, count) in left {
                out.text(format_args!("{name}: {count} files did not move: {why}\n"))?;
            }
        }
        Ok(())
    }
}

fn open(image: &Image, dry_run: bool) -> Result<Filesystem, Failure> {
    if dry_run {
        return image.open();
    }
    let mut options = image.options();
    options.write(true).use_reserve(true);
    let fs = image.open_with(&options)?;
    if !fs.superblock().has_journal() {
        print_message(format_args!(
            "{}: the volume has no journal: an interruption can damage the file that is moving",
            Shown::path(&image.name)
        ));
    }
    Ok(fs)
}

/// Counts the extents of a file, and moves it if `dry_run` is false.
fn move_file(file: &File, dry_run: bool) -> Result<Extents, Error> {
    let pieces = file.extents()?;
    let continues = pieces.windows(2).filter(|two| {
        two[0].offset + two[0].len == two[1].offset && two[0].written == two[1].written
    });
    let before = pieces.len() as u64;
    let needed = before - continues.count() as u64;
    if dry_run || before <= needed {
        return Ok(Extents { before, needed, after: before, moved: false });
    }
    let done = file.defragment()?;
    Ok(Extents { before, needed, after: done.after, moved: done.moved_blocks > 0 })
}

fn report(image: &Image, path: &[u8], error: &Error, counts: &mut Counts) {
    counts.failed = true;
    let name = Shown::path(&image.name);
    print_message(format_args!("{name}: {}: {}", Shown(path), explained(error)));
}
