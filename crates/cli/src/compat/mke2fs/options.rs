//! The options of mke2fs, as far as they can be read without the configuration and the device.

use crate::compat::console::Console;
use crate::compat::getopt::{self, Words};
use crate::compat::mke2fs::extended::journal_options;
use extant::tune::ErrorPolicy;
use std::ffi::{OsStr, OsString};

/// The options that are known here. Those of the original that are missing: `c`, `l`, `z`, `S`.
pub(super) const KNOWN: &str = "b:e:g:i:jm:no:qr:s:t:d:vC:DE:FG:I:J:KL:M:N:O:R:T:U:V";

/// Why a call is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The usage, after a complaint if there is one.
    Usage(Option<String>),
    /// This text as it is, on standard error.
    Text(String),
    /// The program's name and this text.
    Named(String),
    /// This text on standard output, where the original prints it.
    Printed(&'static str),
}

/// What was requested.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// Bytes of a block; negative: at least as many.
    pub(super) block_bytes: Option<i64>,
    pub(super) cluster_bytes: Option<u32>,
    pub(super) errors: Option<ErrorPolicy>,
    /// The words of `-E`. The last one counts.
    pub(super) extended: Option<String>,
    /// The words of all `-O`.
    pub(super) features: Option<String>,
    pub(super) force: bool,
    pub(super) blocks_per_group: Option<u32>,
    pub(super) flex_groups: Option<u32>,
    pub(super) inode_ratio: Option<u64>,
    pub(super) inode_bytes: Option<u64>,
    pub(super) inodes: Option<u32>,
    /// `-j`, or a size was given.
    pub(super) journal: bool,
    pub(super) journal_mib: Option<u32>,
    pub(super) label: Option<String>,
    pub(super) last_mounted: Option<String>,
    pub(super) reserved_percent: Option<f64>,
    pub(super) dry_run: bool,
    pub(super) discard: Option<bool>,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
    pub(super) of_type: Option<String>,
    pub(super) usage: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) os: Option<String>,
    /// A directory, a tar or `-`, which fills the volume.
    pub(super) source: Option<OsString>,
    pub(super) version: bool,
}

impl Options {
    pub(super) fn of(words: &Words, console: &mut Console) -> Result<Options, Wrong> {
        let mut options = Options::default();
        for (option, value) in &words.options {
            options.take(*option, value, console)?;
        }
        match &words.wrong {
            Some(why) => Err(Wrong::Usage(Some(why.clone()))),
            None => Ok(options),
        }
    }

