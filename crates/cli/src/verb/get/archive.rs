//! Copies files out of a volume to a PAX tar.
//!
//! ```text
//!   ┌ x header ┬ records: path, linkpath, size, mtime, SCHILY.{xattr,acl}.*, GNU.sparse.* ┐
//!   ├ header   ┴ name cut to 100 bytes, mode, owner, size, type, link ────────────────────┤
//!   │ [sparse map, padded]  content, padded to 512 bytes                                  │
//!   └ … two blocks of zeros ──────────────────────────────────────────────────────────────┘
//! ```
//!
//! A value that does not fit a plain header goes into a PAX record. A file with holes is written in
//! GNU's PAX sparse format 1.0: its data begins with the list of its pieces.

use super::{Job, refused};
use crate::failure::{Failure, explained, plain};
use crate::shown::Shown;
use crate::walk::{PATH_MAX, Trail, Visit, Visitor, walk};
use extant::{File, FileKind, Ino, Metadata, Timestamp};
use extant_ondisk::acl::Acl;
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use tar::{EntryType, Header};

const BLOCK: u64 = 512;
const PIECE: usize = 1 << 20;
/// The largest number in 7 and in 11 octal digits.
const MAX_7: u64 = 0o777_7777;
const MAX_11: u64 = 0o777_7777_7777;
/// A file in more pieces is written with its zeros, because its map would be longer than they are.
const MAX_PIECES: usize = 1 << 20;

/// The record in which tar archives store an access control list, if the attribute `name` is one.
fn acl_record(name: &[u8], value: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    let key = match name {
        b"system.posix_acl_access" => "SCHILY.acl.access",
        b"system.posix_acl_default" => "SCHILY.acl.default",
        _ => return None,
    };
    Some((key, Acl::from_call(value)?.to_string().into_bytes()))
}

/// The keyword of an attribute's record. A keyword cannot hold "=", so that is `%3D`, and `%` is
/// `%25`, as in GNU tar.
fn xattr_keyword(name: &[u8]) -> Vec<u8> {
    let mut keyword = b"SCHILY.xattr.".to_vec();
    for &byte in name {
        match byte {
            b'%' => keyword.extend_from_slice(b"%25"),
            b'=' => keyword.extend_from_slice(b"%3D"),
            byte => keyword.push(byte),
        }
    }
    keyword
}

/// Writes the file at `path`, with everything below it, as a tar to the destination or standard
/// output.
pub(super) fn run(job: Job<'_>, path: &[u8]) -> Result<u8, Failure> {
    let dest = job.args.dest.as_deref().filter(|dest| dest.as_os_str() != "-");
    let to: Box<dyn Write> = match dest {
        None => {
            let stdout = io::stdout().lock();
            if stdout.is_terminal() {
                return Err(Failure::new(
                    "the archive would be written to a terminal: name a file, or use a pipe",
                ));
            }
            Box::new(stdout)
        }
        Some(dest) => {
            let mut options = std::fs::OpenOptions::new();
            options.write(true);
            match job.args.force {
                true => options.create(true).truncate(true),
                false => options.create_new(true),
            };
            let file = options.open(dest).map_err(|error| {
                let hint = match error.kind() {
                    io::ErrorKind::AlreadyExists => ": use --force to replace it",
                    _ => "",
                };
                let (dest, error) = (Shown::path(dest), plain(&error));
                Failure::new(format!("{dest}: cannot create the file: {error}{hint}"))
            })?;
            Box::new(file)
        }
    };
    let base = super::own_name(path).unwrap_or_default().to_vec();
    let mut archive = Archive {
        job,
        dest,
        base,
        to: io::BufWriter::with_capacity(PIECE, to),
        linked: HashMap::new(),
        trail: Trail::default(),
        buffer: vec![0; PIECE],
    };
    let (image, fs) = (archive.job.image, archive.job.fs);
    let walked = walk(image, fs, path, usize::MAX, &mut archive).and_then(|()| {
        let end = archive.to.write_all(&[0; 1024]).and_then(|()| archive.to.flush());
        end.map_err(|error| archive.output(error))
    });
    archive.job.bar.finish_and_clear();
    if let (Err(_), Some(dest)) = (&walked, dest) {
        // An incomplete archive would look like a complete one.
        let _ = std::fs::remove_file(dest);
    }
    walked?;
    Ok(u8::from(archive.job.failed))
}

/// The directory that a sparse file's header names for readers that do not know the format. If a
/// file with that name existed, such a reader would write into it, or through it if it is a
/// symlink, so another number is used.
fn sparse_dir(visit: &Visit<'_>) -> Vec<u8> {
    let mut names = (0u64..).map(|n| format!("GNUSparseFile.{n}").into_bytes());
    names.find(|name| !visit.has_sibling(name)).expect("a directory has fewer names than 2^64")
}

