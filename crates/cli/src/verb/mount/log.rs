//! The log of a mount's errors: standard error, a file, or the system's log.

use crate::failure::{Failure, print_message};
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Priority of a line in the system's log: an error of a daemon.
const DAEMON_ERROR: u32 = 3 << 3 | 3;
/// Largest number of lines in one [`WINDOW`]. A damaged volume under load would fill any log.
const BURST: u32 = 50;
const WINDOW: Duration = Duration::from_secs(10);

enum Place {
    Stderr,
    File(File),
    System(UnixDatagram),
    Nowhere,
}

struct Rate {
    since: Instant,
    lines: u32,
    left_out: u64,
}

/// Writes lines from any thread.
pub(super) struct Log {
    place: Place,
    /// Has no rank: the log is called with any lock held, and takes no other lock.
    rate: Mutex<Rate>,
}

impl Log {
    /// Logs to standard error.
    pub(super) fn stderr() -> Log {
        Log::to(Place::Stderr)
    }

    /// Appends to the file `path`.
    pub(super) fn file(path: &Path) -> Result<Log, Failure> {
        let file = File::options().create(true).append(true).open(path);
        let file = file.map_err(|error| Failure::of_file("open the log", path, error))?;
        Ok(Log::to(Place::File(file)))
    }

    /// Logs to the system's log, if it exists.
    pub(super) fn system() -> Log {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.connect("/dev/log")?;
            // A log that does not accept a line must not block the volume.
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Log::to(socket.map_or(Place::Nowhere, Place::System))
    }

    fn to(place: Place) -> Log {
        let rate = Rate { since: Instant::now(), lines: 0, left_out: 0 };
        Log { place, rate: Mutex::new(rate) }
    }

    /// Writes `text`, unless too many lines were written recently.
    pub(super) fn note(&self, text: &str) {
        let left_out = {
            let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            if rate.since.elapsed() > WINDOW {
                (rate.since, rate.lines) = (Instant::now(), 0);
            }
            if rate.lines >= BURST {
                rate.left_out += 1;
                return;
            }
            rate.lines += 1;
            std::mem::take(&mut rate.left_out)
        };
        if left_out > 0 {
            self.put(&format!("{left_out} more messages were not logged"));
        }
        self.put(text);
    }

    fn put(&self, text: &str) {
        match &self.place {
            Place::Stderr => print_message(text),
            Place::File(file) => {
                let _ = writeln!(&mut &*file, "extant: {text}");
            }
            Place::System(socket) => {
                let pid = std::process::id();
                let _ = socket.send(format!("<{DAEMON_ERROR}>extant[{pid}]: {text}").as_bytes());
            }
            Place::Nowhere => {}
        }
    }
}
