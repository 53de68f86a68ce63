//! The inodes in use, found by their numbers.

use super::{Body, Inode};
use extant_base::Ino;
use extant_base::lock::{Mutex, Rank};
use hashbrown::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One shard, on cache lines of its own, because other threads lock its neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    inodes: HashMap<u32, Arc<Inode>>,
    /// How often inodes have left this shard.
    sweeps: u64,
    /// How many inodes the last sweep left, because they are held or dirty.
    kept: usize,
}

/// The inodes in use.
pub(crate) struct InodeTable {
    shards: Box<[Mutex<Shard>]>,
    /// How many inodes a shard may get after a sweep before the next one.
    limit: usize,
}

/// 2^6: the upper bits of a hash select the shard.
const SHARDS: usize = 64;

impl InodeTable {
    /// A table that keeps about `limit` inodes without a holder; more if half as many as are held
    /// are more.
    pub(crate) fn new(limit: usize) -> InodeTable {
        let shards = (0..SHARDS).map(|_| Mutex::new(Rank::Leaf, Shard::default())).collect();
        InodeTable { shards, limit: (limit / SHARDS).max(4) }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        // If the number itself chose the shard, the first inodes of all groups would be in one
        // shard.
        &self.shards[(ino.get().wrapping_mul(0x9E37_79B9) >> 26) as usize]
    }

    /// The inode, if it is in use.
    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        let shard = self.shard(ino).lock();
        let inode = shard.inodes.get(&ino.get())?;
        if !inode.recent.load(Ordering::Relaxed) {
            inode.recent.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(inode))
    }

    pub(crate) fn sweeps(&self, ino: Ino) -> u64 {
        self.shard(ino).lock().sweeps
    }

    /// Inserts an inode that was just read from disk. If another thread inserted it first, returns
    /// that one. `None`: inodes have left the shard since `sweeps` was taken, so the inode on disk
    /// may be newer than what was read.
    pub(crate) fn insert_read(&self, body: Body, sweeps: u64) -> Option<Arc<Inode>> {
        let ino = body.ino();
        let mut shard = self.shard(ino).lock();
        if let Some(inode) = shard.inodes.get(&ino.get()) {
            return Some(Arc::clone(inode));
        }
        if shard.sweeps != sweeps {
            return None;
        }
        let inode = Arc::new(Inode::as_read(body));
        shard.inodes.insert(ino.get(), Arc::clone(&inode));
        self.sweep(&mut shard);
        Some(inode)
    }

    /// Inserts an inode that was just created. It replaces any older inode of its number.
    pub(crate) fn insert_new(&self, body: Body) -> Arc<Inode> {
        let inode = Arc::new(Inode::new(body));
        self.put(inode.ino, &inode);
        inode
    }

    /// Inserts an inode that is being created. It replaces any older inode of its number. The
    /// creating thread holds its lock: a thread that finds it by an old number waits.
    pub(crate) fn put(&self, ino: Ino, inode: &Arc<Inode>) {
        let mut shard = self.shard(ino).lock();
        shard.inodes.insert(ino.get(), Arc::clone(inode));
        self.sweep(&mut shard);
    }

    /// Removes an inode that was freed: the next lookup reads it from disk.
    pub(crate) fn forget(&self, ino: Ino) {
        let mut shard = self.shard(ino).lock();
        shard.inodes.remove(&ino.get());
        shard.sweeps += 1;
    }

    /// Drops inodes without a holder: first those that were not looked up lately, then all.
    ///
    /// A sweep examines every inode of the shard, also those that it has to keep. So the number of
    /// insertions between two sweeps grows with what the last one kept; otherwise creating files
    /// that stay in use would take quadratic time.
    fn sweep(&self, shard: &mut Shard) {
        let spare = self.limit.max(shard.kept / 2);
        if shard.inodes.len() <= shard.kept.saturating_add(spare) {
            return;
        }
        shard.sweeps += 1;
        let held = |inode: &Arc<Inode>| Arc::strong_count(inode) > 1 || inode.is_dirty();
        shard.inodes.retain(|_, inode| held(inode) || inode.recent.swap(false, Ordering::Relaxed));
        if shard.inodes.len() > self.limit {
            shard.inodes.retain(|_, inode| held(inode));
        }
        shard.kept = shard.inodes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::inode::Inode as DiskInode;

    fn body(ino: Ino) -> Body {
        Body::read_from(ino, DiskInode::default(), Box::default())
    }

    #[test]
    fn the_table_stays_bounded_and_keeps_what_is_held() {
        let table = InodeTable::new(SHARDS * 8);
        let held = table.insert_new(body(Ino::ROOT));
        for n in 1..5000 {
            let ino = Ino::new(Ino::ROOT.get() + n * SHARDS as u32).unwrap();
            table.insert_new(body(ino));
        }
        assert!(table.shards.iter().all(|shard| shard.lock().inodes.len() <= 10));
        assert!(Arc::ptr_eq(&held, &table.find(Ino::ROOT).unwrap()));
    }

    #[test]
    fn inodes_that_stay_in_use_cost_few_sweeps() {
        let table = InodeTable::new(SHARDS * 8);
        let inodes = || (2..100_000).map(|ino| table.insert_new(body(Ino::new(ino).unwrap())));
        let held: Vec<_> = inodes().collect();
        let sweeps = || table.shards.iter().map(|shard| shard.lock().sweeps).max();
        // Each sweep comes after half as many insertions again: log₁.₅(100,000 ÷ 64 ÷ 8) are 13.
        assert!(sweeps() <= Some(20), "{:?}", sweeps());
        drop(held);
        inodes().for_each(drop);
        assert!(table.shards.iter().all(|shard| shard.lock().inodes.len() < 2500));
    }

    #[test]
    fn a_body_read_before_a_sweep_is_not_used() {
        let table = InodeTable::new(64);
        let ino = Ino::new(12).unwrap();
        let sweeps = table.sweeps(ino);
        table.forget(ino);
        assert!(table.insert_read(body(ino), sweeps).is_none());
        let sweeps = table.sweeps(ino);
        let first = table.insert_read(body(ino), sweeps).unwrap();
        let second = table.insert_read(body(ino), sweeps).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }
}
