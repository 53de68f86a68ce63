//! Inodes in use: one object per inode number, however many threads hold it.
//!
//! ```text
//!   InodeTable   64 shards: number → Arc<Inode>       without a holder: may leave the table
//!                                     │
//!                  Inode ─ body (Rank::Inode) ─ Body ┬ disk   the fields, decoded
//!                                                    └ raw    the whole slot, for attributes
//!
//!   table block ──check──► Body ──change under a handle──► store ──► table block
//! ```
//!
//! `inodes/` reads and checks an inode, and writes each change of it into its table block at once,
//! so an inode that leaves the table loses nothing.

mod body;
pub(crate) mod moves;
pub(crate) mod orphans;
pub(crate) mod synced;
mod table;
pub(crate) mod transfers;

use crate::state::file_cache::FileCacheState;
use crate::state::inode::transfers::DirectTransfers;
use extant_base::Ino;
use extant_base::lock::{Mutex, MutexGuard, Rank, ReadGuard, RwLock, WriteGuard};
use extant_ondisk::inode::InodeFlags;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) use body::{Body, Counted};
pub(crate) use table::InodeTable;

/// One inode in use.
pub(crate) struct Inode {
    /// Its number.
    pub(crate) ino: Ino,
    /// Its content in memory. The lock guards the inode's fields, its map and its names.
    pub(crate) body: RwLock<Body>,
    /// It was looked up since the table was last swept.
    recent: AtomicBool,
    /// It holds the value of an attribute. This never changes.
    is_value: bool,
    /// It had no links when it was read: an orphan, which never gets a name again.
    was_unlinked: bool,
    /// The number of users that work with it by number or name now, see
    /// [`Held`](crate::tree::names::hold::Held).
    pub(crate) users: AtomicU32,
    /// Its last name was removed: the last user releases it.
    pub(crate) unlinked: AtomicBool,
    /// It was made without a name and may get one.
    pub(crate) nameable: AtomicBool,
    /// Its folios, once there are any. Set under the inode's lock, like `Body::file_cache`.
    pub(crate) file_cache: OnceLock<Arc<FileCacheState>>,
    /// Until this time, in nanoseconds since 1970, fast overwrites are enabled: writes over its
    /// folios need not change the inode. 0: disabled. Set under the inode's lock.
    pub(crate) fast_overwrite_until: AtomicU64,
    /// Its flags demand that changes are durable when a call returns: `SYNC`, for a directory also
    /// `DIRSYNC`. Set under the inode's lock.
    pub(crate) syncs: AtomicBool,
    /// It was truncated to size 0: data written afterwards goes to the device when the file is
    /// closed.
    pub(crate) write_back_at_close: AtomicBool,
    /// How often an opening was closed while the file had dirty bytes.
    pub(crate) closed_dirty: AtomicU64,
    /// The value of `closed_dirty` before the last write-back of all its dirty bytes.
    pub(crate) closed_written: AtomicU64,
    /// Held by a call that changes size or map, or that writes more than folios.
    pub(crate) writing: Mutex<()>,
    /// Held during write-back of dirty data. While it is held, the data keeps its blocks.
    pub(crate) writing_back: Mutex<()>,
    /// The number of threads that wait for `writing_back`. The holder then ends its work soon.
    pub(crate) write_back_wanted: AtomicU32,
    /// Direct transfers in flight. Their blocks stay in place.
    pub(crate) transfers: DirectTransfers,
}

impl Inode {
    pub(crate) fn new(body: Body) -> Inode {
        Inode {
            ino: body.ino(),
            recent: AtomicBool::new(true),
            is_value: body.disk.flags.contains(InodeFlags::EA_INODE),
            was_unlinked: false,
            users: AtomicU32::new(0),
            unlinked: AtomicBool::new(false),
            nameable: AtomicBool::new(false),
            file_cache: body.file_cache.clone().map_or_else(OnceLock::new, OnceLock::from),
            fast_overwrite_until: AtomicU64::new(0),
            syncs: AtomicBool::new(body.requires_sync()),
            write_back_at_close: AtomicBool::new(false),
            closed_dirty: AtomicU64::new(0),
            closed_written: AtomicU64::new(0),
            writing: Mutex::new(Rank::Write, ()),
            writing_back: Mutex::new(Rank::WriteBack, ()),
            write_back_wanted: AtomicU32::new(0),
            transfers: DirectTransfers::new(),
            body: RwLock::new(Rank::Inode, body),
        }
    }

    /// Waits until no dirty data of the file is in flight to the device. No write-back starts while
    /// the guard is held.
    pub(crate) fn hold_write_back(&self) -> MutexGuard<'_, ()> {
        self.write_back_wanted.fetch_add(1, Ordering::Relaxed);
        let guard = self.writing_back.lock();
        self.write_back_wanted.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    fn as_read(body: Body) -> Inode {
        let was_unlinked = body.disk.links == 0;
        Inode { was_unlinked, ..Inode::new(body) }
    }

    /// Shared access to the fields. Locks: takes `Inode`.
    #[track_caller]
    pub(crate) fn read(&self) -> ReadGuard<'_, Body> {
        self.body.read()
    }

    /// Exclusive access to the fields. Locks: takes `Inode`.
    #[track_caller]
    pub(crate) fn write(&self) -> WriteGuard<'_, Body> {
        let mut body = self.body.write();
        self.disable_fast_overwrite();
        self.note_sync(&body);
        if body.file_cache.is_none() {
            body.file_cache = self.file_cache.get().cloned();
        }
        body
    }

    /// Whether an opening was closed with bytes that may still be dirty.
    pub(crate) fn was_closed_dirty(&self) -> bool {
        self.closed_dirty.load(Ordering::Acquire) != self.closed_written.load(Ordering::Acquire)
    }

    /// Updates `syncs` from the flags of `body`.
    pub(crate) fn note_sync(&self, body: &Body) {
        let syncs = body.requires_sync();
        if self.syncs.load(Ordering::Relaxed) != syncs {
            self.syncs.store(syncs, Ordering::Relaxed);
        }
    }

    /// Disables fast overwrites: the next write over its folios takes the inode's lock. The write's
    /// permission, or the time that it sets, may have changed.
    pub(crate) fn disable_fast_overwrite(&self) {
        if self.fast_overwrite_until.load(Ordering::Relaxed) != 0 {
            self.fast_overwrite_until.store(0, Ordering::Release);
        }
    }

    /// Whether it holds the value of an attribute.
    pub(crate) fn is_value(&self) -> bool {
        self.is_value
    }

    /// Whether it had no links when it was read.
    pub(crate) fn was_unlinked(&self) -> bool {
        self.was_unlinked
    }

    /// Whether it has data that is not yet on the device.
    pub(crate) fn is_dirty(&self) -> bool {
        self.file_cache.get().is_some_and(|file_cache| file_cache.pages.is_dirty())
    }
}
