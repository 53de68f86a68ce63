//! Answers the kernel's requests from a volume of the engine.
//!
//! ```text
//!   NodeId 1 = the root, else the inode's number
//!   Context   context.rs   the filesystem, options, and files that the kernel knows ──► Node, held
//!                          until the kernel forgets it, because an open file may lose its names
//!   openings  files.rs  stream.rs  listing.rs                by handle
//!   requests  names.rs  attributes.rs  xattrs.rs  controls.rs  resize.rs
//! ```
//!
//! While it is mounted, only this process changes the volume, and every change passes through the
//! kernel. The kernel may therefore cache names and attributes for any time. There are two
//! exceptions, which it requests each time: names in casefolding directories, because one file
//! answers to many of them, and attributes of files with set-ID bits.

mod accessed;
mod attributes;
mod context;
mod controls;
mod files;
mod handles;
mod ids;
mod listing;
mod names;
mod nodes;
mod resize;
mod stream;
mod sync_series;
mod xattrs;

pub use accessed::AccessTimes;
pub use ids::{IdMap, IdRange};
pub use resize::{NewSize, RESIZE, RESIZE_BYTES, ResizeAnswer};

use crate::operations::{
    Answer, Attributes, Caller, Entry, HandleId, Handles, Listing, NewNode, NodeId, Opened,
    OpenedDir, Operations, SetAttr, Settings, Statistics, WriteFlags,
};
use context::Context;
use controls::Controls;
use extant::{Error, Filesystem};
use files::OpenFiles;
use listing::OpenDirs;
use names::Names;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;
use xattrs::Xattrs;

/// How long the kernel may cache names and attributes: no other process changes the volume.
const KEPT: Duration = Duration::from_secs(365 * 86_400);
/// Largest read and write, bytes: the limit of a kernel whose `fs.fuse.max_pages_limit` was not
/// changed.
const TRANSFER: u32 = 1 << 20;

/// How a volume is presented.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Mapping of users between the volume and this system.
    pub users: IdMap,
    /// The same for groups.
    pub groups: IdMap,
    /// Every change is durable before its reply.
    pub sync: bool,
    /// Every change of names in a directory is durable before its reply, as if each directory had
    /// the flag `DIRSYNC`.
    pub dir_sync: bool,
    /// The kernel collects writes in its cache and sends them later (write-back mode). Small writes
    /// then cost less, but errors of a full volume, holes and times reach programs late or not at
    /// all.
    pub collect_writes: bool,
    /// The kernel checks permissions, access lists included. Otherwise every process that can reach
    /// the mount may do everything.
    pub check_permissions: bool,
    /// `statfs` counts the filesystem's own metadata as blocks of the volume, as ext4 does with
    /// `minixdf`.
    pub count_overhead: bool,
    /// Which reads update the time of access.
    pub access_times: AccessTimes,
}

/// A volume that answers the kernel's requests.
pub struct Volume {
    context: Arc<Context>,
    files: OpenFiles,
    dirs: OpenDirs,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("filesystem", self.context.fs()).finish_non_exhaustive()
    }
}

impl Volume {
    /// Prepares `fs` for a mount.
    ///
    /// # Errors
    /// `Corrupt`, `Device` if the root directory cannot be read; `NotADirectory` if it is not one.
    pub fn new(fs: Filesystem, options: VolumeOptions) -> extant::Result<Volume> {
        let root = fs.root()?;
        if !root.metadata().is_dir() {
            return Err(Error::NotADirectory);
        }
        let context = Arc::new(Context::new(fs, options, root));
        Ok(Volume {
            files: OpenFiles::new(Arc::clone(&context)),
            dirs: OpenDirs::new(Arc::clone(&context)),
            context,
        })
    }

    /// The volume.
    pub fn filesystem(&self) -> &Filesystem {
        self.context.fs()
    }

    /// Releases everything of the volume: openings, and the files that the kernel knew. Called at
    /// the end of the mount.
    pub fn let_go(&self) {
        self.files.clear();
        self.dirs.clear();
        self.context.nodes().clear();
    }
}

