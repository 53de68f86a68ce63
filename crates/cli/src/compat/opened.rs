//! Opens a volume, or says why not as the originals do.

use super::console::Console;
use super::volume::{Copy, RawVolume};
use super::words;
use crate::failure::Failure;
use crate::image::Image;
use crate::shown::Shown;
use extant::{Error, Site, What};
use extant_ondisk::features::Incompat;

/// Opens a volume to look at it. `None` if that failed; the reason was printed.
pub(super) fn to_look(
    image: &Image,
    copy: Copy,
    console: &mut Console,
) -> Result<Option<RawVolume>, Failure> {
    match RawVolume::open(image, copy) {
        Ok(volume) if volume.checksum_is_right => Ok(Some(volume)),
        Ok(_) => {
            complain(image, &Site::NOWHERE.corrupt(What::SuperblockChecksum), console);
            Ok(None)
        }
        Err(Error::Unsupported { feature }) if feature.bits & Incompat::JOURNAL_DEV.bits() != 0 => {
            console.error(format_args!("Cannot modify a journal device.\n"));
            Ok(None)
        }
        Err(error) => {
            complain(image, &error, console);
            Ok(None)
        }
    }
}

/// Prints why a volume could not be opened.
pub(super) fn complain(image: &Image, error: &Error, console: &mut Console) {
    let name = Shown::path(&image.name);
    console.complain(&format!("{} while trying to open {name}", words::of(error).text));
    console.error(format_args!("Couldn't find valid filesystem superblock.\n"));
}
