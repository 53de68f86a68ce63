//! Regular files: opening, reading, writing, allocating.

use super::accessed::AccessTimes;
use super::context::Context;
use super::handles::HandleTable;
use super::stream::Streams;
use super::{errno, lends_owners};
use crate::operations::{Answer, Caller, Entry, HandleId, NodeId, Opened, WriteFlags};
use extant::cache::CacheUse;
use extant::{FallocateMode, File, InodeFlags, Node};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::Arc;

/// Largest piece of a copy between files, in bytes.
const COPY_STEP: usize = 1 << 20;
/// `O_ACCMODE`, and the value in it that does not write.
const ACCESS: u32 = 3;
const READ_ONLY: u32 = 0;
/// `O_APPEND`, `O_TRUNC`.
const APPEND: u32 = 0o2000;
const TRUNCATE: u32 = 0o1000;
/// `O_DSYNC`, which is also a bit of `O_SYNC`.
const DSYNC: u32 = 0o10000;
/// `SEEK_DATA`, `SEEK_HOLE`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// An opening of a regular file.
struct OpenedFile {
    file: File,
    node: Node,
    /// The flags of `open`.
    flags: u32,
    /// Whether the file was opened with `O_SYNC` or `O_DSYNC`. After a write the kernel sends a
    /// sync itself, unless the write bypasses its cache.
    syncs: bool,
    /// As in [`Opened`].
    past_cache: bool,
    streams: Streams,
}

/// The openings of regular files.
pub(super) struct OpenFiles {
    context: Arc<Context>,
    table: HandleTable<OpenedFile>,
}

impl OpenFiles {
    pub(super) fn new(context: Arc<Context>) -> OpenFiles {
        OpenFiles { context, table: HandleTable::new() }
    }

    /// Ends all openings.
    pub(super) fn clear(&self) {
        self.table.clear();
    }

    /// Ends the opening `handle`.
    pub(super) fn release(&self, handle: HandleId) {
        drop(self.table.take(handle));
    }

    /// Makes the change that was just made through the opening `handle` durable, if the file was
    /// opened with `O_SYNC` or `O_DSYNC`.
    pub(super) fn sync_if_opened_so(&self, handle: HandleId) -> Answer<()> {
        match self.table.get(handle) {
            Ok(opened) if opened.syncs => opened.file.sync_all().map_err(errno),
            _ => Ok(()),
        }
    }

    /// A program closes a descriptor. From here on the file's content counts as closed, although
    /// the opening ends later: no program waits for that, so the next sync may arrive before it.
    pub(super) fn note_close(&self, handle: HandleId) -> Answer<()> {
        let opened = self.table.get(handle)?;
        if opened.flags & ACCESS != READ_ONLY {
            // The engine counts the end of an opening, and any opening of the node will do.
            drop(opened.node.open().map_err(errno)?);
        }
        Ok(())
    }

    /// Opens the file. The kernel itself opens devices, pipes and sockets.
    pub(super) fn open(&self, node: &Node, flags: u32) -> Answer<Opened> {
        let mut past_cache = self.context.options().access_times == AccessTimes::Strict;
        if flags & ACCESS != READ_ONLY || flags & TRUNCATE != 0 {
            if self.context.fs().is_read_only() {
                return Err(Errno::ROFS);
            }
            let fixed = node.metadata().flags();
            if fixed.contains(InodeFlags::IMMUTABLE) {
                return Err(Errno::PERM);
            }
            if fixed.contains(InodeFlags::APPEND) {
                if flags & APPEND == 0 || flags & TRUNCATE != 0 {
                    return Err(Errno::PERM);
                }
                // From its cache the kernel writes whole pages, which would include older bytes.
                past_cache |= self.context.kernel_collects_writes();
            }
            if fixed.contains(InodeFlags::SYNC) {
                // Each write must arrive here before it returns, and the engine makes it durable.
                past_cache = self.context.kernel_collects_writes();
            }
        }
        let file = node.open().map_err(errno)?;
        let handle = self.table.put(OpenedFile {
            file,
            node: node.clone(),
            flags,
            syncs: flags & DSYNC != 0,
            past_cache,
            streams: Streams::default(),
        })?;
        Ok(Opened { handle, past_cache, flush: flags & ACCESS != READ_ONLY })
    }

