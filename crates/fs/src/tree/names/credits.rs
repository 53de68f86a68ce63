//! Credits: how many blocks each operation may change. Each block is counted once, by formula.
//!
//! ```text
//!   append      new block 1, its bitmap and descriptor 2, the map grows (below)
//!   map grows   extents, depth d: d nodes, d + 1 new ones and their 2 each      4d + 3
//!               block map: 3 indirect blocks, 3 new ones and their 2 each       12
//!   insert      space known: block 1, slot 1
//!               else: leaf, three index blocks and slot 5, five appends: a split at each of three
//!               levels, and two more leaves if a half is still too full; the map grows once
//!   new inode   bitmap, descriptor, block bitmap that was uninitialized 3, slot 1
//! ```

use super::create::Content;
use super::inherit::List;
use crate::inodes::map::credits::{FileCredits, VolumeCredits};
use crate::inodes::orphan::ORPHAN_CREDITS;
use crate::state::inode::Body;
use crate::tree::dir::insert::InsertPlace;
use crate::tree::names::Names;
use extant_base::narrow::fits_u32;
use extant_journal::Credits;
use extant_ondisk::extent::ExtentNode;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{FileKind, InodeFlags};

/// A block added to a file: the block, its bitmap, its group descriptor.
const BLOCK: u32 = 3;
/// The inode number (bitmap, descriptor, block bitmap) and the slot.
const NEW_INODE: u32 = 4;
/// Freeing an inode number: bitmap, descriptor.
const FREE_INODE: u32 = 2;
/// How many blocks one insert appends at most; see above.
const APPENDS: u32 = 5;
/// An inode with more blocks than this is not released in the handle that removed its last name.
const QUICK_BLOCKS: u32 = 16;

/// What a further name needs besides the insert: the file's slot, and its orphan record if it had
/// no name.
pub(super) const LINK: u32 = 1 + ORPHAN_CREDITS;

/// Two entries, two "..", four slots.
pub(super) const EXCHANGE: Credits = Credits::blocks(8);

impl FileCredits<'_> {
    /// Credits for adding a name to a directory, including the directory's slot.
    pub(super) fn insert(self, place: &InsertPlace) -> u32 {
        match place {
            InsertPlace::Entry(_) => 2,
            InsertPlace::Search => 5 + APPENDS * BLOCK + self.map_growth(),
        }
    }

    /// How many index or indirect blocks change when a file grows by blocks at its end.
    fn map_growth(self) -> u32 {
        if self.body.disk.has_extents() {
            let depth = self.extent_depth();
            return 4 * depth + 3;
        }
        match self.volume.has_incompat(Incompat::EXTENTS) {
            // Inline or empty: the first map consists of a root only.
            true => 3,
            false => 12,
        }
    }

    fn extent_depth(self) -> u32 {
        let at = extant_base::Site::NOWHERE;
        // If the root is malformed, the operation itself fails.
        ExtentNode::trusted(&self.body.disk.i_block, at).map_or(0, |root| u32::from(root.depth()))
    }
}

