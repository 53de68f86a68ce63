//! `extant undelete`: finds deleted files, and copies what is left of them.
//!
//! ```text
//!   search ─┬─► list   state, time of deletion, size, path
//!           └─► copy   into a directory elsewhere
//! ```

mod copy;

use crate::amount;
use crate::bar::Bar;
use crate::failure::{Failure, print_message};
use crate::image::{Image, inner_path};
use crate::moment;
use crate::out::{Out, style};
use crate::record::kind_name;
use crate::shown::{Shown, encoded};
use extant::FileKind;
use extant::undelete::{DeletedFile, DeletedFiles, Options, State};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Find deleted files, and copy them out of a volume.
///
/// The journal has older copies of inodes and directories until it is written over. What is found
/// there is listed with its state: whole (nothing shows that one of its blocks was written over),
/// partial (some were, or are in use now), gone (all). IMG is not changed. The less was written to
/// it since the deletion, the more is found: do not mount it before. Of several hard links one is
/// copied. Extended attributes are kept if they were in the inode. Encrypted files are left out.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant undelete disk.img                       list
  extant undelete disk.img -o found              copy all whole files into the directory found
  extant undelete disk.img /home/ann -o found    only what was in /home/ann
  extant undelete --partial disk.img -o found    partial files, too: lost parts are zeros

A file whose name was not found is called # and its inode number.

Exit status: 0 done, 1 something could not be copied.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?offset=BYTES
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Only files at or below this path
    #[arg(value_name = "PATH")]
    path: Option<OsString>,
    /// Copy the files into this directory, which must not be on the volume
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Copy partial files, too; parts that are lost are zeros
    #[arg(long, requires = "output")]
    partial: bool,
    /// Do not keep owners, even as root
    #[arg(long, requires = "output")]
    no_owner: bool,
    /// Print one JSON object for each file (docs/JSON.md)
    #[arg(long)]
    json: bool,
}

/// A deleted file as JSON.
#[derive(Serialize)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    ino: u32,
    generation: u32,
    r#type: &'static str,
    size: u64,
    size_known: bool,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reused_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<u64>,
    /// Where the file was copied, below the output directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    copied: Option<String>,
}

/// Files by state.
#[derive(Default)]
struct Counts {
    whole: u64,
    partial: u64,
    gone: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let below = self.path.as_deref().map(inner_path).transpose()?;
        let mut copy = match &self.output {
            Some(dir) => {
                refuse_output_on_source(&image.path, dir)?;
                Some(copy::Copy::into(dir, !self.no_owner)?)
            }
            None => None,
        };
        let fs = image.open()?;
        let bar = Bar::new(self.json);
        let deleted = fs.deleted_files(&Options::default(), &bar);
        bar.clear();
        let deleted = deleted.map_err(|error| Failure::of_image(&image.name, &error))?;
        let mut out = Out::new();
        let mut counts = Counts::default();
        let mut failed = false;
        let wanted = deleted.files().iter().filter(|file| is_below(file, below.as_deref()));
        for file in wanted {
            counts.add(file.state());
            let mut copied = None;
            if let Some(copy) = copy.as_mut().filter(|_| self.is_copied(file)) {
                match copy.file(&deleted, file) {
                    Ok(name) => copied = Some(name),
                    Err(error) => {
                        failed = true;
                        let name = name_of(file);
                        print_message(format_args!(
                            "{}: {}: {error}",
                            Shown::path(&image.name),
                            Shown(&name)
                        ));
                    }
                }
            }
            match self.json {
                true => out.json(&record(file, copied.as_deref()))?,
                false if copy.is_none() => line(&mut out, file)?,
                false => {}
            }
        }
        if let Some(copy) = copy {
            failed |= !copy.finish();
        }
        if !self.json {
            self.report(&mut out, &image, &deleted, &counts)?;
        }
        out.finish()?;
        Ok(u8::from(failed))
    }

    fn is_copied(&self, file: &DeletedFile) -> bool {
        match file.state() {
            State::Whole => true,
            State::Partial { .. } => self.partial,
            _ => false,
        }
    }

    /// Prints what was found, and what to do next.
    fn report(
        &self,
        out: &mut Out,
        image: &Image,
        deleted: &DeletedFiles,
        counts: &Counts,
    ) -> Result<(), Failure> {
        let name = Shown::path(&image.name);
        let Counts { whole, partial, gone } = counts;
        if whole + partial + gone == 0 {
            let there =
                if self.path.is_some() { " there: without PATH, all are listed" } else { "" };
            return out.text(format_args!("{name}: no deleted files were found{there}\n"));
        }
        let next = match (&self.output, self.partial) {
            (None, _) => ": -o DIR copies them",
            (Some(_), false) if *partial > 0 => ": --partial copies the partial ones, too",
            _ => "",
        };
        out.text(format_args!("{name}: {whole} whole, {partial} partial, {gone} gone{next}\n"))?;
        match deleted.count() - deleted.files().len() as u64 {
            0 => Ok(()),
            more => out.text(format_args!("{name}: {more} more were not examined\n")),
        }
    }
}

