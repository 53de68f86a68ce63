//! The same operations on a real volume.

use crate::acl::{self, Acl};
use crate::op::{FLAGS, Op, Place, SLOTS, Way, content, name, target};
use crate::tree::{Id, OWNER, Tree};
use crate::{Answer, Outcome, Stat};
use extant::{
    DeviceNumber, Environment, Error, FallocateMode, File, FileKind, Filesystem, InodeFlags,
    NewFile, Node, OpenOptions, RenameFlags, SetAttributes, Timestamp, XattrMode,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How much a volume may keep in memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Bytes for metadata; with few, blocks enter and leave the cache.
    pub metadata: usize,
    /// Bytes for content of files; with 0, content goes directly to the device.
    pub pages: u64,
    /// Whether content leaves the cache once it is on the device.
    pub drop_behind: bool,
}

/// A volume open for writing, and the files and directories that it holds open.
pub struct Engine {
    path: PathBuf,
    fs: Option<Filesystem>,
    slots: [Option<Node>; SLOTS],
    memory: Memory,
}

fn open(path: &Path, memory: Memory) -> Result<Filesystem, Error> {
    let now = Timestamp { sec: 1_700_000_000, nsec: 7 };
    let mut options = OpenOptions::new();
    options.write(true).cache_bytes(memory.metadata).environment(Environment::fixed(now, 1));
    options.page_cache_bytes(memory.pages).dont_cache_cap_bytes(memory.pages / 4);
    options.dont_cache(memory.drop_behind);
    options.open(path)
}

/// As `find -type` names it.
pub fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::Fifo => 'p',
        FileKind::CharDevice => 'c',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::Regular => 'f',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
    }
}

impl Engine {
    /// Opens the volume in `path`.
    pub fn open(path: &Path, memory: Memory) -> Result<Engine, Error> {
        let fs = Some(open(path, memory)?);
        Ok(Engine { path: path.to_path_buf(), fs, slots: Default::default(), memory })
    }

    /// The open volume.
    pub fn fs(&self) -> &Filesystem {
        self.fs.as_ref().expect("open except within Reopen")
    }

    /// Runs `op`; `tree` gives the paths of its directories.
    pub fn apply(&mut self, op: Op, tree: &Tree) -> Outcome {
        self.try_apply(op, tree).map_err(|error| error.errno())
    }

    fn dir(&self, tree: &Tree, dir: Id) -> Result<Node, Error> {
        self.fs().node(tree.path(dir))
    }

    fn at(&self, tree: &Tree, place: Place) -> Result<(Node, String), Error> {
        Ok((self.dir(tree, tree.dir(place.dir))?, name(place.name, tree.pools)))
    }

