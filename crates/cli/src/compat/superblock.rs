//! The fields of a superblock as lines of text: what `dumpe2fs -h` and `tune2fs -l` print.
//!
//! ```text
//!   Filesystem volume name:   <none>
//!   └──────── 26 columns ───┘└ value
//! ```
//!
//! Lines whose field is not set are left out, by the same rules as in the original.

use super::clock;
use super::console::Console;
use crate::accounts;
use crate::failure::Failure;
use crate::shown::uuid;
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::superblock::{ErrorRecord, RawSuperblock, Superblock};
use std::fmt::Display;

const MINUTE: u32 = 60;
const HOUR: u32 = 60 * MINUTE;
const DAY: u32 = 24 * HOUR;
const WEEK: u32 = 7 * DAY;
const MONTH: u32 = 30 * DAY;

/// Prints all lines.
pub(super) fn list(raw: &RawSuperblock, sb: &Superblock, to: &mut Console) -> Result<(), Failure> {
    let mut lines = Lines { raw, sb, to };
    lines.identity()?;
    lines.sizes()?;
    lines.times()?;
    lines.inodes()?;
    lines.journal()?;
    lines.errors()?;
    lines.features()
}

struct Lines<'a> {
    raw: &'a RawSuperblock,
    sb: &'a Superblock,
    to: &'a mut Console,
}

