//! One entry of an archive: the contents of its headers are checked and added to the [`Overlay`].
//!
//! ```text
//!   header ┐   a PAX record wins over a GNU long name, which wins over the header's field
//!   PAX    ├─► path, kind, owner, times ─► whiteout, hard link, or an entry with its content
//!   L, K   ┘
//! ```
//!
//! [`Overlay`]: crate::overlay::Overlay

use super::acl::{self, Wrong};
use super::header::{self, Header};
use super::input::{BLOCK, padding};
use super::pax::Pax;
use super::{EXTENDED_MAX, Meaning, Reader, Stop, Unresolved, sparse};
use crate::entry::{DataRange, ExtraTimes, Kind, Meta, Time};
use crate::overlay::{Fault, NewEntry, NewKind};
use extant_base::narrow::{fits_usize, low_u32};

/// The longest path of an entry: a directory of 64 KiB and a name, as `extant get --tar` writes.
const PATH_MAX: usize = (64 << 10) + 1 + 2 * NAME_MAX;
/// The longest target of a symbolic link that Linux can follow.
const TARGET_MAX: usize = 4095;
/// The longest name in a directory.
const NAME_MAX: usize = 255;

impl Reader<'_, '_> {
    /// Adds the entry to the tree, and skips its data.
    pub(super) fn take(
        &mut self,
        header: Header,
        mut pax: Pax,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<(), Stop> {
        let sparse_name = pax.sparse.name.take();
        let raw_name = sparse_name.or(pax.path.take()).or(long_name).unwrap_or(header.name);
        self.entry.clone_from(&raw_name);
        let link = pax.link.take().or(long_link).unwrap_or(header.link);
        let size = pax.size.unwrap_or(header.size);
        let kind = match header.kind {
            // Before POSIX, a directory was a file whose name ended in a slash.
            b'0' | 0 if raw_name.ends_with(b"/") => b'5',
            0 | b'7' => b'0',
            kind => kind,
        };
        if kind == b'V' {
            // A volume label names the archive, not a file.
            return Ok(self.input.skip(padded(size)?)?);
        }
        let path = relative(&raw_name)?;
        let mtime = pax.mtime.unwrap_or(Time { sec: header.mtime, nsec: 0 });
        let id = |what: &str, id: u64| {
            u32::try_from(id).map_err(|_| format!("{what} {id} is over 32 bits"))
        };
        let meta = Meta {
            mode: header.mode,
            uid: id("owner", pax.uid.unwrap_or(header.uid))?,
            gid: id("group", pax.gid.unwrap_or(header.gid))?,
            mtime,
        };
        let user = pax.user.take().unwrap_or(header.user);
        let group = pax.group.take().unwrap_or(header.group);
        self.names.learn((&user, meta.uid), (&group, meta.gid));
        let times = ExtraTimes { atime: pax.atime, ctime: pax.ctime };
        let (major, minor) = (device(header.major, 12)?, device(header.minor, 20)?);
        let kind = match kind {
            b'1' => {
                let target = relative(&link).map_err(|fault| format!("hard link: {fault}"))?;
                if self.whiteout(&path)? {
                    return Ok(());
                }
                self.overlay.link(&path, &target)?;
                return Ok(());
            }
            b'2' => match link.len() {
                0 => return Err("symbolic link without a target".into()),
                len if len > TARGET_MAX => {
                    return Err(format!("symbolic link to {len} bytes: over {TARGET_MAX}").into());
                }
                _ if link.contains(&0) => return Err("symbolic link to a name with a NUL".into()),
                _ => NewKind::Symlink(link),
            },
            b'3' => NewKind::Other(Kind::CharDevice { major, minor }),
            b'4' => NewKind::Other(Kind::BlockDevice { major, minor }),
            b'6' => NewKind::Other(Kind::Fifo),
            b'5' => NewKind::Directory,
            b'D' => {
                // GNU: a directory, with a list of its names as data.
                self.input.skip(padded(size)?)?;
                NewKind::Directory
            }
            b'0' | b'S' => self.file(&header.sparse, &pax, size)?,
            b'M' => return Err("continues a file of another volume: join the volumes first".into()),
            kind => {
                let kind = kind.escape_ascii();
                return Err(format!("entry type {kind} is not known").into());
            }
        };
        if self.whiteout(&path)? {
            return Ok(());
        }
        let mut waiting = Vec::new();
        for (name, text) in std::mem::take(&mut pax.acls) {
            // An attribute with the exact value wins over the text.
            if pax.xattrs.contains_key(name) {
                continue;
            }
            match acl::from_text(&text, &self.names) {
                Ok(value) => pax.add_xattr(name.to_vec(), value)?,
                Err(Wrong::Unknown(_)) => {
                    self.overlay.weigh(text.len())?;
                    waiting.push((name, text));
                }
                Err(Wrong::Fault(fault)) => {
                    return Err(format!("extended header record SCHILY.acl: {fault}").into());
                }
            }
        }
        let entry = NewEntry { kind, meta, times, xattrs: pax.xattr_list() };
        let node = self.overlay.put(&path, entry)?;
        // For a directory that occurs again, the last entry counts.
        self.unresolved.remove(&node);
        if !waiting.is_empty() {
            let (start, entry) = (self.start, self.entry.clone());
            self.unresolved.insert(node, Unresolved { start, entry, acls: waiting });
        }
        Ok(())
    }

    /// In a layer, applies a whiteout. True if the name is one.
    fn whiteout(&mut self, path: &[u8]) -> Result<bool, Stop> {
        if self.meaning == Meaning::Plain {
            return Ok(false);
        }
        let (dir, name) = match path.iter().rposition(|&b| b == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], path),
        };
        let Some(hidden) = name.strip_prefix(b".wh.") else { return Ok(false) };
        if name == b".wh..wh..opq" {
            self.overlay.opaque(dir);
        } else if hidden.starts_with(b".wh.") {
            // Internal files of aufs.
        } else if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err("whiteout of no name".into());
        } else {
            self.overlay.whiteout(dir, hidden);
        }
        Ok(true)
    }

    /// Stores a regular file's data, or its place in the archive.
    fn file(
        &mut self,
        old: &Option<header::OldSparse>,
        pax: &Pax,
        size: u64,
    ) -> Result<NewKind, Stop> {
        padded(size)?;
        let sparse = &pax.sparse;
        let (ranges, real_size, stored) = if let Some(old) = old {
            let mut pairs = old.ranges.clone();
            let mut more = old.more;
            while more {
                let mut block = [0; BLOCK];
                self.input.read(&mut block)?;
                pairs.append(&mut header::sparse_ranges(&block[..504])?);
                more = block[504] != 0;
                if pairs.len() > fits_usize(EXTENDED_MAX) / 24 {
                    return Err("sparse map has too many ranges".into());
                }
            }
            (Some(pairs), old.real_size, size)
        } else if sparse.major == Some(1) {
            let real = sparse.real_size.ok_or("sparse file without its real size")?;
            if sparse.minor.unwrap_or(0) != 0 {
                return Err("sparse format is newer than 1.0".into());
            }
            let (pairs, used) = sparse::read_map(&mut self.input, size)??;
            (Some(pairs), real, size - used)
        } else if let Some(real) = sparse.real_size {
            if !sparse.numbers.len().is_multiple_of(2) {
                return Err("sparse map has an offset without a length".into());
            }
            let pairs = sparse.numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            (Some(pairs), real, size)
        } else {
            (None, size, size)
        };
        if i64::try_from(real_size).is_err() {
            return Err(format!("size {real_size} is over 63 bits").into());
        }
        let ranges: Option<Vec<DataRange>> = match ranges {
            Some(pairs) => Some(sparse::check(&pairs, real_size, stored)?),
            None => None,
        };
        let offset = self.input.keep(stored)?;
        self.input.skip_padding(stored, self.meaning.may_lack_end())?;
        let whole =
            |r: &Vec<DataRange>| matches!(&r[..], [r] if r.offset == 0 && r.len == real_size);
        let ranges = ranges.filter(|r| !whole(r));
        Ok(NewKind::File { size: real_size, archive: self.archive, offset, ranges })
    }
}

