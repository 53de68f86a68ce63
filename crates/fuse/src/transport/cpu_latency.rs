//! Keeps processors out of deep sleep states while requests come close together.
//!
//! ```text
//!   program ─request─► server ─reply─► program    a request wakes two threads; where their
//!                                                 processors sleep, each wake-up costs up to
//!                                                 20 µs in a virtual machine
//!
//!   asleep ──DENSE requests within SOON──► awake ──fewer than STILL within LOOK──► asleep
//!          /dev/cpu_dma_latency opened              closed
//! ```
//!
//! The kernel takes the longest permitted wake-up latency from that device. The request ends when
//! the file is closed, however the process ends. A process without permission to open it does
//! without.

use crate::connection::{Idle, Log};
use crate::transport::uring::possible_cpus;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// This many requests …
const DENSE: u64 = 32;
/// … within this time are close together.
const SOON: Duration = Duration::from_micros(6400);
/// Interval at which it is checked whether they still are …
const LOOK: Duration = Duration::from_millis(10);
/// … which needs this many requests.
const STILL: u64 = 25;
/// On machines of up to this many processors, all of them are kept awake by default, though few of
/// them serve requests.
const FEW: usize = 4;

/// The file through which the kernel receives a latency limit.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Names the driver that puts idle processors to sleep.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The latency limit, µs, that leaves a processor only its lightest sleep state.
const LIGHT_SLEEP: i32 = 2;

/// Counts requests, and keeps processors awake while there are many.
pub(crate) struct CpuLatencyHold {
    /// The file for the latency limit.
    device: PathBuf,
    /// The limit, µs.
    latency: i32,
    start: Instant,
    requests: AtomicU64,
    /// When the last multiple of [`DENSE`] requests was reached, µs after `start`.
    looked: AtomicU64,
    is_held: AtomicBool,
    log: Log,
}

impl CpuLatencyHold {
    /// `None` where processors may sleep, never sleep, or this process has no permission to keep
    /// them awake.
    pub(crate) fn new(idle: Idle, log: &Log) -> Option<Arc<CpuLatencyHold>> {
        let few = || possible_cpus().is_some_and(|cpus| cpus <= FEW);
        let wanted = match idle {
            Idle::Halt => false,
            Idle::Poll => true,
            Idle::Auto => few(),
        };
        let latency = wanted.then(latency_under).flatten()?;
        let device = PathBuf::from(DEVICE);
        opened(&device).is_ok().then(|| Arc::new(CpuLatencyHold::at(device, latency, log)))
    }

    fn at(device: PathBuf, latency: i32, log: &Log) -> CpuLatencyHold {
        CpuLatencyHold {
            device,
            latency,
            start: Instant::now(),
            requests: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            log: Arc::clone(log),
        }
    }

    /// Counts a request.
    pub(crate) fn request(self: &Arc<CpuLatencyHold>) {
        let count = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if !count.is_multiple_of(DENSE) || self.is_held.load(Ordering::Relaxed) {
            return;
        }
        let now = self.start.elapsed().as_micros() as u64;
        let before = self.looked.swap(now, Ordering::Relaxed);
        if u128::from(now.saturating_sub(before)) <= SOON.as_micros()
            && !self.is_held.swap(true, Ordering::AcqRel)
            && let Err(error) = self.keep()
        {
            // The state stays "awake", so that no thread tries again.
            (self.log)(&format!("processors are not kept awake: {error}"));
        }
    }

    /// Keeps processors awake until requests become rare.
    fn keep(self: &Arc<CpuLatencyHold>) -> io::Result<()> {
        let mut device = opened(&self.device)?;
        device.write_all(&self.latency.to_ne_bytes())?;
        let ours = Arc::clone(self);
        thread::Builder::new().name("extant-awake".into()).spawn(move || {
            let mut before = ours.requests.load(Ordering::Relaxed);
            loop {
                thread::sleep(LOOK);
                let now = ours.requests.load(Ordering::Relaxed);
                if now - before < STILL {
                    break;
                }
                before = now;
            }
            drop(device);
            ours.is_held.store(false, Ordering::Release);
        })?;
        Ok(())
    }
}

fn opened(device: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(device)
}

/// The latency limit that keeps processors quick to wake under this machine's idle driver.
fn latency_under() -> Option<i32> {
    match std::fs::read_to_string(DRIVER).ok()?.trim() {
        // Without a driver the kernel does not use the limit.
        "none" => None,
        // The host wakes a guest that halts, which is slow. With a limit of 0 the guest's
        // processors poll.
        "haltpoll" => Some(0),
        _ => Some(LIGHT_SLEEP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn hold_on(device: PathBuf) -> (Arc<CpuLatencyHold>, Arc<Mutex<Vec<String>>>) {
        let messages = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&messages);
        let log: Log = Arc::new(move |text| into.lock().unwrap().push(text.to_owned()));
        (Arc::new(CpuLatencyHold::at(device, 7, &log)), messages)
    }

    fn requests(of: &Arc<CpuLatencyHold>, count: u64) {
        (0..count).for_each(|_| of.request());
    }

    #[test]
    fn many_requests_keep_processors_awake_until_there_are_few() {
        let device = tempfile::NamedTempFile::new().unwrap();
        let (hold, _) = hold_on(device.path().to_owned());
        requests(&hold, DENSE - 1);
        assert_eq!(std::fs::read(device.path()).unwrap(), b"", "told too early");
        // The test may be descheduled in between: it tries again until it was fast enough.
        while !hold.is_held.load(Ordering::Acquire) {
            requests(&hold, DENSE);
        }
        assert_eq!(std::fs::read(device.path()).unwrap(), 7i32.to_ne_bytes());
        let end = Instant::now() + Duration::from_secs(20);
        while hold.is_held.load(Ordering::Acquire) {
            assert!(Instant::now() < end, "still awake");
            thread::sleep(LOOK);
        }
    }

    #[test]
    fn requests_far_apart_let_processors_sleep() {
        let device = tempfile::NamedTempFile::new().unwrap();
        let (hold, _) = hold_on(device.path().to_owned());
        for _ in 0..4 {
            thread::sleep(2 * SOON);
            requests(&hold, DENSE);
        }
        assert_eq!(std::fs::read(device.path()).unwrap(), b"");
    }

    #[test]
    fn a_refused_latency_request_is_logged_once() {
        let (hold, messages) = hold_on("/nowhere/at/all".into());
        requests(&hold, 100 * DENSE);
        assert_eq!(messages.lock().unwrap().len(), 1);
    }

    #[test]
    fn nothing_is_kept_awake_that_shall_halt() {
        let log: Log = Arc::new(|_| ());
        assert!(CpuLatencyHold::new(Idle::Halt, &log).is_none());
    }
}
