//! Tables that lie: nothing panics, loops or takes much memory.

use crate::{device, made_by_sfdisk};
use extant_base::ByteOffset;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_disk::Disk;

/// An MBR whose chain of logical partitions has `links`: for each sector of the chain, the sector
/// that it names next, counted from the start of the extended partition.
fn chain(links: &[(u64, u32)]) -> MemoryDevice {
    let device = MemoryDevice::new(1 << 20);
    let sector = |at: u64, entries: &[(u8, u32, u32)]| {
        let mut bytes = [0; 512];
        for (n, (kind, first, sectors)) in entries.iter().enumerate() {
            let at = 446 + 16 * n;
            bytes[at + 4] = *kind;
            bytes[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
            bytes[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
        }
        bytes[510..].copy_from_slice(&[0x55, 0xAA]);
        device.write_at(ByteOffset(at * 512), &bytes).unwrap();
    };
    sector(0, &[(5, 100, 1000)]);
    for (at, next) in links {
        sector(100 + at, &[(0x83, 1, 2), (5, *next, 10)]);
    }
    device
}

#[test]
fn a_chain_of_logical_partitions_ends() {
    for (links, count) in [
        (&[(0, 0)][..], 1),
        (&[(0, 10), (10, 10)], 2),
        (&[(0, 10), (10, 20), (20, 10)], 3),
        (&[(0, u32::MAX)], 1),
    ] {
        let disk = Disk::read(&chain(links)).unwrap().unwrap();
        assert_eq!(disk.partitions.len(), count, "{links:?}");
    }
    let long: Vec<(u64, u32)> = (0..1500).map(|n| (n, n as u32 + 1)).collect();
    let disk = Disk::read(&chain(&long)).unwrap().unwrap();
    assert_eq!(disk.partitions.len(), 1024);
}

/// Headers whose checksum is right, with absurd values.
#[test]
fn a_gpt_with_absurd_values_is_refused() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = made_by_sfdisk(dir.path(), 16 << 20, "label: gpt\nsize=3M\n");
    let bytes = std::fs::read(&path).unwrap();
    let fields = [(12, 4, "header size"), (72, 8, "array"), (80, 4, "entries"), (84, 4, "size")];
    for (at, len, name) in fields {
        for value in [0, 1, 127, 1 << 20, u32::MAX.into(), u64::MAX] {
            let mut bytes = bytes.clone();
            // Without the second copy.
            let end = bytes.len() - 512;
            bytes[end..].fill(0);
            let header = &mut bytes[512..604];
            header[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            header[16..20].fill(0);
            let sum = crc32fast::hash(header);
            header[16..20].copy_from_slice(&sum.to_le_bytes());
            let read = Disk::read(&MemoryDevice::from_bytes(&bytes));
            assert!(!matches!(read, Ok(Some(_))), "{name} {value}: {read:?}");
        }
    }
}

#[test]
fn a_flipped_byte_panics_nowhere() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let mbr = "label: dos\nsize=1M\nsize=8M, type=5\n";
    for script in ["label: gpt\nsize=1M, name=a\nsize=2M\n", mbr] {
        let disk = device(&made_by_sfdisk(dir.path(), 10 << 20, script));
        for at in (0..2048).step_by(3) {
            for value in [0, 0x5A, 0xFF] {
                let mut old = [0];
                disk.read_at(ByteOffset(at), &mut old).unwrap();
                disk.write_at(ByteOffset(at), &[value]).unwrap();
                let _ = Disk::read(&disk);
                disk.write_at(ByteOffset(at), &old).unwrap();
            }
        }
    }
}
