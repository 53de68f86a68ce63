//! A small volume with any bytes changed, then the script of `tests/compat`'s hostile writes on it.
//!
//! ```text
//!   input: seed (1 byte), then changes of 5 bytes: where, in units of 4 (3 bytes), what (2 bytes)
//! ```
#![no_main]

#[path = "../../tests/compat/tests/hostile_write/script.rs"]
mod script;

use extant::mkfs::{MkfsOptions, format};
use extant::{BlockDevice, BlockSize, Environment, MemoryDevice, NewFile, OpenOptions};
use extant_base::ByteOffset;
use std::sync::{Arc, OnceLock};

const SIZE: u64 = 2 << 20;

/// Volumes with and without checksums, with what the script looks for in them.
fn volumes() -> &'static [Vec<u8>; 2] {
    static VOLUMES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    VOLUMES.get_or_init(|| ["quota,project", "^metadata_csum,inline_data,quota"].map(volume))
}

fn volume(features: &str) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let block = BlockSize::from_bytes(1024).expect("a size there is");
    let options = MkfsOptions::new().features(features).expect("features there are");
    format(device.clone(), &options.block_size(block), &Environment::default()).expect("it fits");
    let fs = OpenOptions::new().write(true).open_device(device.clone()).expect("it is whole");
    let (file, dir) = (NewFile::default(), NewFile::directory());
    for name in ["victims", "victims/deep", "victims/deep/er", "victims/many"] {
        fs.create_dir(name, &dir).expect("room");
    }
    for (name, len) in [("tiny", 40), ("block", 1024), ("medium", 9000), ("large", 60_000)] {
        for place in ["victims", "victims/deep"] {
            let made = fs.create_file(format!("{place}/{name}"), &file).expect("room");
            made.open().and_then(|file| file.write_all_at(0, &vec![7; len])).expect("room");
        }
    }
    let holes = fs.create_file("victims/holes", &file).and_then(|made| made.open()).expect("room");
    for n in 0..20 {
        holes.write_all_at(n * 9000, b"a block").expect("room");
    }
    drop(holes);
    for n in 0..60 {
        let name = format!("victims/many/a name that fills its directory's blocks {n:03}");
        fs.create_file(name, &file).expect("room");
    }
    fs.close().expect("it is whole");
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(ByteOffset(0), &mut bytes).expect("memory");
    bytes
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&seed, changes)) = data.split_first() else { return };
    let mut bytes = volumes()[usize::from(seed & 1)].clone();
    for change in changes.chunks_exact(5).take(16) {
        let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize * 4;
        let at = at % (bytes.len() - 1);
        bytes[at..at + 2].copy_from_slice(&change[3..5]);
    }
    let device = Arc::new(MemoryDevice::from_bytes(&bytes));
    let mut options = OpenOptions::new();
    let Ok(fs) = options.write(true).cache_bytes(1 << 20).open_device(device) else { return };
    script::run(&fs, seed.into(), &mut |_, error| assert!(!error.to_string().is_empty()));
    let _ = fs.close();
});
