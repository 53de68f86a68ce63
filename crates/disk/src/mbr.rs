//! Master boot records.
//!
//! ```text
//!   byte 440   signature of the disk (4)
//!   byte 446   ┌ flag │ … │ type │ … │ first sector │ sectors ┐  4 entries of 16 bytes
//!   byte 510   55 AA
//!
//!   extended partition: a chain of such sectors, each with two entries in use
//!     1  a logical partition, counted from this sector
//!     2  the next sector of the chain, counted from the start of the extended partition
//! ```
//!
//! Sectors have 512 bytes. Numbers of logical partitions start at 5, however many others there are.

use crate::{Copy, Disk, PARTITIONS_MAX, Partition, PartitionType, TableKind, read_bytes, word};
use extant_base::Result;
use extant_blockdev::BlockDevice;

const SECTOR: u64 = 512;
/// Types of a partition that contains others.
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
/// The type of the entry that covers a GPT.
const PROTECTIVE: u8 = 0xEE;
/// The number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;

pub(crate) fn read(device: &dyn BlockDevice) -> Result<Option<Disk>> {
    let mut first = [0; SECTOR as usize];
    if !read_bytes(device, 0, &mut first)? || !is_mbr(&first) {
        return Ok(None);
    }
    let mut disk = Disk {
        kind: TableKind::Mbr,
        sector_bytes: SECTOR,
        id: format!("{:08x}", word(&first, 440)),
        copy: Copy::Primary,
        partitions: Vec::new(),
    };
    let mut extended = None;
    for (entry, number) in entries(&first).zip(1..) {
        match entry.kind {
            0 | PROTECTIVE => {}
            kind if EXTENDED.contains(&kind) => extended = extended.or(Some(entry.first)),
            _ => add(&mut disk, number, 0, &entry),
        }
    }
    if let Some(extended) = extended {
        add_logical(device, extended, &mut disk)?;
    }
    Ok(Some(disk))
}

/// Whether `head`, the first bytes of a disk, is a master boot record: its signature, and at least
/// one entry that is in use and makes sense. Many boot sectors have the same signature.
pub fn is_mbr(head: &[u8]) -> bool {
    let Some(first) = head.first_chunk::<{ SECTOR as usize }>() else { return false };
    let flags = first[446..510].chunks(16).all(|entry| entry[0] & 0x7F == 0);
    first[510..] == [0x55, 0xAA] && flags && entries(first).any(|entry| entry.kind != 0)
}

/// Whether the first sector of a disk says that a GPT follows.
pub(crate) fn is_protective(first: &[u8; SECTOR as usize]) -> bool {
    first[510..] == [0x55, 0xAA] && entries(first).any(|entry| entry.kind == PROTECTIVE)
}

struct Entry {
    kind: u8,
    first: u64,
    sectors: u64,
}

/// The four entries of a table. The type of an entry that is not in use is 0.
fn entries(table: &[u8; SECTOR as usize]) -> impl Iterator<Item = Entry> {
    table[446..510].chunks_exact(16).map(|entry| {
        let (first, sectors) = (word(entry, 8).into(), word(entry, 12).into());
        Entry { kind: if sectors == 0 { 0 } else { entry[4] }, first, sectors }
    })
}

/// Adds the partition of an entry that counts from sector `base`.
fn add(disk: &mut Disk, number: u32, base: u64, entry: &Entry) {
    disk.partitions.push(Partition {
        number,
        start: (base + entry.first) * SECTOR,
        len: entry.sectors * SECTOR,
        kind: PartitionType::Mbr(entry.kind),
        uuid: format!("{}-{number:02x}", disk.id),
        label: String::new(),
    });
}

/// Adds the partitions in the extended partition that starts at sector `extended`. The chain ends
/// where it would go back, so no forged chain is followed for ever.
fn add_logical(device: &dyn BlockDevice, extended: u64, disk: &mut Disk) -> Result<()> {
    let mut at = extended;
    for number in (FIRST_LOGICAL..).take(PARTITIONS_MAX) {
        let mut table = [0; SECTOR as usize];
        if !read_bytes(device, at * SECTOR, &mut table)? || table[510..] != [0x55, 0xAA] {
            return Ok(());
        }
        let mut entries = entries(&table);
        if let Some(entry) = entries.next().filter(|entry| entry.kind != 0) {
            add(disk, number, at, &entry);
        }
        match entries.next().filter(|next| EXTENDED.contains(&next.kind)) {
            Some(next) if extended + next.first > at => at = extended + next.first,
            _ => return Ok(()),
        }
    }
    Ok(())
}