struct Archive<'a> {
    job: Job<'a>,
    dest: Option<&'a Path>,
    /// Name of the start, which is the first part of every name in the archive. Empty for the root.
    base: Vec<u8>,
    to: io::BufWriter<Box<dyn Write>>,
    /// First names of files with several names: the number of the directory, and the name.
    linked: HashMap<Ino, (u32, Box<[u8]>)>,
    trail: Trail,
    buffer: Vec<u8>,
}

type Records = Vec<(Vec<u8>, Vec<u8>)>;

impl Visitor for Archive<'_> {
    fn visit(&mut self, visit: Visit<'_>) -> Result<bool, Failure> {
        if let Some(error) = visit.error() {
            self.job.report_error(visit.path, error);
        }
        let Some(meta) = &visit.metadata else { return Ok(false) };
        // A repeated name would give two entries, and the second might be written through the
        // first.
        if let Some(why) = refused(&visit) {
            self.job.report_error(visit.path, why);
            return Ok(false);
        }
        let name = self.name(&visit, meta);
        let put = self.entry(&visit, meta, &name)?;
        if meta.is_dir() && visit.depth > 0 {
            self.trail.enter(visit.depth, visit.name);
        }
        if put && meta.nlink() > 1 && !meta.is_dir() {
            let place = || (self.trail.dir(visit.depth), visit.name.into());
            self.linked.entry(meta.ino()).or_insert_with(place);
        }
        Ok(true)
    }

    fn path_max(&self) -> usize {
        PATH_MAX
    }
}

