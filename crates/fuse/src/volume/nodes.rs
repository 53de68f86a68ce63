//! The files that the kernel knows. The volume holds them.
//!
//! Beside each is what reads of it leave in memory (`Reads`): the time of access, and, of a
//! directory, whether the names that the kernel has cached are still right.

use super::accessed;
use crate::operations::NodeId;
use extant::{Ino, Node, Timestamp};
use extant_base::lock::{Mutex, Rank};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 64;

/// A file that the kernel knows.
struct Known {
    node: Node,
    /// Entries that the kernel received for it and has not returned.
    count: u64,
    reads: Reads,
}

/// What reads of a file leave in memory.
#[derive(Default)]
pub(super) struct Reads {
    /// Time of the last read, if it is not stored yet.
    pub(super) accessed: Option<Timestamp>,
    pub(super) listed: Listed,
}

/// Which names of a directory the kernel may have cached.
#[derive(Default)]
pub(super) struct Listed {
    /// [`Node::name_changes`] when the kernel was allowed to cache the names. `None` if it was not.
    at: Option<u64>,
    /// How many names of the directory the kernel looked up one by one since then.
    looked_up: u32,
}

/// After so many look-ups, the next listing of a directory comes from the server, with the entry
/// of each name. Names that the kernel cached are names only.
const LOOK_UPS: u32 = 16;

impl Listed {
    /// Whether the kernel may use names that it has cached, now that the directory has had
    /// `changes`. If not, it may cache names from now on.
    pub(super) fn renew(&mut self, changes: u64) -> bool {
        let is_valid = self.at == Some(changes) && self.looked_up < LOOK_UPS;
        if !is_valid {
            *self = Listed { at: Some(changes), looked_up: 0 };
        }
        is_valid
    }

    /// Names that the kernel may have cached are not right, so the next opening drops them. Returns
    /// whether it may have some.
    pub(super) fn expire(&mut self) -> bool {
        self.at.take().is_some()
    }

    /// The kernel looked a name up.
    pub(super) fn count_look_up(&mut self) {
        self.looked_up = self.looked_up.saturating_add(1);
    }
}

impl Known {
    fn let_go(self) {
        if let Some(time) = self.reads.accessed {
            accessed::store(&self.node, time);
        }
    }
}

/// The files that the kernel knows, each held until the kernel forgets it.
pub(super) struct Nodes {
    root: Node,
    root_reads: Mutex<Reads>,
    shards: [Mutex<HashMap<u64, Known>>; SHARDS],
    /// Number of files that are being released now.
    going: AtomicU64,
    /// Number of files that have been released.
    gone: AtomicU64,
}

/// The kernel's number for an inode.
pub(super) fn id_of(ino: Ino) -> NodeId {
    match ino {
        Ino::ROOT => NodeId::ROOT,
        ino => NodeId(u64::from(ino.get())),
    }
}

impl Nodes {
    pub(super) fn new(root: Node) -> Nodes {
        let shards = std::array::from_fn(|_| Mutex::new(Rank::Leaf, HashMap::new()));
        let root_reads = Mutex::new(Rank::Leaf, Reads::default());
        Nodes { root, root_reads, shards, going: AtomicU64::new(0), gone: AtomicU64::new(0) }
    }

    fn shard(&self, id: NodeId) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    /// The file with number `id`, if the kernel may know it.
    pub(super) fn get(&self, id: NodeId) -> Option<Node> {
        match id {
            NodeId::ROOT => Some(self.root.clone()),
            id => self.shard(id).lock().get(&id.0).map(|known| known.node.clone()),
        }
    }

    /// Counts an entry of `node` that the kernel receives. Returns whether `node` is new to the
    /// kernel.
    pub(super) fn count_entry(&self, node: Node) -> (NodeId, bool) {
        let id = id_of(node.ino());
        if id == NodeId::ROOT {
            return (id, false);
        }
        // A surplus reference is dropped outside the lock.
        let spare = match self.shard(id).lock().entry(id.0) {
            Entry::Occupied(mut known) => {
                known.get_mut().count += 1;
                Some(node)
            }
            Entry::Vacant(place) => {
                place.insert(Known { node, count: 1, reads: Reads::default() });
                None
            }
        };
        (id, spare.is_none())
    }

    /// The kernel returns `count` entries of `id`.
    pub(super) fn forget(&self, id: NodeId, count: u64) {
        let mut shard = self.shard(id).lock();
        let Entry::Occupied(mut known) = shard.entry(id.0) else { return };
        let left = known.get().count.saturating_sub(count);
        known.get_mut().count = left;
        if left == 0 {
            self.going.fetch_add(1, Ordering::SeqCst);
            let last = known.remove();
            drop(shard);
            // Releasing a file without names frees its blocks, so the lock is dropped before.
            last.let_go();
            self.gone.fetch_add(1, Ordering::SeqCst);
            self.going.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Calls `with` on what reads of `id` left, under a lock. `None` if the kernel does not know
    /// `id`.
    pub(super) fn with_reads<R>(
        &self,
        id: NodeId,
        with: impl FnOnce(&mut Reads) -> R,
    ) -> Option<R> {
        match id {
            NodeId::ROOT => Some(with(&mut self.root_reads.lock())),
            id => self.shard(id).lock().get_mut(&id.0).map(|known| with(&mut known.reads)),
        }
    }

    /// Takes all times of access that are not stored yet, one shard at a time. The caller stores
    /// them.
    pub(super) fn take_accesses(&self) -> impl Iterator<Item = (Node, Timestamp)> + '_ {
        let root = self.root_reads.lock().accessed.take().map(|time| (self.root.clone(), time));
        let others = self.shards.iter().flat_map(|shard| {
            let mut shard = shard.lock();
            let taken = shard.values_mut();
            taken
                .filter_map(|known| Some((known.node.clone(), known.reads.accessed.take()?)))
                .collect::<Vec<_>>()
        });
        root.into_iter().chain(others)
    }

    /// Number of files released so far.
    pub(super) fn gone(&self) -> u64 {
        self.gone.load(Ordering::SeqCst)
    }

    /// Whether files without names may free space: a file was released since [`Nodes::gone`]
    /// returned `gone`, is being released now, or has no name and waits for the kernel's FORGET.
    pub(super) fn may_free_space(&self, gone: u64) -> bool {
        let nameless = || {
            self.shards.iter().any(|shard| {
                // Examined and dropped outside the lock.
                let nodes: Vec<Node> =
                    shard.lock().values().map(|known| known.node.clone()).collect();
                nodes.iter().any(|node| node.metadata().nlink() == 0)
            })
        };
        nameless() || self.going.load(Ordering::SeqCst) > 0 || self.gone() != gone
    }

    /// Releases all files, because the kernel knows none any more.
    pub(super) fn clear(&self) {
        let time = self.root_reads.lock().accessed.take();
        if let Some(time) = time {
            accessed::store(&self.root, time);
        }
        for shard in &self.shards {
            let all = std::mem::take(&mut *shard.lock());
            all.into_values().for_each(Known::let_go);
        }
    }
}
