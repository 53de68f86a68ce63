//! Changing the size of a volume, with all its content.
//!
//! ```text
//!   grow     longer file ─► new groups written after the old end ─► one transaction: counters,
//!            last group, descriptor table, superblock              ─► backups
//!
//!   shrink   ┌─────────────── remains ──────────────┬─ removed ┐
//!            │ ▒▒▒  ▒ ░░                            │  ▒   ▒▒  │   blocks move down, file by file
//!            └──────────────────────────────────────┴──────────┘   inodes get numbers that remain
//!            then one transaction: last group, table, superblock ─► backups ─► shorter file
//! ```
//!
//! Rule D7: every step is one transaction of the volume's own log, and the volume is consistent
//! after each. Content is copied to free blocks before the step that makes maps point there
//! commits. A power cut at any time leaves a volume of the old or the new size, with all files,
//! that any recovery can replay. Without a journal, a power cut can leave a volume that needs a
//! checker to repair it.
//!
//! The descriptor table grows into the blocks that `resize_inode` reserves. Beyond them the volume
//! changes to `meta_bg`, as Linux does when it grows a mounted volume.

mod backups;
mod free_map;
mod grow;
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

use crate::api::filesystem::Filesystem;
use crate::context::environment::Environment;
use crate::open::OpenOptions;
use crate::open::exclusive::{Devices, Exclusive};
use crate::progress::{Phase, Progress};
use extant_base::{Error, Result};
use extant_blockdev::{BlockDevice, FileDevice};
use extant_ondisk::features::RoCompat;
use extant_ondisk::superblock::Superblock;
pub use grow::grow;
use std::path::Path;
use std::sync::Arc;

/// The size that a volume is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// This many blocks. A file becomes longer or shorter; a block device must be large enough.
    Blocks(u64),
    /// This many bytes, rounded down to whole blocks.
    Bytes(u64),
    /// As small as the content allows: see [`minimum`].
    Minimum,
    /// As large as the file or block device is now.
    Device,
}

/// The result of a change of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resized {
    /// Blocks before.
    pub from_blocks: u64,
    /// Blocks now. Fewer than requested if the last group would have contained only its own
    /// metadata.
    pub to_blocks: u64,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// How many blocks of content and of maps were moved.
    pub moved_blocks: u64,
    /// How many inodes got other numbers.
    pub moved_inodes: u64,
    /// The descriptor table outgrew its reserved blocks, so new groups have their own descriptors
    /// (`meta_bg`).
    pub now_meta_bg: bool,
}

impl Resized {
    /// The size before anything was done.
    fn unchanged(sb: &Superblock) -> Resized {
        Resized {
            from_blocks: sb.blocks_count,
            to_blocks: sb.blocks_count,
            block_bytes: sb.block_size.bytes(),
            moved_blocks: 0,
            moved_inodes: 0,
            now_meta_bg: false,
        }
    }
}

/// Changes the size of the volume in a file or block device.
///
/// A volume that needs recovery is recovered first.
///
/// # Errors
/// `Busy` if the volume is in use; `Unsupported` for a volume with a feature that a change of size
/// does not support; `NoSpace` if the content does not fit, `Invalid` for a size that is
/// impossible, `NotSupported` if a step does not fit into the journal: after these three the volume
/// is consistent and has its old size; `Corrupt`, `Device`.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::resize::{Size, resize};
/// let done = resize("disk.img", Size::Minimum, &())?;
/// println!("{} blocks", done.to_blocks);
/// # Ok::<(), extant::Error>(())
/// ```
pub fn resize(path: impl AsRef<Path>, size: Size, progress: &dyn Progress) -> Result<Resized> {
    resize_with(&OpenOptions::new(), path, size, progress)
}

/// As [`resize`], but opens the volume with the options `open`. For a volume with an external
/// journal, they must contain the journal's device.
///
/// # Errors
/// As [`resize`]; `JournalElsewhere` without that device; `Invalid` for a volume inside an image.
pub fn resize_with(
    open: &OpenOptions,
    path: impl AsRef<Path>,
    size: Size,
    progress: &dyn Progress,
) -> Result<Resized> {
    if open.has_members() {
        return Err(Error::NotSupported("a volume on several devices keeps its size"));
    }
    open.change_file(path.as_ref(), |file, devices| {
        resize_file(file, devices, size, open.environment_used(), progress)
    })
}

fn resize_file(
    file: &FileDevice,
    devices: &Devices,
    size: Size,
    environment: &Environment,
    progress: &dyn Progress,
) -> Result<Resized> {
    let before = file.len();
    if devices.volume.len() != before {
        return Err(Error::Invalid("a volume that is a part of its file keeps its size"));
    }
    let lengthen = &mut |bytes: u64| match file.is_block_device() {
        true => Err(Error::Invalid("the block device is smaller than that")),
        false => file.set_len(bytes),
    };
    let done = run(devices, size, environment, lengthen, progress);
    let bytes = match &done {
        Ok(done) => done.to_blocks * done.block_bytes as u64,
        // Undo lengthening the file, unless the volume has its new size already, or may get it in
        // recovery.
        Err(_) => match crate::context::superblock::read_superblock(&*devices.volume, None) {
            Ok(sb) if !sb.needs_recovery() && sb.blocks_count << sb.block_size.log2() <= before => {
                before
            }
            _ => u64::MAX,
        },
    };
    let is_device_size = size == Size::Device;
    if !file.is_block_device() && file.len() > bytes && !is_device_size {
        file.set_len(bytes)?;
        file.flush()?;
    }
    done
}

