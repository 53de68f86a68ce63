//! Rewriting descriptors with other checksums, and the backups of what was changed.

use crate::context::superblock::raw_superblock;
use crate::offline::resize::switch::read_descriptors;
use crate::open::exclusive::Exclusive;
use extant_base::narrow::len_u32;
use extant_base::{Error, GroupNr, Result, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::features::Incompat;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupFlags;
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, VolumeState};
use zerocopy::IntoBytes;

/// Writes all descriptors with the checksums that `new` defines.
pub(super) fn descriptors(
    exclusive: &Exclusive,
    geometry: &Geometry,
    old: &Checksums,
    new: &Checksums,
) -> Result<()> {
    let device = exclusive.staged.device();
    let mut descs = read_descriptors(&*device, geometry, old)?;
    if !old.groups_may_be_uninit() {
        // Without this feature the flags had no meaning until now.
        for desc in &mut descs {
            (desc.flags, desc.itable_unused) = (GroupFlags::INODE_ZEROED, 0);
        }
    }
    let bs = geometry.block_size();
    let mut bytes = vec![0; bs.bytes()];
    for k in 0..geometry.desc_blocks() {
        let at = bs.start_of(geometry.desc_block(k).ok_or(Error::NoSpace)?);
        device.read_at(at, &mut bytes)?;
        let first = k * geometry.descs_per_block();
        for (n, place) in bytes.chunks_exact_mut(geometry.desc_size()).enumerate() {
            let nr = GroupNr(first + len_u32(n));
            if let Some(desc) = descs.get(nr.0 as usize) {
                desc.write(place, nr, new);
            }
        }
        device.write_at(at, &bytes)?;
    }
    Ok(())
}

/// Copies the superblock, and with `table` the descriptors, to every group that has backups.
pub(super) fn backups(exclusive: &mut Exclusive, geometry: &Geometry, table: bool) -> Result<()> {
    let bs = geometry.block_size();
    let end = geometry.blocks_count();
    let device = exclusive.staged.device();
    for group in geometry.super_groups().filter(|group| group.0 != 0) {
        let Some(at) = geometry.super_offset(group) else { continue };
        let mut raw = raw_superblock(&*device, SUPERBLOCK_OFFSET)?;
        let mut sb = raw.parse(Site::NOWHERE)?;
        sb.block_group = group;
        sb.state.remove(VolumeState::VALID);
        sb.features.incompat.remove(Incompat::LIVE);
        sb.update_raw(&mut raw);
        device.write_at(at, raw.as_bytes())?;
    }
    let mut bytes = vec![0; bs.bytes()];
    for k in (0..geometry.desc_blocks()).filter(|_| table) {
        device.read_at(bs.start_of(geometry.desc_block(k).ok_or(Error::NoSpace)?), &mut bytes)?;
        for (_, block) in geometry.desc_block_backups(k) {
            device.write_at(bs.start_of(block), &bytes)?;
        }
        if exclusive.staged.is_large() {
            let now = exclusive.now();
            exclusive.staged.commit_whole_step(end, now)?;
        }
    }
    let now = exclusive.now();
    exclusive.staged.commit_whole_step(end, now)
}
