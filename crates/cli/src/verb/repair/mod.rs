//! `extant repair`: makes a damaged volume consistent.

mod copied;
mod side_place;

use crate::elsewhere;
use crate::failure::{Failure, explained, print_message};
use crate::image::{Image, is_same_file};
use crate::out::Out;
use crate::repaired::{device_of, journal_of, members_differ, plan_of};
use crate::shown::{Shown, encoded};
use extant::{BlockDevice, Error};
use extant_repair::{Class, FileVerdict, Plan, SideFile, SideState, Stage, UndoFile};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use serde::Serialize;
pub(crate) use side_place::SidePlace;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CLEAN: u8 = 0;
const CORRECTED: u8 = 1;
const LEFT: u8 = 4;
const TROUBLE: u8 = 8;
pub(crate) const WRONG_USAGE: u8 = 16;
/// How many files are listed.
const FILES_SHOWN: usize = 200;

/// Repair a damaged volume.
///
/// The whole repair is planned in memory and checked before anything is written. The old and the
/// new bytes go to a side file first: the next repair completes one that was interrupted, and
/// --undo takes a repair back. Without --yes, the plan is shown, and a question asked on a
/// terminal.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant repair disk.img
  extant repair --dry-run disk.img                      what would change
  extant repair --yes --side-file /var/tmp/side disk.img
  extant repair --undo disk.img.repair disk.img         the volume as it was before
  extant repair --preen /dev/sdb1                       as at boot: safe repairs only
  extant repair --yes --copy-to sdb1.img /dev/sdb1      a disk that fails: repair a copy

Exit status: 0 clean, 1 repaired, 4 damage is left or was not repaired, 8 the repair failed,
16 wrong usage.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Show what would change, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Repair without a question
    #[arg(short = 'y', long, conflicts_with = "dry_run")]
    yes: bool,
    /// Repair without a question, but only what cannot lose anything
    #[arg(short = 'p', long, conflicts_with_all = ["dry_run", "yes"])]
    preen: bool,
    /// Use the superblock copy in this block group
    #[arg(long, value_name = "GROUP")]
    backup: Option<u32>,
    /// File for the old and new bytes, which must not exist; default: IMG.repair, and for a device
    /// a file in /var/lib/extant
    #[arg(long, value_name = "FILE", conflicts_with = "undo")]
    side_file: Option<PathBuf>,
    /// Take the repair with this side file back, or what e2fsprogs did, by its undo file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dry_run", "preen", "backup"])]
    undo: Option<PathBuf>,
    /// Copy the volume to this new file, and repair the copy. What cannot be read is zeros in it,
    /// and listed, with the files that it belongs to
    #[arg(long, value_name = "OUT", conflicts_with_all = ["dry_run", "undo"])]
    copy_to: Option<PathBuf>,
    /// Print one JSON object per class, file and place, then one with totals (docs/JSON.md)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ClassLine {
    change: &'static str,
    message: &'static str,
    count: u64,
    loss: bool,
    safe: bool,
}

#[derive(Serialize)]
struct FileLine {
    ino: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    state: &'static str,
    changes: Vec<&'static str>,
    ranges: Vec<[u64; 2]>,
}

#[derive(Serialize)]
struct PlaceLine {
    at: u64,
    length: u64,
}

/// A place of the device that could not be read.
#[derive(Serialize)]
struct UnreadableLine {
    unreadable_at: u64,
    length: u64,
}

#[derive(Serialize)]
struct LastLine {
    status: &'static str,
    image: String,
    places: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    side_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// How a repair ends.
struct End {
    code: u8,
    status: &'static str,
    message: String,
    side: Option<PathBuf>,
}

impl End {
    fn new(code: u8, status: &'static str, message: impl Into<String>) -> End {
        End { code, status, message: message.into(), side: None }
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let mut out = Out::of_report();
        let done = Image::parse(&self.image).and_then(|image| match &self.copy_to {
            None => self.repair(&image, &[], &mut out),
            Some(to) => {
                let copied = copied::copy(&image, to)?;
                self.repair(&copied.image, &copied.unreadable, &mut out)
            }
        });
        match done {
            Ok(code) => {
                out.finish()?;
                Ok(code)
            }
            Err(Failure::Message(text)) => {
                print_message(&text);
                if self.json {
                    self.last_line(&mut out, &[], &End::new(TROUBLE, "trouble", text))?;
                    out.finish()?;
                }
                Ok(TROUBLE)
            }
            Err(Failure::Usage(text)) => {
                print_message(&text);
                Ok(WRONG_USAGE)
            }
            Err(other) => Err(other),
        }
    }