    fn take(&mut self, option: char, value: &OsStr, console: &mut Console) -> Result<(), Wrong> {
        let text = getopt::text(value);
        let bad = |what: &str| Wrong::Named(format!("{what} - {text}"));
        match option {
            'b' => {
                let bytes = bytes(&text).filter(|size| (1024..=65_536).contains(&size.abs()));
                let power = |size: &i64| size.unsigned_abs().is_power_of_two();
                let bytes = bytes.filter(power).ok_or_else(|| bad("invalid block size"))?;
                if bytes.abs() > 4096 {
                    console.error(format_args!(
                        "Warning: blocksize {} not usable on most systems.\n",
                        bytes.abs()
                    ));
                }
                self.block_bytes = Some(bytes);
            }
            'C' => {
                let size = bytes(&text).filter(|size| (1025..=1 << 29).contains(size));
                let size = size.and_then(|size| u32::try_from(size).ok());
                self.cluster_bytes = Some(size.ok_or_else(|| bad("invalid cluster size"))?);
            }
            // Direct I/O changes nothing of the result.
            'D' => {}
            'd' => self.source = Some(value.to_owned()),
            'e' => {
                self.errors = Some(match text.as_str() {
                    "continue" => ErrorPolicy::CONTINUE,
                    "remount-ro" => ErrorPolicy::REMOUNT_RO,
                    "panic" => ErrorPolicy::PANIC,
                    _ => {
                        return Err(Wrong::Usage(Some(format!("bad error behavior - {text}"))));
                    }
                });
            }
            'E' | 'R' => {
                if option == 'R' {
                    let text = "Warning: -R option is deprecated and should not be used anymore. \
                                Use '-E' extended option instead!\n";
                    console.error(format_args!("{text}"));
                }
                self.extended = Some(text);
            }
            'F' => self.force = true,
            'g' => {
                let wrong = || Wrong::Named("Illegal number for blocks per group".into());
                let blocks = small(&text).ok_or_else(wrong)?;
                if !blocks.is_multiple_of(8) {
                    return Err(Wrong::Named("blocks per group must be multiple of 8".into()));
                }
                self.blocks_per_group = Some(blocks).filter(|&blocks| blocks > 0);
            }
            'G' => {
                let wrong = || Wrong::Named("Illegal number for flex_bg size".into());
                let groups = small(&text).ok_or_else(wrong)?;
                if !groups.is_power_of_two() {
                    return Err(Wrong::Named("flex_bg size must be a power of 2".into()));
                }
                self.flex_groups = Some(groups);
            }
            'i' => {
                let ratio = getopt::number(&text).filter(|n| (1024..=67_108_864).contains(n));
                let text = format!("invalid inode ratio {text} (min 1024/max 67108864)");
                self.inode_ratio = Some(ratio.ok_or(Wrong::Named(text))?);
            }
            'I' => {
                let size = getopt::number(&text);
                self.inode_bytes = Some(size.ok_or_else(|| bad("invalid inode size"))?);
            }
            'j' => self.journal = true,
            'J' => {
                self.journal_mib = Some(journal_options(&text)?);
                self.journal = true;
            }
            'K' => {
                let text = "Warning: -K option is deprecated and should not be used anymore. \
                            Use '-E nodiscard' extended option instead!\n";
                console.error(format_args!("{text}"));
                self.discard = Some(false);
            }
            'L' => self.label = Some(label(&text, console)),
            'm' => {
                let percent = text.parse().ok().filter(|percent| (0.0..=50.0).contains(percent));
                let wrong = || bad("invalid reserved blocks percent");
                self.reserved_percent = Some(percent.ok_or_else(wrong)?);
            }
            'M' => self.last_mounted = Some(first_bytes(&text, 63).to_owned()),
            'n' => self.dry_run = true,
            'N' => self.inodes = Some(small(&text).ok_or_else(|| bad("bad num inodes"))?),
            'o' => self.os = Some(text),
            'O' => match &mut self.features {
                Some(list) => *list = format!("{list},{text}"),
                None => self.features = Some(text),
            },
            'q' => self.quiet = true,
            'r' => match getopt::number(&text) {
                Some(1) => {}
                Some(0) => return Err(Wrong::Named("revision 0 cannot be made: use -r 1".into())),
                Some(more) => {
                    return Err(Wrong::Named(format!(
                        "Filesystem revision too high while trying to create revision {more}"
                    )));
                }
                None => return Err(bad("bad revision level")),
            },
            // Replaced by sparse_super long ago; the original ignores it, too.
            's' => {}
            't' => {
                if self.of_type.is_some() {
                    return Err(Wrong::Named("The -t option may only be used once".into()));
                }
                self.of_type = Some(text);
            }
            'T' => {
                if self.usage.is_some() {
                    return Err(Wrong::Named("The -T option may only be used once".into()));
                }
                self.usage = Some(text);
            }
            'U' => self.uuid = Some(text),
            'v' => self.verbose = true,
            'V' => self.version = true,
            _ => return Err(Wrong::Usage(None)),
        }
        Ok(())
    }
}

/// A number of 32 bits.
fn small(text: &str) -> Option<u32> {
    getopt::number(text).and_then(|number| u32::try_from(number).ok())
}

/// The size of a block or cluster in bytes. Without a unit, a number counts bytes.
fn bytes(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let size = scaled(digits, 0)?;
    let size = i64::try_from(size).ok()?;
    Some(if negative { -size } else { size })
}

/// A size in bytes: a number and a unit (`s` is 512 bytes, `k`, `m`, `g`, `t`). Without a unit, the
/// number counts units of 2^`log` bytes.
pub(super) fn scaled(text: &str, log: u32) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let hex = text.to_ascii_lowercase().starts_with("0x");
    let (digits, unit) = if hex { (text, "") } else { text.split_at(digits.len()) };
    let shift = if unit.is_empty() { log } else { getopt::unit_log(unit)? };
    getopt::number(digits)?.checked_mul(1 << shift)
}

/// A label of at most 16 bytes, with a warning if it was longer.
fn label(text: &str, console: &mut Console) -> String {
    let label = first_bytes(text, 16);
    if label.len() < text.len() {
        console.error(format_args!("Warning: label too long; will be truncated to '{label}'\n\n"));
    }
    label.to_owned()
}

/// The start of a text, of at most `most` bytes and of whole characters.
fn first_bytes(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, log, bytes) in [
            ("100", 10, Some(102_400)),
            ("100", 0, Some(100)),
            ("8K", 10, Some(8192)),
            ("3s", 10, Some(1536)),
            ("2T", 10, Some(2 << 40)),
            ("0x10", 10, Some(16_384)),
            ("0x1k", 10, None),
            ("5x", 10, None),
            ("M", 10, None),
            ("", 10, None),
            ("99999999999999T", 10, None),
        ] {
            assert_eq!(scaled(text, log), bytes, "{text}");
        }
        assert_eq!(bytes("-2048"), Some(-2048));
        assert_eq!(first_bytes("aé", 2), "a");
    }
}
