//! Which partition is meant.

use crate::{device, made_by_sfdisk};
use extant_base::{ByteOffset, DiskError, Error};
use extant_blockdev::{BlockDevice, MemoryDevice, Slice};
use extant_disk::{Disk, Selector, end_of_volume_at, split_address, volume_part};
use std::path::Path;
use std::sync::Arc;

const TABLE: &str = "label: gpt
size=8M, type=L, name=boot
size=8M, type=L, name=root
size=8M, type=L, name=root
";

/// A disk with volumes in these partitions.
fn disk_with(volumes: &[(usize, &str)]) -> Arc<MemoryDevice> {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(device(&made_by_sfdisk(dir.path(), 32 << 20, TABLE)));
    let disk = Disk::read(&*device).unwrap().unwrap();
    for (n, label) in volumes {
        let part = &disk.partitions[*n];
        let place = Slice::new(Arc::clone(&device), ByteOffset(part.start), part.len).unwrap();
        let options =
            extant::mkfs::MkfsOptions::new().label(label).unwrap().uuid([*n as u8 + 1; 16]);
        extant::mkfs::format(Arc::new(place), &options, &Default::default()).unwrap();
    }
    device
}

fn part(device: &MemoryDevice, selector: Option<Selector>) -> Result<u64, DiskError> {
    match volume_part(device, selector.as_ref()) {
        Ok(part) => Ok(part.start >> 20),
        Err(Error::Disk(error)) => Err(*error),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_partition_is_found_by_each_of_its_names() {
    extant_testkit::require!(Program("sfdisk"));
    let device = disk_with(&[(0, "boot"), (1, "system")]);
    let disk = Disk::read(&*device).unwrap().unwrap();
    let by = |selector| part(&device, Some(selector));
    assert_eq!(by(Selector::Number(2)), Ok(9));
    assert_eq!(by(Selector::PartUuid(disk.partitions[1].uuid.to_uppercase())), Ok(9));
    assert_eq!(by(Selector::PartLabel("boot".into())), Ok(1));
    assert_eq!(by(Selector::Label(b"system".into())), Ok(9));
    assert_eq!(by(Selector::Uuid([1; 16])), Ok(1));
    assert_eq!(by(Selector::Number(4)), Err(DiskError::NoSuchPartition));
    assert_eq!(by(Selector::Label(b"root".into())), Err(DiskError::NoSuchPartition));
    let several = DiskError::Several { numbers: vec![2, 3] };
    assert_eq!(by(Selector::PartLabel("root".into())), Err(several));
}

#[test]
fn without_a_name_the_only_volume_is_meant() {
    extant_testkit::require!(Program("sfdisk"));
    assert_eq!(part(&disk_with(&[(1, "x")]), None), Ok(9));
    assert_eq!(part(&disk_with(&[]), None), Ok(0));
    let two = DiskError::Several { numbers: vec![1, 3] };
    assert_eq!(part(&disk_with(&[(0, "x"), (2, "y")]), None), Err(two));
}

#[test]
fn a_partition_beyond_the_end_is_not_opened() {
    extant_testkit::require!(Program("sfdisk"));
    let whole = disk_with(&[(0, "x"), (2, "y")]);
    let mut bytes = vec![0; 20 << 20];
    whole.read_at(ByteOffset(0), &mut bytes).unwrap();
    let cut = MemoryDevice::from_bytes(&bytes);
    let outside = DiskError::OutsideDisk { number: 3, end: 25 << 20, len: 20 << 20 };
    assert_eq!(part(&cut, Some(Selector::Number(3))), Err(outside));
    assert_eq!(part(&cut, Some(Selector::Number(1))), Ok(1));
}

#[test]
fn a_device_without_a_table_is_one_volume() {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    let options = extant::mkfs::MkfsOptions::new().label("whole").unwrap();
    extant::mkfs::format(device.clone(), &options, &Default::default()).unwrap();
    assert_eq!(part(&device, None), Ok(0));
    assert_eq!(part(&device, Some(Selector::Label(b"whole".into()))), Ok(0));
    assert_eq!(part(&device, Some(Selector::Label(b"other".into()))), Err(DiskError::NoTable));
    assert_eq!(part(&device, Some(Selector::Number(1))), Err(DiskError::NoTable));
}

#[test]
fn a_volume_at_an_offset_ends_with_its_partition() {
    extant_testkit::require!(Program("sfdisk"));
    let device = disk_with(&[(0, "x")]);
    let end = |start: u64| end_of_volume_at(&*device, start << 20) >> 20;
    assert_eq!([end(1), end(9), end(17)], [9, 17, 25]);
    // Where no partition starts, before the next one; after the last one, at the device's end.
    assert_eq!([end(2), end(26)], [9, 32]);
    assert_eq!(end_of_volume_at(&MemoryDevice::new(8 << 20), 1 << 20), 8 << 20);
}

#[test]
fn an_address_is_a_path_and_a_partition() {
    let split = |name: &'static str| split_address(Path::new(name));
    let path = Path::new("no-such.img");
    assert_eq!(split("no-such.img"), Ok((path, None)));
    assert_eq!(split("no-such.img?partition=3"), Ok((path, Some(Selector::Number(3)))));
    assert_eq!(split("no-such.img?label=a=b"), Ok((path, Some(Selector::Label(b"a=b".into())))));
    assert_eq!(split("what?now"), Ok((Path::new("what?now"), None)));
    assert!(split("no-such.img?partition=0").is_err());
    assert!(split("no-such.img?uuid=12").is_err());
}
