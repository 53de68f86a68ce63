//! The subjects: extant with each policy, the kernel with both, and the bare device as the limit.

use std::collections::HashMap;
use std::fs;
use std::io::IoSlice;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, ensure};
use extant::cache::{CacheUse, DontCachePolicy};
use extant::{BlockDevice, NewFile, OpenOptions};
use extant_base::ByteOffset;
use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, pwritev2};

use super::store::Store;
use crate::rig::Mount;

/// A file that the threads of a run use.
pub(crate) trait Handle: Send + Sync {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Returns the number of bytes; 0 at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    fn sync(&self) -> Result<()>;
}

/// Largest amounts at any time, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peaks {
    pub dirty: u64,
    pub cache: u64,
}

/// A store that is opened for one run.
pub(crate) trait Volume {
    /// Creates a file that will be `len` bytes long, for a writer.
    fn create(&self, name: &str, len: u64) -> Result<Arc<dyn Handle>>;
    /// Opens a file for a writer.
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>>;
    /// Opens a file for a reader, which uses the cache in the ordinary way.
    fn reader(&self, name: &str) -> Result<Arc<dyn Handle>> {
        self.open(name)
    }
    /// The peaks since the volume was opened, if they are known.
    fn peaks(&self) -> Option<Peaks> {
        None
    }
    /// Makes everything durable and closes the volume.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// All subjects, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Subject {
    Buffered,
    Policy(DontCachePolicy),
    KernelBuffered,
    KernelDontCache,
    /// The kernel's cache of the backing file itself, without a volume.
    PlainFile,
    Device,
}

impl Subject {
    pub(crate) const ALL: [Subject; 7] = [
        Subject::Buffered,
        Subject::Policy(DontCachePolicy::Inline),
        Subject::Policy(DontCachePolicy::RateLimited),
        Subject::Policy(DontCachePolicy::Flusher),
        Subject::KernelBuffered,
        Subject::KernelDontCache,
        Subject::Device,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Subject::Buffered => "extant-buffered",
            Subject::Policy(DontCachePolicy::Inline) => "extant-inline",
            Subject::Policy(DontCachePolicy::RateLimited) => "extant-rate-limited",
            Subject::Policy(DontCachePolicy::Flusher) => "extant-flusher",
            Subject::KernelBuffered => "kernel-buffered",
            Subject::KernelDontCache => "kernel-dontcache",
            Subject::PlainFile => "plain-file",
            Subject::Device => "device",
        }
    }

    pub(crate) fn is_kernel(self) -> bool {
        matches!(self, Subject::KernelBuffered | Subject::KernelDontCache)
    }

    /// Opens `store`, which contains a volume. The kernel mounts it at `dir`.
    pub(crate) fn volume(
        self,
        store: &Store,
        limits: Limits,
        dir: &Path,
    ) -> Result<Box<dyn Volume>> {
        let policy = match self {
            Subject::Device => return Ok(Box::new(Bare::new(store.device()?))),
            Subject::PlainFile => {
                let Store::File(path) = store else {
                    anyhow::bail!("the kernel cannot write to memory of this process")
                };
                return Ok(Box::new(PlainFile(path.clone())));
            }
            Subject::KernelBuffered | Subject::KernelDontCache => {
                let Store::File(image) = store else {
                    anyhow::bail!("the kernel cannot write to memory of this process")
                };
                let mount = Mount::image(image, dir, "ext4", true)?;
                ensure!(mount.limit_dirty(limits.dirty), "no limit of dirty bytes for a device");
                let dont_cache = self == Subject::KernelDontCache;
                return Ok(Box::new(Mounted { watch: Watch::start(), mount, dont_cache }));
            }
            Subject::Buffered => None,
            Subject::Policy(policy) => Some(policy),
        };
        let mut options = OpenOptions::new();
        options.write(true).page_cache_bytes(limits.cache).dirty_limit_bytes(limits.dirty);
        options.dont_cache_policy(policy.unwrap_or_default());
        let fs = options.open_device(store.device()?)?;
        Ok(Box::new(Extant { fs, dont_cache: policy.is_some() }))
    }
}

/// Limits that every cache gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub cache: u64,
    pub dirty: u64,
}

struct Extant {
    fs: extant::Filesystem,
    dont_cache: bool,
}

impl Volume for Extant {
    fn create(&self, name: &str, _len: u64) -> Result<Arc<dyn Handle>> {
        self.fs.create_file(format!("/{name}"), &NewFile::default())?;
        self.open(name)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        let file = self.fs.open_file(format!("/{name}"))?;
        file.set_dont_cache(self.dont_cache);
        Ok(Arc::new(file))
    }

