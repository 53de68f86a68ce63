//! Partition tables.

use extant::MemoryDevice;
use extant::disk::{Disk, Selector, volume_part};

const SECTOR: usize = 512;

/// Reads a disk whose first bytes are these. If they have the signature of a GPT, its checksums are
/// corrected first, because without that nearly every change would end there.
pub fn table(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(SECTOR).max(4 * SECTOR), 0);
    for sector in [512, 4096] {
        correct(&mut bytes, sector);
    }
    let device = MemoryDevice::from_bytes(&bytes);
    let Ok(Some(disk)) = Disk::read(&device) else { return };
    assert!(disk.partitions.len() <= 1024);
    for part in &disk.partitions {
        let (_, _) = (part.kind.name(), part.kind.to_string());
        if let Ok(found) = disk.find(&device, &Selector::Number(part.number)) {
            assert!(found.end() <= bytes.len() as u64);
        }
    }
    let _ = volume_part(&device, None);
}

/// Corrects the checksums of the GPT header in the sector after the first.
fn correct(bytes: &mut [u8], sector: usize) -> Option<()> {
    let header = bytes.get(sector..sector + 92).filter(|header| header.starts_with(b"EFI PART"))?;
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let (size, entries, entry) = (word(12) as usize, word(80) as usize, word(84) as usize);
    let start = (word(72) as usize).checked_mul(sector)?;
    let end = start.checked_add(entries.checked_mul(entry)?)?;
    let sum = bytes.get(start..end).map(crc32fast::hash);
    if let Some(sum) = sum {
        bytes[sector + 88..sector + 92].copy_from_slice(&sum.to_le_bytes());
    }
    bytes[sector + 16..sector + 20].fill(0);
    let sum = crc32fast::hash(bytes.get(sector..sector.checked_add(size)?)?);
    bytes[sector + 16..sector + 20].copy_from_slice(&sum.to_le_bytes());
    Some(())
}

/// A GPT with two partitions for each size of a sector, and an MBR with logical partitions.
pub fn seeds() -> Vec<Vec<u8>> {
    vec![gpt(512), gpt(4096), mbr()]
}

fn gpt(sector: usize) -> Vec<u8> {
    let mut bytes = vec![0; 6 * sector];
    let header = &mut bytes[sector..];
    header[..8].copy_from_slice(b"EFI PART");
    for (at, value) in [(12, 92), (24, 1), (32, 5), (72, 2), (80, 4), (84, 128)] {
        header[at] = value;
    }
    for n in 0..2 {
        let entry = &mut bytes[2 * sector + 128 * n..][..128];
        entry[..32].fill(n as u8 + 1);
        (entry[32], entry[40], entry[56]) = (3 + n as u8, 3 + n as u8, b'a');
    }
    bytes
}

fn mbr() -> Vec<u8> {
    let mut bytes = vec![0; 8 * SECTOR];
    let mut put = |sector: usize, n: usize, kind: u8, first: u8, sectors: u8| {
        let table = &mut bytes[sector * SECTOR..][..SECTOR];
        let entry = &mut table[446 + 16 * n..][..16];
        (entry[4], entry[8], entry[12]) = (kind, first, sectors);
        table[510..].copy_from_slice(&[0x55, 0xAA]);
    };
    put(0, 0, 0x83, 1, 1);
    put(0, 1, 0x05, 2, 6);
    put(2, 0, 0x83, 1, 1);
    put(2, 1, 0x05, 2, 2);
    put(4, 0, 0x83, 1, 1);
    bytes
}
