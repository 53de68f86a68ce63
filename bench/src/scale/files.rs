//! Files of 16 TiB, and files in very many pieces.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use extant::mkfs::{MkfsOptions, format};
use extant::{BlockDevice, Environment, FallocateMode, NewFile};

use super::{Meter, check, open, sparse_file};
use crate::rig::scatter;

const BLOCK: u64 = 4096;
/// Largest number of lookups and seeks in a step.
const LOOKUPS: u64 = 20_000;

fn volume(dir: &Path) -> Result<Arc<dyn BlockDevice>> {
    let device = sparse_file(dir, 32 << 30)?;
    format(Arc::clone(&device), &MkfsOptions::new(), &Environment::default())?;
    Ok(device)
}

/// Writes `blocks` blocks, evenly spaced, in a file of the greatest possible length.
pub(crate) fn sparse(dir: &Path, blocks: u64, meter: &Meter) -> Result<()> {
    let device = volume(dir)?;
    let apart = ((1 << 32) - 2) / blocks * BLOCK;
    let fs = open(&device)?;
    let file = fs.create_file("/sparse", &NewFile::default())?.open()?;
    file.set_len((1 << 44) - BLOCK)?;
    meter.step("write and sync", (blocks, "block"), || {
        let bytes = [7; BLOCK as usize];
        (0..blocks).try_for_each(|n| file.write_all_at(&bytes, n * apart))?;
        Ok(file.sync_all()?)
    })?;
    drop(file);
    fs.close()?;
    let fs = open(&device)?;
    let file = fs.open_file("/sparse")?;
    let n = LOOKUPS.min(blocks);
    let random = (0..n).map(|n| scatter(n as usize, blocks as usize) as u64);
    meter.step("read data at random", (n, "block"), || {
        let mut bytes = [0; BLOCK as usize];
        for n in random.clone() {
            file.read_at(&mut bytes, n * apart)?;
            ensure!(bytes == [7; BLOCK as usize], "the block at {} is another", n * apart);
        }
        Ok(())
    })?;
    meter.step("read holes at random", (n, "block"), || {
        let mut bytes = [1; BLOCK as usize];
        for n in random.clone() {
            file.read_at(&mut bytes, n * apart + apart / 2)?;
            ensure!(bytes == [0; BLOCK as usize], "the hole behind {} is none", n * apart);
        }
        Ok(())
    })?;
    meter.step("seek data and hole", (n, "block"), || {
        let mut at = 0;
        for k in 0..n {
            let data = file.seek_data(at)?.context("data")?;
            ensure!(data == k * apart, "data at {data}, not at {}", k * apart);
            at = file.seek_hole(data)?.context("a hole")?;
        }
        Ok(())
    })?;
    drop(file);
    meter.step("remove and sync", (blocks, "block"), || {
        fs.remove_file("/sparse")?;
        Ok(fs.sync()?)
    })?;
    fs.close()?;
    check(&device).map(drop)
}

/// Every other block of a file: first written one by one, then by punching holes into a complete
/// file.
pub(crate) fn extents(dir: &Path, extents: u64, meter: &Meter) -> Result<()> {
    let device = volume(dir)?;
    let fs = open(&device)?;
    let file = fs.create_file("/written", &NewFile::default())?.open()?;
    meter.step("write and sync", (extents, "extent"), || {
        let bytes = [7; BLOCK as usize];
        (0..extents).try_for_each(|n| file.write_all_at(&bytes, 2 * n * BLOCK))?;
        Ok(file.sync_all()?)
    })?;
    drop(file);
    fs.close()?;
    let fs = open(&device)?;
    let file = fs.open_file("/written")?;
    let lookups = LOOKUPS.min(extents);
    meter.step("look up at random", (lookups, "extent"), || {
        for n in 0..lookups {
            let at = 2 * BLOCK * scatter(n as usize, extents as usize) as u64;
            let found = file.extent_at(at)?.context("an extent")?;
            ensure!(found.offset == at, "the extent at {at} starts at {}", found.offset);
        }
        Ok(())
    })?;
    let listed = meter.step("list", (extents, "extent"), || Ok(file.extents()?.len() as u64))?;
    ensure!(listed == extents, "{listed} extents of {extents}");
    drop(file);
    let file = fs.create_file("/punched", &NewFile::default())?.open()?;
    file.allocate(FallocateMode::Allocate, 0, 2 * extents * BLOCK)?;
    meter.step("punch at random", (extents, "extent"), || {
        for n in 0..extents {
            let at = 2 * BLOCK * scatter(n as usize, extents as usize) as u64;
            file.allocate(FallocateMode::PunchHole, at, BLOCK)?;
        }
        Ok(())
    })?;
    drop(file);
    fs.close()?;
    meter.step("check, both files", (2 * extents, "extent"), || check(&device))?;
    let fs = open(&device)?;
    for (name, step) in [("/written", "remove the written"), ("/punched", "remove the punched")] {
        meter.step(step, (extents, "extent"), || {
            fs.remove_file(name)?;
            Ok(fs.sync()?)
        })?;
    }
    fs.close()?;
    check(&device).map(drop)
}
