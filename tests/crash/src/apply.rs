//! Runs an operation on an open volume, as a program would.

use crate::direct;
use crate::make::Make;
use crate::op::{FLAGS, Op, RenameHow, Special};
use crate::prepare::long_name;
use extant::{
    DeviceNumber, Error, FileKind, Filesystem, NewFile, Node, RenameFlags, Result, SetAttributes,
    XattrMode,
};
use extant_blockdev::MemoryDevice;
use std::collections::HashMap;
use std::sync::Arc;

/// Runs operations, and keeps the files open that they hold.
pub struct Applier {
    fs: Filesystem,
    held: HashMap<String, Node>,
}

impl Applier {
    /// An applier for this volume.
    pub fn new(fs: Filesystem) -> Applier {
        Applier { fs, held: HashMap::new() }
    }

    /// Runs the `n`th operation of a run. The bytes that it writes identify the operation and the
    /// offset.
    pub fn apply(&mut self, n: usize, op: &Op) -> Result<()> {
        let fs = &self.fs;
        match op {
            Op::Create { path, mode } => match fs.create_file(path, &with_mode(*mode)) {
                // As `open` with O_CREAT does.
                Err(Error::Exists) => fs.node(path)?.open().map(drop),
                made => made.map(drop),
            },
            Op::Mkdir { path, mode } => fs.create_dir(path, &with_mode(*mode)).map(drop),
            Op::Symlink { target, path } => fs.symlink(target, path, &NewFile::default()).map(drop),
            Op::Mknod { path, kind } => {
                let (kind, rdev) = match kind {
                    Special::Fifo => (FileKind::Fifo, None),
                    Special::Socket => (FileKind::Socket, None),
                    Special::CharDevice => (FileKind::CharDevice, Some(device(4, 300))),
                    Special::BlockDevice => (FileKind::BlockDevice, Some(device(8, 1))),
                };
                fs.mknod(path, kind, &NewFile { device: rdev, ..NewFile::default() }).map(drop)
            }
            Op::Tmpfile { dir, path, len } => {
                let file = fs.node(dir)?.tmpfile(&NewFile::default())?;
                file.open()?.write_all_at(&stamp(n, 0, *len), 0)?;
                let (parent, name) = split(path);
                fs.node(parent)?.hard_link(&file, name)
            }
            Op::TmpfileDropped { dir, len } => {
                let file = fs.node(dir)?.tmpfile(&NewFile::default())?;
                file.open()?.write_all_at(&stamp(n, 0, *len), 0)
            }
            Op::Link { from, to } => fs.hard_link(from, to),
            Op::Unlink { path } => fs.remove_file(path),
            Op::Rmdir { path } => fs.remove_dir(path),
            Op::Remove { path } => match fs.remove_file(path) {
                Err(Error::IsADirectory) => fs.remove_dir(path),
                removed => removed,
            },
            Op::Rename { from, to, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::REPLACE,
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                    RenameHow::Whiteout => RenameFlags::WHITEOUT,
                };
                fs.rename_with(from, to, flags)
            }
            Op::Write { path, at, len } => {
                fs.open_file(path)?.write_all_at(&stamp(n, *at, *len), *at)
            }
            Op::Append { path, len } => {
                let file = fs.open_file(path)?;
                let at = file.metadata().len();
                file.append(&stamp(n, at, *len)).map(drop)
            }
            Op::DirectWrite { path, at, len, how } => {
                let file = fs.open_file(path)?;
                direct::write(fs, &file, n, *how, *at, &stamp(n, *at, *len))
            }
            Op::Truncate { path, len } => fs.open_file(path)?.set_len(*len),
            Op::Fallocate { path, mode, at, len } => {
                fs.open_file(path)?.allocate(mode.library_mode(), *at, *len)
            }
            Op::SetXattr { path, name, len } => {
                fs.set_xattr(path, name, &stamp(n, 0, *len), XattrMode::Any)
            }
            Op::RemoveXattr { path, name } => fs.remove_xattr(path, name),
            Op::Chmod { path, mode } => self.set(path, |wish| wish.mode = Some(*mode)),
            Op::Chown { path, uid, gid } => self.set(path, |wish| {
                wish.uid = Some(*uid);
                wish.gid = Some(*gid);
            }),
            Op::SetTimes { path } => self.set(path, |wish| {
                wish.modified = Some(crate::make::run_time(10_000 + n));
            }),
            Op::Chattr { path, flag, on } => {
                let mut flags = fs.node_nofollow(path)?.metadata().flags();
                let named = FLAGS.iter().find(|(_, letter)| letter.starts_with(*flag));
                flags.set(named.ok_or(Error::Invalid("no such flag"))?.0, *on);
                self.set(path, |wish| wish.flags = Some(flags))
            }
            Op::Chproj { path, project } => self.set(path, |wish| wish.project = Some(*project)),
            Op::SetAcl { path, default } => {
                let name = match default {
                    true => "system.posix_acl_default",
                    false => "system.posix_acl_access",
                };
                fs.set_xattr(path, name, &access_list(), XattrMode::Any)
            }
            Op::Fill { path, dir, count } => {
                let (file, dir) = (fs.node(path)?, fs.node(dir)?);
                (0..*count).try_for_each(|n| dir.hard_link(&file, long_name(n)))
            }
            Op::Hold { path } => {
                self.held.insert(path.clone(), fs.node_nofollow(path)?);
                Ok(())
            }
            Op::Release { path } => self.held.remove(path).map(drop).ok_or(Error::NotFound),
            // Here every operation opens the file and closes it.
            Op::Close { .. } | Op::DontCache { .. } => Ok(()),
            Op::Read { path, at, len } => {
                fs.open_file(path)?.read_at(&mut vec![0; *len as usize], *at).map(drop)
            }
            Op::WriteBack { path, at, len } => fs.open_file(path)?.write_back(*at, *len),
            Op::Fsync { path } => fs.node_nofollow(path)?.sync_all(),
            Op::Fdatasync { path } => fs.node_nofollow(path)?.sync_data(),
            Op::Sync => fs.sync(),
        }
    }

    fn set(&self, path: &str, fill: impl FnOnce(&mut SetAttributes)) -> Result<()> {
        let mut wish = SetAttributes::default();
        fill(&mut wish);
        self.fs.node_nofollow(path)?.set_attributes(&wish)
    }
}

