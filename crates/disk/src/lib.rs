//! Disks with partition tables: which partitions there are, and which of them is meant.
//!
//! ```text
//!   device ──► Disk::read ─┬─ GPT with valid checksums (either copy)
//!                          ├─ no table: an ext2, ext3 or ext4 volume starts at byte 0
//!                          └─ MBR, with the logical partitions in its extended one
//!
//!   Disk ──► find(Selector) ──► Partition: number, first byte, length, type, name, UUID
//!        └─► sole_volume ─────► the one partition with a volume, if there is one only
//! ```
//!
//! A table is untrusted: the number of entries, their places and the chain of logical partitions
//! are bounded, and a partition that does not lie inside the device is listed but not opened. A GPT
//! counts before a volume, because its checksums cover all of it; a volume counts before an MBR,
//! which is a few bytes in a sector that volumes leave alone. A GPT whose first sector is not a
//! protective MBR is a remnant and does not count.
//!
//! Reading changes nothing. Source: UEFI Specification 2.10, chapter 5; `sfdisk` for the numbers
//! of logical partitions.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod gpt;
mod guid;
mod kind;
mod mbr;
mod select;

pub use guid::{Guid, parse_uuid};
pub use kind::PartitionType;
pub use mbr::is_mbr;
pub use select::{Selector, end_of_volume_at, split_address, volume_part};

use extant_base::{ByteOffset, DiskError, Error, Result, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

/// Limit of the partitions that are read. Partitioning tools make at most 128.
const PARTITIONS_MAX: usize = 1024;

/// The kind of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A GUID partition table.
    Gpt,
    /// A master boot record.
    Mbr,
}

/// Which copy of a GPT was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// The table at the start of the disk, or a table that has no second copy.
    Primary,
    /// The table at the end of the disk, because the one at the start is damaged.
    Backup,
}

/// A disk with a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The kind of its table.
    pub kind: TableKind,
    /// The unit of the table's numbers in bytes: 512 or 4096.
    pub sector_bytes: u64,
    /// The disk's identity: a GUID, or the 32-bit signature of an MBR as 8 digits.
    pub id: String,
    /// Which copy of the table was read.
    pub copy: Copy,
    /// The partitions by number.
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1. Logical partitions of an MBR start at 5.
    pub number: u32,
    /// The first byte.
    pub start: u64,
    /// The length in bytes.
    pub len: u64,
    /// Its type.
    pub kind: PartitionType,
    /// Its UUID, as `PARTUUID=` takes it: a GUID, or the disk's signature and the number.
    pub uuid: String,
    /// Its name, from a GPT; otherwise empty.
    pub label: String,
}

impl Partition {
    /// The byte after the partition. At most `u64::MAX`.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// The superblock of the volume that starts at the partition's first byte, if there is one
    /// whose magic is right.
    pub fn superblock(&self, device: &dyn BlockDevice) -> Option<Superblock> {
        superblock_at(device, self.start)
    }
}

impl Disk {
    /// Reads the partition table of a device; `None` if it has none, or if it is one volume.
    ///
    /// # Errors
    /// `Device`; [`DiskError::Damaged`] for a GPT that has no valid copy.
    pub fn read(device: &dyn BlockDevice) -> Result<Option<Disk>> {
        let is_volume = superblock_at(device, 0).is_some();
        let gpt = gpt::read(device, !is_volume)?;
        if let gpt::Found::Valid(disk) = gpt {
            return Ok(Some(disk));
        }
        if is_volume {
            return Ok(None);
        }
        match gpt {
            gpt::Found::Damaged => Err(Error::Disk(Box::new(DiskError::Damaged))),
            _ => mbr::read(device),
        }
    }
}

/// The superblock of the volume that starts at byte `start`.
fn superblock_at(device: &dyn BlockDevice, start: u64) -> Option<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let at = start.checked_add(SUPERBLOCK_OFFSET)?;
    read_bytes(device, at, &mut bytes).ok()?.then_some(())?;
    RawSuperblock::from_prefix(&bytes)?.parse(Site::NOWHERE).ok()
}

/// Fills `bytes` from byte `at` on. `false` if the device ends before.
fn read_bytes(device: &dyn BlockDevice, at: u64, bytes: &mut [u8]) -> Result<bool> {
    let fits = at.checked_add(bytes.len() as u64).is_some_and(|end| end <= device.len());
    if fits {
        device.read_at(ByteOffset(at), bytes)?;
    }
    Ok(fits)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
