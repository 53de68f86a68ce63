//! The end of a replay: makes links, counts and bitmaps of all touched inodes agree.
//!
//! ```text
//!   inodes    names = 0 ──► freed          else links, sectors
//!   orphans   inodes that were freed or got a name leave the records
//!   bitmap    1 marked only to reserve them: cleared    2 freed during the replay: cleared
//!             3 in use by an inode that was touched: set
//! ```
//!
//! The order of the three bitmap steps matters for a block that moved from one file to another: it
//! ends up marked.

use super::{Replay, Touched};
use crate::inodes::lookup::Lookup;
use crate::inodes::map::used::Used;
use extant_base::{Ino, Result};
use extant_ondisk::inode::{FileKind, InodeFlags, LINK_MAX};

impl Replay<'_> {
    /// See the module documentation.
    pub(super) fn finish(mut self) -> Result<()> {
        let touched: Vec<(Ino, Touched)> = self.touched.iter().map(|(k, v)| (*k, *v)).collect();
        let mut in_use = Vec::new();
        for (ino, known) in touched {
            if self.find(ino)?.is_none() {
                self.orphans.forget(ino);
            } else if known.names > 0 || ino == Ino::ROOT {
                self.set_link_count(ino, known)?;
                in_use.push(ino);
            } else if self.orphans.holds(ino) && !self.was_named(ino)? {
                // It had no name before either: orphan processing will handle it.
                in_use.push(ino);
            } else {
                self.release(ino)?;
            }
        }
        self.orphans.store(self.volume)?;
        self.update_bitmap(&in_use)
    }

    /// Whether the inode has links on disk.
    fn was_named(&self, ino: Ino) -> Result<bool> {
        Ok(self.volume.inodes().get_as(ino, Lookup::Internal)?.read().links > 0)
    }

    fn set_link_count(&mut self, ino: Ino, known: Touched) -> Result<()> {
        let volume = self.volume;
        let inode = volume.inodes().get_as(ino, Lookup::Internal)?;
        let mut body = inode.write();
        let had_links = body.links > 0;
        let links = match (body.file_kind(), known.subdirectories) {
            (FileKind::Directory, Some(below)) => {
                let indexed = body.flags.contains(InodeFlags::INDEX);
                volume.inodes().directory_links(indexed, u32::try_from(below).unwrap_or(0))?
            }
            (FileKind::Directory, None) => 1,
            _ => u16::try_from(known.names).unwrap_or(u16::MAX).min(LINK_MAX),
        };
        body.disk.links = links;
        if !had_links {
            self.orphans.forget(ino);
        }
        body.disk.dtime = 0;
        body.disk.sectors = volume.file(&body).count_sectors()?.saturating_add(known.charged);
        let handle = self.handle()?;
        body.store(volume, &handle)?;
        handle.stop()
    }

    fn release(&mut self, ino: Ino) -> Result<()> {
        let volume = self.volume;
        let inode = volume.inodes().get_as(ino, Lookup::Internal)?;
        let mut body = inode.write();
        let handle = self.handle()?;
        volume.file_mut(&mut body).release_inode(&handle)?;
        handle.stop()?;
        self.orphans.forget(ino);
        Ok(())
    }

    fn update_bitmap(&mut self, in_use: &[Ino]) -> Result<()> {
        let volume = self.volume;
        let freed = volume.space().take_freed_later();
        let handle = self.handle()?;
        for (start, len) in self.kept.iter().chain(&freed) {
            volume.space().mark_blocks(&handle, *start, *len, false)?;
        }
        handle.stop()?;
        for ino in in_use {
            let inode = volume.inodes().get_as(*ino, Lookup::Internal)?;
            let body = inode.read();
            let handle = self.handle()?;
            for block in body.file_acl.into_iter().chain(body.translator) {
                volume.space().mark_blocks(&handle, block, 1, true)?;
            }
            if volume.file(&body).has_map() {
                volume.file(&body).each_block(&mut |used| {
                    let (start, len) = match used {
                        Used::Data { start, len, .. } => (start, u64::from(len)),
                        Used::Node(block) => (block, 1),
                    };
                    volume.space().mark_blocks(&handle, start, len, true)
                })?;
            }
            handle.stop()?;
        }
        Ok(())
    }
}
