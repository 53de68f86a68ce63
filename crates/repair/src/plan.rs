//! What a repair changes on the device: the difference between the overlay and the device below.
//!
//! ```text
//!   changed pages of the overlay ──► units of 1 KiB that differ ──► runs in ascending order
//!                                                                   the superblock alone, last
//! ```

use crate::report::Report;
use crate::volume::search::FoundVolume;
use extant::check::Finding;
use extant_base::narrow::fits_usize;
use extant_base::{ByteOffset, Result};
use extant_blockdev::{BlockDevice, Overlay};
use extant_ondisk::superblock::SUPERBLOCK_OFFSET;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that are compared at a time.
const UNIT: usize = 1024;
/// The longest change, bytes.
pub(crate) const CHANGE_MAX: usize = 1 << 20;

/// A repair that is known but not made.
pub struct Plan {
    overlay: Arc<Overlay<Arc<dyn BlockDevice>>>,
    report: Report,
    clean: bool,
    left: Vec<Finding>,
    elsewhere: Vec<FoundVolume>,
    /// The device of the external journal, with what a replay changes.
    journal: Option<Arc<Overlay<Arc<dyn BlockDevice>>>>,
}

/// A run of bytes that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it starts on the device, bytes.
    pub at: u64,
    /// The bytes on the device.
    pub old: Vec<u8>,
    /// The bytes after the repair.
    pub new: Vec<u8>,
}

impl Plan {
    pub(crate) fn new(
        overlay: Arc<Overlay<Arc<dyn BlockDevice>>>,
        report: Report,
        clean: bool,
        left: Vec<Finding>,
    ) -> Plan {
        Plan { overlay, report, clean, left, elsewhere: Vec::new(), journal: None }
    }

    /// The plan for a device on which volumes start elsewhere: nothing is changed.
    pub(crate) fn elsewhere_only(
        overlay: Arc<Overlay<Arc<dyn BlockDevice>>>,
        elsewhere: Vec<FoundVolume>,
    ) -> Plan {
        Plan { elsewhere, ..Plan::new(overlay, Report::default(), false, Vec::new()) }
    }

    /// The plan, and what a replay changes on the external journal.
    pub(crate) fn with_journal(self, journal: Option<Arc<Overlay<Arc<dyn BlockDevice>>>>) -> Plan {
        Plan { journal, ..self }
    }

    /// Whether the external journal has to be marked as empty, see [`Plan::end_journal`].
    pub fn changes_journal(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.held_bytes() > 0)
    }

    /// Marks the external journal as empty, once the repair is on the volume's device: until then
    /// the volume may need what the journal holds. Does nothing if the journal was not replayed.
    /// If this is interrupted, the next repair does it.
    ///
    /// # Errors
    /// `Device`.
    pub fn end_journal(&self) -> Result<()> {
        let Some(journal) = self.journal.as_ref().filter(|_| self.changes_journal()) else {
            return Ok(());
        };
        for range in journal.changed_ranges() {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(CHANGE_MAX as u64);
                let mut bytes = vec![0; fits_usize(len)];
                journal.read_at(ByteOffset(at), &mut bytes)?;
                journal.inner().write_at(ByteOffset(at), &bytes)?;
                at += len;
            }
        }
        journal.inner().flush()
    }

    /// What was found, and what changes.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Whether a check of the repaired volume finds nothing.
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// What a check of the repaired volume still finds.
    pub fn left(&self) -> &[Finding] {
        &self.left
    }

    /// Volumes that start elsewhere on the device, the best proven first: a search of the whole
    /// device found them, because it has no superblock where one should be. Empty in all other
    /// cases. If there are any, the plan changes nothing.
    pub fn elsewhere(&self) -> &[FoundVolume] {
        &self.elsewhere
    }

    /// Whether the device already has all bytes of the plan.
    ///
    /// # Errors
    /// `Device`.
    pub fn is_empty(&self) -> Result<bool> {
        self.each(&mut |_| false)
    }

    /// The volume as it is after the repair.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.overlay) as Arc<dyn BlockDevice>
    }

    /// Bytes of the device.
    pub fn device_len(&self) -> u64 {
        self.overlay.len()
    }

    /// Calls `each` with every change in ascending order, until it returns false. Returns whether
    /// it was never called, or never returned false.
    ///
    /// # Errors
    /// `Device`.
    pub(crate) fn each(&self, each: &mut dyn FnMut(Change) -> bool) -> Result<bool> {
        for range in self.overlay.changed_ranges() {
            let mut at = range.start;
            while at < range.end {
                let len = fits_usize((range.end - at).min(CHANGE_MAX as u64));
                let (mut old, mut new) = (vec![0; len], vec![0; len]);
                self.overlay.inner().read_at(ByteOffset(at), &mut old)?;
                self.overlay.read_at(ByteOffset(at), &mut new)?;
                for part in differences(at, &old, &new) {
                    let change = Change {
                        at: at + part.start as u64,
                        old: old[part.clone()].to_vec(),
                        new: new[part].to_vec(),
                    };
                    if !each(change) {
                        return Ok(false);
                    }
                }
                at += len as u64;
            }
        }
        Ok(true)
    }

    /// The places that change: start and length in bytes, in ascending order.
    ///
    /// # Errors
    /// `Device`.
    pub fn places(&self) -> Result<Vec<(u64, u64)>> {
        let mut places = Vec::new();
        self.each(&mut |change| {
            places.push((change.at, change.new.len() as u64));
            true
        })?;
        Ok(places)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("clean", &self.clean).finish_non_exhaustive()
    }
}

/// Whether a unit is the primary superblock.
pub(crate) fn is_superblock(at: u64) -> bool {
    at == SUPERBLOCK_OFFSET
}

/// The parts that differ, in whole units. The superblock is a part of its own.
fn differences(at: u64, old: &[u8], new: &[u8]) -> Vec<Range<usize>> {
    let mut parts: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for (a, b) in old.chunks(UNIT).zip(new.chunks(UNIT)) {
        let part = start..start + a.len();
        start = part.end;
        if a == b {
            continue;
        }
        let alone = is_superblock(at + part.start as u64);
        match parts.last_mut() {
            Some(last)
                if last.end == part.start && !alone && !is_superblock(at + last.start as u64) =>
            {
                last.end = part.end;
            }
            _ => parts.push(part),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superblock_is_a_part_of_its_own() {
        let old = vec![0; 8192];
        let mut new = old.clone();
        assert!(differences(0, &old, &new).is_empty());
        new[10] = 1;
        new[1030] = 1;
        new[2050] = 1;
        new[3080] = 1;
        assert_eq!(differences(0, &old, &new), [0..1024, 1024..2048, 2048..4096]);
        let elsewhere = differences(1 << 20, &old, &new);
        assert_eq!((elsewhere.len(), elsewhere[0].clone()), (1, 0..4096));
    }
}
