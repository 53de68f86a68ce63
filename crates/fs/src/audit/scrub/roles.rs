//! The content of fixed locations. Entries that have checksums of their own are judged one by one.

use super::composite::{CompositeDevice, Piece};
use crate::inodes::data_csum::open_checksum_file;
use crate::state::checksum_file::ChecksumFile;
use crate::volume::{Volume, VolumeOptions};
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, ByteOffset, GroupNr, Ino, Site};
use extant_journal::Worth;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::data_sums;
use extant_ondisk::features::RoCompat;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::{self, GroupDesc};
use extant_ondisk::inode::{self, InodeFormat, is_zero_slot};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_raid::Mirror;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// For how many groups descriptors can be held in memory.
const GROUPS_MAX: u32 = 1 << 22;

/// What bytes contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An inode's slot.
    Inode(Ino),
    /// The descriptor of a group, or a backup of it.
    Descriptor(GroupNr),
    /// The superblock, or the backup in a group.
    Superblock(GroupNr),
    /// A block of the checksum file, by its index.
    Checksums(u64),
    /// Nothing is ever stored there.
    Idle,
    /// Anything else.
    Other,
}

/// Where entries are, as far as members agree or a checksum confirms it.
pub(super) struct Roles {
    pub(super) geometry: Geometry,
    csum: Checksums,
    format: InodeFormat,
    superblock: [u8; SUPERBLOCK_SIZE],
    /// All descriptors, one after the other.
    descriptors: Vec<u8>,
    groups: Vec<GroupDesc>,
    /// Inode tables, by their first blocks.
    tables: Vec<(u64, GroupNr)>,
    /// Blocks of descriptors and their backups, with the index of the descriptor block.
    descriptor_blocks: HashMap<u64, u32>,
    /// Blocks that contain a superblock.
    superblocks: HashMap<u64, GroupNr>,
    /// Blocks that are reserved for more descriptors, next to backups of the descriptors.
    reserves: Vec<Range<u64>>,
    /// The blocks of the checksum file.
    checksums: Option<ChecksumFile>,
    /// The seed of its checksums.
    seed: u32,
}

impl Roles {
    /// `None` if no member has a valid superblock.
    pub(super) fn of(mirror: &Arc<Mirror>, members: usize) -> Option<Roles> {
        let (superblock, bytes) = (0..members).find_map(|place| superblock_of(mirror, place))?;
        let geometry = Geometry::new(&superblock).ok()?;
        if geometry.groups_count() > GROUPS_MAX {
            return None;
        }
        let mut roles = Roles {
            csum: superblock.checksums(),
            format: InodeFormat::new(&superblock),
            superblock: bytes,
            descriptors: Vec::new(),
            groups: Vec::new(),
            tables: Vec::new(),
            descriptor_blocks: HashMap::new(),
            superblocks: HashMap::new(),
            reserves: Vec::new(),
            checksums: None,
            seed: superblock.csum_seed(),
            geometry,
        };
        if superblock.features.ro_compat.contains(RoCompat::DATA_CSUM) {
            let open_on = |place| {
                let device = Arc::new(CompositeDevice::of_member(Arc::clone(mirror), place));
                let volume = Volume::open_parts(device, &VolumeOptions::default()).ok()?;
                open_checksum_file(&volume).ok()
            };
            roles.checksums = (0..members).find_map(open_on);
        }
        roles.read_descriptors(mirror, members);
        roles.place_copies();
        Some(roles)
    }

    /// Whether metadata has checksums.
    pub(super) fn has_checksums(&self) -> bool {
        self.csum.seed().is_some()
    }

