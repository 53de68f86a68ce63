//! What else may be in the place of a new volume: filesystems, partition tables, and their like.

use extant_ondisk::member::{MEMBER_MAGIC, MEMBER_OFFSET};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that say what follows them, where they stand, and what that is.
const SIGNATURES: &[(u64, &[u8], &str)] = &[
    (1080, &[0x53, 0xEF], "an ext2, ext3 or ext4 filesystem"),
    // Of a stripe: a mirror has a superblock as well.
    (MEMBER_OFFSET, &MEMBER_MAGIC, "a member of a layout"),
    (0, b"XFSB", "an XFS filesystem"),
    (65_600, b"_BHRfS_M", "a btrfs filesystem"),
    (1024, &[0x10, 0x20, 0xF5, 0xF2], "an F2FS filesystem"),
    (1024, &[0xE2, 0xE1, 0xF5, 0xE0], "an EROFS filesystem"),
    (0, b"hsqs", "a squashfs filesystem"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (54, b"FAT1", "a FAT filesystem"),
    (82, b"FAT32   ", "a FAT filesystem"),
    (32_769, b"CD001", "an ISO 9660 filesystem"),
    (65_588, b"ReIsEr", "a ReiserFS filesystem"),
    (0, b"LUKS\xBA\xBE", "a LUKS encrypted volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (24, b"LVM2 001", "an LVM physical volume"),
    (4096, &[0xFC, 0x4E, 0x2B, 0xA9], "a RAID member"),
    (0, b"QFI\xFB", "a QCOW image"),
    (4086, b"SWAPSPACE2", "a swap area"),
    (65_526, b"SWAPSPACE2", "a swap area"),
    (0, b"bcachefs", "a bcachefs filesystem"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (257, b"ustar", "a tar archive"),
    (0, &[0x1F, 0x8B, 8], "a gzip archive"),
    (0, &[0x28, 0xB5, 0x2F, 0xFD], "a zstd archive"),
    (0, b"\xFD7zXZ\0", "an xz archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, &[0x3A, 0xFF, 0x26, 0xED], "an Android sparse image"),
    (0, b"KDMV", "a VMDK image"),
    (0, b"vhdxfile", "a VHDX image"),
];

/// What stands in `path` from byte `start` on; `None` when nothing known does. In a whole file any bytes but zeros at
/// its start are somebody's; a device or a part of one may hold what its last user left.
pub(crate) fn find(path: &Path, start: u64) -> io::Result<Option<&'static str>> {
    let file = File::open(path)?;
    let head = head(&file, start)?;
    let whole_file = start == 0 && file.metadata()?.is_file();
    let some = whole_file && head.iter().any(|&byte| byte != 0);
    Ok(tell(&head).or(some.then_some("data")))
}

/// The format of the file at `path`; `None` if it is not one of the known ones.
pub(crate) fn known(path: &Path) -> io::Result<Option<&'static str>> {
    Ok(tell(&head(&File::open(path)?, 0)?))
}

/// The first bytes from `start` on, as far as any signature goes.
fn head(file: &File, start: u64) -> io::Result<Vec<u8>> {
    let mut head = vec![0; 68 << 10];
    let mut len = 0;
    while len < head.len() {
        match file.read_at(&mut head[len..], start.saturating_add(len as u64)) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(len);
    Ok(head)
}

fn tell(head: &[u8]) -> Option<&'static str> {
    let stands =
        |at: u64, bytes: &[u8]| head.get(at as usize..).is_some_and(|rest| rest.starts_with(bytes));
    let known = SIGNATURES.iter().find(|(at, bytes, _)| stands(*at, bytes));
    known.map(|(_, _, name)| *name).or_else(|| is_mbr(head).then_some("an MBR partition table"))
}

/// A boot signature alone is no partition table: an entry must be in use and make sense.
pub(super) fn is_mbr(head: &[u8]) -> bool {
    let Some(table) = head.get(446..512).filter(|table| table[64..] == [0x55, 0xAA]) else {
        return false;
    };
    let entries = table[..64].chunks(16);
    let sane = entries.clone().all(|entry| entry[0] & 0x7F == 0);
    sane && entries.into_iter().any(|entry| entry[4] != 0 && entry[12..] != [0; 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_found_in_their_place_only() {
        let mut head = vec![0; 8192];
        assert_eq!(tell(&head), None);
        head[1080..1082].copy_from_slice(&[0x53, 0xEF]);
        assert_eq!(tell(&head), Some("an ext2, ext3 or ext4 filesystem"));
        assert_eq!(tell(&head[..1081]), None);
    }

    #[test]
    fn a_partition_table_has_a_partition() {
        let mut head = vec![0; 512];
        head[510..].copy_from_slice(&[0x55, 0xAA]);
        assert_eq!(tell(&head), None);
        head[446] = 0x80;
        head[450] = 0x83;
        head[458] = 1;
        assert_eq!(tell(&head), Some("an MBR partition table"));
    }
}
