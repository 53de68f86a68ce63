//! The words of `-E` and `-J`.

use crate::compat::getopt;
use crate::compat::mke2fs::options::{Wrong, scaled};
use crate::verb::mkfs::uuid;
use extant::QuotaKind;

const BAD_EXTENDED: &str = "\nExtended options are separated by commas, and may take an argument which\n\
\tis set off by an equals ('=') sign.\n\n\
Valid extended options are:\n\
\tmmp_update_interval=<interval>\n\
\tnum_backup_sb=<0|1|2>\n\
\tstride=<RAID per-disk data chunk in blocks>\n\
\tstripe-width=<RAID stride * data disks in blocks>\n\
\toffset=<offset to create the file system>\n\
\tresize=<resize maximum size in blocks>\n\
\tpacked_meta_blocks=<0 to disable, 1 to enable>\n\
\tlazy_itable_init=<0 to disable, 1 to enable>\n\
\tlazy_journal_init=<0 to disable, 1 to enable>\n\
\troot_owner=<uid of root dir>:<gid of root dir>\n\
\ttest_fs\n\
\tdiscard\n\
\tnodiscard\n\
\tencoding=<encoding>\n\
\tencoding_flags=<flags>\n\
\tquotatype=<quota type(s) to be enabled>\n\
\tassume_storage_prezeroed=<0 to disable, 1 to enable>\n\n";

const BAD_JOURNAL: &str = "\nBad journal options specified.\n\n\
Journal options are separated by commas, and may take an argument which\n\
\tis set off by an equals ('=') sign.\n\n\
Valid journal options are:\n\
\tsize=<journal size in megabytes>\n\
\tdevice=<journal device>\n\
\tlocation=<journal location>\n\n\
The journal size must be between 1024 and 10240000 filesystem blocks.\n\n";

/// What the words of `-E` say.
#[derive(Debug, Default)]
pub(super) struct Extended {
    pub(super) offset: Option<u64>,
    /// The size to grow to; without a unit in blocks.
    pub(super) resize: Option<String>,
    pub(super) hash_seed: Option<[u8; 16]>,
    pub(super) root_owner: Option<(u32, u32)>,
    pub(super) root_mode: Option<u16>,
    pub(super) stride: Option<u16>,
    pub(super) stripe_width: Option<u32>,
    pub(super) mmp_interval: Option<u16>,
    pub(super) backups: Option<u32>,
    pub(super) packed: Option<bool>,
    pub(super) test_filesystem: bool,
    pub(super) discard: Option<bool>,
    /// Names are to be compared without regard to case.
    pub(super) encoding: bool,
    pub(super) strict_encoding: Option<bool>,
    pub(super) quota_kinds: Option<Vec<QuotaKind>>,
}

