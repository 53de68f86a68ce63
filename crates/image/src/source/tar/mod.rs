//! A tar archive, entry by entry, into an [`Overlay`].
//!
//! ```text
//!   ┌─────────┬────────┬─────────┬────────┬───┬─────────┬─────────┐
//!   │ x: PAX  │records │ header  │ data   │ … │ zeros   │ zeros   │
//!   └─────────┴────────┴─────────┴────────┴───┴─────────┴─────────┘
//!    g: for all after    '0' '1' … 'S'          end: two blocks
//!    L, K: GNU long name, long link target
//! ```
//!
//! Every rule broken is an error with the entry's name and the place of its first header.
//! Nothing is ever unpacked: names go to the tree, contents stay where they are or in a spool.

mod acl;
mod ahead;
mod header;
mod input;
mod pax;
mod sparse;

use input::{BLOCK, Short, TarInput, padding};
pub(crate) use input::{Region, Spool};

use crate::entry::{ArchiveId, DataRange, ExtraTimes, Kind, Meta, Time};
use crate::error::SourceError;
use crate::overlay::{Fault, NewEntry, NewKind, Overlay};
use crate::progress::Progress;
use crate::tree::Archive;
use acl::{Names, Wrong};
use hashbrown::HashMap;
use header::Header;
use pax::Pax;
use std::io::{Cursor, Read};
use std::path::Path;

/// Longest extended header taken: room for attributes and maps of sparse files, a bound for
/// memory.
const EXTENDED_MAX: u64 = 16 << 20;
/// Most that global extended headers may hold in all.
const GLOBAL_MAX: usize = 64 << 10;
/// Longest path of an entry.
const PATH_MAX: usize = 16 << 10;
/// Longest target of a symbolic link: what Linux can follow.
const TARGET_MAX: usize = 4095;
/// Longest name in a directory.
const NAME_MAX: usize = 255;

/// Whether whiteouts mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A tar as it is.
    Plain,
    /// A layer: `.wh.NAME` removes NAME of lower layers, `.wh..wh..opq` all of a directory.
    Layer,
}

/// Reads a plain tar in a file in place. `name` is what messages call it.
pub(crate) fn read_in_place(
    region: Region,
    name: &Path,
    meaning: Meaning,
    overlay: &mut Overlay,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    read(TarInput::in_place(region), name, meaning, overlay, progress)
}

/// Reads a tar that is unpacked by another thread meanwhile, its contents going to `spool`. The
/// stream must not wait for anybody: an error would wait for it.
pub(crate) fn read_ahead<'a>(
    reader: Box<dyn Read + Send + 'a>,
    spool: &mut Spool,
    name: &Path,
    meaning: Meaning,
    overlay: &mut Overlay,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    ahead::read_ahead(reader, |stream| read_stream(stream, spool, name, meaning, overlay, progress))
}

/// Reads an unpacked tar once, front to end, its contents going to `spool`.
pub(crate) fn read_stream<'a>(
    reader: Box<dyn Read + 'a>,
    spool: &'a mut Spool,
    name: &Path,
    meaning: Meaning,
    overlay: &mut Overlay,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    read(TarInput::stream(reader, spool), name, meaning, overlay, progress)
}

fn read(
    input: TarInput<'_>,
    name: &Path,
    meaning: Meaning,
    overlay: &mut Overlay,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let archive = overlay.add_archive(Archive { path: name.to_owned(), file: input.kept_in() });
    let mut reader = Reader {
        input,
        name,
        meaning,
        overlay,
        archive,
        global: Pax::default(),
        start: 0,
        entry: Vec::new(),
        names: Names::default(),
        unresolved: HashMap::new(),
    };
    loop {
        let position = reader.input.position();
        let names = reader.overlay.name_count();
        match reader.next() {
            Ok(true) => {
                let names = reader.overlay.name_count() - names;
                progress.entries(names as u64);
                progress.bytes(reader.input.position() - position);
            }
            Ok(false) => return reader.finish(),
            Err(stop) => return Err(reader.error(stop)),
        }
    }
}

/// Why reading stops.
enum Stop {
    Short(Short),
    Fault(Fault),
}

