//! Which partition is meant.

use crate::{Disk, Partition, parse_uuid, superblock_at};
use extant_base::{DiskError, Error, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::Superblock;
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Limit of the numbers that an error names.
const NAMED_MAX: usize = 16;

/// Names a partition of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Selector {
    /// By its number, from 1.
    Number(u32),
    /// By its UUID; letters of both cases are equal.
    PartUuid(String),
    /// By its name in the partition table.
    PartLabel(String),
    /// By the label of the ext2, ext3 or ext4 volume in it.
    Label(Vec<u8>),
    /// By the UUID of the ext2, ext3 or ext4 volume in it.
    Uuid([u8; 16]),
}

impl Selector {
    /// The selector that an option of an image's name stands for: `partition=`, `partuuid=`,
    /// `partlabel=`, `label=` or `uuid=`, with its value. `None` for any other option.
    ///
    /// # Errors
    /// What is wrong with the value, in words.
    pub fn of_option(option: &str) -> Option<Result<Selector, &'static str>> {
        let (key, value) = option.split_once('=')?;
        let found = match key {
            "partition" => value.parse().ok().filter(|number| *number > 0).map(Selector::Number),
            "partuuid" => Some(Selector::PartUuid(value.into())),
            "partlabel" => Some(Selector::PartLabel(value.into())),
            "label" => Some(Selector::Label(value.into())),
            "uuid" => parse_uuid(value).map(Selector::Uuid),
            _ => return None,
        };
        Some(found.ok_or(match key {
            "partition" => "partition= takes the number of a partition, from 1",
            _ => "uuid= takes 32 hexadecimal digits, in groups of 8, 4, 4, 4 and 12",
        }))
    }
}

/// Splits a name such as `disk.img?partition=2` into the path and the partition. A name that is a
/// file's, or that ends in no such option, is a path.
///
/// # Errors
/// What is wrong with the option, in words.
pub fn split_address(name: &Path) -> Result<(&Path, Option<Selector>), &'static str> {
    let bytes = name.as_os_str().as_bytes();
    let parts = bytes.iter().rposition(|&byte| byte == b'?').map(|at| bytes.split_at(at));
    let Some((path, option)) = parts.filter(|_| !name.exists()) else { return Ok((name, None)) };
    let selector = str::from_utf8(&option[1..]).ok().and_then(Selector::of_option);
    match selector.transpose()? {
        None => Ok((name, None)),
        selector => Ok((Path::new(OsStr::from_bytes(path)), selector)),
    }
}

impl Disk {
    /// The partition that `selector` names.
    ///
    /// # Errors
    /// [`DiskError::NoSuchPartition`], [`DiskError::Several`]; [`DiskError::OutsideDisk`] for one
    /// that does not lie inside the device.
    pub fn find(&self, device: &dyn BlockDevice, selector: &Selector) -> Result<&Partition> {
        let fits = |part: &&Partition| match selector {
            Selector::Number(number) => part.number == *number,
            Selector::PartUuid(uuid) => part.uuid.eq_ignore_ascii_case(uuid),
            Selector::PartLabel(label) => part.label == *label && !label.is_empty(),
            Selector::Label(label) => {
                part.superblock(device).is_some_and(|sb| sb.label() == label && !label.is_empty())
            }
            Selector::Uuid(uuid) => part.superblock(device).is_some_and(|sb| sb.uuid == *uuid),
        };
        one_of(self.partitions.iter().filter(fits).collect())?
            .ok_or_else(|| failed(DiskError::NoSuchPartition))
            .and_then(|part| inside(part, device))
    }

    /// The partition that has a volume, if exactly one has.
    ///
    /// # Errors
    /// [`DiskError::Several`] if several have one; [`DiskError::OutsideDisk`].
    pub fn sole_volume(&self, device: &dyn BlockDevice) -> Result<Option<&Partition>> {
        let is_volume = |sb: Superblock| !sb.features.incompat.contains(Incompat::JOURNAL_DEV);
        let volumes =
            self.partitions.iter().filter(|part| part.superblock(device).is_some_and(is_volume));
        one_of(volumes.collect())?.map(|part| inside(part, device)).transpose()
    }
}

/// The bytes of a device that its volume is in: those of the partition that `selector` names;
/// without one, the only partition that has a volume, or else the whole device.
///
/// # Errors
/// `Device`; `Disk` if no partition, or no single one, is meant.
pub fn volume_part(device: &dyn BlockDevice, selector: Option<&Selector>) -> Result<Range<u64>> {
    let disk = match (Disk::read(device), selector) {
        // What is damaged or cannot be read is no reason not to open what was named.
        (Err(Error::Disk(_) | Error::Device { .. }), None) => None,
        (disk, _) => disk?,
    };
    let part = match (&disk, selector) {
        (Some(disk), Some(selector)) => Some(disk.find(device, selector)?),
        (None, Some(Selector::Label(_) | Selector::Uuid(_))) if whole_fits(device, selector) => {
            None
        }
        (None, Some(_)) => return Err(failed(DiskError::NoTable)),
        (Some(disk), None) => disk.sole_volume(device)?,
        (None, None) => None,
    };
    Ok(part.map_or(0..device.len(), |part| part.start..part.end()))
}

/// Where a volume that starts at byte `start` must end: at the end of the partition that starts
/// there, or at the start of the next one; without a partition table, at the end of the device.
pub fn end_of_volume_at(device: &dyn BlockDevice, start: u64) -> u64 {
    let Ok(Some(disk)) = Disk::read(device) else { return device.len() };
    let ends = disk.partitions.iter().filter_map(|part| match part.start.cmp(&start) {
        Ordering::Equal => Some(part.end()),
        Ordering::Greater => Some(part.start),
        Ordering::Less => None,
    });
    ends.chain([device.len()]).min().unwrap_or_default()
}

/// Whether the whole device is the volume with this label or UUID.
fn whole_fits(device: &dyn BlockDevice, selector: Option<&Selector>) -> bool {
    let Some(sb) = superblock_at(device, 0) else { return false };
    match selector {
        Some(Selector::Label(label)) => sb.label() == label,
        Some(Selector::Uuid(uuid)) => sb.uuid == *uuid,
        _ => false,
    }
}

fn one_of(found: Vec<&Partition>) -> Result<Option<&Partition>> {
    match found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        _ => {
            let numbers = found.iter().map(|part| part.number).take(NAMED_MAX).collect();
            Err(failed(DiskError::Several { numbers }))
        }
    }
}

fn inside<'a>(part: &'a Partition, device: &dyn BlockDevice) -> Result<&'a Partition> {
    let (number, end, len) = (part.number, part.end(), device.len());
    match part.start.checked_add(part.len).is_some_and(|end| end <= len) {
        true => Ok(part),
        false => Err(failed(DiskError::OutsideDisk { number, end, len })),
    }
}

fn failed(error: DiskError) -> Error {
    Error::Disk(Box::new(error))
}
