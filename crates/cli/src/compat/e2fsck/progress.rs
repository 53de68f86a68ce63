//! The progress of a check as the original shows it: a line when a pass begins, and lines of
//! numbers for programs.
//!
//! ```text
//!   Pass 1: Checking inodes, blocks, and sizes          standard output
//!   1 17 128 /dev/vda1                                  the descriptor of -C: pass, done, total
//! ```

use crate::bar::Bar;
use extant::{Phase, Progress};
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many lines of numbers a pass gets at most.
const LINES_MAX: u64 = 100;

/// Prints the progress of a check.
pub(super) struct Passes {
    /// Passes are named on standard output.
    named: bool,
    numbers: Mutex<Numbers>,
    bar: Option<Bar>,
}

struct Numbers {
    /// The name in lines of numbers.
    device: String,
    to: Option<File>,
    phase: Option<Phase>,
    done: u64,
    total: u64,
    /// Of `LINES_MAX`.
    shown: u64,
}

impl Passes {
    pub(super) fn new(device: &str, named: bool, to: Option<File>, has_bar: bool) -> Passes {
        let device = device.to_owned();
        let numbers = Numbers { device, to, phase: None, done: 0, total: 0, shown: 0 };
        let bar = has_bar.then(|| Bar::new(false));
        Passes { named, numbers: Mutex::new(numbers), bar }
    }

    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the last pass.
    pub(super) fn finish(&self) {
        self.numbers().end();
        if let Some(bar) = &self.bar {
            bar.clear();
        }
    }
}

/// The number of a phase's pass, and its title.
fn pass_of(phase: Phase) -> Option<(u32, &'static str)> {
    Some(match phase {
        Phase::CheckInodes => (1, "Checking inodes, blocks, and sizes"),
        Phase::CheckDirectories => (2, "Checking directory structure"),
        Phase::CheckConnectivity => (3, "Checking directory connectivity"),
        Phase::CheckCounts => (4, "Checking reference counts"),
        Phase::CheckBitmaps => (5, "Checking group summary information"),
        _ => return None,
    })
}

impl Progress for Passes {
    fn begin(&self, phase: Phase, total: u64) {
        if let Some(bar) = &self.bar {
            bar.begin(phase, total);
        }
        let Some((pass, title)) = pass_of(phase) else { return };
        // A phase begins again when its total is known.
        let is_new = self.numbers().begin(phase, total);
        if self.named && is_new {
            // Not through a locked handle: a check may call this from any thread.
            let line = format!("Pass {pass}: {title}\n");
            let _ = rustix::io::write(rustix::stdio::stdout(), line.as_bytes());
        }
    }

    fn advance(&self, phase: Phase, amount: u64) {
        if let Some(bar) = &self.bar {
            bar.advance(phase, amount);
        }
        self.numbers().advance(phase, amount);
    }
}

impl Numbers {
    fn begin(&mut self, phase: Phase, total: u64) -> bool {
        let is_new = self.phase != Some(phase);
        if is_new {
            self.end();
        }
        (self.phase, self.done, self.total, self.shown) = (Some(phase), 0, total.max(1), 0);
        self.show();
        is_new
    }

    fn advance(&mut self, phase: Phase, amount: u64) {
        if self.phase != Some(phase) {
            return;
        }
        self.done = self.done.saturating_add(amount).min(self.total);
        let part = self.done.saturating_mul(LINES_MAX) / self.total;
        if part > self.shown {
            self.shown = part;
            self.show();
        }
    }

    fn end(&mut self) {
        if self.phase.is_some() && self.done < self.total {
            self.done = self.total;
            self.show();
        }
    }

    fn show(&mut self) {
        let (Some((pass, _)), Some(to)) = (self.phase.and_then(pass_of), &mut self.to) else {
            return;
        };
        // The reader may have ended.
        let _ = writeln!(to, "{pass} {} {} {}", self.done, self.total, self.device);
    }
}
