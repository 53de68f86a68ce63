//! From a tree to an image.
//!
//! ```text
//!   Tree ─► size ─► lay down the volume ─► load: inodes, directories, space for files
//!            ▲                                │ does not fit, or space is left over
//!            └────────────────────────────────┘ (nothing was copied yet)
//!                                             ▼
//!                         copy the files' bytes in device order ─► flush ─► rename
//! ```
//!
//! The engine loads the tree with the journal off. Every decision follows from the tree and the
//! options alone: the same input gives the same image, byte for byte.

mod compat;
mod copy;
mod error;
mod estimate;
mod fill;
mod load;
mod output;
mod size;

pub use compat::{COMPAT_SETS, Compat};
pub use error::BuildError;

use crate::entry::Time;
use crate::tree::Tree;
use extant::mkfs::MkfsOptions;
use extant::{Environment, Phase, Progress, Timestamp};
use extant_base::BlockSize;
use extant_blockdev::BlockDevice;
use output::Output;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageSize {
    /// The smallest size that holds the sources and leaves `free` bytes.
    Auto {
        /// Bytes that a user other than root can still write.
        free: u64,
    },
    /// This many bytes.
    Bytes(u64),
}

/// Builds images; see the crate's example.
#[derive(Clone, Debug)]
pub struct ImageBuilder {
    mkfs: MkfsOptions,
    size: ImageSize,
    threads: usize,
    source_date_epoch: Option<i64>,
    random: bool,
    block_size: BlockSize,
    inodes: Option<u32>,
    uuid: Option<[u8; 16]>,
    compat: Option<Compat>,
}

/// The result of a build.
#[derive(Clone, Debug)]
pub struct Built {
    /// Bytes of the image.
    pub bytes: u64,
    /// Block size in bytes.
    pub block_bytes: usize,
    /// Inodes in use, without those of the volume itself.
    pub inodes: u64,
    /// Bytes of file data copied.
    pub data_bytes: u64,
    /// Bytes left free.
    pub free_bytes: u64,
    /// The volume's UUID.
    pub uuid: [u8; 16],
}

impl Default for ImageBuilder {
    fn default() -> Self {
        ImageBuilder::new()
    }
}

impl ImageBuilder {
    /// An image as small as possible, reproducible, with mke2fs's default features and 4 KiB
    /// blocks.
    pub fn new() -> ImageBuilder {
        ImageBuilder {
            mkfs: MkfsOptions::new().reserved_percent(0.0),
            size: ImageSize::Auto { free: 0 },
            threads: 0,
            source_date_epoch: None,
            random: false,
            block_size: BlockSize::from_bytes(4096).expect("4 KiB is a block size"),
            inodes: None,
            uuid: None,
            compat: None,
        }
    }

    /// Features and layout of the volume. This builder replaces the options' block count, block
    /// size, inode count, UUID and hash seed.
    pub fn mkfs(mut self, options: MkfsOptions) -> Self {
        self.mkfs = options;
        self
    }

    /// The size of the image. Default: as small as possible.
    pub fn size(mut self, size: ImageSize) -> Self {
        self.size = size;
        self
    }

    /// The number of threads that copy, at most 256. 0, the default, is two more than the machine
    /// has processors.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The volume's own time, in seconds since 1970, which is also the latest time that an entry
    /// keeps. Default: the time of the newest entry.
    pub fn source_date_epoch(mut self, seconds: i64) -> Self {
        self.source_date_epoch = Some(seconds);
        self
    }

    /// Uses a random UUID and hash seed and the current time, instead of values that follow from
    /// the content.
    pub fn random(mut self, random: bool) -> Self {
        self.random = random;
        self
    }

    /// Block size. Default: 4 KiB.
    pub fn block_size(mut self, size: BlockSize) -> Self {
        self.block_size = size;
        self
    }

    /// The least number of inodes. Default: as many as the sources need, and one for every 16 KiB
    /// left free.
    pub fn inodes(mut self, count: u32) -> Self {
        self.inodes = Some(count);
        self
    }

