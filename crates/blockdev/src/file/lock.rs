//! The lock on an open file or block device: one writer or many readers, whatever locks other
//! programs take.
//!
//! ```text
//!   writer:  flock EX ──► write mark (F_OFD_SETLK, 1 byte that no content reaches) ──► locked
//!   reader:  flock SH ──► is there a write mark? ──► Busy │ locked
//!               │
//!               └─ held by others: which processes have the file open, and how (/proc/PID/fdinfo)?
//!                     for writing ───────► Busy
//!                     cannot be examined ► Locked, names the process
//!                     only for reading ──► continues without flock. A writer needs the mark: if a
//!                                          reader has locked its byte, too: Locked, with a process
//! ```
//! Every process that can read a file can `flock` it, so such a lock alone keeps no one out. Only a
//! descriptor that is open for writing can set the write mark, so later openers see a writer that
//! continued without `flock`.
//!
//! So a reader that holds `flock` and also locks the mark's byte does keep a writer out. A writer
//! admitted without both locks would be visible only in `/proc`, which a later opener of another
//! user cannot examine; and once the reader ends its locks, the next writer would get both of them
//! while the first one still writes. Locks on another file, or on a socket name, do not help: every
//! user can take those, too, or they are not shared by all who can open the image. The refusal
//! names the reader.

use extant_base::{ByteOffset, Error, IoOp, Result};
use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The byte of the write mark: the last one that a lock can name.
const MARK_AT: i64 = i64::MAX - 1;
/// How often a lock that others hold is tried again, and the pause before each try. Many locks are
/// short: a device manager probes a block device; a thread of a program that has just closed its
/// image starts another program, which shares the lock until its `exec`.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Calls `attempt` until its result is not one of a lock that others hold, [`TRIES`] times more at
/// most. Returns the last result.
pub(super) fn try_again_while<R>(
    is_held: impl Fn(&R) -> bool,
    mut attempt: impl FnMut() -> R,
) -> R {
    let mut result = attempt();
    for _ in 0..TRIES {
        if !is_held(&result) {
            break;
        }
        std::thread::sleep(PAUSE);
        result = attempt();
    }
    result
}

/// Locks `file`. For `writing` the file must be open for writing. Returns the processes whose locks
/// were ignored because they have the file open for reading only.
///
/// # Errors
/// [`Error::Busy`] when another user writes, or this process holds a lock; [`Error::Locked`] when a
/// process that cannot be examined holds a lock, or a reader that holds one has also locked the
/// mark's byte; the system's error.
pub(super) fn lock(file: &File, writing: bool) -> Result<Vec<u32>> {
    let is_held = |locked: &_| matches!(locked, Err(TryLockError::WouldBlock));
    let locked =
        try_again_while(is_held, || if writing { file.try_lock() } else { file.try_lock_shared() });
    match locked {
        Ok(()) => {
            // If a reader has locked the mark's byte, this file's `flock` is enough.
            let is_written =
                if writing { set_mark(file) == Mark::Writers } else { is_marked(file) };
            return if is_written { Err(Error::Busy) } else { Ok(Vec::new()) };
        }
        Err(TryLockError::WouldBlock) => {}
        // Some network filesystems have no locks.
        Err(TryLockError::Error(error)) if has_no_locks(&error) => return Ok(Vec::new()),
        Err(TryLockError::Error(error)) => return Err(open_failed(error)),
    }
    let readers = readers_that_hold(file)?;
    if !writing {
        return if is_marked(file) { Err(Error::Busy) } else { Ok(readers) };
    }
    match set_mark(file) {
        Mark::Ours => Ok(readers),
        Mark::Writers => Err(Error::Busy),
        // Without a mark, a later opener would not see this writer.
        Mark::Readers => {
            Err(readers.first().map_or(Error::Busy, |pid| Error::Locked { pid: *pid }))
        }
    }
}

fn has_no_locks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS))
}

/// Which user has locked the mark's byte, found by a try to lock it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// This file.
    Ours,
    /// Another user with a kind of lock that needs only read access.
    Readers,
    /// Another writer.
    Writers,
}

fn set_mark(file: &File) -> Mark {
    let mut wanted = mark(libc::F_WRLCK);
    match ofd_lock(file, libc::F_OFD_SETLK, &mut wanted) {
        Err(libc::EAGAIN | libc::EACCES) if is_marked(file) => Mark::Writers,
        Err(libc::EAGAIN | libc::EACCES) => Mark::Readers,
        // A system without such locks has none of other programs, either.
        Ok(()) | Err(_) => Mark::Ours,
    }
}

/// Whether another writer has set its mark.
fn is_marked(file: &File) -> bool {
    // Only a lock for writing conflicts with a lock for reading.
    let mut wanted = mark(libc::F_RDLCK);
    let looked = ofd_lock(file, libc::F_OFD_GETLK, &mut wanted);
    looked.is_ok() && i32::from(wanted.l_type) == libc::F_WRLCK
}

fn mark(kind: libc::c_int) -> libc::flock {
    // SAFETY: `flock` consists of integers, for which zero is a valid value.
    let mut mark: libc::flock = unsafe { std::mem::zeroed() };
    mark.l_type = kind as libc::c_short;
    mark.l_whence = libc::SEEK_SET as libc::c_short;
    (mark.l_start, mark.l_len) = (MARK_AT, 1);
    mark
}

