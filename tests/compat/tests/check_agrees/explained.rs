//! Where extant and e2fsck 1.47.0 differ, and why. A difference that is not here fails the suite.

/// One of them finds fault, the other does not.
pub enum Difference<'a> {
    /// e2fsck does, and these are its lines.
    Missed(&'a [String]),
    /// extant does, and these are its findings; e2fsck may say something and still call it clean.
    More(&'a [String], &'a [String]),
}

/// What only extant finds: the volume (any, if empty), the finding, and why. All of a volume's findings have to be
/// explained.
const MORE: &[(&str, &str, &str)] = &[
    ("", "QuotaFile", "e2fsck passes by a quota file whose header or tree it cannot read"),
    (
        "",
        "JournalSuperblock",
        "e2fsck -n does not hold all of the journal's fields against its length",
    ),
    ("cluster", "BlockShared", "e2fsck passes by a cluster in which two extents of one file meet"),
    ("cluster", "InodeBlocks", "e2fsck passes by a cluster in which two extents of one file meet"),
];

/// Why they differ over `volume`, if it is known. What only e2fsck finds is never explained.
pub fn reason(volume: &str, difference: &Difference<'_>) -> Option<&'static str> {
    match difference {
        Difference::Missed(_) => None,
        Difference::More(_, said) if !said.is_empty() => Some("e2fsck says so, and exits 0"),
        Difference::More(found, _) => {
            let of = |row: &&(&str, &str, &str)| row.0.is_empty() || row.0 == volume;
            let known = |name: &String| MORE.iter().filter(of).find(|row| name == row.1);
            let all = found.iter().map(known).collect::<Option<Vec<_>>>()?;
            all.first().map(|row| row.2)
        }
    }
}

/// What e2fsck says of damage: neither its passes, nor its answers, nor its sums at the end.
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
