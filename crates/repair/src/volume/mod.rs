//! The volume under repair: superblock, geometry, descriptors, and inodes in their slots.

pub(crate) mod descriptors;
mod restore;
pub(crate) mod search;
pub(crate) mod superblock;

use crate::disk::Disk;
use crate::older::Older;
use crate::report::{Class, Report};
use descriptors::Group;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, ByteOffset, Ino, Result};
use extant_blockdev::{BlockDevice, Overlay};
use extant_ondisk::checksum::Checksums;
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::inode::{Inode, InodeFlags, InodeFormat};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use hashbrown::HashSet;
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// What an inode's number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A user's file or directory, or the root.
    Ordinary,
    /// The list of bad blocks.
    BadBlocks,
    /// The boot loader.
    BootLoader,
    /// Inode 7, with resize_inode.
    Resize,
    /// An internal file: journal, quota, orphans.
    Own,
    /// A reserved number without a use.
    Unused,
}

/// The volume under repair.
pub(crate) struct Volume {
    pub(crate) disk: Disk,
    pub(crate) geometry: Geometry,
    pub(crate) checksums: Checksums,
    pub(crate) format: InodeFormat,
    pub(crate) report: Report,
    pub(crate) groups: Vec<Group>,
    /// Copies of blocks in the log.
    pub(crate) older: Option<Rc<Older>>,
    /// Blocks that were replaced by such a copy.
    taken: RefCell<HashSet<u64>>,
    /// Seconds since 1970, for deletion times.
    pub(crate) now: u32,
    raw: RawSuperblock,
    sb: Superblock,
    /// Fixed metadata, in ascending order, neighbours joined.
    fixed: Vec<Range<u64>>,
}

impl Volume {
    /// The volume on `overlay`. `group` names the superblock copy to use.
    ///
    /// Errors: those of the search for a superblock.
    pub(crate) fn open(
        overlay: &Arc<Overlay<Arc<dyn BlockDevice>>>,
        group: Option<u32>,
        now: u32,
        mut report: Report,
    ) -> Result<Volume> {
        let superblock::Found { raw, mut sb } = superblock::find(&**overlay, group, &mut report)?;
        let reserved = superblock::settle_reserved(&**overlay, &mut sb)?;
        if superblock::settle(&mut sb) || reserved {
            report.add(Class::Superblock);
        }
        let mut volume = Volume {
            disk: Disk::new(Arc::clone(overlay), sb.block_size),
            geometry: Geometry::new(&sb)?,
            checksums: sb.checksums(),
            format: InodeFormat::new(&sb),
            report,
            groups: Vec::new(),
            older: None,
            taken: RefCell::default(),
            now,
            raw,
            sb,
            fixed: Vec::new(),
        };
        volume.put_superblock()?;
        Ok(volume)
    }

    /// Reads the descriptors. Called once, after the journal was replayed.
    pub(crate) fn load_groups(&mut self) -> Result<()> {
        self.groups = descriptors::load(self)?;
        self.find_fixed();
        Ok(())
    }

    /// Computes where fixed metadata lies, after the places of groups have changed.
    pub(crate) fn find_fixed(&mut self) {
        let geometry = self.geometry;
        let mut runs: Vec<Range<u64>> = Vec::new();
        // Before the first block lies the boot block, which no file may use.
        runs.push(0..geometry.first_data_block().0.max(1));
        for (nr, group) in geometry.groups().zip(&self.groups) {
            runs.extend(geometry.base_blocks(nr).filter(|base| base.start < base.end));
            let mut add = |lost: bool, block: BlockNr, len: u64| {
                if !lost {
                    runs.push(block.0..block.0 + len);
                }
            };
            add(group.block_bitmap_lost, group.desc.block_bitmap, 1);
            add(group.inode_bitmap_lost, group.desc.inode_bitmap, 1);
            add(group.table_lost, group.desc.inode_table, u64::from(geometry.itable_blocks()));
        }
        if self.has_incompat(Incompat::MMP) {
            runs.push(self.sb.mmp_block.0..self.sb.mmp_block.0 + 1);
        }
        runs.sort_unstable_by_key(|run| run.start);
        self.fixed.clear();
        let ratio = u64::from(geometry.cluster_ratio());
        for run in runs {
            // A cluster with metadata is no file's.
            let run = run.start / ratio * ratio..run.end.next_multiple_of(ratio);
            match self.fixed.last_mut() {
                Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
                _ => self.fixed.push(run),
            }
        }
    }

