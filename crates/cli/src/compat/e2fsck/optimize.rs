//! `-D`: directories are packed again, after a check found nothing.
//!
//! ```text
//!   sound ─► compact::directories ─► check again ─► recorded, summary
//! ```

use super::{CORRECTED, Check, Mode};
use crate::compat::console::Console;
use crate::compat::words;
use crate::failure::Failure;
use extant::check::Report;
use extant::{Error, compact};

/// Packs the directories of a volume in which `report` found nothing. Returns the exit status.
pub(super) fn directories(
    check: &Check,
    report: &Report,
    console: &mut Console,
) -> Result<u8, Failure> {
    if check.options.mode != Mode::Preen {
        console.print(format_args!("Pass 3A: Optimizing directories\n"))?;
        console.flush()?;
    }
    let failed = |error: Error| Failure::new(words::of(&error).text);
    let done = match compact::directories(&check.image.options(), &check.image.path) {
        Ok(done) => done,
        // The state is recorded first: only a clean volume may be changed as a whole.
        Err(Error::NotSupported(_)) => {
            let code = check.note_check(report, console)?;
            let done = compact::directories(&check.image.options(), &check.image.path);
            return done.map(|_| code).map_err(failed);
        }
        Err(error) => return Err(failed(error)),
    };
    if done.rebuilt == 0 {
        return check.note_check(report, console);
    }
    let device = check.image.options().assemble(&check.image.path).map_err(failed)?.device();
    let after = check.check_on(device, &())?;
    if !after.ran || !after.clean {
        return Err(Failure::new("the volume is inconsistent after its directories were packed"));
    }
    if check.options.mode != Mode::Preen {
        let name = &check.name;
        console.print(format_args!("\n{name}: ***** FILE SYSTEM WAS MODIFIED *****\n"))?;
    }
    check.note_check(&after, console)
}

/// Packs the directories after a repair, whose exit status is `code`.
pub(super) fn after_repair(check: &Check, code: u8, console: &mut Console) -> Result<u8, Failure> {
    if check.options.mode != Mode::Preen {
        console.print(format_args!("Pass 3A: Optimizing directories\n"))?;
    }
    let done = compact::directories(&check.image.options(), &check.image.path);
    let done = done.map_err(|error| Failure::new(words::of(&error).text))?;
    Ok(if done.rebuilt > 0 { CORRECTED.max(code) } else { code })
}
