//! Names: lookup, creation, renaming, links.

use super::attributes::{kept, unpacked};
use super::context::Context;
use super::{KEPT, errno};
use crate::operations::{Answer, Attributes, Caller, Entry, NewNode, NodeId};
use extant::{FileKind, InodeFlags, NewFile, Node, RenameFlags};
use rustix::fs::RenameFlags as CallFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::time::Duration;

/// How long the kernel may cache names of a directory. Not at all where one file answers to many
/// spellings.
fn kept_in(dir: &Node) -> Duration {
    match dir.metadata().flags().contains(InodeFlags::CASEFOLD) {
        true => Duration::ZERO,
        false => KEPT,
    }
}

impl Context {
    /// The entry of `node` for the kernel, which may cache the name for `entry_valid`.
    pub(super) fn entry(&self, node: Node, entry_valid: Duration) -> Entry {
        let metadata = node.metadata();
        let (id, is_new) = self.nodes().count_entry(node.clone());
        if is_new && metadata.is_file() && self.kernel_collects_writes() {
            // The kernel sets the times of writes that it collects, so its later write-back must
            // not change them.
            node.set_times_kept(true);
        }
        Entry {
            generation: metadata.generation().into(),
            attributes: self.attributes(&metadata),
            entry_valid,
            attributes_valid: kept(&metadata),
            node: id,
        }
    }
}

/// Requests about names.
pub(super) struct Names<'a>(pub(super) &'a Context);

impl Names<'_> {
    pub(super) fn look_up(&self, id: NodeId, name: &OsStr) -> Answer<Entry> {
        let dir = match self.0.node(id) {
            // A file handle from before the kernel forgot the node, as network file servers keep
            // them.
            Err(_) if name == "." => return self.by_number(id),
            dir => dir?,
        };
        match dir.lookup(name) {
            Ok(node) => {
                self.0.nodes().with_reads(id, |reads| reads.listed.count_look_up());
                Ok(self.0.entry(node, kept_in(&dir)))
            }
            Err(extant::Error::NotFound) => Ok(Entry {
                node: NodeId(0),
                generation: 0,
                attributes: Attributes::default(),
                entry_valid: kept_in(&dir),
                attributes_valid: Duration::ZERO,
            }),
            Err(error) => Err(errno(error)),
        }
    }

    fn by_number(&self, id: NodeId) -> Answer<Entry> {
        let ino = u32::try_from(id.0).ok().and_then(extant::Ino::new).ok_or(Errno::STALE)?;
        let first = self.0.fs().superblock().first_ino;
        if ino.get() < first {
            return Err(Errno::STALE);
        }
        let node = self.0.fs().node_of_handle(ino).map_err(|_| Errno::STALE)?;
        Ok(self.0.entry(node, KEPT))
    }

    fn new_file(&self, by: &Caller, new: &NewNode) -> NewFile {
        NewFile {
            mode: (new.mode & 0o7777) as u16,
            umask: (new.umask & 0o777) as u16,
            uid: self.0.options().users.stored(by.uid),
            gid: self.0.options().groups.stored(by.gid),
            ..NewFile::default()
        }
    }

    pub(super) fn make_file(
        &self,
        by: &Caller,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
    ) -> Answer<Entry> {
        let dir = self.0.node(dir)?;
        let file = self.new_file(by, new);
        let kind = u16::try_from(new.mode).ok().and_then(FileKind::from_mode);
        let node = match kind.ok_or(Errno::INVAL)? {
            FileKind::Regular => dir.create_file(name, &file),
            kind @ (FileKind::CharDevice | FileKind::BlockDevice) => {
                let rdev = Some(unpacked(new.rdev));
                dir.mknod(name, kind, &NewFile { device: rdev, ..file })
            }
            kind => dir.mknod(name, kind, &file),
        };
        self.made_entry(&dir, node)
    }

    pub(super) fn make_directory(
        &self,
        by: &Caller,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
    ) -> Answer<Entry> {
        let dir = self.0.node(dir)?;
        let node = dir.create_dir(name, &self.new_file(by, new));
        self.made_entry(&dir, node)
    }

    pub(super) fn make_symlink(
        &self,
        by: &Caller,
        dir: NodeId,
        name: &OsStr,
        target: &OsStr,
    ) -> Answer<Entry> {
        let dir = self.0.node(dir)?;
        let new = self.new_file(by, &NewNode { mode: 0o777, umask: 0, rdev: 0 });
        let node = dir.symlink(target, name, &new);
        self.made_entry(&dir, node)
    }

    pub(super) fn make_nameless(&self, by: &Caller, dir: NodeId, new: &NewNode) -> Answer<Entry> {
        let dir = self.0.node(dir)?;
        let node = dir.tmpfile(&self.new_file(by, new));
        self.made_entry(&dir, node)
    }

    fn made_entry(&self, dir: &Node, node: extant::Result<Node>) -> Answer<Entry> {
        let node = node.map_err(errno)?;
        self.0.made_names(())?;
        Ok(self.0.entry(node, kept_in(dir)))
    }

    pub(super) fn rename(
        &self,
        (dir, name): (NodeId, &OsStr),
        (new_dir, new_name): (NodeId, &OsStr),
        flags: u32,
    ) -> Answer<()> {
        let flags = CallFlags::from_bits_retain(flags);
        let known = CallFlags::NOREPLACE | CallFlags::EXCHANGE | CallFlags::WHITEOUT;
        if !known.contains(flags) {
            return Err(Errno::INVAL);
        }
        let flags = RenameFlags {
            no_replace: flags.contains(CallFlags::NOREPLACE),
            exchange: flags.contains(CallFlags::EXCHANGE),
            whiteout: flags.contains(CallFlags::WHITEOUT),
        };
        let (dir, new_dir) = (self.0.node(dir)?, self.0.node(new_dir)?);
        dir.rename(name, &new_dir, new_name, flags).map_err(errno)?;
        self.0.made_names(())
    }
}
