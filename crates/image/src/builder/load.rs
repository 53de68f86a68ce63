//! Loading a tree into a new volume, except for the files' bytes.

use crate::builder::Compat;
use crate::builder::copy::Piece;
use crate::builder::error::BuildError;
use crate::entry::{Kind, Meta, NodeId, Time, Xattr};
use crate::tree::Tree;
use extant::bulk::{Attributes, Loader, PackEntry};
use extant::mkfs::MkfsOptions;
use extant::{DeviceNumber, Environment, Error, FileKind, Phase, Progress, Timestamp};
use extant_base::narrow::len_u32;
use extant_base::{BlockSize, Ino};
use extant_blockdev::BlockDevice;
use extant_ondisk::dirent::EntryKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most bytes of a file that an inode can hold.
const INLINE_MOST: u64 = 4096;

/// What to load, and how.
pub(crate) struct Job<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) environment: &'a Environment,
    /// Later times are reduced to this one.
    pub(crate) latest: Option<Timestamp>,
    /// The set whose features the volume must not exceed.
    pub(crate) compat: Option<Compat>,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) stop: &'a AtomicBool,
}

/// A volume that holds everything but the files' bytes, complete and written.
pub(crate) struct Loaded {
    /// The places of the files' bytes, sorted by position on the device.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) block_size: BlockSize,
    /// Blocks of the volume.
    pub(crate) blocks: u64,
    /// Blocks left free.
    pub(crate) free_blocks: u64,
    /// Blocks that the content takes, without the volume's own metadata.
    pub(crate) content_blocks: u64,
    /// Inodes that hold attribute values.
    pub(crate) value_inodes: u64,
    pub(crate) uuid: [u8; 16],
}

impl Loaded {
    /// Bytes to copy.
    pub(crate) fn piece_bytes(&self, bs: BlockSize) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.len) << bs.log2()).sum()
    }
}

impl<'t> Job<'t> {
    /// Replaces `entries` by those of a directory. `number` gives the inodes' numbers.
    pub(crate) fn entries(
        &self,
        directory: NodeId,
        entries: &mut Vec<PackEntry<'t>>,
        number: impl Fn(NodeId) -> Ino,
    ) {
        let tree = self.tree;
        entries.clear();
        entries.extend(tree.children(directory).map(|(name, child)| PackEntry {
            name,
            ino: number(child),
            kind: entry_kind(&tree.node(child).kind),
        }));
    }
}

