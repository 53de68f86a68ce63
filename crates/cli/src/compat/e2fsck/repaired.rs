//! Repairs a volume and prints what was done.

use super::summary::Summary;
use super::{CLEAN, CORRECTED, Check, LEFT, Mode, due};
use crate::compat::console::Console;
use crate::compat::words;
use crate::elsewhere;
use crate::failure::Failure;
use crate::repaired::{device_of, journal_of};
use crate::shown::Shown;
use crate::verb::repair::{self, SidePlace};
use extant::check::Report;
use extant::{BlockDevice, Error};
use extant_repair::{FileVerdict, Plan};
use std::path::Path;
use std::sync::Arc;

/// Repairs what a check found.
pub(super) fn repair(
    check: &Check,
    backup: Option<u32>,
    found: &Report,
    console: &mut Console,
) -> Result<u8, Failure> {
    let home = device_of(&check.image, true)?;
    complete(check, &home)?;
    let planned = plan(check, &home, backup)?;
    let code = decide(check, &home, &planned, console)?;
    // It locks the journal's device, which the checks open.
    drop(planned);
    if code > CORRECTED {
        return Ok(code);
    }
    if code == CLEAN {
        // What the check noted is no damage.
        return check.note_check(found, console);
    }
    let after = check.check_on(Arc::clone(&home), &())?;
    Summary::of(check, &after.stats).print(console)?;
    Ok(CORRECTED)
}

/// Repairs a volume whose superblock is lost.
pub(super) fn repair_lost(
    check: &Check,
    error: &Error,
    console: &mut Console,
) -> Result<u8, Failure> {
    let home = device_of(&check.image, true)?;
    complete(check, &home)?;
    let planned = match plan(check, &home, None) {
        Ok(planned) => planned,
        Err(_) => return check.complain(&words::of(error).text, false, console),
    };
    if !planned.elsewhere().is_empty() {
        let code = check.complain(&words::of(error).text, false, console)?;
        let advice = elsewhere::advice(&check.image, planned.elsewhere(), home.len());
        console.print(format_args!("{}: {advice}\n", check.name))?;
        return Ok(code);
    }
    let code = decide(check, &home, &planned, console)?;
    drop(planned);
    if code != CORRECTED {
        return Ok(code);
    }
    let after = check.check_on(Arc::clone(&home), &())?;
    Summary::of(check, &after.stats).print(console)?;
    Ok(CORRECTED)
}

/// Completes a repair that was interrupted earlier.
fn complete(check: &Check, home: &Arc<dyn BlockDevice>) -> Result<(), Failure> {
    let place = SidePlace::of(&check.image, check.options.undo.as_deref())?;
    repair::complete(&check.image, home, &place).map(drop)
}

fn plan(check: &Check, home: &Arc<dyn BlockDevice>, backup: Option<u32>) -> Result<Plan, Failure> {
    let now = u32::try_from(due::now()).unwrap_or(u32::MAX);
    let journal = journal_of(&check.image, true)?;
    let options = extant_repair::Options { backup, now, threads: 0, journal };
    let planned = extant_repair::plan(Arc::clone(home), &options, &());
    planned.map_err(|error| Failure::new(words::of(&error).text))
}

/// Applies a plan, if it may be. Returns 0 if there was nothing to apply.
fn decide(
    check: &Check,
    home: &Arc<dyn BlockDevice>,
    planned: &Plan,
    console: &mut Console,
) -> Result<u8, Failure> {
    let places = planned.places().map_err(|error| Failure::new(words::of(&error).text))?;
    let name = &check.name;
    if !planned.is_clean() {
        for finding in planned.left() {
            console.print(format_args!("{}\n", Shown(finding.to_string().as_bytes())))?;
        }
        console.print(format_args!(
            "\n{name}: ********** WARNING: Filesystem still has errors **********\n\n"
        ))?;
        return Ok(LEFT);
    }
    if places.is_empty() && !planned.changes_journal() {
        return Ok(CLEAN);
    }
    if check.options.mode == Mode::Preen && !planned.report().is_safe() {
        for (class, count) in planned.report().counts().filter(|(class, _)| !class.is_safe()) {
            console.print(format_args!("{name}: {class}: {count}.\n"))?;
        }
        console.error(format_args!(
            "\n\n{name}: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n\
             \t(i.e., without -a or -p options)\n"
        ));
        return Ok(LEFT);
    }
    show(check, planned, console)?;
    if check.options.mode == Mode::Ask && !asks(console)? {
        console.print(format_args!(
            "\n{name}: ********** WARNING: Filesystem still has errors **********\n\n"
        ))?;
        return Ok(LEFT);
    }
    if !places.is_empty() {
        apply(check, home, planned, &places)?;
    }
    repair::end_journal(&check.image, planned)?;
    if check.options.mode != Mode::Preen {
        console.print(format_args!("\n{name}: ***** FILE SYSTEM WAS MODIFIED *****\n"))?;
    }
    Ok(CORRECTED)
}

/// Prints what a plan repairs, and the files that it affects.
fn show(check: &Check, planned: &Plan, console: &mut Console) -> Result<(), Failure> {
    let report = planned.report();
    let (before, after) = match check.options.mode {
        Mode::Preen => (format!("{}: ", check.name), "FIXED."),
        Mode::Yes => (String::new(), "Fix? yes\n"),
        _ => (String::new(), ""),
    };
    for (class, count) in report.counts() {
        console.print(format_args!("{before}{class}: {count}.  {after}\n"))?;
    }
    let affected = |file: &FileVerdict| file.state() != "whole";
    for (ino, file) in report.files().filter(|(_, file)| affected(file)) {
        console.print(format_args!("{before}{}\n", repair::file_text(ino, file)))?;
    }
    Ok(())
}

/// Asks on the terminal whether everything is to be repaired.
fn asks(console: &mut Console) -> Result<bool, Failure> {
    console.print(format_args!("Fix all<y>? "))?;
    console.flush()?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    Ok(read.is_ok_and(|bytes| bytes > 0) && !matches!(line.trim(), "n" | "N" | "no"))
}

fn apply(
    check: &Check,
    home: &Arc<dyn BlockDevice>,
    planned: &Plan,
    places: &[(u64, u64)],
) -> Result<(), Failure> {
    let kept = check.options.undo.as_deref();
    let (path, side) = side_file(check, kept, planned)?;
    repair::apply(&check.image, home, &path, &side, places)?;
    if kept.is_none() {
        // The original leaves nothing behind, either.
        let _ = std::fs::remove_file(&path);
    }
    Ok(())
}

/// Writes the side file at its usual place. Early in a boot that place may not be writable; then
/// the file is in memory, where it lets an interrupted repair continue until the machine restarts.
fn side_file(
    check: &Check,
    kept: Option<&Path>,
    planned: &Plan,
) -> Result<(std::path::PathBuf, extant_repair::SideFile), Failure> {
    let place = SidePlace::of(&check.image, kept)?;
    match repair::create_side(&place, planned) {
        Err(_) if kept.is_none() => {
            let spare = format!("/run/extant-{}.repair", std::process::id());
            let place = SidePlace::of(&check.image, Some(Path::new(&spare)))?;
            repair::create_side(&place, planned)
        }
        other => other,
    }
}