    /// Repairs the volume, of which `unreadable` was lost when it was copied.
    fn repair(
        &self,
        image: &Image,
        unreadable: &[Range<u64>],
        out: &mut Out,
    ) -> Result<u8, Failure> {
        if let Some(path) = self.side_file.as_ref().or(self.undo.as_ref())
            && is_same_file(path, &image.path)
        {
            return Err(Failure::usage("the side file is the volume itself"));
        }
        let home = device_of(image, !self.dry_run)?;
        if let Some(path) = &self.undo {
            return self.undo(image, &home, path, out);
        }
        let place = SidePlace::of(image, self.side_file.as_deref())?;
        let completed = match self.dry_run {
            true => None,
            false => complete(image, &home, &place)?,
        };
        self.show_unreadable(unreadable, out)?;
        let journal = journal_of(image, !self.dry_run)?;
        let planned = plan_of(image, &home, journal, self.backup.or(image.backup))?;
        let places = planned.places().map_err(|error| Failure::of_image(&image.name, &error))?;
        self.show(&planned, &places, out)?;
        let found = planned.elsewhere();
        let mut end = if found.is_empty() {
            self.show_unread_files(image, &planned, unreadable, out)?;
            self.decide(image, &home, &planned, &places, &place, out)?
        } else {
            elsewhere::show(found, self.json, out)?;
            End::new(TROUBLE, "elsewhere", elsewhere::advice(image, found, home.len()))
        };
        if let (CLEAN, Some(path)) = (end.code, completed) {
            let text = format!("repaired; --undo {} takes it back", Shown::path(&path));
            end = End { side: Some(path), ..End::new(CORRECTED, "repaired", text) };
        }
        let code = end.code;
        match self.json {
            true => self.last_line(out, &places, &end)?,
            false => out.text(format_args!("{}: {}\n", Shown::path(&image.name), end.message))?,
        }
        Ok(code)
    }

    fn undo(
        &self,
        image: &Image,
        home: &Arc<dyn BlockDevice>,
        path: &Path,
        out: &mut Out,
    ) -> Result<u8, Failure> {
        let unusable = |error| Failure::of_file("use", path, error);
        let failed = |error: Error| Failure::of_image(&image.name, &error);
        if UndoFile::is_one(path).map_err(unusable)? {
            return self.undo_foreign(image, home, path, out);
        }
        let side = SideFile::open(path).map_err(unusable)?;
        let end = match side.progress(home).map_err(failed)? {
            SideState::Nothing if !matches!(side.stage(), Stage::Applying | Stage::Undoing) => {
                End::new(CLEAN, "unchanged", "the repair was already taken back")
            }
            SideState::Foreign { at } => {
                return Err(Failure::new(format_args!(
                    "{}: byte {at} was changed after the repair, or the side file belongs to another \
                     volume: nothing was changed",
                    Shown::path(&image.name)
                )));
            }
            SideState::Nothing | SideState::Part | SideState::Whole => {
                side.undo(home).map_err(failed)?;
                let text = format!("the repair was taken back, {} bytes", side.changed_bytes());
                End::new(CLEAN, "undone", text)
            }
        };
        match self.json {
            true => self.last_line(out, &[], &end)?,
            false => out.text(format_args!("{}: {}\n", Shown::path(&image.name), end.message))?,
        }
        Ok(end.code)
    }

