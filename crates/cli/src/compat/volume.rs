//! Structures of a volume as they are on disk: no recovery, no cache, and as few checks as a reader
//! needs that shows a damaged volume.
//!
//! ```text
//!   superblock ─► geometry ─► descriptor ─► bitmaps
//!                                   └─────► inode table ─► inode ─► map (map.rs)
//! ```

mod bits;
mod map;

pub(super) use map::Piece;

use crate::image::Image;
use extant::{Error, Result, What};
use extant_base::{BlockNr, ByteOffset, GroupNr, Ino, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::bitmap;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::features::RoCompat;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::{Inode, InodeFormat};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::sync::Arc;

/// The copy of the superblock that is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copy {
    /// The block that holds it; `None` for the primary superblock.
    pub(super) block: Option<u64>,
    /// Bytes of a block; `None`: all sizes are tried.
    pub(super) block_bytes: Option<u32>,
}

/// A volume to look at.
pub(super) struct RawVolume {
    device: Arc<dyn BlockDevice>,
    pub(super) raw: RawSuperblock,
    pub(super) sb: Superblock,
    /// The superblock has no checksum, or it fits.
    pub(super) checksum_is_right: bool,
    pub(super) geometry: Geometry,
    pub(super) checksums: Checksums,
    pub(super) format: InodeFormat,
}

impl RawVolume {
    /// Reads the superblock of an image.
    ///
    /// Errors: `SuperblockMagic` and others of the superblock; `Unsupported` for features without
    /// which nothing can be read; `Device`.
    pub(super) fn open(image: &Image, copy: Copy) -> Result<RawVolume> {
        // Another program may use the volume meanwhile, as with the originals.
        let device = image.options().lock(false).assemble(&image.path)?.device();
        RawVolume::on(device, copy)
    }

