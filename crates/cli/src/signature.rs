//! Detects what a file or device contains other than a volume, by the bytes that mark each format.
//!
//! ```text
//!   first 68 KiB ──► Format: its name, and what to do with it here
//! ```

use crate::disk;
use crate::failure::explained;
use extant::disk::Disk;
use extant_disk::is_mbr;
use extant_ondisk::member::{MEMBER_MAGIC, MEMBER_OFFSET};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A format other than ext4, and how to get from it to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// With its article: "a GPT partition table".
    pub(crate) name: &'static str,
    /// What a user who wanted a volume should do next.
    pub(crate) next: Next,
}

/// How to get from a file to the volume that may be in it; `IMG` is replaced by the file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is a volume.
    Volume,
    /// Another filesystem. extant does not support it.
    Other,
    /// Partitions.
    Partitions,
    /// A command, or a few words.
    Do(&'static str),
}

const EXT: Format = Format { name: "an ext2, ext3 or ext4 filesystem", next: Next::Volume };

/// Offset of the bytes that mark a format, those bytes, its name, the next step.
const FORMATS: &[(u64, &[u8], &str, Next)] = &[
    (1080, &[0x53, 0xEF], EXT.name, EXT.next),
    // A member of stripes. A mirror has a superblock as well.
    (MEMBER_OFFSET, &MEMBER_MAGIC, "a member of a layout", Next::Volume),
    (0, b"XFSB", "an XFS filesystem", Next::Other),
    (65_600, b"_BHRfS_M", "a btrfs filesystem", Next::Other),
    (1024, &[0x10, 0x20, 0xF5, 0xF2], "an F2FS filesystem", Next::Other),
    (1024, &[0xE2, 0xE1, 0xF5, 0xE0], "an EROFS filesystem", Next::Other),
    (0, b"hsqs", "a squashfs filesystem", Next::Other),
    (3, b"NTFS    ", "an NTFS filesystem", Next::Other),
    (3, b"EXFAT   ", "an exFAT filesystem", Next::Other),
    (54, b"FAT1", "a FAT filesystem", Next::Other),
    (82, b"FAT32   ", "a FAT filesystem", Next::Other),
    (32_769, b"CD001", "an ISO 9660 filesystem", Next::Other),
    (65_588, b"ReIsEr", "a ReiserFS filesystem", Next::Other),
    (
        0,
        b"LUKS\xBA\xBE",
        "a LUKS encrypted volume",
        Next::Do("`cryptsetup open IMG NAME` opens it as /dev/mapper/NAME: name that device"),
    ),
    (512, b"LABELONE", "an LVM physical volume", LVM),
    (24, b"LVM2 001", "an LVM physical volume", LVM),
    (
        4096,
        &[0xFC, 0x4E, 0x2B, 0xA9],
        "a RAID member",
        Next::Do("`mdadm --assemble` combines the members into a device: name that device"),
    ),
    (0, b"QFI\xFB", "a qcow2 image", QEMU_IMG),
    (4086, b"SWAPSPACE2", "a swap area", Next::Other),
    (65_526, b"SWAPSPACE2", "a swap area", Next::Other),
    (0, b"bcachefs", "a bcachefs filesystem", Next::Other),
    (512, b"EFI PART", "a GPT partition table", Next::Partitions),
    (4096, b"EFI PART", "a GPT partition table", Next::Partitions),
    (257, b"ustar", "a tar archive", Next::Do("`extant build IMG -o NEW` builds a volume from it")),
    (0, &[0x1F, 0x8B, 8], "a gzip archive", Next::Do("`gzip -dk IMG` unpacks it")),
    (0, &[0x28, 0xB5, 0x2F, 0xFD], "a zstd archive", Next::Do("`zstd -d IMG` unpacks it")),
    (0, b"\xFD7zXZ\0", "an xz archive", Next::Do("`xz -dk IMG` unpacks it")),
    (0, b"BZh", "a bzip2 archive", Next::Do("`bzip2 -dk IMG` unpacks it")),
    (0, b"PK\x03\x04", "a zip archive", Next::Do("`unzip IMG` unpacks it")),
    (
        0,
        &[0x3A, 0xFF, 0x26, 0xED],
        "an Android sparse image",
        Next::Do("`simg2img IMG NEW` converts it to a raw image"),
    ),
    (0, b"KDMV", "a VMDK image", QEMU_IMG),
    (0, b"vhdxfile", "a VHDX image", QEMU_IMG),
    (0, b"conectix", "a VHD image", QEMU_IMG),
    (64, &[0x7F, 0x10, 0xDA, 0xBE], "a VDI image", QEMU_IMG),
];

