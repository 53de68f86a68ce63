//! Volumes on a device that has no superblock where one should be.
//!
//! ```text
//!   every 512 bytes ─► EF53 at 38h? ─► fields, checksum ─► start = place - place in the volume
//!                                                              │
//!   copies that agree on UUID, layout and start: one volume ───┴─ start 0 ─► its superblock
//!                                                              └─ else ────► reported
//! ```
//!
//! The whole device is read once, without its holes, in memory of a few MiB. Nothing is moved: a
//! volume that starts elsewhere needs another start of the partition, or an offset.

use super::superblock::{Found, merged, read};
use extant::{Phase, Progress};
use extant_base::narrow::fits_usize;
use extant_base::{ByteOffset, Error, GroupNr, Result, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::checksum_is_right;
use extant_ondisk::superblock::{
    RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use hashbrown::HashMap;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// Bytes that are read alone where a longer read fails.
const BLOCK: u64 = 4096;
/// Partitions start at a multiple of this.
const SECTOR: usize = 512;
/// How many volumes are distinguished; further ones are ignored.
const VOLUMES_MAX: usize = 4096;
/// How many volumes are reported.
const REPORTED_MAX: usize = 16;

/// A volume that does not start where the device starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundVolume {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its label, without the zeros at the end.
    pub label: Vec<u8>,
    /// The byte of the device where the volume starts. It is negative if the device starts within
    /// the volume, and the volume's first bytes are missing. It is 0 if the device is too short.
    pub start: i64,
    /// The volume's length, bytes.
    pub len: u64,
    /// How many superblocks agree.
    pub copies: u64,
}

/// What a search has found.
#[derive(Debug)]
pub(crate) struct Search {
    /// The superblock of the volume that starts where the device starts.
    pub(crate) own: Option<Found>,
    /// Volumes that start elsewhere, the best proven first.
    pub(crate) elsewhere: Vec<FoundVolume>,
}

/// What superblocks of one volume have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    uuid: [u8; 16],
    start: i64,
    blocks_count: u64,
    inodes_count: u32,
    blocks_per_group: u32,
    block_log: u32,
}

struct Candidate {
    found: Found,
    copies: u64,
    /// Copies in groups other than the first.
    backups: u64,
}

/// Searches a device.
///
/// Errors: `Device` for the places that prove a volume. Blocks that cannot be read are skipped.
pub(crate) fn run(device: &dyn BlockDevice, progress: &dyn Progress) -> Result<Search> {
    let mut candidates = HashMap::new();
    read_all(device, progress, &mut |at, bytes| collect(&mut candidates, at, bytes))?;
    let own = own(device, &candidates)?;
    let elsewhere = match own {
        Some(_) => Vec::new(),
        None => elsewhere(device, &candidates)?,
    };
    Ok(Search { own, elsewhere })
}

/// Calls `each` with all data of the device. Each part starts with the last sector of the one
/// before, so that a superblock of two sectors is in one of them.
fn read_all(
    device: &dyn BlockDevice,
    progress: &dyn Progress,
    each: &mut dyn FnMut(i64, &[u8]),
) -> Result<()> {
    progress.begin(Phase::RepairSearch, device.len());
    let mut bytes = vec![0; SECTOR + fits_usize(PIECE)];
    let mut at = 0;
    while at < device.len() {
        let data = next_data(device, at).min(device.len());
        progress.advance(Phase::RepairSearch, data - at);
        if data > at {
            bytes[..SECTOR].fill(0);
            at = data;
            continue;
        }
        let len = PIECE.min(device.len() - at);
        let part = &mut bytes[..SECTOR + fits_usize(len)];
        read_piece(device, at, &mut part[SECTOR..])?;
        each(at.cast_signed() - SECTOR.cast_signed() as i64, part);
        part.copy_within(fits_usize(len).., 0);
        progress.advance(Phase::RepairSearch, len);
        at += len;
    }
    Ok(())
}

/// The first byte from `at` on that is not in a hole, rounded down to a sector.
fn next_data(device: &dyn BlockDevice, at: u64) -> u64 {
    let Some(of) = device.descriptor() else { return at };
    match seek(of.file, SeekFrom::Data(of.start + at)) {
        Ok(data) => (data.saturating_sub(of.start) / SECTOR as u64 * SECTOR as u64).max(at),
        Err(Errno::NXIO) => device.len(),
        Err(_) => at,
    }
}

/// Reads a piece. What cannot be read is zeros.
fn read_piece(device: &dyn BlockDevice, at: u64, piece: &mut [u8]) -> Result<()> {
    match device.read_at(ByteOffset(at), piece) {
        Err(Error::Device { .. }) => {}
        other => return other,
    }
    let mut start = at;
    for block in piece.chunks_mut(fits_usize(BLOCK)) {
        match device.read_at(ByteOffset(start), block) {
            Ok(()) => {}
            Err(Error::Device { .. }) => block.fill(0),
            Err(error) => return Err(error),
        }
        start += BLOCK;
    }
    Ok(())
}

