//! Changes of names, and listings.

use crate::Null;
use crate::names::Names;
use crate::node::{Body, Node, now};
use extant_fuse::{Answer, Entry, Listing, NodeId};
use parking_lot::RwLockWriteGuard;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;

impl Null {
    /// The node that `name` in `names` leads to.
    fn named(&self, names: &Names, name: &OsStr) -> Answer<Arc<Node>> {
        self.table.get(NodeId(names.get(name.as_bytes()).ok_or(Errno::NOENT)?))
    }

    pub(super) fn unlink_name(&self, dir: NodeId, name: &OsStr) -> Answer<()> {
        let dir = self.table.get(dir)?;
        let mut names = dir.names()?.write();
        let node = self.named(&names, name)?;
        if matches!(node.body, Body::Dir(_)) {
            return Err(Errno::ISDIR);
        }
        names.remove(name.as_bytes());
        dir.meta.lock().changed();
        drop(names);
        self.unlinked(&node, 1);
        Ok(())
    }

    pub(super) fn remove_dir_name(&self, dir: NodeId, name: &OsStr) -> Answer<()> {
        let dir = self.table.get(dir)?;
        let mut names = dir.names()?.write();
        let node = self.named(&names, name)?;
        // The kernel holds locks on both directories: no file is created in the one that is
        // removed.
        if !node.names()?.read().is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        names.remove(name.as_bytes());
        let mut meta = dir.meta.lock();
        meta.changed();
        meta.nlink -= 1;
        drop(meta);
        drop(names);
        self.unlinked(&node, 2);
        Ok(())
    }

    pub(super) fn link_name(&self, node: NodeId, dir: NodeId, name: &OsStr) -> Answer<Entry> {
        let (node, dir) = (self.table.get(node)?, self.table.get(dir)?);
        if matches!(node.body, Body::Dir(_)) {
            return Err(Errno::PERM);
        }
        let mut names = dir.names()?.write();
        if names.get(name.as_bytes()).is_some() {
            return Err(Errno::EXIST);
        }
        names.insert(name.as_bytes(), node.number);
        let mut meta = node.meta.lock();
        meta.nlink += 1;
        meta.ctime = now();
        drop(meta);
        dir.meta.lock().changed();
        Ok(self.entry_of(&node))
    }

    /// Renames. The kernel ensures that no directory moves below itself.
    pub(super) fn rename_name(
        &self,
        from: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        flags: u32,
    ) -> Answer<()> {
        if flags & !(NOREPLACE | EXCHANGE) != 0 || flags == NOREPLACE | EXCHANGE {
            return Err(Errno::INVAL);
        }
        let (dir, new_dir) = (self.table.get(from.0)?, self.table.get(to.0)?);
        let (first, second) = match dir.number <= new_dir.number {
            true => (&dir, &new_dir),
            false => (&new_dir, &dir),
        };
        let mut first = first.names()?.write();
        let second =
            if dir.number == new_dir.number { None } else { Some(second.names()?.write()) };
        let mut pair = match second {
            None => Pair::One(first),
            Some(mut second) => {
                if dir.number > new_dir.number {
                    std::mem::swap(&mut first, &mut second);
                }
                Pair::Two(first, second)
            }
        };
        let node = self.named(pair.old(), from.1)?;
        let target = self.named(pair.target(), to.1).ok();
        let is_dir = |node: &Node| matches!(node.body, Body::Dir(_));
        let moved_dirs = |node: &Node, by: i64, dir: &Node| {
            if is_dir(node) {
                let mut meta = dir.meta.lock();
                meta.nlink = meta.nlink.saturating_add_signed(by as i32);
            }
        };
        if let Some(target) = &target {
            if flags & NOREPLACE != 0 {
                return Err(Errno::EXIST);
            }
            if target.number == node.number {
                return Ok(());
            }
        }
        match target {
            Some(target) if flags & EXCHANGE != 0 => {
                pair.old().set(from.1.as_bytes(), target.number);
                pair.target().set(to.1.as_bytes(), node.number);
                moved_dirs(&target, -1, &new_dir);
                moved_dirs(&target, 1, &dir);
                self.has_parent(&target, &dir, &new_dir);
                target.meta.lock().ctime = now();
            }
            None if flags & EXCHANGE != 0 => return Err(Errno::NOENT),
            Some(target) => {
                match (is_dir(&node), is_dir(&target)) {
                    (true, false) => return Err(Errno::NOTDIR),
                    (false, true) => return Err(Errno::ISDIR),
                    _ => {}
                }
                if target.names().is_ok_and(|names| !names.read().is_empty()) {
                    return Err(Errno::NOTEMPTY);
                }
                pair.target().set(to.1.as_bytes(), node.number);
                pair.old().remove(from.1.as_bytes());
                moved_dirs(&target, -1, &new_dir);
                self.unlinked(&target, if is_dir(&target) { 2 } else { 1 });
            }
            None => {
                pair.old().remove(from.1.as_bytes());
                pair.target().insert(to.1.as_bytes(), node.number);
            }
        }
        moved_dirs(&node, -1, &dir);
        moved_dirs(&node, 1, &new_dir);
        drop(pair);
        self.has_parent(&node, &new_dir, &dir);
        node.meta.lock().ctime = now();
        dir.meta.lock().changed();
        new_dir.meta.lock().changed();
        Ok(())
    }

    /// Sets the new parent of a directory that moved from another one. The caller holds the locks
    /// of neither directory, or of both but not of `node`.
    fn has_parent(&self, node: &Node, parent: &Node, before: &Node) {
        if parent.number != before.number
            && let Ok(names) = node.names()
        {
            names.write().parent = parent.number;
        }
    }

    pub(super) fn list(&self, node: NodeId, offset: u64, into: &mut dyn Listing) -> Answer<()> {
        let dir = self.table.get(node)?;
        let names = dir.names()?.read();
        for (place, name, number) in [(1, ".", dir.number), (2, "..", names.parent)] {
            if place > offset {
                if !into.fits(name.len()) {
                    return Ok(());
                }
                into.add_name(OsStr::new(name), number, 4, place);
            }
        }
        for (place, name, number) in names.after(offset) {
            if !into.fits(name.len()) {
                return Ok(());
            }
            let Ok(node) = self.table.get(NodeId(number)) else { continue };
            let name = OsStr::from_bytes(name);
            if into.wants_entries() {
                let entry = self.entry_of(&node);
                into.add_entry(name, &entry, place);
            } else {
                let kind = node.meta.lock().mode >> 12;
                into.add_name(name, number, kind, place);
            }
        }
        Ok(())
    }
}

/// The names of the two directories of a rename, which may be the same one.
enum Pair<'a> {
    One(RwLockWriteGuard<'a, Names>),
    Two(RwLockWriteGuard<'a, Names>, RwLockWriteGuard<'a, Names>),
}

impl Pair<'_> {
    fn old(&mut self) -> &mut Names {
        match self {
            Pair::One(names) | Pair::Two(names, _) => names,
        }
    }

    fn target(&mut self) -> &mut Names {
        match self {
            Pair::One(names) | Pair::Two(_, names) => names,
        }
    }
}
