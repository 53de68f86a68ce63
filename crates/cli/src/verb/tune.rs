//! `extant tune`: changes a volume's settings.

use super::mkfs::format_options::{journal, label, percent};
use super::mkfs::{of_option, uuid};
use crate::accounts;
use crate::failure::{Failure, plain};
use crate::image::Image;
use crate::out::Out;
use crate::shown::{self, Shown, encoded};
use extant::superblock::Superblock;
use extant::tune::{ErrorPolicy, Tune, clear_mmp, tune_with};
use extant::{BlockSize, Environment};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Change label, UUID, limits and features of a volume.
///
/// Options are those of tune2fs. A change that would leave the volume inconsistent is refused with
/// the reason. All changes are one transaction of the volume's journal, except that a journal is
/// added or removed in a step of its own. After an interruption, the volume has the old or the new
/// settings. Without a journal, an interrupted change may have to be repaired.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant tune -L root -U random root.img
  extant tune -O quota,project root.img
  extant tune -O ^has_journal root.img
  extant tune -j -J size=64 old.img                     an ext2 volume becomes ext3
  extant tune -c 30 -i 2w root.img                      a check every 30 mounts or two weeks
  extant tune -m 0 -u backup -g adm root.img
  extant tune -U random 'root.img?journal=log.img'      its journal is on another device
  extant tune -m 1 -e remount-ro -o acl,user_xattr root.img

Exit status: 0 changed, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device; IMG?journal=DEVICE if its journal is on another device
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Label, at most 16 bytes
    #[arg(short = 'L', long, value_name = "LABEL", value_parser = label)]
    label: Option<String>,
    /// UUID, or one of `random`, `time` and `clear`
    #[arg(short = 'U', long, value_name = "UUID", value_parser = uuid::choice)]
    uuid: Option<uuid::Choice>,
    /// Features to enable, or to disable with ^; may be given more than once
    #[arg(short = 'O', long = "features", value_name = "FEATURE,^FEATURE…")]
    features: Vec<String>,
    /// Add a journal, as -O has_journal
    #[arg(short = 'j')]
    has_journal: bool,
    /// Add a journal of this size, as -j (a number without a unit counts MiB). To resize a journal,
    /// remove it first with `-O ^has_journal`
    #[arg(short = 'J', long, value_name = "size=SIZE", value_parser = journal)]
    journal: Option<u64>,
    /// Percentage of blocks reserved for root
    #[arg(short = 'm', long, value_name = "PERCENT", value_parser = percent)]
    reserved: Option<f64>,
    /// The same as -m, as a number of blocks
    #[arg(short = 'r', long, value_name = "BLOCKS", conflicts_with = "reserved")]
    reserved_blocks: Option<u64>,
    /// Another user who may use reserved blocks: a number, or a name in this machine's /etc/passwd
    #[arg(short = 'u', long, value_name = "USER", value_parser = user)]
    reserved_user: Option<u32>,
    /// Another group that may use reserved blocks: a number, or a name in this machine's /etc/group
    #[arg(short = 'g', long, value_name = "GROUP", value_parser = group)]
    reserved_group: Option<u32>,
    /// Behaviour of Linux when it finds an error
    #[arg(short = 'e', long, value_name = "WHAT", value_parser = ["continue", "remount-ro", "panic"])]
    errors: Option<String>,
    /// Default mount options, disabled with ^: debug bsdgroups user_xattr acl uid16 journal_data
    /// journal_data_ordered journal_data_writeback nobarrier block_validity discard nodelalloc
    #[arg(short = 'o', long, value_name = "OPTION,^OPTION…")]
    mount_options: Option<String>,
    /// Mount options as text, applied before those of the command line
    #[arg(long, value_name = "TEXT")]
    mount_text: Option<String>,
    /// Number of mounts between checks; -1 for never
    #[arg(short = 'c', long, value_name = "COUNT", allow_negative_numbers = true)]
    max_mounts: Option<i16>,
    /// Time between checks, in days, weeks, or months of 30 days: 10, 10d, 2w, 6m; 0 for never
    #[arg(short = 'i', long, value_name = "TIME", value_parser = interval)]
    interval: Option<u32>,
    /// Clear the mark of the host that uses the volume (mmp), left by a checker or a machine that
    /// died. Make sure that no host writes to the volume
    #[arg(long)]
    clear_mmp: bool,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Serialize)]
