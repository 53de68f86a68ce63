//! Processors that wait for work awake while requests come close together.
//!
//! ```text
//!   program ─request─► server ─reply─► program      a request wakes two threads; where their processors
//!                                                   sleep, each costs up to 20 µs in a virtual machine
//!
//!   asleep ──DENSE requests within SOON──► awake ──fewer than STILL within LOOK──► asleep
//!          /dev/cpu_dma_latency opened              closed
//! ```
//!
//! The device is the kernel's way to say how late a processor may be; what was said is void once it is closed,
//! whatever ends the process. Who may not open it goes without.

use crate::connection::{Idle, Log};
use crate::transport::uring::possible_cpus;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// So many requests …
const DENSE: u64 = 32;
/// … within this time are close together.
const SOON: Duration = Duration::from_micros(6400);
/// How often it is looked whether they still are …
const LOOK: Duration = Duration::from_millis(10);
/// … which takes so many.
const STILL: u64 = 25;
/// Processors of a machine that are all kept awake without being told to, though few of them are asked.
const FEW: usize = 4;

/// Where the kernel is told.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Which driver puts processors to sleep.
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The latency, µs, that leaves a processor its lightest sleep.
const LIGHT_SLEEP: i32 = 2;

/// Counts requests, and keeps processors awake while there are many.
pub(crate) struct CpuLatencyHold {
    /// Where the kernel is told,
    device: PathBuf,
    /// and what, µs.
    latency: i32,
    start: Instant,
    requests: AtomicU64,
    /// When the last [`DENSE`] of them had come, µs after `start`.
    looked: AtomicU64,
    awake: AtomicBool,
    log: Log,
}

impl CpuLatencyHold {
    /// `None` where processors shall sleep, do not sleep, or are not ours to keep awake.
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
            awake: AtomicBool::new(false),
            log: Arc::clone(log),
        }
    }

    /// A request came.
    pub(crate) fn request(self: &Arc<CpuLatencyHold>) {
        let count = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if !count.is_multiple_of(DENSE) || self.awake.load(Ordering::Relaxed) {
            return;
        }
        let now = self.start.elapsed().as_micros() as u64;
        let before = self.looked.swap(now, Ordering::Relaxed);
        if u128::from(now.saturating_sub(before)) <= SOON.as_micros()
            && !self.awake.swap(true, Ordering::AcqRel)
            && let Err(error) = self.keep()
        {
            // It stays "awake": nobody tries again.
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
            ours.awake.store(false, Ordering::Release);
        })?;
        Ok(())
    }
}

fn opened(device: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(device)
}

/// The latency that keeps processors from being slow to wake, under the driver of this machine.
fn latency_under() -> Option<i32> {
    match std::fs::read_to_string(DRIVER).ok()?.trim() {
        // Without a driver it is not asked how late a processor may be.
        "none" => None,
        // A guest that halts is woken by its host: its processors poll.
        "haltpoll" => Some(0),
        _ => Some(LIGHT_SLEEP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn awake(device: PathBuf) -> (Arc<CpuLatencyHold>, Arc<Mutex<Vec<String>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&told);
        let log: Log = Arc::new(move |text| into.lock().unwrap().push(text.to_owned()));
        (Arc::new(CpuLatencyHold::at(device, 7, &log)), told)
    }

    fn requests(of: &Arc<CpuLatencyHold>, count: u64) {
        (0..count).for_each(|_| of.request());
    }

    #[test]
    fn many_requests_keep_awake_until_there_are_few() {
        let device = tempfile::NamedTempFile::new().unwrap();
        let (awake, _) = awake(device.path().to_owned());
        requests(&awake, DENSE - 1);
        assert_eq!(std::fs::read(device.path()).unwrap(), b"", "told too early");
        // The test may be kept from running in between: it asks until it was quick enough.
        while !awake.awake.load(Ordering::Acquire) {
            requests(&awake, DENSE);
        }
        assert_eq!(std::fs::read(device.path()).unwrap(), 7i32.to_ne_bytes());
        let end = Instant::now() + Duration::from_secs(20);
        while awake.awake.load(Ordering::Acquire) {
            assert!(Instant::now() < end, "still awake");
            thread::sleep(LOOK);
        }
    }

    #[test]
    fn requests_far_apart_let_processors_sleep() {
        let device = tempfile::NamedTempFile::new().unwrap();
        let (awake, _) = awake(device.path().to_owned());
        for _ in 0..4 {
            thread::sleep(2 * SOON);
            requests(&awake, DENSE);
        }
        assert_eq!(std::fs::read(device.path()).unwrap(), b"");
    }

    #[test]
    fn who_may_not_tell_the_kernel_says_so_once() {
        let (awake, told) = awake("/nowhere/at/all".into());
        requests(&awake, 100 * DENSE);
        assert_eq!(told.lock().unwrap().len(), 1);
    }

    #[test]
    fn nothing_is_kept_awake_that_shall_halt() {
        let log: Log = Arc::new(|_| ());
        assert!(CpuLatencyHold::new(Idle::Halt, &log).is_none());
    }
}