const LVM: Next = Next::Do(
    "`vgchange -ay` creates devices for its logical volumes: name one of \
                            them",
);
const QEMU_IMG: Next = Next::Do("`qemu-img convert -O raw IMG NEW` converts it to a raw image");

/// What is in `path` from byte `start` on; `None` if nothing is known. In a whole file, any bytes
/// but zeros at its start count as data. A device, or a part of one, may hold remains of its last
/// use.
pub(crate) fn find(path: &Path, start: u64) -> io::Result<Option<&'static str>> {
    let file = File::open(path)?;
    let head = head(&file, start)?;
    let whole_file = start == 0 && file.metadata()?.is_file();
    let some = whole_file && head.iter().any(|&byte| byte != 0);
    Ok(format_of(&head).map(|format| format.name).or(some.then_some("data")))
}

/// The format of the file at `path` from byte `start` on; `None` if it is unknown.
pub(crate) fn known(path: &Path, start: u64) -> io::Result<Option<Format>> {
    Ok(format_of(&head(&File::open(path)?, start)?))
}

/// For a file or device without a volume at `start`: the format found there, and the next step.
pub(crate) fn instead_of_volume(path: &Path, start: u64) -> Option<String> {
    let file = File::open(path).ok()?;
    let bytes = head(&file, start).ok()?;
    let Some(format) = format_of(&bytes) else {
        return match bytes.iter().all(|&byte| byte == 0) {
            _ if bytes.is_empty() && start == 0 => {
                Some("the file is empty: `extant mkfs IMG SIZE` creates a volume in it".into())
            }
            true => Some("not a volume: it starts with zeros".into()),
            false => None,
        };
    };
    let name = format.name;
    match format.next {
        Next::Volume => None,
        Next::Other => Some(format!("is {name}: extant is for ext2, ext3 and ext4")),
        Next::Partitions => {
            let volumes = match disk::table(path) {
                Ok(Some(disk)) => volumes_in(path, &disk),
                Ok(None) => Vec::new(),
                Err(error) => return Some(format!("is {name}: {}", explained(&error))),
            };
            let places: Vec<_> = volumes.iter().map(|nr| format!("IMG?partition={nr}")).collect();
            Some(match places.is_empty() {
                true => format!("is {name}, with no ext2, ext3 or ext4 volume in its partitions"),
                false => format!("is {name}: name a volume in it: {}", places.join(", ")),
            })
        }
        Next::Do(step) => Some(format!("is {name}: {step}")),
    }
}

/// Numbers of the first partitions of `path` that have a volume.
fn volumes_in(path: &Path, disk: &Disk) -> Vec<u32> {
    let is_volume = |start: u64| matches!(known(path, start), Ok(Some(found)) if found == EXT);
    let volumes = disk.partitions.iter().filter(|part| is_volume(part.start));
    volumes.map(|part| part.number).take(8).collect()
}

/// The first bytes from `start` on, as far as any signature reaches.
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

fn format_of(head: &[u8]) -> Option<Format> {
    let is_at =
        |at: u64, bytes: &[u8]| head.get(at as usize..).is_some_and(|rest| rest.starts_with(bytes));
    let known = FORMATS.iter().find(|(at, bytes, ..)| is_at(*at, bytes));
    let format = known.map(|&(_, _, name, next)| Format { name, next });
    let mbr = Format { name: "an MBR partition table", next: Next::Partitions };
    format.or_else(|| is_mbr(head).then_some(mbr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_found_in_their_place_only() {
        let mut head = vec![0; 8192];
        assert_eq!(format_of(&head), None);
        head[1080..1082].copy_from_slice(&[0x53, 0xEF]);
        assert_eq!(format_of(&head), Some(EXT));
        assert_eq!(format_of(&head[..1081]), None);
    }

    #[test]
    fn a_partition_table_has_a_partition() {
        let mut head = vec![0; 512];
        head[510..].copy_from_slice(&[0x55, 0xAA]);
        assert_eq!(format_of(&head), None);
        head[446] = 0x80;
        head[450] = 0x83;
        head[458] = 1;
        assert_eq!(format_of(&head).unwrap().next, Next::Partitions);
    }
}
