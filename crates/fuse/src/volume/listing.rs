//! Directories: opening and listing.
//!
//! ```text
//!   offset   1: "."   2: ".."   3…: after a name, by its place in the directory (`DirCursor`)
//! ```
//!
//! A place means the same in every opening and after any change, as an NFS server requires. Only
//! where several names have the same place, which takes a collision of 63 bits, an opening
//! remembers which of them it has returned.
//!
//! The kernel caches the names of a directory (`OpenDirs::cache_of`) and then lists it without a
//! request. A change of names drops them (`Operations::expire_names`). An opening drops them if the
//! server has to see the listing: ".." changed, the time of access is due, a listing met damage, or
//! programs look up so many of the names that sending all entries again is less work.

use super::accessed::AccessTimes;
use super::context::Context;
use super::handles::HandleTable;
use super::nodes::id_of;
use super::{KEPT, errno};
use crate::operations::{
    Answer, Attributes, DirCache, Entry, HandleId, Listing, NodeId, OpenedDir,
};
use extant::{DirCursor, DirEntry, FileKind, InodeFlags, Node};
use extant_base::lock::{Mutex, Rank};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// The type of a directory, as in `st_mode >> 12`.
const DIRECTORY: u32 = 4;
/// The offset after "." and "..".
const FIRST: u64 = 2;

/// One opening of a directory.
struct OpenDir {
    dir: Node,
    /// The flags of `open`.
    flags: u32,
    at: Mutex<At>,
}

/// Position of the listing.
#[derive(Default)]
struct At {
    names: Option<DirCursor>,
    /// An error that the next call returns.
    next: Option<Errno>,
    /// Errors already reported. Each is reported once until the listing restarts from the
    /// beginning.
    reported: HashSet<String>,
}

impl OpenDir {
    fn new(dir: Node, flags: u32) -> OpenDir {
        OpenDir { dir, flags, at: Mutex::new(Rank::Listing, At::default()) }
    }
}

fn kind_bits(entry: &DirEntry) -> u32 {
    entry.file_type().map_or(0, |kind: FileKind| u32::from(kind.mode_bits() >> 12))
}

/// The openings of directories.
pub(super) struct OpenDirs {
    context: Arc<Context>,
    table: HandleTable<OpenDir>,
}

impl OpenDirs {
    pub(super) fn new(context: Arc<Context>) -> OpenDirs {
        OpenDirs { context, table: HandleTable::new() }
    }

    /// Ends all openings.
    pub(super) fn clear(&self) {
        self.table.clear();
    }

    pub(super) fn open(&self, id: NodeId, flags: u32) -> Answer<OpenedDir> {
        let dir = self.context.node(id)?;
        let cache = self.cache_of(id, &dir, flags);
        Ok(OpenedDir { handle: self.table.put(OpenDir::new(dir, flags))?, cache })
    }

    /// What the kernel may do with names of `dir`, which is opened with `flags`.
    fn cache_of(&self, id: NodeId, dir: &Node, flags: u32) -> DirCache {
        if self.context.options().access_times == AccessTimes::Strict {
            return DirCache::Off;
        }
        let is_due = self.context.due_access(id, dir, flags).is_some();
        let changes = dir.name_changes();
        let is_valid = self.context.nodes().with_reads(id, |reads| {
            if is_due {
                reads.listed.expire();
            }
            reads.listed.renew(changes)
        });
        match is_valid {
            Some(true) => DirCache::Keep,
            Some(false) => DirCache::Fill,
            None => DirCache::Off,
        }
    }

    /// Ends the opening `handle`.
    pub(super) fn release(&self, handle: HandleId) {
        drop(self.table.take(handle));
    }

    pub(super) fn list(
        &self,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        into: &mut dyn Listing,
    ) -> Answer<()> {
        let opened = match handle {
            Some(handle) => self.table.get(handle)?,
            None => Arc::new(OpenDir::new(self.context.node(node)?, 0)),
        };
        let mut at = opened.at.lock();
        self.list_from(&opened.dir, &mut at, offset, into).inspect_err(|_| {
            self.context.nodes().with_reads(node, |reads| reads.listed.expire());
        })?;
        self.context.note_access(node, &opened.dir, opened.flags);
        Ok(())
    }

    fn list_from(
        &self,
        dir: &Node,
        at: &mut At,
        offset: u64,
        into: &mut dyn Listing,
    ) -> Answer<()> {
        let kept = match dir.metadata().flags().contains(InodeFlags::CASEFOLD) {
            true => Duration::ZERO,
            false => KEPT,
        };
        if offset == 0 {
            at.reported.clear();
            at.next = None;
        }
        if let Some(error) = at.next.take() {
            return Err(error);
        }
        for dots in offset..FIRST {
            let name = OsStr::new(if dots == 0 { "." } else { ".." });
            if !into.fits(name.len()) {
                return Ok(());
            }
            let ino = match dots {
                0 => dir.ino(),
                _ => dir.lookup("..").map_or(dir.ino(), |parent| parent.ino()),
            };
            into.add_name(name, u64::from(ino.get()), DIRECTORY, dots + 1);
        }
        let At { names, reported, next: next_answer } = at;
        let names = match names {
            Some(names) => names,
            None => names.insert(dir.dir_cursor().map_err(errno)?),
        };
        names.seek(offset);
        let mut some = false;
        while let Some(next) = names.peek() {
            let (entry, after) = match next {
                Ok(next) => next,
                Err(error) if !reported.insert(error.to_string()) => continue,
                // The error is a result of its own. The names after the damage follow it.
                Err(error) if some => {
                    *next_answer = Some(errno(error));
                    return Ok(());
                }
                Err(error) => return Err(errno(error)),
            };
            if !into.fits(entry.name_bytes().len()) {
                return Ok(());
            }
            some = true;
            let name = OsStr::from_bytes(entry.name_bytes());
            let ino = u64::from(entry.ino().get());
            match into.wants_entries() {
                true => into.add_entry(name, &self.listed(entry, kept), after),
                false => into.add_name(name, ino, kind_bits(entry), after),
            }
            names.advance();
        }
        Ok(())
    }

    /// The entry of a listed name. Only the name if the file no longer exists or cannot be read.
    fn listed(&self, entry: &DirEntry, kept: Duration) -> Entry {
        match self.context.fs().node_of_ino(entry.ino()) {
            Ok(node) => self.context.entry(node, kept),
            Err(_) => Entry {
                node: NodeId(0),
                generation: 0,
                attributes: Attributes {
                    ino: id_of(entry.ino()).0,
                    mode: kind_bits(entry) << 12,
                    ..Attributes::default()
                },
                entry_valid: Duration::ZERO,
                attributes_valid: Duration::ZERO,
            },
        }
    }
}
