//! Encodes replies in the transport's buffer.
//!
//! ```text
//!   EntryOut | AttrOut | …          a struct at the front of the buffer
//!   Dirent name pad │ Dirent …      a listing: records from the front, until the next does not fit
//!   EntryOut Dirent name pad │ …    a listing with the entry of each name
//! ```

use crate::abi;
use crate::operations::{Attributes, Entry, Listing, Timestamp};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Copies `value` to the front of `buf` and returns its size. ERANGE if it does not fit.
pub(crate) fn put<T: IntoBytes + Immutable>(buf: &mut [u8], value: &T) -> Result<usize, Errno> {
    put_bytes(buf, value.as_bytes())
}

/// As [`put`], for bytes.
pub(crate) fn put_bytes(buf: &mut [u8], bytes: &[u8]) -> Result<usize, Errno> {
    buf.get_mut(..bytes.len()).ok_or(Errno::RANGE)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

/// Attributes as GETATTR shows them.
pub(crate) fn attributes(from: &Attributes) -> abi::Attr {
    abi::Attr {
        ino: from.ino,
        size: from.size,
        blocks: from.blocks,
        atime: from.atime.sec.cast_unsigned(),
        mtime: from.mtime.sec.cast_unsigned(),
        ctime: from.ctime.sec.cast_unsigned(),
        atimensec: from.atime.nsec,
        mtimensec: from.mtime.nsec,
        ctimensec: from.ctime.nsec,
        mode: from.mode,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        blksize: from.blksize,
        flags: 0,
    }
}

/// Reply to GETATTR and SETATTR.
pub(crate) fn attributes_out(from: &Attributes, valid: Duration) -> abi::AttrOut {
    abi::AttrOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        dummy: 0,
        attr: attributes(from),
    }
}

/// Reply to STATX.
pub(crate) fn statx_out(from: &Attributes, valid: Duration) -> abi::StatxOut {
    let time = |at: Timestamp| abi::SxTime { tv_sec: at.sec, tv_nsec: at.nsec, reserved: 0 };
    let birth = if from.btime.is_some() { abi::STATX_BTIME } else { 0 };
    abi::StatxOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        stat: abi::Statx {
            mask: abi::STATX_BASIC_STATS | birth,
            blksize: from.blksize,
            nlink: from.nlink,
            uid: from.uid,
            gid: from.gid,
            mode: from.mode as u16,
            ino: from.ino,
            size: from.size,
            blocks: from.blocks,
            atime: time(from.atime),
            btime: time(from.btime.unwrap_or_default()),
            ctime: time(from.ctime),
            mtime: time(from.mtime),
            rdev_major: (from.rdev >> 8) & 0xfff,
            rdev_minor: (from.rdev & 0xff) | ((from.rdev >> 12) & 0xf_ff00),
            ..Default::default()
        },
        ..Default::default()
    }
}

/// Reply to LOOKUP and to the operations that create names.
pub(crate) fn entry_out(from: &Entry) -> abi::EntryOut {
    abi::EntryOut {
        nodeid: from.node.0,
        generation: from.generation,
        entry_valid: from.entry_valid.as_secs(),
        attr_valid: from.attributes_valid.as_secs(),
        entry_valid_nsec: from.entry_valid.subsec_nanos(),
        attr_valid_nsec: from.attributes_valid.subsec_nanos(),
        attr: attributes(&from.attributes),
    }
}

/// A listing that grows in `buf`.
pub(crate) struct Records<'a> {
    buf: &'a mut [u8],
    used: usize,
    plus: bool,
}

impl<'a> Records<'a> {
    /// An empty listing. With `plus`, each name comes with its entry.
    pub(crate) fn new(buf: &'a mut [u8], plus: bool) -> Records<'a> {
        Records { buf, used: 0, plus }
    }

    /// Bytes used so far.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    fn record_bytes(&self, name_bytes: usize) -> usize {
        let front = if self.plus { size_of::<abi::EntryOut>() } else { 0 };
        abi::record_align(front + size_of::<abi::Dirent>() + name_bytes)
    }

    fn add(&mut self, meaning: Option<&abi::EntryOut>, name: &OsStr, record: &abi::Dirent) {
        let name = name.as_bytes();
        let Some(place) = self.buf.get_mut(self.used..self.used + self.record_bytes(name.len()))
        else {
            debug_assert!(false, "a name was added that does not fit");
            return;
        };
        self.used += place.len();
        let mut at = 0;
        let mut push = |bytes: &[u8]| {
            place[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(meaning) = meaning {
            push(meaning.as_bytes());
        }
        push(record.as_bytes());
        push(name);
        place[at..].fill(0);
    }
}

impl Listing for Records<'_> {
    fn wants_entries(&self) -> bool {
        self.plus
    }

    fn fits(&self, name_bytes: usize) -> bool {
        self.record_bytes(name_bytes) <= self.buf.len() - self.used
    }

    fn add_name(&mut self, name: &OsStr, ino: u64, kind: u32, next: u64) {
        let record = abi::Dirent { ino, off: next, namelen: name.len() as u32, kind };
        // Node 0 means a name without an entry.
        let meaning = abi::EntryOut::default();
        self.add(self.plus.then_some(&meaning), name, &record);
    }

    fn add_entry(&mut self, name: &OsStr, entry: &Entry, next: u64) {
        let (ino, kind) = (entry.attributes.ino, (entry.attributes.mode >> 12) & 0xf);
        // The kernel does not count entries of "." and "..".
        if !self.plus || entry.node.0 == 0 || name == "." || name == ".." {
            return self.add_name(name, ino, kind, next);
        }
        let record = abi::Dirent { ino, off: next, namelen: name.len() as u32, kind };
        self.add(Some(&entry_out(entry)), name, &record);
    }
}
