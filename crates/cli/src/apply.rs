//! Writes a tree of names and content to a volume, over existing files or next to them.
//!
//! ```text
//!   tree         volume       result
//!   directory    directory    directory with the tree's attributes and the names of both
//!   directory    other        the tree's
//!   other        other        the tree's, which replaces it
//!   .wh.NAME     NAME         removed                (if whiteouts are requested)
//!   .wh..wh..opq directory    emptied first
//! ```
//!
//! Attributes are set last, and those of a directory after everything below it, so that times stay
//! as given.

use crate::change::Change;
use crate::failure::Failure;
use crate::image::{as_path, join};
use crate::shown::Shown;
use extant::{DeviceNumber, FileKind, Ino, NewFile, Node, SetAttributes, Timestamp, XattrMode};
use extant_image::{Children, ContentReader, Kind, NodeId, Time, Tree};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const CHUNK_BYTES: usize = 1 << 20;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

/// A tree that is being written to a volume.
pub(crate) struct Apply<'a> {
    change: &'a Change,
    tree: &'a Tree,
    reader: ContentReader<'a>,
    /// Inodes of nodes that have several names.
    linked: HashMap<NodeId, Ino>,
    /// Files of the volume to which names of the tree are hard links.
    outside: HashMap<NodeId, Node>,
    /// Whether names that begin with `.wh.` remove other names.
    whiteouts: bool,
    /// Whether a file of another type may replace a directory.
    over_directories: bool,
    progress: &'a mut dyn FnMut(u64),
    /// Number of names created.
    pub(crate) entries: u64,
}

/// A directory of the tree that is being written.
struct Level<'t> {
    id: NodeId,
    /// The directory of the volume.
    node: Node,
    /// Length of its path in the volume, in bytes.
    path_len: usize,
    /// The children that remain to be written.
    children: Children<'t>,
    /// Whether its attributes are set after its children.
    sets_attributes: bool,
}

