//! The known differences, each with its reason.

/// A known difference. In each text `*` matches anything.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The label.
    pub label: &'static str,
    /// The kernel's answer.
    pub kernel: &'static str,
    /// The mount's answer.
    pub mount: &'static str,
    /// The reason, and why it stays.
    pub reason: &'static str,
}

const fn known(
    label: &'static str,
    kernel: &'static str,
    mount: &'static str,
    reason: &'static str,
) -> Known {
    Known { label, kernel, mount, reason }
}

const NO_REQUEST: &str = "FUSE sends nothing for a chown that names neither owner";
const GROUPS: &str =
    "FUSE does not tell the caller's groups: its set-group-ID rule looks at the group's x";
const OWN_TIMES: &str =
    "a kernel that collects writes keeps a file's mtime itself, whatever the volume can hold";
const NO_STATX: &str =
    "FUSE carries no attributes of statx, and so no S_IMMUTABLE and S_APPEND either";
const NO_ALIGNMENT: &str = "FUSE asks no alignment of O_DIRECT";
const NO_MOVES: &str = "the kernel refuses these of FUSE without asking";
const NO_HOLES: &str = "a kernel that collects writes does not bring them before it asks for holes, so holes are not told";
const PAGES: &str = "the kernel writes back whole pages: holes and blocks smaller than those fill";
const NO_LIMIT: &str =
    "FUSE has no place for the largest size of a file: it shows when bytes are brought";

const OTHER_BLOCKS: &str =
    "what is written over goes to other blocks, and a map of more pieces takes a block";
const NOCOW: &str = "a file without sums is one with NOCOW, which Linux' ext4 does not have";

const EITHER: &str = "both are true of a file mapped by pointers; the engine tells the other one";

/// All of them.
pub const KNOWN: &[Known] = &[
    known("ownership/* gives to nobody *", "*", "*", NO_REQUEST),
    known("ownership/stranger *: then", "RegularFile 0*", "RegularFile 2*", GROUPS),
    known(
        "time-changes/label the same: times of f",
        "mtime kept, ctime kept",
        "mtime kept, ctime changed",
        "the kernel sets ctime by itself whenever an attribute was set",
    ),
    known(
        "time-changes/flag: times of f",
        "mtime kept, ctime changed",
        "mtime kept, ctime kept",
        "the kernel does not ask for attributes anew after FS_IOC_SETFLAGS",
    ),
    known("time-changes/chown to nobody: times of f", "* changed", "* kept", NO_REQUEST),
    known(
        "flags/append: write by an earlier opening",
        "ok",
        "EPERM",
        "the engine asks at each write",
    ),
    known("limits/far behind", "EINVAL", "4611686018427387904", NO_LIMIT),
    known("*statx*", "*", "0*", NO_STATX),
    known("opening/unaligned *", "EINVAL", "*", NO_ALIGNMENT),
    known("space/collapse", "ok", "EOPNOTSUPP", NO_MOVES),
    known("space/insert", "ok", "EOPNOTSUPP", NO_MOVES),
    known(
        "flags/append: set now",
        "ok",
        "EPERM",
        "the engine takes no times of append-only files, and does not know which are now",
    ),
    known("flags/immutable: write by an earlier opening", "EPERM", "ok", NO_STATX),
    known("flags/immutable: punch by an earlier opening", "EPERM", "EIO", NO_STATX),
    known("flags/append: punch by an earlier opening", "EPERM", "EIO", NO_STATX),
    known("flags/immutable: content", "*", "*", NO_STATX),
    known("flags/append: content", "*", "*", NO_STATX),
    known("flags/immutable: access to write", "EPERM", "ok", NO_STATX),
    known(
        "flags/flags 0x400000 of *",
        "*",
        "*",
        "EXT4_EOFBLOCKS_FL, which nothing uses any more, sticks on the kernel's side",
    ),
];

/// Differences of a mount with the kernel's write-back cache.
pub const KNOWN_OF_COLLECTED_WRITES: &[Known] = &[
    known("times/has * of kept", "*", "*", OWN_TIMES),
    known("space/data *", "*", "*", NO_HOLES),
    known("space/hole *", "*", "*", NO_HOLES),
    known("space/place is kept", "2097151", "2097152", NO_HOLES),
    known("space/unwritten is a hole*", "*", "*", NO_HOLES),
    known("ownership/* writes too far *", "*", "*", NO_LIMIT),
    known("limits/read at *", "''", "'x'", NO_LIMIT),
    known("limits/stat far #*", "* size 0", "*", NO_LIMIT),
    known("limits/sync", "ok", "EFBIG", NO_LIMIT),
    known("limits/data", "ENXIO", "0", NO_HOLES),
    known("limits/hole", "1099511627776", "2199023255552", NO_HOLES),
];

/// Differences of volumes whose blocks are smaller than pages.
pub const KNOWN_OF_SMALL_BLOCKS: &[Known] = &[
    known("space/*space*", "*", "*", PAGES),
    known(
        "space/data not synced",
        "ENXIO",
        "1048576",
        "Linux does not see what is not written yet here",
    ),
    known("space/too much", "EOPNOTSUPP", "EFBIG", EITHER),
    known("limits/allocate up to *", "EOPNOTSUPP", "EFBIG", EITHER),
];

/// Differences of volumes with checksums of data.
pub const KNOWN_OF_SUMS: &[Known] = &[
    known("space/punch bytes: space of f", "264", "272", OTHER_BLOCKS),
    known("flags/set 0x800000 of d", "EOPNOTSUPP", "ok", NOCOW),
    known("flags/flags 0x800000 of d", "0x80000", "0x880000", NOCOW),
];

/// Whether this difference is among `all`.
pub fn is_known(all: &[Known], label: &str, kernel: &str, mount: &str) -> bool {
    all.iter().any(|known| {
        fits(known.label, label) && fits(known.kernel, kernel) && fits(known.mount, mount)
    })
}

/// Whether `text` matches `pattern`.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            rest.is_empty()
                || text.char_indices().any(|(at, _)| fits(rest, &text[at..]))
                || fits(rest, "")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, fit) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "ab", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("*b*", "abc", true),
            ("*b", "b", true),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }
}