impl Lines<'_> {
    fn line(&mut self, key: &str, value: impl Display) -> Result<(), Failure> {
        self.to.print(format_args!("{:<26}{value}\n", format!("{key}:")))
    }

    /// A line for a value that is not 0.
    fn set(&mut self, key: &str, value: impl Into<u64>) -> Result<(), Failure> {
        match value.into() {
            0 => Ok(()),
            value => self.line(key, value),
        }
    }

    /// A text of the volume, as it is.
    fn text(&mut self, key: &str, value: &[u8], none: &str) -> Result<(), Failure> {
        self.to.print(format_args!("{:<26}", format!("{key}:")))?;
        self.to.bytes(if value.is_empty() { none.as_bytes() } else { value })?;
        self.to.bytes(b"\n")
    }

    fn identity(&mut self) -> Result<(), Failure> {
        let (raw, sb) = (self.raw, self.sb);
        self.text("Filesystem volume name", sb.label(), "<none>")?;
        self.text("Last mounted on", sb.last_mounted_path(), "<not available>")?;
        self.line("Filesystem UUID", uuid_or_none(&sb.uuid))?;
        self.line("Filesystem magic number", format_args!("0x{:04X}", raw.s_magic.get()))?;
        let revision = match sb.rev_level {
            0 => "0 (original)".to_owned(),
            1 => "1 (dynamic)".to_owned(),
            other => format!("{other} (unknown)"),
        };
        self.line("Filesystem revision #", revision)?;
        self.line("Filesystem features", or_none(&sb.features.to_string()))?;
        if !sb.flags.is_empty() {
            let names = ["signed_directory_hash ", "unsigned_directory_hash ", "test_filesystem "];
            let bits = sb.flags.bits();
            let on = names.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0);
            self.line("Filesystem flags", on.map(|(_, name)| *name).collect::<String>())?;
        }
        self.line("Default mount options", or_none(&mount_options(sb.default_mount_opts.bits())))?;
        let text = up_to_nul(&sb.mount_opts);
        if !text.is_empty() {
            self.text("Mount options", text, "")?;
        }
        let clean = if raw.s_state.get() & 1 != 0 { "clean" } else { "not clean" };
        let errors = if sb.has_errors() { " with errors" } else { "" };
        self.line("Filesystem state", format_args!("{clean}{errors}"))?;
        self.line(
            "Errors behavior",
            match sb.errors.0 {
                1 => "Continue",
                2 => "Remount read-only",
                3 => "Panic",
                _ => "Unknown (continue)",
            },
        )?;
        self.line(
            "Filesystem OS type",
            match sb.creator_os {
                0 => "Linux",
                1 => "Hurd",
                2 => "Masix",
                3 => "FreeBSD",
                4 => "Lites",
                _ => "(unknown os)",
            },
        )
    }

    fn sizes(&mut self) -> Result<(), Failure> {
        let sb = self.sb;
        self.line("Inode count", sb.inodes_count)?;
        self.line("Block count", sb.blocks_count)?;
        self.line("Reserved block count", sb.reserved_blocks)?;
        self.set("Overhead clusters", sb.overhead_clusters)?;
        self.line("Free blocks", sb.free_blocks)?;
        self.line("Free inodes", sb.free_inodes)?;
        self.line("First block", sb.first_data_block)?;
        let block_bytes = sb.block_size.bytes() as u64;
        let cluster_bytes = block_bytes << sb.log_cluster_ratio.min(31);
        let bigalloc = sb.features.ro_compat.contains(RoCompat::BIGALLOC);
        self.line("Block size", block_bytes)?;
        self.line(if bigalloc { "Cluster size" } else { "Fragment size" }, cluster_bytes)?;
        if sb.features.incompat.contains(Incompat::IS_64BIT) {
            self.line("Group descriptor size", sb.desc_size)?;
        }
        self.set("Reserved GDT blocks", sb.reserved_gdt_blocks)?;
        self.line("Blocks per group", sb.blocks_per_group)?;
        let per_group = if bigalloc { "Clusters per group" } else { "Fragments per group" };
        self.line(per_group, sb.clusters_per_group)?;
        self.line("Inodes per group", sb.inodes_per_group)?;
        let table = u64::from(sb.inodes_per_group) * u64::from(sb.inode_size);
        self.line("Inode blocks per group", table.div_ceil(block_bytes))?;
        self.set("First meta block group", sb.first_meta_bg)?;
        self.set("RAID stride", sb.raid_stride)?;
        self.set("RAID stripe width", sb.raid_stripe_width)?;
        match sb.log_groups_per_flex {
            0 => Ok(()),
            log => self.line("Flex block group size", 1u64.checked_shl(log.into()).unwrap_or(0)),
        }
    }

    fn times(&mut self) -> Result<(), Failure> {
        let sb = self.sb;
        let time = |sec: u64| clock::ctime(i64::try_from(sec).unwrap_or(i64::MAX));
        if sb.mkfs_time != 0 {
            self.line("Filesystem created", time(sb.mkfs_time))?;
        }
        let mounted = if sb.mtime == 0 { "n/a".to_owned() } else { time(sb.mtime) };
        self.line("Last mount time", mounted)?;
        self.line("Last write time", time(sb.wtime))?;
        self.line("Mount count", sb.mnt_count)?;
        self.line("Maximum mount count", sb.max_mnt_count)?;
        self.line("Last checked", time(sb.lastcheck))?;
        let interval = sb.checkinterval;
        self.line("Check interval", format_args!("{interval} ({})", duration(interval)))?;
        if interval != 0 {
            let next = sb.lastcheck.saturating_add(interval.into());
            self.line("Next check after", time(next))?;
        }
        if sb.kbytes_written != 0 {
            self.line("Lifetime writes", kibibytes(sb.kbytes_written))?;
        }
        let user = accounts::name(accounts::USERS, sb.def_resuid);
        let user = user.unwrap_or_else(|| "unknown".into());
        self.line("Reserved blocks uid", format_args!("{} (user {user})", sb.def_resuid))?;
        let group = accounts::name(accounts::GROUPS, sb.def_resgid);
        let group = group.unwrap_or_else(|| "unknown".into());
        self.line("Reserved blocks gid", format_args!("{} (group {group})", sb.def_resgid))
    }

    fn inodes(&mut self) -> Result<(), Failure> {
        let sb = self.sb;
        if sb.rev_level >= 1 {
            self.line("First inode", sb.first_ino)?;
            // The original has a tabulator here.
            self.to.print(format_args!("Inode size:\t          {}\n", sb.inode_size))?;
        }
        self.set("Required extra isize", self.raw.s_min_extra_isize.get())?;
        self.set("Desired extra isize", self.raw.s_want_extra_isize.get())
    }

    fn journal(&mut self) -> Result<(), Failure> {
        let sb = self.sb;
        if sb.journal_uuid != [0; 16] {
            self.line("Journal UUID", uuid(&sb.journal_uuid))?;
        }
        self.set("Journal inode", sb.journal_inum)?;
        if sb.journal_dev != 0 {
            let device = sb.journal_dev;
            self.to.print(format_args!("Journal device:\t          {device:#06x}\n"))?;
        }
        self.set("First orphan inode", sb.last_orphan)?;
        let seed: [u8; 16] = hash_seed(&sb.hash_seed);
        if sb.features.compat.contains(Compat::DIR_INDEX) || sb.def_hash_version != 0 {
            self.line("Default directory hash", hash_name(sb.def_hash_version))?;
        }
        if seed != [0; 16] {
            self.line("Directory Hash Seed", uuid(&seed))?;
        }
        match sb.jnl_backup_type {
            0 => {}
            1 => self.line("Journal backup", "inode blocks")?,
            other => self.line("Journal backup", format_args!("type {other}"))?,
        }
        if sb.features.compat.contains(Compat::SPARSE_SUPER2) && sb.backup_bgs != [0; 2] {
            let groups = sb.backup_bgs.iter().filter(|group| **group != 0);
            let text: String = groups.map(|group| format!("{group} ")).collect();
            self.line("Backup block groups", text)?;
        }
        Ok(())
    }

    fn errors(&mut self) -> Result<(), Failure> {
        let sb = self.sb;
        self.set("FS Error count", sb.error_count)?;
        self.record("First", &sb.first_error)?;
        self.record("Last", &sb.last_error)
    }

    fn record(&mut self, which: &str, error: &ErrorRecord) -> Result<(), Failure> {
        if error.time == 0 {
            return Ok(());
        }
        let time = clock::ctime(i64::try_from(error.time).unwrap_or(i64::MAX));
        self.line(&format!("{which} error time"), time)?;
        self.text(&format!("{which} error function"), up_to_nul(&error.func), "")?;
        self.line(&format!("{which} error line #"), error.line)?;
        self.set(&format!("{which} error inode #"), error.ino)?;
        self.set(&format!("{which} error block #"), error.block)?;
        match error.code {
            0 => Ok(()),
            code => self.line(&format!("{which} error err"), error_code(code)),
        }
    }

    fn features(&mut self) -> Result<(), Failure> {
        let sb = self.sb;
        if sb.features.incompat.contains(Incompat::MMP) {
            self.line("MMP block number", sb.mmp_block.0)?;
            self.line("MMP update interval", sb.mmp_update_interval)?;
        }
        self.set("User quota inode", sb.usr_quota_inum)?;
        self.set("Group quota inode", sb.grp_quota_inum)?;
        self.set("Project quota inode", sb.prj_quota_inum)?;
        if sb.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            self.line("Checksum type", if sb.checksum_type == 1 { "crc32c" } else { "unknown" })?;
            self.line("Checksum", format_args!("{:#010x}", self.raw.s_checksum.get()))?;
        }
        if sb.features.incompat.contains(Incompat::CSUM_SEED) {
            self.line("Checksum seed", format_args!("{:#010x}", sb.checksum_seed))?;
        }
        if sb.features.incompat.contains(Incompat::CASEFOLD) {
            match sb.encoding {
                1 => self.line("Character encoding", "utf8-12.1")?,
                other => {
                    self.line("Character encoding", format_args!("UNKNOWN_ENCODING_{other}"))?;
                }
            }
        }
        if sb.features.compat.contains(Compat::ORPHAN_FILE) {
            self.line("Orphan file inode", sb.orphan_file_inum)?;
        }
        Ok(())
    }
}