struct Answer {
    image: String,
    label: String,
    uuid: String,
    features: Vec<String>,
    reserved_blocks: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let of_image = |error| Failure::of_image(&image.name, &error);
        let old = image.open()?.superblock().clone();
        let tune = self.tune(&old)?;
        if tune == Tune::default() && !self.clear_mmp {
            return Err(Failure::usage("no change was requested: see `extant tune --help`"));
        }
        if self.clear_mmp {
            clear_mmp(&image.options(), &image.path).map_err(of_image)?;
        }
        let now = match tune == Tune::default() {
            true => old,
            false => tune_with(&image.options(), &image.path, &tune).map_err(of_image)?,
        };
        self.answer(&image, &now)?;
        Ok(0)
    }

    fn tune(&self, old: &Superblock) -> Result<Tune, Failure> {
        let mut tune = Tune {
            label: self.label.clone(),
            uuid: self.uuid.map(|choice| choice.bytes(&Environment::default())),
            reserved_blocks: self.reserved_blocks,
            reserved_uid: self.reserved_user,
            reserved_gid: self.reserved_group,
            mount_text: self.mount_text.clone(),
            max_mounts: self.max_mounts,
            check_interval: self.interval,
            errors: self.errors.as_deref().map(|what| match what {
                "panic" => ErrorPolicy::PANIC,
                "remount-ro" => ErrorPolicy::REMOUNT_RO,
                _ => ErrorPolicy::CONTINUE,
            }),
            ..Tune::default()
        };
        if let Some(percent) = self.reserved {
            tune.reserved_blocks = Some((old.blocks_count as f64 * percent / 100.0) as u64);
        }
        if let Some(bytes) = self.journal {
            tune.journal_blocks = Some(blocks(bytes, old.block_size)?);
        }
        if let Some(options) = &self.mount_options {
            // One at a time, so that an error names the option.
            for word in options.split(',') {
                let option = || format!("-o {}", Shown(word.as_bytes()));
                tune = tune.mount_options(word).map_err(|error| of_option(&option(), &error))?;
            }
        }
        for features in &self.features {
            for word in features.split([',', ' ']).filter(|word| !word.is_empty()) {
                let option = || format!("-O {}", Shown(word.as_bytes()));
                tune = tune.features(word).map_err(|error| of_option(&option(), &error))?;
            }
        }
        if self.has_journal || (self.journal.is_some() && !old.has_journal()) {
            tune = tune.features("has_journal").map_err(|error| of_option("-j", &error))?;
        }
        Ok(tune)
    }

    fn answer(&self, image: &Image, now: &Superblock) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let label: Vec<u8> =
            now.volume_name.iter().copied().take_while(|byte| *byte != 0).collect();
        let features: Vec<String> = now.features.iter().map(|bit| bit.name.to_owned()).collect();
        let uuid = shown::uuid(&now.uuid);
        let mut out = Out::of_report();
        match self.json {
            true => out.json(&Answer {
                image: encoded(image.name.as_os_str().as_bytes()),
                label: encoded(&label),
                uuid,
                features,
                reserved_blocks: now.reserved_blocks,
            })?,
            false => out.text(format_args!(
                "{}: label '{}', UUID {uuid}\nfeatures {}\n",
                Shown::path(&image.name),
                Shown(&label),
                features.join(" ")
            ))?,
        }
        out.finish()
    }
}

/// Parses a time in days, weeks or months to seconds.
fn interval(text: &str) -> Result<u32, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let days = match &text[number.len()..] {
        "" | "d" => 1,
        "w" => 7,
        "m" => 30,
        _ => return Err(format!("'{text}' is not a time: write 10, 10d, 2w or 6m")),
    };
    let count: u32 = number.parse().map_err(|_| format!("'{text}' is not a time: write 10d"))?;
    let seconds = count.checked_mul(days * 86_400);
    seconds.ok_or_else(|| format!("'{text}' is more than 136 years"))
}

fn user(text: &str) -> Result<u32, String> {
    number_of(text, accounts::USERS)
}

fn group(text: &str) -> Result<u32, String> {
    number_of(text, accounts::GROUPS)
}

/// A number, or the number of a name in a table of this system.
fn number_of(text: &str, table: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let number = accounts::number(table, text).map_err(|e| format!("{table}: {}", plain(&e)))?;
    number.ok_or_else(|| format!("{table} has no entry '{text}': use a number"))
}

fn blocks(bytes: u64, size: BlockSize) -> Result<u32, Failure> {
    u32::try_from(bytes >> size.log2()).map_err(|_| Failure::new("-J: the journal is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_names_have_numbers() {
        assert_eq!(interval("0"), Ok(0));
        assert_eq!(interval("10d"), interval("10"));
        assert_eq!(interval("2w"), Ok(14 * 86_400));
        assert_eq!(interval("6m"), Ok(180 * 86_400));
        for text in ["", "w", "-1", "1y", "2 w", "99999m", "é"] {
            assert!(interval(text).is_err(), "{text}");
        }
        assert_eq!(number_of("77", "/no/such/table"), Ok(77));
    }
}
