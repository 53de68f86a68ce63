//! The options of tune2fs, and the change that they describe.

use crate::accounts;
use crate::compat::clock;
use crate::compat::console::Console;
use crate::compat::getopt::{self, Words};
use crate::failure::Failure;
use crate::verb::mkfs::uuid;
use extant::superblock::Superblock;
use extant::tune::{ErrorPolicy, Tune};
use extant::{Environment, Timestamp};
use std::ffi::OsStr;

/// The options that are known here.
pub(super) const KNOWN: &str = "c:e:fg:i:jlm:o:r:u:C:E:J:L:M:O:T:U:";

/// The largest count of mounts that the original takes.
const MOUNTS_MAX: i64 = 16_000;
const DAY: u32 = 86_400;

/// Why a call is refused.
#[derive(Debug)]
pub(super) enum Wrong {
    /// Only the usage is printed.
    Usage,
    /// The program's name, this text, and the usage.
    Value(String),
    /// This text as it is.
    Text(String),
    /// The program's name and this text.
    Refused(String),
}

/// What was requested.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) list: bool,
    pub(super) clear_mmp: bool,
    force: bool,
    /// The change, as far as it does not depend on the volume.
    tune: Tune,
    percent: Option<f64>,
    stride: Option<u16>,
    stripe_width: Option<u32>,
    adds_journal: bool,
    journal_mib: Option<u32>,
}

impl Options {
    pub(super) fn of(words: &Words, console: &mut Console) -> Result<Options, Wrong> {
        let mut options = Options::default();
        for (option, value) in &words.options {
            options.take(*option, value, console)?;
        }
        if let Some(why) = &words.wrong {
            return Err(Wrong::Value(why.clone()));
        }
        if options.clear_mmp && !options.force {
            let text = "Error in using clear_mmp. It must be used with -f\n";
            return Err(Wrong::Text(text.into()));
        }
        Ok(options)
    }

    /// Whether anything is to be done.
    pub(super) fn any(&self) -> bool {
        self.list
            || self.clear_mmp
            || self.tune != Tune::default()
            || self.percent.is_some()
            || self.stride.is_some()
            || self.stripe_width.is_some()
            || self.adds_journal
    }

    fn take(&mut self, option: char, value: &OsStr, console: &mut Console) -> Result<(), Wrong> {
        let text = getopt::text(value);
        let bad = |what: &str| Wrong::Value(format!("bad {what} - {text}"));
        let tune = &mut self.tune;
        match option {
            'c' => tune.max_mounts = Some(max_mounts(&text).ok_or_else(|| bad("mounts count"))?),
            'C' => tune.mount_count = Some(mounts(&text).ok_or_else(|| bad("mounts count"))?),
            'e' => tune.errors = Some(policy(&text).ok_or_else(|| bad("error behavior"))?),
            'f' => self.force = true,
            'g' => {
                let id = account(accounts::GROUPS, &text);
                tune.reserved_gid = Some(id.ok_or_else(|| bad("gid/group name"))?);
            }
            'i' => tune.check_interval = Some(interval(&text).ok_or_else(|| bad("interval"))?),
            'j' => self.adds_journal = true,
            'J' => {
                self.journal_mib = Some(journal_size(&text)?);
                self.adds_journal = true;
            }
            'l' => self.list = true,
            'L' => {
                let label = super::label(value, console);
                let wrong = |_| Wrong::Refused("a label must be UTF-8".into());
                tune.label = Some(label.map_err(wrong)?);
            }
            'm' => {
                let percent = text.parse().ok().filter(|percent| (0.0..=50.0).contains(percent));
                self.percent = Some(percent.ok_or_else(|| bad("reserved block ratio"))?);
            }
            'M' => tune.last_mounted = Some(text.chars().take(63).collect()),
            'o' => {
                let wrong = |_| Wrong::Text(format!("Invalid mount option set: {text}\n"));
                *tune = std::mem::take(tune).mount_options(&text).map_err(wrong)?;
            }
            'O' => {
                let wrong = |_| Wrong::Text(format!("Invalid filesystem option set: {text}\n"));
                *tune = std::mem::take(tune).features(&text).map_err(wrong)?;
            }
            'r' => {
                let blocks = getopt::number(&text);
                tune.reserved_blocks = Some(blocks.ok_or_else(|| bad("reserved blocks count"))?);
            }
            'T' => {
                let wrong = || Wrong::Value(format!("Couldn't parse date/time specifier: {text}"));
                tune.last_check = Some(time(&text).ok_or_else(wrong)?);
            }
            'u' => {
                let id = account(accounts::USERS, &text);
                tune.reserved_uid = Some(id.ok_or_else(|| bad("uid/user name"))?);
            }
            'U' => {
                let wrong = |_| Wrong::Refused("Invalid UUID format\n".into());
                let choice = uuid::choice(&text).map_err(wrong)?;
                tune.uuid = Some(choice.bytes(&Environment::default()));
            }
            'E' => self.extended(&text)?,
            _ => return Err(Wrong::Usage),
        }
        Ok(())
    }

