//! Recovery: makes a volume usable after a crash.
//!
//! ```text
//!            on the device itself                            in memory, then one transaction
//!   log ──replay──► home, error fields kept ──flush──► fast commits ──► orphans ──► quota, counts
//!                                                                                          │
//!   RECOVER off ◄── log empty ◄── flush ◄── home ◄── transaction in the log ◄──────────────┘
//! ```
//!
//! The same code recovers a device for good, and recovers an overlay over a device that may only be
//! read (see decision 0001).
//!
//! Rule: replaying the log writes the same blocks each time, so it may be interrupted and repeated.
//! What follows the replay depends on what it reads. Therefore it runs in memory and is written
//! home as one transaction of the log (see [`Stage`]). A power cut at any point leaves a volume
//! that recovers to the same content. The RECOVER flag is cleared last, when the log is empty and
//! durable.

mod fast_commit;
mod orphans;
mod quota;
mod saved_errors;
mod stage;
pub(crate) mod staged;
mod torn;

use crate::context::superblock::{patch_superblock, read_superblock};
use crate::inodes::journal_map::JournalPlace;
use crate::volume::{Volume, VolumeOptions};
use extant_base::{Error, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_journal::{HomeLimits, Log};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{Superblock, VolumeState};
pub(crate) use quota::{recount as recount_quota, usage as quota_usage};
use saved_errors::SavedErrors;
use stage::Stage;
use std::sync::Arc;
pub(crate) use torn::repair_superblock;

/// What a recovery found and did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The volume needed recovery. Otherwise nothing was changed.
    pub was_needed: bool,
    /// Committed transactions in the log.
    pub transactions: u32,
    /// Blocks that were copied from the log to their home locations.
    pub blocks_replayed: u64,
    /// Logged copies that a later transaction revoked.
    pub copies_revoked: u64,
    /// Fast commits after the last transaction.
    pub fast_commits: u32,
    /// Inodes without a name that were freed.
    pub orphans_freed: u64,
    /// Inodes whose interrupted truncation was finished.
    pub orphans_truncated: u64,
    /// The log had content although the volume was marked as not needing it. The log was discarded.
    pub log_discarded: bool,
    /// Problems that recovery found and skipped; the volume is marked as having errors.
    pub problems: Vec<Error>,
}

/// The devices and options of a recovery.
pub(crate) struct Request<'a> {
    /// The volume: a writable device or an overlay.
    pub(crate) home: Arc<dyn BlockDevice>,
    /// The device of an external journal.
    pub(crate) external: Option<Arc<dyn BlockDevice>>,
    /// The options with which the volume is opened.
    pub(crate) options: &'a VolumeOptions,
}

/// Whether recovery has to examine a volume before it is read, or written.
pub(crate) fn is_due(superblock: &Superblock, to_write: bool) -> bool {
    superblock.needs_recovery()
        || (to_write && (has_orphans(superblock) || superblock.has_journal()))
}

fn has_orphans(superblock: &Superblock) -> bool {
    superblock.last_orphan != 0 || superblock.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
}

/// Makes the volume consistent: log, fast commits, orphans. Everything cached of the volume is
/// stale afterwards.
///
/// Errors: `JournalMissing` when the log is needed and not there; `Unsupported` when there are fast
/// commits on a volume that must not be written; `Corrupt` for damage inside the log; `Device`.
/// After an error the volume still needs recovery.
pub(crate) fn recover(request: &Request<'_>) -> Result<RecoveryReport> {
    let home = &request.home;
    let superblock = read_superblock(&**home, None)?;
    let needed = superblock.needs_recovery();
    let mut report = RecoveryReport { was_needed: needed, ..RecoveryReport::default() };
    let Some(mut log) = open_log(request, needed)? else {
        if has_orphans(&superblock) {
            Stage::open(home, None, request.options)?.run(&mut report)?;
        }
        return Ok(report);
    };
    if !needed && log.needs_recovery() {
        // Whatever cleared RECOVER declared the volume consistent without the log's content.
        log.discard()?;
        report.log_discarded = true;
    }
    let errors = SavedErrors::of(&**home)?;
    let recovery = log.recover_amending(home, limits(&superblock), &|raw| errors.put_into(raw))?;
    report.transactions = recovery.transactions;
    report.blocks_replayed = recovery.blocks_replayed;
    report.copies_revoked = recovery.copies_revoked;
    saved_errors::record_log_errno(&**home, recovery.errno)?;

    let superblock = read_superblock(&**home, None)?;
    if needed && !superblock.has_journal() {
        // A transaction in the log removed the journal, and with it the log: nothing is left to do.
        return Ok(report);
    }
    if !needed && !has_orphans(&superblock) {
        if recovery.errno != 0 {
            log.finish(home, &recovery)?;
        }
        return Ok(report);
    }
    if let Some(feature) = superblock.features.all_unwritable().next() {
        if recovery.fast_commit.is_some() {
            return Err(Error::Unsupported { feature });
        }
        // With an unknown feature, the orphans are left as they are.
        log.finish(home, &recovery)?;
        patch_superblock(&**home, |sb| sb.features.incompat.remove(Incompat::LIVE))?;
        return Ok(report);
    }
    if !needed {
        // From the first write on, the volume may be consistent only together with the log.
        patch_superblock(&**home, |sb| sb.features.incompat.insert(Incompat::RECOVER))?;
    }
    Stage::open(home, Some((log, recovery)), request.options)?.run(&mut report)?;
    Ok(report)
}

impl Stage {
    /// Does all that remains after the log's replay.
    fn run(mut self, report: &mut RecoveryReport) -> Result<()> {
        if let Some(records) = self.take_fast_commits() {
            fast_commit::apply(&self.volume, &records, report)?;
            self.commit_step()?;
            self = self.reopen()?;
        }
        orphans::process(&mut self, report)?;
        report.was_needed |= report.orphans_freed + report.orphans_truncated > 0;
        quota::recount(&self.volume, report)?;
        self.finish()
    }
}

/// The volume's log, or `None` if it has none. A log that is not needed may be unusable.
fn open_log(request: &Request<'_>, needed: bool) -> Result<Option<Log>> {
    // The journal's map is read from the volume as the crash left it. Nothing of this view outlives
    // the recovery.
    let options = VolumeOptions { read_only: true, ..request.options.clone() };
    let volume = Volume::open_parts(Arc::clone(&request.home), &options)?;
    match log_of(&volume, request) {
        Ok(None) if needed => Err(Site::NOWHERE.corrupt(What::JournalMissing)),
        Err(Error::Corrupt { .. }) if !needed => Ok(None),
        log => log,
    }
}

/// The log that the superblock names, or `None` if it names none.
fn log_of(volume: &Volume, request: &Request<'_>) -> Result<Option<Log>> {
    match volume.journal_file().place(request.external.as_ref())? {
        Some(JournalPlace { device, map, .. }) => Log::open(device, map).map(Some),
        None => Ok(None),
    }
}

fn limits(superblock: &Superblock) -> HomeLimits {
    HomeLimits {
        volume_blocks: superblock.blocks_count,
        log_on_volume: superblock.journal_inum != 0,
        inode_bytes: usize::from(superblock.inode_size),
    }
}

/// Marks a volume whose last writer met errors.
fn mark_errors(superblock: &mut Superblock) {
    superblock.state.insert(VolumeState::ERROR);
}