impl Extended {
    /// Reads the words. What one of them means counts over what earlier ones mean.
    pub(super) fn take(&mut self, words: &str) -> Result<(), Wrong> {
        let mut unknown = Vec::new();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            if !self.take_word(name, value)? {
                unknown.push(name);
            }
        }
        match &unknown[..] {
            [] => Ok(()),
            names => Err(bad("", &names.join(","))),
        }
    }

    /// Takes one word. Returns whether it is known and has a value where it needs one.
    fn take_word(&mut self, name: &str, value: Option<&str>) -> Result<bool, Wrong> {
        match (name, value) {
            ("test_fs", _) => self.test_filesystem = true,
            ("discard", _) => self.discard = Some(true),
            ("nodiscard", _) => self.discard = Some(false),
            ("root_owner", None) => {
                let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
                self.root_owner = Some((uid.as_raw(), gid.as_raw()));
            }
            // All that is written is written at once, so there is nothing to be lazy about.
            ("lazy_itable_init" | "lazy_journal_init" | "assume_storage_prezeroed", value) => {
                yes_or_no(name, value)?;
            }
            ("packed_meta_blocks", value) => self.packed = Some(yes_or_no(name, value)?),
            ("no_copy_xattrs", _) => return Ok(false),
            (_, None) => return Ok(false),
            (name, Some(value)) => return self.take_value(name, value),
        }
        Ok(true)
    }

    fn take_value(&mut self, name: &str, value: &str) -> Result<bool, Wrong> {
        let number = getopt::number(value);
        let small = number.and_then(|number| u32::try_from(number).ok());
        match name {
            "mmp_update_interval" => {
                let seconds = number.and_then(|number| u16::try_from(number).ok());
                let seconds = seconds.filter(|&seconds| seconds <= 300);
                let wrong = || bad(&format!("Invalid mmp_update_interval: {value}\n"), "");
                self.mmp_interval = Some(seconds.ok_or_else(wrong)?);
            }
            "num_backup_sb" => {
                let wrong = || bad(&format!("Invalid # of backup superblocks: {value}\n"), "");
                self.backups = Some(small.filter(|&count| count <= 2).ok_or_else(wrong)?);
            }
            "stride" => {
                let stride = number.and_then(|number| u16::try_from(number).ok());
                let wrong = || bad(&format!("Invalid stride parameter: {value}\n"), "");
                self.stride = Some(stride.filter(|&stride| stride > 0).ok_or_else(wrong)?);
            }
            "stripe-width" | "stripe_width" => {
                let wrong = || bad(&format!("Invalid stripe-width parameter: {value}\n"), "");
                self.stripe_width = Some(small.filter(|&width| width > 0).ok_or_else(wrong)?);
            }
            "offset" => {
                let wrong = || bad(&format!("Invalid offset: {value}\n"), "");
                self.offset = Some(number.ok_or_else(wrong)?);
            }
            "resize" => {
                if scaled(value, 0).is_none_or(|size| size == 0) {
                    return Err(bad(&format!("Invalid resize parameter: {value}\n"), ""));
                }
                self.resize = Some(value.to_owned());
            }
            "hash_seed" => {
                let wrong = |_| bad(&format!("Invalid hash seed: {value}\n"), "");
                self.hash_seed = Some(uuid::parse(value).map_err(wrong)?);
            }
            "root_owner" => {
                let ids = value.split_once(':').and_then(|(uid, gid)| {
                    Some((uid.parse::<u32>().ok()?, gid.parse::<u32>().ok()?))
                });
                let wrong = || bad(&format!("Invalid root_owner: '{value}'\n"), "");
                self.root_owner = Some(ids.ok_or_else(wrong)?);
            }
            "root_perms" => {
                let mode = u16::from_str_radix(value, 8).ok().filter(|&mode| mode <= 0o7777);
                let wrong = || bad(&format!("Invalid root_perms: '{value}'\n"), "");
                self.root_mode = Some(mode.ok_or_else(wrong)?);
            }
            "encoding" => {
                if !matches!(value, "utf8" | "utf8-12.1" | "utf8-12.1.0") {
                    return Err(bad(&format!("Invalid encoding: {value}"), ""));
                }
                self.encoding = true;
            }
            "encoding_flags" => {
                self.strict_encoding = Some(match value {
                    "strict" => true,
                    "no-strict" => false,
                    _ => {
                        return Err(Wrong::Text(format!(
                            "error: Invalid encoding flag: {value}\n"
                        )));
                    }
                });
            }
            "quotatype" => {
                let mut kinds = Vec::new();
                for word in value.split(':') {
                    kinds.push(match word {
                        "usr" | "usrquota" => QuotaKind::User,
                        "grp" | "grpquota" => QuotaKind::Group,
                        "prj" | "prjquota" => QuotaKind::Project,
                        _ => {
                            let text = format!("Failed to parse quota type at {value}");
                            return Err(bad(&text, name));
                        }
                    });
                }
                kinds.sort_by_key(|&kind| kind as u8);
                kinds.dedup();
                self.quota_kinds = Some(kinds);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The error about words of `-E`: why, and which of them are not known.
pub(super) fn bad(why: &str, words: &str) -> Wrong {
    Wrong::Text(format!("{why}\nBad option(s) specified: {words}\n{BAD_EXTENDED}"))
}

/// The value of a switch; without one it is on.
fn yes_or_no(name: &str, value: Option<&str>) -> Result<bool, Wrong> {
    match value {
        None => Ok(true),
        // The original takes any number for "on".
        Some(text) => match getopt::number(text) {
            Some(number) => Ok(number != 0),
            None => Err(bad(&format!("Invalid {name} parameter: {text}\n"), "")),
        },
    }
}

/// The size of the journal in MiB, which the words of `-J` give.
pub(super) fn journal_options(words: &str) -> Result<u32, Wrong> {
    let mut size = None;
    for word in words.split(',').filter(|word| !word.is_empty()) {
        let number = word.strip_prefix("size=").and_then(getopt::number);
        let number = number.and_then(|number| u32::try_from(number).ok());
        // A journal on another device, or in a given place, cannot be made here.
        size = Some(number.ok_or(Wrong::Text(BAD_JOURNAL.into()))?);
    }
    size.ok_or(Wrong::Text(BAD_JOURNAL.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_or_named() {
        let mut extended = Extended::default();
        extended.take("stride=4,root_owner=1:2,lazy_itable_init=0,quotatype=prjquota:usr").unwrap();
        assert_eq!((extended.stride, extended.root_owner), (Some(4), Some((1, 2))));
        assert_eq!(extended.quota_kinds, Some(vec![QuotaKind::User, QuotaKind::Project]));
        let text = |words: &str| match Extended::default().take(words) {
            Err(Wrong::Text(text)) => text,
            other => panic!("{words}: {other:?}"),
        };
        assert!(text("a=1,stride=4,b").starts_with("\nBad option(s) specified: a,b\n\n"));
        for words in ["stride=0", "stride=x", "root_owner=1", "resize=x", "offset=-1", "stride"] {
            assert!(text(words).contains("\nBad option(s) specified: "), "{words}");
        }
        assert_eq!(journal_options("size=64"), Ok(64));
        for words in ["", "foo", "size=x", "device=/dev/x", "size=4,location=3"] {
            assert!(journal_options(words).is_err(), "{words}");
        }
    }
}
