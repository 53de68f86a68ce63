//! Quota usage after recovery: counted over all inodes and stored in the quota files.
//!
//! ```text
//!   inodes in use ──► id: bytes, inodes ──► entry of the id: usage set, limits kept
//! ```
//!
//! Fast commits do not record quota usage, and orphans are freed without quota accounting. A scan
//! of all inodes is right whatever happened before, even after an interrupted recovery.

use crate::inodes::lookup::Lookup;
use crate::recovery::RecoveryReport;
use crate::state::quota::{QuotaFile, quota_inodes};
use crate::tree::usage::Usage;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_journal::Credits;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::quota::{QuotaEntry, QuotaKind};

/// Stores the counted usage in the volume's quota files. Damaged files are reported and left.
///
/// Errors: `NoSpace` when a file must grow and cannot; `Device`.
pub(crate) fn recount(volume: &Volume, report: &mut RecoveryReport) -> Result<()> {
    let files = quota_inodes(volume.at_open());
    if files.is_empty() {
        return Ok(());
    }
    let usage = usage(volume)?;
    for (kind, ino) in files {
        match update(volume, ino, kind, &usage) {
            Err(error @ Error::Corrupt { .. }) => {
                volume.context().note_error(&error);
                report.problems.push(error);
            }
            done => done?,
        }
    }
    Ok(())
}

/// The usage of each user, group and project.
pub(crate) fn usage(volume: &Volume) -> Result<Usage> {
    let mut usage = Usage::default();
    for nr in volume.geometry().groups() {
        let used: Vec<u32> = match volume.space().inode_bitmap(nr) {
            Ok(bitmap) => bitmap.with(|bytes| {
                let is_used =
                    |slot: &u32| extant_ondisk::bitmap::count_set(bytes, *slot..*slot + 1) > 0;
                (0..volume.geometry().inodes_per_group()).filter(is_used).collect()
            }),
            // Damage is left to a checker.
            Err(Error::Corrupt { .. }) => continue,
            Err(error) => return Err(error),
        };
        for ino in used.into_iter().filter_map(|slot| volume.geometry().ino_of_slot(nr, slot)) {
            if volume.inodes().is_hidden(ino) {
                continue;
            }
            match volume.inodes().peek(ino, Lookup::Internal) {
                Ok(body) if body.flags.contains(InodeFlags::EA_INODE) => {}
                Ok(body) => usage.charge(volume.file(&body))?,
                Err(Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(usage)
}

/// Sets the usage in one quota file, where it differs.
fn update(volume: &Volume, ino: Ino, kind: QuotaKind, usage: &Usage) -> Result<()> {
    let mut totals = usage.totals(kind).clone();
    let inode = volume.inodes().get_internal(ino)?;
    let mut body = inode.write();
    let handle = volume.journal().start(Credits::blocks(64))?;
    let mut file = QuotaFile { host: volume, ino, body: &mut body, handle: Some(&handle) };
    let mut info = file.info(kind)?;
    let mut changed = Vec::new();
    info.for_each(&mut file, |entry| {
        let total = totals.remove(&entry.id).unwrap_or_default();
        if (entry.space, entry.inodes) != (total.bytes, total.inodes) {
            changed.push(QuotaEntry { space: total.bytes, inodes: total.inodes, ..entry });
        }
        Ok(())
    })?;
    let new = totals.into_iter().map(|(id, total)| QuotaEntry {
        id,
        space: total.bytes,
        inodes: total.inodes,
        ..QuotaEntry::default()
    });
    for entry in changed.into_iter().chain(new) {
        info.put(&mut file, &entry)?;
    }
    handle.stop()
}
