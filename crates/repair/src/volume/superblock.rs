//! The superblock to repair with: the primary one if it is sound, else the best copy.
//!
//! ```text
//!   primary ─┬─ sound ───────────────────────────────────────────────► used
//!            ├─ only its checksum is wrong, a copy agrees ───────────► used, checksum set
//!            └─ else: copies at usual places ────────────────────────► copy, with the primary's
//!                      │                                               changing fields
//!                      └─ none: fields of the primary made legal, or a search of the device
//! ```

use crate::report::{Class, Report};
use extant_base::narrow::{high_u32, low_u32};
use extant_base::{BlockNr, BlockSize, ByteOffset, Error, GroupNr, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::bitmap::{self, Kind};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::{GroupDesc, checksum_is_right};
use extant_ondisk::superblock::{
    RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use zerocopy::FromBytes;

/// Groups that hold copies on all but very unusual volumes.
const COPIES: [u32; 14] = [1, 3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343, 625, 729];

/// A superblock as it is on disk and as it is understood.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) raw: RawSuperblock,
    pub(crate) sb: Superblock,
}

impl Found {
    /// Writes it as the primary superblock.
    ///
    /// Errors: `Device`.
    pub(crate) fn put(mut self, device: &dyn BlockDevice) -> Result<()> {
        self.sb.block_group = GroupNr(0);
        self.sb.update_raw(&mut self.raw);
        device.write_at(ByteOffset(SUPERBLOCK_OFFSET), &self.raw.to_bytes())
    }
}

/// Finds the superblock. `group` names the copy to use.
///
/// Errors: `SuperblockMagic` if there is none; `Unsupported`; `Device`.
pub(crate) fn find(
    device: &dyn BlockDevice,
    group: Option<u32>,
    report: &mut Report,
) -> Result<Found> {
    let none = || Site::NOWHERE.corrupt(What::SuperblockMagic);
    let mut primary = read(device, SUPERBLOCK_OFFSET)?.ok_or_else(none)?;
    if restore_revision(&mut primary) {
        report.add(Class::Superblock);
    }
    if let Some(group) = group {
        let copy = copies(device, &primary, &[group])?.into_iter().next();
        let copy = copy.ok_or_else(|| Site::of_group(GroupNr(group)).corrupt(What::Backup))?;
        report.add(Class::SuperblockBackup);
        report.note(format!("the superblock of group {group} is used, as requested"));
        return Ok(merged(&primary, copy));
    }
    let wrong = match judge(device, &primary) {
        Ok(sb) if !sb.features.compat.unknown().is_empty() && !has_sums(&sb) => {
            // Nothing proves the bit: a copy without it does.
            let copy = copies(device, &primary, &COPIES)?.into_iter().next();
            if let Some(copy) = copy.filter(|copy| agrees(&sb, &copy.sb)) {
                report.add(Class::Superblock);
                let mut sb = sb;
                sb.features.compat = copy.sb.features.compat;
                return Ok(Found { raw: primary, sb });
            }
            return Ok(Found { raw: primary, sb });
        }
        Ok(sb) => {
            if sb.free_blocks > sb.blocks_count
                && !has_sums(&sb)
                && !bitmap_fits(device, &sb, Kind::Block)?
                && let Some(larger) = as_large_as(device, &primary)
                && let Ok(sb) = judge(device, &larger)
                && bitmap_fits(device, &sb, Kind::Block)?
            {
                report.add(Class::Superblock);
                return Ok(Found { raw: larger, sb });
            }
            return Ok(Found { raw: primary, sb });
        }
        Err(error) => error,
    };
    let found = copies(device, &primary, &COPIES)?;
    if let Some(sb) = legal(device, &primary)
        && found.first().is_none_or(|copy| agrees(&sb, &copy.sb))
    {
        report.add(Class::Superblock);
        return Ok(Found { raw: primary, sb });
    }
    if let Some(copy) = majority(found) {
        report.add(Class::SuperblockBackup);
        report.note(format!(
            "the superblock is damaged; the copy of group {} is used",
            copy.sb.block_group
        ));
        return Ok(merged(&primary, copy));
    }
    if let Error::Unsupported { .. } = wrong {
        return Err(wrong);
    }
    let mut raw = primary.clone();
    let fits = |sb: &Superblock| sb.check_device(device.len(), Site::NOWHERE).is_ok();
    if let Some(found) = as_counted(device, &raw)? {
        report.add(Class::Superblock);
        return Ok(found);
    }
    let made = made_legal(&mut raw).filter(fits).or_else(|| {
        // The number of blocks is wrong: perhaps the volume fills its device.
        raw = as_large_as(device, &primary)?;
        made_legal(&mut raw).filter(fits)
    });
    match made {
        Some(sb) => {
            report.add(Class::Superblock);
            Ok(Found { raw, sb })
        }
        None => Err(wrong),
    }
}

/// Sets the revision of a volume that uses what only revision 1 has. Returns whether it was another
/// one: then the sizes of inodes are not read, or no e2fsprogs opens the volume.
fn restore_revision(raw: &mut RawSuperblock) -> bool {
    let (size, first) = (raw.s_inode_size.get(), raw.s_first_ino.get());
    let legal = raw.s_magic.get() == SUPERBLOCK_MAGIC
        && size.is_power_of_two()
        && (128..=4096).contains(&size)
        && first >= 11;
    let features =
        raw.s_feature_compat.get() | raw.s_feature_incompat.get() | raw.s_feature_ro_compat.get();
    let wrong = match raw.s_rev_level.get() {
        0 => features != 0 || size != 128 || first != 11,
        1 => false,
        _ => true,
    };
    if legal && wrong {
        raw.s_rev_level = 1.into();
    }
    legal && wrong
}

/// Whether a field without a meaning has a value that e2fsprogs refuses.
pub(crate) fn has_junk(raw: &RawSuperblock) -> bool {
    let is_64bit = raw.s_feature_incompat.get() & Incompat::IS_64BIT.bits() != 0;
    let size = raw.s_desc_size.get();
    !is_64bit && ![0, 32, 64].contains(&size)
}

fn has_sums(sb: &Superblock) -> bool {
    sb.features.ro_compat.contains(RoCompat::METADATA_CSUM)
}

/// The superblock at `offset`, or `None` past the end of the device.
pub(super) fn read(device: &dyn BlockDevice, offset: u64) -> Result<Option<RawSuperblock>> {
    if offset + SUPERBLOCK_SIZE as u64 > device.len() {
        return Ok(None);
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(ByteOffset(offset), &mut bytes)?;
    Ok(RawSuperblock::read_from_bytes(&bytes).ok())
}

/// A sound superblock of a volume that this device holds.
fn judge(device: &dyn BlockDevice, raw: &RawSuperblock) -> Result<Superblock> {
    let sb = raw.check(Site::NOWHERE)?;
    sb.check_device(device.len(), Site::NOWHERE)?;
    Ok(sb)
}

/// As [`judge`], whatever the checksum.
fn legal(device: &dyn BlockDevice, raw: &RawSuperblock) -> Option<Superblock> {
    let sb = raw.parse(Site::NOWHERE).ok()?;
    let known = sb.features.unreadable().is_none() && sb.features.compat.unknown().is_empty();
    let fits = sb.check_fields(Site::NOWHERE).is_ok()
        && sb.check_device(device.len(), Site::NOWHERE).is_ok();
    (known && fits && sb.features.ro_compat.unknown().is_empty()).then_some(sb)
}

/// Whether a superblock and a copy describe the same layout.
fn agrees(sb: &Superblock, copy: &Superblock) -> bool {
    let (incompat, ro_compat) = (Incompat::MAY_DIFFER_IN_BACKUPS, RoCompat::MAY_DIFFER_IN_BACKUPS);
    sb.uuid == copy.uuid
        && sb.blocks_count == copy.blocks_count
        && sb.inodes_count == copy.inodes_count
        && sb.block_size == copy.block_size
        && sb.blocks_per_group == copy.blocks_per_group
        && sb.inode_size == copy.inode_size
        && sb.desc_size == copy.desc_size
        && sb.first_ino == copy.first_ino
        && sb.reserved_gdt_blocks == copy.reserved_gdt_blocks
        && sb.first_meta_bg == copy.first_meta_bg
        && sb.checksum_seed == copy.checksum_seed
        && sb.hash_seed == copy.hash_seed
        && sb.features.incompat.difference(incompat) == copy.features.incompat.difference(incompat)
        && sb.features.ro_compat.difference(ro_compat)
            == copy.features.ro_compat.difference(ro_compat)
}

/// Sound copies in these groups, for the sizes that the primary names and for the usual ones.
fn copies(device: &dyn BlockDevice, primary: &RawSuperblock, groups: &[u32]) -> Result<Vec<Found>> {
    let mut layouts = Vec::new();
    if let Ok(sb) = primary.parse(Site::NOWHERE) {
        layouts.push((sb.block_size, u64::from(sb.blocks_per_group)));
    }
    layouts.extend(BlockSize::ALL.map(|size| (size, size.bytes() as u64 * 8)));
    let mut found: Vec<Found> = Vec::new();
    for (size, per_group) in layouts {
        for group in groups {
            let first = u64::from(size.bytes() == 1024);
            let block = u64::from(*group).checked_mul(per_group).map(|start| start + first);
            let Some(start) = block.and_then(|b| b.checked_mul(size.bytes() as u64)) else {
                continue;
            };
            let Some(raw) = read(device, start)? else { continue };
            if let Ok(sb) = judge(device, &raw)
                && sb.block_size == size
                && (sb.block_group.0 == *group || sb.rev_level == 0)
            {
                found.push(Found { raw, sb });
            }
        }
    }
    Ok(found)
}

/// The copy with which most others agree.
fn majority(found: Vec<Found>) -> Option<Found> {
    let votes = |one: &Found| found.iter().filter(|other| agrees(&one.sb, &other.sb)).count();
    let best = (0..found.len()).max_by_key(|n| (votes(&found[*n]), std::cmp::Reverse(*n)))?;
    found.into_iter().nth(best)
}

/// A copy as the primary superblock, with those fields of the primary that copies do not follow, as
/// far as they are credible.
pub(super) fn merged(primary: &RawSuperblock, copy: Found) -> Found {
    let Found { raw, mut sb } = copy;
    sb.block_group = GroupNr(0);
    if let Ok(old) = primary.parse(Site::NOWHERE)
        && old.uuid == sb.uuid
    {
        let differ = old.features.incompat.symmetric_difference(sb.features.incompat);
        if Incompat::MAY_DIFFER_IN_BACKUPS.contains(differ) {
            sb.features.incompat = old.features.incompat;
        }
        let differ = old.features.ro_compat.symmetric_difference(sb.features.ro_compat);
        if RoCompat::MAY_DIFFER_IN_BACKUPS.contains(differ) {
            sb.features.ro_compat = old.features.ro_compat;
        }
        if old.last_orphan <= sb.inodes_count {
            sb.last_orphan = old.last_orphan;
        }
        sb.volume_name = old.volume_name;
        sb.mtime = old.mtime;
        sb.wtime = old.wtime;
        sb.mnt_count = old.mnt_count;
    }
    Found { raw, sb }
}

/// The superblock with as many inodes in each group as their total says, if the padding of the
/// bitmap says so, too: of two numbers that fit it, the smaller is right.
fn as_counted(device: &dyn BlockDevice, raw: &RawSuperblock) -> Result<Option<Found>> {
    let Ok(sb) = raw.parse(Site::NOWHERE) else { return Ok(None) };
    let Some(groups) = sb.groups_count().filter(|groups| *groups > 0) else { return Ok(None) };
    let per_group = sb.inodes_count / groups;
    if !sb.inodes_count.is_multiple_of(groups) || per_group == sb.inodes_per_group {
        return Ok(None);
    }
    let mut counted = raw.clone();
    counted.s_inodes_per_group = per_group.into();
    let Ok(found) = judge(device, &counted) else { return Ok(None) };
    if !bitmap_fits(device, &found, Kind::Inode)? {
        return Ok(None);
    }
    let other_fits = match made_legal(&mut raw.clone()) {
        Some(other) => bitmap_fits(device, &other, Kind::Inode)?,
        None => false,
    };
    let right = per_group < sb.inodes_per_group || !other_fits;
    Ok(right.then_some(Found { raw: counted, sb: found }))
}

/// Lowers the number of reserved descriptor blocks if the bitmaps and the inode table of the first
/// group lie in them.
pub(crate) fn settle_reserved(device: &dyn BlockDevice, sb: &mut Superblock) -> Result<bool> {
    let group = GroupNr(0);
    let Ok(geometry) = Geometry::new(sb) else { return Ok(false) };
    let (Some(base), Some((k, offset))) = (geometry.base_blocks(group), geometry.desc_place(group))
    else {
        return Ok(false);
    };
    let Some(block) = geometry.desc_block(k) else { return Ok(false) };
    let mut bytes = vec![0; sb.block_size.bytes()];
    device.read_at(sb.block_size.start_of(block), &mut bytes)?;
    let Some(bytes) = bytes.get(offset..offset + geometry.desc_size()) else { return Ok(false) };
    let desc = GroupDesc::parse(bytes);
    let reserved = u64::from(sb.reserved_gdt_blocks);
    let start = base.end.saturating_sub(reserved);
    let places = [desc.block_bitmap.0, desc.inode_bitmap.0, desc.inode_table.0];
    let first = places.into_iter().min().unwrap_or(0);
    let inside = places.iter().all(|place| (start..base.end).contains(place));
    if !inside || !checksum_is_right(bytes, group, &sb.checksums()) {
        return Ok(false);
    }
    sb.reserved_gdt_blocks = u16::try_from(first - start).unwrap_or(0);
    Ok(true)
}

/// Whether a bitmap of a volume of one group has as many bits as the superblock says: those past
/// the end are set. Volumes of several groups have copies of the superblock instead.
fn bitmap_fits(device: &dyn BlockDevice, sb: &Superblock, kind: Kind) -> Result<bool> {
    let Ok(geometry) = Geometry::new(sb) else { return Ok(false) };
    let group = GroupNr(0);
    let (Some((k, offset)), 1) = (geometry.desc_place(group), geometry.groups_count()) else {
        return Ok(false);
    };
    let Some(block) = geometry.desc_block(k) else { return Ok(false) };
    let read = |block: BlockNr| -> Result<Vec<u8>> {
        let mut bytes = vec![0; sb.block_size.bytes()];
        device.read_at(sb.block_size.start_of(block), &mut bytes)?;
        Ok(bytes)
    };
    let descriptors = read(block)?;
    let Some(bytes) = descriptors.get(offset..offset + geometry.desc_size()) else {
        return Ok(false);
    };
    let desc = GroupDesc::parse(bytes);
    let at = match kind {
        Kind::Block => desc.block_bitmap,
        Kind::Inode => desc.inode_bitmap,
    };
    let bits = kind.used_bits(&geometry, group);
    Ok(geometry.holds(at, 1) && bitmap::padding_is_set(&read(at)?, bits))
}

/// The superblock with as many blocks as the device has.
fn as_large_as(device: &dyn BlockDevice, raw: &RawSuperblock) -> Option<RawSuperblock> {
    let size = BlockSize::from_superblock_log(raw.s_log_block_size.get())?;
    let blocks = device.len() >> size.log2();
    let mut raw = raw.clone();
    raw.s_blocks_count_lo = low_u32(blocks).into();
    raw.s_blocks_count_hi = high_u32(blocks).into();
    Some(raw)
}

/// Makes fields legal that have only one legal value, or a harmless one.
fn made_legal(raw: &mut RawSuperblock) -> Option<Superblock> {
    // Each round repairs one field, and there are fewer fields than rounds.
    for _ in 0..12 {
        let mut sb = raw.parse(Site::NOWHERE).ok()?;
        let Err(Error::Corrupt { at, .. }) = sb.check_fields(Site::NOWHERE) else {
            return sb.features.unreadable().is_none().then_some(sb);
        };
        match at.offset? {
            0x00 => sb.inodes_count = sb.groups_count()?.checked_mul(sb.inodes_per_group)?,
            0x54 => sb.first_ino = 11,
            0xCE => {
                sb.reserved_gdt_blocks = 0;
                sb.features.compat.remove(Compat::RESIZE_INODE);
            }
            0xFC => sb.def_hash_version = 1,
            0xFE => {
                sb.desc_size =
                    if sb.features.incompat.contains(Incompat::IS_64BIT) { 64 } else { 32 };
            }
            0x104 => sb.first_meta_bg = 0,
            0x15C => sb.min_extra_isize = 0,
            0x15E => sb.want_extra_isize = 32.min(sb.inode_size.saturating_sub(128)),
            _ => return None,
        }
        sb.update_raw(raw);
    }
    None
}

/// Repairs fields that contradict each other. Returns whether any did.
pub(crate) fn settle(sb: &mut Superblock) -> bool {
    let before = sb.clone();
    if sb.reserved_blocks > sb.blocks_count / 2 {
        sb.reserved_blocks = sb.blocks_count / 20;
    }
    settle_journal(sb);
    if sb.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        sb.features.ro_compat.remove(RoCompat::GDT_CSUM);
    } else {
        sb.features.incompat.remove(Incompat::CSUM_SEED);
    }
    if sb.features.incompat.contains(Incompat::META_BG) {
        sb.features.compat.remove(Compat::RESIZE_INODE);
    }
    if !sb.features.compat.contains(Compat::RESIZE_INODE) {
        sb.reserved_gdt_blocks = 0;
    }
    if sb.log_groups_per_flex > 31 {
        sb.log_groups_per_flex = 0;
    }
    settle_quota(sb);
    let orphans = sb.first_ino..=sb.inodes_count;
    if !sb.has_journal()
        || (sb.features.compat.contains(Compat::ORPHAN_FILE)
            && !orphans.contains(&sb.orphan_file_inum))
    {
        sb.features.compat.remove(Compat::ORPHAN_FILE);
    }
    if !sb.features.compat.contains(Compat::ORPHAN_FILE) {
        sb.orphan_file_inum = 0;
        sb.features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
    }
    let blocks = u64::from(sb.first_data_block)..sb.blocks_count;
    if sb.features.incompat.contains(Incompat::MMP) && !blocks.contains(&sb.mmp_block.0) {
        sb.features.incompat.remove(Incompat::MMP);
    }
    // Names without a meaning.
    sb.features.compat.remove(Compat::EXCLUDE_BITMAP | Compat::LAZY_BG);
    sb.features.ro_compat.remove(RoCompat::BTREE_DIR);
    *sb != before
}

fn settle_journal(sb: &mut Superblock) {
    if !sb.has_journal() {
        sb.journal_inum = 0;
        sb.journal_uuid = [0; 16];
        sb.features.incompat.remove(Incompat::LIVE);
        return;
    }
    let external = sb.journal_uuid != [0; 16];
    if sb.journal_inum != 0 || !external {
        sb.journal_inum = 8;
        sb.journal_uuid = [0; 16];
        sb.journal_dev = 0;
    }
}

fn settle_quota(sb: &mut Superblock) {
    if !sb.features.ro_compat.contains(RoCompat::QUOTA) {
        (sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum) = (0, 0, 0);
        return;
    }
    if ![0, 3].contains(&sb.usr_quota_inum) {
        sb.usr_quota_inum = 3;
    }
    if ![0, 4].contains(&sb.grp_quota_inum) {
        sb.grp_quota_inum = 4;
    }
    let legal = sb.first_ino..=sb.inodes_count;
    if sb.prj_quota_inum != 0 && !legal.contains(&sb.prj_quota_inum) {
        sb.prj_quota_inum = 0;
    }
}