    fn reader(&self, name: &str) -> Result<Arc<dyn Handle>> {
        Ok(Arc::new(self.fs.open_file(format!("/{name}"))?))
    }

    fn peaks(&self) -> Option<Peaks> {
        let stats = self.fs.cache_stats()?;
        Some(Peaks { dirty: stats.dirty_peak, cache: stats.cached_peak })
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.fs.close()?)
    }
}

impl Handle for extant::File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.write_all_at(bytes, offset)?)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(self.read_at_with(buf, offset, CacheUse::Keep)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }
}

struct Mounted {
    watch: Watch,
    mount: Mount,
    dont_cache: bool,
}

impl Mounted {
    fn handle(&self, name: &str, flags: ReadWriteFlags) -> Result<Arc<dyn Handle>> {
        let mut options = fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(false);
        Ok(Arc::new(KernelFile { file: file.open(self.mount.join(name))?, flags }))
    }
}

impl Volume for Mounted {
    fn create(&self, name: &str, _len: u64) -> Result<Arc<dyn Handle>> {
        self.open(name)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        // RWF_DONTCACHE, which is newer than the names in rustix.
        let bits = if self.dont_cache { 0x80 } else { 0 };
        self.handle(name, ReadWriteFlags::from_bits_retain(bits))
    }

    fn reader(&self, name: &str) -> Result<Arc<dyn Handle>> {
        self.handle(name, ReadWriteFlags::empty())
    }

    fn peaks(&self) -> Option<Peaks> {
        Some(self.watch.peaks())
    }
}

struct KernelFile {
    file: fs::File,
    flags: ReadWriteFlags,
}

impl Handle for KernelFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = [IoSlice::new(&bytes[done..])];
            done += pwritev2(&self.file, &rest, offset + done as u64, self.flags)?;
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Ok(FileExt::read_at(&self.file, buf, offset)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.file.sync_all()?)
    }
}

struct PlainFile(PathBuf);

impl Volume for PlainFile {
    fn create(&self, name: &str, _len: u64) -> Result<Arc<dyn Handle>> {
        self.open(name)
    }

    fn open(&self, _name: &str) -> Result<Arc<dyn Handle>> {
        let file = fs::File::options().read(true).write(true).open(&self.0)?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(Arc::new(KernelFile { file, flags: ReadWriteFlags::empty() }))
    }
}

/// Samples the cache of the whole machine every few milliseconds, including what other processes
/// use.
struct Watch {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    dirty: AtomicU64,
    cache: AtomicU64,
    over: AtomicBool,
}

impl Watch {
    fn start() -> Watch {
        let seen = Arc::new(Seen::default());
        let (dirty, cache) = memory();
        let thread = std::thread::spawn({
            let seen = Arc::clone(&seen);
            move || {
                while !seen.over.load(Ordering::Relaxed) {
                    let now = memory();
                    seen.dirty.fetch_max(now.0.saturating_sub(dirty), Ordering::Relaxed);
                    seen.cache.fetch_max(now.1.saturating_sub(cache), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        Watch { seen, thread: Some(thread) }
    }

    fn peaks(&self) -> Peaks {
        let of = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        Peaks { dirty: of(&self.seen.dirty), cache: of(&self.seen.cache) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.seen.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Bytes that the kernel has dirty or in write-back, and bytes in its page cache.
fn memory() -> (u64, u64) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    };
    (field("Dirty:") + field("Writeback:"), field("Cached:"))
}

/// The device without a volume: files are ranges of it.
struct Bare {
    device: Arc<dyn BlockDevice>,
    starts: Mutex<(u64, HashMap<String, u64>)>,
}

impl Bare {
    fn new(device: Arc<dyn BlockDevice>) -> Bare {
        Bare { device, starts: Mutex::default() }
    }
}

impl Volume for Bare {
    fn create(&self, name: &str, len: u64) -> Result<Arc<dyn Handle>> {
        {
            let mut starts = self.starts.lock().expect("nobody panics with the ranges in hand");
            let start = starts.0;
            starts.0 += len;
            starts.1.insert(name.to_string(), start);
        }
        self.open(name)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        let starts = self.starts.lock().expect("nobody panics with the ranges in hand");
        // A file of an earlier run. All files start at the beginning.
        let start = starts.1.get(name).copied().unwrap_or(0);
        Ok(Arc::new(Range { device: Arc::clone(&self.device), start }))
    }
}

struct Range {
    device: Arc<dyn BlockDevice>,
    start: u64,
}

impl Handle for Range {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write_at(ByteOffset(self.start + offset), bytes)?)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.device.read_at(ByteOffset(self.start + offset), buf)?;
        Ok(buf.len())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }
}