    /// Opens the new file of `entry`. If that fails, the entry is withdrawn, because the kernel
    /// never receives it.
    pub(super) fn open_new(&self, entry: Entry, flags: u32) -> Answer<(Entry, Opened)> {
        let opened = self.context.node(entry.node).and_then(|node| self.open(&node, flags));
        match opened {
            Ok(opened) => Ok((entry, opened)),
            Err(error) => {
                self.context.nodes().forget(entry.node, 1);
                Err(error)
            }
        }
    }

    /// Calls `operation` with the open file, or with the node if the kernel sent no handle.
    pub(super) fn with<T>(
        &self,
        node: NodeId,
        handle: Option<HandleId>,
        operation: impl FnOnce(&File) -> extant::Result<T>,
    ) -> Answer<T> {
        match handle {
            Some(handle) => operation(&self.table.get(handle)?.file),
            None => operation(&self.context.node(node)?.open().map_err(errno)?),
        }
        .map_err(errno)
    }

    pub(super) fn read(
        &self,
        id: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        out: &mut [u8],
    ) -> Answer<usize> {
        match handle {
            Some(handle) => {
                let opened = self.table.get(handle)?;
                // What the kernel does not cache shall be in this cache.
                let how = match opened.past_cache {
                    true => CacheUse::Keep,
                    false => opened.streams.read(offset, out.len() as u64),
                };
                let read = match how {
                    CacheUse::Keep => opened.file.read_at(out, offset),
                    _ => opened.file.read_at_with(out, offset, how),
                }
                .map_err(errno)?;
                self.context.note_access(id, &opened.node, opened.flags);
                Ok(read)
            }
            None => {
                let node = self.context.node(id)?;
                let file = node.open().map_err(errno)?;
                let read = file.read_at(out, offset).map_err(errno)?;
                self.context.note_access(id, &node, 0);
                Ok(read)
            }
        }
    }