impl Archive<'_> {
    fn output(&self, error: io::Error) -> Failure {
        match self.dest {
            Some(dest) => Failure::of_file("write", dest, error),
            None => Failure::of_output(error),
        }
    }

    /// The name in the archive: relative, with a slash at the end for a directory.
    fn name(&self, visit: &Visit<'_>, meta: &Metadata) -> Vec<u8> {
        let mut name = self.base.clone();
        let below = if visit.depth == 0 { &[] } else { self.job.below(visit.path) };
        if !name.is_empty() && !below.is_empty() {
            name.push(b'/');
        }
        name.extend_from_slice(below);
        if name.is_empty() {
            name.push(b'.');
        }
        if meta.is_dir() {
            name.push(b'/');
        }
        name
    }

    /// The name in the archive of `name` in a directory of the trail.
    fn first_name(&self, dir: u32, name: &[u8]) -> Vec<u8> {
        let base = Some(&self.base[..]).filter(|base| !base.is_empty());
        let names = self.trail.names(dir);
        let parts: Vec<&[u8]> = base.into_iter().chain(names).chain([name]).collect();
        parts.join(&b'/')
    }

    /// Writes the entry `name`, or reports why it cannot. Returns whether the entry is in the
    /// archive.
    fn entry(&mut self, visit: &Visit<'_>, meta: &Metadata, name: &[u8]) -> Result<bool, Failure> {
        let mut header = Header::new_ustar();
        let mut records: Records = Vec::new();
        header.set_mode(u32::from(meta.permissions()));
        let number = |value: u64, max: u64, key: &str, records: &mut Records| {
            if value > max {
                records.push((key.into(), value.to_string().into_bytes()));
            }
            if value > max { 0 } else { value }
        };
        if !self.job.args.no_owner {
            header.set_uid(number(meta.uid().into(), MAX_7, "uid", &mut records));
            header.set_gid(number(meta.gid().into(), MAX_7, "gid", &mut records));
        }
        let mtime = meta.modified();
        header.set_mtime(u64::try_from(mtime.sec).unwrap_or(0).min(MAX_11));
        if mtime.nsec != 0 || mtime.sec < 0 || mtime.sec as u64 > MAX_11 {
            records.push(("mtime".into(), decimal(mtime)));
        }
        if !self.job.args.no_xattrs {
            match self.job.fs.node_of_ino(meta.ino()).and_then(|node| node.xattr_values()) {
                Ok(all) => {
                    for (key, value) in all {
                        let key = key.as_bytes();
                        // GNU tar's --acls reads only the text. Other readers use the attribute's
                        // bytes.
                        if let Some((key, text)) = acl_record(key, &value) {
                            records.push((key.into(), text));
                        }
                        records.push((xattr_keyword(key), value));
                    }
                }
                Err(error) => self.job.report_error(visit.path, explained(&error)),
            }
        }
        let first = match meta.nlink() > 1 && !meta.is_dir() {
            true => self.linked.get(&meta.ino()).map(|(dir, name)| self.first_name(*dir, name)),
            false => None,
        };
        if let Some(first) = first {
            header.set_entry_type(EntryType::Link);
            set_link(&mut header, &first, &mut records);
            // The entry of the first name carries the attributes.
            records.retain(|(key, _)| {
                ![&b"SCHILY.xattr."[..], b"SCHILY.acl."].iter().any(|of| key.starts_with(of))
            });
            self.put(header, records, name, 0)?;
            return Ok(true);
        }
        match meta.file_type() {
            FileKind::Regular => return self.file(visit, meta, header, records, name),
            FileKind::Directory => header.set_entry_type(EntryType::Directory),
            FileKind::Fifo => header.set_entry_type(EntryType::Fifo),
            FileKind::Symlink => {
                header.set_entry_type(EntryType::Symlink);
                match self.job.fs.node_of_ino(meta.ino()).and_then(|node| node.read_link()) {
                    Ok(target) => {
                        set_link(&mut header, target.as_os_str().as_bytes(), &mut records)
                    }
                    Err(error) => {
                        self.job.report_error(visit.path, explained(&error));
                        return Ok(false);
                    }
                }
            }
            FileKind::CharDevice | FileKind::BlockDevice => {
                let is_char = meta.file_type() == FileKind::CharDevice;
                header.set_entry_type(if is_char { EntryType::Char } else { EntryType::Block });
                let device = meta.device().map_or((0, 0), |device| (device.major, device.minor));
                let (major, minor) = device;
                let key = |key: &str, value: u32, records: &mut Records| {
                    number(value.into(), MAX_7, key, records) as u32
                };
                let major = key("SCHILY.devmajor", major, &mut records);
                let minor = key("SCHILY.devminor", minor, &mut records);
                let set = header.set_device_major(major);
                let set = set.and_then(|()| header.set_device_minor(minor));
                set.map_err(|error| self.output(error))?;
            }
            FileKind::Socket => {
                // As in tar, which has no type for it.
                self.job.print_message(format_args!(
                    "{}: {}: skipped: a tar archive cannot contain a socket",
                    Shown::path(&self.job.image.name),
                    Shown(visit.path)
                ));
                return Ok(false);
            }
        }
        self.put(header, records, name, 0)?;
        Ok(true)
    }

    fn file(
        &mut self,
        visit: &Visit<'_>,
        meta: &Metadata,
        mut header: Header,
        mut records: Records,
        name: &[u8],
    ) -> Result<bool, Failure> {
        header.set_entry_type(EntryType::Regular);
        // As far as possible, read errors must occur before the header is written.
        let pieces =
            self.job.fs.node_of_ino(meta.ino()).and_then(|node| node.open()).and_then(|file| {
                file.read_at(&mut [0; 1], 0)?;
                Ok((pieces(&file, meta.len())?, file))
            });
        let (pieces, file) = match pieces {
            Ok(found) => found,
            Err(error) => {
                self.job.report_error(visit.path, explained(&error));
                return Ok(false);
            }
        };
        let size = meta.len();
        let Some(pieces) = pieces else {
            self.put(header, records, name, size)?;
            self.content(visit, &file, &[(0, size)])?;
            return Ok(true);
        };
        let mut map = format!("{}\n", pieces.len()).into_bytes();
        for (at, len) in &pieces {
            map.extend_from_slice(format!("{at}\n{len}\n").as_bytes());
        }
        map.resize(map.len().next_multiple_of(BLOCK as usize), 0);
        let data: u64 = pieces.iter().map(|(_, len)| len).sum();
        records.push(("GNU.sparse.major".into(), b"1".to_vec()));
        records.push(("GNU.sparse.minor".into(), b"0".to_vec()));
        records.push(("GNU.sparse.name".into(), name.to_vec()));
        records.push(("GNU.sparse.realsize".into(), size.to_string().into_bytes()));
        let slash = name.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let stored = [&name[..slash], &sparse_dir(visit), b"/", &name[slash..]].concat();
        self.put(header, records, &stored, map.len() as u64 + data)?;
        self.to.write_all(&map).map_err(|error| self.output(error))?;
        self.content(visit, &file, &pieces)?;
        Ok(true)
    }

    /// Writes the extended header, if it has records, and the header.
    fn put(
        &mut self,
        mut header: Header,
        mut records: Records,
        name: &[u8],
        size: u64,
    ) -> Result<(), Failure> {
        if name.len() > 100 || !name.is_ascii() {
            records.push(("path".into(), name.to_vec()));
        }
        let field = &mut header.as_old_mut().name;
        let len = name.len().min(field.len());
        field[..len].copy_from_slice(&name[..len]);
        if size > MAX_11 {
            records.push(("size".into(), size.to_string().into_bytes()));
        }
        header.set_size(size.min(MAX_11));
        header.set_cksum();
        let written =
            self.put_records(&records).and_then(|()| self.to.write_all(header.as_bytes()));
        written.map_err(|error| self.output(error))
    }

    fn put_records(&mut self, records: &Records) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        for (key, value) in records {
            record(&mut text, key, value);
        }
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..11].copy_from_slice(b"PaxHeader/0");
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        header.set_cksum();
        self.to.write_all(header.as_bytes())?;
        text.resize(text.len().next_multiple_of(BLOCK as usize), 0);
        self.to.write_all(&text)
    }

    /// Writes pieces of a file. Bytes that cannot be read are reported and written as zeros,
    /// because the header has already announced them.
    fn content(
        &mut self,
        visit: &Visit<'_>,
        file: &File,
        pieces: &[(u64, u64)],
    ) -> Result<(), Failure> {
        let mut total = 0;
        let mut broken = None;
        for &(start, len) in pieces {
            let (mut at, end) = (start, start + len);
            while at < end {
                let want = (end - at).min(PIECE as u64) as usize;
                let part = &mut self.buffer[..want];
                let n = match broken {
                    Some(_) => {
                        part.fill(0);
                        want
                    }
                    None => match file.read_at(part, at) {
                        Ok(n) if n > 0 => n,
                        Ok(_) => {
                            broken = Some(
                                "shorter than the size in its inode; filled with \
                                           zeros"
                                    .into(),
                            );
                            continue;
                        }
                        Err(error) => {
                            broken = Some(format!("{}; filled with zeros", explained(&error)));
                            continue;
                        }
                    },
                };
                let wrote = self.to.write_all(&self.buffer[..n]);
                wrote.map_err(|error| self.output(error))?;
                at += n as u64;
                self.job.bar.inc(n as u64);
            }
            total += len;
        }
        if let Some(why) = broken {
            self.job.report_error(visit.path, why);
        }
        let padding = total.next_multiple_of(BLOCK) - total;
        let padded = self.to.write_all(&[0; BLOCK as usize][..padding as usize]);
        padded.map_err(|error| self.output(error))
    }
}

