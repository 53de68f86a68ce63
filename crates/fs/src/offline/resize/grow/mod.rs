//! Growing a volume that is open, while threads use it.
//!
//! ```text
//!   longer file
//!   each step    new groups written after the end, flushed       nothing refers to them
//!                one transaction: descriptors, resize inode, last group, superblock
//!   commit, superblock written home ─► new space can be used ─► backups
//! ```
//!
//! A step adds the groups of one descriptor block, so a transaction has few blocks, and the volume
//! is consistent after each. After a power cut it has the size after some step, and all files.
//! Allocations use the new space after all steps, when the superblock at home has the new size: see
//! `space/growth.rs`. The backups of superblock and descriptors come last; until then they describe
//! the smaller volume, as on Linux.

mod step;

use self::step::{ResizeInode, Step, TableBlocks};
use super::new_groups::write_new_groups;
use super::{Resized, Size, plan};
use crate::api::filesystem::Filesystem;
use crate::context::geometry::Growing;
use crate::context::superblock::SUPERBLOCK_CREDITS;
use crate::progress::{Phase, Progress};
use crate::space::growth::{LAST_GROUP_CREDITS, LastGroup, NewSpace};
use crate::volume::Volume;
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, Error, GroupNr, Result, Site, What};
use extant_journal::{Credits, Handle, Ineligible};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::superblock::{RawSuperblock, Superblock, VolumeState};
use zerocopy::{FromBytes, IntoBytes};

/// Makes a volume larger that is open for writing. Other threads can use it meanwhile; they find
/// the new space as soon as it is there. It is durable on return.
///
/// A file is extended first if it is too short; a block device must be long enough, and is measured
/// again. The volume gets fewer blocks than requested if the last group would contain only its own
/// metadata. If the call fails after some of the new groups were added, the volume keeps them.
///
/// # Errors
/// `NoSpace` if the checksums of data find no space; `Invalid` for a size that is smaller than the
/// volume, or impossible; `Busy` while another thread does the same; `ReadOnly`; `NotSupported` for
/// a volume that cannot grow while it is open: with `sparse_super2`, with recorded errors, on a
/// device that stays too short; `Corrupt`, `Device`, `Aborted`.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::resize::{Size, grow};
/// let fs = extant::OpenOptions::new().write(true).open("disk.img")?;
/// let before = fs.space().free;
/// let done = grow(&fs, Size::Bytes(256 << 20), &())?;
/// assert!(done.to_blocks > done.from_blocks && fs.space().free > before);
/// fs.close()?;
/// # Ok::<(), extant::Error>(())
/// ```
pub fn grow(fs: &Filesystem, size: Size, progress: &dyn Progress) -> Result<Resized> {
    let volume = fs.volume();
    volume.context().recording_errors(|| {
        volume.context().check_writable()?;
        let growing = volume.context().begin_growing()?;
        Growth { volume, growing }.run(size, progress)
    })
}

/// A growth in progress.
struct Growth<'a> {
    volume: &'a Volume,
    growing: Growing<'a>,
}

