//! Volumes of many terabytes: several sparse files joined, so that this system need not support
//! such long files.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use extant::mkfs::{MkfsOptions, format};
use extant::{BlockDevice, Environment, FallocateMode, File, FileDevice, Filesystem, NewFile};
use extant_base::ByteOffset;

use super::{Meter, check, open};

/// Size of one file of the device in bytes.
const FILE: u64 = 8 << 40;
/// Size of one allocation in bytes.
const PIECE: u64 = 64 << 10;
/// Allocations in a step.
const CALLS: u64 = 20_000;
/// The longest file with blocks of 4 KiB.
const LONGEST: u64 = (1 << 44) - 4096;

/// Consecutive files as one device.
struct Joined {
    files: Vec<FileDevice>,
    len: u64,
}

impl Joined {
    fn create(dir: &Path, len: u64) -> Result<Joined> {
        let files = (0..len.div_ceil(FILE)).map(|n| {
            Ok(FileDevice::create(dir.join(format!("{n}.img")), FILE.min(len - n * FILE))?)
        });
        Ok(Joined { files: files.collect::<Result<_>>()?, len })
    }

    /// The pieces of a range: the file, the offset in it, the length.
    fn pieces(&self, at: u64, len: u64) -> impl Iterator<Item = (&FileDevice, ByteOffset, u64)> {
        let mut from = at;
        std::iter::from_fn(move || {
            let (file, within) = ((from / FILE) as usize, from % FILE);
            let n = (at + len - from).min(FILE - within);
            from += n;
            (n > 0).then(|| (&self.files[file], ByteOffset(within), n))
        })
    }
}

impl BlockDevice for Joined {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant::Result<()> {
        let mut rest = buf;
        for (file, at, n) in self.pieces(at.0, rest.len() as u64) {
            let (piece, after) = rest.split_at_mut(n as usize);
            file.read_at(at, piece)?;
            rest = after;
        }
        Ok(())
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        let mut rest = buf;
        for (file, at, n) in self.pieces(at.0, rest.len() as u64) {
            let (piece, after) = rest.split_at(n as usize);
            file.write_at(at, piece)?;
            rest = after;
        }
        Ok(())
    }

    fn flush(&self) -> extant::Result<()> {
        self.files.iter().try_for_each(BlockDevice::flush)
    }

    fn discard(&self, at: ByteOffset, len: u64) -> extant::Result<()> {
        self.pieces(at.0, len).try_for_each(|(file, at, n)| file.discard(at, n))
    }

    fn zero(&self, at: ByteOffset, len: u64) -> extant::Result<()> {
        self.pieces(at.0, len).try_for_each(|(file, at, n)| file.zero(at, n))
    }
}

/// Number of groups of a volume of `tib` TiB.
pub(super) fn groups(tib: u64) -> u64 {
    tib << 13
}

/// Makes the volume.
fn make(dir: &Path, tib: u64, meter: &Meter) -> Result<Arc<dyn BlockDevice>> {
    let device: Arc<dyn BlockDevice> = Arc::new(Joined::create(dir, tib << 40)?);
    meter.step("mkfs", (groups(tib), "group"), || {
        format(Arc::clone(&device), &MkfsOptions::new(), &Environment::default())?;
        Ok(device.flush()?)
    })?;
    Ok(device)
}

/// The first allocation after opening, and those that follow, for one new file.
fn allocations(fs: &Filesystem, name: &str, full: &str, meter: &Meter) -> Result<()> {
    let file = fs.create_file(name, &NewFile::default())?.open()?;
    meter.step(&format!("first allocation, {full}"), (1, "call"), || allocate(&file, 0))?;
    meter.step(&format!("64 KiB more, {full}"), (CALLS, "call"), || {
        (1..=CALLS).try_for_each(|n| allocate(&file, n))
    })
}

fn allocate(file: &File, piece: u64) -> Result<()> {
    Ok(file.allocate(FallocateMode::Allocate, piece * PIECE, PIECE)?)
}

/// A new volume: made, opened, used, closed, opened again, checked.
pub(crate) fn fresh(dir: &Path, tib: u64, meter: &Meter) -> Result<()> {
    let device = make(dir, tib, meter)?;
    let fs = meter.step("first open", (groups(tib), "group"), || open(&device))?;
    allocations(&fs, "/timed", "empty", meter)?;
    meter.step("create", (CALLS, "file"), || {
        let root = fs.root()?;
        let each = |n| Ok(root.create_file(format!("f{n}"), &NewFile::default()).map(drop)?);
        (0..CALLS).try_for_each(each)
    })?;
    meter.step("first statfs", (1, "call"), || Ok(fs.space()))?;
    meter.step("statfs", (CALLS, "call"), || {
        (0..CALLS).for_each(|_| {
            std::hint::black_box(fs.space());
        });
        Ok(())
    })?;
    meter.step("close", (1, "call"), || Ok(fs.close()?))?;
    let fs = meter.step("open", (groups(tib), "group"), || open(&device))?;
    meter.step("close unchanged", (1, "call"), || Ok(fs.close()?))?;
    meter.step("check", (groups(tib), "group"), || check(&device))?;
    Ok(())
}

/// Long files until 50 and 99 % are in use. Allocations at each level, on a volume that was just
/// opened.
pub(crate) fn filled(dir: &Path, tib: u64, meter: &Meter) -> Result<()> {
    let device = make(dir, tib, meter)?;
    let fs = open(&device)?;
    allocations(&fs, "/timed-0", "empty", meter)?;
    fs.close()?;
    let mut fillers = 0;
    for percent in [50, 99] {
        let fs = open(&device)?;
        let space = fs.space();
        let (all, free) = (space.blocks, space.free);
        let mut bytes =
            free.saturating_sub(all - all / 100 * percent) * u64::from(space.block_bytes);
        let filled = (bytes >> 27).max(1);
        meter.step(&format!("fill, to {percent} %"), (filled, "group"), || {
            while bytes > 0 {
                let n = bytes.min(LONGEST);
                let file =
                    fs.create_file(format!("/filler-{fillers}"), &NewFile::default())?.open()?;
                file.allocate(FallocateMode::Allocate, 0, n)?;
                (bytes, fillers) = (bytes - n, fillers + 1);
            }
            Ok(fs.sync()?)
        })?;
        meter.step(&format!("close, {percent} % full"), (1, "call"), || Ok(fs.close()?))?;
        let fs = meter
            .step(&format!("open, {percent} % full"), (groups(tib), "group"), || open(&device))?;
        allocations(&fs, &format!("/timed-{percent}"), &format!("{percent} % full"), meter)?;
        fs.close()?;
    }
    meter.step("check, 99 % full", (groups(tib), "group"), || check(&device))?;
    let fs = open(&device)?;
    meter.step("remove all", (groups(tib), "group"), || {
        (0..fillers).try_for_each(|n| fs.remove_file(format!("/filler-{n}")))?;
        Ok(fs.close()?)
    })
}
