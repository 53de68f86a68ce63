//! `extant defrag` of files on a mount by extant, by an `ioctl` of its own.
//!
//! ```text
//!   PATH ──► regular files below it, on the same mount, each inode once
//!              ioctl(0xE4, 1)   count ──► more extents than needed? ──► move (the server)
//! ```

#![allow(unsafe_code)]

use super::{Args, Counts, Extents};
use crate::failure::{Failure, print_message};
use crate::out::Out;
use crate::shown::Shown;
use crate::signature::{self, Next};
use extant::Ino;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The command of `crates/fuse/src/volume/controls.rs`.
const DEFRAGMENT: Opcode = opcode::read_write::<Defragment>(0xE4, 1);
const ONLY_COUNT: u32 = 1;
/// `f_type` of a FUSE mount in statfs(2).
const FUSE: rustix::fs::FsWord = 0x6573_5546;

/// What the command takes and returns.
#[repr(C)]
#[derive(Default)]
struct Defragment {
    flags: u32,
    zero: u32,
    before: u64,
    after: u64,
    moved: u64,
}

/// Whether a path names files on a mount: a directory, or a file on a FUSE mount that is not an
/// image itself.
pub(super) fn is_on_mount(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else { return false };
    if meta.is_dir() {
        return true;
    }
    let is_image = || match signature::known(path, 0) {
        Ok(Some(format)) => matches!(format.next, Next::Volume | Next::Partitions),
        _ => false,
    };
    let is_fuse = rustix::fs::statfs(path).is_ok_and(|stat| stat.f_type == FUSE);
    meta.is_file() && is_fuse && !is_image()
}

pub(super) fn run(args: &Args, top: &Path) -> Result<u8, Failure> {
    let name = Shown::path(top);
    if args.free_space || !args.paths.is_empty() {
        let what = if args.free_space { "--free-space needs" } else { "PATH is for" };
        return Err(Failure::usage(format!("{name}: is on a mount: {what} an image or a device")));
    }
    let mut walk =
        Walk { args, seen: HashSet::new(), counts: Counts::default(), out: Out::of_report() };
    let meta =
        fs::symlink_metadata(top).map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    let meta = if meta.is_symlink() { fs::metadata(top) } else { Ok(meta) };
    let meta = meta.map_err(|error| Failure::new(format_args!("{name}: {error}")))?;
    walk.entry(top, &meta, meta.dev())?;
    walk.counts.print(args, top, &mut walk.out)?;
    walk.out.finish()?;
    Ok(u8::from(walk.counts.failed))
}

struct Walk<'a> {
    args: &'a Args,
    seen: HashSet<u64>,
    counts: Counts,
    out: Out,
}

impl Walk<'_> {
    /// Moves what is at or below a path, on the device `dev`.
    fn entry(&mut self, path: &Path, meta: &Metadata, dev: u64) -> Result<(), Failure> {
        if meta.is_file() {
            return self.file(path, meta);
        }
        if !meta.is_dir() {
            return Ok(());
        }
        let mut dirs = vec![path.to_path_buf()];
        while let Some(dir) = dirs.pop() {
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(error) => {
                    self.report(&dir, &error);
                    continue;
                }
            };
            for entry in entries {
                let entry = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
                match entry {
                    // Other mounts stay.
                    Ok((_, meta)) if meta.dev() != dev => {}
                    Ok((path, meta)) if meta.is_dir() => dirs.push(path),
                    Ok((path, meta)) if meta.is_file() => self.file(&path, &meta)?,
                    Ok(_) => {}
                    Err(error) => self.report(&dir, &error),
                }
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, meta: &Metadata) -> Result<(), Failure> {
        if meta.nlink() > 1 && !self.seen.insert(meta.ino()) {
            return Ok(());
        }
        match move_file(path, self.args.dry_run) {
            Ok(extents) => {
                let ino = u32::try_from(meta.ino()).ok().and_then(Ino::new).unwrap_or(Ino::ROOT);
                let path = path.as_os_str().as_bytes();
                self.args.list(path, ino, extents, &mut self.counts, &mut self.out)
            }
            Err(Errno::NOTTY) => Err(Failure::new(format_args!(
                "{}: is not on a mount by extant",
                Shown::path(path)
            ))),
            Err(Errno::OPNOTSUPP) => {
                let why = "files without extents, with clusters or journaled data, and swap files";
                *self.counts.left.entry(why).or_default() += 1;
                Ok(())
            }
            Err(error) => {
                self.report(path, &error.into());
                Ok(())
            }
        }
    }

    fn report(&mut self, path: &Path, error: &std::io::Error) {
        self.counts.failed = true;
        print_message(format_args!("{}: {error}", Shown::path(path)));
    }
}

/// Counts the extents of a file, and moves it if `dry_run` is false.
fn move_file(path: &Path, dry_run: bool) -> Result<Extents, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let Defragment { before, after: needed, .. } = request(&file, ONLY_COUNT)?;
    if dry_run || before <= needed {
        return Ok(Extents { before, needed, after: before, moved: false });
    }
    let done = request(&file, 0)?;
    Ok(Extents { before, needed, after: done.after, moved: done.moved > 0 })
}

fn request(file: &OwnedFd, flags: u32) -> Result<Defragment, Errno> {
    let mut argument = Defragment { flags, ..Defragment::default() };
    // SAFETY: the command reads and writes one `Defragment`, for which any bytes are valid.
    unsafe { ioctl(file, Updater::<DEFRAGMENT, Defragment>::new(&mut argument)) }?;
    Ok(argument)
}
