//! A minimal filesystem in memory. It does so little that the time a mount of it takes is the
//! transport's time.
//!
//! ```text
//!   Null ──► Table: 64 shards, node number ──► Node ─┬─ meta   owner, times, links
//!                                                    ├─ body   bytes | names | target
//!                                                    └─ xattrs
//! ```
//!
//! Locks, in this order: bodies of directories by number, a shard of the table, `meta`. The kernel
//! checks permissions (`default_permissions`); access lists, quota and similar features are not
//! supported.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod content;
mod names;
mod node;
mod tree;

use extant_fuse::{
    Answer, Attributes, Caller, DirCache, Entry, HandleId, Handles, Listing, NewNode, NodeId,
    Opened, OpenedDir, Operations, SetAttr, Settings, Statistics, WriteFlags,
};
use node::{Body, Node, Table};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Only the kernel's requests change anything, so its caches stay valid.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The filesystem in memory.
pub struct Null {
    table: Table,
    settings: Settings,
    valid: Duration,
    opened: AtomicU64,
}

impl std::fmt::Debug for Null {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Null").finish_non_exhaustive()
    }
}

impl Default for Null {
    fn default() -> Null {
        Null::new(Settings {
            writeback_cache: true,
            posix_acl: false,
            handles: Handles::None,
            time_granularity_ns: 1,
            max_transfer: 1 << 20,
            every_read: false,
        })
    }
}

impl Null {
    /// An empty tree with `settings`. Its root belongs to user and group 0, and every user may
    /// write in it.
    pub fn new(settings: Settings) -> Null {
        Null { table: Table::new(), settings, valid: FOREVER, opened: AtomicU64::new(0) }
    }

    /// The same, with this validity of names and attributes. With zero the kernel sends a request
    /// each time.
    pub fn valid_for(self, valid: Duration) -> Null {
        Null { valid, ..self }
    }

    /// Number of files and directories that have a name or that the kernel still knows.
    pub fn nodes(&self) -> usize {
        self.table.len()
    }

    fn opening(&self) -> Opened {
        Opened { handle: self.handle(), past_cache: false, flush: false }
    }