    /// The volume's UUID.
    pub fn uuid(mut self, uuid: [u8; 16]) -> Self {
        self.uuid = Some(uuid);
        self
    }

    /// Refuses, before anything is written, a volume with features that the reader of `set` does
    /// not know. Pass the options of [`Compat::mkfs`] to [`ImageBuilder::mkfs`] as well.
    pub fn compat(mut self, set: Compat) -> Self {
        self.compat = Some(set);
        self
    }

    fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(2, |n| n.get()) + 2,
            n => n.min(256),
        }
    }

    /// Builds the image of `tree` at `path`: a new file, or a block device.
    ///
    /// The file gets its name only when it is complete and durable. Another thread may set `stop`
    /// to end the build early.
    ///
    /// # Errors
    /// `TooSmall`, before anything is written; `Stopped`; see [`BuildError`].
    pub fn build(
        &self,
        tree: &Tree,
        path: &Path,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<Built, BuildError> {
        let now = match (self.random, self.source_date_epoch) {
            (true, None) => Environment::default().now(),
            (_, Some(sec)) => Timestamp { sec, nsec: 0 },
            (false, None) => {
                let newest = tree.nodes().iter().map(|node| node.meta.mtime).max();
                Timestamp { sec: newest.map_or(0, |time| time.sec), nsec: 0 }
            }
        };
        let latest = self.source_date_epoch.map(|sec| Timestamp { sec, nsec: 0 });
        let digest = tree.digest_until(latest.map(|time| Time { sec: time.sec, nsec: 0 }));
        let seeded = |at: usize| {
            let mut id = [0; 16];
            id.copy_from_slice(&digest[at..at + 16]);
            id
        };
        let environment = match self.random {
            true => Environment { clock: Environment::fixed(now, 0).clock, ..Default::default() },
            false => {
                let word = u64::from_le_bytes(seeded(0)[..8].try_into().expect("16 bytes hold 8"));
                Environment::fixed(now, word)
            }
        };
        let mut mkfs = self.mkfs.clone().block_size(self.block_size);
        if !self.random {
            let mut uuid = seeded(0);
            // RFC 9562: version 8, derived from the content.
            uuid[6] = uuid[6] & 0x0F | 0x80;
            uuid[8] = uuid[8] & 0x3F | 0x80;
            mkfs = mkfs.uuid(uuid).hash_seed(seeded(16));
        }
        if let Some(uuid) = self.uuid {
            mkfs = mkfs.uuid(uuid);
        }
        let job = load::Job {
            tree,
            environment: &environment,
            latest,
            compat: self.compat,
            progress,
            stop,
        };
        let sizing = size::Sizing::new(self, &job, mkfs);
        let size = sizing.choose()?;

        let bytes = size.blocks << self.block_size.log2();
        let output = Output::create(path, bytes)?;
        let (output, loaded) = sizing.load_into(output, size)?;
        let device = output.device();
        progress.begin(Phase::BuildCopy, loaded.piece_bytes(self.block_size));
        let threads = self.thread_count();
        copy::copy(tree, &*device, self.block_size, &loaded.pieces, threads, progress, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Err(BuildError::Stopped);
        }
        let data = Arc::clone(&device) as Arc<dyn BlockDevice>;
        extant::bulk::checksum_data(&data).map_err(BuildError::Engine)?;
        drop(data);
        progress.begin(Phase::BuildFlush, 0);
        let built = Built {
            bytes: device.len(),
            block_bytes: self.block_size.bytes(),
            inodes: tree.node_count() as u64,
            data_bytes: tree.data_bytes(),
            free_bytes: loaded.free_blocks << self.block_size.log2(),
            uuid: loaded.uuid,
        };
        drop(device);
        output.finish()?;
        Ok(built)
    }
}

/// A device in memory on which a size is tried.
pub(crate) fn trial_device(bytes: u64) -> Arc<dyn BlockDevice> {
    Arc::new(extant_blockdev::MemoryDevice::new(bytes))
}