    fn extended(&mut self, text: &str) -> Result<(), Wrong> {
        for word in text.split(',') {
            let bad = || Wrong::Text(BAD_EXTENDED.into());
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "clear_mmp" if value.is_empty() => self.clear_mmp = true,
                "hash_alg" => self.tune.hash_version = Some(hash(value).ok_or_else(bad)?),
                "mount_opts" => self.tune.mount_text = Some(value.to_owned()),
                "stride" => {
                    let wrong =
                        || Wrong::Text(format!("Invalid RAID stride: {value}\n{BAD_EXTENDED}"));
                    let stride = getopt::number(value).and_then(|n| u16::try_from(n).ok());
                    self.stride = Some(stride.filter(|n| *n != 0).ok_or_else(wrong)?);
                }
                "stripe_width" | "stripe-width" => {
                    let wrong = || {
                        Wrong::Text(format!("Invalid RAID stripe-width: {value}\n{BAD_EXTENDED}"))
                    };
                    let width = getopt::number(value).and_then(|n| u32::try_from(n).ok());
                    self.stripe_width = Some(width.filter(|n| *n != 0).ok_or_else(wrong)?);
                }
                _ => return Err(bad()),
            }
        }
        Ok(())
    }

    /// The change of a volume.
    pub(super) fn tune(&self, old: &Superblock) -> Result<Tune, Wrong> {
        let mut tune = self.tune.clone();
        if let Some(percent) = self.percent {
            tune.reserved_blocks = Some((old.blocks_count as f64 * percent / 100.0) as u64);
        }
        if let Some(blocks) = tune.reserved_blocks.filter(|blocks| *blocks > old.blocks_count / 2) {
            let text = format!("reserved blocks count is too big ({blocks})");
            return Err(Wrong::Refused(text));
        }
        if self.stride.is_some() || self.stripe_width.is_some() {
            let stride = self.stride.unwrap_or(old.raid_stride);
            tune.stride = Some((stride, self.stripe_width.unwrap_or(old.raid_stripe_width)));
        }
        if self.adds_journal {
            if old.has_journal() {
                return Err(Wrong::Text("The filesystem already has a journal.\n".into()));
            }
            let known = |_| Wrong::Refused("the journal has a name that is not known".into());
            tune = tune.features("has_journal").map_err(known)?;
            let blocks = |mib: u32| u64::from(mib) << (20 - old.block_size.log2());
            tune.journal_blocks = match self.journal_mib.map(blocks).map(u32::try_from) {
                None => None,
                Some(Ok(blocks)) => Some(blocks),
                Some(Err(_)) => return Err(Wrong::Text(BAD_JOURNAL.into())),
            };
        }
        Ok(tune)
    }

    /// Prints what is about to change, in the order of the original.
    pub(super) fn announce(&self, tune: &Tune, to: &mut Console) -> Result<(), Failure> {
        let mut say = |text: String| to.print(format_args!("{text}\n"));
        if let Some(count) = tune.max_mounts {
            say(format!("Setting maximal mount count to {count}"))?;
        }
        if let Some(count) = tune.mount_count {
            say(format!("Setting current mount count to {count}"))?;
        }
        if let Some(policy) = tune.errors {
            say(format!("Setting error behavior to {}", policy.0))?;
        }
        if let Some(gid) = tune.reserved_gid {
            say(format!("Setting reserved blocks gid to {gid}"))?;
        }
        if let Some(seconds) = tune.check_interval {
            say(format!("Setting interval between checks to {seconds} seconds"))?;
        }
        match (self.percent, tune.reserved_blocks) {
            (Some(percent), Some(blocks)) => {
                say(format!("Setting reserved blocks percentage to {percent}% ({blocks} blocks)"))?;
            }
            (None, Some(blocks)) => say(format!("Setting reserved blocks count to {blocks}"))?,
            _ => {}
        }
        if let Some(time) = tune.last_check {
            let time = clock::ctime(i64::try_from(time).unwrap_or(i64::MAX));
            say(format!("Setting time filesystem last checked to {time}\n"))?;
        }
        if let Some(uid) = tune.reserved_uid {
            say(format!("Setting reserved blocks uid to {uid}"))?;
        }
        if let Some(version) = tune.hash_version {
            let name = HASHES[usize::from(version)];
            say(format!("Setting default hash algorithm to {name} ({version})"))?;
        }
        if let Some(stride) = self.stride {
            say(format!("Setting stride size to {stride}"))?;
        }
        if let Some(width) = self.stripe_width {
            say(format!("Setting stripe width to {width}"))?;
        }
        match &tune.mount_text {
            Some(text) => say(format!("Setting extended default mount options to '{text}'")),
            None => Ok(()),
        }
    }

    /// Prints what was done after the change.
    pub(super) fn conclude(
        &self,
        tune: &Tune,
        old: &Superblock,
        to: &mut Console,
    ) -> Result<(), Failure> {
        let has_journal = extant::features::FeatureBit::by_name("has_journal");
        let adds = |(bit, on): &(_, bool)| *on && Some(*bit) == has_journal;
        if old.has_journal() || !tune.features.iter().any(adds) {
            return Ok(());
        }
        to.print(format_args!("Creating journal inode: done\n"))?;
        let mounts = tune.max_mounts.unwrap_or(old.max_mnt_count);
        let interval = tune.check_interval.unwrap_or(old.checkinterval);
        if mounts <= 0 && interval == 0 {
            return Ok(());
        }
        let days = f64::from(interval) / f64::from(DAY);
        to.print(format_args!(
            "This filesystem will be automatically checked every {mounts} mounts or\n\
             {days} days, whichever comes first.  Use tune2fs -c or -i to override.\n"
        ))
    }
}