    /// Takes back what a tool of e2fsprogs did, by its undo file.
    fn undo_foreign(
        &self,
        image: &Image,
        home: &Arc<dyn BlockDevice>,
        path: &Path,
        out: &mut Out,
    ) -> Result<u8, Failure> {
        let undo = UndoFile::open(path).map_err(|error| Failure::of_file("use", path, error))?;
        let failed = |error: Error| Failure::of_image(&image.name, &error);
        let place = SidePlace::of(image, None)?;
        complete(image, home, &place)?;
        let Some(planned) = undo.plan(home).map_err(failed)? else {
            return Err(Failure::new(format_args!(
                "{}: the volume was changed after the undo file was written, or the file belongs \
                 to another volume: nothing was changed",
                Shown::path(&image.name)
            )));
        };
        let places = planned.places().map_err(failed)?;
        let bytes: u64 = places.iter().map(|(_, length)| length).sum();
        let mut end = End::new(CLEAN, "unchanged", "it was already taken back");
        if !places.is_empty() {
            let (side_path, side) = create_side(&place, &planned)?;
            apply(image, home, &side_path, &side, &places)?;
            let part = match undo.is_finished() {
                true => "",
                false => "; the undo file is not complete: repair the volume",
            };
            let text = format!(
                "taken back, {bytes} bytes{part}; --undo {} makes the change again",
                Shown::path(&side_path)
            );
            end = End { side: Some(side_path), ..End::new(CLEAN, "undone", text) };
        }
        match self.json {
            true => self.last_line(out, &places, &end)?,
            false => out.text(format_args!("{}: {}\n", Shown::path(&image.name), end.message))?,
        }
        Ok(end.code)
    }

    /// Prints the plan.
    fn show(&self, planned: &Plan, places: &[(u64, u64)], out: &mut Out) -> Result<(), Failure> {
        let report = planned.report();
        if self.json {
            for (class, count) in report.counts() {
                out.json(&class_line(class, count))?;
            }
            for (ino, file) in report.files() {
                out.json(&file_line(ino, file))?;
            }
            if self.dry_run {
                for (at, length) in places {
                    out.json(&PlaceLine { at: *at, length: *length })?;
                }
            }
            return Ok(());
        }
        for (class, count) in report.counts() {
            let mark = if class.is_loss() { "lost" } else { "repair" };
            out.text(format_args!("{mark}: {class}: {count}\n"))?;
        }
        for note in report.notes() {
            out.text(format_args!("note: {}\n", Shown(note.as_bytes())))?;
        }
        let affected = |file: &FileVerdict| file.state() != "whole";
        for (ino, file) in report.files().filter(|(_, file)| affected(file)).take(FILES_SHOWN) {
            out.text(format_args!("file: {}\n", file_text(ino, file)))?;
        }
        let more = report.files().filter(|(_, file)| affected(file)).count();
        if more > FILES_SHOWN {
            out.text(format_args!("file: {} more\n", more - FILES_SHOWN))?;
        }
        for finding in planned.left().iter().take(20) {
            out.text(format_args!("left: {}\n", Shown(finding.to_string().as_bytes())))?;
        }
        if self.dry_run && !places.is_empty() {
            for (at, length) in places {
                out.text(format_args!("write: {length} bytes at {at}\n"))?;
            }
        }
        Ok(())
    }

    /// Prints what of the device could not be read.
    fn show_unreadable(&self, ranges: &[Range<u64>], out: &mut Out) -> Result<(), Failure> {
        for range in ranges.iter().take(if self.json { usize::MAX } else { FILES_SHOWN }) {
            let length = range.end - range.start;
            match self.json {
                true => out.json(&UnreadableLine { unreadable_at: range.start, length })?,
                false => {
                    out.text(format_args!("unreadable: {length} bytes at {}\n", range.start))?
                }
            }
        }
        if ranges.len() > FILES_SHOWN && !self.json {
            let more = ranges.len() - FILES_SHOWN;
            out.text(format_args!("unreadable: {more} more places\n"))?;
        }
        Ok(())
    }

