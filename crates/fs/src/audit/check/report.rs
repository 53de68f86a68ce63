//! The findings of a check and its report.
//!
//! ```text
//!   threads ──► Findings ──► Report     sorted, bounded in number, the rest counted
//! ```

use super::finding_of;
use extant_base::lock::{Mutex, Rank};
use extant_base::{Error, Site, What};
use std::fmt;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; the volume is not damaged.
    Note,
    /// The volume is damaged.
    Error,
}

impl Severity {
    /// The name that `--json` prints.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Error => "error",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which check failed.
    pub what: What,
    /// Where it is.
    pub at: Site,
    /// How serious it is.
    pub severity: Severity,
    /// Details for people: counts, names.
    pub detail: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.severity.name(), self.what.text(), self.at)?;
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

/// What the volume contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Inodes of the volume.
    pub inodes: u64,
    /// Inodes in use, reserved ones included.
    pub inodes_used: u64,
    /// Regular files, except internal ones: journal, quota, orphans, checksums of data, large
    /// attributes.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub special: u64,
    /// Inodes whose blocks are not in one run, except the resize inode. Holes are no matter, and
    /// blocks of pointers between the blocks of data.
    pub fragmented: u64,
    /// Names in all directories, without "." and "..".
    pub names: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks in use, metadata included; whole clusters.
    pub blocks_used: u64,
    /// Attribute blocks.
    pub xattr_blocks: u64,
    /// Data blocks that were compared with their checksums; `None` if the caller did not ask for it
    /// or the volume has no data checksums.
    pub data_blocks: Option<u64>,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// The findings, in the order of their sites: volume, groups, inodes.
    pub findings: Vec<Finding>,
    /// How many findings were counted but not kept.
    pub omitted: u64,
    /// How many findings are damage.
    pub errors: u64,
    /// How many findings are only notes.
    pub notes: u64,
    /// No damage was found.
    pub clean: bool,
    /// Whether the volume could be checked at all.
    pub ran: bool,
    /// Whether the journal was recovered in memory first. The device still needs recovery.
    pub recovered: bool,
    /// What the volume contains.
    pub stats: Stats,
}

impl Report {
    /// e2fsck's exit status: 0 clean, 4 damage left, 8 the check could not run.
    pub fn exit_code(&self) -> i32 {
        match (self.ran, self.clean) {
            (false, _) => 8,
            (true, false) => 4,
            (true, true) => 0,
        }
    }
}

#[derive(Default)]
struct Kept {
    findings: Vec<Finding>,
    errors: u64,
    notes: u64,
    omitted: u64,
}

/// Collects findings from any thread.
pub(in crate::audit) struct Findings {
    limit: usize,
    kept: Mutex<Kept>,
}

impl Findings {
    pub(in crate::audit) fn new(limit: usize) -> Findings {
        Findings { limit, kept: Mutex::new(Rank::Leaf, Kept::default()) }
    }

    fn add(&self, severity: Severity, what: What, at: Site, detail: Option<String>) {
        let mut kept = self.kept.lock();
        match severity {
            Severity::Error => kept.errors += 1,
            Severity::Note => kept.notes += 1,
        }
        if kept.findings.len() < self.limit {
            kept.findings.push(Finding { what, at, severity, detail });
        } else {
            kept.omitted += 1;
        }
    }

    /// Records damage.
    pub(super) fn error(&self, what: What, at: Site) {
        self.add(Severity::Error, what, at, None);
    }

    /// Records damage, with details.
    pub(super) fn error_with(&self, what: What, at: Site, detail: impl Into<String>) {
        self.add(Severity::Error, what, at, Some(detail.into()));
    }

    /// Records a note.
    pub(super) fn note(&self, what: What, at: Site, detail: impl Into<String>) {
        self.add(Severity::Note, what, at, Some(detail.into()));
    }

    /// Records damage that a parser found.
    pub(super) fn corrupt(&self, error: &Error, detail: &str) {
        let (what, at, own) = finding_of(error);
        let detail = own.or_else(|| (!detail.is_empty()).then(|| detail.to_owned()));
        self.add(Severity::Error, what, at, detail);
    }

    /// Makes the report. `stats` is `None` if the volume could not be checked.
    pub(in crate::audit) fn into_report(self, stats: Option<Stats>) -> Report {
        let Kept { mut findings, errors, notes, omitted } = self.kept.into_inner();
        // Threads report in any order; the report is sorted.
        findings.sort_by_cached_key(|f| {
            let at = &f.at;
            let ino = at.ino.map(|ino| ino.get());
            (at.group, ino, at.block, at.offset, f.what.name(), f.detail.clone())
        });
        Report {
            findings,
            omitted,
            errors,
            notes,
            clean: errors == 0 && stats.is_some(),
            ran: stats.is_some(),
            recovered: false,
            stats: stats.unwrap_or_default(),
        }
    }
}
