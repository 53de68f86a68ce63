//! Directories made as small as their names allow, on a volume that is not open otherwise.
//!
//! ```text
//!   directory ─► names ─► blocks that they need < blocks it has? ─► packed again, rest freed
//!   …          several directories are one step of the log ─► home
//! ```
//!
//! A power cut leaves the volume before a step or after it. Without a journal, a step is written
//! home directly, and the volume is marked as not cleanly unmounted meanwhile.

use crate::context::environment::Environment;
use crate::inodes::lookup::Lookup;
use crate::open::OpenOptions;
use crate::open::exclusive::{Devices, Exclusive};
use crate::recovery::{self, RecoveryReport};
use crate::tree::dir::pack::PackEntry;
use crate::tree::dir::read::{Entry, Position};
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_blockdev::BlockDevice;
use extant_journal::Credits;
use extant_ondisk::bitmap;
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::path::Path;
use std::sync::Arc;

/// Credits for one directory: there is no journal below this volume that limits them.
const CREDITS: Credits = Credits::blocks(64);
/// Blocks of a step besides those of its directories: bitmaps, descriptors, tables, quota.
const SPARE: u64 = 64;
/// Blocks of a step on a volume without a journal.
const WITHOUT_LOG: u64 = 4096;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Directories with blocks of their own.
    pub directories: u64,
    /// How many of them were packed again.
    pub rebuilt: u64,
    /// Blocks that became free.
    pub blocks_freed: u64,
    /// Directories that stay as they are because the journal is too small for the change.
    pub too_large: u64,
}

/// Packs each directory that has more blocks than its names need, and gives an index to large ones
/// that lack it. `lost+found` keeps its blocks, and encrypted directories stay as they are.
///
/// A volume that needs recovery is recovered first. The caller should have checked the volume:
/// damaged directories stay as they are.
///
/// # Errors
/// `Busy`; `NotSupported` for a volume that needs a check first; `Unsupported`, `NoSpace`,
/// `Corrupt`, `Device`. After an error, the volume is consistent, and some directories may be
/// packed.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// let done = extant::compact::directories(&extant::OpenOptions::new(), "disk.img")?;
/// println!("{} blocks freed", done.blocks_freed);
/// # Ok::<(), extant::Error>(())
/// ```
pub fn directories(open: &OpenOptions, path: impl AsRef<Path>) -> Result<Compacted> {
    open.change_file(path.as_ref(), |_, devices| run(devices, open.environment_used()))
}

/// As [`directories`], for a volume on any device.
///
/// # Errors
/// As [`directories`].
pub fn directories_of_device(
    open: &OpenOptions,
    device: &Arc<dyn BlockDevice>,
) -> Result<Compacted> {
    open.change_whole(Arc::clone(device), b"", |devices| run(devices, open.environment_used()))
}

fn run(devices: &Devices, environment: &Environment) -> Result<Compacted> {
    let mut exclusive = Exclusive::begin(devices, environment)?;
    let done = all(&mut exclusive);
    // Changes that were not committed are dropped: the volume is as after the last step.
    let finished = exclusive.finish();
    let done = done?;
    finished.map(|()| done)
}

/// Packs all directories, in several steps if there are many.
fn all(exclusive: &mut Exclusive) -> Result<Compacted> {
    let mut volume = exclusive.volume()?;
    if let Some(log) = exclusive.staged.log() {
        volume.guard_log(log.map());
    }
    let most = exclusive.staged.limit().map_or(WITHOUT_LOG, |limit| limit / 2);
    let mut done = Compacted::default();
    let mut waiting = 0;
    let root = volume.inodes().read(Ino::ROOT)?;
    let lost = volume.file(&root).dir()?.find(b"lost+found")?.map(|found| found.ino);
    drop(root);
    for nr in volume.geometry().groups() {
        let used: Vec<u32> = volume.space().inode_bitmap(nr)?.with(|bytes| {
            let is_used = |slot: &u32| bitmap::count_set(bytes, *slot..*slot + 1) > 0;
            (0..volume.geometry().inodes_per_group()).filter(is_used).collect()
        });
        for ino in used.into_iter().filter_map(|slot| volume.geometry().ino_of_slot(nr, slot)) {
            if volume.inodes().is_hidden(ino) || Some(ino) == lost {
                continue;
            }
            let Some(plan) = Plan::of(&volume, ino, &mut done)? else { continue };
            if plan.blocks + SPARE > most {
                done.too_large += 1;
                continue;
            }
            if waiting + plan.blocks + SPARE > most {
                commit(exclusive, &volume)?;
                waiting = 0;
            }
            waiting += plan.blocks + 1;
            done.blocks_freed += plan.pack(&volume)?;
            done.rebuilt += 1;
        }
    }
    if waiting > 0 {
        commit(exclusive, &volume)?;
    }
    Ok(done)
}

