//! Far more data than fits into memory: peak memory against the given limits.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use extant::mkfs::{InodeCount, MkfsOptions, format};
use extant::{Environment, NewFile, OpenOptions};

use super::{BESIDES, Meter, check, sparse_file};

/// Memory for metadata.
const METADATA: usize = 16 << 20;
/// Memory for file data.
const BYTES: u64 = 64 << 20;

/// One file of `mib` MiB, and 256 small files for each MiB.
pub(crate) fn run(dir: &Path, mib: u64, meter: &Meter) -> Result<()> {
    let files = mib * 256;
    let device = sparse_file(dir, (4 * mib + 1024) << 20)?;
    let options = MkfsOptions::new().inodes(InodeCount::AtLeast(files as u32 + 2000));
    format(Arc::clone(&device), &options, &Environment::default())?;
    let mut options = OpenOptions::new();
    options.write(true).cache_bytes(METADATA).page_cache_bytes(BYTES);
    let fs = options.open_device(Arc::clone(&device))?;
    let file = fs.create_file("/large", &NewFile::default())?.open()?;
    let mut bytes = vec![7; 1 << 20];
    meter.step("write a large file", (mib, "MiB"), || {
        (0..mib).try_for_each(|n| file.write_all_at(&bytes, n << 20))?;
        Ok(file.sync_all()?)
    })?;
    meter.step("read it", (mib, "MiB"), || {
        (0..mib).try_for_each(|n| Ok(file.read_at(&mut bytes, n << 20).map(drop)?))
    })?;
    meter.step("write small files", (files, "file"), || {
        for n in 0..files {
            if n % 1000 == 0 {
                fs.create_dir(format!("/d{}", n / 1000), &NewFile::directory())?;
            }
            let path = format!("/d{}/{n}", n / 1000);
            fs.create_file(path, &NewFile::default())?.open()?.write_all_at(&[1; 2000], 0)?;
        }
        Ok(fs.sync()?)
    })?;
    meter.step("read them", (files, "file"), || {
        for n in 0..files {
            fs.read(format!("/d{}/{n}", n / 1000))?;
        }
        Ok(())
    })?;
    drop(file);
    fs.close()?;
    meter.step("check", (files, "file"), || check(&device))?;
    meter.verdict(METADATA as u64 + BYTES, BESIDES)
}