const HASHES: [&str; 3] = ["legacy", "half_md4", "tea"];

fn hash(name: &str) -> Option<u8> {
    let at = HASHES.iter().position(|known| *known == name)?;
    u8::try_from(at).ok()
}

const BAD_EXTENDED: &str = "
Bad options specified.

Extended options are separated by commas, and may take an argument which
\tis set off by an equals ('=') sign.

Valid extended options are:
\tclear_mmp
\thash_alg=<hash algorithm>
\tmount_opts=<extended default mount options>
\tstride=<RAID per-disk chunk size in blocks>
\tstripe_width=<RAID stride*data disks in blocks>
";

const BAD_JOURNAL: &str = "
Bad journal options specified.

Journal options are separated by commas, and may take an argument which
\tis set off by an equals ('=') sign.

Valid journal options are:
\tsize=<journal size in megabytes>

The journal size must be between 1024 and 10240000 filesystem blocks.

";

/// The size of a journal in MiB.
fn journal_size(text: &str) -> Result<u32, Wrong> {
    let size = text.strip_prefix("size=").and_then(getopt::number);
    let size = size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size < 1 << 24);
    size.ok_or_else(|| Wrong::Text(BAD_JOURNAL.into()))
}

fn max_mounts(text: &str) -> Option<i16> {
    if text == "random" {
        // As mke2fs: between 20 and 40 mounts.
        let random = Environment::default().next_u32() % 21;
        return i16::try_from(20 + random).ok();
    }
    let count: i64 = text.parse().ok()?;
    i16::try_from(count).ok().filter(|_| (-MOUNTS_MAX..=MOUNTS_MAX).contains(&count))
}

fn mounts(text: &str) -> Option<u16> {
    let count = getopt::number(text)?;
    u16::try_from(count).ok().filter(|count| i64::from(*count) <= MOUNTS_MAX)
}

fn policy(text: &str) -> Option<ErrorPolicy> {
    match text {
        "continue" => Some(ErrorPolicy::CONTINUE),
        "remount-ro" => Some(ErrorPolicy::REMOUNT_RO),
        "panic" => Some(ErrorPolicy::PANIC),
        _ => None,
    }
}

/// Days, weeks, months of 30 days or seconds, as seconds.
fn interval(text: &str) -> Option<u32> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "" | "d" | "D" => DAY,
        "w" | "W" => 7 * DAY,
        "m" | "M" => 30 * DAY,
        _ => return None,
    };
    u32::try_from(getopt::number(digits)?).ok()?.checked_mul(unit)
}

/// `now`, `@SECONDS` or `YYYYMMDD[HH[MM[SS]]]` in local time, as seconds since 1970.
pub(in crate::compat) fn time(text: &str) -> Option<u64> {
    if text == "now" {
        let Timestamp { sec, .. } = Environment::default().now();
        return u64::try_from(sec).ok();
    }
    if let Some(seconds) = text.strip_prefix('@') {
        return getopt::number(seconds);
    }
    let is_date = (8..=14).contains(&text.len()) && text.len().is_multiple_of(2);
    if !is_date || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part =
        |from: usize, to: usize| text.get(from..to).map_or(Some(0), |word| word.parse().ok());
    let time = [part(0, 4)?, part(4, 6)?, part(6, 8)?, part(8, 10)?, part(10, 12)?, part(12, 14)?];
    u64::try_from(clock::seconds(time)?).ok()
}

/// A number, or the number of a name in a table of this system.
fn account(table: &str, text: &str) -> Option<u32> {
    match getopt::number(text) {
        Some(number) => u32::try_from(number).ok(),
        None => accounts::number(table, text).ok()?,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_counts_are_those_of_the_original() {
        assert_eq!(interval("2w"), Some(1_209_600));
        assert_eq!((interval("30s"), interval("20")), (Some(30), Some(20 * DAY)));
        for text in ["2y", "x", "", "1.5d", "99999m"] {
            assert_eq!(interval(text), None, "{text}");
        }
        assert_eq!((max_mounts("-1"), max_mounts("16000")), (Some(-1), Some(16_000)));
        for text in ["16001", "3x", "", "70000"] {
            assert_eq!((max_mounts(text), mounts(text)), (None, None), "{text}");
        }
        assert!(max_mounts("random").is_some_and(|count| (20..=40).contains(&count)));
    }

    #[test]
    fn a_time_is_a_date_or_a_number() {
        assert_eq!(time("@77"), Some(77));
        let midnight = time("20200101").unwrap();
        assert_eq!(time("202001010203"), Some(midnight + 7380));
        for text in ["x", "2020", "20201301x", "@x"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
