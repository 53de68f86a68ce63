//! The partition table at the start of an image. It bounds a volume that is made inside the image.
//!
//! ```text
//!   byte 446   ┌ flag │ … │ type │ … │ first sector │ sectors ┐  4 entries of 16 bytes: MBR
//!   sector 1   "EFI PART" ─► first sector, number and size of the entries:               GPT
//!                  type (16) │ unique (16) │ first sector (8) │ last sector (8) │ …
//! ```
//!
//! Source: UEFI Specification 2.10, "GUID Partition Table (GPT) Disk Layout" and "Legacy Master
//! Boot Record (MBR)".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Limit of GPT entries and of an MBR's logical partitions that are read. Partitioning tools make
/// at most 128.
const ENTRIES_MAX: u32 = 1024;
/// MBR types of a partition that contains others.
const EXTENDED: [u8; 3] = [0x05, 0x0F, 0x85];
/// MBR type of the entry that covers a GPT.
const PROTECTIVE: u8 = 0xEE;

/// A partition, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// The partitions of the image or device at `path`, sorted by their starts. `None` without a table.
pub(crate) fn table(path: &Path) -> io::Result<Option<Vec<Partition>>> {
    let file = File::open(path)?;
    for sector in [512, 4096] {
        let mut head = [0; 92];
        if read(&file, sector, &mut head)? && head.starts_with(b"EFI PART") {
            return gpt(&file, sector, &head).map(|found| Some(sorted(found)));
        }
    }
    let mut first = [0; 512];
    if !read(&file, 0, &mut first)? || !is_mbr(&first) {
        return Ok(None);
    }
    mbr(&file, &first).map(|found| Some(sorted(found)))
}

/// Fills `bytes`. `false` if the file ends before.
fn read(file: &File, at: u64, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn sorted(mut partitions: Vec<Partition>) -> Vec<Partition> {
    partitions.sort_unstable_by_key(|partition| partition.start);
    partitions
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn gpt(file: &File, sector: u64, head: &[u8; 92]) -> io::Result<Vec<Partition>> {
    let (start, count, size) = (long(head, 72), word(head, 80), word(head, 84));
    let mut found = Vec::new();
    for n in 0..count.min(ENTRIES_MAX) {
        let mut entry = [0; 48];
        let at = u64::from(n) * u64::from(size);
        let at = start.checked_mul(sector).and_then(|start| start.checked_add(at));
        let Some(at) = at.filter(|at| i64::try_from(*at).is_ok()) else { break };
        if !read(file, at, &mut entry)? {
            break;
        }
        let (first, last) = (long(&entry, 32), long(&entry, 40));
        if entry[..16] != [0; 16] && first <= last {
            let len = (last - first).saturating_add(1).saturating_mul(sector);
            found.push(Partition { start: first.saturating_mul(sector), len });
        }
    }
    Ok(found)
}

fn is_used(entry: &[u8]) -> bool {
    entry[4] != 0 && word(entry, 12) != 0
}

fn mbr(file: &File, first: &[u8; 512]) -> io::Result<Vec<Partition>> {
    let bytes = |sectors: u32| u64::from(sectors) * 512;
    let mut found = Vec::new();
    for entry in first[446..510].chunks(16).filter(|entry| is_used(entry)) {
        let (start, len) = (bytes(word(entry, 8)), bytes(word(entry, 12)));
        if EXTENDED.contains(&entry[4]) {
            logical(file, start, &mut found)?;
        } else if entry[4] != PROTECTIVE {
            found.push(Partition { start, len });
        }
    }
    Ok(found)
}

/// Reads the chain of tables in an extended partition. Each table has a partition and the location
/// of the next table.
fn logical(file: &File, extended: u64, found: &mut Vec<Partition>) -> io::Result<()> {
    let mut at = extended;
    for _ in 0..ENTRIES_MAX {
        let mut table = [0; 512];
        if !read(file, at, &mut table)? || table[510..] != [0x55, 0xAA] {
            break;
        }
        let (one, next) = (&table[446..462], &table[462..478]);
        if is_used(one) {
            let (start, len) = (u64::from(word(one, 8)) * 512, u64::from(word(one, 12)) * 512);
            found.push(Partition { start: at + start, len });
        }
        if !is_used(next) || !EXTENDED.contains(&next[4]) {
            break;
        }
        at = extended + u64::from(word(next, 8)) * 512;
    }
    Ok(())
}

/// Whether `head`, the first sector of a disk, holds an MBR partition table: its boot signature,
/// and at least one entry that is in use and makes sense.
pub(crate) fn is_mbr(head: &[u8]) -> bool {
    let Some(table) = head.get(446..512).filter(|table| table[64..] == [0x55, 0xAA]) else {
        return false;
    };
    let entries = table[..64].chunks(16);
    let sane = entries.clone().all(|entry| entry[0] & 0x7F == 0);
    sane && entries.into_iter().any(|entry| entry[4] != 0 && entry[12..] != [0; 4])
}
