//! Signals that end the program: they end it at once, or, while there is something to clean up, set
//! a flag.
//!
//! ```text
//!   SIGINT, SIGTERM, SIGHUP ──► careful? ── no ──► the end
//!                                  └ yes ──► stop is set ──► the work ends and cleans up
//! ```

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The signals of this program.
pub(crate) struct Stop {
    /// Set when the program is to end.
    pub(crate) flag: Arc<AtomicBool>,
    careless: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Listens from now on; until [`Stop::be_careful`] a signal still ends the program at once.
    pub(crate) fn listen() -> Result<Stop, Failure> {
        let stop = Stop {
            flag: Arc::new(AtomicBool::new(false)),
            careless: Arc::new(AtomicBool::new(true)),
            signal: Arc::new(AtomicUsize::new(0)),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register_conditional_default(signal, Arc::clone(&stop.careless))
                .and_then(|_| {
                    flag::register_usize(signal, Arc::clone(&stop.signal), signal as usize)
                })
                .and_then(|_| flag::register(signal, Arc::clone(&stop.flag)))
                .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))?;
        }
        Ok(stop)
    }

    /// From now on there is something to clean up.
    pub(crate) fn be_careful(&self) {
        self.careless.store(false, Ordering::SeqCst);
    }

    /// The exit status that says which signal ended the program.
    pub(crate) fn exit_status(&self) -> u8 {
        128 + self.signal.load(Ordering::SeqCst) as u8
    }
}
