//! Direct I/O: coherent with buffered I/O, on every kind of range, with every kind of memory, at
//! any depth.

mod doubles;
mod faults;
mod model;
mod pieces;
mod queued;
mod ranges;
mod rules;
mod threads;

use extant::direct::{Bounce, DirectOptions};
use extant::{Filesystem, OpenOptions};
use extant_blockdev::MemoryDevice;
use std::sync::Arc;

/// Each way of copying or not copying.
pub const ALL: [Bounce; 4] = [Bounce::Auto, Bounce::Always, Bounce::Checksummed, Bounce::Never];

/// The options for one of them.
pub fn by(bounce: Bounce) -> DirectOptions {
    DirectOptions { bounce, ..DirectOptions::default() }
}

/// Makes a volume with blocks of this many bytes and this many MiB of page cache.
type Kind = fn(usize, Option<u64>) -> (Arc<MemoryDevice>, Filesystem);

/// The kinds for which every rule holds.
pub const VOLUMES: [Kind; 2] = [volume, volume_with_data_csum];

/// A volume in memory with blocks of `block` bytes and `cache_mib` MiB of page cache. Its free
/// blocks contain garbage.
pub fn volume(block: usize, cache_mib: Option<u64>) -> (Arc<MemoryDevice>, Filesystem) {
    let device = Arc::new(crate::common::mke2fs(24, &format!("-b {block} -O ^resize_inode")));
    full_of_garbage(device, cache_mib)
}

/// The same, with data checksums.
pub fn volume_with_data_csum(
    block: usize,
    cache_mib: Option<u64>,
) -> (Arc<MemoryDevice>, Filesystem) {
    let mib = if block > 4096 { 144 } else { 24 };
    let words =
        format!("-b {block} -O ^resize_inode -J size={}", if block > 4096 { 64 } else { 4 });
    let device = Arc::new(crate::common::mke2fs(mib, &words));
    let changes = extant::tune::Tune::default().features("data_csum").unwrap();
    let dynamic: Arc<dyn extant::BlockDevice> = device.clone();
    extant::tune::tune_device(&OpenOptions::new(), &dynamic, &changes).unwrap();
    full_of_garbage(device, cache_mib)
}

fn full_of_garbage(
    device: Arc<MemoryDevice>,
    cache_mib: Option<u64>,
) -> (Arc<MemoryDevice>, Filesystem) {
    {
        let fs = open(&device, None);
        let file = crate::common::new_file(&fs, "garbage");
        let full = vec![GARBAGE; 1 << 20];
        let mut at = 0;
        while let Ok(n) = file.write_at(&full, at) {
            at += n as u64;
        }
        drop(file);
        fs.remove_file("/garbage").unwrap();
        fs.close().unwrap();
    }
    let fs = open(&device, cache_mib);
    (device, fs)
}

/// Opens it for writing, with `cache_mib` MiB of page cache.
pub fn open(device: &Arc<MemoryDevice>, cache_mib: Option<u64>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None);
    options.page_cache_bytes(cache_mib.unwrap_or(0) << 20);
    options.open_device(device.clone()).unwrap()
}

/// The content of free blocks.
pub const GARBAGE: u8 = 0xEE;
