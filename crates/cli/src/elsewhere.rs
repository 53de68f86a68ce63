//! Volumes that do not start where the device starts: what was found, and what to do.

use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::{Shown, encoded, uuid};
use extant_repair::FoundVolume;
use serde::Serialize;

#[derive(Serialize)]
struct VolumeLine {
    volume_at: i64,
    length: u64,
    uuid: String,
    label: String,
    copies: u64,
}

/// Prints the volumes.
pub(crate) fn show(found: &[FoundVolume], json: bool, out: &mut Out) -> Result<(), Failure> {
    for volume in found {
        if json {
            out.json(&VolumeLine {
                volume_at: volume.start,
                length: volume.len,
                uuid: uuid(&volume.uuid),
                label: encoded(&volume.label),
                copies: volume.copies,
            })?;
            continue;
        }
        let label = match volume.label.is_empty() {
            true => String::new(),
            false => format!(", label {}", Shown(&volume.label)),
        };
        let s = if volume.copies == 1 { "" } else { "s" };
        out.text(format_args!(
            "found: a volume of {} bytes at byte {}: UUID {}{label}, {} superblock{s}\n",
            volume.len,
            volume.start,
            uuid(&volume.uuid),
            volume.copies
        ))?;
    }
    Ok(())
}

/// What the user can do about the first of the volumes, on a device of `device_len` bytes.
pub(crate) fn advice(image: &Image, found: &[FoundVolume], device_len: u64) -> String {
    let name = Shown::path(&image.path);
    let Some(volume) = found.first() else { return String::new() };
    let shift = volume.start.unsigned_abs();
    match volume.start {
        0 => format!(
            "the volume has {} bytes, the device only {device_len}: nothing was changed",
            volume.len
        ),
        1.. => format!(
            "a volume starts at byte {shift}, not at the device's start: nothing was changed; \
             repair {name}?offset={}, or let the partition start there",
            image.offset + shift
        ),
        _ => format!(
            "the device starts {shift} bytes after the volume's start: nothing was changed; let \
             the partition start {shift} bytes earlier"
        ),
    }
}