    /// The same, for the volume on a device.
    pub(super) fn on(device: Arc<dyn BlockDevice>, copy: Copy) -> Result<RawVolume> {
        let raw = match copy.block {
            None => superblock_at(&*device, SUPERBLOCK_OFFSET)?,
            Some(block) => copy_at(&*device, block, copy.block_bytes)?,
        };
        let sb = raw.parse(Site::NOWHERE)?;
        let has_checksum = sb.features.ro_compat.contains(RoCompat::METADATA_CSUM);
        let checksum_is_right = !has_checksum || raw.checksum_is_right();
        if let Some(feature) = sb.features.unreadable() {
            return Err(Error::Unsupported { feature });
        }
        let geometry = Geometry::new(&sb)?;
        let (checksums, format) = (sb.checksums(), InodeFormat::new(&sb));
        Ok(RawVolume { device, raw, sb, checksum_is_right, geometry, checksums, format })
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> usize {
        self.sb.block_size.bytes()
    }

    /// The bytes of a block of the volume.
    pub(super) fn block(&self, block: BlockNr) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_bytes()];
        if block.0 >= self.sb.blocks_count {
            return Err(Site::of_block(block).corrupt(What::ExtentRange));
        }
        self.device.read_at(ByteOffset(block.0 << self.sb.block_size.log2()), &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes of `count` blocks of the volume.
    pub(super) fn blocks(&self, first: BlockNr, count: u64) -> Result<Vec<u8>> {
        let end = first.0.checked_add(count).filter(|end| *end <= self.sb.blocks_count);
        if end.is_none() {
            return Err(Site::of_block(first).corrupt(What::ExtentRange));
        }
        let mut bytes = vec![0; self.block_bytes() * usize::try_from(count).unwrap_or(0)];
        self.device.read_at(ByteOffset(first.0 << self.sb.block_size.log2()), &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes of a group's descriptor, from the copy beside the superblock that was read.
    pub(super) fn descriptor_bytes(&self, group: GroupNr) -> Result<Vec<u8>> {
        let missing = || Site::of_group(group).corrupt(What::DescriptorBlock);
        let (k, offset) = self.geometry.desc_place(group).ok_or_else(missing)?;
        let near = match self.sb.block_group {
            GroupNr(0) => None,
            own => self.geometry.desc_block_copy(k, own),
        };
        let block = near.or_else(|| self.geometry.desc_block(k)).ok_or_else(missing)?;
        let bytes = self.block(block)?;
        let end = offset + self.geometry.desc_size();
        bytes.get(offset..end).map(<[u8]>::to_vec).ok_or_else(missing)
    }

    /// A group's descriptor.
    pub(super) fn descriptor(&self, group: GroupNr) -> Result<GroupDesc> {
        Ok(GroupDesc::parse(&self.descriptor_bytes(group)?))
    }

    /// A group's block bitmap; computed, if the group's bitmap was never written.
    pub(super) fn block_bitmap(&self, group: GroupNr, desc: &GroupDesc) -> Result<Vec<u8>> {
        if !desc.block_uninit(&self.checksums) {
            return self.block(desc.block_bitmap);
        }
        let mut map = vec![0; self.block_bytes()];
        bitmap::init_block_bitmap(&mut map, group, desc, &self.geometry);
        Ok(map)
    }

    /// A group's inode bitmap; computed, if the group's bitmap was never written.
    pub(super) fn inode_bitmap(&self, desc: &GroupDesc) -> Result<Vec<u8>> {
        if !desc.inode_uninit(&self.checksums) {
            return self.block(desc.inode_bitmap);
        }
        let mut map = vec![0; self.block_bytes()];
        bitmap::init_inode_bitmap(&mut map, &self.geometry);
        Ok(map)
    }

    /// The block and the byte in it where an inode lies.
    pub(super) fn place_of(&self, ino: Ino) -> Result<(GroupNr, BlockNr, usize)> {
        let missing = || Site::of_ino(ino).corrupt(What::DirentInode);
        let place = self.geometry.inode_place(ino).ok_or_else(missing)?;
        let table = self.descriptor(place.group)?.inode_table;
        let block = table.0.checked_add(place.table_block.into()).ok_or_else(missing)?;
        Ok((place.group, BlockNr(block), place.offset))
    }

    /// The bytes of an inode's slot.
    pub(super) fn inode_bytes(&self, ino: Ino) -> Result<Vec<u8>> {
        let (_, block, offset) = self.place_of(ino)?;
        let bytes = self.block(block)?;
        let end = offset + usize::from(self.sb.inode_size);
        let missing = || Site::of_ino(ino).corrupt(What::DescriptorBlock);
        bytes.get(offset..end).map(<[u8]>::to_vec).ok_or_else(missing)
    }

    /// An inode, whatever its checksum says.
    pub(super) fn inode(&self, ino: Ino) -> Result<Inode> {
        Inode::parse_unverified(&self.inode_bytes(ino)?, ino, &self.format)
    }
}

fn superblock_at(device: &dyn BlockDevice, at: u64) -> Result<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(ByteOffset(at), &mut bytes)?;
    let raw = RawSuperblock::from_prefix(&bytes);
    Ok(raw.expect("the buffer is as long as a superblock").clone())
}

/// The copy in a block. Without a block size, the first one with which a superblock is there.
fn copy_at(device: &dyn BlockDevice, block: u64, size: Option<u32>) -> Result<RawSuperblock> {
    let sizes = 10..=16;
    let sizes = sizes.map(|log| 1u32 << log).filter(|known| size.is_none_or(|size| size == *known));
    for size in sizes {
        let Some(at) = block.checked_mul(size.into()) else { continue };
        let Ok(raw) = superblock_at(device, at) else { continue };
        let fits = |sb: Superblock| sb.block_size.bytes() as u64 == u64::from(size);
        if raw.parse(Site::NOWHERE).is_ok_and(fits) {
            return Ok(raw);
        }
    }
    Err(Site::NOWHERE.corrupt(What::SuperblockMagic))
}
