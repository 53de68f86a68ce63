//! `e2label`: prints or sets the label.

use super::console::Console;
use super::volume::Copy;
use super::{Call, opened, tune2fs};
use crate::failure::Failure;
use crate::image::Image;
use extant::tune::Tune;

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    let (name, label) = match call.arguments {
        [name] => (name, None),
        [name, label] => (name, Some(label)),
        _ => {
            console.error(format_args!("Usage: e2label device [newlabel]\n"));
            return Ok(1);
        }
    };
    let image = Image::parse(name)?;
    let Some(volume) = opened::to_look(&image, Copy::default(), console)? else { return Ok(1) };
    let Some(label) = label else {
        console.bytes(volume.sb.label())?;
        console.bytes(b"\n")?;
        return Ok(0);
    };
    let label = tune2fs::label(label, console)?;
    tune2fs::change(&image, &Tune { label: Some(label), ..Tune::default() }, console)
}