impl VolumeCredits<'_> {
    /// Credits for creating a file.
    pub(super) fn create(
        self,
        dir: &Body,
        content: Content<'_>,
        lists: &[List],
        place: Option<&InsertPlace>,
    ) -> Credits {
        let name = place.map_or(ORPHAN_CREDITS, |place| self.volume.credits_of(dir).insert(place));
        let content = match content {
            Content::Empty(_) => 0,
            Content::Directory => BLOCK,
            Content::Symlink(_) => BLOCK,
        };
        let attributes = self.list(lists);
        // An undo frees metadata blocks: content, attribute block, values. Each needs a revoke.
        let revokes = content + attributes;
        let quota = self.volume.quota_accounting().credits(2);
        Credits { blocks: name + NEW_INODE + content + attributes + quota, revokes }
    }

    /// Credits for the access lists of a new inode.
    fn list(self, lists: &[List]) -> u32 {
        // One block for all lists, or one that becomes shared; large values in inodes of their own.
        let mut attributes = if lists.is_empty() { 0 } else { BLOCK + 1 };
        if self.volume.has_incompat(Incompat::EA_INODE) {
            for list in lists {
                let blocks = fits_u32(self.volume.block_size().blocks_for(list.len() as u64));
                attributes += NEW_INODE + blocks * BLOCK + 3;
            }
        }
        attributes
    }

    /// Credits for removing a name: the entry, two slots, and the orphan record or release of the
    /// file.
    pub(super) fn unlink(self, target: &Body) -> Credits {
        let end = self.volume.credits_of(target).end();
        Credits {
            blocks: 3 + end.blocks + self.volume.quota_accounting().credits(1),
            revokes: end.revokes,
        }
    }

    /// Credits for renaming over `victim`: an insert, the old entry, two slots, "..", a whiteout
    /// with access `lists`, and the victim's slot and its orphan record or release.
    pub(super) fn rename(
        self,
        new_dir: &Body,
        place: Option<&InsertPlace>,
        victim: Option<&Body>,
        lists: &[List],
    ) -> Credits {
        let insert = place.map_or(2, |place| self.volume.credits_of(new_dir).insert(place));
        let end = victim.map_or(Credits::default(), |victim| self.volume.credits_of(victim).end());
        let own = 1 + 2 + 1 + NEW_INODE + 1 + self.volume.quota_accounting().credits(3);
        let attributes = self.list(lists);
        let blocks = insert + own + end.blocks + attributes;
        Credits { blocks, revokes: end.revokes + attributes }
    }
}

impl FileCredits<'_> {
    /// Credits for an orphan record, or for a release if that takes little work.
    fn end(self) -> Credits {
        if !self.volume.names().is_quick_to_release(self.body) {
            return Credits::blocks(ORPHAN_CREDITS);
        }
        let runs = match (self.volume.file(self.body).has_map(), self.body.disk.has_extents()) {
            (false, _) => 0,
            (true, true) => 4,
            (true, false) => 12,
        };
        // A run may extend into a second group.
        Credits { blocks: ORPHAN_CREDITS + FREE_INODE + runs * 4, revokes: QUICK_BLOCKS }
    }
}

impl Names<'_> {
    /// Whether one small handle can free all that an inode holds: a map without blocks of its own,
    /// and no attributes outside the inode.
    pub(super) fn is_quick_to_release(self, body: &Body) -> bool {
        if body.disk.file_acl.is_some()
            || body.disk.translator.is_some()
            || body.disk.flags.contains(InodeFlags::JOURNAL_DATA)
            || self.volume.file(body).journals_data()
            || (self.volume.has_incompat(Incompat::EA_INODE) && self.may_have_xattrs(body))
        {
            return false;
        }
        if !self.volume.file(body).has_map() {
            return true;
        }
        let blocks = body.disk.sectors >> (self.volume.block_size().log2() - 9);
        if body.file_kind() != FileKind::Regular && blocks > u64::from(QUICK_BLOCKS) {
            return false;
        }
        match body.disk.has_extents() {
            true => self.volume.credits_of(body).extent_depth() == 0,
            // True without an indirect block.
            false => body.disk.i_block[48..60] == [0; 12],
        }
    }
}

impl VolumeCredits<'_> {
    /// Credits for the end of an orphan's release, after its blocks and values are freed:
    /// attributes, record, slot and number.
    pub(crate) fn release_end(self) -> Credits {
        let own = self.store() + FREE_INODE + 2 * ORPHAN_CREDITS;
        // The GNU Hurd's translator block, with bitmap and descriptor.
        let translator = Credits { blocks: 3, revokes: 1 };
        self.volume.xattr_store().release_credits().plus(translator).plus(Credits::blocks(own))
    }
}