impl From<Short> for Stop {
    fn from(short: Short) -> Stop {
        Stop::Short(short)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<&str> for Stop {
    fn from(fault: &str) -> Stop {
        Stop::Fault(fault.into())
    }
}

struct Reader<'r, 'a> {
    input: TarInput<'a>,
    name: &'r Path,
    meaning: Meaning,
    overlay: &'r mut Overlay,
    archive: ArchiveId,
    global: Pax,
    /// Where the entry's first header stands.
    start: u64,
    /// The entry's name, for messages.
    entry: Vec<u8>,
    names: Names,
    /// Nodes with access lists that name somebody whom no entry so far belongs to.
    unresolved: HashMap<u32, Unresolved>,
}

/// What waits for the names of all entries.
struct Unresolved {
    start: u64,
    entry: Vec<u8>,
    acls: Vec<(&'static [u8], Vec<u8>)>,
}

impl Reader<'_, '_> {
    fn error(&self, stop: Stop) -> SourceError {
        let fault = match stop {
            Stop::Fault(fault) => fault,
            Stop::Short(Short::End) => {
                format!(
                    "truncated: more is announced at byte {} than the archive holds",
                    self.input.position()
                )
            }
            Stop::Short(Short::Io(e)) => format!("cannot be read: {e}"),
        };
        SourceError::Archive {
            archive: self.name.to_owned(),
            offset: self.start,
            entry: self.entry.clone(),
            fault,
        }
    }

    /// Takes the next entry with all headers that belong to it; false at the archive's end.
    fn next(&mut self) -> Result<bool, Stop> {
        self.entry.clear();
        self.start = self.input.position();
        let mut pax: Option<Pax> = None;
        let (mut long_name, mut long_link) = (None, None);
        let mut extended = 0;
        loop {
            let Some(block) = self.input.block()? else {
                if self.input.position() == 0 {
                    return Err("empty: no tar archive".into());
                }
                return Err("truncated: the archive ends without its end mark".into());
            };
            if block.iter().all(|&b| b == 0) {
                if pax.is_some() || long_name.is_some() || long_link.is_some() {
                    return Err("truncated: an extended header describes no entry".into());
                }
                return self.end();
            }
            let header = Header::check(&block).map_err(|fault| match self.start {
                0 if pax.is_none() && !header::checksum_is_right(&block) => {
                    "no tar archive, or damaged at its start: header checksum is wrong".into()
                }
                _ => fault,
            })?;
            match header.kind {
                b'x' | b'X' | b'g' | b'L' | b'K' => {
                    // A bound for what belongs to one entry, so that a chain of headers ends.
                    extended += header.size.max(1);
                    if header.size > EXTENDED_MAX || extended > 2 * EXTENDED_MAX {
                        return Err(format!(
                            "extended header of {} bytes: more than {EXTENDED_MAX} are not taken",
                            header.size
                        )
                        .into());
                    }
                    let bytes = self.input.bytes(header.size as usize)?;
                    match header.kind {
                        b'g' => {
                            self.global.read(&bytes)?;
                            // Every later entry is given these: they must not outweigh it.
                            if self.global.weight() > GLOBAL_MAX {
                                return Err("global headers hold more than 64 KiB".into());
                            }
                        }
                        b'L' => long_name = Some(until_nul(bytes)),
                        b'K' => long_link = Some(until_nul(bytes)),
                        _ => {
                            let global = &self.global;
                            pax.get_or_insert_with(|| global.clone()).read(&bytes)?;
                        }
                    }
                }
                _ => {
                    let pax = pax.unwrap_or_else(|| self.global.clone());
                    self.take(header, pax, long_name, long_link)?;
                    return Ok(true);
                }
            }
        }
    }

    /// One zero block was read: another, or the end of the file, must follow.
    fn end(&mut self) -> Result<bool, Stop> {
        match self.input.block()? {
            None => Ok(false),
            Some(block) if block.iter().all(|&b| b == 0) => Ok(false),
            Some(_) => Err("a single block of zeros stands between entries: damaged".into()),
        }
    }

    fn finish(mut self) -> Result<(), SourceError> {
        self.entry.clear();
        if let Err(e) = self.input.drain() {
            self.start = self.input.position();
            return Err(self.error(Stop::Short(Short::Io(e))));
        }
        for (node, waiting) in std::mem::take(&mut self.unresolved) {
            (self.start, self.entry) = (waiting.start, waiting.entry);
            for (name, text) in waiting.acls {
                let value = acl::from_text(&text, &self.names);
                let done = value.map_err(Wrong::into_fault);
                let done = done.and_then(|value| self.overlay.add_xattr(node, name, &value));
                done.map_err(|fault| self.error(Stop::Fault(fault)))?;
            }
        }
        Ok(())
    }

    fn take(
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
            // Before POSIX, a directory was a file whose name ends in a slash.
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
                // GNU: a directory with a list of its names as data.
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
        // A directory told of once more is what it is told to be last.
        self.unresolved.remove(&node);
        if !waiting.is_empty() {
            let (start, entry) = (self.start, self.entry.clone());
            self.unresolved.insert(node, Unresolved { start, entry, acls: waiting });
        }
        Ok(())
    }

    /// In a layer, does what a whiteout says; true if the name was one.
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
            // Books that aufs kept for itself.
        } else if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err("whiteout of no name".into());
        } else {
            self.overlay.whiteout(dir, hidden);
        }
        Ok(true)
    }

    /// Keeps a regular file's data.
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
                if pairs.len() > EXTENDED_MAX as usize / 24 {
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
        self.input.skip(padding(stored))?;
        let whole =
            |r: &Vec<DataRange>| matches!(&r[..], [r] if r.offset == 0 && r.len == real_size);
        let ranges = ranges.filter(|r| !whole(r));
        Ok(NewKind::File { size: real_size, archive: self.archive, offset, ranges })
    }
}

/// Bytes of data up to the next block. Errors: a size that cannot be one.
fn padded(size: u64) -> Result<u64, Fault> {
    let padded = size.checked_add(padding(size)).filter(|padded| i64::try_from(*padded).is_ok());
    padded.ok_or_else(|| format!("size {size} is over 63 bits"))
}

/// A device number that ext4 can store.
fn device(number: u64, bits: u32) -> Result<u32, Fault> {
    match number >> bits {
        0 => Ok(number as u32),
        _ => Err(format!("device number {number} is over {bits} bits")),
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

/// Makes an entry's name a path relative to the root, without `.`, doubled or final slashes.
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

/// Reads `data` as a plain tar and as a layer; for fuzzing. Nothing may panic, hang or take memory
/// out of proportion.
pub fn fuzz_tar(data: &[u8]) {
    for meaning in [Meaning::Plain, Meaning::Layer] {
        let Ok(mut spool) = Spool::new(&std::env::temp_dir()) else { return };
        let mut overlay = Overlay::new(1 << 16);
        let reader: Box<dyn Read> = Box::new(Cursor::new(data));
        let quiet = &crate::progress::Quiet;
        let name = Path::new("fuzz.tar");
        if read_stream(reader, &mut spool, name, meaning, &mut overlay, quiet).is_ok() {
            let tree = overlay.finish().expect("what was taken can be assembled");
            let _ = tree.digest();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
