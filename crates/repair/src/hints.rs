//! What a check found, for the round that follows it.
//!
//! ```text
//!   findings ─┬─ about one inode ───────────► inodes that the round judges
//!             ├─ a count, a bitmap ─────────► nothing: they follow from the rest
//!             ├─ anything else ─────────────► the round judges every inode
//!             └─ index, encryption, quota ──► faults that the repair does not look for itself
//! ```

use extant::check::{Finding, Report};
use extant_base::{Ino, What};
use hashbrown::HashSet;

/// What a check found that the repair does not find itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hints {
    /// Inodes with which the check found fault; `None` if others may have faults, too.
    pub(crate) faulty: Option<HashSet<u32>>,
    /// Directories whose index is not sound.
    pub(crate) htree: HashSet<u32>,
    /// Entries that must go: directory, block, offset.
    pub(crate) entries: HashSet<(u32, u64, usize)>,
    /// Quota files that differ from the usage.
    pub(crate) quota: bool,
    /// The resize inode is not right.
    pub(crate) resize: bool,
}

impl Hints {
    /// The hints of a check before the first round, which judges only what the check found.
    pub(crate) fn of_first(found: &Report) -> Hints {
        let mut hints = Hints::of(&found.findings);
        let narrow = found.omitted == 0 && found.findings.iter().all(is_narrow);
        let inos = || found.findings.iter().filter_map(|finding| finding.at.ino.map(Ino::get));
        hints.faulty = narrow.then(|| inos().collect());
        hints
    }

    /// The hints in the findings of a check.
    pub(crate) fn of(findings: &[Finding]) -> Hints {
        let mut hints = Hints::default();
        for finding in findings {
            let ino = finding.at.ino.map_or(0, Ino::get);
            hints.resize |= ino == Ino::RESIZE.get();
            match finding.what {
                What::HtreeRoot
                | What::HtreeDepth
                | What::HtreeNode
                | What::HtreeChecksum
                | What::HtreeLeaf
                | What::HtreeHash => {
                    hints.htree.insert(ino);
                }
                What::DirentEncryption => {
                    let block = finding.at.block.map_or(0, |block| block.0);
                    let offset = finding.at.offset.unwrap_or(0) as usize;
                    hints.entries.insert((ino, block, offset));
                }
                What::QuotaFile | What::QuotaUsage => hints.quota = true,
                What::ResizeInode => hints.resize = true,
                _ => {}
            }
        }
        hints
    }
}

/// Whether a finding says nothing about inodes other than the one that it names.
fn is_narrow(finding: &Finding) -> bool {
    let follows = matches!(
        finding.what,
        What::FreeBlocksCount
            | What::FreeInodesCount
            | What::UsedDirsCount
            | What::BlockLeaked
            | What::BlockNotMarked
            | What::InodeLeaked
            | What::InodeNotMarked
            | What::BitmapChecksum
            | What::BitmapPadding
            | What::VolumeState
            | What::QuotaFile
            | What::QuotaUsage
    );
    follows || finding.at.ino.is_some()
}
