//! The options of `-o` that have an effect. `table.rs` has those that are ignored or refused.

use super::table::{self, Treatment};
use crate::amount;
use crate::failure::Failure;
use extant::dax::{ByteLogMode, DaxMode};
use extant::{DamagePolicy, DataMode};
use extant_fuse::{AccessTimes, IdMap, IdRange, Idle};
use std::path::PathBuf;
use std::time::Duration;

/// Options of a mount. `None` means that an option was not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) read_only: Option<bool>,
    pub(super) sync: Option<bool>,
    pub(super) dir_sync: Option<bool>,
    pub(super) commit: Option<Duration>,
    pub(super) fast_commits: Option<bool>,
    pub(super) data: Option<DataMode>,
    pub(super) dont_cache: Option<bool>,
    pub(super) cache_bytes: Option<u64>,
    pub(super) allow_other: Option<bool>,
    pub(super) default_permissions: Option<bool>,
    pub(super) users: Vec<IdRange>,
    pub(super) groups: Vec<IdRange>,
    pub(super) quota: Option<bool>,
    pub(super) collect_writes: Option<bool>,
    pub(super) plain: Option<bool>,
    pub(super) uring: Option<bool>,
    pub(super) idle: Option<Idle>,
    pub(super) suid: Option<bool>,
    pub(super) dev: Option<bool>,
    pub(super) exec: Option<bool>,
    pub(super) byte_log: Option<ByteLogMode>,
    pub(super) dax: Option<DaxMode>,
    pub(super) errors: Option<DamagePolicy>,
    /// The journal is not recovered first. Only for reading.
    pub(super) no_recovery: Option<bool>,
    /// `statfs` counts the filesystem's own metadata as blocks that can hold data.
    pub(super) count_overhead: Option<bool>,
    pub(super) discard: Option<bool>,
    /// Blocks of a stripe.
    pub(super) stripe: Option<u32>,
    pub(super) access_times: Option<AccessTimes>,
    /// The device of an external journal.
    pub(super) journal: Option<PathBuf>,
}

/// Parses the argument of one `-o`.
///
/// Errors: a message for the user.
pub(super) fn parse(text: &str) -> Result<Options, String> {
    let mut options = Options::default();
    for option in text.split(',').filter(|option| !option.is_empty()) {
        options.take(option)?;
    }
    Ok(options)
}

fn number(name: &str, value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| format!("{name}={value}: not a number"))
}

fn access_times(option: &str) -> Option<AccessTimes> {
    Some(match option {
        "relatime" | "atime" | "diratime" | "nostrictatime" => AccessTimes::Relative,
        "nodiratime" => AccessTimes::NotOfDirectories,
        "strictatime" => AccessTimes::Strict,
        "noatime" => AccessTimes::Never,
        _ => return None,
    })
}

/// Accepts or refuses an option that has no effect.
fn without_effect(option: &str) -> Result<(), String> {
    match table::treatment(option) {
        Some(Treatment::Ignored(_)) => Ok(()),
        Some(Treatment::Refused(why)) => Err(format!("mount option '{option}' is refused: {why}")),
        None => Err(format!("unknown mount option '{option}': see extant mount --help")),
    }
}

impl Options {
    /// All options; later ones override earlier ones.
    pub(super) fn all(given: &[Options]) -> Result<Options, Failure> {
        let mut all = Options::default();
        for options in given {
            all.merge(options.clone());
        }
        if all.no_recovery == Some(true) && all.read_only != Some(true) {
            return Err(Failure::new(
                "noload: a volume cannot be changed without its journal: add ro",
            ));
        }
        if all.access_times == Some(AccessTimes::Strict) && all.collect_writes == Some(true) {
            return Err(Failure::new(
                "strictatime: the kernel cannot cache file content: omit writeback_cache",
            ));
        }
        for ranges in [&all.users, &all.groups] {
            IdMap::new(ranges.clone()).map_err(Failure::new)?;
        }
        Ok(all)
    }