/// Makes the waiting changes one step of the log, and writes them home.
fn commit(exclusive: &mut Exclusive, volume: &Volume) -> Result<()> {
    volume.journal().sync()?;
    if volume.has_ro_compat(RoCompat::QUOTA) {
        recovery::recount_quota(volume, &mut RecoveryReport::default())?;
    }
    volume.mount_state().update_superblock()?;
    volume.journal().sync()?;
    let now = exclusive.now();
    exclusive.staged.commit_whole_step(volume.geometry().blocks_count(), now)
}

/// A directory that is to be packed.
struct Plan {
    ino: Ino,
    parent: Ino,
    names: Vec<Entry>,
    /// Blocks of the directory after that.
    blocks: u64,
}

impl Plan {
    /// The plan for an inode; `None` if it is no directory, or nothing would become better.
    fn of(volume: &Volume, ino: Ino, done: &mut Compacted) -> Result<Option<Plan>> {
        let is_directory = match volume.inodes().peek(ino, Lookup::Internal) {
            Ok(body) => body.disk.kind() == Some(FileKind::Directory),
            Err(Error::Corrupt { .. }) => false,
            Err(error) => return Err(error),
        };
        if !is_directory {
            return Ok(None);
        }
        match Plan::of_directory(volume, ino, done) {
            // Damage is left to a checker.
            Err(Error::Corrupt { .. } | Error::Exists) => Ok(None),
            plan => plan,
        }
    }

    fn of_directory(volume: &Volume, ino: Ino, done: &mut Compacted) -> Result<Option<Plan>> {
        let body = volume.inodes().read(ino)?;
        if body.disk.has_inline_data() {
            return Ok(None);
        }
        done.directories += 1;
        let dir = volume.file(&body).dir()?;
        if dir.is_encrypted() {
            return Ok(None);
        }
        let has = body.disk.size >> volume.block_size().log2();
        let is_indexed = body.disk.flags.contains(InodeFlags::INDEX);
        if has <= 1 {
            return Ok(None);
        }
        let (mut names, mut failed) = (Vec::new(), None);
        let mut position = Position::default();
        while dir.next_batch(&mut position, |entry| match entry {
            Ok(entry) => names.push(entry),
            Err(error) => failed = Some(error),
        })? {}
        if let Some(error) = failed {
            return Err(error);
        }
        let entries: Vec<PackEntry<'_>> = names.iter().map(packed).collect();
        let blocks = dir.packed_blocks(&entries)?;
        let lacks_index = volume.has_compat(Compat::DIR_INDEX) && !is_indexed && blocks > 1;
        if blocks >= has && !lacks_index {
            return Ok(None);
        }
        let parent = dir.lookup(b"..")?.ino;
        Ok(Some(Plan { ino, parent, names, blocks }))
    }

    /// Packs the directory. Returns how many blocks became free.
    fn pack(&self, volume: &Volume) -> Result<u64> {
        let handle = volume.journal().start(CREDITS)?;
        let mut body = volume.inodes().read(self.ino)?;
        let had = body.disk.size >> volume.block_size().log2();
        let entries: Vec<PackEntry<'_>> = self.names.iter().map(packed).collect();
        volume.dir_mut(&mut body).pack(&handle, self.parent, &entries)?;
        let has = body.disk.size >> volume.block_size().log2();
        body.store(volume, &handle)?;
        handle.stop()?;
        Ok(had.saturating_sub(has))
    }
}

fn packed(entry: &Entry) -> PackEntry<'_> {
    PackEntry { name: &entry.name, ino: entry.ino, kind: entry.kind }
}
