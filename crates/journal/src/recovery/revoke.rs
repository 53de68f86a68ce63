//! Second pass over a log: which copies are dead.
//!
//! ```text
//!   tid      5         6            7           8
//!   block 90 logged    logged       REVOKED     logged (reused)
//!            dead      dead         7 ≥ 5, 6    8 > 7: replayed
//! ```
//!
//! Rule D2: a revoke in transaction t hides copies logged in t and earlier. The highest t counts.

use crate::log::open_log::Log;
use crate::recovery::scan::{Control, Scan};
use extant_base::{BlockNr, Result, Tid, What};
use extant_ondisk::jbd2::Revokes;
use hashbrown::HashMap;

/// The most blocks that one log may revoke: those of a log of 1 GiB in which one block in thirty is
/// a full revoke block. More is reported as damage, to bound memory.
const REVOKED_MAX: usize = 1 << 24;

/// The blocks that a log revokes, each with the last transaction that revoked it.
#[derive(Debug, Default)]
pub(crate) struct RevokeTable {
    last: HashMap<u64, Tid>,
}

impl RevokeTable {
    pub(crate) fn add(&mut self, block: BlockNr, tid: Tid) {
        let last = self.last.entry(block.0).or_insert(tid);
        if tid.is_after(*last) {
            *last = tid;
        }
    }

    /// Whether a copy of `block` that transaction `tid` logged is dead.
    pub(crate) fn hides(&self, block: BlockNr, tid: Tid) -> bool {
        self.last.get(&block.0).is_some_and(|last| !tid.is_after(*last))
    }
}

impl Log {
    /// Reads every revoke block of the committed transactions.
    ///
    /// Errors: `Device`; `Corrupt(JournalRevoke)`.
    pub(crate) fn revoked(&self, scan: &Scan, device_blocks: u64) -> Result<RevokeTable> {
        let format = self.format();
        let mut table = RevokeTable::default();
        let mut bytes = vec![0; format.block_size.bytes()];
        for control in &scan.controls {
            let Control::Revoke { block, tid } = *control else { continue };
            self.read_right(block, &mut bytes, &|bytes| Control::is_right(bytes, &format, tid))?;
            let site = self.site(block).tid(tid);
            for revoked in Revokes::new(&bytes, &format, site)? {
                // No copy is written beyond the device, so its revokes do not matter.
                if revoked.0 < device_blocks {
                    table.add(revoked, tid);
                }
            }
            if table.last.len() > REVOKED_MAX {
                return Err(site.corrupt(What::JournalRevoke));
            }
        }
        Ok(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revoke_hides_older_copies_only() {
        let mut table = RevokeTable::default();
        table.add(BlockNr(90), Tid(7));
        table.add(BlockNr(90), Tid(4));
        for (tid, hidden) in [(3, true), (6, true), (7, true), (8, false)] {
            assert_eq!(table.hides(BlockNr(90), Tid(tid)), hidden, "{tid}");
        }
        assert!(!table.hides(BlockNr(91), Tid(7)));
    }

    #[test]
    fn the_order_of_revokes_survives_the_wrap() {
        let mut table = RevokeTable::default();
        table.add(BlockNr(90), Tid(u32::MAX));
        table.add(BlockNr(90), Tid(1));
        assert!(table.hides(BlockNr(90), Tid(0)) && table.hides(BlockNr(90), Tid(u32::MAX)));
        assert!(!table.hides(BlockNr(90), Tid(2)));
    }
}
