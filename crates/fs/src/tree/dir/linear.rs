//! Linear directory blocks: checked once, searched in order.
//!
//! ```text
//!   block 0        "." ".." a b c … │tail        with INDEX: the htree root, "." and ".." only
//!   block n        d e f …          │tail        with INDEX: perhaps an inner node, no names
//! ```
//!
//! A block's tail is verified when the block enters the cache. Entries are checked on each walk:
//! the checks are cheap and depend on the reader's position.

use super::{Dir, Form, Found, fold::Wanted};
use crate::context::role::Role;
use extant_base::{LogicalBlock, Result, Site};
use extant_journal::MetaBlock;
use extant_ondisk::dirent::{DirBlock, DirFormat};
use extant_ondisk::features::Incompat;
use extant_ondisk::htree::{Index, levels_max, looks_like_node};

/// How many blocks a scan reads at once.
pub(super) const SCAN_AHEAD: u32 = 32;

/// What a block of a directory contains for a reader of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Entries up to the tail.
    Leaf,
    /// Only "." and "..".
    Root,
    /// No names.
    Node,
}

impl Dir<'_> {
    /// The site of block `at`, for errors.
    pub(crate) fn site_of(&self, block: &MetaBlock) -> Site {
        self.site().block(block.nr())
    }

    /// Verifies block `at` as the kind that its content shows, and returns the kind; once while it
    /// is cached.
    ///
    /// Errors: `DirectoryTail`, `DirectoryChecksum`, `HtreeChecksum`.
    pub(crate) fn check_block(&self, at: LogicalBlock, block: &MetaBlock) -> Result<Names> {
        for (role, names) in [
            (Role::DirNames(self.ino), Names::Leaf),
            (Role::DirLeaf(self.ino), Names::Leaf),
            (Role::DirRoot(self.ino), Names::Root),
            (Role::DirNode(self.ino), Names::Node),
        ] {
            // Once the directory has no index, a former index block counts as a block of names.
            let holds = names == Names::Leaf || self.form == Form::Indexed;
            if holds && block.is_verified_as(role.kind()) {
                return Ok(names);
            }
        }
        let site = self.site_of(block);
        let seed = self.seed.unwrap_or(0);
        let check = |bytes: &[u8]| {
            if self.form == Form::Indexed && at.0 == 0 && self.is_root(bytes) {
                self.root(bytes, site)?.verify_checksum(seed)?;
                return Ok((Role::DirRoot(self.ino), Names::Root));
            }
            if self.form == Form::Indexed && at.0 != 0 && self.is_node(bytes) {
                if self.format.checksums {
                    Index::node(bytes, &self.format, site)?.verify_checksum(seed)?;
                }
                return Ok((Role::DirNode(self.ino), Names::Node));
            }
            DirBlock::new(bytes, self.format, site).verify_checksum(seed)?;
            Ok((Role::DirLeaf(self.ino), Names::Leaf))
        };
        let (role, names) = self.volume.journal().cache().checked(block, check)?;
        block.set_verified_as(role.kind());
        Ok(names)
    }

    fn is_root(&self, bytes: &[u8]) -> bool {
        self.root(bytes, self.site()).is_ok()
    }

    /// Without checksums, a leaf that has lost all its names looks like a node, too. The block
    /// numbers in it tell the two apart.
    fn is_node(&self, bytes: &[u8]) -> bool {
        let leads_somewhere = |index: Index<'_>| {
            index.entries().all(|entry| (1..self.blocks).contains(&entry.block.0))
        };
        looks_like_node(bytes)
            && (self.format.checksums
                || Index::node(bytes, &self.format, self.site()).is_ok_and(leads_somewhere))
    }

    fn root<'b>(&self, bytes: &'b [u8], site: Site) -> Result<Index<'b>> {
        let levels = levels_max(self.volume.has_incompat(Incompat::LARGEDIR));
        Ok(Index::root(bytes, &self.format, levels, site)?.1)
    }

    /// Whether every entry of a leaf was found valid, and only this engine's own code has changed
    /// it since.
    pub(super) fn names_are_right(&self, block: &MetaBlock) -> bool {
        block.is_verified_as(Role::DirNames(self.ino).kind())
    }

    /// The format with which the entries of such a block are walked.
    pub(crate) fn format_of(&self, names: Names) -> DirFormat {
        match names {
            Names::Leaf => self.format,
            Names::Root | Names::Node => self.format.without_tail(),
        }
    }

    /// Searches block `at` for the name.
    pub(super) fn find_in_block(
        &self,
        at: LogicalBlock,
        block: &MetaBlock,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Found>> {
        let names = self.check_block(at, block)?;
        let bytes = block.read();
        let view = DirBlock::new(&bytes, self.format_of(names), self.site_of(block));
        if let Some(name) = wanted.exact()
            && self.names_are_right(block)
        {
            let entry = view.find_trusted(name)?;
            return Ok(
                entry.and_then(|entry| Some(Found::in_block(&entry, entry.ino?, at, block.nr())))
            );
        }
        let mut entries = view.entries();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if let Some(ino) = entry.ino
                && wanted.is(&entry)
            {
                if names == Names::Leaf && entries.all(|entry| entry.is_ok()) {
                    block.set_verified_as(Role::DirNames(self.ino).kind());
                }
                return Ok(Some(Found::in_block(&entry, ino, at, block.nr())));
            }
        }
        if names == Names::Leaf {
            block.set_verified_as(Role::DirNames(self.ino).kind());
        }
        Ok(None)
    }
}

/// Searches every block for the name. An unreadable or damaged block is an error only if no other
/// block has the name.
pub(super) fn find(dir: &Dir<'_>, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    let mut first_error = None;
    let mut ahead = 0;
    let mut at = 0;
    while at < dir.blocks {
        if at >= ahead {
            dir.prefetch(LogicalBlock(at), SCAN_AHEAD);
            ahead = at + SCAN_AHEAD;
        }
        let found = match dir.block(LogicalBlock(at)) {
            Ok(Some(block)) => dir.find_in_block(LogicalBlock(at), &block, wanted),
            Ok(None) => {
                first_error
                    .get_or_insert_with(|| dir.site().corrupt(extant_base::What::DirectoryHole));
                at = dir.after_hole(LogicalBlock(at))?;
                continue;
            }
            Err(error) => Err(error),
        };
        match found {
            Ok(None) => {}
            Ok(found) => return Ok(found),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
        at += 1;
    }
    first_error.map_or(Ok(None), Err)
}

impl Dir<'_> {
    /// The first block after the hole at `at`.
    pub(super) fn after_hole(&self, at: LogicalBlock) -> Result<u32> {
        let run = self.volume.file(self.body).map(at, self.blocks - at.0)?;
        Ok(run.end().0)
    }
}
