//! GUID partition tables.
//!
//! ```text
//!   sector 0   a protective MBR: an entry of type EE
//!   sector 1   header ─► sector of the array, number and size of its entries; two checksums
//!   2 …        array:   type (16) │ GUID (16) │ first │ last │ attributes │ name (72, UTF-16)
//!   …
//!   last       header of the second copy, its array before it
//! ```
//!
//! The header does not tell the size of a sector: 512 and 4096 bytes are tried. A copy counts only
//! if both of its checksums are right. The header names the place of the other copy; a disk that
//! was enlarged has it in the middle.
//!
//! Without the protective MBR there is no GPT, as for Linux: an image with an MBR that was written
//! to a disk leaves the second copy of the old GPT at the end. Only where sector 0 is zeros or
//! cannot be read does a valid copy count alone.

use crate::guid::Guid;
use crate::mbr::is_protective;
use crate::{
    Copy, Disk, PARTITIONS_MAX, Partition, PartitionType, TableKind, long, read_bytes, word,
};
use extant_base::narrow::fits_usize;
use extant_base::{Error, Result};
use extant_blockdev::BlockDevice;

/// Size of the header in bytes, without what follows it in its sector.
const HEADER: usize = 92;
/// Limit of the size of an entry in bytes. Every tool makes entries of 128.
const ENTRY_MAX: u32 = 4096;

/// What was found.
pub(crate) enum Found {
    /// No table.
    Nothing,
    /// The signature of a table, but no copy with valid checksums.
    Damaged,
    /// A table.
    Valid(Disk),
}

/// Reads the table. With `backup_alone`, a copy at the end of the device counts even if there is no
/// trace of the other at its start.
pub(crate) fn read(device: &dyn BlockDevice, backup_alone: bool) -> Result<Found> {
    let mut first = [0; 512];
    let is_there = match read_bytes(device, 0, &mut first) {
        Ok(there) => there,
        Err(Error::Device { .. }) => true,
        Err(error) => return Err(error),
    };
    if !is_there || !(first == [0; 512] || is_protective(&first)) {
        return Ok(Found::Nothing);
    }
    let mut found = Found::Nothing;
    for sector_bytes in [512, 4096] {
        let primary = Header::read(device, sector_bytes, 1)?;
        if let Some(disk) = table(device, sector_bytes, &primary, Copy::Primary)? {
            return Ok(Found::Valid(disk));
        }
        if primary.is_none() && !backup_alone {
            continue;
        }
        let last = (device.len() / sector_bytes).saturating_sub(1);
        let named = primary.as_ref().map_or(last, |header| header.other);
        for sector in [named, last] {
            let backup = Header::read(device, sector_bytes, sector)?;
            if let Some(disk) = table(device, sector_bytes, &backup, Copy::Backup)? {
                return Ok(Found::Valid(disk));
            }
        }
        if primary.is_some() {
            found = Found::Damaged;
        }
    }
    Ok(found)
}

/// A header as it was read, with the signature in place. `is_valid` says whether its checksum is
/// right.
struct Header {
    is_valid: bool,
    other: u64,
    first_usable: u64,
    disk: Guid,
    array: u64,
    entries: u32,
    entry_bytes: u32,
    array_sum: u32,
}

impl Header {
    /// The header in `sector`; `None` without its signature.
    fn read(device: &dyn BlockDevice, sector_bytes: u64, sector: u64) -> Result<Option<Header>> {
        let mut bytes = vec![0; fits_usize(sector_bytes)];
        let Some(at) = sector.checked_mul(sector_bytes).filter(|_| sector > 0) else {
            return Ok(None);
        };
        if !read_bytes(device, at, &mut bytes)? || !bytes.starts_with(b"EFI PART") {
            return Ok(None);
        }
        let size = fits_usize(u64::from(word(&bytes, 12)));
        let sum = word(&bytes, 16);
        let covered = (HEADER..=bytes.len()).contains(&size).then(|| {
            let mut covered = bytes[..size].to_vec();
            covered[16..20].fill(0);
            crc32fast::hash(&covered)
        });
        let mut disk = [0; 16];
        disk.copy_from_slice(&bytes[56..72]);
        Ok(Some(Header {
            is_valid: covered == Some(sum) && long(&bytes, 24) == sector,
            other: long(&bytes, 32),
            first_usable: long(&bytes, 40),
            disk: Guid(disk),
            array: long(&bytes, 72),
            entries: word(&bytes, 80),
            entry_bytes: word(&bytes, 84),
            array_sum: word(&bytes, 88),
        }))
    }
}

/// The table of a header, if both checksums are right.
fn table(
    device: &dyn BlockDevice,
    sector_bytes: u64,
    header: &Option<Header>,
    copy: Copy,
) -> Result<Option<Disk>> {
    let Some(header) = header.as_ref().filter(|header| header.is_valid) else { return Ok(None) };
    let (entries, entry_bytes) = (header.entries as usize, header.entry_bytes);
    if entries > PARTITIONS_MAX || !(128..=ENTRY_MAX).contains(&entry_bytes) {
        return Ok(None);
    }
    let mut array = vec![0; entries * entry_bytes as usize];
    let Some(at) = header.array.checked_mul(sector_bytes) else { return Ok(None) };
    if !read_bytes(device, at, &mut array)? || crc32fast::hash(&array) != header.array_sum {
        return Ok(None);
    }
    let rows = array.chunks_exact(entry_bytes as usize).zip(1..);
    let partitions = rows.filter_map(|(entry, number)| partition(entry, number, sector_bytes));
    let start = header.first_usable.max(2).saturating_mul(sector_bytes);
    let partitions = partitions.filter(|part| part.start >= start);
    Ok(Some(Disk {
        kind: TableKind::Gpt,
        sector_bytes,
        id: header.disk.to_string(),
        copy,
        partitions: partitions.collect(),
    }))
}

/// The partition of an entry; `None` for an entry that is not in use, or ends before it starts.
fn partition(entry: &[u8], number: u32, sector_bytes: u64) -> Option<Partition> {
    let guid = |at: usize| Guid(entry[at..at + 16].try_into().expect("16 bytes"));
    let (first, last) = (long(entry, 32), long(entry, 40));
    if guid(0).is_zero() || first > last {
        return None;
    }
    let units: Vec<u16> =
        entry[56..128].chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
    let name = units.split(|unit| *unit == 0).next().unwrap_or_default();
    Some(Partition {
        number,
        start: first.checked_mul(sector_bytes)?,
        len: (last - first).checked_add(1)?.checked_mul(sector_bytes)?,
        kind: PartitionType::Gpt(guid(0)),
        uuid: guid(16).to_string(),
        label: String::from_utf16_lossy(name),
    })
}
