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

use super::new_groups::write_new_groups;
use super::resize_inode::Lists;
use super::{Resized, Size, plan};
use crate::api::filesystem::Filesystem;
use crate::context::geometry::Growing;
use crate::context::superblock::SUPERBLOCK_CREDITS;
use crate::inodes::lookup::Slot;
use crate::progress::{Phase, Progress};
use crate::space::growth::{LAST_GROUP_CREDITS, LastGroup, NewSpace};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Error, GroupNr, Ino, Result, Site, What};
use extant_journal::{Credits, Handle, Ineligible, MetaBlock};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::Inode as DiskInode;
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
/// `Invalid` for a size that is smaller than the volume, or impossible; `Busy` while another thread
/// does the same; `ReadOnly`; `NotSupported` for a volume that cannot grow while it is open: with
/// data checksums, with `sparse_super2`, with recorded errors, on a device that stays too short;
/// `Corrupt`, `Device`, `Aborted`.
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

/// One step: the volume before and after it.
struct Step {
    old: Geometry,
    new: Geometry,
    /// The superblock with the new size.
    sb: Superblock,
    /// The descriptors of the new groups.
    added: Vec<GroupDesc>,
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
        let mut done = Resized {
            from_blocks: sb.blocks_count,
            to_blocks: sb.blocks_count,
            block_bytes: bs.bytes(),
            moved_blocks: 0,
            moved_inodes: 0,
            now_meta_bg: false,
        };
        let blocks = plan::fit(&sb, wanted)?;
        if blocks <= sb.blocks_count {
            return Ok(done);
        }
        device.lengthen(blocks.checked_mul(bs.bytes() as u64).ok_or(Error::FileTooLarge)?)?;
        progress.begin(Phase::ResizeGrow, blocks - sb.blocks_count);
        let first = sb.groups_count().unwrap_or(1) - 1;
        let mut space = NewSpace::default();
        let grown = self.grow_in_steps(blocks, (&mut done, &mut space), progress);
        if done.to_blocks > done.from_blocks {
            let journal = self.volume.journal();
            journal.sync()?;
            journal.write_back(0)?;
            journal.flush()?;
            self.volume.space().open_new_space(&space);
            self.write_backups(first)?;
            journal.sync()?;
        }
        let before = sb.features.incompat.contains(Incompat::META_BG);
        done.now_meta_bg =
            !before && self.superblock().features.incompat.contains(Incompat::META_BG);
        grown.map(|()| done)
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
        // Metadata at fixed places stays where it is: blocks that are reserved for descriptors may
        // become descriptor blocks, but not free ones.
        let moves = |nr: &GroupNr| {
            // The end of the last group may cut its blocks off.
            nr.0 + 1 < old.groups_count() && old.base_blocks(*nr) != new.base_blocks(*nr)
        };
        if old.super_groups().any(|nr| moves(&nr)) {
            return Err(Error::NotSupported(
                "the descriptor table would move: unmount the volume to resize it",
            ));
        }
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
        let credits = SUPERBLOCK_CREDITS
            + LAST_GROUP_CREDITS
            + table.credits()
            + resize_inode.as_ref().map_or(0, |inode| inode.credits(&step));
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
        let size = (step.new, step.sb.reserved_blocks);
        all.add(space.grow(handle, &self.growing, last, size, &step.added)?);
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

const SMALLER: Error = Error::Invalid("a volume in use cannot become smaller: unmount it first");

/// Errors: `NotSupported`, as Linux refuses to grow these volumes while they are mounted.
fn check_supported(sb: &Superblock) -> Result<()> {
    if sb.has_errors() {
        return Err(Error::NotSupported("the volume has recorded errors: unmount and repair it"));
    }
    if sb.features.ro_compat.contains(RoCompat::DATA_CSUM) {
        return Err(Error::NotSupported(
            "data checksums lie by block number: turn data_csum off, resize, turn it on again",
        ));
    }
    if sb.features.compat.contains(Compat::SPARSE_SUPER2) {
        return Err(Error::NotSupported(
            "with sparse_super2 the last backup would move: unmount the volume to resize it",
        ));
    }
    Ok(())
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

impl Step {
    /// Puts the new size into `sb`, and all that follows from it except free counts.
    fn put_into(&self, sb: &mut Superblock) {
        let fixed = |(nr, desc): (u32, &GroupDesc)| {
            let all = self.new.clusters_in_group(GroupNr(nr)).unwrap_or(0);
            u64::from(all - desc.free_clusters.min(all))
        };
        let fixed: u64 = (self.old.groups_count()..).zip(&self.added).map(fixed).sum();
        if sb.overhead_clusters != 0 && sb.blocks_count == self.old.blocks_count() {
            let all = u64::from(sb.overhead_clusters) + fixed;
            sb.overhead_clusters = u32::try_from(all).unwrap_or(0);
        }
        sb.blocks_count = self.sb.blocks_count;
        sb.inodes_count = self.sb.inodes_count;
        sb.reserved_blocks = self.sb.reserved_blocks;
        sb.reserved_gdt_blocks = self.sb.reserved_gdt_blocks;
        sb.first_meta_bg = self.sb.first_meta_bg;
        let new = &self.sb.features;
        sb.features.incompat.set(Incompat::META_BG, new.incompat.contains(Incompat::META_BG));
        sb.features.compat.set(Compat::RESIZE_INODE, new.compat.contains(Compat::RESIZE_INODE));
    }

    /// Descriptor block `k` with the new descriptors.
    fn table_block(&self, volume: &Volume, k: u32) -> Result<Vec<u8>> {
        let mut bytes = match self.old.desc_block(k) {
            Some(block) => volume.journal().cache().get(block)?.read().to_vec(),
            None => vec![0; self.new.block_size().bytes()],
        };
        self.put_descriptors(volume, k, &mut bytes);
        Ok(bytes)
    }

    /// Writes the descriptors of the new groups that belong into descriptor block `k`.
    fn put_descriptors(&self, volume: &Volume, k: u32, bytes: &mut [u8]) {
        let size = self.new.desc_size();
        let first = k * self.new.descs_per_block();
        for (n, place) in bytes.chunks_exact_mut(size).enumerate() {
            let nr = first + len_u32(n);
            let added = nr.checked_sub(self.old.groups_count());
            if let Some(desc) = added.and_then(|n| self.added.get(n as usize)) {
                place.fill(0);
                desc.write(place, GroupNr(nr), volume.checksums());
            }
        }
    }
}

/// The descriptor blocks that a step changes.
struct TableBlocks {
    /// Those that exist before the step.
    present: Vec<(u32, MetaBlock)>,
    /// Those that it adds.
    added: Vec<(u32, BlockNr)>,
}

impl TableBlocks {
    fn read(volume: &Volume, step: &Step) -> Result<TableBlocks> {
        let (mut present, mut added) = (Vec::new(), Vec::new());
        for k in step.old.groups_count() / step.new.descs_per_block()..step.new.desc_blocks() {
            match step.old.desc_block(k) {
                Some(block) => present.push((k, volume.journal().cache().get(block)?)),
                None => added.push((k, step.new.desc_block(k).ok_or(Error::NoSpace)?)),
            }
        }
        Ok(TableBlocks { present, added })
    }

    fn credits(&self) -> u32 {
        len_u32(self.present.len() + self.added.len())
    }

    fn write(&self, volume: &Volume, step: &Step, handle: &Handle<'_>) -> Result<()> {
        for (k, block) in &self.present {
            step.put_descriptors(volume, *k, &mut block.write(handle)?.bytes_mut());
        }
        for (k, nr) in &self.added {
            // A block that was reserved for descriptors held pointers of the resize inode.
            let block = volume.journal().cache().get_new(*nr)?;
            step.put_descriptors(volume, *k, &mut block.write(handle)?.bytes_mut());
        }
        Ok(())
    }
}

/// The resize inode, if the step changes what it lists.
struct ResizeInode {
    body: Body,
    slot: Slot,
    /// Its list of reserved blocks.
    list: BlockNr,
}

/// Blocks that freeing the list dirties: its bitmap and descriptor.
const FREE_CREDITS: u32 = 2;

impl ResizeInode {
    /// Errors: `InodeBlocks` if its list is outside the volume.
    fn read(volume: &Volume, step: &Step) -> Result<Option<ResizeInode>> {
        let table_grows = step.new.desc_blocks() > step.old.desc_blocks();
        let had = volume.context().superblock().read().features.compat;
        if !had.contains(Compat::RESIZE_INODE) || !(table_grows || step.adds_backups()) {
            return Ok(None);
        }
        let body = volume.inodes().read(Ino::RESIZE)?;
        let word = body.disk.i_block[52..56].first_chunk().copied().unwrap_or_default();
        let list = BlockNr(u64::from(u32::from_le_bytes(word)));
        if list.0 == 0 {
            return Ok(None);
        }
        if !step.old.holds(list, 1) || volume.space().is_system(list, 1) {
            return Err(Site::of_ino(Ino::RESIZE).block(list).corrupt(What::InodeBlocks));
        }
        if step.sb.features.compat.contains(Compat::RESIZE_INODE) {
            // A block that no pointer can name is found before anything changes. The copies of the
            // last block have the highest numbers.
            let lists = Lists::new(&step.new, u32::from(step.sb.reserved_gdt_blocks))?;
            lists.list()?;
            lists.blocks().last().map(|block| lists.copies(block)).transpose()?;
        }
        let slot = volume.inodes().slot(Ino::RESIZE)?;
        Ok(Some(ResizeInode { body, slot, list }))
    }

    fn credits(&self, step: &Step) -> u32 {
        let copies = if step.adds_backups() { u32::from(step.sb.reserved_gdt_blocks) } else { 0 };
        2 + FREE_CREDITS + copies
    }

    fn write(mut self, volume: &Volume, step: &Step, handle: &Handle<'_>) -> Result<()> {
        if !step.sb.features.compat.contains(Compat::RESIZE_INODE) {
            self.body.disk = DiskInode::default();
            self.body.store_in(volume, handle, &self.slot)?;
            return volume.space().free(handle, self.list, 1);
        }
        let lists = Lists::new(&step.new, u32::from(step.sb.reserved_gdt_blocks))?;
        let cache = volume.journal().cache();
        let put = |block: BlockNr, bytes: &[u8]| -> Result<()> {
            cache.get_new(block)?.write(handle)?.bytes_mut().copy_from_slice(bytes);
            Ok(())
        };
        put(self.list, &lists.list()?)?;
        if step.adds_backups() {
            for block in lists.blocks() {
                put(block, &lists.copies(block)?)?;
            }
        }
        let blocks = lists.inode_blocks() * u64::from(step.new.cluster_ratio());
        self.body.disk.sectors = volume.context().sectors(blocks);
        self.body.store_in(volume, handle, &self.slot)
    }
}

impl Step {
    /// Whether a new group has backups, which the resize inode must list.
    fn adds_backups(&self) -> bool {
        let first = self.old.groups_count();
        self.new.super_groups().any(|nr| nr.0 >= first)
    }
}
