//! Embedding: a filesystem in memory, made, opened, read and checked, without a file or a mount.
//!
//!   cargo run --example embed
//!
//! A program with its own storage (a remote volume, a part of a file, an encrypted store)
//! implements `BlockDevice`; everything else is the same.

use extant::mkfs::{self, MkfsOptions};
use extant::{Environment, Filesystem, check};
use extant_blockdev::MemoryDevice;
use std::sync::Arc;

fn main() -> Result<(), extant::Error> {
    // Sparse: only what is written takes memory.
    let device = Arc::new(MemoryDevice::new(1 << 30));

    // Clock and randomness are inputs. `Environment::fixed` would make the same bytes each time.
    let options = MkfsOptions::new().label("scratch")?.features("metadata_csum_seed")?;
    let made = mkfs::format(device.clone(), &options, &Environment::default())?;
    println!("made {} blocks of {} bytes in {} groups", made.blocks, made.block_bytes, made.groups);

    // `Filesystem` is Send + Sync, and every method takes `&self`.
    let fs = Filesystem::open_device(device.clone())?;
    let space = fs.space();
    println!("{space:?}");
    for entry in fs.read_dir("/")? {
        println!("/{}", entry?.file_name().display());
    }
    // Errors name what and where, and contain an errno.
    let error = fs.read("/missing").expect_err("nothing is called that");
    println!("/missing: {error} (errno {})", error.errno());
    drop(fs);

    let report = check::check_device(device, &check::Options::default(), &())?;
    assert!(report.clean);
    println!("clean: {} inodes in use", report.stats.inodes_used);
    Ok(())
}
