//! What every part of a mounted volume works with: the filesystem, how it is presented, and the
//! files that the kernel knows.
//!
//! ```text
//!   Volume ─┬ OpenFiles, OpenDirs      openings          ─┐
//!           ├ Names, Xattrs, Controls  one request each  ─┼─► Context ─┬ Filesystem
//!           └ attributes, times of access                ─┘            ├ VolumeOptions
//!                                                                      └ Nodes
//! ```

use super::nodes::Nodes;
use super::sync_series::{MOST_BYTES, SyncSeries};
use super::{VolumeOptions, errno};
use crate::operations::{Answer, NodeId};
use extant::{Filesystem, Node};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// How long to wait for space that files without names still hold.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(100);

/// What the parts of a [`Volume`](super::Volume) share.
pub(super) struct Context {
    fs: Filesystem,
    options: VolumeOptions,
    nodes: Nodes,
    syncs: SyncSeries,
}

impl Context {
    /// The context of `fs`, whose root directory is `root`.
    pub(super) fn new(fs: Filesystem, options: VolumeOptions, root: Node) -> Context {
        Context { fs, options, nodes: Nodes::new(root), syncs: SyncSeries::default() }
    }

    pub(super) fn fs(&self) -> &Filesystem {
        &self.fs
    }

    pub(super) fn options(&self) -> &VolumeOptions {
        &self.options
    }

    /// The files that the kernel knows.
    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Whether writes go to the kernel's cache first (write-back mode). The kernel then also
    /// maintains sizes and times of cached files.
    pub(super) fn kernel_collects_writes(&self) -> bool {
        self.options.collect_writes && !self.options.sync && !self.fs.is_read_only()
    }

    pub(super) fn node(&self, id: NodeId) -> Answer<Node> {
        self.nodes.get(id).ok_or(Errno::STALE)
    }

    /// Retries `operation` while it fails for lack of space and files without names still hold
    /// some. The kernel sends FORGET some time after a removal, so without this a program that
    /// removes a file and writes another one would receive an error for a full volume.
    pub(super) fn retry_if_full<T>(&self, mut operation: impl FnMut() -> Answer<T>) -> Answer<T> {
        let end = Instant::now() + RELEASE_TIMEOUT;
        loop {
            let gone = self.nodes.gone();
            match operation() {
                Err(Errno::NOSPC) if Instant::now() < end && self.nodes.may_free_space(gone) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                done => return done,
            }
        }
    }

    /// Called after a change: makes it durable now if the mount is synchronous.
    pub(super) fn made<T>(&self, done: T) -> Answer<T> {
        if self.options.sync {
            self.fs.sync().map_err(errno)?;
        }
        Ok(done)
    }

    /// As [`made`](Self::made), for a change of names.
    pub(super) fn made_names<T>(&self, done: T) -> Answer<T> {
        if self.options.dir_sync && !self.options.sync {
            self.fs.sync_names().map_err(errno)?;
        }
        self.made(done)
    }

    /// The series of syncs that programs make.
    pub(super) fn syncs(&self) -> &SyncSeries {
        &self.syncs
    }

    /// Called before a sync of the file `node`: if syncs of other files probably follow, writes
    /// those files back as well, so that one commit serves all of them.
    pub(super) fn write_back_series(&self, node: NodeId) {
        if self.syncs.note_sync(node) && !self.fs.is_read_only() {
            self.fs.write_back_up_to(MOST_BYTES);
        }
    }

    /// Called before a sync of one file: writes back the bytes that programs wrote to files that
    /// they have closed. The sync then makes them durable, too.
    ///
    /// The kernel has already sent those bytes, so its `sync_file_range` finds nothing to do and
    /// does not reach the server. A program that calls it for many files and then syncs one file
    /// (git with `core.fsyncMethod=batch`) expects all of them to be durable.
    pub(super) fn write_back_handed_over(&self) {
        if !self.fs.is_read_only() {
            self.fs.write_back_closed_files();
        }
    }
}
