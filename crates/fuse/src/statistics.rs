//! How many requests of each operation there were.

use crate::abi::Opcode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots for opcodes; 0 holds those that this crate does not know.
const SLOTS: usize = 64;

/// Counters, one an operation. Reading them while requests run gives each a value it had lately.
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

    /// Requests so far, those of unknown operations too.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Every operation that was asked for, by name.
    pub fn by_name(&self) -> Vec<(&'static str, u64)> {
        let all = Opcode::ALL.iter().map(|&o| (o.name(), self.of(o)));
        all.filter(|&(_, n)| n > 0).collect()
    }
}
