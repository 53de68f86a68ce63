//! All that a user can see of a volume: names, attributes, content.
//!
//! ```text
//!   names   /A/foo ──► inode 12 ◄── /bar        inodes   12 ──► kind, mode, times, …, content
//! ```
//! The same reader examines the live volume after each operation and the volume after a recovery,
//! so the two are comparable field by field, inode numbers included. Access times are left out.

use extant::{
    BlockDevice, DeviceNumber, FileExtent, FileKind, Filesystem, InodeFlags, Metadata, Result,
    Timestamp,
};
use extant_base::ByteOffset;
use extant_ondisk::features::Compat;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// The content of free blocks before a run. If a file shows it, that is stale data.
pub const POISON: u8 = 0xdb;

/// The attributes of an inode, without its access time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // as in `Metadata`
pub struct Attributes {
    pub kind: FileKind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub sectors: u64,
    pub links: u32,
    pub modified: Timestamp,
    pub changed: Timestamp,
    pub created: Option<Timestamp>,
    pub device: Option<DeviceNumber>,
    pub flags: InodeFlags,
    pub project: u32,
    pub generation: u32,
}

impl Attributes {
    fn of(metadata: &Metadata) -> Attributes {
        Attributes {
            kind: metadata.file_type(),
            mode: metadata.mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: metadata.len(),
            sectors: metadata.sectors(),
            links: metadata.nlink(),
            modified: metadata.modified(),
            changed: metadata.changed(),
            created: metadata.created(),
            device: metadata.device(),
            flags: metadata.flags(),
            project: metadata.project(),
            generation: metadata.generation(),
        }
    }

    /// Clears what records of fast commits do not contain: how many blocks a map takes, and for
    /// directories everything that follows from names.
    fn leave_out_unrecorded(&mut self) {
        self.sectors = 0;
        if self.kind == FileKind::Directory {
            (self.size, self.modified, self.changed) = Default::default();
            self.flags.remove(InodeFlags::INDEX);
        }
    }
}

/// One inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its attributes.
    pub attributes: Attributes,
    /// Its extended attributes, sorted by name.
    pub xattrs: Vec<(OsString, Vec<u8>)>,
    /// A regular file's bytes, a symlink's target.
    pub content: Vec<u8>,
    /// Where the blocks of a regular file are.
    pub extents: Vec<FileExtent>,
}

impl Node {
    /// The extent that contains byte `at`; `None` in holes and for content inside the inode.
    pub fn extent_at(&self, at: u64) -> Option<FileExtent> {
        let next = self.extents.partition_point(|extent| extent.offset <= at);
        let extent = self.extents.get(next.checked_sub(1)?)?;
        (at < extent.offset + extent.len).then_some(*extent)
    }
}

/// A whole volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Every path and its inode.
    pub names: BTreeMap<String, u32>,
    /// Every inode that has a name.
    pub inodes: BTreeMap<u32, Arc<Node>>,
}

impl View {
    /// Reads an open volume. `Err` names what could not be read.
    pub fn of(fs: &Filesystem) -> std::result::Result<View, String> {
        View::of_tree(fs, "/")
    }

    /// Reads everything at and below a directory.
    pub fn of_tree(fs: &Filesystem, root: &str) -> std::result::Result<View, String> {
        let mut view = View::default();
        for entry in fs.walk(root).sorted(true) {
            let entry = entry.map_err(|e| format!("walk: {e}"))?;
            let path = String::from_utf8_lossy(entry.path().as_os_str().as_bytes()).into_owned();
            let ino = entry.ino();
            if let Entry::Vacant(vacant) = view.inodes.entry(ino.get()) {
                vacant.insert(Arc::new(look(fs, ino).map_err(|e| format!("{path}: {e}"))?));
            }
            view.names.insert(path, ino.get());
        }
        Ok(view)
    }

