//! Counts the requests of each operation.

use crate::abi::Opcode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots for opcodes. Slot 0 counts the operations that this crate does not know.
const SLOTS: usize = 64;

/// One counter for each operation. A read while requests run returns a recent value of each.
pub struct Requests([AtomicU64; SLOTS]);

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl Default for Requests {
    fn default() -> Requests {
        Requests([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl Requests {
    pub(crate) fn count(&self, opcode: Option<Opcode>) {
        let slot = opcode.map_or(0, |o| o as usize);
        self.0[slot].fetch_add(1, Ordering::Relaxed);
    }

    /// Requests of one operation so far.
    pub fn of(&self, opcode: Opcode) -> u64 {
        self.0[opcode as usize].load(Ordering::Relaxed)
    }

    /// Requests so far, including unknown operations.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Name and count of every operation that occurred.
    pub fn by_name(&self) -> Vec<(&'static str, u64)> {
        let all = Opcode::ALL.iter().map(|&o| (o.name(), self.of(o)));
        all.filter(|&(_, n)| n > 0).collect()
    }
}