/// Names of default mount options. The two bits of the data mode come first.
fn mount_options(bits: u32) -> String {
    const DATA: [&str; 4] = ["", "journal_data", "journal_data_ordered", "journal_data_writeback"];
    const NAMES: [(u32, &str); 9] = [
        (0x1, "debug"),
        (0x2, "bsdgroups"),
        (0x4, "user_xattr"),
        (0x8, "acl"),
        (0x10, "uid16"),
        (0x100, "nobarrier"),
        (0x200, "block_validity"),
        (0x400, "discard"),
        (0x800, "nodelalloc"),
    ];
    let mut words = vec![DATA[(bits >> 5 & 3) as usize].to_owned()];
    for bit in (0..32).map(|bit| 1u32 << bit).filter(|bit| bits & bit & !0x60 != 0) {
        let name = NAMES.iter().find(|(known, _)| *known == bit).map(|(_, name)| *name);
        words.push(name.map_or_else(|| format!("MNTOPT_{}", bit.trailing_zeros()), str::to_owned));
    }
    words.retain(|word| !word.is_empty());
    words.join(" ")
}

/// The name of a hash of directories.
fn hash_name(version: u8) -> String {
    match version {
        0 => "legacy".into(),
        1 => "half_md4".into(),
        2 => "tea".into(),
        other => format!("HASHALG_{other}"),
    }
}

