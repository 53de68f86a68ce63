//! Signals that end the program. They end it immediately or, while there is something to clean up,
//! set a flag.
//!
//! ```text
//!   SIGINT, SIGTERM, SIGHUP ──► careful? ── no ──► the program ends
//!                                  └ yes ──► `flag` is set ──► the work ends and cleans up
//! ```

use crate::failure::{Failure, print_message};
use crate::shown::Shown;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Signal handling of this program.
pub(crate) struct Stop {
    /// Set when the program must end.
    pub(crate) flag: Arc<AtomicBool>,
    ends_at_once: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    /// Held by the thread that decides whether the file is kept or removed. `remove_when_ended`
    /// keeps it locked while it ends the program.
    decision: Arc<Mutex<()>>,
}

impl Stop {
    /// Installs the handlers. Until [`Stop::defer_signals`], a signal still ends the program
    /// immediately.
    pub(crate) fn listen() -> Result<Stop, Failure> {
        let stop = Stop {
            flag: Arc::new(AtomicBool::new(false)),
            ends_at_once: Arc::new(AtomicBool::new(true)),
            signal: Arc::new(AtomicUsize::new(0)),
            decision: Arc::default(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register_conditional_default(signal, Arc::clone(&stop.ends_at_once))
                .and_then(|_| {
                    flag::register_usize(signal, Arc::clone(&stop.signal), signal as usize)
                })
                .and_then(|_| flag::register(signal, Arc::clone(&stop.flag)))
                .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))?;
        }
        Ok(stop)
    }

    /// From now on there is something to clean up.
    pub(crate) fn defer_signals(&self) {
        self.ends_at_once.store(false, Ordering::SeqCst);
    }

    /// After [`Stop::defer_signals`]: a signal removes the file at `path` and ends the program,
    /// until [`Stop::end_on_signals`].
    pub(crate) fn remove_when_ended(&self, path: &Path) {
        let (path, flag, ends_at_once) =
            (path.to_owned(), self.flag.clone(), self.ends_at_once.clone());
        let (signal, decision) = (self.signal.clone(), self.decision.clone());
        std::thread::spawn(move || {
            loop {
                let deciding = decision.lock().unwrap_or_else(PoisonError::into_inner);
                if ends_at_once.load(Ordering::SeqCst) {
                    return;
                }
                if flag.load(Ordering::SeqCst) {
                    let _ = std::fs::remove_file(&path);
                    print_message(format_args!(
                        "{}: interrupted: the file was removed",
                        Shown::path(&path)
                    ));
                    std::process::exit(128 + signal.load(Ordering::SeqCst) as i32);
                }
                drop(deciding);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    }

    /// There is nothing to clean up any more: a signal ends the program immediately. Does not
    /// return if an earlier signal is ending the program.
    pub(crate) fn end_on_signals(&self) {
        let _deciding = self.decision.lock().unwrap_or_else(PoisonError::into_inner);
        self.ends_at_once.store(true, Ordering::SeqCst);
    }

    /// The exit status that tells which signal ended the program.
    pub(crate) fn exit_status(&self) -> u8 {
        128 + self.signal.load(Ordering::SeqCst) as u8
    }
}