    fn read_descriptors(&mut self, mirror: &Mirror, members: usize) {
        let geometry = self.geometry;
        let (size, per_block) = (geometry.desc_size(), geometry.descs_per_block());
        let mut bytes = vec![0; geometry.block_size().bytes()];
        for k in 0..geometry.desc_blocks() {
            let first = k * per_block;
            let count = per_block.min(geometry.groups_count() - first);
            self.descriptors.resize((first + count) as usize * size, 0);
            self.groups.resize((first + count) as usize, GroupDesc::default());
            let Some(block) = geometry.desc_block(k) else { continue };
            self.descriptor_blocks.insert(block.0, k);
            for (_, copy) in geometry.desc_block_backups(k) {
                self.descriptor_blocks.insert(copy.0, k);
            }
            // If several members' descriptors are right, the first member's are used.
            for place in (0..members).rev() {
                let at = geometry.block_size().start_of(block);
                if mirror.read_of(place, at.0, &mut bytes).is_err() {
                    continue;
                }
                for n in 0..count {
                    let desc = &bytes[n as usize * size..][..size];
                    let nr = GroupNr(first + n);
                    if let Ok(found) = GroupDesc::check(desc, nr, &geometry, &self.csum) {
                        self.groups[nr.0 as usize] = found;
                        self.descriptors[nr.0 as usize * size..][..size].copy_from_slice(desc);
                    }
                }
            }
        }
        let tables = geometry.groups().zip(&self.groups).map(|(nr, desc)| (desc.inode_table.0, nr));
        self.tables = tables.filter(|(start, _)| *start != 0).collect();
        self.tables.sort_unstable();
    }

    fn place_copies(&mut self) {
        let geometry = self.geometry;
        for group in geometry.super_groups() {
            let Some(at) = geometry.super_offset(group) else { continue };
            self.superblocks.insert(geometry.block_size().block_at(at).0, group);
            let reserved = u64::from(geometry.reserved_gdt_in(group));
            if let Some(base) = geometry.base_blocks(group).filter(|_| group.0 != 0) {
                self.reserves.push(base.end.saturating_sub(reserved)..base.end);
            }
        }
    }

    /// The group whose inode table contains `block`, and the block's index in that table.
    fn table_of(&self, block: u64) -> Option<(GroupNr, u32)> {
        let before = self.tables.partition_point(|(start, _)| *start <= block);
        let (start, group) = *self.tables[..before].last()?;
        let inside = u32::try_from(block - start).ok()?;
        (inside < self.geometry.itable_blocks()).then_some((group, inside))
    }

    /// The byte at which an inode's slot starts.
    pub(super) fn place_of_inode(&self, ino: Ino) -> Option<u64> {
        let place = self.geometry.inode_place(ino)?;
        let table = self.groups.get(place.group.0 as usize)?.inode_table.0;
        let block = BlockNr(table.checked_add(place.table_block.into())?);
        Some(self.geometry.block_size().start_of(block).0 + place.offset as u64)
    }

    /// The byte at which a group's descriptor starts.
    pub(super) fn place_of_descriptor(&self, group: GroupNr) -> Option<u64> {
        let (k, offset) = self.geometry.desc_place(group)?;
        let block = self.geometry.desc_block(k)?;
        Some(self.geometry.block_size().start_of(block).0 + offset as u64)
    }

    /// Cuts a block into the pieces that are judged separately. Pieces that are equal are omitted.
    pub(super) fn cut(
        &self,
        mirror: &Mirror,
        block: Range<u64>,
        contents: &Arc<[Option<usize>]>,
        pieces: &mut Vec<Piece>,
    ) {
        let cuts = self.cuts(block.start, block.end);
        if let [(_, role)] = cuts[..] {
            return pieces.push(Piece { role, ..Piece::whole(block, contents) });
        }
        let read = |place: usize| {
            let mut bytes = vec![0; fits_usize(block.end - block.start)];
            contents[place]?;
            mirror.read_of(place, block.start, &mut bytes).ok().map(|()| bytes)
        };
        let copies: Vec<_> = (0..contents.len()).map(read).collect();
        for (range, role) in cuts {
            let part = fits_usize(range.start - block.start)..fits_usize(range.end - block.start);
            let mut known: Vec<&[u8]> = Vec::new();
            let mut contents = Vec::new();
            for copy in &copies {
                let Some(copy) = copy else {
                    contents.push(None);
                    continue;
                };
                let bytes = &copy[part.clone()];
                let content = known.iter().position(|held| *held == bytes);
                contents.push(Some(content.unwrap_or_else(|| {
                    known.push(bytes);
                    known.len() - 1
                })));
            }
            if contents.iter().any(|content| *content != Some(0)) {
                pieces.push(Piece { range, contents: contents.into(), role });
            }
        }
    }

