//! `extant report`: draws a picture of a volume.
//!
//! ```text
//!   volume ── as on disk ──► superblock, journal ─┐
//!      └───── replayed ────► survey ──────────────┴─► facts ─┬─► text, with a map
//!                                                            ├─► json
//!                                                            └─► page, HTML with SVG in it
//! ```

mod facts;
mod json;
mod page;
mod svg;
mod text;

use crate::bar::Bar;
use crate::failure::{Failure, print_message};
use crate::image::Image;
use crate::out::Out;
use crate::shown::Shown;
use extant::survey::Options;
use facts::Facts;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Cells of the map: as many as a page of a few hundred KiB can show, whatever the volume's size.
const CELLS: usize = 2048;

/// Report the space, fragmentation, journal and largest files of a volume.
///
/// Reads all descriptors, bitmaps, directories, inodes in use and maps of files, but no file data.
/// If the volume was not unmounted, its journal is replayed in memory first. Of a damaged volume,
/// everything readable is shown, and the rest is named.
///
/// A piece is a run of adjacent blocks: a file in one piece is read without a seek.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant report disk.img
  extant report disk.img -o disk.html          one page without scripts or network access
  extant report --json disk.img | jq .free_runs.longest
  extant report 'sd.img?offset=1M' --top 30

Exit status: 0 shown, 1 not a volume, or a part could not be read (the rest is shown).")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Write an HTML page with pictures to FILE instead of text; - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Number of rows in each list of the largest
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    top: u16,
    /// Number of threads; default: the number of processors
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let to_stdout = self.output.as_deref().is_some_and(|path| path == Path::new("-"));
        if to_stdout && self.json {
            return Err(Failure::usage(
                "the page and JSON cannot both go to standard output: give \
                                       -o a file",
            ));
        }
        if let Some(path) = self.output.as_deref().filter(|_| !to_stdout) {
            may_be_written(path)?;
        }
        let mut options = Options { top: self.top.into(), cells: CELLS, ..Options::default() };
        if let Some(threads) = self.threads {
            options.threads = threads.into();
        }
        let bar = Bar::new(self.quiet);
        let facts = Facts::of(&image, &options, &bar);
        bar.clear();
        let facts = facts?;
        let mut out = Out::of_report();
        match self.output.as_deref() {
            Some(_) if to_stdout => out.text(format_args!("{}", page::page(&facts)))?,
            Some(path) => fs::write(path, page::page(&facts))
                .map_err(|error| Failure::of_file("write", path, error))?,
            None if !self.json => text::print(&facts, &mut out)?,
            None => {}
        }
        if self.json {
            out.json(&json::answer(&facts))?;
        }
        out.finish()?;
        if facts.problems_count > 0 {
            let (name, count) = (Shown::path(&image.name), facts.problems_count);
            let first = facts.problems.first().map(String::as_str).unwrap_or_default();
            match count {
                1 => print_message(format_args!("{name}: {first}")),
                _ => print_message(format_args!("{name}: {count} problems, the first: {first}")),
            }
        }
        Ok(u8::from(facts.problems_count > 0))
    }
}

/// A page may replace a page and nothing else, least of all a volume.
fn may_be_written(path: &Path) -> Result<(), Failure> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    if metadata.file_type().is_char_device() {
        return Ok(());
    }
    let mut start = Vec::new();
    if metadata.is_file() {
        let read = fs::File::open(path)
            .and_then(|file| file.take(page::START.len() as u64).read_to_end(&mut start));
        read.map_err(|error| Failure::of_file("read", path, error))?;
    }
    match metadata.is_file() && (start.is_empty() || start == page::START.as_bytes()) {
        true => Ok(()),
        false => Err(Failure::new(format_args!(
            "{}: exists and is not a page of this command: name another file",
            Shown::path(path)
        ))),
    }
}
