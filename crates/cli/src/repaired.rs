//! A volume as it would be after a repair: planned in memory, for `repair` and for commands that
//! read.

use crate::bar::Bar;
use crate::elsewhere::advice;
use crate::failure::Failure;
use crate::image::{Image, image_message};
use crate::shown::Shown;
use extant::raid::Assembled;
use extant::{BlockDevice, ByteOffset, Error, FileOptions, Filesystem};
use extant_blockdev::{ReadOnly, Slice};
use extant_repair::{Options, Plan, plan};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

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
    let planned = plan_of(image, &device, image.backup)?;
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

/// The device of the volume. It is locked against other programs if it may be written.
pub(crate) fn device_of(image: &Image, write: bool) -> Result<Arc<dyn BlockDevice>, Failure> {
    let failed = |error: Error| Failure::of_image(&image.name, &error);
    let is_single =
        matches!(image.options().assemble(&image.path).map_err(failed)?, Assembled::Single(_));
    if image.journal.is_some() || !is_single {
        return Err(Failure::new(format_args!(
            "{}: a repair of a volume on several devices is not supported",
            Shown::path(&image.name)
        )));
    }
    let file = FileOptions::new().write(write).open(&image.path).map_err(failed)?;
    for pid in file.passed_locks() {
        image.warn_of_lock(*pid);
    }
    let len = file.len();
    let file: Arc<dyn BlockDevice> = Arc::new(file);
    let device: Arc<dyn BlockDevice> = match (image.offset, image.len) {
        (0, None) => file,
        (offset, part) => {
            let part = part.unwrap_or(len.saturating_sub(offset));
            Arc::new(Slice::new(file, ByteOffset(offset), part).map_err(failed)?)
        }
    };
    Ok(match write {
        true => device,
        false => Arc::new(ReadOnly::new(device)),
    })
}

/// Plans the repair of the volume on `device`.
pub(crate) fn plan_of(
    image: &Image,
    device: &Arc<dyn BlockDevice>,
    backup: Option<u32>,
) -> Result<Plan, Failure> {
    let bar = Bar::new(false);
    let options = Options { backup, now: now(), threads: 0 };
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
