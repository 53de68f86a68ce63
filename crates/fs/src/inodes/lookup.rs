//! Looking up inodes by number: from the table in memory, or read and checked from disk.

use crate::context::role::Role;
use crate::inodes::Inodes;
use crate::state::inode::{Body, Inode};
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_journal::{MetaBlock, Worth};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::geometry::InodePlace;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::{
    FileKind, Inode as DiskInode, InodeFlags, checksum_is_right, is_zero_slot,
};
use extant_ondisk::superblock::VolumeState;
use std::cell::OnceCell;
use std::ops::Range;
use std::sync::Arc;

/// A block of an inode table, and the bytes of one inode in it.
pub(crate) type Slot = (MetaBlock, Range<usize>);

/// The kind of caller that looks up an inode. It decides which numbers and states are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// A directory entry or a caller: the root or an ordinary number, in use.
    Name,
    /// The engine itself: any number, those of journal and quota files included; links may be zero.
    Internal,
    /// Orphan processing: as `Name`, but links may be zero.
    Orphan,
}

impl Inodes<'_> {
    /// The inode for a name or for a caller's number.
    ///
    /// Errors: `InodeNumber` for a number that is out of range or hidden, `InodeUnlinked` for an
    /// inode without links, `RootDirectory`, and those of `Inode::check`. Locks: takes `Leaf`.
    pub(crate) fn get(self, ino: Ino) -> Result<Arc<Inode>> {
        self.get_as(ino, Lookup::Name)
    }

    /// Any inode, for the engine's own use: the journal, quota files, the orphan file.
    pub(crate) fn get_internal(self, ino: Ino) -> Result<Arc<Inode>> {
        self.get_as(ino, Lookup::Internal)
    }

    /// The inode `ino`, with the checks that `lookup` demands.
    pub(crate) fn get_as(self, ino: Ino, lookup: Lookup) -> Result<Arc<Inode>> {
        if lookup != Lookup::Internal && self.is_hidden(ino) {
            return Err(Site::of_ino(ino).corrupt(What::InodeNumber));
        }
        let inode = match self.volume.inode_table().find(ino) {
            Some(inode) => inode,
            None => self.load(ino)?,
        };
        // This never waits for the inode's lock, since the caller may hold the locks of other
        // inodes.
        match lookup {
            Lookup::Name | Lookup::Orphan if inode.is_value() => {
                Err(Site::of_ino(ino).corrupt(What::InodeFlags))
            }
            Lookup::Name if inode.was_unlinked() => {
                Err(Site::of_ino(ino).corrupt(What::InodeUnlinked))
            }
            _ => Ok(inode),
        }
    }

    /// The value inode `ino` that an attribute names, read without the table: a thread that holds
    /// an inode's lock never waits for that of another inode, whatever a damaged volume names.
    ///
    /// Errors: `XattrInode` for an inode that holds no value.
    pub(crate) fn value(self, ino: Ino) -> Result<Body> {
        let wrong = || Site::of_ino(ino).corrupt(What::XattrInode);
        if self.is_hidden(ino) {
            return Err(wrong());
        }
        let body = self.read(ino)?;
        match body.disk.flags.contains(InodeFlags::EA_INODE) {
            true => Ok(body),
            false => Err(wrong()),
        }
    }

    /// The error for an inode number that a caller kept. While other threads change the volume, an
    /// inode without links is no damage: then it is `NotFound`.
    pub(crate) fn stale(self, error: Error) -> Error {
        match error {
            Error::Corrupt { what: What::InodeUnlinked, .. }
                if self.volume.context().is_open_to_write() =>
            {
                Error::NotFound
            }
            error => error,
        }
    }

    /// The fields of the inode that a listing named, for one use.
    ///
    /// Errors: `NotFound` if the name was removed since; those of [`Inodes::peek`].
    pub(crate) fn peek_listed(self, ino: Ino) -> Result<Body> {
        self.peek(ino, Lookup::Name).map_err(|error| self.stale(error))
    }

    /// The inode's fields for one use. Does not keep the inode in the table: for scans of many
    /// inodes.
    ///
    /// Checks as [`Inodes::get_as`] does. Locks: takes `Inode` (shared): the caller holds none.
    pub(crate) fn peek(self, ino: Ino, lookup: Lookup) -> Result<Body> {
        if let Some(inode) = self.volume.inode_table().find(ino) {
            return Ok(inode.body.read().clone());
        }
        if lookup != Lookup::Internal && self.is_hidden(ino) {
            return Err(Site::of_ino(ino).corrupt(What::InodeNumber));
        }
        let body = self.read(ino)?;
        if lookup != Lookup::Internal && body.disk.flags.contains(InodeFlags::EA_INODE) {
            return Err(Site::of_ino(ino).corrupt(What::InodeFlags));
        }
        if lookup == Lookup::Name && body.disk.links == 0 {
            return Err(Site::of_ino(ino).corrupt(What::InodeUnlinked));
        }
        Ok(body)
    }

    /// Whether a number belongs to the engine: reserved numbers except the root, quota and orphan
    /// files.
    pub(crate) fn is_hidden(self, ino: Ino) -> bool {
        let number = ino.get();
        if number < self.volume.at_open().first_ino {
            return ino != Ino::ROOT;
        }
        let quota = self.volume.has_ro_compat(RoCompat::QUOTA)
            && (number == self.volume.at_open().prj_quota_inum
                || number == self.volume.at_open().usr_quota_inum
                || number == self.volume.at_open().grp_quota_inum);
        let orphans = self.volume.has_compat(Compat::ORPHAN_FILE)
            && number == self.volume.at_open().orphan_file_inum;
        quota || orphans
    }

    /// The table block of `ino` and the range of its slot there.
    ///
    /// Errors: `InodeNumber` for a number out of range; those of the descriptor's check; `Device`.
    pub(crate) fn slot(self, ino: Ino) -> Result<Slot> {
        let place = self.volume.geometry().inode_place(ino);
        let place = place.ok_or_else(|| Site::of_ino(ino).corrupt(What::InodeNumber))?;
        let table = self.volume.space().groups().inode_table(place.group)?;
        let block = self.block(table, &place)?;
        Ok((block, place.offset..place.offset + self.volume.geometry().inode_size()))
    }

    /// The block with an inode, of a group's inode table that begins at `table`.
    fn block(self, table: BlockNr, place: &InodePlace) -> Result<MetaBlock> {
        let block =
            self.volume.journal().cache().get(BlockNr(table.0 + u64::from(place.table_block)))?;
        let (size, count) =
            (self.volume.geometry().inode_size(), self.volume.geometry().inodes_per_block());
        let checksums = self.volume.inode_format().checksums();
        let used = OnceCell::new();
        let slots =
            |desc: GroupDesc| desc.used_slots(self.volume.geometry(), self.volume.checksums());
        let used = || {
            *used
                .get_or_init(|| self.volume.space().descriptor(place.group).map_or(u32::MAX, slots))
        };
        let worth = |bytes: &[u8], n: usize| {
            let slot = &bytes[n * size..][..size];
            let nr = place.table_block * count + len_u32(n);
            let Some(ino) = self.volume.geometry().ino_of_slot(place.group, nr) else {
                return Worth::Right;
            };
            match is_zero_slot(slot) {
                // Never used, or lost: another copy of the block decides.
                true if checksums.seed().is_some() && nr < used() => Worth::Empty,
                true => Worth::Right,
                false => checksum_is_right(slot, ino, checksums).into(),
            }
        };
        self.volume.journal().cache().take_best(
            &block,
            Role::Inodes.kind(),
            count as usize,
            &worth,
        );
        Ok(block)
    }

    /// Reads and checks the inode in its table block, without the table of inodes in use.
    pub(crate) fn read(self, ino: Ino) -> Result<Body> {
        let at = Site::of_ino(ino);
        let place =
            self.volume.geometry().inode_place(ino).ok_or_else(|| at.corrupt(What::InodeNumber))?;
        let desc = self.volume.space().descriptor(place.group)?;
        // Slots that were never used hold garbage. But a volume without a journal that was not
        // unmounted has descriptors that are older than its inodes, and so are all copies of the
        // descriptors. A reader of such a volume trusts the inodes.
        let is_open = !self.volume.has_compat(Compat::HAS_JOURNAL)
            && !self.volume.at_open().state.contains(VolumeState::VALID);
        let stale = self.volume.context().is_opened_read_only()
            && (is_open || self.volume.space().groups().reads_backup());
        if !stale && place.slot >= desc.used_slots(self.volume.geometry(), self.volume.checksums())
        {
            return Err(at.group(place.group).corrupt(What::InodeNotMarked));
        }
        self.volume.space().groups().prefetch_inodes(place.group, place.slot, &desc);
        let block = self.block(desc.inode_table, &place)?;
        let raw: Box<[u8]> = {
            let bytes = block.read();
            Box::from(&bytes[place.offset..place.offset + self.volume.geometry().inode_size()])
        };
        let disk = DiskInode::check(&raw, ino, self.volume.inode_format())?;
        if let Some(acl) = disk.file_acl
            && ino.get() >= self.volume.at_open().first_ino
            && self.volume.space().is_system(acl, 1)
        {
            return Err(at.block(acl).corrupt(What::InodeFileAcl));
        }
        Ok(Body::read_from(ino, disk, raw))
    }

    #[cold]
    fn load(self, ino: Ino) -> Result<Arc<Inode>> {
        loop {
            let sweeps = self.volume.inode_table().sweeps(ino);
            let mut body = self.read(ino)?;
            if ino == Ino::ROOT && body.file_kind() != FileKind::Directory {
                return Err(Site::of_ino(ino).corrupt(What::RootDirectory));
            }
            body.file_cache = self.volume.file_cache_before(ino);
            if let Some(inode) = self.volume.inode_table().insert_read(body, sweeps) {
                return Ok(inode);
            }
        }
    }
}
