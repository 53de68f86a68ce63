//! The metadata of a file, as `stat` reports it.

use crate::inodes::file::FileRef;
use crate::state::inode::Inode;
use crate::volume::Volume;
use extant_base::Ino;
use extant_ondisk::inode::{DeviceNumber, FileKind, InodeFlags};
use extant_ondisk::time::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The metadata of a file, without its content and its extended attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    ino: Ino,
    kind: FileKind,
    mode: u16,
    uid: u32,
    gid: u32,
    size: u64,
    sectors: u64,
    links: u16,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    crtime: Option<Timestamp>,
    device: Option<DeviceNumber>,
    flags: InodeFlags,
    project: u32,
    generation: u32,
}

impl Inode {
    /// Its metadata now. A later change sets another time, if the clock's resolution allows.
    pub(crate) fn metadata(&self, volume: &Volume) -> Metadata {
        let body = self.read();
        self.disable_fast_overwrite();
        Metadata::of(volume.file(&body))
    }
}

impl Metadata {
    pub(crate) fn of(file: FileRef<'_>) -> Metadata {
        let disk = &file.body.disk;
        let mut size = disk.size;
        if disk.is_symlink()
            && disk.flags.contains(InodeFlags::ENCRYPT)
            && let Ok(target) = file.symlink_target()
        {
            // As in Linux: the length of the encoded target that a reader without the key sees.
            size = target.len() as u64;
        }
        Metadata {
            ino: file.ino(),
            kind: file.body.file_kind(),
            mode: disk.mode,
            uid: disk.uid,
            gid: disk.gid,
            size,
            // Space reserved for dirty data counts as if it were allocated.
            sectors: disk.sectors + file.volume.reservations(file.body).reserved_sectors(),
            links: disk.links,
            atime: disk.atime,
            mtime: disk.mtime,
            ctime: disk.ctime,
            crtime: disk.crtime,
            device: disk.device(),
            flags: disk.flags,
            project: disk.projid,
            generation: disk.generation,
        }
    }

    /// The inode's number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The kind of file.
    pub fn file_type(&self) -> FileKind {
        self.kind
    }

    /// Whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// Whether this is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }

    /// The size in bytes.
    #[allow(clippy::len_without_is_empty)] // as std::fs::Metadata
    pub fn len(&self) -> u64 {
        self.size
    }

    /// Type and permission bits, as `st_mode` has them.
    pub fn mode(&self) -> u32 {
        u32::from(self.mode)
    }

    /// Permission bits, with set-user-ID, set-group-ID and sticky: the mode without its type.
    pub fn permissions(&self) -> u16 {
        self.mode & 0o7777
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The number of names of the file; 1 on a directory that has too many subdirectories to count.
    pub fn nlink(&self) -> u32 {
        u32::from(self.links)
    }

    /// Space on the volume in units of 512 bytes: data, map and attribute block.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// The device that a device file names.
    pub fn device(&self) -> Option<DeviceNumber> {
        self.device
    }

    /// Last access.
    pub fn accessed(&self) -> Timestamp {
        self.atime
    }

    /// Last change of the content.
    pub fn modified(&self) -> Timestamp {
        self.mtime
    }

    /// Last change of the metadata.
    pub fn changed(&self) -> Timestamp {
        self.ctime
    }

    /// Birth time, if the inode has space for it.
    pub fn created(&self) -> Option<Timestamp> {
        self.crtime
    }

    /// The inode's flags (`lsattr`), unknown ones included.
    pub fn flags(&self) -> InodeFlags {
        self.flags
    }

    /// The project; 0 if the volume has no projects.
    pub fn project(&self) -> u32 {
        self.project
    }

    /// The inode's generation: a number reused later gets another one.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}

/// A timestamp as the standard library's type. A time that this type cannot hold becomes the epoch.
pub fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(time.nsec));
    let moment = match u64::try_from(time.sec) {
        Ok(secs) => UNIX_EPOCH.checked_add(Duration::from_secs(secs)),
        Err(_) => UNIX_EPOCH.checked_sub(Duration::from_secs(time.sec.unsigned_abs())),
    };
    moment.and_then(|moment| moment.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_nanoseconds_forward() {
        let time = system_time(Timestamp { sec: -2, nsec: 500_000_000 });
        assert_eq!(UNIX_EPOCH.duration_since(time).unwrap(), Duration::from_millis(1500));
    }
}