    pub(super) fn write(
        &self,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Answer<usize> {
        if flags.kill_suid_sgid {
            // A write that is refused must not change anything.
            self.with(node, handle, |file| file.check_write(offset))?;
            self.context.drop_set_ids(&self.context.node(node)?)?;
        }
        let appends = flags.open_flags & APPEND != 0 && !flags.from_cache;
        // For these writes the kernel does not accept a short count: the rest of a page in its
        // cache would be lost without an error, and the caller of a direct write would receive EIO
        // whatever the reason was.
        let whole = flags.from_cache || flags.open_flags & OFlags::DIRECT.bits() != 0;
        let (past_cache, how) = match handle {
            Some(handle) => {
                let opened = self.table.get(handle)?;
                let cache = || self.context.fs().cache_stats();
                let behind = || cache().map_or(u64::MAX, |stats| stats.drop_behind_dirty);
                let how = match opened.past_cache {
                    true => CacheUse::Keep,
                    false => opened.streams.write(behind, offset, bytes.len() as u64),
                };
                (opened.past_cache, how)
            }
            None => (false, CacheUse::Keep),
        };
        let sync = self.context.options().sync || past_cache && flags.open_flags & DSYNC != 0;
        self.with(node, handle, |file| {
            let mut written = if appends && offset == file.metadata().len() {
                match how {
                    CacheUse::Keep => file.append(bytes)?,
                    _ => file.append_with(bytes, how)?,
                }
            } else if how == CacheUse::Keep {
                file.write_at(bytes, offset)?
            } else {
                file.write_vectored_at_with(&[IoSlice::new(bytes)], offset, how)?
            };
            while whole && written < bytes.len() {
                written += file.write_at(&bytes[written..], offset + written as u64)?;
            }
            if sync {
                file.sync_all()?;
            }
            Ok(written)
        })
    }

    /// Changes the allocation of a range for `by`.
    pub(super) fn preallocate(
        &self,
        by: &Caller,
        node: NodeId,
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Answer<()> {
        let flags = FallocateFlags::from_bits_retain(mode);
        let keep = FallocateFlags::KEEP_SIZE;
        let mode = match flags {
            flags if flags.is_empty() => FallocateMode::Allocate,
            flags if flags == keep => FallocateMode::KeepSize,
            flags if flags == FallocateFlags::PUNCH_HOLE | keep => FallocateMode::PunchHole,
            FallocateFlags::ZERO_RANGE => FallocateMode::ZeroRange,
            flags if flags == FallocateFlags::ZERO_RANGE | keep => FallocateMode::ZeroRangeKeepSize,
            FallocateFlags::COLLAPSE_RANGE => FallocateMode::Collapse,
            FallocateFlags::INSERT_RANGE => FallocateMode::Insert,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let node = self.context.node(node)?;
        let file = node.open().map_err(errno)?;
        if !lends_owners(by) {
            file.check_allocate(mode, offset, len).map_err(errno)?;
            self.context.drop_set_ids_of_others(by, &node)?;
        }
        file.allocate(mode, offset, len).map_err(errno)?;
        self.context.made(())
    }

    /// The offset at which the next data or hole begins.
    pub(super) fn next_data_or_hole(&self, node: NodeId, offset: u64, whence: u32) -> Answer<u64> {
        let found = self.with(node, None, |file| match whence {
            SEEK_DATA => file.seek_data(offset),
            SEEK_HOLE => file.seek_hole(offset),
            _ => Err(extant::Error::Invalid("neither SEEK_DATA nor SEEK_HOLE")),
        })?;
        found.ok_or(Errno::NXIO)
    }

    /// Copies bytes for `by`.
    pub(super) fn copy(
        &self,
        by: &Caller,
        (from, mut at): (NodeId, u64),
        (to, mut to_at): (NodeId, u64),
        len: u64,
    ) -> Answer<u64> {
        let to = self.context.node(to)?;
        let source = self.context.node(from)?.open().map_err(errno)?;
        let target = to.open().map_err(errno)?;
        // Each reply covers a limited part: the kernel sends the rest as a new request, and can
        // deliver signals in between.
        let mut left = usize::try_from(len).unwrap_or(usize::MAX).min(16 * COPY_STEP);
        let mut buffer = vec![0; left.min(COPY_STEP)];
        let mut copied = 0;
        while left > 0 {
            let step = left.min(COPY_STEP);
            let part = &mut buffer[..step];
            let done = source.read_at(part, at).map_err(errno).and_then(|read| {
                if read == 0 {
                    return Ok(0);
                }
                if copied == 0 && !lends_owners(by) {
                    target.check_write(to_at).map_err(errno)?;
                    self.context.drop_set_ids_of_others(by, &to)?;
                }
                target.write_at(&part[..read], to_at).map_err(errno)
            });
            match done {
                Ok(0) => break,
                Ok(n) => {
                    (at, to_at, copied) = (at + n as u64, to_at + n as u64, copied + n as u64);
                    left -= n;
                }
                Err(error) if copied == 0 => return Err(error),
                Err(_) => break,
            }
        }
        self.context.made(copied)
    }

    pub(super) fn block_of(&self, node: NodeId, block: u64, block_bytes: u32) -> Answer<u64> {
        let volume_block = u64::from(self.context.fs().space().block_bytes);
        let unit = u64::from(block_bytes);
        if unit == 0 || volume_block % unit != 0 && unit % volume_block != 0 {
            return Err(Errno::INVAL);
        }
        let offset = block.checked_mul(unit).ok_or(Errno::FBIG)?;
        let extent = self.with(node, None, |file| file.extent_at(offset))?;
        let place = extent.map(|extent| extent.block.0 * volume_block + (offset - extent.offset));
        Ok(place.map_or(0, |bytes| bytes / unit))
    }
}
