//! Volumes on two mirrors in memory.

use super::pattern;
use super::seen::{Tree, differences, tree};
use extant::mkfs::{self, JournalSize, MkfsOptions};
use extant::raid::{Assembled, Mirror, Opening, Part, Wanted, assemble, create};
use extant::{
    BlockDevice, BlockSize, Environment, Filesystem, MemoryDevice, NewFile, OpenOptions, XattrMode,
};
use extant_base::ByteOffset;
use std::sync::Arc;

/// The size of the volume in bytes.
pub const LEN: u64 = 24 << 20;

pub fn parts<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Vec<Part> {
    let part = |(n, device): (usize, &Arc<D>)| Part::new(Arc::clone(device) as _, format!("m{n}"));
    devices.iter().enumerate().map(part).collect()
}

pub fn mirror<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Arc<Mirror> {
    // One request after the other, so that a run can be repeated.
    let opening = Opening { together: false, ..Opening::write() };
    match assemble(parts(devices), opening).unwrap() {
        Assembled::Mirrored(mirror) => mirror,
        _ => panic!("no mirror"),
    }
}

pub fn open(device: Arc<dyn BlockDevice>, cache_mib: u64) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(cache_mib << 20);
    options.open_device(device).unwrap()
}

/// Two mirrors with files of every kind, closed.
pub fn made(block: u32, features: &str) -> Vec<Arc<MemoryDevice>> {
    let devices: Vec<_> = (0..2).map(|_| Arc::new(MemoryDevice::new(LEN))).collect();
    create(&parts(&devices), Wanted::Mirrored { alike: true }, [7; 16], LEN).unwrap();
    let options = MkfsOptions::new().block_size(BlockSize::from_bytes(block).unwrap());
    let options = options.journal(JournalSize::Blocks(1024)).features(features).unwrap();
    mkfs::format(mirror(&devices), &options, &Environment::default()).unwrap();
    let fs = open(mirror(&devices), 8);
    let root = fs.root().unwrap();
    let dir = root.create_dir("many", &NewFile::directory()).unwrap();
    for n in 0..300 {
        dir.create_file(format!("{n:-<120}"), &NewFile::default()).unwrap();
    }
    for n in 0..40u8 {
        let name = format!("file{n}");
        let file = root.create_file(&name, &NewFile::default()).unwrap().open().unwrap();
        file.write_all_at(&pattern(usize::from(n) * 2500, n), 0).unwrap();
        fs.set_xattr(format!("/{name}"), "user.a", &pattern(300, n), XattrMode::Any).unwrap();
    }
    // Fragmented so much that its map needs its own blocks.
    let torn = root.create_file("torn", &NewFile::default()).unwrap().open().unwrap();
    for n in 0..400 {
        torn.write_all_at(&pattern(block as usize, n as u8), n * 2 * u64::from(block)).unwrap();
    }
    fs.symlink("t".repeat(200), "/link", &NewFile::default()).unwrap();
    drop((torn, dir, root));
    fs.close().unwrap();
    devices
}

pub fn copies(devices: &[Arc<MemoryDevice>]) -> Vec<Arc<MemoryDevice>> {
    devices.iter().map(|device| Arc::new(MemoryDevice::clone(device))).collect()
}

pub fn byte(device: &MemoryDevice, at: u64) -> u8 {
    let mut byte = [0];
    device.read_at(ByteOffset(at), &mut byte).unwrap();
    byte[0]
}

/// Reads twice, so that both mirrors are read.
pub fn expect_same(fs: &Filesystem, want: &Tree, context: &str) {
    for _ in 0..2 {
        let found = tree(fs).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(differences(want, &found), [""; 0], "{context}");
    }
}
