//! `extant tree`: shows everything below a path.

use crate::failure::{Failure, print_message};
use crate::image::{Image, inner_path};
use crate::out::{Out, style};
use crate::record::{Parts, Record};
use crate::repaired::ReadArgs;
use crate::shown::Shown;
use crate::walk::{PATH_MAX, Visit, Visitor, walk};
use extant::{FileKind, Filesystem, Metadata};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Number of levels that a line of text draws. For a deeper entry, the outer levels are counted
/// instead.
const DRAWN: usize = 64;

/// Show a directory with everything below it.
///
/// With --json, each line is one object: first the entry at PATH, each directory before its
/// content, and names in byte order. --hash adds the SHA-256 of each file's content. The text
/// output draws the innermost 64 levels of an entry and gives the number of the others. --json
/// writes whole paths; it does not descend below a path of 64 KiB, and reports that.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant tree disk.img
  extant tree --depth 2 disk.img /usr
  extant tree --json --hash disk.img > manifest.jsonl

Exit status: 0 read, 1 something could not be read (the rest is shown).")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Path at which to start
    #[arg(value_name = "PATH", default_value = "/")]
    path: OsString,
    /// Maximum number of levels
    #[arg(short, long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// Print one JSON object per entry (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// With --json, add the SHA-256 of the content
    #[arg(long, requires = "json")]
    hash: bool,
    #[command(flatten)]
    read: ReadArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let fs = self.read.open(&image)?;
        let mut out = Out::new();
        let path = inner_path(&self.path)?;
        let depth = self.depth.unwrap_or(usize::MAX);
        let mut printer = Printer {
            args: &self,
            image: &image,
            fs: &fs,
            out: &mut out,
            lasts: Vec::new(),
            directories: 0,
            others: 0,
            failed: false,
        };
        walk(&image, &fs, &path, depth, &mut printer)?;
        let Printer { directories, others, failed, .. } = printer;
        if !self.json {
            let plural =
                |n: u64, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
            let directories = plural(directories, "directory", "directories");
            out.text(format_args!("\n{directories}, {}\n", plural(others, "file", "files")))?;
        }
        out.finish()?;
        Ok(u8::from(failed))
    }
}

struct Printer<'a> {
    args: &'a Args,
    image: &'a Image,
    fs: &'a Filesystem,
    out: &'a mut Out,
    /// For each level, whether its entry was the last one.
    lasts: Vec<bool>,
    directories: u64,
    others: u64,
    failed: bool,
}

impl Visitor for Printer<'_> {
    fn visit(&mut self, visit: Visit<'_>) -> Result<bool, Failure> {
        match self.args.json {
            true => self.record(visit)?,
            false => self.line(visit)?,
        }
        Ok(true)
    }

    fn path_max(&self) -> usize {
        // A line of text holds only the name.
        if self.args.json { PATH_MAX } else { usize::MAX }
    }
}

impl Printer<'_> {
    fn record(&mut self, visit: Visit<'_>) -> Result<(), Failure> {
        let path = visit.path;
        let parts = Parts { hash: self.args.hash, extents: false };
        let record = Record::of(self.fs, visit, parts);
        if let Some(error) = &record.error {
            self.report_error(path, error);
        }
        self.out.json(&record)
    }

    fn line(&mut self, visit: Visit<'_>) -> Result<(), Failure> {
        match visit.kind {
            // As in tree(1), the start is not counted.
            Some(FileKind::Directory) => self.directories += u64::from(visit.depth > 0),
            _ => self.others += 1,
        }
        if let Some(error) = visit.error() {
            self.report_error(visit.path, &error);
        }
        self.lasts.truncate(visit.depth.saturating_sub(1));
        let hidden = self.lasts.len().saturating_sub(DRAWN);
        if hidden > 0 {
            self.out.text(format_args!("[{hidden} levels] "))?;
        }
        for last in &self.lasts[hidden..] {
            self.out.text(format_args!("{}", if *last { "    " } else { "│   " }))?;
        }
        if visit.depth > 0 {
            self.out.text(format_args!("{}", if visit.last { "└── " } else { "├── " }))?;
            self.lasts.push(visit.last);
        }
        let mode = visit.metadata.as_ref().map_or(0, Metadata::mode);
        self.out.name(visit.name, style(visit.kind, mode))?;
        if visit.kind == Some(FileKind::Symlink) && visit.metadata.is_some() {
            match self.fs.node_of_ino(visit.ino).and_then(|node| node.read_link()) {
                Ok(target) => {
                    self.out.text(format_args!(" -> "))?;
                    self.out.name(target.as_os_str().as_bytes(), "")?;
                }
                Err(error) => self.report_error(visit.path, &crate::failure::explained(&error)),
            }
        }
        self.out.text(format_args!("\n"))
    }

    fn report_error(&mut self, path: &[u8], error: &str) {
        self.failed = true;
        print_message(format_args!("{}: {}: {error}", Shown::path(&self.image.name), Shown(path)));
    }
}
