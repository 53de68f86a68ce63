//! The options of Linux's ext4 and of mount(8) that have no effect here or are refused.
//!
//! ```text
//!   option ──► options.rs has it ──► else a row here ─┬─ Ignored: what it requests is always so,
//!                                                     │           or it changes only speed
//!                                                     ├─ Refused: a mount that ignored it would
//!                                                     │           not do what was requested
//!                                                     └─ no row:  unknown
//! ```
//!
//! `extant help mount` prints this table. Sources: ext4(5), the kernel's admin-guide (ext4),
//! mount(8), systemd.mount(5).

/// Treatment of an option that `options.rs` does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It has no effect. The text says why that is harmless.
    Ignored(&'static str),
    /// It is an error. The text gives the reason and the alternative.
    Refused(&'static str),
}

use Treatment::{Ignored, Refused};

/// Options and their treatment: the whole option, `name=` for any value, or `start*`.
pub(super) const ROWS: &[(&[&str], Treatment)] = &[
    (
        &[
            "defaults", "auto", "noauto", "user", "user=", "users", "nouser", "owner", "group",
            "nofail", "_netdev", "comment=", "x-*", "loop", "nomand", "silent", "loud",
        ],
        Ignored("mount(8), systemd and readers of fstab act on these"),
    ),
    (
        &[
            "acl",
            "user_xattr",
            "block_validity",
            "noblock_validity",
            "barrier",
            "barrier=1",
            "auto_da_alloc",
            "auto_da_alloc=",
            "nogrpid",
            "sysvgroups",
            "data_err=ignore",
            "jqfmt=",
            "usrjquota=",
            "grpjquota=",
            "max_dir_size_kb=0",
            "nojournal_checksum",
            "journal_checksum",
            "nowarn_on_error",
            "noiversion",
            "noi_version",
            "lazytime",
            "nolazytime",
            "nodax",
        ],
        Ignored("always in effect, or set by the volume's features"),
    ),
    (
        &["nobarrier", "barrier=0", "journal_async_commit", "noauto_da_alloc"],
        Ignored("less safety for speed: extant always sends flushes and waits for commits"),
    ),
    (
        &[
            "delalloc",
            "nodelalloc",
            "dioread_nolock",
            "dioread_lock",
            "nodioread_nolock",
            "inode_readahead_blks=",
            "init_itable",
            "init_itable=",
            "noinit_itable",
            "max_batch_time=",
            "min_batch_time=",
            "journal_ioprio=",
            "mb_optimize_scan=",
            "prefetch_block_bitmaps",
            "no_prefetch_block_bitmaps",
            "nombcache",
            "no_mbcache",
            "reservation",
            "noreservation",
            "oldalloc",
            "orlov",
            "bh",
            "nobh",
            "mblk_io_submit",
            "nomblk_io_submit",
            "check=none",
            "nocheck",
            "debug",
            "i_version",
            "iversion",
            "inlinecrypt",
        ],
        Ignored("tuning of the kernel's ext4 without effect on results"),
    ),
    (
        &["noacl", "nouser_xattr"],
        Refused(
            "access control lists and extended attributes are always \
                                          enabled",
        ),
    ),
    (
        &["errors=panic"],
        Refused("a mount in user space cannot halt the machine; use errors=remount-ro"),
    ),
    (&["data_err=abort"], Refused("a failed write of data is reported by the next fsync only")),
    (&["grpid", "bsdgroups"], Refused("set the directory's set-group-ID bit instead (chmod g+s)")),
    (&["resuid=", "resgid="], Refused("no user can use reserved blocks through a mount")),
    (&["nouid32"], Refused("owners have 32 bits")),
    (&["sb="], Refused("to use a backup superblock, name the image IMG?backup=GROUP")),
    (&["journal_dev="], Refused("name the journal's device with journal_path=DEVICE")),
    (&["max_dir_size_kb="], Refused("limits on the size of directories are not supported")),
    (
        &["usrjquota=*", "grpjquota=*"],
        Refused("quota is kept in hidden files only: use extant tune --features quota"),
    ),
    (&["remount"], Refused("options of a mount cannot change; unmount and mount again")),
    (
        &["context=", "fscontext=", "defcontext=", "rootcontext="],
        Refused("SELinux labels are not supported as mount options"),
    ),
    (&["abort", "warn_on_error", "test_dummy_encryption*"], Refused("for tests of the kernel")),
];

/// The table's entry for `option` as the user wrote it.
pub(super) fn treatment(option: &str) -> Option<Treatment> {
    let rows = || {
        ROWS.iter().flat_map(|(names, treatment)| names.iter().map(move |name| (*name, *treatment)))
    };
    let exact = rows().find(|(name, _)| *name == option);
    let of_kind = || {
        rows().find(|(name, _)| match (name.strip_suffix('*'), name.strip_suffix('=')) {
            (Some(start), _) => option.starts_with(start),
            // An empty value disables these two.
            (_, Some("usrjquota" | "grpjquota")) => false,
            (_, Some(start)) => option.split_once('=').is_some_and(|(name, _)| name == start),
            _ => false,
        })
    };
    exact.or_else(of_kind).map(|(_, treatment)| treatment)
}

/// The table in the form that help prints.
pub(super) fn help() -> String {
    let mut text = String::new();
    for (is_refused, title) in [
        (false, "Accepted, without effect"),
        (true, "Refused, since ignoring them would do something else than requested"),
    ] {
        text.push_str(&format!("\n{title}:\n"));
        for (names, treatment) in ROWS {
            let why = match treatment {
                Ignored(why) if !is_refused => why,
                Refused(why) if is_refused => why,
                _ => continue,
            };
            let mut line = String::from(" ");
            for name in *names {
                if line.len() + name.len() > 94 {
                    text.push_str(&line);
                    text.push('\n');
                    line = String::from(" ");
                }
                line.push(' ');
                line.push_str(name);
            }
            text.push_str(&line);
            text.push_str(&format!("\n      {why}\n"));
        }
    }
    text
}
