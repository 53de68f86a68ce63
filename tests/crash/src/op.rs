//! One operation of a workload, and its line of text.
//!
//! ```text
//!   write /A/foo 0 32768        the words of the generated workloads, with full paths
//!   exchange /A/foo /bar        and some more, so that any workload can be printed and read back
//! ```

use crate::direct::{self, DirectHow};
use extant::{FallocateMode, InodeFlags};
use extant_testkit::rng::Rng;
use std::fmt;

/// How a rename treats an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameHow {
    /// Replaces the target.
    Replace,
    /// Fails if the target exists.
    NoReplace,
    /// Both names stay and exchange their inodes.
    Exchange,
    /// Leaves a whiteout.
    Whiteout,
}

/// The modes of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the flags of the system call, by name
pub enum Falloc {
    Allocate,
    KeepSize,
    ZeroRange,
    ZeroRangeKeepSize,
    PunchHole,
    Collapse,
    Insert,
}

impl Falloc {
    /// All of them, with the flags of the system call.
    pub const ALL: [(Falloc, &str); 7] = [
        (Falloc::Allocate, "0"),
        (Falloc::KeepSize, "FALLOC_FL_KEEP_SIZE"),
        (Falloc::ZeroRange, "FALLOC_FL_ZERO_RANGE"),
        (Falloc::ZeroRangeKeepSize, "FALLOC_FL_ZERO_RANGE|FALLOC_FL_KEEP_SIZE"),
        (Falloc::PunchHole, "FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE"),
        (Falloc::Collapse, "FALLOC_FL_COLLAPSE_RANGE"),
        (Falloc::Insert, "FALLOC_FL_INSERT_RANGE"),
    ];

    /// As the library calls it.
    pub fn library_mode(self) -> FallocateMode {
        match self {
            Falloc::Allocate => FallocateMode::Allocate,
            Falloc::KeepSize => FallocateMode::KeepSize,
            Falloc::ZeroRange => FallocateMode::ZeroRange,
            Falloc::ZeroRangeKeepSize => FallocateMode::ZeroRangeKeepSize,
            Falloc::PunchHole => FallocateMode::PunchHole,
            Falloc::Collapse => FallocateMode::Collapse,
            Falloc::Insert => FallocateMode::Insert,
        }
    }

    fn flags(self) -> &'static str {
        let found = Falloc::ALL.iter().find(|(mode, _)| *mode == self);
        found.expect("the table holds every mode").1
    }
}

/// A special file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Special {
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

impl Special {
    /// All of them, by name.
    pub const ALL: [(Special, &str); 4] = [
        (Special::Fifo, "fifo"),
        (Special::Socket, "socket"),
        (Special::CharDevice, "char"),
        (Special::BlockDevice, "block"),
    ];
}

/// The flags that workloads change, by the letter of `chattr`.
pub const FLAGS: [(InodeFlags, &str); 9] = [
    (InodeFlags::NOATIME, "A"),
    (InodeFlags::JOURNAL_DATA, "j"),
    (InodeFlags::PROJINHERIT, "P"),
    (InodeFlags::IMMUTABLE, "i"),
    (InodeFlags::APPEND, "a"),
    (InodeFlags::TOPDIR, "T"),
    (InodeFlags::DIRSYNC, "D"),
    (InodeFlags::NODUMP, "d"),
    (InodeFlags::EXTENTS, "e"),
];

