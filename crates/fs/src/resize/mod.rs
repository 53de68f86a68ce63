//! Another size for a volume, with everything it holds.
//!
//! ```text
//!   grow     longer file ─► new groups laid down behind the old end ─► one step: counters, last
//!            group, descriptor table, superblock                    ─► backups
//!
//!   shrink   ┌──────────────── stays ───────────────┬── goes ──┐
//!            │ ▒▒▒  ▒ ░░                            │  ▒   ▒▒  │   blocks move down, file by file
//!            └──────────────────────────────────────┴──────────┘   inodes get numbers that stay
//!            then one step: last group, table, superblock ─► backups ─► shorter file
//! ```
//!
//! Rule D7: every step is a transaction of the volume's own log, and the volume is whole behind each.
//! Content is copied to free blocks before the step that points there commits. A cut anywhere leaves
//! a volume of the old size or of the new one, with all files, that any recovery replays. Without a
//! journal a cut can leave a volume that only a checker mends.
//!
//! The descriptor table grows into the blocks that `resize_inode` keeps; past those the volume turns
//! to `meta_bg`, as Linux does when it grows a mounted one.

mod backups;
mod free_map;
mod journal;
mod move_blocks;
mod move_inodes;
mod new_groups;
mod plan;
mod pointers;
mod references;
mod resize_inode;
mod shrink;
pub(crate) mod switch;
mod tree;

use crate::context::environment::Environment;
use crate::exclusive::{Devices, Exclusive};
use crate::filesystem::Filesystem;
use crate::open::OpenOptions;
use extant_base::{Error, Result};
use extant_blockdev::{BlockDevice, FileDevice};
use extant_ondisk::features::RoCompat;
use std::path::Path;
use std::sync::Arc;

/// How large a volume is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many blocks. A file becomes longer or shorter; a block device must hold them.
    Blocks(u64),
    /// So many bytes, rounded down to whole blocks.
    Bytes(u64),
    /// As small as what it holds allows: see [`minimum`].
    Minimum,
    /// As large as the file or block device is now.
    Device,
}

/// What a change of size did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Blocks before.
    pub from_blocks: u64,
    /// Blocks now. Less than asked for where the last group would have held its own metadata only.
    pub to_blocks: u64,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Blocks of content, and of what leads to it, that were moved.
    pub moved_blocks: u64,
    /// Inodes that got other numbers.
    pub moved_inodes: u64,
    /// The descriptor table outgrew its reserve: new groups carry their own (`meta_bg`).
    pub now_meta_bg: bool,
}

/// How far a change of size is: (done, all), in blocks looked at.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Gives the volume in a file or block device another size.
///
/// The volume is recovered first if it must be. Errors: `Busy` when somebody else uses it;
/// `Unsupported` for a volume with a feature that is not kept here; `NoSpace` when what it holds
/// does not fit, `Invalid` for a size no volume can have, `NotSupported` when a step does not fit
/// its journal: it is whole and of its old size then; `Corrupt`, `Device`.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::resize::{Size, resize};
/// let done = resize("disk.img", Size::Minimum, &mut |_, _| {})?;
/// println!("{} blocks", done.to_blocks);
/// # Ok::<(), extant::Error>(())
/// ```
pub fn resize(path: impl AsRef<Path>, size: Size, progress: Progress<'_>) -> Result<Resized> {
    resize_with(&OpenOptions::new(), path, size, progress)
}

/// As [`resize`], opened as `open` says: with the device of an external journal, which a volume that
/// has one needs.
///
/// Errors: also `JournalElsewhere` when that was not given; `Invalid` for a volume inside an image.
pub fn resize_with(
    open: &OpenOptions,
    path: impl AsRef<Path>,
    size: Size,
    progress: Progress<'_>,
) -> Result<Resized> {
    if open.start() != 0 {
        return Err(Error::Invalid("a volume that begins inside its file keeps its size"));
    }
    if open.has_members() {
        return Err(Error::NotSupported("a volume on several devices keeps its size"));
    }
    open.change_file(path.as_ref(), |file, devices| {
        resize_file(file, devices, size, open.its_environment(), progress)
    })
}

fn resize_file(
    file: &FileDevice,
    devices: &Devices,
    size: Size,
    environment: &Environment,
    progress: Progress<'_>,
) -> Result<Resized> {
    let before = file.len();
    let lengthen = &mut |bytes: u64| match file.is_block_device() {
        true => Err(Error::Invalid("the block device is smaller than that")),
        false => file.set_len(bytes),
    };
    let done = run(devices, size, environment, lengthen, progress);
    let bytes = match &done {
        Ok(done) => done.to_blocks * done.block_bytes as u64,
        // What was made longer in vain; a volume that has its new size already needs it, and one
        // that needs recovery may get it.
        Err(_) => match crate::context::superblock::read_superblock(&*devices.volume, None) {
            Ok(sb) if !sb.needs_recovery() && sb.blocks_count << sb.block_size.log2() <= before => {
                before
            }
            _ => u64::MAX,
        },
    };
    let asked_for_device = size == Size::Device;
    if !file.is_block_device() && file.len() > bytes && !asked_for_device {
        file.set_len(bytes)?;
        file.flush()?;
    }
    done
}