    fn merge(&mut self, later: Options) {
        let Options { users, groups, .. } = later;
        self.users.extend(users);
        self.groups.extend(groups);
        self.read_only = later.read_only.or(self.read_only);
        self.sync = later.sync.or(self.sync);
        self.dir_sync = later.dir_sync.or(self.dir_sync);
        self.commit = later.commit.or(self.commit);
        self.fast_commits = later.fast_commits.or(self.fast_commits);
        self.data = later.data.or(self.data);
        self.dont_cache = later.dont_cache.or(self.dont_cache);
        self.cache_bytes = later.cache_bytes.or(self.cache_bytes);
        self.allow_other = later.allow_other.or(self.allow_other);
        self.default_permissions = later.default_permissions.or(self.default_permissions);
        self.quota = later.quota.or(self.quota);
        self.collect_writes = later.collect_writes.or(self.collect_writes);
        self.plain = later.plain.or(self.plain);
        self.uring = later.uring.or(self.uring);
        self.idle = later.idle.or(self.idle);
        self.suid = later.suid.or(self.suid);
        self.dev = later.dev.or(self.dev);
        self.exec = later.exec.or(self.exec);
        self.byte_log = later.byte_log.or(self.byte_log);
        self.dax = later.dax.or(self.dax);
        self.errors = later.errors.or(self.errors);
        self.no_recovery = later.no_recovery.or(self.no_recovery);
        self.count_overhead = later.count_overhead.or(self.count_overhead);
        self.discard = later.discard.or(self.discard);
        self.stripe = later.stripe.or(self.stripe);
        self.access_times = later.access_times.or(self.access_times);
        self.journal = later.journal.or(self.journal.take());
    }

    fn take(&mut self, option: &str) -> Result<(), String> {
        if let Some((name, value)) = option.split_once('=') {
            return self.take_value(option, name, value);
        }
        let (place, yes) = match option {
            "ro" => (&mut self.read_only, true),
            "rw" => (&mut self.read_only, false),
            "sync" => (&mut self.sync, true),
            "async" => (&mut self.sync, false),
            "dirsync" => (&mut self.dir_sync, true),
            "fast_commit" => (&mut self.fast_commits, true),
            "nofast_commit" => (&mut self.fast_commits, false),
            "dontcache" => (&mut self.dont_cache, true),
            "allow_other" => (&mut self.allow_other, true),
            "noallow_other" => (&mut self.allow_other, false),
            "default_permissions" => (&mut self.default_permissions, true),
            "nodefault_permissions" => (&mut self.default_permissions, false),
            "quota" | "usrquota" | "grpquota" | "prjquota" => (&mut self.quota, true),
            "noquota" => (&mut self.quota, false),
            "writeback_cache" => (&mut self.collect_writes, true),
            "nowriteback_cache" => (&mut self.collect_writes, false),
            "plain" => (&mut self.plain, true),
            "uring" => (&mut self.uring, true),
            "nouring" => (&mut self.uring, false),
            "suid" => (&mut self.suid, true),
            "nosuid" => (&mut self.suid, false),
            "dev" => (&mut self.dev, true),
            "nodev" => (&mut self.dev, false),
            "exec" => (&mut self.exec, true),
            "noexec" => (&mut self.exec, false),
            "noload" | "norecovery" => (&mut self.no_recovery, true),
            "discard" => (&mut self.discard, true),
            "nodiscard" => (&mut self.discard, false),
            "minixdf" => (&mut self.count_overhead, true),
            "bsddf" => (&mut self.count_overhead, false),
            _ => {
                if let Some(times) = access_times(option) {
                    self.access_times = Some(times);
                    return Ok(());
                }
                return without_effect(option);
            }
        };
        *place = Some(yes);
        Ok(())
    }

