//! What is read is what sfdisk shows.

use crate::{device, made_by_sfdisk, partition, shown_by_sfdisk};
use extant_base::{ByteOffset, DiskError, Error};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::{Copy, Disk, TableKind};
use extant_testkit::judge::{Judge, require};
use extant_testkit::loop_mount::LoopDevice;
use std::path::Path;

const GPT: &str = "label: gpt
size=3M, type=U, name=\"EFI-SYSTEM\"
size=2M, type=L, name=\"Größe 'x'\"
start=20480, size=1M, type=E6D6D379-F507-44C2-A23C-238F2A3DF928
";

/// Two primary partitions, and an extended one with three logical ones.
const MBR: &str = "label: dos
label-id: 0x1234abcd
unit: sectors

disk.img1 : start=2048, size=4096, type=c, bootable
disk.img2 : start=8192, size=20480, type=f
disk.img4 : start=30720, size=1024, type=83
disk.img5 : start=10240, size=2048, type=83
disk.img6 : start=14336, size=2048, type=82
disk.img7 : start=18432, size=4096, type=83
";

/// Compares every partition with what sfdisk shows.
#[track_caller]
fn assert_same(disk: Disk, path: &Path, extended: &[u64]) -> Disk {
    let shown = shown_by_sfdisk(path);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_ascii_lowercase();
    assert_eq!(text(&shown["id"]).trim_start_matches("0x"), disk.id);
    let rows = shown["partitions"].as_array().unwrap();
    let rows: Vec<_> = rows
        .iter()
        .filter(|row| !extended.contains(&row["start"].as_u64().unwrap()))
        .map(|row| {
            let node = row["node"].as_str().unwrap();
            let number = node[path.to_str().unwrap().len()..].trim_start_matches('p');
            let unit = disk.sector_bytes;
            (
                number.parse::<u32>().unwrap(),
                row["start"].as_u64().unwrap() * unit,
                row["size"].as_u64().unwrap() * unit,
                text(&row["type"]),
                row["name"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect();
    let read: Vec<_> = disk
        .partitions
        .iter()
        .map(|part| {
            let kind = part.kind.to_string();
            let kind =
                if disk.kind == TableKind::Mbr { kind.trim_start_matches('0') } else { &kind };
            (part.number, part.start, part.len, kind.to_owned(), part.label.clone())
        })
        .collect();
    assert_eq!(read, rows);
    for (part, row) in disk.partitions.iter().zip(shown["partitions"].as_array().unwrap()) {
        if disk.kind == TableKind::Gpt {
            assert_eq!(part.uuid, text(&row["uuid"]));
        }
    }
    disk
}

fn read(path: &Path) -> Disk {
    Disk::read(&device(path)).unwrap().unwrap()
}

fn assert_gpt(disk: Disk, path: &Path) {
    let disk = assert_same(disk, path, &[]);
    assert_eq!((disk.kind, disk.copy), (TableKind::Gpt, Copy::Primary));
    assert_eq!(disk.partitions[0].kind.name(), Some("EFI system"));
    assert_eq!(disk.partitions[2].kind.name(), Some("Linux LVM"));
}

#[test]
fn gpt_with_sectors_of_512_bytes() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = made_by_sfdisk(dir.path(), 16 << 20, GPT);
    assert_gpt(read(&path), &path);
}

#[test]
fn gpt_with_sectors_of_4096_bytes() {
    extant_testkit::require!(Program("sfdisk"));
    if !require(&[Judge::Loop]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let device = LoopDevice::with_sectors(&path, 4096).unwrap();
    partition(device.path(), &GPT.replace("20480", "2560"));
    std::fs::File::open(device.path()).unwrap().sync_all().unwrap();
    let disk = read(&path);
    assert_eq!(disk.sector_bytes, 4096);
    assert_gpt(disk, device.path());
}

#[test]
fn mbr_with_logical_partitions() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = made_by_sfdisk(dir.path(), 16 << 20, MBR);
    let disk = assert_same(read(&path), &path, &[8192]);
    assert_eq!(disk.kind, TableKind::Mbr);
    let numbers: Vec<u32> = disk.partitions.iter().map(|part| part.number).collect();
    assert_eq!(numbers, [1, 4, 5, 6, 7]);
    assert_eq!(disk.partitions[0].uuid, "1234abcd-01");
    assert_eq!(disk.partitions[4].uuid, "1234abcd-07");
}

#[test]
fn the_second_copy_of_a_gpt_is_read_where_the_first_is_damaged() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = made_by_sfdisk(dir.path(), 16 << 20, GPT);
    let right = Disk::read(&device(&path)).unwrap().unwrap();
    let backup = Disk { copy: Copy::Backup, ..right.clone() };
    // A byte of the header, of the array, the whole of both.
    for (at, bytes) in [(512 + 40, 1), (1024 + 200, 1), (512, 1024 + 128 * 128)] {
        let damaged = device(&path);
        damaged.write_at(ByteOffset(at), &vec![0xA5; bytes]).unwrap();
        assert_eq!(Disk::read(&damaged).unwrap().unwrap(), backup, "byte {at}");
    }
    // A disk that was enlarged: the first copy counts, and names the place of the second.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.resize(24 << 20, 0);
    assert_eq!(Disk::read(&MemoryDevice::from_bytes(&bytes)).unwrap().unwrap(), right);
    bytes[1024 + 3] ^= 1;
    assert_eq!(Disk::read(&MemoryDevice::from_bytes(&bytes)).unwrap().unwrap(), backup);
    // Both damaged.
    let end = (16 << 20) - 512;
    bytes[end + 20] ^= 1;
    match Disk::read(&MemoryDevice::from_bytes(&bytes)) {
        Err(Error::Disk(error)) => assert_eq!(*error, DiskError::Damaged),
        other => panic!("{other:?}"),
    }
}

/// An image with an MBR, written to a disk that once had a GPT.
#[test]
fn a_remnant_of_a_gpt_does_not_count() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let disk = device(&made_by_sfdisk(dir.path(), 16 << 20, GPT));
    let image = device(&made_by_sfdisk(dir.path(), 255 << 16, MBR));
    let mut bytes = vec![0; 255 << 16];
    image.read_at(ByteOffset(0), &mut bytes).unwrap();
    disk.write_at(ByteOffset(0), &bytes).unwrap();
    let read = Disk::read(&disk).unwrap().unwrap();
    assert_eq!((read.kind, read.partitions.len()), (TableKind::Mbr, 5));
    // Also where the first sectors of the GPT are still there.
    let disk = device(&made_by_sfdisk(dir.path(), 16 << 20, GPT));
    disk.write_at(ByteOffset(0), &bytes[..512]).unwrap();
    assert_eq!(Disk::read(&disk).unwrap().unwrap().kind, TableKind::Mbr);
    // A first sector of zeros is not the work of another tool.
    let disk = device(&made_by_sfdisk(dir.path(), 16 << 20, GPT));
    disk.write_at(ByteOffset(0), &[0; 1024]).unwrap();
    assert_eq!(Disk::read(&disk).unwrap().unwrap().copy, Copy::Backup);
}

#[test]
fn a_volume_counts_before_an_mbr_and_after_a_gpt() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = made_by_sfdisk(dir.path(), 16 << 20, MBR);
    let volume = MemoryDevice::new(16 << 20);
    let volume = std::sync::Arc::new(volume);
    extant::mkfs::format(volume.clone(), &Default::default(), &Default::default()).unwrap();
    let mut first = [0; 512];
    device(&path).read_at(ByteOffset(0), &mut first).unwrap();
    volume.write_at(ByteOffset(0), &first).unwrap();
    assert_eq!(Disk::read(&*volume).unwrap(), None);
    // sgdisk can place the array elsewhere, so that a superblock fits in front of it.
    let path = made_by_sfdisk(dir.path(), 16 << 20, GPT);
    let sgdisk = extant_testkit::judge::program("sgdisk").unwrap();
    let done = std::process::Command::new(sgdisk).args(["-j", "1024"]).arg(&path).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let disk = device(&path);
    let mut superblock = [0; 1024];
    volume.read_at(ByteOffset(1024), &mut superblock).unwrap();
    disk.write_at(ByteOffset(1024), &superblock).unwrap();
    assert_eq!(Disk::read(&disk).unwrap().unwrap().partitions.len(), 3);
}
