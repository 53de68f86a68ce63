//! What stands behind `-o`.

use crate::amount;
use crate::failure::Failure;
use extant::{ByteLogMode, DataMode, DaxMode};
use extant_fuse::{IdMap, IdRange, Idle};
use std::time::Duration;

/// Options of a mount; `None` where nothing was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) read_only: Option<bool>,
    pub(super) sync: Option<bool>,
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
}

/// Reads one `-o`.
///
/// Errors: a sentence for the user.
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

impl Options {
    /// All that was said, later words over earlier ones.
    pub(super) fn all(said: &[Options]) -> Result<Options, Failure> {
        let mut all = Options::default();
        for options in said {
            all.merge(options.clone());
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
            // What mount(8) and its table say to others, and what is so in any case.
            "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "users" | "loop"
            | "relatime" | "noatime" | "nodiratime" | "acl" | "user_xattr" | "barrier" => {
                return Ok(());
            }
            _ => return Err(format!("unknown mount option '{option}': see extant mount --help")),
        };
        *place = Some(yes);
        Ok(())
    }

    fn take_value(&mut self, option: &str, name: &str, value: &str) -> Result<(), String> {
        let one = |id: u32| IdRange { volume: 0, here: id, count: 1 };
        let range = |text: &str| text.parse::<IdRange>().map_err(|e| format!("{option}: {e}"));
        match name {
            "commit" => {
                // As Linux: none means the usual time.
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
            name if name.starts_with("x-") => {}
            _ => return Err(format!("unknown mount option '{option}': see extant mount --help")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_words_win() {
        let said = [parse("ro,sync,commit=30").unwrap(), parse("rw,uid=1000").unwrap()];
        let all = Options::all(&said).unwrap();
        assert_eq!((all.read_only, all.sync), (Some(false), Some(true)));
        assert_eq!(all.commit, Some(Duration::from_secs(30)));
        assert_eq!(all.users, [IdRange { volume: 0, here: 1000, count: 1 }]);
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
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(text.split('=').next_back().unwrap()), "{error}");
        }
        let overlapping = parse("uid=1000,uidmap=0:5:3").unwrap();
        assert!(Options::all(&[overlapping]).is_err());
    }
}