    /// Prints the files of which content could not be read, as they are after the repair.
    fn show_unread_files(
        &self,
        image: &Image,
        planned: &Plan,
        unreadable: &[Range<u64>],
        out: &mut Out,
    ) -> Result<(), Failure> {
        if unreadable.is_empty() || !planned.is_clean() {
            return Ok(());
        }
        let opened = image.whole_device().options().open_device(planned.device());
        let fs = opened.map_err(|error| Failure::of_image(&image.name, &error))?;
        let files = copied::unread_files(image, &fs, unreadable)?;
        for file in files.iter().take(if self.json { usize::MAX } else { FILES_SHOWN }) {
            match self.json {
                true => out.json(&FileLine {
                    ino: file.ino.get(),
                    path: Some(encoded(&file.path)),
                    state: "unread",
                    changes: Vec::new(),
                    ranges: file.ranges.iter().map(|range| [range.start, range.end]).collect(),
                })?,
                false => {
                    let ranges = ranges_text(&file.ranges);
                    out.text(format_args!("file: {}: unread{ranges}\n", Shown(&file.path)))?;
                }
            }
        }
        if files.len() > FILES_SHOWN && !self.json {
            out.text(format_args!("file: {} more with unread bytes\n", files.len() - FILES_SHOWN))?;
        }
        Ok(())
    }

    /// Applies the plan, if it may be.
    fn decide(
        &self,
        image: &Image,
        home: &Arc<dyn BlockDevice>,
        planned: &Plan,
        places: &[(u64, u64)],
        place: &SidePlace,
        out: &mut Out,
    ) -> Result<End, Failure> {
        let bytes: u64 = places.iter().map(|(_, length)| length).sum();
        if !planned.is_clean() {
            let text = "the volume cannot be made consistent: nothing was changed";
            return Ok(End::new(LEFT, "left", text));
        }
        if places.is_empty() && !planned.changes_journal() {
            return Ok(End::new(CLEAN, "clean", "clean, nothing to repair"));
        }
        let s = if places.len() == 1 { "" } else { "s" };
        let mut size = format!("{bytes} bytes in {} place{s}", places.len());
        if planned.changes_journal() {
            size += ", and the journal's superblock";
        }
        if self.dry_run {
            return Ok(End::new(LEFT, "planned", format!("a repair would change {size}")));
        }
        if self.preen && !planned.report().is_safe() {
            let text = "the repair may lose something: run `extant repair` without --preen";
            return Ok(End::new(LEFT, "left", text));
        }
        if !self.yes && !self.preen && !self.asks(image, &size, out)? {
            let text = "nothing was changed: --yes repairs, --dry-run shows the places";
            return Ok(End::new(LEFT, "unchanged", text));
        }
        if places.is_empty() {
            end_journal(image, planned)?;
            return Ok(End::new(CORRECTED, "repaired", "repaired, the journal was emptied"));
        }
        if !planned.report().is_safe() && members_differ(image)? {
            let text = "the members differ, so one may have what the repair would lose: run \
                        `extant scrub` first";
            return Ok(End::new(LEFT, "left", text));
        }
        let (path, side) = create_side(place, planned)?;
        apply(image, home, &path, &side, places)?;
        end_journal(image, planned)?;
        let text = match planned.changes_journal() {
            false => format!("repaired, {size}; --undo {} takes it back", Shown::path(&path)),
            true => format!("repaired, {size}; --undo cannot take it back"),
        };
        Ok(End { side: Some(path), ..End::new(CORRECTED, "repaired", text) })
    }

    /// Asks on a terminal. Without one, the answer is no.
    fn asks(&self, image: &Image, size: &str, out: &mut Out) -> Result<bool, Failure> {
        if self.json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Ok(false);
        }
        out.flush()?;
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "{}: change {size}? [y/N] ", Shown::path(&image.name));
        let _ = stderr.flush();
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        Ok(read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes"))
    }

    fn last_line(&self, out: &mut Out, places: &[(u64, u64)], end: &End) -> Result<(), Failure> {
        out.json(&LastLine {
            status: end.status,
            image: encoded(self.image.as_bytes()),
            places: places.len() as u64,
            bytes: places.iter().map(|(_, length)| length).sum(),
            side_file: end.side.as_ref().map(|path| encoded(path.as_os_str().as_bytes())),
            message: Some(end.message.clone()),
        })
    }
}

/// Writes the side file of a plan.
pub(crate) fn create_side(
    place: &SidePlace,
    planned: &Plan,
) -> Result<(PathBuf, SideFile), Failure> {
    let path = place.free()?;
    let side = SideFile::create(&path, planned)
        .map_err(|error| Failure::of_file("write the side file", &path, error))?;
    Ok((path, side))
}

