//! Openings, by the number that the kernel uses for them.

use crate::operations::{Answer, HandleId};
use extant_base::lock::{Mutex, Rank};
use hashbrown::HashMap;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SHARDS: usize = 16;

/// A table of openings. Numbers are never reused.
pub(super) struct HandleTable<T> {
    next: AtomicU64,
    shards: [Mutex<HashMap<u64, Arc<T>>>; SHARDS],
}

impl<T> HandleTable<T> {
    pub(super) fn new() -> HandleTable<T> {
        let shards = std::array::from_fn(|_| Mutex::new(Rank::Leaf, HashMap::new()));
        HandleTable { next: AtomicU64::new(1), shards }
    }

    fn shard(&self, id: HandleId) -> &Mutex<HashMap<u64, Arc<T>>> {
        &self.shards[id.0 as usize % SHARDS]
    }

    /// Adds `opened` and returns its number. `ENOMEM` if the table cannot grow.
    pub(super) fn put(&self, opened: T) -> Answer<HandleId> {
        let id = HandleId(self.next.fetch_add(1, Ordering::Relaxed));
        let mut shard = self.shard(id).lock();
        shard.try_reserve(1).map_err(|_| Errno::NOMEM)?;
        shard.insert(id.0, Arc::new(opened));
        Ok(id)
    }

    /// The opening `id`. `EBADF` if it does not exist.
    pub(super) fn get(&self, id: HandleId) -> Answer<Arc<T>> {
        self.shard(id).lock().get(&id.0).cloned().ok_or(Errno::BADF)
    }

    /// Removes the opening.
    pub(super) fn take(&self, id: HandleId) -> Option<Arc<T>> {
        self.shard(id).lock().remove(&id.0)
    }

    /// Removes all openings.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let all = std::mem::take(&mut *shard.lock());
            drop(all);
        }
    }
}