    /// The fixed metadata, in ascending order.
    pub(crate) fn fixed(&self) -> &[Range<u64>] {
        &self.fixed
    }

    /// The parts of `blocks` that a file may use: inside the volume, outside fixed metadata.
    pub(crate) fn usable(&self, blocks: Range<u64>) -> Vec<Range<u64>> {
        let all = self.geometry.block_range();
        let (mut start, end) = (blocks.start.max(all.start), blocks.end.min(all.end));
        let mut parts = Vec::new();
        let first = self.fixed.partition_point(|run| run.end <= start);
        for run in &self.fixed[first..] {
            if run.start >= end {
                break;
            }
            if run.start > start {
                parts.push(start..run.start);
            }
            start = start.max(run.end);
        }
        if start < end {
            parts.push(start..end);
        }
        parts
    }

    /// Whether a file may use this block.
    pub(crate) fn is_usable(&self, block: u64) -> bool {
        self.are_usable(block..block.saturating_add(1))
    }

    /// Whether a file may use all of these blocks, of which there is one at least.
    pub(crate) fn are_usable(&self, blocks: Range<u64>) -> bool {
        let all = self.geometry.block_range();
        let next = self.fixed.partition_point(|run| run.end <= blocks.start);
        blocks.start >= all.start
            && blocks.end <= all.end
            && self.fixed.get(next).is_none_or(|run| run.start >= blocks.end)
    }

    /// The superblock.
    pub(crate) fn sb(&self) -> &Superblock {
        &self.sb
    }

    /// Changes the superblock in memory and in the overlay.
    pub(crate) fn change_superblock(&mut self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        change(&mut self.sb);
        self.format = InodeFormat::new(&self.sb);
        self.put_superblock()
    }

    /// Sets the time of the last write, if the repair changes anything. So every later use of the
    /// volume leaves other bytes in the superblock, and an undo can tell.
    pub(crate) fn stamp(&mut self) -> Result<()> {
        if !self.disk.is_changed() {
            return Ok(());
        }
        let now = u64::from(self.now);
        self.change_superblock(|sb| (sb.wtime, sb.lastcheck) = (now, now))
    }

    /// Reads the superblock again, after the journal was replayed.
    pub(crate) fn reread_superblock(&mut self) -> Result<()> {
        let device = self.disk.device();
        let found = superblock::find(&*device, None, &mut self.report)?;
        (self.raw, self.sb) = (found.raw, found.sb);
        Ok(())
    }

    fn put_superblock(&mut self) -> Result<()> {
        if superblock::has_junk(&self.raw) {
            self.raw.s_desc_size = 0.into();
        }
        // Revision 0 has no features.
        let features = self.sb.features;
        let any = features.compat.bits() | features.incompat.bits() | features.ro_compat.bits();
        if any != 0 {
            self.sb.rev_level = self.sb.rev_level.max(1);
        }
        self.sb.update_raw(&mut self.raw);
        self.disk.put_bytes(ByteOffset(SUPERBLOCK_OFFSET), &self.raw.to_bytes())
    }

    /// Bytes of a block.
    pub(crate) fn block_bytes(&self) -> usize {
        self.geometry.block_size().bytes()
    }

    /// Sectors of a cluster.
    pub(crate) fn cluster_sectors(&self) -> u64 {
        (self.block_bytes() as u64 / 512) << self.geometry.log_cluster_ratio()
    }

    pub(crate) fn has_compat(&self, bit: Compat) -> bool {
        self.sb.features.compat.contains(bit)
    }

    pub(crate) fn has_incompat(&self, bit: Incompat) -> bool {
        self.sb.features.incompat.contains(bit)
    }

    pub(crate) fn has_ro_compat(&self, bit: RoCompat) -> bool {
        self.sb.features.ro_compat.contains(bit)
    }

