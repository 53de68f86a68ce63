//! A volume as it would be after a repair: planned in memory, for `repair` and for commands that
//! read.

use crate::bar::Bar;
use crate::elsewhere::advice;
use crate::failure::Failure;
use crate::image::{Image, image_message};
use crate::shown::Shown;
use extant::raid::Assembled;
use extant::{BlockDevice, Error, FileOptions, Filesystem};
use extant_blockdev::ReadOnly;
use extant_repair::{Options, Plan, plan};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Members of a mirror are compared in units of so many bytes.
const COMPARED_BYTES: u64 = 4096;

/// The option of commands that read a volume.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct ReadArgs {
    /// Read a damaged volume as `extant repair` would leave it; nothing is written
    #[arg(long)]
    pub(crate) repaired: bool,
}

impl ReadArgs {
    /// Opens the volume for reading. If it needs recovery, that is done in memory.
    pub(crate) fn open(self, image: &Image) -> Result<Filesystem, Failure> {
        if !self.repaired {
            return image.open();
        }
        let (image, device) = repaired(image)?;
        let opened = image.options().open_device(device);
        opened.map_err(|error| Failure::of_image(&image.name, &error))
    }
}

/// The device as a repair would leave it, and the image without the options that the device
/// already obeys.
pub(crate) fn repaired(image: &Image) -> Result<(Image, Arc<dyn BlockDevice>), Failure> {
    let device = device_of(image, false)?;
    let planned = plan_of(image, &device, journal_of(image, false)?, image.backup)?;
    if !planned.elsewhere().is_empty() {
        let advice = advice(image, planned.elsewhere(), device.len());
        return Err(Failure::new(format_args!("{}: {advice}", Shown::path(&image.name))));
    }
    match planned.is_clean() {
        true => Ok((image.whole_device(), planned.device())),
        false => Err(Failure::new(format_args!(
            "{}: a repair does not make the volume consistent: read it without --repaired",
            Shown::path(&image.name)
        ))),
    }
}

/// The device of the volume, with the members of its layout. It is locked against other programs
/// if it may be written.
pub(crate) fn device_of(image: &Image, write: bool) -> Result<Arc<dyn BlockDevice>, Failure> {
    image.refuse_disk()?;
    let failed = |error: Error| Failure::of_image(&image.name, &error);
    let device = image.options().write(write).assemble(&image.path).map_err(failed)?.device();
    Ok(match write {
        true => device,
        false => Arc::new(ReadOnly::new(device)),
    })
}

/// Whether the volume is on a mirror whose members have different bytes.
pub(crate) fn members_differ(image: &Image) -> Result<bool, Failure> {
    if image.members.is_empty() {
        return Ok(false);
    }
    // This process holds the locks.
    let assembled = image.options().lock(false).assemble(&image.path);
    match assembled.map_err(|error| Failure::of_image(&image.name, &error))? {
        Assembled::Mirrored(mirror) => {
            let found = mirror.compare(COMPARED_BYTES, 1, &mut |_, _| true);
            let found = found.map_err(|error| Failure::of_image(&image.name, &error))?;
            Ok(!found.ranges.is_empty() || found.more)
        }
        _ => Ok(false),
    }
}

/// The device of the volume's external journal, if the user named one.
pub(crate) fn journal_of(
    image: &Image,
    write: bool,
) -> Result<Option<Arc<dyn BlockDevice>>, Failure> {
    let Some(path) = &image.journal else { return Ok(None) };
    let opened = FileOptions::new().write(write).open(path);
    let device = opened.map_err(|error| Failure::of_image(path, &error))?;
    Ok(Some(Arc::new(device)))
}

/// Plans the repair of the volume on `device`, with its external journal.
pub(crate) fn plan_of(
    image: &Image,
    device: &Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
    backup: Option<u32>,
) -> Result<Plan, Failure> {
    let bar = Bar::new(false);
    let options = Options { backup, now: now(), threads: 0, journal };
    let planned = plan(Arc::clone(device), &options, &bar);
    bar.clear();
    planned.map_err(|error| Failure::new(why_there_is_no_plan(image, &error)))
}

/// Seconds since 1970; a fixed time makes repairs repeatable.
fn now() -> u32 {
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    fixed.unwrap_or_else(|| u32::try_from(clock()).unwrap_or(u32::MAX))
}

fn why_there_is_no_plan(image: &Image, error: &Error) -> String {
    match error {
        Error::NoSpace => format!(
            "{}: the repair needs more free space than the volume has: nothing was changed",
            Shown::path(&image.name)
        ),
        Error::Unsupported { feature } => format!(
            "{}: a volume with {feature} cannot be repaired: nothing was changed",
            Shown::path(&image.name)
        ),
        error => image_message(&image.name, error),
    }
}