    fn cuts(&self, start: u64, end: u64) -> Vec<(Range<u64>, Role)> {
        let size = self.geometry.block_size();
        let block = size.block_at(ByteOffset(start)).0;
        let entries = |bytes: usize, role: &dyn Fn(u32) -> Role| {
            let starts = (start..end).step_by(bytes);
            let entry = |(n, at): (u32, u64)| (at..end.min(at + bytes as u64), role(n));
            (0..).zip(starts).map(entry).collect::<Vec<_>>()
        };
        if size.start_of(BlockNr(block)).0 != start || end - start != size.bytes() as u64 {
            return vec![(start..end, Role::Other)];
        }
        if let Some(group) = self.superblocks.get(&block)
            && let Some(at) = self.geometry.super_offset(*group)
        {
            let sb_end = at.0 + SUPERBLOCK_SIZE as u64;
            let cuts = [
                (start..at.0, Role::Other),
                (at.0..sb_end, Role::Superblock(*group)),
                (sb_end..end, Role::Idle),
            ];
            return cuts.into_iter().filter(|(range, _)| !range.is_empty()).collect();
        }
        if let Some(k) = self.descriptor_blocks.get(&block) {
            let first = k * self.geometry.descs_per_block();
            return entries(self.geometry.desc_size(), &|n| match first + n {
                group if group < self.geometry.groups_count() => Role::Descriptor(GroupNr(group)),
                _ => Role::Idle,
            });
        }
        if let Some((group, table_block)) = self.table_of(block) {
            let first = table_block * self.geometry.inodes_per_block();
            return entries(self.geometry.inode_size(), &|n| {
                self.geometry.ino_of_slot(group, first + n).map_or(Role::Idle, Role::Inode)
            });
        }
        if let Some(index) = self.checksums.as_ref().and_then(|file| file.index_of(BlockNr(block)))
        {
            return vec![(start..end, Role::Checksums(index))];
        }
        let is_reserve = self.reserves.iter().any(|range| range.contains(&block));
        vec![(start..end, if is_reserve { Role::Idle } else { Role::Other })]
    }

    /// How good the bytes of an entry are by themselves, and how many of them equal the primary
    /// copy if there is no other criterion.
    pub(super) fn worth(&self, role: Role, bytes: &[u8]) -> (Worth, usize) {
        let alike = |primary: &[u8]| bytes.iter().zip(primary).filter(|(a, b)| a == b).count();
        match role {
            Role::Inode(ino) => (self.worth_of_slot(ino, bytes), 0),
            Role::Descriptor(group) => {
                let size = self.geometry.desc_size();
                let primary = &self.descriptors[group.0 as usize * size..][..size];
                let is_right = group_desc::checksum_is_right(bytes, group, &self.csum);
                let has_checksum = self.csum.groups_may_be_uninit();
                (is_right.into(), if has_checksum { 0 } else { alike(primary) })
            }
            Role::Superblock(_) => {
                let raw = RawSuperblock::from_prefix(bytes);
                let is_right = raw.is_some_and(|raw| raw.check(Site::NOWHERE).is_ok());
                let has_checksum = self.csum.seed().is_some();
                (is_right.into(), if has_checksum { 0 } else { alike(&self.superblock) })
            }
            // Zeros are right if no checksum was stored yet, but a copy that has checksums is
            // better.
            Role::Checksums(_) if is_zero_slot(bytes) => (Worth::Empty, 0),
            Role::Checksums(index) => {
                (data_sums::check(bytes, index, self.seed, Site::NOWHERE).is_ok().into(), 0)
            }
            Role::Idle | Role::Other => (Worth::Right, 0),
        }
    }

    fn worth_of_slot(&self, ino: Ino, slot: &[u8]) -> Worth {
        let checksums = self.format.checksums();
        if !is_zero_slot(slot) {
            return inode::checksum_is_right(slot, ino, checksums).into();
        }
        let used = || {
            let place = self.geometry.inode_place(ino)?;
            let desc = self.groups.get(place.group.0 as usize)?;
            Some(place.slot < desc.used_slots(&self.geometry, &self.csum))
        };
        match checksums.seed().is_some() && used().unwrap_or(true) {
            true => Worth::Empty,
            false => Worth::Right,
        }
    }
}

fn superblock_of(mirror: &Mirror, place: usize) -> Option<(Superblock, [u8; SUPERBLOCK_SIZE])> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    mirror.read_of(place, SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let superblock = RawSuperblock::from_prefix(&bytes)?.check(Site::NOWHERE).ok()?;
    superblock.check_device(extant_blockdev::BlockDevice::len(mirror), Site::NOWHERE).ok()?;
    Some((superblock, bytes))
}
