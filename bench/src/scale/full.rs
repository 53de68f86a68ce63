//! A volume without a free block.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use extant::mkfs::{InodeCount, MkfsOptions, format};
use extant::{BlockSize, Environment, Error, Filesystem, NewFile};

use super::{Meter, check, open, sparse_file};
use crate::rig::scatter;

const BLOCK: u64 = 4096;
/// Failed writes in a step.
const REFUSALS: u64 = 200;

/// Fills half with one large file and the rest with files of one block, then makes changes.
pub(crate) fn run(dir: &Path, mib: u64, meter: &Meter) -> Result<()> {
    let device = sparse_file(dir, mib << 20)?;
    let blocks = (mib << 20) / BLOCK;
    let options = MkfsOptions::new()
        .block_size(BlockSize::from_bytes(BLOCK as u32).expect("4096 is one"))
        .inodes(InodeCount::AtLeast(blocks as u32));
    format(Arc::clone(&device), &options, &Environment::default())?;
    let fs = open(&device)?;
    let half = fs.space().free / 2;
    let large = fs.create_file("/large", &NewFile::default())?.open()?;
    meter.step("write a large file", (half, "block"), || {
        let bytes = vec![7; 1 << 20];
        for at in (0..half * BLOCK).step_by(bytes.len()) {
            large.write_all_at(&bytes, at)?;
        }
        Ok(large.sync_all()?)
    })?;
    let small = Smalls { fs: &fs, per_dir: 1000 };
    let most = fs.space().free;
    let made = meter.step("small files to the last block", (most, "file"), || small.fill(0))?;
    meter.step("be refused", (REFUSALS, "file"), || {
        for _ in 0..REFUSALS {
            ensure!(!small.write(made)?, "a block was left");
        }
        Ok(())
    })?;
    meter.finding(&format!(
        "{made} small files; {} blocks stay free: kept back for maps and names that files in use still need",
        fs.space().free
    ));
    let n = made.min(20_000);
    let some = (0..n).map(|n| scatter(n as usize, made as usize) as u64);
    meter.step("rewrite small files", (n, "file"), || {
        some.clone().try_for_each(|n| match small.write(n) {
            Ok(true) => Ok(()),
            Ok(false) => bail!("no room to write over {n}"),
            Err(error) => Err(error),
        })?;
        Ok(fs.sync()?)
    })?;
    meter.step("rewrite the large file at random", (n, "block"), || {
        for n in 0..n {
            let at = scatter(n as usize, half as usize) as u64 * BLOCK;
            large.write_all_at(&[9; BLOCK as usize], at)?;
        }
        Ok(large.sync_all()?)
    })?;
    for round in ["", ", again"] {
        meter.step(&format!("remove small files{round}"), (n, "file"), || {
            some.clone().try_for_each(|n| fs.remove_file(small.path(n)))?;
            Ok(fs.sync()?)
        })?;
        ensure!(fs.space().free >= n, "{} blocks are free of {n}", fs.space().free);
        meter.step(&format!("make them again{round}"), (n, "file"), || {
            for n in some.clone() {
                ensure!(small.write(n)?, "no room for {n}, which had some");
            }
            Ok(fs.sync()?)
        })?;
    }
    let free = fs.space().free;
    drop(large);
    fs.close()?;
    meter.step("check", (blocks, "block"), || check(&device))?;
    let fs = open(&device)?;
    ensure!(fs.space().free == free, "{} blocks free, {free} before", fs.space().free);
    meter.step("remove the large file", (half, "block"), || {
        fs.remove_file("/large")?;
        Ok(fs.sync()?)
    })?;
    ensure!(fs.space().free >= half + free, "{} blocks free after it", fs.space().free);
    fs.close()?;
    check(&device).map(drop)
}

/// Files of one block, in many directories.
struct Smalls<'a> {
    fs: &'a Filesystem,
    per_dir: u64,
}

impl Smalls<'_> {
    fn path(&self, n: u64) -> String {
        format!("/d{}/{}", n / self.per_dir, n % self.per_dir)
    }

    /// Creates files until there is no free space. Returns how many exist.
    fn fill(&self, from: u64) -> Result<u64> {
        let mut n = from;
        loop {
            if n.is_multiple_of(self.per_dir) {
                match self.fs.create_dir(format!("/d{}", n / self.per_dir), &NewFile::directory()) {
                    Ok(_) => {}
                    Err(Error::NoSpace) => return Ok(n),
                    Err(error) => return Err(error.into()),
                }
            }
            if !self.write(n)? {
                return Ok(n);
            }
            n += 1;
        }
    }

    /// Creates file `n`, or overwrites it. Returns whether there was space.
    fn write(&self, n: u64) -> Result<bool> {
        let path = self.path(n);
        let old = self.fs.node(&path);
        let file = match old {
            Ok(node) => node,
            Err(Error::NotFound) => match self.fs.create_file(&path, &NewFile::default()) {
                Ok(node) => node,
                Err(Error::NoSpace | Error::NotFound) => return Ok(false),
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        };
        match file.open()?.write_all_at(&[n as u8; BLOCK as usize], 0) {
            Ok(()) => Ok(true),
            Err(Error::NoSpace) => {
                self.fs.remove_file(&path).context("taking an empty file back")?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
