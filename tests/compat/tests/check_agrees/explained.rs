//! Where extant and e2fsck 1.47.0 differ, and why. A difference that is not here fails the suite.

/// One of them finds an error, the other does not.
pub enum Difference<'a> {
    /// e2fsck finds errors: its lines.
    Missed(&'a [String]),
    /// extant finds errors: its findings with their text. e2fsck may print something and still call
    /// the volume clean.
    More(&'a [(String, String)], &'a [String]),
}

/// A finding that only extant has.
struct More {
    /// Any volume, if empty.
    volume: &'static str,
    finding: &'static str,
    /// Part of the finding's text.
    text: &'static str,
    why: &'static str,
}

const fn more(
    volume: &'static str,
    finding: &'static str,
    text: &'static str,
    why: &'static str,
) -> More {
    More { volume, finding, text, why }
}

const QUOTA: &str = "e2fsck passes by a quota file whose inode, header or tree it cannot read";
const CLUSTER: &str = "e2fsck passes by a cluster in which two extents of one file meet";

/// All findings on a volume must be explained.
const MORE: &[More] = &[
    more("", "QuotaFile", "", QUOTA),
    more("", "InodeReserved", "(ino 3)", QUOTA),
    more("", "InodeReserved", "(ino 4)", QUOTA),
    more(
        "",
        "JournalSuperblock",
        "",
        "e2fsck -n does not hold all of the journal's fields against its length",
    ),
    more(
        "",
        "DeletionTime",
        "(ino 8,",
        "e2fsck passes by the deletion time of the journal's inode",
    ),
    more("", "OrphanList", "(offset 232)", "e2fsck -n does not look at the list of orphans"),
    more("", "DirentType", "", "e2fsck -n calls an entry without a type clean, and would set it"),
    more(
        "",
        "SuperblockFeatures",
        "an orphan file is named without",
        "e2fsck passes by an orphan file of no use where that inode is free",
    ),
    more(
        "",
        "XattrEntry",
        "is malformed",
        "e2fsck takes zeros for part of a name where the name's hash stays the same",
    ),
    more(
        "",
        "InodeFlags",
        "value without the feature",
        "e2fsck passes by the flag of a value on volumes without ea_inode, which the kernel refuses",
    ),
    more("cluster", "BlockShared", "", CLUSTER),
    more("cluster", "InodeBlocks", "", CLUSTER),
];

/// Why they differ on `volume`, if that is known. What only e2fsck finds is never explained.
pub fn reason(volume: &str, difference: &Difference<'_>) -> Option<&'static str> {
    match difference {
        Difference::Missed(_) => None,
        Difference::More(_, said) if !said.is_empty() => Some("e2fsck says so, and exits 0"),
        Difference::More(found, _) => {
            let of = |row: &&More| row.volume.is_empty() || row.volume == volume;
            let known = |(name, text): &(String, String)| {
                MORE.iter().filter(of).find(|row| name == row.finding && text.contains(row.text))
            };
            let all = found.iter().map(known).collect::<Option<Vec<_>>>()?;
            all.first().map(|row| row.why)
        }
    }
}

/// The lines of e2fsck about damage, without its passes, its answers and its totals at the end.
pub fn lines(text: &str) -> Vec<String> {
    let noise = |line: &str| {
        line.is_empty()
            || line.starts_with("e2fsck 1.")
            || line.starts_with("Pass ")
            || line.contains("WARNING: Filesystem still has errors")
            || line.contains("files (")
            || line == "Fix? no"
    };
    text.lines().map(str::trim).filter(|line| !noise(line)).map(str::to_owned).collect()
}