impl Counts {
    fn add(&mut self, state: State) {
        match state {
            State::Whole => self.whole += 1,
            State::Partial { .. } => self.partial += 1,
            _ => self.gone += 1,
        }
    }
}

/// The path, or `#` and the inode number.
fn name_of(file: &DeletedFile) -> Vec<u8> {
    match file.path() {
        Some(path) => path.as_os_str().as_bytes().to_vec(),
        None => format!("#{}", file.metadata().ino().get()).into_bytes(),
    }
}

fn is_below(file: &DeletedFile, below: Option<&[u8]>) -> bool {
    let Some(below) = below else { return true };
    let Some(path) = file.path().map(|path| path.as_os_str().as_bytes()) else {
        return below == b"/";
    };
    let below = below.strip_suffix(b"/").unwrap_or(below);
    path.strip_prefix(below).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Whole => "whole",
        State::Partial { .. } => "partial",
        _ => "gone",
    }
}

fn record(file: &DeletedFile, copied: Option<&[u8]>) -> Record {
    let metadata = file.metadata();
    let (free_blocks, reused_blocks) = match file.state() {
        State::Partial { free_blocks, reused_blocks, .. } => {
            (Some(free_blocks), Some(reused_blocks))
        }
        _ => (None, None),
    };
    Record {
        path: file.path().map(|path| encoded(path.as_os_str().as_bytes())),
        ino: metadata.ino().get(),
        generation: metadata.generation(),
        r#type: kind_name(metadata.file_type()),
        size: metadata.len(),
        size_known: file.size_is_known(),
        state: state_name(file.state()),
        free_blocks,
        reused_blocks,
        deleted: file.deleted_at(),
        copied: copied.map(encoded),
    }
}

/// Prints one file.
fn line(out: &mut Out, file: &DeletedFile) -> Result<(), Failure> {
    let metadata = file.metadata();
    let deleted = match file.deleted_at() {
        Some(sec) => moment::seconds(sec),
        None => "unknown time".into(),
    };
    let about = if file.size_is_known() { "" } else { "~" };
    let size = match metadata.file_type() {
        FileKind::Regular => format!("{about}{}", amount::shown(metadata.len())),
        kind => kind_name(kind).into(),
    };
    let state = state_name(file.state());
    out.text(format_args!("{state:7}  {deleted:23}  {size:>10}  "))?;
    out.name(&name_of(file), style(Some(metadata.file_type()), metadata.mode()))?;
    if let State::Partial { free_blocks, reused_blocks, map_damaged } = file.state() {
        let all = free_blocks + reused_blocks;
        let lost = if map_damaged { ", and parts whose place is lost" } else { "" };
        out.text(format_args!("  ({free_blocks} of {all} blocks{lost})"))?;
    }
    out.text(format_args!("\n"))
}

/// Refuses a directory on the block device from which files are copied: what is written there may
/// destroy them.
fn refuse_output_on_source(image: &Path, dir: &Path) -> Result<(), Failure> {
    let existing = dir.ancestors().find_map(|dir| {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        std::fs::metadata(dir).ok()
    });
    let source = std::fs::metadata(image).ok();
    let (Some(dir_found), Some(source)) = (existing, source) else { return Ok(()) };
    match source.file_type().is_block_device() && is_on(&dir_found, &source) {
        true => Err(Failure::new(format_args!(
            "{}: on the volume from which files are copied: what is written there may destroy \
             them; name a directory elsewhere",
            Shown::path(dir)
        ))),
        false => Ok(()),
    }
}

/// Whether a file is on a block device.
fn is_on(file: &Metadata, device: &Metadata) -> bool {
    file.dev() == device.rdev()
}