    fn handle(&self) -> HandleId {
        HandleId(self.opened.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The entry of `node`, which the kernel then knows once more.
    fn entry_of(&self, node: &Node) -> Entry {
        node.known.fetch_add(1, Ordering::AcqRel);
        Entry {
            node: NodeId(node.number),
            generation: 0,
            attributes: node.attributes(),
            entry_valid: self.valid,
            attributes_valid: self.valid,
        }
    }

    /// Adds `node` to `dir` under `name`.
    fn add(&self, dir: NodeId, name: &OsStr, node: Arc<Node>) -> Answer<Entry> {
        let dir = self.table.get(dir)?;
        let mut names = dir.names()?.write();
        if names.get(name.as_bytes()).is_some() {
            return Err(Errno::EXIST);
        }
        if dir.meta.lock().nlink == 0 {
            return Err(Errno::NOENT);
        }
        names.insert(name.as_bytes(), node.number);
        let mut meta = dir.meta.lock();
        meta.changed();
        if matches!(node.body, Body::Dir(_)) {
            meta.nlink += 1;
        }
        drop(meta);
        let entry = self.entry_of(&node);
        self.table.insert(node);
        Ok(entry)
    }

    /// Removes `links` links of `node`, and the node itself if it has none left and the kernel does
    /// not know it.
    fn unlinked(&self, node: &Node, links: u32) {
        let mut meta = node.meta.lock();
        meta.nlink = meta.nlink.saturating_sub(links);
        meta.ctime = node::now();
        let gone = meta.nlink == 0;
        drop(meta);
        if gone && node.known.load(Ordering::Acquire) == 0 {
            self.table.remove(node.number);
        }
    }
}

impl Operations for Null {
    fn settings(&self) -> Settings {
        self.settings
    }

    fn lookup(&self, _: &Caller, dir: NodeId, name: &OsStr) -> Answer<Entry> {
        let dir = self.table.get(dir)?;
        let names = dir.names()?.read();
        let number = match name.as_bytes() {
            b"." => dir.number,
            b".." => names.parent,
            name => names.get(name).ok_or(Errno::NOENT)?,
        };
        // The directory stays locked until the count has been raised, or the file could be removed
        // in between.
        Ok(self.entry_of(&*self.table.get(NodeId(number))?))
    }

    fn forget(&self, node: NodeId, count: u64) {
        let Ok(node) = self.table.get(node) else { return };
        let left = node.known.fetch_update(Ordering::AcqRel, Ordering::Acquire, |known| {
            Some(known.saturating_sub(count))
        });
        if left.is_ok_and(|known| known <= count) && node.meta.lock().nlink == 0 {
            self.table.remove(node.number);
        }
    }

    fn get_attributes(
        &self,
        _: &Caller,
        node: NodeId,
        _: Option<HandleId>,
    ) -> Answer<(Attributes, Duration)> {
        Ok((self.table.get(node)?.attributes(), self.valid))
    }

    fn set_attributes(
        &self,
        _: &Caller,
        node: NodeId,
        _: Option<HandleId>,
        changes: &SetAttr,
    ) -> Answer<(Attributes, Duration)> {
        let node = self.table.get(node)?;
        node.set(changes)?;
        Ok((node.attributes(), self.valid))
    }

    fn read_link(&self, _: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        match &self.table.get(node)?.body {
            Body::Link(target) => Ok(target.to_vec()),
            _ => Err(Errno::INVAL),
        }
    }

    fn make_node(&self, by: &Caller, dir: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        self.add(dir, name, self.table.make(by, new, Body::of_mode(new.mode)))
    }

    fn make_dir(&self, by: &Caller, dir: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        self.add(dir, name, self.table.make(by, new, Body::dir(dir.0)))
    }

    fn symlink(&self, by: &Caller, dir: NodeId, name: &OsStr, target: &OsStr) -> Answer<Entry> {
        let new = NewNode { mode: 0o120_777, umask: 0, rdev: 0 };
        self.add(dir, name, self.table.make(by, &new, Body::Link(target.as_bytes().into())))
    }

    fn create(
        &self,
        by: &Caller,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
        _: u32,
    ) -> Answer<(Entry, Opened)> {
        Ok((self.make_node(by, dir, name, new)?, self.opening()))
    }

    fn make_unnamed(
        &self,
        by: &Caller,
        dir: NodeId,
        new: &NewNode,
        _: u32,
    ) -> Answer<(Entry, Opened)> {
        self.table.get(dir)?.names()?;
        let node = self.table.make(by, new, Body::of_mode(new.mode));
        node.meta.lock().nlink = 0;
        let entry = self.entry_of(&node);
        self.table.insert(node);
        Ok((entry, self.opening()))
    }

    fn unlink(&self, _: &Caller, dir: NodeId, name: &OsStr) -> Answer<()> {
        self.unlink_name(dir, name)
    }

    fn remove_dir(&self, _: &Caller, dir: NodeId, name: &OsStr) -> Answer<()> {
        self.remove_dir_name(dir, name)
    }

    fn rename(
        &self,
        _: &Caller,
        dir: NodeId,
        name: &OsStr,
        new_dir: NodeId,
        new_name: &OsStr,
        flags: u32,
    ) -> Answer<()> {
        self.rename_name((dir, name), (new_dir, new_name), flags)
    }

    fn link(&self, _: &Caller, node: NodeId, dir: NodeId, name: &OsStr) -> Answer<Entry> {
        self.link_name(node, dir, name)
    }

    fn open(&self, _: &Caller, node: NodeId, _: u32) -> Answer<Opened> {
        self.table.get(node).map(|_| self.opening())
    }

    fn open_dir(&self, _: &Caller, node: NodeId, _: u32) -> Answer<OpenedDir> {
        self.table.get(node)?.names()?;
        Ok(OpenedDir { handle: self.handle(), cache: DirCache::Off })
    }

    fn read(
        &self,
        _: &Caller,
        node: NodeId,
        _: Option<HandleId>,
        offset: u64,
        out: &mut [u8],
    ) -> Answer<usize> {
        self.table.get(node)?.read(offset, out)
    }

    fn write(
        &self,
        _: &Caller,
        node: NodeId,
        _: Option<HandleId>,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Answer<usize> {
        self.table.get(node)?.write(offset, bytes, flags)
    }

    fn sync_file(&self, _: &Caller, node: NodeId, _: Option<HandleId>, _: bool) -> Answer<()> {
        self.table.get(node).map(drop)
    }

    fn sync_dir(&self, _: &Caller, node: NodeId, _: bool) -> Answer<()> {
        self.table.get(node).map(drop)
    }

    fn sync_all(&self) -> Answer<()> {
        Ok(())
    }

    fn allocate(
        &self,
        _: &Caller,
        opened: (NodeId, HandleId),
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Answer<()> {
        self.table.get(opened.0)?.allocate(offset, len, mode)
    }

    fn seek(&self, _: &Caller, node: NodeId, offset: u64, whence: u32) -> Answer<u64> {
        self.table.get(node)?.seek(offset, whence)
    }

    fn copy_range(
        &self,
        _: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        _: HandleId,
        len: u64,
    ) -> Answer<u64> {
        let (source, target) = (self.table.get(from.0)?, self.table.get(to.0)?);
        let mut bytes = vec![0; len.min(1 << 20) as usize];
        let read = source.read(from.1, &mut bytes)?;
        let written = target.write(to.1, &bytes[..read], WriteFlags::default())?;
        Ok(written as u64)
    }

    fn read_dir(
        &self,
        _: &Caller,
        node: NodeId,
        _: Option<HandleId>,
        offset: u64,
        into: &mut dyn Listing,
    ) -> Answer<()> {
        self.list(node, offset, into)
    }

    fn get_xattr(&self, _: &Caller, node: NodeId, name: &OsStr) -> Answer<Vec<u8>> {
        let node = self.table.get(node)?;
        let xattrs = node.xattrs.lock();
        xattrs.get(name.as_bytes()).cloned().ok_or(Errno::NODATA)
    }

    fn list_xattrs(&self, _: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        let node = self.table.get(node)?;
        let xattrs = node.xattrs.lock();
        Ok(xattrs.keys().flat_map(|name| name.iter().chain(b"\0")).copied().collect())
    }

    fn set_xattr(
        &self,
        _: &Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        _: bool,
    ) -> Answer<()> {
        self.table.get(node)?.set_xattr(name.as_bytes(), value, flags)
    }

    fn remove_xattr(&self, _: &Caller, node: NodeId, name: &OsStr) -> Answer<()> {
        let node = self.table.get(node)?;
        node.xattrs.lock().remove(name.as_bytes()).map(drop).ok_or(Errno::NODATA)?;
        node.meta.lock().ctime = node::now();
        Ok(())
    }

    fn statistics(&self) -> Answer<Statistics> {
        let (blocks, inodes) = (1 << 28, 1 << 30);
        let free_inodes = inodes - self.table.len() as u64;
        Ok(Statistics {
            block_bytes: 4096,
            blocks,
            free: blocks,
            available: blocks,
            inodes,
            free_inodes,
            name_max: 255,
        })
    }
}
