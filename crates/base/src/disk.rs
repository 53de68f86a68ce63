//! Why no partition of a disk could be opened as a volume.

use core::fmt;

/// A disk on which the partition that was asked for cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiskError {
    /// A partition was named, and there is no partition table.
    NoTable,
    /// There is a GPT, and neither copy of it has valid checksums.
    Damaged,
    /// No partition has the number, the name or the UUID that was asked for.
    NoSuchPartition,
    /// Several partitions have the name or the UUID that was asked for; or several have a volume,
    /// and none was asked for.
    Several {
        /// Their numbers, at most the first 16.
        numbers: Vec<u32>,
    },
    /// The partition does not lie inside the disk.
    OutsideDisk {
        /// The partition's number.
        number: u32,
        /// The byte after the partition.
        end: u64,
        /// The length of the disk in bytes.
        len: u64,
    },
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::NoTable => f.write_str("has no partition table"),
            DiskError::Damaged => f.write_str("both copies of its partition table are damaged"),
            DiskError::NoSuchPartition => f.write_str("has no such partition"),
            DiskError::Several { numbers } => {
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                write!(f, "several partitions fit: {}", numbers.join(", "))
            }
            DiskError::OutsideDisk { number, end, len } => write!(
                f,
                "partition {number} ends at byte {end}, and the disk has {len} bytes: the image \
                 was cut, or copied in part"
            ),
        }
    }
}
