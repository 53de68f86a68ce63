//! `e2undo`: takes a change back, by the side file that this `e2fsck -z` or `extant repair` wrote,
//! or by an undo file of e2fsprogs.

use super::console::Console;
use super::getopt::Words;
use super::{Call, words};
use crate::failure::{Failure, plain};
use crate::image::Image;
use crate::repaired::device_of;
use crate::verb::repair::{SidePlace, apply, create_side};
use extant::Error;
use extant_repair::{SideFile, SideState, UndoFile};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

const USAGE: &str = "Usage: e2undo [-n] [-v] <transaction file> <filesystem>\n";

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    let words = Words::read(call.arguments, "nv");
    let wrong = words.report(console);
    let [file, device] = &words.operands[..] else {
        console.error(format_args!("{USAGE}"));
        return Ok(1);
    };
    if wrong {
        console.error(format_args!("{USAGE}"));
        return Ok(1);
    }
    let dry_run = words.options.iter().any(|(option, _)| *option == 'n');
    let shown = file.to_string_lossy();
    if UndoFile::is_one(Path::new(file)).unwrap_or(false) {
        return foreign(Path::new(file), device, dry_run, console);
    }
    let side = match SideFile::open(Path::new(file)) {
        Ok(side) => side,
        Err(error) if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            console.error(format_args!("{shown}: Not an undo file.\n"));
            return Ok(1);
        }
        Err(error) => {
            console.complain(&format!("{} while opening undo file `{shown}'\n", plain(&error)));
            return Ok(1);
        }
    };
    let failed = |error: Error| Failure::new(words::of(&error).text);
    let image = Image::parse(device)?;
    if let Err(error) = std::fs::metadata(&image.path) {
        let device = device.to_string_lossy();
        console.complain(&format!("{} while opening `{device}'", plain(&error)));
        return Ok(1);
    }
    let home = device_of(&image, !dry_run)?;
    if let SideState::Foreign { at } = side.progress(&home).map_err(failed)? {
        console.complain(&format!(
            "byte {at} of the device was changed after the repair, or the file belongs to another \
             device: nothing was changed"
        ));
        return Ok(1);
    }
    if !side.can_undo() {
        console.complain(
            "the repair replayed the journal on another device and emptied it: it cannot be taken \
             back",
        );
        return Ok(1);
    }
    if !dry_run {
        side.undo(&home).map_err(failed)?;
    }
    Ok(0)
}

/// Uses an undo file of e2fsprogs.
fn foreign(
    file: &Path,
    device: &OsStr,
    dry_run: bool,
    console: &mut Console,
) -> Result<u8, Failure> {
    let shown = file.to_string_lossy();
    let undo = match UndoFile::open(file) {
        Ok(undo) => undo,
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            console.error(format_args!("{shown}: Corrupt undo file header.\n"));
            return Ok(1);
        }
        Err(error) => {
            console.complain(&format!("{} while opening undo file `{shown}'\n", plain(&error)));
            return Ok(1);
        }
    };
    let image = Image::parse(device)?;
    if let Err(error) = std::fs::metadata(&image.path) {
        let device = device.to_string_lossy();
        console.complain(&format!("{} while opening `{device}'", plain(&error)));
        return Ok(1);
    }
    let failed = |error: Error| Failure::new(words::of(&error).text);
    let home = device_of(&image, !dry_run)?;
    let Some(planned) = undo.plan(&home).map_err(failed)? else {
        console.complain("The file system superblock doesn't match the undo file.\n");
        return Ok(1);
    };
    let places = planned.places().map_err(failed)?;
    if !dry_run && !places.is_empty() {
        // The side file completes what is interrupted.
        let (path, side) = create_side(&SidePlace::of(&image, None)?, &planned)?;
        apply(&image, &home, &path, &side, &places)?;
        let removed = std::fs::remove_file(&path);
        removed.map_err(|error| Failure::of_file("remove", &path, error))?;
    }
    if !undo.is_finished() && !dry_run {
        console.error(format_args!("Incomplete undo record; run e2fsck.\n"));
    }
    Ok(0)
}
