//! The memory available to this process.
//!
//! ```text
//!   /proc/meminfo MemTotal        the machine's memory
//!   /sys/fs/cgroup/…/memory.max   the limit of each enclosing control group; "max" means none
//! ```
//! Source: kernel documentation, "Control Group v2", memory interface files.

use std::fs;
use std::path::{Path, PathBuf};

/// Assumed when the machine's memory is unknown: 1 GiB.
const UNKNOWN: u64 = 1 << 30;

/// Bytes that this process may use: the machine's memory, or the lowest limit of its control
/// groups.
pub(crate) fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(total).unwrap_or(UNKNOWN);
    let group = fs::read_to_string("/proc/self/cgroup").ok();
    let group = group.as_deref().and_then(group_path);
    let limits = group.into_iter().flat_map(|path| limits(Path::new("/sys/fs/cgroup"), &path));
    limits.fold(machine, u64::min).max(16 << 20)
}

/// `MemTotal:       24576000 kB`
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The group of the unified hierarchy, `0::/a/b`, as a relative path.
fn group_path(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(PathBuf::from(path))
}

/// The limits of the group at `path` below `root` and of all groups above it.
fn limits(root: &Path, path: &Path) -> Vec<u64> {
    let read = |dir: &Path| {
        let text = fs::read_to_string(root.join(dir).join("memory.max")).ok()?;
        text.trim().parse::<u64>().ok()
    };
    path.ancestors().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_and_the_groups_are_read() {
        assert_eq!(total("MemFree: 1 kB\nMemTotal:       2048 kB\n"), Some(2 << 20));
        assert_eq!(total("MemTotal: lots"), None);
        assert_eq!(group_path("1:name=x:/y\n0::/a/b\n"), Some(PathBuf::from("a/b")));
        assert!(available() >= 16 << 20);
    }
}
