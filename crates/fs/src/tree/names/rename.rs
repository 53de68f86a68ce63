//! Renaming a file, within a directory or to another one. The new name is free, replaces another
//! file's name, or is exchanged with it.
//!
//! ```text
//!   a/old ──► file          a/old                        whiteout: a/old ──► device 0:0
//!   b/new ──► victim   ──►  b/new ──► file   victim loses a name
//!
//!   directory, a ≠ b:   its ".." becomes b;  subdirectories of a - 1, of b + 1
//! ```
//!
//! The order of ancestors changes only when a directory changes its parent. `Rank::Rename`
//! serializes those renames, so that two concurrent ones cannot form a loop.

use super::hold::Held;
use super::{check_name, entry_kind};
use crate::inodes::fast_commit::Named;
use crate::state::inode::{Body, Inode};
use crate::tree::dir::Found;
use crate::tree::dir::insert::InsertPlace;
use crate::tree::names::Names;
use crate::tree::names::create::Content;
use crate::tree::names::inherit::Plan;
use crate::volume::Volume;
use extant_base::lock::WriteGuard;
use extant_base::{Error, Ino, Result, Site, What};
use extant_journal::{Handle, Ineligible};
use extant_ondisk::inode::{DeviceNumber, FileKind, InodeFlags};
use extant_ondisk::time::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;

/// What a rename does with an existing new name, and with the old name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// The new name must be free.
    pub no_replace: bool,
    /// Both names exist, and they exchange their inodes.
    pub exchange: bool,
    /// The old name stays and becomes a whiteout: the character device 0:0, which overlay
    /// filesystems treat as a deleted file.
    pub whiteout: bool,
}

impl RenameFlags {
    /// The new name replaces an existing one.
    pub const REPLACE: RenameFlags =
        RenameFlags { no_replace: false, exchange: false, whiteout: false };
    /// The new name must be free.
    pub const NOREPLACE: RenameFlags = RenameFlags { no_replace: true, ..RenameFlags::REPLACE };
    /// The two names exchange their inodes.
    pub const EXCHANGE: RenameFlags = RenameFlags { exchange: true, ..RenameFlags::REPLACE };
    /// The old name becomes a whiteout.
    pub const WHITEOUT: RenameFlags = RenameFlags { whiteout: true, ..RenameFlags::REPLACE };
}

/// One of the two names.
#[derive(Clone, Copy)]
struct Name<'a> {
    dir: &'a Inode,
    name: &'a [u8],
}

/// Everything that a rename changes, locked, after both names were found again.
struct Locked<'a> {
    old: Name<'a>,
    new: Name<'a>,
    old_body: WriteGuard<'a, Body>,
    /// `None` if both directories are the same.
    new_body: Option<WriteGuard<'a, Body>>,
    source: &'a Inode,
    source_body: WriteGuard<'a, Body>,
    source_found: Found,
    victim: Option<Victim<'a>>,
}

/// The inode that had the new name before.
struct Victim<'a> {
    inode: &'a Inode,
    body: WriteGuard<'a, Body>,
    found: Found,
}