impl Growth<'_> {
    fn run(&self, size: Size, progress: &dyn Progress) -> Result<Resized> {
        let sb = self.superblock();
        check_supported(&sb)?;
        let bs = sb.block_size;
        let device = self.volume.device();
        let wanted = match size {
            Size::Blocks(blocks) => blocks,
            Size::Bytes(bytes) => bytes >> bs.log2(),
            Size::Minimum => return Err(SMALLER),
            Size::Device => {
                device.lengthen(0)?;
                (device.len() >> bs.log2()).max(sb.blocks_count)
            }
        };
        if wanted < sb.blocks_count {
            return Err(SMALLER);
        }
        let mut done = Resized::unchanged(&sb);
        let blocks = plan::fit(&sb, wanted)?;
        if blocks <= sb.blocks_count {
            return Ok(done);
        }
        self.check_steps(blocks)?;
        device.lengthen(blocks.checked_mul(bs.bytes() as u64).ok_or(Error::FileTooLarge)?)?;
        progress.begin(Phase::ResizeGrow, blocks - sb.blocks_count);
        let grown = self.grow_in_parts(blocks, &mut done, progress);
        if done.to_blocks > done.from_blocks {
            self.write_backups(sb.groups_count().unwrap_or(1) - 1)?;
            self.volume.journal().sync()?;
        }
        let before = sb.features.incompat.contains(Incompat::META_BG);
        done.now_meta_bg =
            !before && self.superblock().features.incompat.contains(Incompat::META_BG);
        grown.map(|()| done)
    }

    /// Grows in one part, or in several if the space for the checksums of the new data is in the
    /// part before.
    fn grow_in_parts(&self, to: u64, done: &mut Resized, progress: &dyn Progress) -> Result<()> {
        let journal = self.volume.journal();
        while done.to_blocks < to {
            let part = self.next_part(to)?;
            let mut space = NewSpace::default();
            let grown = self.grow_in_steps(part, (done, &mut space), progress);
            // The superblock has the new size at home before the new space is used. Other threads
            // change it too, for the list of orphans, so only the last call is sure to do it.
            journal.sync()?;
            journal.write_back(0)?;
            journal.sync_home()?;
            let reserved = self.superblock().reserved_blocks;
            self.volume.space().open_new_space(&self.growing, &space, reserved);
            grown?;
        }
        Ok(())
    }

    /// The size after the next part of a growth to `to`.
    fn next_part(&self, to: u64) -> Result<u64> {
        let sb = self.superblock();
        if !sb.features.ro_compat.contains(RoCompat::DATA_CSUM) {
            return Ok(to);
        }
        let space = self.volume.space();
        let ratio = self.volume.context().geometry().log_cluster_ratio();
        let mut before = 0;
        loop {
            // Other threads use the space, too. The next part has more.
            let eighth = fits_u32(space.unreserved_clusters() << ratio >> 3).max(1);
            let covered = self.volume.data_checksums().lengthen_checksum_file(to, eighth)?;
            let part = if covered < to { plan::fit(&sb, covered)? } else { to };
            if part > sb.blocks_count {
                return Ok(part);
            }
            if covered == before {
                return Err(Error::NoSpace);
            }
            before = covered;
        }
    }

    /// Refuses a growth to `to` if one of its steps is impossible, before anything changes.
    fn check_steps(&self, to: u64) -> Result<()> {
        let mut sb = self.superblock();
        let mut credits = 0;
        while sb.blocks_count < to {
            let old = Geometry::new(&sb)?;
            let next = plan::geometry(&sb, next_size(&old, to))?;
            let step = Step { old, new: Geometry::new(&next)?, sb: next, added: Vec::new() };
            check_places(&step.old, &step.new)?;
            credits = credits.max(FIXED_CREDITS + step.most_credits(&sb));
            sb = step.sb;
        }
        // A journal that is too small refuses such a handle.
        self.volume.journal().start(Credits::blocks(credits)).map_err(too_large)?.stop()
    }

    fn grow_in_steps(
        &self,
        to: u64,
        (done, space): (&mut Resized, &mut NewSpace),
        progress: &dyn Progress,
    ) -> Result<()> {
        while done.to_blocks < to {
            self.volume.context().check_writable()?;
            let next = next_size(self.volume.context().geometry(), to);
            self.step(next, space)?;
            progress.advance(Phase::ResizeGrow, next - done.to_blocks);
            done.to_blocks = next;
        }
        Ok(())
    }

    fn superblock(&self) -> Superblock {
        self.volume.context().superblock().read().clone()
    }

    /// Makes the volume `blocks` blocks long, in one transaction. Adds the new space to `space`.
    fn step(&self, blocks: u64, space: &mut NewSpace) -> Result<()> {
        let context = self.volume.context();
        let sb = plan::geometry(&self.superblock(), blocks)?;
        let (old, new) = (*context.geometry(), Geometry::new(&sb)?);
        check_places(&old, &new)?;
        let device = self.volume.device();
        let added = write_new_groups(&**device, (&old, &new), context.checksums())?;
        let step = Step { old, new, sb, added };
        self.write_new_backups(&step)?;
        device.flush()?;
        // From here on, only a failed journal can fail: all blocks are in memory.
        let last = self.volume.space().last_group()?;
        let resize_inode = ResizeInode::read(self.volume, &step)?;
        let superblock = context.superblock_block()?;
        let table = TableBlocks::read(self.volume, &step)?;
        let credits = FIXED_CREDITS
            + table.credits()
            + resize_inode.as_ref().map_or(0, |_| ResizeInode::credits_for(&step));
        let handle = self.volume.journal().start(Credits::blocks(credits)).map_err(too_large)?;
        table.write(self.volume, &step, &handle)?;
        if let Some(inode) = resize_inode {
            inode.write(self.volume, &step, &handle)?;
        }
        self.publish(&step, &last, &handle, space)?;
        drop(superblock);
        handle.stop()
    }

    fn publish(
        &self,
        step: &Step,
        last: &LastGroup,
        handle: &Handle<'_>,
        all: &mut NewSpace,
    ) -> Result<()> {
        let space = self.volume.space();
        all.add(space.grow(handle, &self.growing, last, step.new, &step.added)?);
        let now = u64::try_from(self.volume.environment().now().sec).unwrap_or(0);
        self.volume.context().change_superblock(handle, |sb| {
            step.put_into(sb);
            sb.free_blocks = (space.free_clusters() + all.clusters) << step.new.log_cluster_ratio();
            sb.free_inodes = space.free_inodes() + all.inodes;
            sb.wtime = now;
        })
    }

    /// Writes the backups in the new groups, which nothing reads before the step.
    fn write_new_backups(&self, step: &Step) -> Result<()> {
        let bs = step.new.block_size();
        let first = step.old.groups_count();
        let device = self.volume.device();
        for k in 0..step.new.desc_blocks() {
            let places = step.new.desc_block_backups(k).filter(|(nr, _)| nr.0 >= first);
            let places: Vec<BlockNr> = places.map(|(_, block)| block).collect();
            if !places.is_empty() {
                let bytes = step.table_block(self.volume, k)?;
                for block in places {
                    device.write_at(bs.start_of(block), &bytes)?;
                }
            }
        }
        for group in step.new.super_groups().filter(|nr| nr.0 >= first) {
            let Some(at) = step.new.super_offset(group) else { continue };
            let mut sb = self.superblock();
            step.put_into(&mut sb);
            device.write_at(at, self.backup(sb, group)?.as_bytes())?;
        }
        Ok(())
    }

    /// Brings the backups up to date: the superblock's, and those of the descriptor blocks from the
    /// one of group `first` on.
    fn write_backups(&self, first: u32) -> Result<()> {
        let context = self.volume.context();
        let geometry = *context.geometry();
        let cache = self.volume.journal().cache();
        for k in first / geometry.descs_per_block()..geometry.desc_blocks() {
            let Some(primary) = geometry.desc_block(k) else { continue };
            let primary = cache.get(primary)?;
            for (_, block) in geometry.desc_block_backups(k) {
                let handle = self.volume.journal().start(Credits::blocks(1))?;
                context.require_full_commit(&handle, Ineligible::Superblock);
                let copy = cache.get_new(block)?;
                let bytes = primary.read().to_vec();
                copy.write(&handle)?.bytes_mut().copy_from_slice(&bytes);
                handle.stop()?;
            }
        }
        for group in geometry.super_groups().filter(|nr| nr.0 != 0) {
            let Some(at) = geometry.super_offset(group) else { continue };
            let block = cache.get(geometry.block_size().block_at(at))?;
            let raw = self.backup(self.superblock(), group)?;
            let handle = self.volume.journal().start(Credits::blocks(1))?;
            context.require_full_commit(&handle, Ineligible::Superblock);
            block.write(&handle)?.bytes_mut()[..raw.as_bytes().len()]
                .copy_from_slice(raw.as_bytes());
            handle.stop()?;
        }
        Ok(())
    }

    /// The backup of `sb` for `group`.
    fn backup(&self, mut sb: Superblock, group: GroupNr) -> Result<RawSuperblock> {
        let (block, at) = self.volume.context().superblock_block()?;
        let mut raw = match RawSuperblock::read_from_prefix(&block.read()[at..]) {
            Ok((raw, _)) => raw,
            Err(_) => return Err(Site::NOWHERE.corrupt(What::SuperblockMagic)),
        };
        sb.block_group = group;
        sb.state.remove(VolumeState::VALID);
        sb.features.incompat.remove(Incompat::LIVE);
        sb.update_raw(&mut raw);
        Ok(raw)
    }
}