/// The name of a recorded error.
fn error_code(code: u8) -> String {
    const NAMES: [&str; 17] = [
        "UNKNOWN",
        "EIO",
        "ENOMEM",
        "EFSBADCRC",
        "EFSCORRUPTED",
        "ENOSPC",
        "ENOKEY",
        "EROFS",
        "EFBIG",
        "EEXIST",
        "ERANGE",
        "EOVERFLOW",
        "EBUSY",
        "ENOTDIR",
        "ENOTEMPTY",
        "ESHUTDOWN",
        "EFAULT",
    ];
    let name = usize::from(code).checked_sub(1).and_then(|index| NAMES.get(index));
    name.map_or_else(|| format!("UNKNOWN_ERRCODE_{code}"), |name| (*name).to_owned())
}

/// `1 month, 2 days, 3:04:05`, or `<none>` for 0.
fn duration(seconds: u32) -> String {
    if seconds == 0 {
        return "<none>".into();
    }
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (unit, name) in [(MONTH, "month"), (WEEK, "week"), (DAY, "day")] {
        let count = rest / unit;
        rest %= unit;
        match count {
            0 => {}
            1 => parts.push(format!("1 {name}")),
            _ => parts.push(format!("{count} {name}s")),
        }
    }
    if rest != 0 {
        parts.push(format!("{}:{:02}:{:02}", rest / HOUR, rest % HOUR / MINUTE, rest % MINUTE));
    }
    parts.join(", ")
}

/// An amount in the largest unit in which it is 8 or more, rounded.
fn kibibytes(amount: u64) -> String {
    const POWER_10: u64 = 1 << 10;
    const POWER_20: u64 = 1 << 20;
    const POWER_30: u64 = 1 << 30;
    let rounded = |unit: u64| amount.saturating_add(unit / 2) / unit;
    match amount {
        0..8192 => format!("{amount} kB"),
        8192..8_388_608 => format!("{} MB", rounded(POWER_10)),
        8_388_608..8_589_934_592 => format!("{} GB", rounded(POWER_20)),
        _ => format!("{} TB", rounded(POWER_30)),
    }
}

fn uuid_or_none(bytes: &[u8; 16]) -> String {
    match bytes {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] => "<none>".into(),
        bytes => uuid(bytes),
    }
}

fn hash_seed(words: &[u32; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "(none)" } else { text }
}

/// A text of the volume without its padding.
pub(super) fn up_to_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_in_the_units_of_the_original() {
        for (seconds, text) in [
            (0, "<none>"),
            (3600, "1:00:00"),
            (90_061, "1 day, 1:01:01"),
            (604_800, "1 week"),
            (2_592_000, "1 month"),
            (31_536_000, "12 months, 5 days"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn mount_options_have_their_names() {
        for (bits, text) in [
            (0xC, "user_xattr acl"),
            (0x60, "journal_data_writeback"),
            (0x1040, "journal_data_ordered MNTOPT_12"),
            (0x91, "debug uid16 MNTOPT_7"),
            (0, ""),
        ] {
            assert_eq!(mount_options(bits), text);
        }
    }
}