/// As [`resize_with`], for a volume on any device. The device must already be long enough; its
/// length does not change.
///
/// # Errors
/// As [`resize_with`]; `Invalid` if the device is too small.
pub fn resize_device(
    open: &OpenOptions,
    device: &Arc<dyn BlockDevice>,
    size: Size,
    progress: &dyn Progress,
) -> Result<Resized> {
    let short = &mut |_| Err(Error::Invalid("the device is smaller than that"));
    open.change_whole(Arc::clone(device), b"", |devices| {
        run(devices, size, open.environment_used(), short, progress)
    })
}

/// The smallest number of blocks for the volume's content, including a little space for moving it.
///
/// # Errors
/// `Corrupt`, `Device`.
pub fn minimum(fs: &Filesystem) -> Result<u64> {
    plan::minimum(fs.volume())
}

fn run(
    devices: &Devices,
    size: Size,
    environment: &Environment,
    lengthen: &mut dyn FnMut(u64) -> Result<()>,
    progress: &dyn Progress,
) -> Result<Resized> {
    let device = &devices.volume;
    let sb = Exclusive::check(devices)?;
    let bs = sb.block_size;
    let wanted = match size {
        Size::Blocks(blocks) => blocks,
        Size::Bytes(bytes) => bytes >> bs.log2(),
        Size::Device => device.len() >> bs.log2(),
        Size::Minimum => 0,
    };
    if sb.features.ro_compat.contains(RoCompat::DATA_CSUM) {
        return match wanted >= sb.blocks_count && size != Size::Minimum {
            true => grow_opened(devices, wanted, environment, progress),
            false => Err(Error::NotSupported(
                "with data checksums a volume only grows: turn data_csum off to make it smaller",
            )),
        };
    }
    let mut done = Resized::unchanged(&sb);
    if wanted < sb.blocks_count {
        let least = (size != Size::Minimum).then(|| plan::fit(&sb, wanted)).transpose()?;
        let result = shrink_in_rounds(devices, least, environment, &mut done, progress);
        if matches!(result, Err(Error::NoSpace)) && done.to_blocks < sb.blocks_count {
            grow_closed(devices, sb.blocks_count, environment)?;
        }
        return result.map(|()| done);
    }
    let blocks = plan::fit(&sb, wanted)?;
    if blocks == sb.blocks_count {
        return Ok(done);
    }
    let bytes = blocks.checked_mul(bs.bytes() as u64).ok_or(Error::FileTooLarge)?;
    if device.len() < bytes {
        lengthen(bytes)?;
    }
    let all = blocks - sb.blocks_count;
    progress.begin(Phase::ResizeGrow, all);
    done.now_meta_bg = grow_closed(devices, blocks, environment)?;
    done.to_blocks = blocks;
    progress.advance(Phase::ResizeGrow, all);
    Ok(done)
}

/// Makes a volume larger that is not open. Returns whether it changed to `meta_bg`.
fn grow_closed(devices: &Devices, blocks: u64, environment: &Environment) -> Result<bool> {
    let old = Exclusive::check(devices)?;
    let new = plan::geometry(&old, blocks)?;
    let features_changed = new.features.incompat != old.features.incompat;
    changed(devices, environment, |exclusive| switch::to(exclusive, new, None))?;
    Ok(features_changed)
}

/// Opens a volume and makes it larger, as [`grow()`] does. The engine itself stores the checksums
/// of the file that contains those of data.
fn grow_opened(
    devices: &Devices,
    blocks: u64,
    environment: &Environment,
    progress: &dyn Progress,
) -> Result<Resized> {
    if devices.journal.is_some() {
        return Err(Error::NotSupported(
            "a volume with data checksums and a journal elsewhere grows while it is mounted",
        ));
    }
    let mut open = OpenOptions::new();
    let open = open.offset(0).write(true).environment(environment.clone());
    let fs = open.open_device(Arc::clone(&devices.volume))?;
    let done = grow(&fs, Size::Blocks(blocks), progress)?;
    fs.close()?;
    Ok(done)
}

/// Calls `change` while the volume is marked as being changed. Changes that it did not commit are
/// dropped.
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

/// Makes a volume smaller: to `least` blocks, or as far as possible. Tables of removed groups may
/// occupy space that is needed for moving. The volume then shrinks in several rounds, and is
/// consistent after each.
fn shrink_in_rounds(
    devices: &Devices,
    least: Option<u64>,
    environment: &Environment,
    done: &mut Resized,
    progress: &dyn Progress,
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
