//! The journal first: what it holds is newer than what is at home.
//!
//! ```text
//!   engine's recovery, in memory ─┬─ done ──► its changes taken over
//!                                 └─ failed ─► log alone ─┬─ whole ─► taken over
//!                                                         └─ damaged ─► what verified; log emptied
//! ```

use crate::disk::Disk;
use crate::own;
use crate::report::Class;
use crate::volume::Volume;
use extant::OpenOptions;
use extant_base::{Error, Result};
use extant_blockdev::{BlockDevice, Overlay};
use extant_journal::{HomeLimits, Log, LogMap, LogRun};
use extant_ondisk::features::Incompat;
use std::sync::Arc;

/// How many skipped records are named.
const PROBLEMS_SHOWN: usize = 20;

/// Recovers the volume, if it needs that. Everything read before is stale afterwards. `journal` is
/// the device of an external journal.
///
/// Errors: `Device`; those of the recovery if the log can still be used, and for an external
/// journal.
pub(crate) fn run(
    volume: &mut Volume,
    journal: Option<&Arc<Overlay<Arc<dyn BlockDevice>>>>,
) -> Result<()> {
    own::restore_journal(volume)?;
    let from_backup = volume.report.counts().any(|(class, _)| class == Class::SuperblockBackup);
    if from_backup && !volume.sb().needs_recovery() {
        // The mark was in the superblock that is lost: the log itself says whether it is used.
        if log_is_used(volume, journal)? {
            volume.change_superblock(|sb| sb.features.incompat.insert(Incompat::RECOVER))?;
        }
        if journal.is_none() && volume.sb().has_journal() && volume.sb().journal_inum == 0 {
            volume.report.note(
                "the journal on another device may hold newer changes: name that device to have \
                 them replayed",
            );
        }
    } else if let Some(journal) = journal.filter(|_| !volume.sb().needs_recovery()) {
        own::empty_journal_device(volume, journal)?;
    }
    let orphans = volume.sb().last_orphan != 0;
    if !volume.sb().needs_recovery() && !orphans {
        return Ok(());
    }
    let needed = volume.sb().needs_recovery();
    let scratch = Arc::new(Overlay::new(volume.disk.device()));
    let mut options = OpenOptions::new();
    options.offset(0).page_cache_bytes(0).lock(false);
    if let Some(journal) = journal {
        options.journal_on(Arc::clone(journal) as Arc<dyn BlockDevice>);
    }
    match options.recover_device_in_place(Arc::clone(&scratch) as Arc<dyn BlockDevice>) {
        Ok(done) => {
            take_over(&volume.disk, &scratch)?;
            if done.transactions > 0 || done.fast_commits > 0 {
                volume.report.add(Class::JournalReplayed);
            }
            if !done.problems.is_empty() {
                volume.report.add(Class::RecordsLost);
            }
            for problem in done.problems.iter().take(PROBLEMS_SHOWN) {
                volume.report.note(format!("recovery skipped a record of the journal: {problem}"));
            }
            if done.orphans_freed + done.orphans_truncated > 0 {
                volume.report.add(Class::Orphans);
            }
            Ok(())
        }
        Err(error @ Error::Device { .. }) => Err(error),
        // The log is whole, and a newer version or another host can use it.
        Err(error @ (Error::Unsupported { .. } | Error::Held { .. } | Error::NoMemory))
            if needed =>
        {
            Err(error)
        }
        // It can be repaired by hand, or the right one named.
        Err(error) if needed && volume.sb().journal_inum == 0 => Err(error),
        Err(_) if needed => log_alone(volume),
        Err(_) => Ok(()),
    }
}

/// Writes the changes of a scratch overlay to the volume.
fn take_over(disk: &Disk, scratch: &Overlay<Arc<dyn BlockDevice>>) -> Result<()> {
    for range in scratch.changed_ranges() {
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(1 << 20);
            let mut bytes = vec![0; extant_base::narrow::fits_usize(len)];
            scratch.read_at(extant_base::ByteOffset(at), &mut bytes)?;
            disk.put_bytes(extant_base::ByteOffset(at), &bytes)?;
            at += len;
        }
    }
    Ok(())
}

pub(crate) fn log_of(volume: &Volume, device: Arc<dyn BlockDevice>) -> Result<Option<Log>> {
    let Some((runs, _)) = own::journal_runs(volume)? else { return Ok(None) };
    let size = volume.geometry.block_size();
    let runs = runs
        .iter()
        .map(|run| LogRun {
            first: run.logical,
            count: run.len,
            at: size.start_of(extant_base::BlockNr(run.physical)),
        })
        .collect();
    let opened = LogMap::new(size, runs).and_then(|map| Log::open(device, map));
    match opened {
        Ok(log) => Ok(Some(log)),
        Err(error @ Error::Device { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether the log holds transactions. One on another device counts only if that is given.
fn log_is_used(
    volume: &Volume,
    journal: Option<&Arc<Overlay<Arc<dyn BlockDevice>>>>,
) -> Result<bool> {
    if !volume.sb().has_journal() {
        return Ok(false);
    }
    if volume.sb().journal_inum == 0 {
        return match journal {
            Some(journal) => own::journal_device_is_used(volume, journal),
            None => Ok(false),
        };
    }
    Ok(log_of(volume, volume.disk.device())?.is_some_and(|log| log.needs_recovery()))
}

/// Replays the log as far as it verifies, without the engine.
fn log_alone(volume: &mut Volume) -> Result<()> {
    let scratch = Arc::new(Overlay::new(volume.disk.device()));
    let device = Arc::clone(&scratch) as Arc<dyn BlockDevice>;
    let limits = HomeLimits {
        volume_blocks: volume.geometry.blocks_count(),
        log_on_volume: volume.sb().journal_inum != 0,
        inode_bytes: volume.geometry.inode_size(),
    };
    match log_of(volume, Arc::clone(&device))? {
        Some(mut log) => {
            let whole = log.recover(&device, limits).and_then(|done| {
                log.finish(&device, &done)?;
                Ok(done)
            });
            match whole {
                Ok(done) if done.fast_commit.is_none() => {
                    volume.report.add(Class::JournalReplayed);
                }
                Ok(_) => {
                    volume.report.add(Class::JournalReplayed);
                    volume.report.add(Class::RecordsLost);
                    volume.report.note("fast commits could not be applied and are lost");
                }
                Err(error @ Error::Device { .. }) => return Err(error),
                Err(error) => {
                    volume.report.add(Class::JournalReset);
                    volume.report.note(format!(
                        "the journal is damaged ({error}): what verified was replayed, the rest \
                         is lost"
                    ));
                    log.discard().or_else(|error| match error {
                        Error::Device { .. } => Err(error),
                        _ => Ok(()),
                    })?;
                }
            }
        }
        None => {
            volume.report.add(Class::JournalReset);
            volume.report.note("the journal cannot be read: what it held is lost");
        }
    }
    take_over(&volume.disk, &scratch)?;
    volume.reread_superblock()?;
    volume.change_superblock(|sb| sb.features.incompat.remove(Incompat::LIVE))
}
