//! `extant ls`: lists the names in directories.

use crate::failure::{Failure, explained, print_message};
use crate::image::{Image, as_path, inner_path};
use crate::out::{Out, style};
use crate::record::{Parts, Record};
use crate::repaired::ReadArgs;
use crate::shown::{Shown, Whole};
use crate::walk::{Visit, Visitor, walk};
use crate::{amount, moment};
use extant::{FileKind, Filesystem, Metadata};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// List directories, with names in byte order.
///
/// `.` and `..` are not listed. A symbolic link at the end of PATH is followed if it leads to a
/// directory. On a terminal, control characters in names are escaped; elsewhere names are printed
/// unchanged.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant ls disk.img
  extant ls -l disk.img /etc /usr/bin
  extant ls --json disk.img / | jq -r .path

Exit status: 0 listed, 1 something could not be read.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Directories or files in the volume
    #[arg(value_name = "PATH", default_value = "/")]
    paths: Vec<OsString>,
    /// Show mode, link count, owner, group, size and modification time
    #[arg(short, long)]
    long: bool,
    /// Show inode numbers
    #[arg(short, long)]
    inode: bool,
    /// With --long, show sizes in KiB, MiB, …
    #[arg(short = 'H', long)]
    human: bool,
    /// List a directory itself instead of its content
    #[arg(short, long)]
    directory: bool,
    /// Print one JSON object per name (docs/JSON.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    read: ReadArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let fs = self.read.open(&image)?;
        let mut out = Out::new();
        let mut failed = false;
        for (n, path) in self.paths.iter().enumerate() {
            let path = inner_path(path)?;
            let follows = fs
                .symlink_metadata(as_path(&path))
                .map_err(|error| image.failure(&path, &error))?
                .is_symlink()
                && fs.metadata(as_path(&path)).is_ok_and(|target| target.is_dir());
            let start = match follows && !self.directory {
                true => real_path(&fs, &image, path)?,
                false => path,
            };
            if self.paths.len() > 1 && !self.json {
                let gap = if n > 0 { "\n" } else { "" };
                out.text(format_args!("{gap}{}:\n", Whole(&start)))?;
            }
            let depth = if self.directory { 0 } else { 1 };
            let mut lister = Lister {
                args: &self,
                image: &image,
                fs: &fs,
                out: &mut out,
                rows: Vec::new(),
                failed: false,
            };
            walk(&image, &fs, &start, depth, &mut lister)?;
            failed |= lister.failed;
            let rows = std::mem::take(&mut lister.rows);
            print(rows, &mut out)?;
        }
        out.finish()?;
        Ok(u8::from(failed))
    }
}

/// The path after following the symlinks at its end, so that a walk can start there.
fn real_path(fs: &Filesystem, image: &Image, mut path: Vec<u8>) -> Result<Vec<u8>, Failure> {
    // The engine returns `TooManyLinks` after this many.
    for _ in 0..40 {
        match fs.read_link(as_path(&path)) {
            Ok(target) => {
                let target = target.as_os_str().as_bytes();
                let dir = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                let joined = match target.starts_with(b"/") {
                    true => target.to_vec(),
                    false => [&path[..=dir], target].concat(),
                };
                path = inner_path(std::ffi::OsStr::from_bytes(&joined))?;
            }
            Err(extant::Error::Invalid(_)) => return Ok(path),
            Err(error) => return Err(image.failure(&path, &error)),
        }
    }
    Err(image.failure(&path, &extant::Error::TooManyLinks))
}

struct Row {
    cells: Vec<String>,
    name: Vec<u8>,
    style: &'static str,
    target: Option<Vec<u8>>,
}

struct Lister<'a> {
    args: &'a Args,
    image: &'a Image,
    fs: &'a Filesystem,
    out: &'a mut Out,
    rows: Vec<Row>,
    failed: bool,
}

impl Visitor for Lister<'_> {
    fn visit(&mut self, mut visit: Visit<'_>) -> Result<bool, Failure> {
        let lists = !self.args.directory;
        let is_dir = visit.metadata.as_ref().is_some_and(Metadata::is_dir);
        if visit.depth == 0 && lists && is_dir {
            // The directory itself is not a line of the list, but its errors are reported.
            if let Some(error) = visit.error() {
                self.report_error(visit.path, &error);
            }
            return Ok(true);
        }
        if self.args.json {
            let path = visit.path;
            let record = Record::of(self.fs, visit, Parts::default());
            if let Some(error) = &record.error {
                self.report_error(path, error);
            }
            self.out.json(&record)?;
            return Ok(false);
        }
        let target = match visit.kind == Some(FileKind::Symlink) && self.args.long {
            true => match self.fs.node_of_ino(visit.ino).and_then(|node| node.read_link()) {
                Ok(target) => Some(target.as_os_str().as_bytes().to_vec()),
                Err(error) => {
                    visit.problems.push(explained(&error));
                    None
                }
            },
            false => None,
        };
        if let Some(error) = visit.error() {
            self.report_error(visit.path, &error);
        }
        let mode = visit.metadata.as_ref().map_or(0, Metadata::mode);
        let name = visit.name.to_vec();
        let row = Row { cells: self.cells(&visit), name, style: style(visit.kind, mode), target };
        self.rows.push(row);
        Ok(false)
    }
}

impl Lister<'_> {
    fn report_error(&mut self, path: &[u8], error: &str) {
        self.failed = true;
        print_message(format_args!("{}: {}: {error}", Shown::path(&self.image.name), Shown(path)));
    }

    fn cells(&self, visit: &Visit<'_>) -> Vec<String> {
        let mut cells = Vec::new();
        if self.args.inode {
            cells.push(visit.ino.to_string());
        }
        if self.args.long {
            match &visit.metadata {
                Some(meta) => {
                    cells.push(mode_letters(meta));
                    cells.push(meta.nlink().to_string());
                    cells.push(meta.uid().to_string());
                    cells.push(meta.gid().to_string());
                    cells.push(match meta.device() {
                        Some(device) => format!("{}, {}", device.major, device.minor),
                        None if self.args.human => amount::shown(meta.len()),
                        None => meta.len().to_string(),
                    });
                    cells.push(moment::short(meta.modified()));
                }
                None => cells.extend(["??????????", "?", "?", "?", "?", "?"].map(String::from)),
            }
        }
        cells
    }
}

/// Prints rows in columns, the mode aligned left and numbers aligned right.
fn print(rows: Vec<Row>, out: &mut Out) -> Result<(), Failure> {
    let columns = rows.iter().map(|row| row.cells.len()).max().unwrap_or(0);
    let width = |n: usize| rows.iter().filter_map(|row| row.cells.get(n)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|n| width(n).unwrap_or(0)).collect();
    for row in &rows {
        for (cell, width) in row.cells.iter().zip(&widths) {
            out.text(format_args!("{cell:>width$} "))?;
        }
        out.name(&row.name, row.style)?;
        if let Some(target) = &row.target {
            out.text(format_args!(" -> "))?;
            out.name(target, "")?;
        }
        out.text(format_args!("\n"))?;
    }
    Ok(())
}

/// Type and permissions in the notation of `ls -l`.
pub(crate) fn mode_letters(meta: &Metadata) -> String {
    let mode = meta.mode();
    let mut text = String::with_capacity(10);
    text.push(match meta.file_type() {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    });
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, false) => 'x',
            (false, false) => '-',
            (true, true) => set,
            (false, true) => set.to_ascii_uppercase(),
        });
    }
    text
}