/// Sets or queries a lock of the open file description. Returns the errno on failure.
fn ofd_lock(
    file: &File,
    command: libc::c_int,
    lock: &mut libc::flock,
) -> std::result::Result<(), i32> {
    // SAFETY: the descriptor is open as long as `file` exists, and `lock` is the structure that
    // both commands take.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, lock as *mut libc::flock) } {
        -1 => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        _ => Ok(()),
    }
}

/// The error of a failed attempt to open or lock a file.
pub(super) fn open_failed(source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EBUSY | libc::ETXTBSY) => Error::Busy,
        _ => Error::Device { op: IoOp::Open, at: ByteOffset(0), len: 0, source },
    }
}

/// The processes that hold an `flock` on `file`, if each of them has it open for reading only.
fn readers_that_hold(file: &File) -> Result<Vec<u32>> {
    let own = file.metadata().map_err(open_failed)?;
    let (mut holders, mut seen) = (Vec::new(), HashSet::new());
    let processes = fs::read_dir("/proc")
        .map_err(|_| Error::Busy)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    for pid in processes {
        let is_self = pid == std::process::id();
        let uses = descriptors(pid, &own, is_self.then(|| file.as_raw_fd()));
        let locks: Vec<Lock> = uses.iter().flat_map(|fd| fd.locks.iter().cloned()).collect();
        if locks.is_empty() {
            continue;
        }
        if is_self || uses.iter().any(|fd| fd.writes) {
            return Err(Error::Busy);
        }
        seen.extend(locks);
        holders.push(pid);
    }
    // `/proc/locks` names a file by numbers that can differ from those of `stat`, for example on
    // overlayfs.
    let place = match seen.iter().next() {
        Some(lock) => lock.place.clone(),
        None => place_of(own.dev(), own.ino()),
    };
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut listed = table.lines().filter_map(Lock::parse).filter(|lock| lock.place == place);
    match listed.find(|lock| !seen.contains(lock)) {
        Some(hidden) => Err(Error::Locked { pid: hidden.pid }),
        None if holders.is_empty() => Err(Error::Busy),
        None => Ok(holders),
    }
}

/// Whether a writer has set its mark on the file with these numbers. The file may have no path.
pub(super) fn has_mark(dev: u64, ino: u64) -> bool {
    let place = place_of(dev, ino);
    let table = fs::read_to_string("/proc/locks").unwrap_or_default();
    // `2: OFDLCK ADVISORY  WRITE -1 08:01:1187 9223372036854775806 9223372036854775806`
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "OFDLCK", _, "WRITE", _, at, first, _] = fields[..] else { return false };
        at == place && first.parse() == Ok(MARK_AT)
    })
}

/// A descriptor of a process for the file.
struct Use {
    writes: bool,
    locks: Vec<Lock>,
}

/// An `flock` as the kernel lists it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Lock {
    /// The process that took it. Since then it may have passed the descriptor to another process.
    pid: u32,
    /// The file: device and inode number.
    place: String,
}

impl Lock {
    /// Reads `1: FLOCK  ADVISORY  WRITE 612 08:01:1187 0 EOF`.
    fn parse(line: &str) -> Option<Lock> {
        let mut fields = line.split_ascii_whitespace().skip_while(|field| *field != "FLOCK");
        let (pid, place) = (fields.nth(3)?.parse().ok()?, fields.next()?.to_owned());
        Some(Lock { pid, place })
    }
}

fn place_of(dev: u64, ino: u64) -> String {
    format!("{:02x}:{:02x}:{ino}", libc::major(dev), libc::minor(dev))
}

/// The descriptors of process `pid` for the file, except the descriptor `except`. Empty when the
/// process may not be examined.
fn descriptors(pid: u32, own: &fs::Metadata, except: Option<i32>) -> Vec<Use> {
    let process = Path::new("/proc").join(pid.to_string());
    let Ok(list) = fs::read_dir(process.join("fdinfo")) else { return Vec::new() };
    let numbers = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let uses = numbers.filter(|number| Some(*number) != except).filter_map(|number| {
        let name = number.to_string();
        let info = fs::read_to_string(process.join("fdinfo").join(&name)).ok()?;
        let field = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        // Other files are not examined: a `stat` of a file on a server that does not answer would
        // block.
        if field("ino:").is_some_and(|ino| ino.parse() != Ok(own.ino())) {
            return None;
        }
        let file = fs::metadata(process.join("fd").join(&name)).ok()?;
        if (file.dev(), file.ino()) != (own.dev(), own.ino()) {
            return None;
        }
        let flags = i32::from_str_radix(field("flags:")?, 8).ok()?;
        let locks = info.lines().filter_map(|line| Lock::parse(line.strip_prefix("lock:")?));
        Some(Use { writes: flags & libc::O_ACCMODE != libc::O_RDONLY, locks: locks.collect() })
    });
    uses.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_read_from_both_tables() {
        for line in [
            "1: FLOCK  ADVISORY  WRITE 612 08:01:1187 0 EOF",
            "\t3: FLOCK  ADVISORY  READ  612 08:01:1187 0 EOF",
            "1: -> FLOCK  ADVISORY  WRITE 612 08:01:1187 0 EOF",
        ] {
            let lock = Lock::parse(line).unwrap();
            assert_eq!((lock.pid, lock.place.as_str()), (612, "08:01:1187"));
        }
        assert!(Lock::parse("2: POSIX  ADVISORY  READ 5 08:01:1187 128 128").is_none());
    }
}
