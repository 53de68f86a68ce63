//! `tune2fs`: prints or changes the settings of a volume.

pub(in crate::compat) mod options;

use super::console::Console;
use super::getopt::Words;
use super::volume::Copy;
use super::{Call, opened, superblock};
use crate::failure::Failure;
use crate::image::Image;
use extant::Error;
use extant::features::{FeatureBit, Features};
use extant::tune::{Tune, clear_mmp, tune_with};
use options::{Options, Wrong};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Bytes of a label.
const LABEL_MAX: usize = 16;

const USAGE: &str = "Usage: tune2fs [-c max_mounts_count] [-e errors_behavior] [-f] [-g group]
\t[-i interval[d|m|w]] [-j] [-J journal_options] [-l]
\t[-m reserved_blocks_percent] [-o [^]mount_options[,...]]
\t[-r reserved_blocks_count] [-u user] [-C mount_count]
\t[-L volume_label] [-M last_mounted_dir]
\t[-O [^]feature[,...]] [-Q quota_options]
\t[-E extended-option[,...]] [-T last_check_time] [-U UUID]
\t[-I new_inode_size] [-z undo_file] device
";

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    console.print(format_args!("{}", Console::banner("tune2fs")))?;
    let words = Words::read(call.arguments, options::KNOWN);
    let options = match Options::of(&words, console) {
        Ok(options) => options,
        Err(wrong) => return Ok(report(&wrong, console)),
    };
    let [name] = &words.operands[..] else { return Ok(report(&Wrong::Usage, console)) };
    if !options.any() {
        return Ok(report(&Wrong::Usage, console));
    }
    let image = Image::parse(name)?;
    let Some(volume) = opened::to_look(&image, Copy::default(), console)? else { return Ok(1) };
    let old = volume.sb.clone();
    drop(volume);
    let tune = match options.tune(&old) {
        Ok(tune) => tune,
        Err(wrong) => return Ok(report(&wrong, console)),
    };
    if options.clear_mmp
        && let Err(error) = clear_mmp(&image.options(), &image.path)
    {
        opened::complain(&image, &error, console);
        return Ok(1);
    }
    if tune != Tune::default() {
        options.announce(&tune, console)?;
        let code = change(&image, &tune, console)?;
        if code != 0 {
            return Ok(code);
        }
        options.conclude(&tune, &old, console)?;
    }
    if options.list {
        let Some(volume) = opened::to_look(&image, Copy::default(), console)? else { return Ok(1) };
        superblock::list(&volume.raw, &volume.sb, console)?;
    }
    Ok(0)
}

/// Makes a change, or prints why it was not made.
pub(super) fn change(image: &Image, tune: &Tune, console: &mut Console) -> Result<u8, Failure> {
    let Err(error) = tune_with(&image.options(), &image.path, tune) else { return Ok(0) };
    match (&error, &tune.features[..]) {
        (Error::NotSupported(why), [(bit, on)]) => {
            let what = if *on { "Setting" } else { "Clearing" };
            let name = name_of(*bit);
            console.error(format_args!("{what} filesystem feature '{name}' not supported.\n"));
            console.complain(why);
        }
        (Error::NotSupported(why) | Error::Invalid(why), _) => console.complain(why),
        _ => opened::complain(image, &error, console),
    }
    Ok(1)
}

/// The name of a feature.
fn name_of(bit: FeatureBit) -> String {
    let mut features = Features::default();
    features.set(bit, true);
    features.to_string()
}

/// A label, shortened if it is too long.
pub(super) fn label(text: &OsStr, console: &mut Console) -> Result<String, Failure> {
    let bytes = text.as_bytes();
    if bytes.len() > LABEL_MAX {
        console.error(format_args!("Warning: label too long, truncating.\n"));
    }
    let kept = &bytes[..bytes.len().min(LABEL_MAX)];
    match std::str::from_utf8(kept) {
        Ok(label) => Ok(label.to_owned()),
        // The end of the label may cut a character.
        Err(error) if error.error_len().is_none() => {
            Ok(String::from_utf8_lossy(&kept[..error.valid_up_to()]).into_owned())
        }
        Err(_) => Err(Failure::new("a label must be UTF-8")),
    }
}

fn report(wrong: &Wrong, console: &mut Console) -> u8 {
    match wrong {
        Wrong::Usage => console.error(format_args!("{USAGE}")),
        Wrong::Value(why) => {
            console.complain(why);
            console.error(format_args!("{USAGE}"));
        }
        Wrong::Text(text) => console.error(format_args!("{text}")),
        Wrong::Refused(why) => console.complain(why),
    }
    1
}
