//! Inodes that files and nodes of the API hold; `tree/names/hold.rs` describes the holder count.

use crate::api::filesystem::Filesystem;
use crate::state::inode::Inode;
use crate::tree::names::hold::Held;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Held<'_> {
    /// Holds the same inode beyond the operation.
    pub(crate) fn keep(&self, fs: &Filesystem) -> InodeHold {
        InodeHold { fs: fs.clone(), inode: self.share() }
    }
}

/// An inode held without a time limit.
///
/// The last drop may release the inode, so the dropping thread must hold no lock and no handle.
pub(crate) struct InodeHold {
    fs: Filesystem,
    inode: Arc<Inode>,
}

impl InodeHold {
    /// The volume of this inode.
    pub(crate) fn fs(&self) -> &Filesystem {
        &self.fs
    }

    /// Ends one opening of the regular file.
    pub(crate) fn end_opening(&self) {
        let inode = &self.inode;
        // A program that replaced a file's content often does not sync it. Write-back at close lets
        // it find the new content after a crash.
        if inode.write_back_at_close.load(Ordering::Relaxed)
            && inode.write_back_at_close.swap(false, Ordering::Relaxed)
            && !inode.unlinked.load(Ordering::Relaxed)
            && !std::thread::panicking()
            && let Err(error) = self.fs.volume().io(inode).write_back_file()
            && let Some(file_cache) = inode.file_cache.get()
        {
            // The data stays dirty; the next sync of the file returns the error.
            file_cache.pages.note_error(&error);
        }
        match inode.file_cache.get().is_some_and(|file_cache| file_cache.pages.is_dirty()) {
            true => drop(inode.closed_dirty.fetch_add(1, Ordering::AcqRel)),
            // The bytes are on the device, but the map and size may not be committed.
            false => self.fs.volume().io(inode).note_closed(),
        }
        // A writer that still extends the file through another opening loses only its
        // preallocation.
        self.fs.volume().space().discard_preallocation(inode.ino);
    }
}

impl Deref for InodeHold {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl Clone for InodeHold {
    fn clone(&self) -> InodeHold {
        self.inode.hold();
        InodeHold { fs: self.fs.clone(), inode: Arc::clone(&self.inode) }
    }
}

impl Drop for InodeHold {
    fn drop(&mut self) {
        // A thread that panics may hold any lock; the orphan's record stays.
        if self.inode.release_hold() && !std::thread::panicking() {
            self.fs.volume().orphan_records().orphan_finish(&self.inode);
        }
    }
}
