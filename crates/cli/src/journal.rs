//! Facts about the journal of a volume, and whether it must be replayed.

use extant::Filesystem;
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::jbd2::JournalIncompat;
use serde::Serialize;

/// The journal as `info` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct JournalInfo {
    /// `internal`, `external`, `none`.
    pub(crate) place: &'static str,
    /// `clean`, `needs recovery`; absent without a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<&'static str>,
    /// Blocks, the superblock and fast commits included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocks: Option<u32>,
    /// `off`: the volume has no fast commits; `on`: it may have some; `live`: the log may end in
    /// some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fast_commits: Option<&'static str>,
    /// Size of the fast-commit area in blocks, if [`JournalInfo::fast_commits`] is not `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fast_commit_blocks: Option<u32>,
    /// `live` while the byte log may contain fsyncs; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) byte_log: Option<&'static str>,
    /// Number of the next transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<u32>,
    /// The device of an external journal, by its UUID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) features: Option<Vec<String>>,
    /// Why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl JournalInfo {
    /// Reads the journal of a volume that was opened without recovery.
    pub(crate) fn of(fs: &Filesystem) -> JournalInfo {
        let superblock = fs.superblock();
        let mut info = JournalInfo {
            place: "none",
            state: None,
            blocks: None,
            fast_commits: None,
            fast_commit_blocks: None,
            byte_log: None,
            sequence: None,
            uuid: None,
            features: None,
            error: None,
        };
        if !superblock.has_journal() {
            return info;
        }
        let byte_log = superblock.features.incompat.contains(Incompat::DAX_FC_BYTELOG);
        info.byte_log = byte_log.then_some("live");
        info.state = Some(if superblock.needs_recovery() { "needs recovery" } else { "clean" });
        let has_feature = superblock.features.compat.contains(Compat::FAST_COMMIT);
        info.fast_commits = Some(if has_feature { "on" } else { "off" });
        match superblock.journal_inum {
            0 => {
                info.place = "external";
                info.uuid = Some(crate::shown::uuid(&superblock.journal_uuid));
            }
            _ => {
                info.place = "internal";
                match fs.journal_superblock() {
                    Ok(None) => {}
                    Ok(Some(log)) => {
                        info.blocks = Some(log.maxlen);
                        info.sequence = Some(log.sequence.0);
                        let names = log.features.names();
                        let is_live = log.features.incompat.contains(JournalIncompat::FAST_COMMIT);
                        if is_live && log.start.is_some() {
                            info.fast_commits = Some("live");
                        }
                        if is_live || has_feature {
                            info.fast_commit_blocks = Some(log.fast_commit_blocks);
                        }
                        info.features = Some(names.map(|(name, _)| name.to_owned()).collect());
                    }
                    Err(error) => info.error = Some(error.to_string()),
                }
            }
        }
        info
    }
}