/// The errno of an error.
fn errno(error: Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

/// Whether a file whose content this caller changes keeps its set-user-ID and set-group-ID bits.
/// For a write, the kernel says so. For allocations and copies it leaves the bits to the server,
/// and does not send the caller's capabilities.
fn lends_owners(by: &Caller) -> bool {
    by.uid == 0
}

impl Operations for Volume {
    fn settings(&self) -> Settings {
        let second = self.context.fs().superblock().inode_size <= 128;
        Settings {
            writeback_cache: self.context.kernel_collects_writes(),
            posix_acl: self.context.options().check_permissions,
            handles: Handles::All,
            time_granularity_ns: if second { 1_000_000_000 } else { 1 },
            max_transfer: TRANSFER,
            every_read: self.context.options().access_times == AccessTimes::Strict,
        }
    }

    fn lookup(&self, _: &Caller, dir: NodeId, name: &OsStr) -> Answer<Entry> {
        Names(&self.context).look_up(dir, name)
    }

    fn forget(&self, node: NodeId, count: u64) {
        self.context.nodes().forget(node, count);
    }

    fn get_attributes(
        &self,
        _: &Caller,
        node: NodeId,
        _: Option<HandleId>,
    ) -> Answer<(Attributes, Duration)> {
        let metadata = self.context.node(node)?.metadata();
        Ok((self.context.attributes(&metadata), attributes::kept(&metadata)))
    }

    fn set_attributes(
        &self,
        _: &Caller,
        node: NodeId,
        _: Option<HandleId>,
        changes: &SetAttr,
    ) -> Answer<(Attributes, Duration)> {
        self.context.retry_if_full(|| self.context.change_attributes(node, changes))
    }

    fn read_link(&self, _: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        self.context.link_target(node)
    }

    fn make_node(&self, by: &Caller, dir: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        self.context.retry_if_full(|| Names(&self.context).make_file(by, dir, name, new))
    }

    fn make_dir(&self, by: &Caller, dir: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        self.context.retry_if_full(|| Names(&self.context).make_directory(by, dir, name, new))
    }

    fn symlink(&self, by: &Caller, dir: NodeId, name: &OsStr, target: &OsStr) -> Answer<Entry> {
        self.context.retry_if_full(|| Names(&self.context).make_symlink(by, dir, name, target))
    }

    fn create(
        &self,
        by: &Caller,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
        flags: u32,
    ) -> Answer<(Entry, Opened)> {
        let entry =
            self.context.retry_if_full(|| Names(&self.context).make_file(by, dir, name, new))?;
        self.files.open_new(entry, flags)
    }

    fn make_unnamed(
        &self,
        by: &Caller,
        dir: NodeId,
        new: &NewNode,
        flags: u32,
    ) -> Answer<(Entry, Opened)> {
        let entry =
            self.context.retry_if_full(|| Names(&self.context).make_nameless(by, dir, new))?;
        self.files.open_new(entry, flags)
    }

    fn unlink(&self, _: &Caller, dir: NodeId, name: &OsStr) -> Answer<()> {
        let dir = self.context.node(dir)?;
        dir.remove_file(name).map_err(errno)?;
        self.context.made_names(())
    }

    fn remove_dir(&self, _: &Caller, dir: NodeId, name: &OsStr) -> Answer<()> {
        let dir = self.context.node(dir)?;
        dir.remove_dir(name).map_err(errno)?;
        self.context.made_names(())
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
        self.context
            .retry_if_full(|| Names(&self.context).rename((dir, name), (new_dir, new_name), flags))
    }

    fn link(&self, _: &Caller, node: NodeId, dir: NodeId, name: &OsStr) -> Answer<Entry> {
        let (node, dir) = (self.context.node(node)?, self.context.node(dir)?);
        self.context.retry_if_full(|| dir.hard_link(&node, name).map_err(errno))?;
        self.context.made_names(())?;
        Ok(self.context.entry(node, KEPT))
    }

    fn open(&self, _: &Caller, node: NodeId, flags: u32) -> Answer<Opened> {
        self.files.open(&self.context.node(node)?, flags)
    }

    fn flush(&self, _: NodeId, handle: HandleId) -> Answer<()> {
        self.files.note_close(handle)
    }

    fn release(&self, _: NodeId, handle: HandleId) {
        self.files.release(handle);
    }

    fn read(
        &self,
        _: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        out: &mut [u8],
    ) -> Answer<usize> {
        self.files.read(node, handle, offset, out)
    }

    fn write(
        &self,
        _: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Answer<usize> {
        self.context.syncs().note_write();
        self.context.retry_if_full(|| self.files.write(node, handle, offset, bytes, flags))
    }

    fn sync_file(
        &self,
        _: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        data_only: bool,
    ) -> Answer<()> {
        self.context.write_back_series(node);
        self.context.write_back_handed_over();
        self.files.with(node, handle, |file| match data_only {
            true => file.sync_data(),
            false => file.sync_all(),
        })
    }

    fn sync_dir(&self, _: &Caller, node: NodeId, data_only: bool) -> Answer<()> {
        self.context.write_back_handed_over();
        let node = self.context.node(node)?;
        match data_only {
            true => node.sync_data(),
            false => node.sync_all(),
        }
        .map_err(errno)
    }

    fn sync_all(&self) -> Answer<()> {
        self.context.store_access_times();
        self.context.fs().sync().map_err(errno)
    }

    fn allocate(
        &self,
        by: &Caller,
        (node, handle): (NodeId, HandleId),
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Answer<()> {
        self.context.retry_if_full(|| self.files.preallocate(by, node, offset, len, mode))?;
        self.files.sync_if_opened_so(handle)
    }

    fn seek(&self, _: &Caller, node: NodeId, offset: u64, whence: u32) -> Answer<u64> {
        // In write-back mode, bytes that the kernel has not sent yet would be reported as holes,
        // and programs that copy the file would lose them. On ENOSYS the kernel treats the whole
        // file as data.
        if self.context.kernel_collects_writes() {
            return Err(Errno::NOSYS);
        }
        self.files.next_data_or_hole(node, offset, whence)
    }

    fn copy_range(
        &self,
        by: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        to_handle: HandleId,
        len: u64,
    ) -> Answer<u64> {
        let copied = self.context.retry_if_full(|| self.files.copy(by, from, to, len))?;
        self.files.sync_if_opened_so(to_handle)?;
        Ok(copied)
    }

    fn block_map(&self, node: NodeId, block: u64, block_bytes: u32) -> Answer<u64> {
        self.files.block_of(node, block, block_bytes)
    }

    fn control(
        &self,
        by: &Caller,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Answer<usize> {
        self.context.retry_if_full(|| Controls(&self.context).answer(by, node, command, input, out))
    }

    fn open_dir(&self, _: &Caller, node: NodeId, flags: u32) -> Answer<OpenedDir> {
        self.dirs.open(node, flags)
    }

    fn expire_names(&self, dir: NodeId) -> bool {
        self.context.nodes().with_reads(dir, |reads| reads.listed.expire()) == Some(true)
    }

    fn release_dir(&self, _: NodeId, handle: HandleId) {
        self.dirs.release(handle);
    }

    fn read_dir(
        &self,
        _: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        into: &mut dyn Listing,
    ) -> Answer<()> {
        self.dirs.list(node, handle, offset, into)
    }

    fn get_xattr(&self, _: &Caller, node: NodeId, name: &OsStr) -> Answer<Vec<u8>> {
        Xattrs(&self.context).get(node, name)
    }

    fn list_xattrs(&self, by: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        Xattrs(&self.context).names(by, node)
    }

    fn set_xattr(
        &self,
        _: &Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Answer<()> {
        self.context
            .retry_if_full(|| Xattrs(&self.context).set(node, name, value, flags, kill_sgid))
    }

    fn remove_xattr(&self, _: &Caller, node: NodeId, name: &OsStr) -> Answer<()> {
        self.context.node(node)?.remove_xattr(name).map_err(errno)?;
        self.context.made(())
    }

    fn statistics(&self) -> Answer<Statistics> {
        let space = self.context.fs().space();
        Ok(Statistics {
            block_bytes: space.block_bytes,
            blocks: match self.context.options().count_overhead {
                true => self.context.fs().blocks_count(),
                false => space.blocks,
            },
            free: space.free,
            available: space.available,
            inodes: space.inodes.into(),
            free_inodes: space.free_inodes.into(),
            name_max: 255,
        })
    }

    fn destroy(&self) {
        self.let_go();
        // The process that mounted the volume sees the error when it closes the volume.
        let _ = self.context.fs().clone().close();
    }
}
