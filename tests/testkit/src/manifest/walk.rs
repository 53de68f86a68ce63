//! A manifest of a directory on this machine, as the kernel shows it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, SeekFrom, StatxFlags};
use sha2::{Digest, Sha256};

use super::{Entry, Kind, Manifest, Time, base64, encode_name};

/// Larger files get `sha256_nonzero` instead of `sha256`.
const HASH_WHOLE_MAX: u64 = 256 << 20;
const INLINE_DATA: u32 = 0x1000_0000;

impl Manifest {
    /// Everything at and below `dir`, on its own filesystem. `Err` names the path.
    pub fn walk(dir: &Path) -> Result<Self, String> {
        Self::walk_with(dir, true)
    }

    /// The same without reading file content.
    pub fn walk_names(dir: &Path) -> Result<Self, String> {
        Self::walk_with(dir, false)
    }

    /// The one entry `name` in `dir`.
    pub fn entry_of(dir: &Path, name: &str) -> io::Result<Entry> {
        entry(&dir.join(name), name.as_bytes(), true)
    }

    fn walk_with(dir: &Path, content: bool) -> Result<Self, String> {
        let mut manifest = Self::default();
        let device = std::fs::symlink_metadata(dir).map_err(|e| named(dir, e))?.dev();
        let mut left = vec![Vec::new()];
        while let Some(below) = left.pop() {
            let path = if below.is_empty() {
                dir.to_path_buf()
            } else {
                dir.join(std::ffi::OsStr::from_bytes(&below))
            };
            let entry = entry(&path, &below, content).map_err(|e| named(&path, e))?;
            let meta = std::fs::symlink_metadata(&path).map_err(|e| named(&path, e))?;
            if entry.kind == Kind::Dir && meta.dev() == device {
                for name in std::fs::read_dir(&path).map_err(|e| named(&path, e))? {
                    let name = name.map_err(|e| named(&path, e))?.file_name();
                    let mut inner = below.clone();
                    if !inner.is_empty() {
                        inner.push(b'/');
                    }
                    inner.extend_from_slice(name.as_bytes());
                    left.push(inner);
                }
            }
            manifest.entries.insert(entry.path.clone(), entry);
        }
        Ok(manifest)
    }
}

fn named(path: &Path, error: io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn entry(path: &Path, below: &[u8], content: bool) -> io::Result<Entry> {
    let meta = std::fs::symlink_metadata(path)?;
    let kind = match meta.file_type() {
        t if t.is_file() => Kind::File,
        t if t.is_dir() => Kind::Dir,
        t if t.is_symlink() => Kind::Symlink,
        t if t.is_char_device() => Kind::Char,
        t if t.is_block_device() => Kind::Block,
        t if t.is_fifo() => Kind::Fifo,
        _ => Kind::Socket,
    };
    let device = matches!(kind, Kind::Char | Kind::Block);
    let mut errors = Vec::new();
    let mut note = |what: &str, error: io::Error| errors.push(format!("{what}: {error}"));
    let target = match kind {
        Kind::Symlink => std::fs::read_link(path).map_err(|e| note("target", e)).ok(),
        _ => None,
    };
    let mut entry = Entry {
        path: format!("/{}", encode_name(below)),
        kind,
        mode: format!("{:04o}", meta.mode() & 0o7777),
        uid: meta.uid(),
        gid: meta.gid(),
        nlink: meta.nlink(),
        size: meta.size(),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        rdev: device.then(|| (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()))),
        target: target.map(|t| encode_name(t.as_os_str().as_bytes())),
        xattrs: xattrs(path).unwrap_or_else(|e| {
            note("xattrs", e);
            BTreeMap::new()
        }),
        sha256: None,
        sha256_nonzero: None,
        ino: meta.ino(),
        atime: Some(time(meta.atime(), meta.atime_nsec())),
        ctime: Some(time(meta.ctime(), meta.ctime_nsec())),
        crtime: birth(path),
        blocks: Some(meta.blocks()),
        flags: None,
        project: None,
        error: None,
    };
    if matches!(kind, Kind::File | Kind::Dir) {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => {
                entry.flags = crate::sys::flags(&file).ok();
                entry.project = crate::sys::project(&file).ok();
                if kind == Kind::File && entry.flags.is_some_and(|f| f & INLINE_DATA != 0) {
                    // Linux counts the content of an inline file as space taken.
                    entry.blocks = Some(meta.blocks().saturating_sub(meta.size().div_ceil(512)));
                }
                if kind == Kind::File && content {
                    let big = meta.size() > HASH_WHOLE_MAX;
                    match hash_file(&file, meta.size()) {
                        Ok(hash) if big => entry.sha256_nonzero = Some(hash),
                        Ok(hash) => entry.sha256 = Some(hash),
                        Err(error) => note("content", error),
                    }
                }
            }
            Err(error) => note("open", error),
        }
    }
    entry.error = (!errors.is_empty()).then(|| errors.join("; "));
    Ok(entry)
}

fn time(sec: i64, nsec: i64) -> Time {
    Time { sec, nsec: nsec as u32 }
}

fn birth(path: &Path) -> Option<Time> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?;
    let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    known.then_some(Time { sec: stat.stx_btime.tv_sec, nsec: stat.stx_btime.tv_nsec })
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut names = vec![0u8; 64 << 10];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(len) => len,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut found = BTreeMap::new();
    let mut value = vec![0u8; 64 << 10];
    for name in names[..len].split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let name_c = std::ffi::CString::new(name).expect("split at zero bytes");
        let len = rustix::fs::lgetxattr(path, name_c.as_c_str(), &mut value[..])?;
        found.insert(encode_name(name), base64(&value[..len]));
    }
    Ok(found)
}

/// The hash that `docs/JSON.md` defines for a file of `size` bytes.
pub fn hash_file(file: &File, size: u64) -> io::Result<String> {
    let mut hash = Sha256::new();
    if size <= HASH_WHOLE_MAX {
        let mut buffer = vec![0; 1 << 18];
        let mut file = file;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
    } else {
        hash_nonzero(file, size, &mut hash)?;
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

fn hash_nonzero(file: &File, size: u64, hash: &mut Sha256) -> io::Result<()> {
    const BLOCK: u64 = 4096;
    let mut at = 0;
    while at < size {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?;
        let mut block_at = data / BLOCK * BLOCK;
        while block_at < hole {
            let mut block = [0; BLOCK as usize];
            let len = (size - block_at).min(BLOCK) as usize;
            std::os::unix::fs::FileExt::read_exact_at(file, &mut block[..len], block_at)?;
            if block.iter().any(|&b| b != 0) {
                hash.update(block_at.to_le_bytes());
                hash.update(block);
            }
            block_at += BLOCK;
        }
        at = block_at;
    }
    Ok(())
}
