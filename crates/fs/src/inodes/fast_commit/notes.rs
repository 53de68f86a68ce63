//! The hooks: what a handle notes when it changes something.
//!
//! ```text
//!   created      Create                      renamed     [Unlink the victim's]  Link  Unlink
//!   linked       Link                        unlinked    Unlink
//!   truncated, punched, written elsewhere    Range       stored   Inode, or nothing, or Full
//!   number taken, number freed               InodeAllocated, InodeFreed
//! ```
//!
//! Rule C5: the UNLINK record of its last name removes an inode. An inode without links is never
//! recorded.

use super::stored::{self, Stored};
use crate::state::inode::{Body, Counted};
use crate::volume::Volume;
use extant_base::Ino;
use extant_journal::{Change, Handle, Ineligible};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{FileKind, InodeFlags};
use std::ops::Range;

/// The notes for fast commits that a change adds to its handle.
#[derive(Clone, Copy)]
pub(crate) struct FastCommitNotes<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// The notes for fast commits.
    pub(crate) fn notes(&self) -> FastCommitNotes<'_> {
        FastCommitNotes { volume: self }
    }
}

/// A name: its directory, its bytes, and its inode.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) parent: Ino,
    pub(crate) name: &'a [u8],
    pub(crate) ino: Ino,
}

impl FastCommitNotes<'_> {
    /// The slot of an inode changes from `before` to `after`.
    pub(crate) fn note_stored(self, handle: &Handle<'_>, body: &Body, before: &[u8], after: &[u8]) {
        if !self.volume.context().fast_commits() {
            return;
        }
        // For an inode that is being released, the freed number is the note.
        if matches!(body.counted, Counted::Released | Counted::Never) {
            if stored::changes_attributes(before, after) {
                handle.note(Change::Full(Ineligible::Xattr));
            }
            return;
        }
        if self.volume.inodes().is_hidden(body.ino()) {
            return handle.note(Change::Full(Ineligible::Feature));
        }
        match stored::meaning(before, after) {
            // Attribute values in inodes of their own count as space of the file. Linux recounts
            // that space and forgets them.
            Stored::Fields
                if self.volume.has_incompat(Incompat::EA_INODE)
                    && stored::has_attributes(after) =>
            {
                handle.note(Change::Full(Ineligible::Xattr));
            }
            Stored::Fields => handle.note(Change::Inode(body.ino())),
            Stored::ByNames => {}
            Stored::Ineligible(reason) => handle.note(Change::Full(reason)),
        }
    }

    /// Blocks of a file were mapped, unmapped, or changed between written and unwritten.
    ///
    /// Blocks of directories follow from names. Other kinds cannot be recorded; storing them notes
    /// that.
    pub(crate) fn note_mapped(self, handle: &Handle<'_>, body: &Body, blocks: Range<u32>) {
        if self.volume.context().fast_commits()
            && body.file_kind() == FileKind::Regular
            && !blocks.is_empty()
        {
            let (ino, first, last) = (body.ino(), blocks.start, blocks.end - 1);
            handle.note(Change::Range { ino, first, last });
        }
    }

    /// A name was added to the directory `parent`; with `new`, its file was created, too.
    pub(crate) fn note_named(
        self,
        handle: &Handle<'_>,
        parent: &Body,
        kind: FileKind,
        new: bool,
        named: Named<'_>,
    ) {
        let Named { parent: dir, name, ino } = named;
        self.note_name(
            handle,
            parent,
            kind,
            match new {
                true => Change::Create { parent: dir, ino, name },
                false => Change::Link { parent: dir, ino, name },
            },
        );
    }

    /// A name was removed from the directory `parent`.
    pub(crate) fn note_unnamed(
        self,
        handle: &Handle<'_>,
        parent: &Body,
        kind: FileKind,
        named: Named<'_>,
    ) {
        let Named { parent: dir, name, ino } = named;
        self.note_name(handle, parent, kind, Change::Unlink { parent: dir, ino, name });
    }

    fn note_name(self, handle: &Handle<'_>, parent: &Body, kind: FileKind, change: Change<'_>) {
        if !self.volume.context().fast_commits() {
            return;
        }
        let flags = parent.disk.flags;
        handle.note(match kind {
            FileKind::Regular if flags.contains(InodeFlags::ENCRYPT) => {
                Change::Full(Ineligible::Encrypted)
            }
            // Recovery would look for the name as it was given, not as the directory has it.
            FileKind::Regular if flags.contains(InodeFlags::CASEFOLD) => {
                Change::Full(Ineligible::Feature)
            }
            FileKind::Regular => change,
            FileKind::Directory => Change::Full(Ineligible::Directory),
            _ => Change::Full(Ineligible::Special),
        });
    }
}