/// Changes a volume a little, as its next user would, and closes it. The volume may be full.
pub fn use_volume(make: &Make, device: &Arc<MemoryDevice>) -> Result<()> {
    let parts = make.parts(device)?;
    let fs = make.open_options(&parts).write(true).open_device(parts.volume)?;
    match change_a_little(&fs) {
        Ok(()) | Err(Error::NoSpace) => fs.close(),
        Err(error) => Err(error),
    }
}

fn change_a_little(fs: &Filesystem) -> Result<()> {
    let dir = fs.create_dir("/life_goes_on", &NewFile::directory())?;
    let file = dir.create_file("file", &NewFile::default())?.open()?;
    file.write_all_at(&stamp(9999, 0, 20_000), 0)?;
    file.sync_all()?;
    file.set_len(100)?;
    dir.create_file("gone", &NewFile::default())?;
    dir.remove_file("gone")
}

/// An access list: owner, user 1000, group, mask, others.
fn access_list() -> Vec<u8> {
    let entries = [(1, 7, u32::MAX), (2, 6, 1000), (4, 5, u32::MAX), (0x10, 7, u32::MAX)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries.into_iter().chain([(0x20, 0, u32::MAX)]) {
        let (tag, rights): (u16, u16) = (tag, rights);
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

fn with_mode(mode: u16) -> NewFile {
    NewFile { mode, ..NewFile::default() }
}

fn device(major: u32, minor: u32) -> DeviceNumber {
    DeviceNumber { major, minor }
}

fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => ("/", path),
    }
}

/// Bytes that identify the operation that wrote them, and the offset: no two places of a run have
/// equal bytes.
pub fn stamp(n: usize, at: u64, len: u64) -> Vec<u8> {
    let word = |index: u64| {
        let mut z = (index ^ ((n as u64 + 1) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).to_le_bytes()
    };
    (at..at + len).map(|byte| word(byte / 8)[(byte % 8) as usize]).collect()
}