/// One operation. Paths are absolute and begin with a slash; offsets and lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the fields are the arguments of the system calls
pub enum Op {
    /// Creates a file unless it exists.
    Create {
        path: String,
        mode: u16,
    },
    Mkdir {
        path: String,
        mode: u16,
    },
    Symlink {
        target: String,
        path: String,
    },
    Mknod {
        path: String,
        kind: Special,
    },
    /// A file without a name in `dir`, filled with `len` bytes, then named `path`.
    Tmpfile {
        dir: String,
        path: String,
        len: u64,
    },
    /// A file without a name that never gets one: it is freed at once.
    TmpfileDropped {
        dir: String,
        len: u64,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    /// Unlink or rmdir, whichever fits.
    Remove {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        how: RenameHow,
    },
    Write {
        path: String,
        at: u64,
        len: u64,
    },
    Append {
        path: String,
        len: u64,
    },
    /// Past the page cache.
    DirectWrite {
        path: String,
        at: u64,
        len: u64,
        how: DirectHow,
    },
    Truncate {
        path: String,
        len: u64,
    },
    Fallocate {
        path: String,
        mode: Falloc,
        at: u64,
        len: u64,
    },
    SetXattr {
        path: String,
        name: String,
        len: u64,
    },
    RemoveXattr {
        path: String,
        name: String,
    },
    Chmod {
        path: String,
        mode: u16,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    SetTimes {
        path: String,
    },
    /// A flag set or cleared: one of [`FLAGS`], by the letter of `chattr`.
    Chattr {
        path: String,
        flag: char,
        on: bool,
    },
    /// The project.
    Chproj {
        path: String,
        project: u32,
    },
    /// An access list with a user of its own, or a directory's default one.
    SetAcl {
        path: String,
        default: bool,
    },
    /// This many names of 250 bytes for a file, in a directory. Only for setup, because it is not
    /// one change.
    Fill {
        path: String,
        dir: String,
        count: u64,
    },
    /// Keeps the file open that has this name now.
    Hold {
        path: String,
    },
    /// Closes the file that was held under this name.
    Release {
        path: String,
    },
    /// Closes the file. Operations on its content opened it and keep it open if it goes through the
    /// page cache.
    Close {
        path: String,
    },
    /// Sets whether I/O of the open file is don't-cache.
    DontCache {
        path: String,
        on: bool,
    },
    /// Reads, and compares with the expected bytes if they are known.
    Read {
        path: String,
        at: u64,
        len: u64,
    },
    /// Writes dirty bytes to the device, without a flush.
    WriteBack {
        path: String,
        at: u64,
        len: u64,
    },
    Fsync {
        path: String,
    },
    Fdatasync {
        path: String,
    },
    Sync,
}

/// A place in a file: its start, any byte below `reach`, or one of `sizes` up to `times` - 1 times.
pub fn draw_offset(rng: &mut Rng, sizes: &[u64], reach: usize, times: usize) -> u64 {
    match rng.below(4) {
        0 => 0,
        1 => rng.below(reach) as u64,
        _ => sizes[rng.below(sizes.len())] * rng.below(times) as u64,
    }
}

impl Op {
    /// A call of any kind that allocates or frees space, near this place.
    pub fn draw_fallocate(rng: &mut Rng, path: String, (mut at, mut len): (u64, u64)) -> Op {
        let mode = Falloc::ALL[rng.below(Falloc::ALL.len())].0;
        if matches!(mode, Falloc::Collapse | Falloc::Insert) {
            // Whole blocks and clusters; otherwise the answer is always an errno.
            (at, len) = (at >> 16 << 16, 1 << 16);
        }
        Op::Fallocate { path, mode, at, len }
    }

    /// A range is allocated or freed in any way and then written, buffered and direct, before any
    /// call requires a commit. Mostly bytes were there before, and are synced.
    ///
    /// A write in place to blocks that moved has no order relative to the move (F1): a cut may show
    /// it at their old place.
    pub fn draw_range_written(rng: &mut Rng, path: String, place: (u64, u64)) -> Vec<Op> {
        let range = Op::draw_fallocate(rng, path.clone(), place);
        let Op::Fallocate { at, len, .. } = range else { unreachable!("it was just drawn") };
        let mut ops = Vec::new();
        if rng.below(4) > 0 {
            ops.push(Op::Write { path: path.clone(), at: at / 2, len: at - at / 2 + len + 5000 });
            ops.push(Op::Fsync { path: path.clone() });
        }
        ops.push(range);
        for _ in 0..1 + rng.below(3) {
            let at = at + rng.below(len as usize) as u64;
            let len = 1 + rng.below(len as usize) as u64;
            ops.push(match rng.below(2) {
                0 => Op::Write { path: path.clone(), at, len },
                _ => direct::draw(rng, path.clone(), (at, len)),
            });
            if rng.below(3) == 0 {
                ops.push(Op::WriteBack { path: path.clone(), at, len });
            }
        }
        ops
    }

    /// Whether earlier operations are durable when it returns.
    pub fn persists(&self) -> bool {
        matches!(
            self,
            Op::Fsync { .. }
                | Op::Fdatasync { .. }
                | Op::Sync
                | Op::DirectWrite { how: DirectHow::Synced, .. }
        )
    }

    /// Makes its paths relative to a directory instead of the root.
    pub fn move_below(&mut self, root: &str) {
        let below = |path: &mut String| match path.as_str() {
            "/" => *path = root.to_owned(),
            _ => path.insert_str(0, root),
        };
        match self {
            Op::Sync => {}
            Op::Link { from, to } | Op::Rename { from, to, .. } => {
                below(from);
                below(to);
            }
            Op::Tmpfile { dir, path, .. } | Op::Fill { path, dir, .. } => {
                below(dir);
                below(path);
            }
            Op::TmpfileDropped { dir: path, .. }
            | Op::Create { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Symlink { path, .. }
            | Op::Mknod { path, .. }
            | Op::Unlink { path }
            | Op::Rmdir { path }
            | Op::Remove { path }
            | Op::Write { path, .. }
            | Op::Append { path, .. }
            | Op::DirectWrite { path, .. }
            | Op::Truncate { path, .. }
            | Op::Fallocate { path, .. }
            | Op::SetXattr { path, .. }
            | Op::RemoveXattr { path, .. }
            | Op::Chmod { path, .. }
            | Op::Chown { path, .. }
            | Op::SetTimes { path }
            | Op::Chattr { path, .. }
            | Op::Chproj { path, .. }
            | Op::SetAcl { path, .. }
            | Op::Hold { path }
            | Op::Release { path }
            | Op::Close { path }
            | Op::DontCache { path, .. }
            | Op::Read { path, .. }
            | Op::WriteBack { path, .. }
            | Op::Fsync { path }
            | Op::Fdatasync { path } => below(path),
        }
    }

    /// The file whose content or size it changes in several handles: a cut may leave some of them
    /// done.
    pub fn stepwise_path(&self) -> Option<&str> {
        match self {
            Op::Write { path, .. }
            | Op::Append { path, .. }
            | Op::DirectWrite { path, .. }
            | Op::Truncate { path, .. }
            | Op::Fallocate { path, .. } => Some(path),
            _ => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path, mode } => write!(f, "creat {path} {mode:04o}"),
            Op::Mkdir { path, mode } => write!(f, "mkdir {path} {mode:04o}"),
            Op::Symlink { target, path } => write!(f, "symlink {target} {path}"),
            Op::Mknod { path, kind } => {
                let found = Special::ALL.iter().find(|(k, _)| k == kind);
                write!(f, "mknod {path} {}", found.expect("the table holds every kind").1)
            }
            Op::Tmpfile { dir, path, len } => write!(f, "tmpfile {dir} {path} {len}"),
            Op::TmpfileDropped { dir, len } => write!(f, "tmpfile {dir} - {len}"),
            Op::Link { from, to } => write!(f, "link {from} {to}"),
            Op::Unlink { path } => write!(f, "unlink {path}"),
            Op::Rmdir { path } => write!(f, "rmdir {path}"),
            Op::Remove { path } => write!(f, "remove {path}"),
            Op::Rename { from, to, how } => {
                let verb = match how {
                    RenameHow::Replace => "rename",
                    RenameHow::NoReplace => "rename-noreplace",
                    RenameHow::Exchange => "exchange",
                    RenameHow::Whiteout => "whiteout",
                };
                write!(f, "{verb} {from} {to}")
            }
            Op::Write { path, at, len } => write!(f, "write {path} {at} {len}"),
            Op::Append { path, len } => write!(f, "append {path} {len}"),
            Op::DirectWrite { path, at, len, how } => {
                write!(f, "{} {path} {at} {len}", how.word())
            }
            Op::Truncate { path, len } => write!(f, "truncate {path} {len}"),
            Op::Fallocate { path, mode, at, len } => {
                write!(f, "falloc {path} {} {at} {len}", mode.flags())
            }
            Op::SetXattr { path, name, len } => write!(f, "fsetxattr {path} {name} {len}"),
            Op::RemoveXattr { path, name } => write!(f, "removexattr {path} {name}"),
            Op::Chmod { path, mode } => write!(f, "chmod {path} {mode:04o}"),
            Op::Chown { path, uid, gid } => write!(f, "chown {path} {uid} {gid}"),
            Op::SetTimes { path } => write!(f, "utimes {path}"),
            Op::Chattr { path, flag, on } => {
                write!(f, "chattr {path} {}{flag}", if *on { '+' } else { '-' })
            }
            Op::Chproj { path, project } => write!(f, "chproj {path} {project}"),
            Op::SetAcl { path, default } => {
                write!(f, "setfacl {path} {}", if *default { "default" } else { "access" })
            }
            Op::Fill { path, dir, count } => write!(f, "fill {path} {dir} {count}"),
            Op::Hold { path } => write!(f, "hold {path}"),
            Op::Release { path } => write!(f, "release {path}"),
            Op::Close { path } => write!(f, "shut {path}"),
            Op::DontCache { path, on } => write!(f, "dontcache {path} {}", u8::from(*on)),
            Op::Read { path, at, len } => write!(f, "read {path} {at} {len}"),
            Op::WriteBack { path, at, len } => write!(f, "writeback {path} {at} {len}"),
            Op::Fsync { path } => write!(f, "fsync {path}"),
            Op::Fdatasync { path } => write!(f, "fdatasync {path}"),
            Op::Sync => write!(f, "sync"),
        }
    }
}
