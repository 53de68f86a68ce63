//! Files of the tree, and the table that maps numbers to them.

use crate::names::Names;
use extant_fuse::{Answer, Attributes, Caller, NewNode, NodeId, SetAttr, SetTime, Timestamp};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 64;
const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;

/// Attributes that change.
pub(super) struct Meta {
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
}

impl Meta {
    /// Sets the times for a change of the content.
    pub(super) fn changed(&mut self) {
        self.mtime = now();
        self.ctime = self.mtime;
    }
}

/// Content of a file.
pub(super) enum Body {
    File(RwLock<Vec<u8>>),
    Dir(RwLock<Names>),
    Link(Box<[u8]>),
    Other,
}

impl Body {
    /// An empty body for a file of this type.
    pub(super) fn of_mode(mode: u32) -> Body {
        if mode & S_IFMT == S_IFREG { Body::File(RwLock::default()) } else { Body::Other }
    }

    /// An empty directory in `parent`.
    pub(super) fn dir(parent: u64) -> Body {
        Body::Dir(RwLock::new(Names::new(parent)))
    }
}

/// A file of any type.
pub(super) struct Node {
    pub(super) number: u64,
    pub(super) rdev: u32,
    pub(super) birth: Timestamp,
    /// Entries that the kernel received and has not returned.
    pub(super) known: AtomicU64,
    pub(super) meta: Mutex<Meta>,
    pub(super) body: Body,
    pub(super) xattrs: Mutex<BTreeMap<Box<[u8]>, Vec<u8>>>,
}

impl Node {
    /// The names in a directory. ENOTDIR for other files.
    pub(super) fn names(&self) -> Answer<&RwLock<Names>> {
        if let Body::Dir(names) = &self.body { Ok(names) } else { Err(Errno::NOTDIR) }
    }

    /// The attributes that `stat` shows.
    pub(super) fn attributes(&self) -> Attributes {
        let size = match &self.body {
            Body::File(bytes) => bytes.read().len() as u64,
            Body::Link(target) => target.len() as u64,
            Body::Dir(_) => 4096,
            Body::Other => 0,
        };
        let meta = self.meta.lock();
        Attributes {
            ino: self.number,
            size,
            blocks: size.div_ceil(4096) * 8,
            atime: meta.atime,
            mtime: meta.mtime,
            ctime: meta.ctime,
            btime: Some(self.birth),
            mode: meta.mode,
            nlink: meta.nlink,
            uid: meta.uid,
            gid: meta.gid,
            rdev: self.rdev,
            blksize: 4096,
        }
    }

    /// Changes attributes.
    pub(super) fn set(&self, changes: &SetAttr) -> Answer<()> {
        if let Some(size) = changes.size {
            self.resize(size)?;
        }
        let mut meta = self.meta.lock();
        let at = now();
        let time = |changes| match changes {
            SetTime::Now => at,
            SetTime::To(time) => time,
        };
        if let Some(mode) = changes.mode {
            meta.mode = meta.mode & S_IFMT | mode;
        }
        if changes.kill_suid_sgid {
            meta.mode = without_set_ids(meta.mode);
        }
        meta.uid = changes.uid.unwrap_or(meta.uid);
        meta.gid = changes.gid.unwrap_or(meta.gid);
        if changes.size.is_some() {
            meta.mtime = at;
        }
        meta.atime = changes.atime.map_or(meta.atime, time);
        meta.mtime = changes.mtime.map_or(meta.mtime, time);
        meta.ctime = changes.ctime.unwrap_or(at);
        Ok(())
    }

    /// Sets an extended attribute.
    pub(super) fn set_xattr(&self, name: &[u8], value: &[u8], flags: u32) -> Answer<()> {
        const CREATE: u32 = 1;
        const REPLACE: u32 = 2;
        // The kernel would use these for a mount by the root of a user namespace. They are not
        // supported.
        if name.starts_with(b"system.") {
            return Err(Errno::OPNOTSUPP);
        }
        let mut xattrs = self.xattrs.lock();
        match xattrs.contains_key(name) {
            true if flags & CREATE != 0 => return Err(Errno::EXIST),
            false if flags & REPLACE != 0 => return Err(Errno::NODATA),
            _ => {}
        }
        xattrs.insert(name.into(), value.into());
        self.meta.lock().ctime = now();
        Ok(())
    }
}

/// `mode` without set-user-ID, and without set-group-ID if the group may execute.
pub(super) fn without_set_ids(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !0o2000 } else { mode }
}

/// The current time.
pub(super) fn now() -> Timestamp {
    let at = clock_gettime(ClockId::RealtimeCoarse);
    Timestamp { sec: at.tv_sec, nsec: at.tv_nsec as u32 }
}

/// All nodes by number.
pub(super) struct Table {
    shards: [RwLock<HashMap<u64, Arc<Node>>>; SHARDS],
    next: AtomicU64,
    len: AtomicUsize,
}

impl Table {
    /// A table with a root, which the kernel knows.
    pub(super) fn new() -> Table {
        let shards = std::array::from_fn(|_| RwLock::default());
        let table =
            Table { shards, next: AtomicU64::new(NodeId::ROOT.0), len: AtomicUsize::new(0) };
        let by = Caller { uid: 0, gid: 0, pid: 0 };
        let new = NewNode { mode: 0o041_777, umask: 0, rdev: 0 };
        let root = table.make(&by, &new, Body::dir(NodeId::ROOT.0));
        root.known.store(1, Ordering::Release);
        table.insert(root);
        table
    }

    /// A new node that is in no directory and not in the table.
    pub(super) fn make(&self, by: &Caller, new: &NewNode, body: Body) -> Arc<Node> {
        let time = now();
        let dir = matches!(body, Body::Dir(_));
        let meta = Meta {
            mode: new.mode & !new.umask,
            nlink: if dir { 2 } else { 1 },
            uid: by.uid,
            gid: by.gid,
            atime: time,
            mtime: time,
            ctime: time,
        };
        Arc::new(Node {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            rdev: new.rdev,
            birth: time,
            known: AtomicU64::new(0),
            meta: Mutex::new(meta),
            body,
            xattrs: Mutex::default(),
        })
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<Node>>> {
        &self.shards[number as usize % SHARDS]
    }

    /// The node with this number. ESTALE if it does not exist.
    pub(super) fn get(&self, node: NodeId) -> Answer<Arc<Node>> {
        self.shard(node.0).read().get(&node.0).cloned().ok_or(Errno::STALE)
    }

    /// Adds a node.
    pub(super) fn insert(&self, node: Arc<Node>) {
        self.len.fetch_add(1, Ordering::Relaxed);
        self.shard(node.number).write().insert(node.number, node);
    }

    /// Removes a node, unless the kernel has received an entry of it again.
    pub(super) fn remove(&self, number: u64) {
        let mut shard = self.shard(number).write();
        let unknown = shard.get(&number).is_some_and(|n| n.known.load(Ordering::Acquire) == 0);
        if unknown && shard.remove(&number).is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}