    /// The quota inodes that the volume has.
    pub(crate) fn quota_inodes(&self) -> [u32; 3] {
        match self.has_ro_compat(RoCompat::QUOTA) {
            true => [self.sb.usr_quota_inum, self.sb.grp_quota_inum, self.sb.prj_quota_inum],
            false => [0; 3],
        }
    }

    /// The role of `ino` on this volume.
    pub(crate) fn role(&self, ino: u32) -> Role {
        if ino != 0 && self.quota_inodes().contains(&ino)
            || (self.has_compat(Compat::ORPHAN_FILE) && ino == self.sb.orphan_file_inum)
            || (self.has_compat(Compat::HAS_JOURNAL) && ino == self.sb.journal_inum)
        {
            return Role::Own;
        }
        match ino {
            1 => Role::BadBlocks,
            2 => Role::Ordinary,
            5 => Role::BootLoader,
            7 if self.has_compat(Compat::RESIZE_INODE) => Role::Resize,
            n if n < self.sb.first_ino => Role::Unused,
            _ => Role::Ordinary,
        }
    }

    /// Where the slot of `ino` lies, in bytes of the device.
    fn slot_at(&self, ino: u32) -> Option<ByteOffset> {
        let place = self.geometry.inode_place(Ino::new(ino)?)?;
        let group = self.groups.get(place.group.0 as usize)?;
        if group.table_lost {
            return None;
        }
        let block = BlockNr(group.desc.inode_table.0 + u64::from(place.table_block));
        let start = self.geometry.block_size().start_of(block);
        Some(ByteOffset(start.0 + place.offset as u64))
    }

    /// The bytes of the slot of `ino`; `None` if its table is lost.
    pub(crate) fn slot(&self, ino: u32) -> Result<Option<Vec<u8>>> {
        let Some(at) = self.slot_at(ino) else { return Ok(None) };
        let mut bytes = vec![0; self.geometry.inode_size()];
        self.disk.read_bytes(at, &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Reads the slot of `ino` into `buf`, which is as long. Returns false if its table is lost.
    pub(crate) fn read_slot(&self, ino: u32, buf: &mut [u8]) -> Result<bool> {
        let Some(at) = self.slot_at(ino) else { return Ok(false) };
        self.disk.read_bytes(at, buf).map(|()| true)
    }

    /// Writes the slot of `ino`.
    pub(crate) fn put_slot(&self, ino: u32, bytes: &[u8]) -> Result<()> {
        match self.slot_at(ino) {
            Some(at) => self.disk.put_bytes(at, bytes),
            None => Ok(()),
        }
    }

    /// The inode `ino`, whatever its checksum; `None` if it cannot be read.
    pub(crate) fn inode(&self, ino: u32) -> Result<Option<Inode>> {
        let (Some(bytes), Some(nr)) = (self.slot(ino)?, Ino::new(ino)) else { return Ok(None) };
        Ok(Inode::parse_unverified(&bytes, nr, &self.format).ok())
    }

    /// Writes the inode `ino` with its checksum.
    pub(crate) fn put_inode(&self, ino: u32, inode: &Inode) -> Result<()> {
        let (Some(mut bytes), Some(nr)) = (self.slot(ino)?, Ino::new(ino)) else { return Ok(()) };
        inode.write(&mut bytes, nr, &self.format)?;
        self.put_slot(ino, &bytes)
    }

    /// The checksum seed of an inode and its blocks; 0 without metadata_csum.
    pub(crate) fn seed(&self, ino: u32, inode: &Inode) -> u32 {
        Ino::new(ino).and_then(|nr| inode.seed(nr, &self.format)).unwrap_or(0)
    }

    /// The format of a directory's blocks.
    pub(crate) fn dir_format(&self, inode: &Inode) -> DirFormat {
        let encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
        DirFormat {
            filetype: self.has_incompat(Incompat::FILETYPE),
            checksums: self.checksums.seed().is_some(),
            hash_words: encrypted && inode.flags.contains(InodeFlags::CASEFOLD),
            opaque_names: encrypted,
            inodes_count: self.geometry.inodes_count(),
        }
    }

    /// Bytes of `blocks` blocks.
    pub(crate) fn bytes_of(&self, blocks: u64) -> usize {
        fits_usize(blocks << self.geometry.block_size().log2())
    }
}