/// As [`resize_with`], for a volume on any device: one that is long enough already, and stays so.
pub fn resize_device(
    open: &OpenOptions,
    device: &Arc<dyn BlockDevice>,
    size: Size,
    progress: Progress<'_>,
) -> Result<Resized> {
    let short = &mut |_| Err(Error::Invalid("the device is smaller than that"));
    open.change_whole(Arc::clone(device), b"", |devices| {
        run(devices, size, open.its_environment(), short, progress)
    })
}

/// The least number of blocks that hold what the volume holds, with a little room to move it in.
///
/// Errors: `Corrupt`, `Device`.
pub fn minimum(fs: &Filesystem) -> Result<u64> {
    plan::minimum(fs.volume())
}

fn run(
    devices: &Devices,
    size: Size,
    environment: &Environment,
    lengthen: &mut dyn FnMut(u64) -> Result<()>,
    progress: Progress<'_>,
) -> Result<Resized> {
    let device = &devices.volume;
    let sb = Exclusive::check(devices)?;
    if sb.features.ro_compat.contains(RoCompat::DATA_CSUM) {
        return Err(Error::NotSupported(
            "sums of data lie by place: turn data_csum off, resize, and turn it on again",
        ));
    }
    let bs = sb.block_size;
    let wish = match size {
        Size::Blocks(blocks) => blocks,
        Size::Bytes(bytes) => bytes >> bs.log2(),
        Size::Device => device.len() >> bs.log2(),
        Size::Minimum => 0,
    };
    let mut done = Resized {
        from_blocks: sb.blocks_count,
        to_blocks: sb.blocks_count,
        block_bytes: bs.bytes(),
        moved_blocks: 0,
        moved_inodes: 0,
        now_meta_bg: false,
    };
    if wish < sb.blocks_count {
        let least = (size != Size::Minimum).then(|| plan::fit(&sb, wish)).transpose()?;
        let result = shrink_in_rounds(devices, least, environment, &mut done, progress);
        if matches!(result, Err(Error::NoSpace)) && done.to_blocks < sb.blocks_count {
            grow(devices, sb.blocks_count, environment)?;
        }
        return result.map(|()| done);
    }
    let blocks = plan::fit(&sb, wish)?;
    if blocks == sb.blocks_count {
        return Ok(done);
    }
    let bytes = blocks.checked_mul(bs.bytes() as u64).ok_or(Error::FileTooLarge)?;
    if device.len() < bytes {
        lengthen(bytes)?;
    }
    let all = blocks - sb.blocks_count;
    progress(0, all);
    done.now_meta_bg = grow(devices, blocks, environment)?;
    done.to_blocks = blocks;
    progress(all, all);
    Ok(done)
}

/// Makes a volume larger; whether it turned to `meta_bg`.
fn grow(devices: &Devices, blocks: u64, environment: &Environment) -> Result<bool> {
    let old = Exclusive::check(devices)?;
    let new = plan::geometry(&old, blocks)?;
    let turned = new.features.incompat != old.features.incompat;
    changed(devices, environment, |exclusive| switch::to(exclusive, new, None))?;
    Ok(turned)
}

/// Has `change` change the volume, which is marked as being changed meanwhile. What it did not settle is dropped.
fn changed(
    devices: &Devices,
    environment: &Environment,
    change: impl FnOnce(&mut Exclusive) -> Result<()>,
) -> Result<()> {
    let mut exclusive = Exclusive::begin(devices, environment)?;
    let done = change(&mut exclusive);
    let finished = exclusive.finish();
    done.and(finished)
}

/// Makes a volume smaller, to `least` blocks or as far as it goes. The tables of groups that go may
/// lie where room is needed: then it becomes smaller in several rounds, whole behind each.
fn shrink_in_rounds(
    devices: &Devices,
    least: Option<u64>,
    environment: &Environment,
    done: &mut Resized,
    progress: Progress<'_>,
) -> Result<()> {
    loop {
        let sb = Exclusive::check(devices)?;
        let can = plan::minimum_of(&devices.volume)?;
        let blocks = can.max(least.unwrap_or(0));
        if blocks >= sb.blocks_count {
            return match least {
                Some(least) if least < sb.blocks_count => Err(Error::NoSpace),
                _ => Ok(()),
            };
        }
        let new = plan::geometry(&sb, blocks)?;
        changed(devices, environment, |exclusive| shrink::run(exclusive, new, done, progress))?;
        done.to_blocks = blocks;
        if least == Some(blocks) {
            return Ok(());
        }
    }
}