impl Names<'_> {
    /// Moves `old_name` in `old_dir` to `new_name` in `new_dir`.
    ///
    /// Errors: `Invalid` for flags that exclude each other, and for moving a directory below
    /// itself; `Busy` for "." and ".."; `ReadOnly`; `NotFound`; `Exists`; `NotADirectory`,
    /// `IsADirectory`, `NotEmpty` if the victim is of another kind or has names; `NotPermitted` if
    /// a flag forbids the change; `CrossProject`; `LinkLimit`; `Encrypted`; `NoSpace`; `Corrupt`,
    /// `Device`. After an error nothing has changed. Locks: takes `Rename` if a directory changes
    /// its parent, `Inode` of up to four inodes, then a handle.
    pub(crate) fn rename(
        self,
        old_dir: &Inode,
        old_name: &[u8],
        new_dir: &Inode,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.exchange && (flags.no_replace || flags.whiteout) {
            return Err(Error::Invalid("rename flags that exclude each other"));
        }
        let dots = |name: &[u8]| matches!(name, b"." | b"..");
        if dots(old_name) {
            return Err(Error::Busy);
        }
        if dots(new_name) {
            return Err(if flags.no_replace { Error::Exists } else { Error::Busy });
        }
        self.volume.context().check_writable()?;
        check_name(old_name)?;
        let old = Name { dir: old_dir, name: old_name };
        let new = Name { dir: new_dir, name: new_name };
        self.volume.space().with_space_retry(|| self.rename_once(old, new, flags))?;
        self.volume.mount_state().sync_names_if_flagged(&[old_dir, new_dir])
    }

    fn rename_once(self, old: Name<'_>, new: Name<'_>, flags: RenameFlags) -> Result<()> {
        loop {
            let source = self.lookup(old.dir, old.name)?;
            check_name(new.name)?;
            let victim = match self.lookup(new.dir, new.name) {
                Ok(victim) => Some(victim),
                Err(Error::NotFound) => None,
                Err(error) => return Err(error),
            };
            match victim {
                Some(_) if flags.no_replace => return Err(Error::Exists),
                None if flags.exchange => return Err(Error::NotFound),
                _ => {}
            }
            if victim.is_some() && !flags.exchange && source.is_dirty() {
                // The new content must be on the device when the old one is gone: programs that
                // replace a file by renaming often do not sync it.
                self.volume.io(&source).write_back_file()?;
            }
            let is_dir = |inode: &Held<'_>| inode.read().file_kind() == FileKind::Directory;
            let moves_directory = old.dir.ino != new.dir.ino
                && (is_dir(&source) || victim.as_ref().is_some_and(is_dir));
            let _order = moves_directory.then(|| self.volume.rename_lock().lock());
            if moves_directory {
                self.check_loops(old, new, &source, victim.as_deref(), flags)?;
            }
            if victim.as_ref().is_some_and(|victim| victim.ino == source.ino) {
                return Ok(());
            }
            let Some(locked) = self.lock_rename(old, new, &source, victim.as_deref())? else {
                // One of the names came to belong to another inode in the meantime.
                continue;
            };
            return match flags.exchange {
                true => self.exchange(locked),
                false => self.replace(locked, flags.whiteout),
            };
        }
    }

    /// `Invalid` or `NotEmpty` if a directory would be moved below itself. The caller holds
    /// `Rename`.
    fn check_loops(
        self,
        old: Name<'_>,
        new: Name<'_>,
        source: &Inode,
        victim: Option<&Inode>,
        flags: RenameFlags,
    ) -> Result<()> {
        if self.is_at_or_above(source.ino, new.dir)? {
            return Err(Error::Invalid("a directory cannot move below itself"));
        }
        match victim {
            Some(victim) if self.is_at_or_above(victim.ino, old.dir)? => {
                Err(match flags.exchange {
                    true => Error::Invalid("a directory cannot move below itself"),
                    false => Error::NotEmpty,
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether `above` is directory `dir` or one of its ancestors.
    fn is_at_or_above(self, above: Ino, dir: &Inode) -> Result<bool> {
        let mut at = dir.ino;
        let mut seen = HashSet::new();
        while at != above && at != Ino::ROOT {
            if !seen.insert(at) {
                return Err(Site::of_ino(at).corrupt(What::DirectoryLoop));
            }
            let inode = self.volume.inodes().get_as(at, crate::inodes::lookup::Lookup::Orphan)?;
            let body = inode.read();
            if body.disk.links == 0 {
                // Removed: it has no ancestors, and nothing can be moved into it.
                return Err(Error::NotFound);
            }
            at = self.volume.file(&body).dir()?.lookup(b"..")?.ino;
        }
        Ok(at == above)
    }

    /// Locks all four inodes in order of numbers and finds the names again. `None` if a name
    /// belongs to another inode by now.
    fn lock_rename<'a>(
        self,
        old: Name<'a>,
        new: Name<'a>,
        source: &'a Inode,
        victim: Option<&'a Inode>,
    ) -> Result<Option<Locked<'a>>> {
        let mut inodes = vec![old.dir, new.dir, source];
        inodes.extend(victim);
        inodes.sort_by_key(|inode| inode.ino);
        inodes.dedup_by_key(|inode| inode.ino);
        let mut guards: Vec<_> =
            inodes.into_iter().map(|inode| Some((inode.ino, inode.body.write_second()))).collect();
        let mut take = |ino: Ino| {
            let is_it = |guard: &&mut Option<(Ino, _)>| guard.as_ref().is_some_and(|g| g.0 == ino);
            guards.iter_mut().find(is_it).and_then(Option::take).map(|(_, guard)| guard)
        };
        let own = |dir: Ino| Site::of_ino(dir).corrupt(What::DirectoryLoop);
        let old_body = take(old.dir.ino).ok_or_else(|| own(old.dir.ino))?;
        let new_body = take(new.dir.ino);
        let source_body = take(source.ino).ok_or_else(|| own(old.dir.ino))?;
        let victim = match victim {
            Some(inode) => Some((inode, take(inode.ino).ok_or_else(|| own(new.dir.ino))?)),
            None => None,
        };
        old_body.check_directory()?;
        let in_new = new_body.as_ref().unwrap_or(&old_body);
        in_new.check_directory()?;
        let source_found = self.volume.file(&old_body).dir()?.find(old.name)?;
        let victim_found = self.volume.file(in_new).dir()?.find(new.name)?;
        let Some(source_found) = source_found.filter(|found| found.ino == source.ino) else {
            return Ok(None);
        };
        let victim = match (victim, victim_found) {
            (None, None) => None,
            (Some((inode, body)), Some(found)) if found.ino == inode.ino => {
                Some(Victim { inode, body, found })
            }
            _ => return Ok(None),
        };
        Ok(Some(Locked { old, new, old_body, new_body, source, source_body, source_found, victim }))
    }

    fn replace(self, locked: Locked<'_>, whiteout: bool) -> Result<()> {
        locked.check_replace(self.volume)?;
        let Locked { old, new, mut old_body, mut new_body, source, mut source_body, .. } = locked;
        let (source_found, mut victim) = (locked.source_found, locked.victim);
        let now = self.volume.environment().now();
        let directory = source_body.file_kind() == FileKind::Directory;
        let kind = entry_kind(source_body.file_kind());
        let moved = new_body.is_some();
        if directory && moved {
            self.volume.file(&source_body).dir_check_parent(old.dir.ino)?;
        }
        let place = match &victim {
            Some(_) => None,
            None => Some(
                self.volume
                    .file(new_body.as_ref().unwrap_or(&old_body))
                    .dir_insert_place(new.name)?,
            ),
        };
        let plan = match whiteout {
            true => Some(self.whiteout_plan(old.dir.ino, &old_body, now)?),
            false => None,
        };
        let slots = (
            self.volume.inodes().slot(source.ino)?,
            victim
                .as_ref()
                .map(|victim| self.volume.inodes().slot(victim.inode.ino))
                .transpose()?,
        );
        if let Some(plan) = &plan {
            self.volume.quota_accounting().prepare(
                plan.inode.uid,
                plan.inode.gid,
                plan.inode.projid,
            )?;
        }
        let credits = self.volume.credits().rename(
            new_body.as_ref().unwrap_or(&old_body),
            place.as_ref(),
            victim.as_ref().map(|victim| &*victim.body),
            plan.as_ref().map_or(&[], |plan| &plan.lists),
        );
        let handle = self.volume.journal().start(credits)?;
        let whiteout =
            plan.map(|plan| self.new_whiteout(&handle, old.dir.ino, &plan)).transpose()?;
        let mut made = whiteout.as_deref().map(|inode| inode.body.write_unshared());
        if let Some(inode) = &whiteout {
            self.volume.inode_table().put(inode.ino, inode);
        }
        let stored = match &mut made {
            Some(body) => body.store(self.volume, &handle),
            None => Ok(()),
        };
        let entered =
            Entered { source: source.ino, kind, victim: victim.as_ref().map(|v| v.found), place };
        let in_new = new_body.as_mut().unwrap_or(&mut old_body);
        let done = stored.and_then(|()| self.enter_new(&handle, new, in_new, entered));
        if let Err(error) = done {
            if let Some(body) = &mut made {
                self.unmake(&handle, body);
            }
            handle.stop()?;
            return Err(error);
        }
        // Adding the new name to the same directory may have moved the old one.
        let source_found = match moved || victim.is_some() {
            true => source_found,
            false => self.volume.file(&old_body).dir()?.lookup(old.name)?,
        };
        match &made {
            Some(made) => {
                let (ino, kind) = (made.ino(), entry_kind(FileKind::CharDevice));
                self.volume.dir_mut(&mut old_body).set_found(&handle, source_found, ino, kind)?;
            }
            None => self.volume.dir_mut(&mut old_body).remove_found(&handle, source_found)?,
        }
        if directory && moved {
            self.volume.dir_mut(&mut source_body).set_parent(&handle, new.dir.ino)?;
            old_body.drop_subdirectory();
        }
        let in_new = new_body.as_mut().unwrap_or(&mut old_body);
        if let Some(victim) = &victim {
            let named = Named { parent: new.dir.ino, name: new.name, ino: victim.inode.ino };
            self.volume.notes().note_unnamed(&handle, in_new, victim.body.file_kind(), named);
        }
        let named = Named { parent: new.dir.ino, name: new.name, ino: source.ino };
        self.volume.notes().note_named(&handle, in_new, source_body.file_kind(), false, named);
        if directory && moved && victim.is_none() {
            in_new.add_subdirectory(self.volume)?;
        }
        if directory && !moved && victim.is_some() {
            in_new.drop_subdirectory();
        }
        let named = Named { parent: old.dir.ino, name: old.name, ino: source.ino };
        self.volume.notes().note_unnamed(&handle, &old_body, source_body.file_kind(), named);
        if directory {
            self.volume.context().require_full_commit(&handle, Ineligible::RenameDir);
        }
        source_body.disk.ctime = now;
        source_body.store_in(self.volume, &handle, &slots.0)?;
        if let Some(new_body) = &mut new_body {
            new_body.names_changed(now);
            new_body.store(self.volume, &handle)?;
        }
        old_body.names_changed(now);
        old_body.store(self.volume, &handle)?;
        if let (Some(victim), Some(slot)) = (&mut victim, &slots.1) {
            self.lose_link(&handle, victim.inode, &mut victim.body, slot, now)?;
        }
        handle.stop()
    }

    /// Makes the new name point to the source: in the victim's entry, or at the place that was
    /// found.
    fn enter_new(
        self,
        handle: &Handle<'_>,
        new: Name<'_>,
        body: &mut Body,
        entered: Entered,
    ) -> Result<()> {
        let Entered { source, kind, victim, place } = entered;
        match (victim, place) {
            (Some(found), _) => self.volume.dir_mut(body).set_found(handle, found, source, kind),
            (None, Some(place)) => {
                self.volume.dir_mut(body).insert_at(handle, place, new.name, source, kind)
            }
            (None, None) => Err(Error::Invalid("a new name without its place in the directory")),
        }
    }

    fn whiteout_plan(self, dir: Ino, body: &Body, now: Timestamp) -> Result<Plan> {
        let rdev = Some(DeviceNumber { major: 0, minor: 0 });
        let new = super::NewFile { mode: 0, device: rdev, ..super::NewFile::default() };
        self.inherit(dir, body, FileKind::CharDevice, &new, now)
    }

    fn new_whiteout(self, handle: &Handle<'_>, dir: Ino, plan: &Plan) -> Result<Arc<Inode>> {
        let content = Content::Empty(FileKind::CharDevice);
        let (_, body) = self.make(handle, dir, content, &plan.inode, &plan.lists)?;
        Ok(Arc::new(Inode::new(body)))
    }

    fn exchange(self, locked: Locked<'_>) -> Result<()> {
        let Some(mut victim) = locked.victim else { return Err(Error::NotFound) };
        let (mut old_body, mut new_body) = (locked.old_body, locked.new_body);
        let mut source_body = locked.source_body;
        let (old, new, source) = (locked.old, locked.new, locked.source);
        let is_dir = |body: &Body| body.file_kind() == FileKind::Directory;
        old_body.check_may_lose_name(&source_body)?;
        new_body.as_ref().unwrap_or(&old_body).check_may_lose_name(&victim.body)?;
        check_names_are_plain([Some(&*old_body), new_body.as_deref()])?;
        if let Some(new_body) = &new_body {
            check_project(new_body, &source_body)?;
            check_project(&old_body, &victim.body)?;
            if is_dir(&source_body) {
                self.volume.file(&source_body).dir_check_parent(old.dir.ino)?;
            }
            if is_dir(&victim.body) {
                self.volume.file(&victim.body).dir_check_parent(new.dir.ino)?;
            }
            match (is_dir(&source_body), is_dir(&victim.body)) {
                (true, false) => self.check_subdirectory(new_body)?,
                (false, true) => self.check_subdirectory(&old_body)?,
                _ => {}
            }
        }
        let now = self.volume.environment().now();
        let slots =
            (self.volume.inodes().slot(source.ino)?, self.volume.inodes().slot(victim.inode.ino)?);
        let handle = self.volume.journal().start(super::credits::EXCHANGE)?;
        self.volume.context().require_full_commit(&handle, Ineligible::CrossRename);
        let kind = entry_kind(victim.body.file_kind());
        let found = locked.source_found;
        self.volume.dir_mut(&mut old_body).set_found(&handle, found, victim.inode.ino, kind)?;
        let in_new = new_body.as_mut().unwrap_or(&mut old_body);
        let kind = entry_kind(source_body.file_kind());
        self.volume.dir_mut(in_new).set_found(&handle, victim.found, source.ino, kind)?;
        if let Some(new_body) = &mut new_body {
            if is_dir(&source_body) {
                self.volume.dir_mut(&mut source_body).set_parent(&handle, new.dir.ino)?;
            }
            if is_dir(&victim.body) {
                self.volume.dir_mut(&mut victim.body).set_parent(&handle, old.dir.ino)?;
            }
            match (is_dir(&source_body), is_dir(&victim.body)) {
                (true, false) => {
                    old_body.drop_subdirectory();
                    new_body.add_subdirectory(self.volume)?;
                }
                (false, true) => {
                    new_body.drop_subdirectory();
                    old_body.add_subdirectory(self.volume)?;
                }
                _ => {}
            }
            new_body.names_changed(now);
            new_body.store(self.volume, &handle)?;
        }
        old_body.names_changed(now);
        old_body.store(self.volume, &handle)?;
        source_body.disk.ctime = now;
        source_body.store_in(self.volume, &handle, &slots.0)?;
        victim.body.disk.ctime = now;
        victim.body.store_in(self.volume, &handle, &slots.1)?;
        handle.stop()
    }
}

/// The inode that the new name gets, and where the entry goes.
struct Entered {
    source: Ino,
    kind: extant_ondisk::dirent::EntryKind,
    victim: Option<Found>,
    place: Option<InsertPlace>,
}

/// `CrossProject` if `dir` passes on a project other than the file's.
fn check_project(dir: &Body, file: &Body) -> Result<()> {
    let inherits_project = dir.disk.flags.contains(InodeFlags::PROJINHERIT);
    match inherits_project && dir.disk.projid != file.disk.projid {
        true => Err(Error::CrossProject),
        false => Ok(()),
    }
}

/// `Encrypted` if one of the names is in an encrypted directory. Without the directory's key, the
/// name cannot be given to another file, nor the file another name. Source: Linux kernel
/// documentation, "fscrypt", access semantics without the key.
fn check_names_are_plain(dirs: [Option<&Body>; 2]) -> Result<()> {
    let encrypted = |dir: &Body| dir.disk.flags.contains(InodeFlags::ENCRYPT);
    match dirs.into_iter().flatten().any(encrypted) {
        true => Err(Error::Encrypted),
        false => Ok(()),
    }
}

impl Locked<'_> {
    fn check_replace(&self, volume: &Volume) -> Result<()> {
        let new_body = self.new_body.as_ref().unwrap_or(&self.old_body);
        self.old_body.check_may_lose_name(&self.source_body)?;
        let directory = self.source_body.file_kind() == FileKind::Directory;
        match &self.victim {
            None => new_body.check_accepts_names()?,
            Some(victim) => {
                new_body.check_may_lose_name(&victim.body)?;
                match (directory, victim.body.file_kind() == FileKind::Directory) {
                    (true, false) => return Err(Error::NotADirectory),
                    (false, true) => return Err(Error::IsADirectory),
                    _ => {}
                }
            }
        }
        check_names_are_plain([&*self.old_body, new_body].map(Some))?;
        check_project(new_body, &self.source_body)?;
        if !directory {
            return Ok(());
        }
        match &self.victim {
            Some(victim) if !volume.file(&victim.body).dir()?.is_empty()? => Err(Error::NotEmpty),
            None if self.new_body.is_some() => volume.names().check_subdirectory(new_body),
            _ => Ok(()),
        }
    }
}