    fn try_apply(&mut self, op: Op, tree: &Tree) -> Result<Answer, Error> {
        let new = |mode, gid| NewFile { mode, uid: OWNER, gid, ..NewFile::default() };
        match op {
            Op::Create { at, mode, gid } => {
                let (dir, name) = self.at(tree, at)?;
                dir.create_file(name, &new(mode, gid))?;
            }
            Op::Mkdir { at, mode, gid } => {
                let (dir, name) = self.at(tree, at)?;
                dir.create_dir(name, &new(mode, gid))?;
            }
            Op::Symlink { at, target: n } => {
                let (dir, name) = self.at(tree, at)?;
                dir.symlink(target(n), name, &new(0, 0))?;
            }
            Op::Mknod { at, kind } => {
                let (dir, name) = self.at(tree, at)?;
                let rdev = (kind > 1).then_some(DeviceNumber { major: 300, minor: 5 });
                let kinds =
                    [FileKind::Fifo, FileKind::Socket, FileKind::CharDevice, FileKind::BlockDevice];
                dir.mknod(name, kinds[kind], &NewFile { device: rdev, ..new(0o640, 0) })?;
            }
            Op::Link { from, to } => {
                let (from, old) = self.at(tree, from)?;
                let source = from.lookup(old)?;
                let (to, new) = self.at(tree, to)?;
                to.hard_link(&source, new)?;
            }
            Op::Unlink { at } => {
                let (dir, name) = self.at(tree, at)?;
                dir.remove_file(name)?;
            }
            Op::Rmdir { at } => {
                let (dir, name) = self.at(tree, at)?;
                dir.remove_dir(name)?;
            }
            Op::Rename { from, to, way } => {
                let (from, old) = self.at(tree, from)?;
                let (to, new) = self.at(tree, to)?;
                let flags = match way {
                    Way::Replace => RenameFlags::REPLACE,
                    Way::NoReplace => RenameFlags::NOREPLACE,
                    Way::Exchange => RenameFlags::EXCHANGE,
                    Way::Whiteout => RenameFlags::WHITEOUT,
                };
                from.rename(old, &to, new, flags)?;
            }
            Op::Stat { at } => {
                let (dir, name) = self.at(tree, at)?;
                return stat(&dir.lookup(name)?);
            }
            Op::List { dir } => return list(&self.dir(tree, tree.dir(dir))?),
            Op::Hold { slot, at } => {
                let (dir, name) = self.at(tree, at)?;
                self.slots[slot] = Some(dir.lookup(name)?);
            }
            Op::Tmpfile { slot } => {
                self.slots[slot] = Some(self.fs().root()?.tmpfile(&new(0o600, 0))?);
            }
            Op::LinkHeld { slot, to } => {
                if let Some(source) = &self.slots[slot] {
                    let (dir, name) = self.at(tree, to)?;
                    dir.hard_link(source, name)?;
                }
            }
            Op::CreateInHeld { slot, name: n } => {
                if let Some(dir) = &self.slots[slot] {
                    dir.create_file(name(n, tree.pools), &new(0o644, 0))?;
                }
            }
            Op::StatHeld { slot } => {
                if let Some(node) = &self.slots[slot] {
                    return stat(node);
                }
            }
            Op::WriteHeld { slot, offset, len } => {
                if let Some(file) = self.file(slot, tree) {
                    file?.write_all_at(&content(offset, len), offset.into())?;
                }
            }
            Op::AppendHeld { slot, len } => {
                if let Some(file) = self.file(slot, tree) {
                    assert_eq!(file?.append(&content(0, len))?, len as usize);
                }
            }
            Op::ResizeHeld { slot, size } => {
                if let Some(file) = self.file(slot, tree) {
                    file?.set_len(size.into())?;
                }
            }
            Op::PunchHeld { slot, offset, len } => {
                if let Some(file) = self.file(slot, tree) {
                    file?.allocate(FallocateMode::PunchHole, offset.into(), len.into())?;
                }
            }
            Op::ReadHeld { slot } => {
                if let Some(file) = self.file(slot, tree) {
                    return Ok(Answer::Content(Arc::new(read(&file?)?)));
                }
            }
            Op::ChmodHeld { slot, mode } => {
                if let Some(node) = &self.slots[slot]
                    && !node.metadata().is_symlink()
                {
                    let wish = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                    node.set_attributes(&wish)?;
                }
            }
            Op::XattrHeld { slot, len } => {
                if let Some(node) = &self.slots[slot] {
                    match len {
                        Some(len) => {
                            let value = vec![len; len.into()];
                            node.set_xattr("user.model", &value, XattrMode::Any)?;
                        }
                        None => node.remove_xattr("user.model")?,
                    }
                    return Ok(Answer::Value(attribute(node, "user.model")?));
                }
            }
            Op::DefaultAclHeld { slot, list } => {
                if let (Some(node), Some(_)) = (&self.slots[slot], tree.held(slot, 'd')) {
                    match list {
                        Some(n) => {
                            let list = Acl::of_pool(n).bytes();
                            node.set_xattr(acl::DEFAULT, &list, XattrMode::Any)?;
                        }
                        None => node.remove_xattr(acl::DEFAULT)?,
                    }
                }
            }
            Op::ReadAclHeld { slot } => {
                if let Some(node) = &self.slots[slot]
                    && !node.metadata().is_symlink()
                {
                    return Ok(Answer::Value(attribute(node, acl::ACCESS)?));
                }
            }
            Op::FlagHeld { slot, flag, on } => {
                if let Some(node) = self.flagged(slot) {
                    set_flag(node, InodeFlags::from_bits_retain(FLAGS[flag]), on)?;
                }
            }
            Op::ReadFlagsHeld { slot } => {
                if let Some(node) = self.flagged(slot) {
                    return Ok(Answer::Flags(flags(node)));
                }
            }
            Op::ExtentsHeld { slot, on } => {
                if let (Some(node), Some(_)) = (&self.slots[slot], tree.held(slot, 'f')) {
                    // Not every volume and file can have both kinds of map.
                    match set_flag(node, InodeFlags::EXTENTS, on) {
                        Ok(()) | Err(Error::NotSupported(_) | Error::Invalid(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Op::ProjectHeld { slot, project } => {
                if let (Some(node), true) = (&self.slots[slot], tree.projects) {
                    let wish = SetAttributes { project: Some(project), ..SetAttributes::default() };
                    node.set_attributes(&wish)?;
                }
            }
            Op::LetGo { slot } => self.slots[slot] = None,
            Op::Reopen => self.reopen()?,
        }
        Ok(Answer::Done)
    }

    /// What a slot holds, if it is of a kind whose flags can be read.
    fn flagged(&self, slot: usize) -> Option<&Node> {
        let kind = |node: &&Node| node.metadata().is_file() || node.metadata().is_dir();
        self.slots[slot].as_ref().filter(kind)
    }

    /// The file that a slot holds, if it holds one.
    fn file(&self, slot: usize, tree: &Tree) -> Option<Result<File, Error>> {
        tree.held(slot, 'f')?;
        self.slots[slot].as_ref().map(Node::open)
    }

    fn reopen(&mut self) -> Result<(), Error> {
        self.slots = Default::default();
        self.close()?;
        self.fs = Some(open(&self.path, self.memory)?);
        Ok(())
    }

    /// Closes the volume and everything held open.
    pub fn close(&mut self) -> Result<(), Error> {
        self.slots = Default::default();
        self.fs.take().map_or(Ok(()), Filesystem::close)
    }
}

fn set_flag(node: &Node, flag: InodeFlags, on: bool) -> Result<(), Error> {
    let mut flags = node.metadata().flags();
    flags.set(flag, on);
    node.set_attributes(&SetAttributes { flags: Some(flags), ..SetAttributes::default() })
}

/// Those of [`FLAGS`] that a file has.
pub fn flags(node: &Node) -> u32 {
    node.metadata().flags().bits() & FLAGS.iter().fold(0, |all, flag| all | flag)
}

/// All bytes of a file.
pub fn read(file: &File) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0xEE; file.metadata().len() as usize];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// An attribute, if there is one of that name.
pub fn attribute(node: &Node, name: &str) -> Result<Option<Vec<u8>>, Error> {
    match node.xattr(name) {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

fn stat(node: &Node) -> Result<Answer, Error> {
    let known = node.metadata();
    let target = match known.is_symlink() {
        true => Some(node.read_link()?.to_string_lossy().into_owned()),
        false => None,
    };
    Ok(Answer::Stat(Stat {
        kind: letter(known.file_type()),
        mode: known.permissions(),
        uid: known.uid(),
        gid: known.gid(),
        links: known.nlink(),
        target,
    }))
}

/// Names and kinds, sorted.
pub fn list(dir: &Node) -> Result<Answer, Error> {
    let mut list = Vec::new();
    for entry in dir.read_dir()? {
        let entry = entry?;
        list.push((entry.file_name().to_string_lossy().into_owned(), letter(entry.file_type()?)));
    }
    list.sort();
    Ok(Answer::List(list))
}