    fn take_value(&mut self, option: &str, name: &str, value: &str) -> Result<(), String> {
        let one = |id: u32| IdRange { volume: 0, here: id, count: 1 };
        let range = |text: &str| text.parse::<IdRange>().map_err(|e| format!("{option}: {e}"));
        match name {
            "commit" => {
                // As on Linux, 0 means the default interval.
                let seconds = match number(name, value)? {
                    0 => 5,
                    seconds => seconds,
                };
                self.commit = Some(Duration::from_secs(seconds.into()));
            }
            "data" => {
                self.data = Some(match value {
                    "ordered" => DataMode::Ordered,
                    "journal" => DataMode::Journal,
                    "writeback" => DataMode::Writeback,
                    _ => return Err(format!("{option}: not ordered, journal or writeback")),
                });
            }
            "dax_fc_bytelog" => {
                self.byte_log = Some(match value {
                    "off" => ByteLogMode::Off,
                    "on" => ByteLogMode::On,
                    "force" => ByteLogMode::Force,
                    _ => return Err(format!("{option}: not off, on or force")),
                });
            }
            "dax" => {
                self.dax = Some(match value {
                    "never" => DaxMode::Never,
                    "auto" => DaxMode::IfDurable,
                    "always" => DaxMode::Always,
                    _ => return Err(format!("{option}: not never, auto or always")),
                });
            }
            "idle" => {
                self.idle = Some(match value {
                    "auto" => Idle::Auto,
                    "poll" => Idle::Poll,
                    "halt" => Idle::Halt,
                    _ => return Err(format!("{option}: not auto, poll or halt")),
                });
            }
            "cache" => self.cache_bytes = Some(amount::bytes(value)?),
            "uid" => self.users.push(one(number(name, value)?)),
            "gid" => self.groups.push(one(number(name, value)?)),
            "uidmap" => self.users.push(range(value)?),
            "gidmap" => self.groups.push(range(value)?),
            "errors" => {
                self.errors = Some(match value {
                    "continue" => DamagePolicy::Continue,
                    "remount-ro" => DamagePolicy::ReadOnly,
                    "panic" => return without_effect(option),
                    _ => return Err(format!("{option}: not continue or remount-ro")),
                });
            }
            "stripe" => self.stripe = Some(number(name, value)?),
            "journal_path" => self.journal = Some(value.into()),
            _ => return without_effect(option),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_words_win() {
        let given = [parse("ro,sync,commit=30").unwrap(), parse("rw,uid=1000").unwrap()];
        let all = Options::all(&given).unwrap();
        assert_eq!((all.read_only, all.sync), (Some(false), Some(true)));
        assert_eq!(all.commit, Some(Duration::from_secs(30)));
        assert_eq!(all.users, [IdRange { volume: 0, here: 1000, count: 1 }]);
    }

    /// The names in a row of the table as options, with a value where one is needed.
    fn given(name: &str) -> String {
        match name.strip_suffix('*') {
            Some(start) => format!("{start}7"),
            None if name.ends_with("jquota=") => name.to_owned(),
            None if name.ends_with('=') => format!("{name}7"),
            None => name.to_owned(),
        }
    }

    #[test]
    fn each_option_of_ext4_is_obeyed_ignored_or_refused_by_name() {
        for option in [
            "ro",
            "rw",
            "sync",
            "async",
            "dirsync",
            "commit=7",
            "data=journal",
            "data=ordered",
            "data=writeback",
            "dax=never",
            "errors=continue",
            "errors=remount-ro",
            "noload",
            "norecovery",
            "discard",
            "nodiscard",
            "relatime",
            "nodiratime",
            "strictatime",
            "noatime",
            "minixdf",
            "bsddf",
            "stripe=16",
            "journal_path=/dev/x",
            "quota",
            "usrquota",
            "grpquota",
            "prjquota",
            "noquota",
            "suid",
            "nosuid",
            "dev",
            "nodev",
            "exec",
            "noexec",
        ] {
            assert_ne!(parse(option).unwrap(), Options::default(), "{option} has no effect");
        }
        for (names, treatment) in table::ROWS {
            for name in *names {
                let option = given(name);
                match (treatment, parse(&option)) {
                    (Treatment::Ignored(_), Ok(options)) => assert_eq!(options, Options::default()),
                    (Treatment::Refused(why), Err(error)) => {
                        assert!(error.contains(&option) && error.contains(why), "{error}");
                    }
                    (treatment, parsed) => panic!("{option}: {treatment:?}, but {parsed:?}"),
                }
                assert!(table::help().contains(name), "{name}");
            }
        }
        let fstab = "defaults,noauto,user,nofail,_netdev,x-systemd.automount,comment=data,errors=remount-ro";
        assert_eq!(parse(fstab).unwrap(), parse("errors=remount-ro").unwrap());
        // A volume needs its journal for changes.
        assert!(Options::all(&[parse("noload").unwrap()]).is_err());
        assert!(Options::all(&[parse("ro,noload").unwrap()]).is_ok());
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for text in [
            "rx",
            "data=fast",
            "dax=maybe",
            "dax_fc_bytelog=yes",
            "uid=root",
            "uidmap=1",
            "cache=much",
            "errors=ignore",
            "X-mount.mkdir",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(text.split('=').next_back().unwrap()), "{error}");
        }
        let overlapping = parse("uid=1000,uidmap=0:5:3").unwrap();
        assert!(Options::all(&[overlapping]).is_err());
    }
}