impl Job<'_> {
    /// `mkfs`, adjusted to the tree: a lost+found of the tree replaces the volume's, and the owner
    /// of the tree's root owns the volume's.
    pub(crate) fn suit(&self, mkfs: MkfsOptions) -> MkfsOptions {
        let own = self.tree.child(NodeId::ROOT, b"lost+found").is_some();
        let root = self.tree.node(NodeId::ROOT).meta;
        mkfs.lost_and_found(!own).root_owner(root.uid, root.gid)
    }

    /// Makes a volume on `device` and loads the tree into it.
    ///
    /// Errors: `Engine(NoSpace)` when the tree does not fit; `Entry` naming an entry that such a
    /// volume cannot store.
    pub(crate) fn load(
        &self,
        device: Arc<dyn BlockDevice>,
        mkfs: &MkfsOptions,
    ) -> Result<Loaded, BuildError> {
        let tree = self.tree;
        let loader = Loader::format(device, mkfs, self.environment).map_err(BuildError::Engine)?;
        let at_first = loader.made();
        self.progress.begin(Phase::BuildLayout, tree.node_count() as u64);

        let mut numbers = Vec::with_capacity(tree.node_count());
        let mut subdirs = vec![0u32; tree.node_count()];
        for (id, node) in tree.iter() {
            let directory = node.kind.is_directory();
            numbers.push(match id {
                NodeId::ROOT => Ino::ROOT,
                _ => loader.number(directory).map_err(BuildError::Engine)?,
            });
            if directory && id != NodeId::ROOT {
                subdirs[node.parent().index()] += 1;
            }
        }
        let mut entries: Vec<PackEntry<'_>> = Vec::new();
        for (id, node) in tree.iter().filter(|(_, node)| node.kind.is_directory()) {
            self.entries(id, &mut entries, |child| numbers[child.index()]);
            let xattrs = names_and_values(tree.xattrs(id));
            let attributes = self.attributes(id, 2 + subdirs[id.index()], &xattrs);
            let (ino, parent) = (numbers[id.index()], numbers[node.parent().index()]);
            let made = loader.directory(ino, parent, &attributes, &entries);
            made.map_err(|error| self.name(id, error))?;
            self.progress.advance(Phase::BuildLayout, 1);
        }
        let mut pieces = Vec::new();
        for (id, node) in tree.iter().filter(|(_, node)| !node.kind.is_directory()) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(BuildError::Stopped);
            }
            let xattrs = names_and_values(tree.xattrs(id));
            let attributes = self.attributes(id, node.links(), &xattrs);
            let ino = numbers[id.index()];
            self.load_leaf(&loader, id, ino, &attributes, &mut pieces)?;
            self.progress.advance(Phase::BuildLayout, 1);
        }
        pieces.sort_unstable_by_key(|piece| piece.physical);

        let made = loader.finish().map_err(BuildError::Engine)?;
        if let Some(set) = self.compat {
            set.check(&made.features)?;
        }
        let free = made.free_blocks;
        // The root and the volume's lost+found exist from the beginning.
        let taken = u64::from(at_first.free_inodes.saturating_sub(made.free_inodes));
        Ok(Loaded {
            pieces,
            block_size: BlockSize::from_bytes(len_u32(made.block_bytes))
                .expect("the engine makes blocks of valid sizes"),
            blocks: made.blocks,
            free_blocks: free,
            content_blocks: at_first.free_blocks.saturating_sub(free),
            value_inodes: (taken + 1).saturating_sub(tree.node_count() as u64),
            uuid: made.uuid,
        })
    }

    fn load_leaf(
        &self,
        loader: &Loader,
        id: NodeId,
        ino: Ino,
        attributes: &Attributes<'_>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), BuildError> {
        let tree = self.tree;
        let device = |major, minor| DeviceNumber { major, minor };
        let done = match tree.node(id).kind {
            Kind::Directory(_) => Ok(()),
            Kind::Symlink(_) => loader.symlink(ino, attributes, tree.target(id)),
            Kind::CharDevice { major, minor } => {
                loader.special(ino, attributes, FileKind::CharDevice, device(major, minor))
            }
            Kind::BlockDevice { major, minor } => {
                loader.special(ino, attributes, FileKind::BlockDevice, device(major, minor))
            }
            Kind::Fifo => loader.special(ino, attributes, FileKind::Fifo, device(0, 0)),
            Kind::Socket => loader.special(ino, attributes, FileKind::Socket, device(0, 0)),
            Kind::File { size, .. } => {
                if (1..=INLINE_MOST).contains(&size) && loader.has_inline_data() {
                    let content = tree.reader().read(id)?;
                    if loader
                        .inline_file(ino, attributes, &content)
                        .map_err(|error| self.name(id, error))?
                    {
                        return Ok(());
                    }
                }
                let map = tree.data_map(id);
                let mut ranges = map.ranges();
                loader.file(ino, attributes, size, &mut ranges, &mut |placed| {
                    pieces.push(Piece {
                        node: id,
                        logical: placed.logical,
                        len: placed.len,
                        physical: placed.physical.0,
                    });
                })
            }
        };
        done.map_err(|error| self.name(id, error))
    }

    /// The attributes of an entry besides its content. The change time is the source's, else the
    /// modification time.
    fn attributes<'x>(
        &self,
        id: NodeId,
        links: u32,
        xattrs: &'x [(&'x [u8], &'x [u8])],
    ) -> Attributes<'x> {
        let Meta { mode, uid, gid, mtime } = self.tree.node(id).meta;
        let extra = self.tree.extra_times(id);
        let stamp = |time: Time| {
            let time = Timestamp { sec: time.sec, nsec: time.nsec };
            self.latest.map_or(time, |latest| time.min(latest))
        };
        Attributes {
            mode,
            uid,
            gid,
            nlink: links,
            accessed: stamp(extra.atime.unwrap_or(mtime)),
            modified: stamp(mtime),
            changed: stamp(extra.ctime.unwrap_or(mtime)),
            xattrs,
        }
    }

    /// Adds the path of the entry to an error, unless the entry is not the cause (no space, the
    /// device).
    fn name(&self, id: NodeId, error: Error) -> BuildError {
        match error {
            Error::NoSpace | Error::Device { .. } | Error::Aborted { .. } => {
                BuildError::Engine(error)
            }
            error => BuildError::Entry { path: self.tree.path(id), error },
        }
    }
}

fn names_and_values(xattrs: &[Xattr]) -> Vec<(&[u8], &[u8])> {
    xattrs.iter().map(|xattr| (&*xattr.name, &*xattr.value)).collect()
}

fn entry_kind(kind: &Kind) -> EntryKind {
    match kind {
        Kind::Directory(_) => EntryKind::Directory,
        Kind::File { .. } => EntryKind::Regular,
        Kind::Symlink(_) => EntryKind::Symlink,
        Kind::CharDevice { .. } => EntryKind::CharDevice,
        Kind::BlockDevice { .. } => EntryKind::BlockDevice,
        Kind::Fifo => EntryKind::Fifo,
        Kind::Socket => EntryKind::Socket,
    }
}
