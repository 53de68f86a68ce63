//! INODE records: an inode as it was when it was synced.
//!
//! ```text
//!   same number, generation and kind      fields taken over; map, names, attributes stay
//!   anything else                         the old inode is freed; a fresh inode, empty map
//! ```
//!
//! The record's block pointers and its block count are not used: ADD_RANGE records and the bitmap
//! are. For a file with inline data the record holds the whole inode, content and attributes
//! included.

use super::{CREDITS, Replay, Touched};
use crate::inodes::map::LOGICAL_END;
use crate::state::inode::{Body, Inode};
use extant_base::{Ino, Result, Site, What};
use extant_ondisk::inode::{FileKind, I_BLOCK_SIZE, Inode as DiskInode, InodeFlags};
use std::sync::Arc;

/// Flags that describe the contents of `i_block`. They belong to the map, not to the record.
const MAP_FLAGS: InodeFlags =
    InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA).union(InodeFlags::INDEX);

impl Replay<'_> {
    /// Applies one INODE record.
    pub(super) fn inode(&mut self, ino: Ino, raw: &[u8]) -> Result<()> {
        let at = Site::of_ino(ino);
        let old = self.find(ino)?;
        let record = self.parse(ino, raw)?;
        let wrong = record.flags.intersects(InodeFlags::EA_INODE);
        if wrong || self.volume.geometry().inode_place(ino).is_none() {
            return Err(at.corrupt(What::FastCommitInode));
        }
        record.check_fields(ino, self.volume.inode_format())?;
        match old {
            Some(old) if is_same_inode(&old, &record) => self.update(&old, record, raw),
            old => {
                if let Some(old) = old {
                    self.end_previous_inode(&old)?;
                }
                self.make(ino, record, raw)
            }
        }
    }

    fn parse(&self, ino: Ino, raw: &[u8]) -> Result<DiskInode> {
        let format = self.volume.inode_format();
        let mut slot = vec![0; format.inode_size()];
        let len = raw.len().min(slot.len());
        slot[..len].copy_from_slice(&raw[..len]);
        let record = DiskInode::parse_unverified(&slot, ino, format)?;
        let whole = record.has_inline_data();
        let needs = if whole { slot.len() } else { 128 + usize::from(record.extra_isize) };
        if raw.len() < needs && slot.len() > 128 {
            return Err(Site::of_ino(ino).corrupt(What::FastCommitInode));
        }
        Ok(record)
    }

    /// Frees what an inode held before its number was allocated again.
    fn end_previous_inode(&mut self, old: &Arc<Inode>) -> Result<()> {
        let volume = self.volume;
        let names = self.touch(old).names;
        let mut body = old.write();
        if body.file_kind() == FileKind::Directory && !self.is_free_directory(&body)? {
            return Err(Site::of_ino(old.ino).corrupt(What::FastCommitInode));
        }
        let handle = volume.journal().start(CREDITS)?;
        volume.file_mut(&mut body).release_inode(&handle)?;
        handle.stop()?;
        self.orphans.forget(old.ino);
        // Names that still lead to this number belong to its next inode.
        self.touched.insert(old.ino, Touched::fresh(names, false));
        Ok(())
    }

    /// Whether a directory can be removed: it is empty, or was never initialised.
    pub(super) fn is_free_directory(&self, body: &Body) -> Result<bool> {
        if self.touched.get(&body.ino()).is_some_and(|touched| touched.is_raw) {
            return Ok(true);
        }
        self.volume.file(body).dir()?.is_empty()
    }

    /// Copies the record's fields to an inode of the same generation and kind.
    fn update(&mut self, inode: &Arc<Inode>, record: DiskInode, raw: &[u8]) -> Result<()> {
        let volume = self.volume;
        self.touch(inode);
        let mut body = inode.write();
        let handle = volume.journal().start(CREDITS)?;
        let mut disk = DiskInode {
            // An inode without extra fields may get them now; then its tail is empty.
            extra_isize: match body.extra_isize {
                0 => record.extra_isize,
                kept => kept,
            },
            flags: record.flags.difference(MAP_FLAGS) | body.flags.intersection(MAP_FLAGS),
            size: record.size,
            links: body.links,
            dtime: body.dtime,
            sectors: body.sectors,
            i_block: body.i_block,
            file_acl: body.file_acl,
            translator: body.translator,
            ..record.clone()
        };
        if body.extra_isize == 0 && disk.extra_isize != 0 {
            body.raw[128..].fill(0);
        }
        match body.file_kind() {
            FileKind::Directory => disk.size = body.size,
            FileKind::Regular if record.has_inline_data() => {
                if volume.file(&body).has_map() {
                    volume.file_mut(&mut body).unmap(&handle, 0..LOGICAL_END)?;
                }
                let len = body.raw.len();
                body.raw.copy_from_slice(&raw[..len]);
                disk.flags = record.flags;
                disk.i_block = record.i_block;
                disk.extra_isize = record.extra_isize;
            }
            FileKind::Regular if body.has_inline_data() => {
                volume.inline_mut(&mut body).end()?;
                disk.flags = record.flags.difference(MAP_FLAGS)
                    | body.flags.intersection(InodeFlags::EXTENTS);
                disk.i_block = body.i_block;
            }
            FileKind::Regular => {}
            // Their meaning is in `i_block`, or in blocks that no record describes.
            _ => disk.size = body.size,
        }
        body.disk = disk;
        body.store(volume, &handle)?;
        handle.stop()
    }

    /// Creates an inode that only the log contains.
    fn make(&mut self, ino: Ino, record: DiskInode, raw: &[u8]) -> Result<()> {
        let volume = self.volume;
        let at = Site::of_ino(ino);
        let kind = record.kind().ok_or(at.corrupt(What::InodeMode))?;
        if record.flags.contains(InodeFlags::ENCRYPT) {
            // The key's identity is in an attribute, which no record contains.
            return Err(at.corrupt(What::FastCommitInode));
        }
        let mut disk = DiskInode {
            links: 0,
            dtime: 0,
            sectors: 0,
            file_acl: None,
            translator: None,
            ..record.clone()
        };
        let mut body = Body::fresh(volume.context(), ino, DiskInode::default());
        let has_map = match kind {
            FileKind::Directory => {
                disk.size = 0;
                disk.flags.remove(MAP_FLAGS);
                true
            }
            FileKind::Regular if record.has_inline_data() => {
                let len = body.raw.len();
                body.raw.copy_from_slice(&raw[..len]);
                false
            }
            FileKind::Regular => true,
            FileKind::Symlink => record.has_extents(),
            _ => false,
        };
        if has_map {
            volume.inodes().init_map(&mut disk);
            if !record.has_extents() && kind == FileKind::Regular {
                disk.flags.remove(InodeFlags::EXTENTS);
                disk.i_block = [0; I_BLOCK_SIZE];
            }
        }
        body.disk = disk;
        let handle = self.handle()?;
        volume.space().mark_inode(&handle, ino, kind == FileKind::Directory)?;
        body.store(volume, &handle)?;
        handle.stop()?;
        volume.inode_table().insert_new(body);
        let names = self.touched.get(&ino).map_or(0, |touched| touched.names);
        let is_raw = kind == FileKind::Directory;
        self.touched.insert(ino, Touched::fresh(names, is_raw));
        Ok(())
    }
}

/// Whether a record belongs to the inode that is there: same generation and kind.
fn is_same_inode(inode: &Inode, record: &DiskInode) -> bool {
    let body = inode.read();
    body.generation == record.generation && body.kind() == record.kind()
}
