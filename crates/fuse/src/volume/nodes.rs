//! What the kernel knows of the volume, and holds.

use crate::operations::NodeId;
use extant::{Ino, Node};
use extant_base::lock::{Mutex, Rank};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 64;

/// A file the kernel knows.
struct Known {
    node: Node,
    /// Entries given for it and not taken back.
    count: u64,
}

/// The files that the kernel knows, each held until it forgets it.
pub(super) struct Nodes {
    root: Node,
    shards: [Mutex<HashMap<u64, Known>>; SHARDS],
    /// Files that are being let go of.
    going: AtomicU64,
    /// Those that were.
    gone: AtomicU64,
}

/// The name of an inode towards the kernel.
pub(super) fn id_of(ino: Ino) -> NodeId {
    match ino {
        Ino::ROOT => NodeId::ROOT,
        ino => NodeId(u64::from(ino.get())),
    }
}

impl Nodes {
    pub(super) fn new(root: Node) -> Nodes {
        let shards = std::array::from_fn(|_| Mutex::new(Rank::Leaf, HashMap::new()));
        Nodes { root, shards, going: AtomicU64::new(0), gone: AtomicU64::new(0) }
    }

    fn shard(&self, id: NodeId) -> &Mutex<HashMap<u64, Known>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    /// The file called `id`, if the kernel may know it.
    pub(super) fn get(&self, id: NodeId) -> Option<Node> {
        match id {
            NodeId::ROOT => Some(self.root.clone()),
            id => self.shard(id).lock().get(&id.0).map(|known| known.node.clone()),
        }
    }

    /// The kernel is told of `node` once more; whether it did not know it before.
    pub(super) fn tell(&self, node: Node) -> (NodeId, bool) {
        let id = id_of(node.ino());
        if id == NodeId::ROOT {
            return (id, false);
        }
        // What is held twice is let go of outside the lock.
        let spare = match self.shard(id).lock().entry(id.0) {
            Entry::Occupied(mut known) => {
                known.get_mut().count += 1;
                Some(node)
            }
            Entry::Vacant(place) => {
                place.insert(Known { node, count: 1 });
                None
            }
        };
        (id, spare.is_none())
    }

    /// The kernel takes back `count` tellings.
    pub(super) fn forget(&self, id: NodeId, count: u64) {
        let mut shard = self.shard(id).lock();
        let Entry::Occupied(mut known) = shard.entry(id.0) else { return };
        let left = known.get().count.saturating_sub(count);
        known.get_mut().count = left;
        if left == 0 {
            self.going.fetch_add(1, Ordering::SeqCst);
            let last = known.remove();
            drop(shard);
            // Letting go of a file without names frees its blocks.
            drop(last);
            self.gone.fetch_add(1, Ordering::SeqCst);
            self.going.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// How many files were let go of so far.
    pub(super) fn gone(&self) -> u64 {
        self.gone.load(Ordering::SeqCst)
    }

    /// Whether space may come by itself: since [`Nodes::gone`] said `gone`, or soon, because the kernel
    /// still has to let go of a file without names.
    pub(super) fn may_free_space(&self, gone: u64) -> bool {
        let nameless = || {
            self.shards.iter().any(|shard| {
                // Looked at, and let go of, outside the lock.
                let nodes: Vec<Node> =
                    shard.lock().values().map(|known| known.node.clone()).collect();
                nodes.iter().any(|node| node.metadata().links() == 0)
            })
        };
        nameless() || self.going.load(Ordering::SeqCst) > 0 || self.gone() != gone
    }

    /// The kernel knows nothing any more.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let all = std::mem::take(&mut *shard.lock());
            drop(all);
        }
    }
}