/// Adds the superblocks in `bytes`, which start at byte `at` of the device.
fn collect(candidates: &mut HashMap<Key, Candidate>, at: i64, bytes: &[u8]) {
    let magic = SUPERBLOCK_MAGIC.to_le_bytes();
    for n in (0..bytes.len().saturating_sub(SUPERBLOCK_SIZE - 1)).step_by(SECTOR) {
        if bytes[n + 0x38..n + 0x3A] != magic {
            continue;
        }
        let Some(raw) = RawSuperblock::from_prefix(&bytes[n..]) else { continue };
        let Ok(sb) = raw.check(Site::NOWHERE) else { continue };
        let Some(start) = i64::try_from(n).ok().and_then(|n| start_of(&sb, at + n)) else {
            continue;
        };
        let key = Key {
            uuid: sb.uuid,
            start,
            blocks_count: sb.blocks_count,
            inodes_count: sb.inodes_count,
            blocks_per_group: sb.blocks_per_group,
            block_log: sb.block_size.log2(),
        };
        if candidates.len() >= VOLUMES_MAX && !candidates.contains_key(&key) {
            continue;
        }
        let is_backup = sb.block_group.0 != 0;
        let new = || Candidate { found: Found { raw: raw.clone(), sb }, copies: 0, backups: 0 };
        let candidate = candidates.entry(key).or_insert_with(new);
        candidate.copies += 1;
        candidate.backups += u64::from(is_backup);
    }
}

/// Where the volume starts whose superblock is at byte `at`.
fn start_of(sb: &Superblock, at: i64) -> Option<i64> {
    let group = u64::from(sb.block_group.0);
    let place = match group {
        0 => SUPERBLOCK_OFFSET,
        _ => {
            let block = group * u64::from(sb.blocks_per_group) + u64::from(sb.first_data_block);
            block.checked_mul(sb.block_size.bytes() as u64)?
        }
    };
    at.checked_sub(i64::try_from(place).ok()?)
}

/// Whether the descriptor of the first group, of a volume that starts at `start`, has the right
/// checksum.
fn is_proven(device: &dyn BlockDevice, sb: &Superblock, start: i64) -> Result<bool> {
    let (Ok(geometry), group) = (Geometry::new(sb), GroupNr(0)) else { return Ok(false) };
    let checksums = sb.checksums();
    let Some((k, offset)) = geometry.desc_place(group) else { return Ok(false) };
    let Some(block) = geometry.desc_block(k) else { return Ok(false) };
    let at = i64::try_from(sb.block_size.start_of(block).0 + offset as u64);
    let at = at.ok().and_then(|at| u64::try_from(at.checked_add(start)?).ok());
    let mut bytes = vec![0; geometry.desc_size()];
    let (Some(at), true) = (at, checksums.groups_may_be_uninit()) else { return Ok(false) };
    if at.checked_add(bytes.len() as u64).is_none_or(|end| end > device.len()) {
        return Ok(false);
    }
    match device.read_at(ByteOffset(at), &mut bytes) {
        Ok(()) => Ok(checksum_is_right(&bytes, group, &checksums)),
        Err(Error::Device { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The superblock of the volume that starts where the device starts: of volumes with a backup, one
/// whose descriptors are there, then the one with the most copies, then the one written last; else
/// a copy in the log, if the descriptors are of the same volume.
fn own(device: &dyn BlockDevice, found: &HashMap<Key, Candidate>) -> Result<Option<Found>> {
    let fits = |one: &Candidate| one.found.sb.check_device(device.len(), Site::NOWHERE).is_ok();
    let mut best = None;
    for (key, one) in found.iter().filter(|(_, one)| fits(one)) {
        let sb = &one.found.sb;
        let has_backup = key.start == 0 && one.backups > 0;
        if !has_backup && sb.block_group.0 != 0 {
            continue;
        }
        let proven = is_proven(device, sb, 0)?;
        if has_backup || proven {
            // The key decides between equals: a repair does what its plan said.
            let rank = match has_backup {
                true => (true, proven, one.copies, sb.wtime, *key),
                false => (false, proven, 0, sb.wtime, *key),
            };
            if best.as_ref().is_none_or(|(other, _)| *other < rank) {
                best = Some((rank, one));
            }
        }
    }
    let Some(copy) = best.map(|(_, best)| best.found.clone()) else { return Ok(None) };
    let group = copy.sb.block_group;
    let mut own = match read(device, SUPERBLOCK_OFFSET) {
        Ok(Some(primary)) => merged(&primary, copy),
        _ => copy,
    };
    // The report names it.
    own.sb.block_group = group;
    Ok(Some(own))
}

/// The volumes that start elsewhere: those whose descriptors prove the start, then those with the
/// most copies. A single copy without a proof may be content of a file or of a journal, so it
/// counts only where there is nothing better.
fn elsewhere(
    device: &dyn BlockDevice,
    found: &HashMap<Key, Candidate>,
) -> Result<Vec<FoundVolume>> {
    let mut rated = Vec::new();
    for (key, one) in found {
        rated.push((is_proven(device, &one.found.sb, key.start)?, one.copies, key, one));
    }
    rated.sort_by_key(|(proven, copies, key, _)| {
        (std::cmp::Reverse((*proven, *copies)), key.start, key.uuid)
    });
    let good = rated.iter().filter(|(proven, copies, ..)| *proven || *copies > 1).count();
    rated.truncate(if good > 0 { good } else { 1 }.min(REPORTED_MAX));
    Ok(rated
        .into_iter()
        .map(|(_, copies, key, one)| FoundVolume {
            uuid: key.uuid,
            label: one.found.sb.label().to_vec(),
            start: key.start,
            len: key.blocks_count << key.block_log,
            copies,
        })
        .collect())
}