/// Makes the repair whose side file was written.
pub(crate) fn apply(
    image: &Image,
    home: &Arc<dyn BlockDevice>,
    path: &Path,
    side: &SideFile,
    places: &[(u64, u64)],
) -> Result<(), Failure> {
    // A write into a hole of the image must not fail for want of space half-way.
    if let Err(error) = reserve(image, places) {
        let _ = std::fs::remove_file(path);
        return Err(Failure::of_file("reserve space in", &image.path, error));
    }
    side.apply(home).map_err(|error| {
        Failure::new(format_args!(
            "{}: {}: repeat the command to continue, or take it back with --undo {}",
            Shown::path(&image.name),
            explained(&error),
            Shown::path(path)
        ))
    })
}

/// Marks an external journal as empty: what it held is in the repaired volume.
pub(crate) fn end_journal(image: &Image, planned: &Plan) -> Result<(), Failure> {
    planned.end_journal().map_err(|error| Failure::of_image(&image.name, &error))
}

/// Completes what the side files of the volume say was interrupted: a repair, or taking one back.
/// Returns the side file of a completed repair.
pub(crate) fn complete(
    image: &Image,
    home: &Arc<dyn BlockDevice>,
    place: &SidePlace,
) -> Result<Option<PathBuf>, Failure> {
    let failed = |error: Error| Failure::of_image(&image.name, &error);
    for path in place.existing() {
        let Some(side) = place.open(&path)? else { continue };
        let (what, is_repair) = match side.stage() {
            Stage::Applying => ("repair", true),
            Stage::Undoing => ("undo of a repair", false),
            _ => continue,
        };
        if let SideState::Foreign { at } = side.progress(home).map_err(failed)? {
            print_message(format_args!(
                "{}: the interrupted {what} in {} is not completed, because byte {at} was changed \
                 later",
                Shown::path(&image.name),
                Shown::path(&path)
            ));
            continue;
        }
        let places: Vec<(u64, u64)> = side.places().collect();
        reserve(image, &places)
            .map_err(|error| Failure::of_file("reserve space in", &image.path, error))?;
        let done = if is_repair { side.apply(home) } else { side.undo(home) };
        done.map_err(failed)?;
        print_message(format_args!(
            "{}: the interrupted {what} in {} was completed",
            Shown::path(&image.name),
            Shown::path(&path)
        ));
        if is_repair {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Reserves space for writes to `places` of an image file; devices need none.
fn reserve(image: &Image, places: &[(u64, u64)]) -> io::Result<()> {
    // A layout has these places elsewhere on its members.
    if !std::fs::metadata(&image.path)?.is_file() || !image.members.is_empty() {
        return Ok(());
    }
    let file = std::fs::File::options().write(true).open(&image.path)?;
    for (at, length) in places {
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, image.offset + at, *length) {
            // Not every file system can reserve space.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn class_line(class: Class, count: u64) -> ClassLine {
    ClassLine {
        change: class.name(),
        message: class.text(),
        count,
        loss: class.is_loss(),
        safe: class.is_safe(),
    }
}

fn file_line(ino: u32, file: &FileVerdict) -> FileLine {
    FileLine {
        ino,
        path: file.path.as_deref().map(encoded),
        state: file.state(),
        changes: file.classes.iter().map(|class| class.name()).collect(),
        ranges: file.ranges.iter().map(|range| [range.start, range.end]).collect(),
    }
}

pub(crate) fn file_text(ino: u32, file: &FileVerdict) -> String {
    let name = match &file.path {
        Some(path) => Shown(path).to_string(),
        None => format!("inode {ino}"),
    };
    format!("{name}: {}{}", file.state(), ranges_text(&file.ranges))
}

/// The first ranges of a file, after its state.
fn ranges_text(ranges: &[Range<u64>]) -> String {
    let mut text = String::new();
    for range in ranges.iter().take(4) {
        text += &format!(", bytes {} to {}", range.start, range.end);
    }
    if ranges.len() > 4 {
        text += &format!(", {} more ranges", ranges.len() - 4);
    }
    text
}