/// Length of the data, rounded up to whole blocks. Errors: an impossible size.
fn padded(size: u64) -> Result<u64, Fault> {
    let padded = size.checked_add(padding(size)).filter(|padded| i64::try_from(*padded).is_ok());
    padded.ok_or_else(|| format!("size {size} is over 63 bits"))
}

/// A device number that ext4 can store.
fn device(number: u64, bits: u32) -> Result<u32, Fault> {
    match number >> bits {
        0 => Ok(low_u32(number)),
        _ => Err(format!("device number {number} is over {bits} bits")),
    }
}

/// Converts an entry's name to a path relative to the root, without `.`, doubled slashes or a slash
/// at the end.
/// Errors: no name, `..`, a NUL, names or paths that are too long.
fn relative(name: &[u8]) -> Result<Vec<u8>, Fault> {
    if name.is_empty() {
        return Err("it has no name".into());
    }
    if name.len() > PATH_MAX {
        return Err(format!("its name is longer than {PATH_MAX} bytes"));
    }
    if name.contains(&0) {
        return Err("its name holds a NUL".into());
    }
    let mut path = Vec::with_capacity(name.len());
    for part in name.split(|&b| b == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err("its name leads out of the tree (..): refused".into()),
            part if part.len() > NAME_MAX => {
                return Err(format!("a part of its name is longer than {NAME_MAX} bytes"));
            }
            _ => {}
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(part);
    }
    Ok(path)
}
