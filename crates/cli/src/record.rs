//! One entry of a volume as a line of JSON, with the fields of `docs/JSON.md`.

use crate::failure::explained;
use crate::shown::{BASE64, encoded, hex};
use crate::walk::Visit;
use base64::Engine;
use extant::{Error, File, FileExtent, FileKind, Filesystem, InodeFlags, Timestamp};
use extant_ondisk::features::RoCompat;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

/// Larger files get `sha256_nonzero` in place of `sha256`.
const HASH_WHOLE_MAX: u64 = 256 << 20;
const HASH_BLOCK: u64 = 4096;

/// A time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Time {
    sec: i64,
    nsec: u32,
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Time {
        Time { sec: time.sec, nsec: time.nsec }
    }
}

/// A piece of a file and its location, in bytes and blocks.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Extent {
    offset: u64,
    len: u64,
    block: u64,
    written: bool,
}

impl From<FileExtent> for Extent {
    fn from(extent: FileExtent) -> Extent {
        let FileExtent { offset, len, block, written } = extent;
        Extent { offset, len, block: block.0, written }
    }
}

/// What a record includes besides the inode's fields.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    /// Hashes of content.
    pub(crate) hash: bool,
    /// The location of the content.
    pub(crate) extents: bool,
}

/// The line. Fields that could not be read are omitted.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    path: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(flatten)]
    inode: Option<InodeFields>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xattrs: Option<BTreeMap<String, String>>,
    ino: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256_nonzero: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extents: Option<Vec<Extent>>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Serialize)]
struct InodeFields {
    mode: String,
    uid: u32,
    gid: u32,
    nlink: u32,
    size: u64,
    mtime: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<(u32, u32)>,
    atime: Time,
    ctime: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    crtime: Option<Time>,
    blocks: u64,
    flags: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<u32>,
    generation: u32,
}

impl Record {
    /// Reads what `parts` requests for an entry. Errors go into the record.
    pub(crate) fn of(fs: &Filesystem, mut visit: Visit<'_>, parts: Parts) -> Record {
        let features = fs.superblock().features;
        let has_projects = features.ro_compat.contains(RoCompat::PROJECT);
        let inode = visit.metadata.as_ref().map(|meta| InodeFields {
            mode: format!("{:04o}", meta.permissions()),
            uid: meta.uid(),
            gid: meta.gid(),
            nlink: meta.nlink(),
            size: meta.len(),
            mtime: meta.modified().into(),
            rdev: meta.device().map(|device| (device.major, device.minor)),
            atime: meta.accessed().into(),
            ctime: meta.changed().into(),
            crtime: meta.created().map(Time::from),
            blocks: meta.sectors(),
            flags: meta.flags().bits(),
            project: has_projects.then(|| meta.project()),
            generation: meta.generation(),
        });
        let mut record = Record {
            path: encoded(visit.path),
            kind: visit.kind.map(kind_name),
            inode,
            target: None,
            xattrs: None,
            ino: visit.ino.get(),
            sha256: None,
            sha256_nonzero: None,
            extents: None,
            error: None,
        };
        if let Some(meta) = &visit.metadata {
            let problems = &mut visit.problems;
            let kind = meta.file_type();
            if kind == FileKind::Symlink {
                record.target =
                    keep(fs.node_of_ino(visit.ino).and_then(|node| node.read_link()), problems)
                        .map(|target| encoded(target.as_os_str().as_bytes()));
            }
            record.xattrs =
                keep(fs.node_of_ino(visit.ino).and_then(|node| node.xattr_values()), problems).map(
                    |all| {
                        all.iter()
                            .map(|(name, value)| (encoded(name.as_bytes()), BASE64.encode(value)))
                            .collect()
                    },
                );
            if kind == FileKind::Regular && (parts.hash || parts.extents) {
                let file = keep(fs.node_of_ino(visit.ino).and_then(|node| node.open()), problems);
                if let Some(file) = file.as_ref().filter(|_| parts.extents) {
                    record.extents = keep(file.extents(), problems)
                        .map(|all| all.into_iter().map(Extent::from).collect());
                }
                if let Some(file) = file.filter(|_| parts.hash) {
                    let hash = keep(content_hash(&file, meta.len()), problems);
                    match meta.len() > HASH_WHOLE_MAX {
                        true => record.sha256_nonzero = hash,
                        false => record.sha256 = hash,
                    }
                }
            }
        }
        record.error = visit.error();
        record
    }
}

