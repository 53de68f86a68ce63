//! Write-back of a long file, several parts at a time. Whatever order they arrive in, the size on
//! disk grows from the left, and a failed part excludes everything after it.

use crate::common::judge;
use extant::{BlockDevice, Error, File, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_base::{ByteOffset, Result};
use extant_testdev::Faulty;
use extant_testkit::e2fsprogs;
use std::io::IoSlice;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// The bytes of one device write.
const PART: usize = 2 << 20;
const PARTS: u8 = 6;
/// Longer than any test here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Recognizes the parts of the file by their bytes, which are the part's number plus one.
struct Gate {
    inner: MemoryDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    held: Option<u8>,
    fails: Option<u8>,
    arrived: Vec<u8>,
}

impl Gate {
    /// The part to which these bytes belong, if any.
    fn part(bufs: &[IoSlice<'_>]) -> Option<u8> {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let first = *bufs.iter().find(|buf| !buf.is_empty())?.first()?;
        (len == PART && (1..=PARTS).contains(&first)).then(|| first - 1)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

impl BlockDevice for Gate {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.write_vectored_at(at, &[IoSlice::new(buf)])
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        let part = Gate::part(bufs);
        if part.is_some() {
            let mut state = self.state.lock().unwrap();
            if state.fails == part {
                let broken = Faulty::new(MemoryDevice::new(4096));
                broken.fail_from(extant_base::IoOp::Write, 1);
                return broken.write_at(ByteOffset(0), &[0; 512]);
            }
            while state.held == part {
                state = self.changed.wait(state).unwrap();
            }
        }
        self.inner.write_vectored_at(at, bufs)?;
        self.set(|state| state.arrived.extend(part));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
}

/// Releases all writes when a test ends early.
struct Release(Arc<Gate>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.set(|state| state.held = None);
    }
}

fn volume() -> (Arc<Gate>, Filesystem, File) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    e2fsprogs::mke2fs(&path, 64 << 20, "-b 4096", None).unwrap();
    let inner = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
    let device = Arc::new(Gate { inner, state: Mutex::default(), changed: Condvar::new() });
    let mut options = OpenOptions::new();
    // Much more than is written, so the flusher has no reason to start by itself.
    options.write(true).commit_interval(None).page_cache_bytes(256 << 20);
    let fs = options.open_device(device.clone()).unwrap();
    let file = fs.root().unwrap().create_file("f", &NewFile::default()).unwrap().open().unwrap();
    (device, fs, file)
}

fn content() -> Vec<u8> {
    (0..PARTS).flat_map(|n| vec![n + 1; PART]).collect()
}

/// What a crash right after a commit would leave of the file.
fn after_a_crash(device: &Gate, fs: &Filesystem, n: u32) -> Vec<u8> {
    let marker = fs.root().unwrap().create_file(format!("m{n}"), &NewFile::default()).unwrap();
    marker.open().unwrap().sync_all().unwrap();
    let copy = Arc::new(MemoryDevice::copy_of(&device.inner).unwrap());
    let mut options = OpenOptions::new();
    let crashed = options.write(true).page_cache_bytes(0).open_device(copy.clone()).unwrap();
    let bytes = crashed.read("f").unwrap();
    crashed.close().unwrap();
    judge(&*copy);
    bytes
}

#[test]
fn the_size_on_disk_waits_for_the_slowest_part() {
    for late in 0..PARTS {
        let (device, fs, file) = volume();
        device.set(|state| state.held = Some(late));
        let release = Release(device.clone());
        let content = content();
        file.write_all_at(&content, 0).unwrap();
        let file = Arc::new(file);
        let sync = std::thread::spawn({
            let file = file.clone();
            move || file.sync_all()
        });
        let began = Instant::now();
        let others = usize::from(PARTS) - 1;
        while device.state.lock().unwrap().arrived.len() < others {
            assert!(began.elapsed() < PATIENCE, "one late part holds up the others");
            std::thread::sleep(Duration::from_millis(1));
        }
        let there = usize::from(late) * PART;
        let mut n = 0;
        while after_a_crash(&device, &fs, n).len() < there {
            assert!(began.elapsed() < PATIENCE, "what is before part {late} is shown");
            n += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
        let bytes = after_a_crash(&device, &fs, n + 1);
        assert!(bytes == content[..there], "{} bytes before part {late}", bytes.len());
        assert!(!sync.is_finished());
        drop(release);
        sync.join().unwrap().unwrap();
        assert!(after_a_crash(&device, &fs, n + 2) == content);
        drop(file);
        fs.close().unwrap();
        judge(&device.inner);
    }
}

#[test]
fn a_part_that_fails_fails_the_parts_after_it_and_none_before() {
    for bad in 0..PARTS {
        let (device, fs, file) = volume();
        device.set(|state| state.fails = Some(bad));
        let content = content();
        file.write_all_at(&content, 0).unwrap();
        assert!(matches!(file.sync_all(), Err(Error::Device { .. })), "part {bad}");
        let there = usize::from(bad) * PART;
        let stats = fs.cache_stats().unwrap();
        assert_eq!((stats.dirty, stats.writing), ((content.len() - there) as u64, 0), "part {bad}");
        assert!(after_a_crash(&device, &fs, 0) == content[..there], "part {bad}");
        device.set(|state| state.fails = None);
        file.sync_all().unwrap();
        assert!(after_a_crash(&device, &fs, 1) == content);
        drop(file);
        fs.close().unwrap();
        judge(&device.inner);
    }
}