/// The pieces of a file that hold data, if omitting the holes saves space.
fn pieces(file: &File, size: u64) -> Result<Option<Vec<(u64, u64)>>, extant::Error> {
    let mut pieces = Vec::new();
    let (mut at, mut data_bytes) = (0, 0);
    while at < size {
        let Some(data) = file.seek_data(at)? else { break };
        let end = file.seek_hole(data)?.unwrap_or(size).min(size);
        if end <= data {
            break;
        }
        pieces.push((data, end - data));
        data_bytes += end - data;
        at = end;
        if pieces.len() > MAX_PIECES {
            return Ok(None);
        }
    }
    if data_bytes + BLOCK >= size {
        return Ok(None);
    }
    // GNU tar ends the map with the end of the file.
    if pieces.last().is_none_or(|(at, len)| at + len < size) {
        pieces.push((size, 0));
    }
    Ok(Some(pieces))
}

fn set_link(header: &mut Header, target: &[u8], records: &mut Records) {
    let field = &mut header.as_old_mut().linkname;
    let len = target.len().min(field.len());
    field[..len].copy_from_slice(&target[..len]);
    if target.len() > field.len() || !target.is_ascii() {
        records.push(("linkpath".into(), target.to_vec()));
    }
}

/// One PAX record: its own length in decimal, a space, `key=value` and a line feed.
fn record(text: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    let len = len.to_string();
    for part in [len.as_bytes(), b" ", key, b"=", value, b"\n"] {
        text.extend_from_slice(part);
    }
}

/// A time in PAX format: seconds with a fraction, which counts downward before 1970.
fn decimal(time: Timestamp) -> Vec<u8> {
    let Timestamp { sec, nsec } = time;
    let text = match (sec < 0, nsec) {
        (_, 0) => sec.to_string(),
        (false, _) => format!("{sec}.{nsec:09}"),
        (true, _) => format!("-{}.{:09}", -(sec + 1), 1_000_000_000 - nsec),
    };
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_its_own_digits() {
        for len in [1, 80, 88, 89, 90, 980, 990, 10_000] {
            let mut text = Vec::new();
            record(&mut text, b"key", &vec![b'x'; len]);
            let count: usize = std::str::from_utf8(text.split(|&b| b == b' ').next().unwrap())
                .unwrap()
                .parse()
                .unwrap();
            assert_eq!(count, text.len());
        }
    }

    #[test]
    fn times_before_1970_count_downward() {
        let at = |sec, nsec| String::from_utf8(decimal(Timestamp { sec, nsec })).unwrap();
        assert_eq!(at(5, 250_000_000), "5.250000000");
        assert_eq!(at(-1, 750_000_000), "-0.250000000");
        assert_eq!(at(-2, 0), "-2");
    }
}