/// The value of `result`. An error is added to `problems`.
fn keep<T>(result: Result<T, Error>, problems: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| problems.push(explained(&error))).ok()
}

/// The type's name in JSON.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "dir",
        FileKind::Symlink => "symlink",
        FileKind::CharDevice => "char",
        FileKind::BlockDevice => "block",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

/// The letters of `lsattr` for the flags that have one.
pub(crate) fn flag_letters(flags: InodeFlags) -> String {
    let letters = [
        (InodeFlags::SECRM, 's'),
        (InodeFlags::UNRM, 'u'),
        (InodeFlags::SYNC, 'S'),
        (InodeFlags::DIRSYNC, 'D'),
        (InodeFlags::IMMUTABLE, 'i'),
        (InodeFlags::APPEND, 'a'),
        (InodeFlags::NODUMP, 'd'),
        (InodeFlags::NOATIME, 'A'),
        (InodeFlags::COMPR, 'c'),
        (InodeFlags::ENCRYPT, 'E'),
        (InodeFlags::JOURNAL_DATA, 'j'),
        (InodeFlags::INDEX, 'I'),
        (InodeFlags::NOTAIL, 't'),
        (InodeFlags::TOPDIR, 'T'),
        (InodeFlags::EXTENTS, 'e'),
        (InodeFlags::NOCOW, 'C'),
        (InodeFlags::VERITY, 'V'),
        (InodeFlags::INLINE_DATA, 'N'),
        (InodeFlags::PROJINHERIT, 'P'),
        (InodeFlags::CASEFOLD, 'F'),
        (InodeFlags::NOCOMPR, 'm'),
        (InodeFlags::DAX, 'x'),
    ];
    letters.into_iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, c)| c).collect()
}

/// The hash that `docs/JSON.md` defines for a file of `size` bytes.
fn content_hash(file: &File, size: u64) -> Result<String, Error> {
    let mut hash = Sha256::new();
    if size > HASH_WHOLE_MAX {
        hash_nonzero(file, size, &mut hash)?;
    } else {
        let mut buffer = vec![0; 1 << 18];
        let mut at = 0;
        loop {
            match file.read_at(&mut buffer, at)? {
                0 => break,
                n => {
                    hash.update(&buffer[..n]);
                    at += n as u64;
                }
            }
        }
    }
    Ok(hex(&hash.finalize()))
}

fn hash_nonzero(file: &File, size: u64, hash: &mut Sha256) -> Result<(), Error> {
    let mut buffer = vec![0; 1 << 18];
    let mut at = 0;
    while let Some(data) = file.seek_data(at)? {
        let hole = file.seek_hole(data)?.unwrap_or(size).min(size);
        let mut from = data / HASH_BLOCK * HASH_BLOCK;
        let end = hole.div_ceil(HASH_BLOCK) * HASH_BLOCK;
        while from < end {
            let want = (end - from).min(buffer.len() as u64) as usize;
            let part = &mut buffer[..want];
            let mut len = 0;
            while len < want {
                match file.read_at(&mut part[len..], from + len as u64)? {
                    0 => break,
                    n => len += n,
                }
            }
            part[len..].fill(0);
            for (n, block) in part.chunks(HASH_BLOCK as usize).enumerate() {
                if block.iter().any(|&byte| byte != 0) {
                    hash.update((from + n as u64 * HASH_BLOCK).to_le_bytes());
                    hash.update(block);
                }
            }
            from += want as u64;
        }
        at = end;
        if at >= size {
            break;
        }
    }
    Ok(())
}