/// Blocks that every step dirties.
const FIXED_CREDITS: u32 = SUPERBLOCK_CREDITS + LAST_GROUP_CREDITS;

const SMALLER: Error = Error::Invalid("a volume in use cannot become smaller: unmount it first");

/// Errors: `NotSupported`, as Linux refuses to grow these volumes while they are mounted.
fn check_supported(sb: &Superblock) -> Result<()> {
    if sb.has_errors() {
        return Err(Error::NotSupported("the volume has recorded errors: unmount and repair it"));
    }
    if sb.features.compat.contains(Compat::SPARSE_SUPER2) {
        return Err(Error::NotSupported(
            "with sparse_super2 the last backup would move: unmount the volume to resize it",
        ));
    }
    Ok(())
}

/// Metadata at fixed places stays where it is: blocks that are reserved for descriptors may become
/// descriptor blocks, but not free ones.
///
/// Errors: `NotSupported` if it would move.
fn check_places(old: &Geometry, new: &Geometry) -> Result<()> {
    let moves = |nr: GroupNr| {
        // The end of the last group may cut its blocks off.
        nr.0 + 1 < old.groups_count() && old.base_blocks(nr) != new.base_blocks(nr)
    };
    match old.super_groups().any(moves) {
        true => Err(Error::NotSupported(
            "the descriptor table would move: unmount the volume to resize it",
        )),
        false => Ok(()),
    }
}

fn too_large(error: Error) -> Error {
    match error {
        Error::TransactionTooLarge { .. } => Error::NotSupported(
            "the journal is too small for this step: unmount the volume to resize it",
        ),
        error => error,
    }
}

/// The size after the next step towards `to`: at most to the end of the groups that one descriptor
/// block describes.
fn next_size(now: &Geometry, to: u64) -> u64 {
    let groups = u64::from(now.groups_count() / now.descs_per_block() + 1);
    let groups = groups * u64::from(now.descs_per_block());
    let end = now.first_data_block().0 + groups * u64::from(now.blocks_per_group());
    to.min(end)
}