    /// The part at and below a directory.
    pub fn below(&self, root: &str) -> View {
        let inside = |path: &str| match path.strip_prefix(root) {
            Some(rest) => root == "/" || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        let mut view = View::default();
        for (path, ino) in self.names.iter().filter(|(path, _)| inside(path)) {
            view.names.insert(path.clone(), *ino);
            view.inodes.insert(*ino, Arc::clone(&self.inodes[ino]));
        }
        view
    }

    /// The inode of a path.
    pub fn node(&self, path: &str) -> Option<&Arc<Node>> {
        self.inodes.get(self.names.get(path)?)
    }

    /// The differences, without content; empty if there are none. Names the value of `self` first.
    pub fn differences(&self, other: &View) -> Vec<String> {
        let mut all = Vec::new();
        for (path, ino) in &self.names {
            match other.names.get(path) {
                Some(same) if same == ino => {}
                Some(another) => all.push(format!("{path}: inode {ino} | {another}")),
                None => all.push(format!("{path}: there | missing")),
            }
        }
        for path in other.names.keys().filter(|path| !self.names.contains_key(*path)) {
            all.push(format!("{path}: missing | there"));
        }
        for (ino, node) in &self.inodes {
            let Some(other) = other.inodes.get(ino) else { continue };
            all.extend(node_differences(node, other).map(|text| format!("inode {ino}: {text}")));
        }
        all
    }

    /// Bytes after the end of a file, in its last block, that no operation wrote: returns the first
    /// file with a block whose old content was not zeroed.
    pub fn stale_tail(&self, device: &dyn BlockDevice, block: u64) -> Result<Option<u32>> {
        for (ino, node) in &self.inodes {
            let size = node.attributes.size;
            let Some(extent) = node.extent_at(size).filter(|_| size % block != 0) else { continue };
            if !extent.written || node.attributes.kind != FileKind::Regular {
                continue;
            }
            let at = extent.block.0 * block + (size - extent.offset);
            let mut tail = vec![0; (block - size % block) as usize];
            device.read_at(ByteOffset(at), &mut tail)?;
            if tail.len() >= 16 && tail.ends_with(&[POISON; 16]) {
                return Ok(Some(*ino));
            }
        }
        Ok(None)
    }
}

fn look(fs: &Filesystem, ino: extant::Ino) -> Result<Node> {
    let node = fs.node_of_ino(ino)?;
    let metadata = node.metadata();
    let mut xattrs = node.xattr_values()?;
    xattrs.sort();
    let (mut content, mut extents) = (Vec::new(), Vec::new());
    if metadata.is_file() {
        let file = node.open()?;
        content.resize(metadata.len() as usize, 0);
        let n = file.read_raw_at(&mut content, 0)?;
        content.truncate(n);
        extents = file.extents()?;
    } else if metadata.is_symlink() {
        content = node.read_link()?.as_os_str().as_bytes().to_vec();
    }
    let mut attributes = Attributes::of(&metadata);
    if fs.superblock().features.compat.contains(Compat::FAST_COMMIT) {
        attributes.leave_out_unrecorded();
    }
    Ok(Node { attributes, xattrs, content, extents })
}

/// The differences between two states of an inode, without content.
pub fn node_differences(a: &Node, b: &Node) -> Option<String> {
    let mut text = String::new();
    let (left, right) = (&a.attributes, &b.attributes);
    macro_rules! compare {
        ($($field:ident),+) => {$(
            if left.$field != right.$field {
                let _ = write!(
                    text, "{} {:?} | {:?}  ", stringify!($field), left.$field, right.$field
                );
            }
        )+};
    }
    if left != right {
        compare!(
            kind, mode, uid, gid, size, sectors, links, modified, changed, created, device, flags,
            project, generation
        );
    }
    if a.xattrs != b.xattrs {
        let names = |node: &Node| -> Vec<String> {
            let name = |(name, value): &(OsString, Vec<u8>)| {
                format!("{}={} bytes", name.to_string_lossy(), value.len())
            };
            node.xattrs.iter().map(name).collect()
        };
        let _ = write!(text, "xattrs {:?} | {:?}  ", names(a), names(b));
    }
    (!text.is_empty()).then_some(text)
}