impl<'a> Apply<'a> {
    /// Prepares to write `tree`. `progress` receives the number of bytes copied.
    pub(crate) fn new(
        change: &'a Change,
        tree: &'a Tree,
        as_layer: (bool, bool),
        progress: &'a mut dyn FnMut(u64),
    ) -> Apply<'a> {
        let reader = tree.reader();
        let (whiteouts, over_directories) = as_layer;
        let (linked, outside) = (HashMap::new(), HashMap::new());
        Apply {
            change,
            tree,
            reader,
            linked,
            outside,
            whiteouts,
            over_directories,
            progress,
            entries: 0,
        }
    }

    /// Writes the tree's root to `dest`, which is created as a directory if it does not exist.
    pub(crate) fn run(&mut self, dest: &[u8]) -> Result<(), Failure> {
        if self.change.metadata_following_links(dest)?.is_none() {
            let new = NewFile::directory();
            self.change.at(dest, |fs| fs.create_dir_all(as_path(dest), &new))?;
        }
        self.find_outside(dest)?;
        let sets_attributes = !self.tree.node(NodeId::ROOT).is_implied();
        let mut path = dest.to_vec();
        let node = self.change.at(dest, |fs| fs.node(as_path(dest)))?;
        let mut stack = vec![self.enter(NodeId::ROOT, node, &path, sets_attributes)?];
        // No recursion, and each name is looked up in its own directory, because the depth of the
        // tree comes from its source.
        while let Some(level) = stack.last_mut() {
            path.truncate(level.path_len);
            let Some((name, child)) = level.children.next() else {
                let done = stack.pop();
                if let Some(Level { id, node, sets_attributes: true, .. }) = done {
                    self.attributes(id, &node, &path)?;
                }
                continue;
            };
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            match name.strip_prefix(WHITEOUT).filter(|_| self.whiteouts) {
                Some(gone) if gone.starts_with(WHITEOUT) => {}
                Some(gone) => {
                    path.extend_from_slice(gone);
                    if let Some(there) = self.look(&level.node, gone, &path)? {
                        self.remove(&level.node, gone, &there, &path)?;
                    }
                }
                None => {
                    path.extend_from_slice(name);
                    if let Some((node, sets_attributes)) =
                        self.put(child, &level.node, name, &path)?
                    {
                        stack.push(self.enter(child, node, &path, sets_attributes)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds the targets of hard links that lead out of the tree, before anything replaces them.
    fn find_outside(&mut self, dest: &[u8]) -> Result<(), Failure> {
        for (id, _) in self.tree.iter() {
            let Some(target) = self.tree.outside(id) else { continue };
            let target = join(dest, target);
            let node = self.change.at(&target, |fs| fs.node_nofollow(as_path(&target))).map_err(
                |failure| match failure {
                    Failure::Message(text) => {
                        let name =
                            Shown(&self.tree.path(id).into_os_string().into_vec()).to_string();
                        Failure::Message(format!(
                            "{text}: entry {name} is a hard link to this file"
                        ))
                    }
                    failure => failure,
                },
            )?;
            self.outside.insert(id, node);
        }
        Ok(())
    }

    /// Prepares to write the children of a directory of the tree; `node` is the directory on the
    /// volume, at `path`.
    fn enter(
        &self,
        id: NodeId,
        node: Node,
        path: &[u8],
        sets_attributes: bool,
    ) -> Result<Level<'a>, Failure> {
        if self.whiteouts && self.tree.child(id, OPAQUE).is_some() {
            self.empty(&node, path)?;
        }
        let children = self.tree.children(id);
        Ok(Level { id, node, path_len: path.len(), children, sets_attributes })
    }

    /// The file with a name in a directory. Symlinks are not followed.
    fn look(&self, dir: &Node, name: &[u8], path: &[u8]) -> Result<Option<Node>, Failure> {
        match dir.lookup(OsStr::from_bytes(name)) {
            Ok(node) => Ok(Some(node)),
            Err(extant::Error::NotFound) => Ok(None),
            Err(error) => Err(self.change.failure(path, &error)),
        }
    }

    /// Writes a node of the tree as `name` into a directory; `path` is for messages. For a
    /// directory, returns its node and whether its attributes are to be set after its children.
    fn put(
        &mut self,
        id: NodeId,
        dir: &Node,
        name: &[u8],
        path: &[u8],
    ) -> Result<Option<(Node, bool)>, Failure> {
        let node = *self.tree.node(id);
        let os_name = OsStr::from_bytes(name);
        self.entries += 1;
        let there = self.look(dir, name, path)?;
        let kind = there.as_ref().map(|there| there.metadata().file_type());
        if node.kind.is_directory() {
            let is_link = kind == Some(FileKind::Symlink);
            let stays = match there {
                Some(there) if kind == Some(FileKind::Directory) => Ok(there),
                // A directory that is only implied by paths must not replace a link to a directory.
                // Neither must a copy of directories, which would lose everything below /lib.
                Some(there) if is_link && (node.is_implied() || !self.over_directories) => {
                    match self
                        .change
                        .metadata_following_links(path)?
                        .is_some_and(|target| target.is_dir())
                    {
                        true => Ok(self.change.at(path, |fs| fs.node(as_path(path)))?),
                        false => Err(Some(there)),
                    }
                }
                there => Err(there),
            };
            let there = match stays {
                Ok(there) => return Ok(Some((there, !(node.is_implied() || is_link)))),
                Err(there) => there,
            };
            if let Some(there) = there {
                if !self.over_directories {
                    return Err(self.change.refuse(path, "is not a directory: remove it first"));
                }
                self.remove(dir, name, &there, path)?;
            }
            let new = new_file(&node.meta);
            let made = self.change.at(path, |_| dir.create_dir(os_name, &new))?;
            return Ok(Some((made, true)));
        }
        if kind == Some(FileKind::Directory) && !self.over_directories {
            return Err(self.change.refuse(path, "is a directory: remove it first"));
        }
        let outside = self.outside.get(&id);
        if let (Some(target), Some(there)) = (outside, &there)
            && there.ino() == target.ino()
        {
            return Ok(None);
        }
        if let Some(there) = &there {
            self.remove(dir, name, there, path)?;
        }
        drop(there);
        if let Some(target) = outside {
            self.change.at(path, |_| dir.hard_link(target, os_name))?;
            return Ok(None);
        }
        if let Some(first) = self.linked.get(&id) {
            self.change.at(path, |fs| dir.hard_link(&fs.node_of_ino(*first)?, os_name))?;
            return Ok(None);
        }
        let made = self.make(id, dir, os_name, path)?;
        if node.links() > 1 {
            self.linked.insert(id, made.ino());
        }
        self.attributes(id, &made, path)?;
        Ok(None)
    }

    /// Creates a file that is not a directory.
    fn make(&mut self, id: NodeId, dir: &Node, name: &OsStr, path: &[u8]) -> Result<Node, Failure> {
        let node = *self.tree.node(id);
        let new = new_file(&node.meta);
        let special = |kind: FileKind, rdev: Option<DeviceNumber>| {
            let new = NewFile { device: rdev, ..new };
            self.change.at(path, |_| dir.mknod(name, kind, &new))
        };
        match node.kind {
            Kind::File { size, .. } => {
                let made = self.change.at(path, |_| dir.create_file(name, &new))?;
                self.file(id, &made, path, size)?;
                Ok(made)
            }
            Kind::Symlink(_) => {
                let target = OsStr::from_bytes(self.tree.target(id));
                self.change.at(path, |_| dir.symlink(target, name, &new))
            }
            Kind::CharDevice { major, minor } => {
                special(FileKind::CharDevice, Some(DeviceNumber { major, minor }))
            }
            Kind::BlockDevice { major, minor } => {
                special(FileKind::BlockDevice, Some(DeviceNumber { major, minor }))
            }
            Kind::Fifo => special(FileKind::Fifo, None),
            Kind::Socket => special(FileKind::Socket, None),
            Kind::Directory(_) => self.change.at(path, |_| dir.create_dir(name, &new)),
        }
    }

    fn file(&mut self, id: NodeId, node: &Node, path: &[u8], size: u64) -> Result<(), Failure> {
        let file = node.open().map_err(|error| self.change.failure(path, &error))?;
        let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(size).unwrap_or(CHUNK_BYTES))];
        for (offset, len) in self.tree.data_map(id).ranges() {
            let mut done = 0;
            while done < len {
                let want = (len - done).min(chunk.len() as u64) as usize;
                let at = offset + done;
                let got = self.reader.read_at(id, at, &mut chunk[..want]).map_err(Failure::new)?;
                if got == 0 {
                    break;
                }
                self.change.at(path, |_| file.write_all_at(&chunk[..got], at))?;
                done += got as u64;
                (self.progress)(got as u64);
            }
        }
        if file.metadata().len() < size {
            self.change.at(path, |_| file.set_len(size))?;
        }
        Ok(())
    }

    /// Sets owner and mode, then extended attributes, which a change of owner would remove, then
    /// times.
    fn attributes(&mut self, id: NodeId, node: &Node, path: &[u8]) -> Result<(), Failure> {
        let (meta, extra) = (self.tree.node(id).meta, self.tree.extra_times(id));
        let is_link = matches!(self.tree.node(id).kind, Kind::Symlink(_));
        let owner = SetAttributes {
            mode: (!is_link).then_some(meta.mode),
            uid: Some(meta.uid),
            gid: Some(meta.gid),
            ..SetAttributes::default()
        };
        self.change.at(path, |_| node.set_attributes(&owner))?;
        for attribute in self.tree.xattrs(id) {
            let name = OsStr::from_bytes(&attribute.name);
            node.set_xattr(name, &attribute.value, XattrMode::Any).map_err(|error| {
                let named = (&attribute.name[..], attribute.value.len());
                of_attribute(self.change, path, named, &error)
            })?;
        }
        let times = SetAttributes {
            modified: Some(timestamp(meta.mtime)),
            accessed: Some(timestamp(extra.atime.unwrap_or(meta.mtime))),
            ..SetAttributes::default()
        };
        self.change.at(path, |_| node.set_attributes(&times))
    }

    /// Removes the file with a name in a directory.
    fn remove(&self, dir: &Node, name: &[u8], there: &Node, path: &[u8]) -> Result<(), Failure> {
        match there.metadata().is_dir() {
            true => self.change.at(path, |fs| fs.remove_dir_all(as_path(path))),
            false => self.change.at(path, |_| dir.remove_file(OsStr::from_bytes(name))),
        }
    }

    /// Removes everything in a directory.
    fn empty(&self, dir: &Node, path: &[u8]) -> Result<(), Failure> {
        let names = self.change.at(path, |_| {
            dir.read_dir()?.map(|entry| Ok(entry?.file_name().to_owned())).collect()
        })?;
        let names: Vec<std::ffi::OsString> = names;
        names.iter().try_for_each(|name| {
            let path = join(path, name.as_bytes());
            match self.look(dir, name.as_bytes(), &path)? {
                Some(there) => self.remove(dir, name.as_bytes(), &there, &path),
                None => Ok(()),
            }
        })
    }
}

/// The error for an attribute whose value of `len` bytes could not be set.
pub(crate) fn of_attribute(
    change: &Change,
    path: &[u8],
    (name, len): (&[u8], usize),
    error: &extant::Error,
) -> Failure {
    let name = Shown(name);
    let why = match error {
        extant::Error::NoSpace => change.attribute_limit(len),
        extant::Error::NotPermitted => return change.failure(path, error),
        _ => None,
    };
    let why = why.unwrap_or_else(|| crate::failure::explained(error));
    change.refuse(path, &format!("attribute {name}: {why}"))
}

fn new_file(meta: &extant_image::Meta) -> NewFile {
    NewFile {
        mode: meta.mode,
        uid: meta.uid,
        gid: meta.gid,
        time: Some(timestamp(meta.mtime)),
        ..NewFile::default()
    }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { sec: time.sec, nsec: time.nsec }
}
