//! `extant dump`: copies the metadata of a volume, for reports of bugs.

use crate::bar::Bar;
use crate::failure::Failure;
use crate::image::Image;
use crate::new_file::NewFile;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use extant::dump::{Options, Report, dump_device, size_of};
use extant::{Environment, Error};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Copy the metadata of a volume, for a report of a bug.
///
/// OUT becomes a sparse file of the volume's size with superblocks, descriptors, bitmaps, inodes,
/// maps, directories, extended attributes, symbolic links and the journal. The content of files is
/// left out, also where inodes or the journal have it: an inode's inline content becomes zeros.
/// check, info, report, ls and the tools of e2fsprogs open the copy; it packs well, as with
/// tar --sparse --zstd. Names, targets of symbolic links and extended attributes are in the copy;
/// --scramble-names replaces all but the attributes. IMG may be damaged: what cannot be read is
/// counted.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant dump disk.img meta.img
  extant dump --scramble-names /dev/sdb1 meta.img
  tar --sparse --zstd -cf meta.tar.zst meta.img

Exit status: 0 done, also if the volume is damaged, 1 failed: OUT is not there.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// The file to make, which must not exist
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Replace names of files, targets of symbolic links, the label and the path of the last mount
    /// by random ones of the same length, and leave out the journal
    #[arg(long)]
    scramble_names: bool,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print errors only
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Serialize)]
struct Answer {
    image: String,
    output: String,
    size: u64,
    block_bytes: u32,
    blocks: u64,
    unreadable_blocks: u64,
    blocks_left_out: u64,
    journal_blocks_left_out: u64,
    recovered: bool,
    inline_files: u64,
    names_replaced: u64,
    names_kept: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let failed = |error: Error| Failure::of_image(&image.name, &error);
        let assembled = image.options().assemble(&image.path).map_err(failed)?;
        let device = assembled.device();
        let size = size_of(&*device).map_err(failed)?;
        let output = NewFile::create(&self.output, size)?;
        let seed = self.scramble_names.then(|| Environment::default().rng.next_u64());
        let options = Options { scramble: seed, ..Options::default() };
        let bar = Bar::new(self.quiet || self.json);
        let report = dump_device(device, output.device(), &options, &bar);
        bar.clear();
        let report = report.map_err(failed)?;
        output.finish()?;
        answer(&self, &image, &report)?;
        Ok(0)
    }
}

fn answer(args: &Args, image: &Image, report: &Report) -> Result<(), Failure> {
    let mut out = Out::of_report();
    if args.json {
        out.json(&Answer {
            image: encoded(image.name.as_os_str().as_bytes()),
            output: encoded(args.output.as_os_str().as_bytes()),
            size: report.size,
            block_bytes: report.block_bytes,
            blocks: report.blocks,
            unreadable_blocks: report.unreadable,
            blocks_left_out: report.left_out,
            journal_blocks_left_out: report.log_left_out,
            recovered: report.recovered,
            inline_files: report.inline_files,
            names_replaced: report.names,
            names_kept: report.names_kept,
        })?;
    } else if !args.quiet {
        let name = Shown::path(&args.output).to_string();
        for line in lines(report) {
            out.text(format_args!("{name}: {line}\n"))?;
        }
    }
    out.finish()
}

/// What a person should know about the copy: one line each.
fn lines(report: &Report) -> Vec<String> {
    let mut lines = vec![format!("{} blocks of metadata", report.blocks)];
    let mut line = |count: u64, what: &str| {
        if count > 0 {
            lines.push(format!("{count} {what}"));
        }
    };
    line(report.unreadable, "blocks could not be read: they are zeros");
    line(report.left_out, "blocks are left out: they are no metadata, though maps say so");
    line(report.inline_files, "files had their content in the inode: it is zeros");
    line(report.log_left_out, "blocks of the journal are left out: they can hold content or names");
    line(report.names, "names are replaced");
    line(report.names_kept, "names are not replaced: no other name of that length has their place");
    if report.recovered {
        lines.push("the journal is replayed in the copy".to_owned());
    }
    lines
}
