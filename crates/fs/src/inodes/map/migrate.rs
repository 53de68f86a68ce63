//! Building a file's map again while its blocks stay in place: another kind of map (`chattr +e` and
//! `chattr -e`), or the same kind without gaps.
//!
//! ```text
//!   pointers ──► extents   read the runs ─► build a tree ─► free the pointer blocks ─► store
//!   extents ──► pointers   only one written run within the twelve direct blocks
//! ```
//!
//! One handle makes the whole change: after a crash the file has one map or the other. Source:
//! chattr(1); the errors are Linux's.

use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::extent::{insert, node, truncate};
use crate::inodes::map::used::Used;
use crate::inodes::map::{LOGICAL_END, Target};
use crate::state::inode::Body;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, Error, Result};
use extant_journal::{Credits, Ineligible};
use extant_ondisk::block_map::DIRECT;
use extant_ondisk::extent::{Extent, ExtentState};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{I_BLOCK_SIZE, InodeFlags};

/// Most runs of a file that can get extents.
const RUNS_MAX: usize = 1 << 16;

impl FileMut<'_> {
    /// Gives a file extents if `extents` is true, else pointers.
    ///
    /// Errors: `Invalid` on a volume without extents; `NotSupported` for a file with inline data,
    /// for one that pointers cannot map, and for one with too many runs; `TransactionTooLarge`;
    /// `NoSpace`; `Corrupt`, `Device`. After an error nothing has changed. Locks: the inode's is
    /// held; takes a handle, then `Group`.
    pub(crate) fn migrate(&mut self, extents: bool) -> Result<()> {
        if !self.volume.has_incompat(Incompat::EXTENTS) {
            return Err(Error::Invalid("the volume has no extents"));
        }
        if !self.as_ref().has_map() {
            return Err(Error::NotSupported("a file without blocks has no map"));
        }
        self.volume.space().discard_preallocation(self.ino());
        match extents {
            true => self.volume.space().with_space_retry(|| self.migrate_to_extents()),
            false => self.migrate_to_pointers(),
        }
    }

    fn migrate_to_extents(&mut self) -> Result<()> {
        let (runs, pointers) = self.as_ref().read_pointers()?;
        self.build_tree(&runs, &pointers)
    }

    /// Gives the file a new extent tree with `runs`, and frees the blocks of its old map.
    fn build_tree(&mut self, runs: &[Extent], pointers: &[BlockNr]) -> Result<()> {
        let credits = self.volume.credits().migrate(len_u32(runs.len()), len_u32(pointers.len()));
        let handle = self.volume.journal().start(credits)?;
        self.volume.context().require_full_commit(&handle, Ineligible::Migrate);
        let mut new = self.body.clone();
        self.volume.inodes().init_map(&mut new.disk);
        let made = runs
            .iter()
            .try_for_each(|run| insert::insert(&mut self.volume.file_mut(&mut new), &handle, *run));
        if let Err(error) = made {
            // Free the nodes only: the data still belongs to the file.
            let keep = &mut |_: &mut Body, _: Extent| Ok(());
            let undone = truncate::remove(
                &mut self.volume.file_mut(&mut new),
                &handle,
                0..LOGICAL_END,
                keep,
            );
            self.volume.context().skip_damage(undone)?;
            handle.stop()?;
            return Err(error);
        }
        for block in pointers {
            self.volume
                .context()
                .skip_damage(self.volume.file_mut(&mut new).free_metadata(&handle, *block))?;
        }
        new.synced.map_changed = true;
        *self.body = new;
        self.body.store(self.volume, &handle)?;
        handle.stop()
    }
}

impl FileMut<'_> {
    /// Builds an extent tree again, without the gaps that changes left in its nodes. Does nothing
    /// if the root has all extents, or if the journal is too small for the new tree at once.
    ///
    /// Errors: `Corrupt`, `Device`. Locks: the inode's is held; takes a handle, then `Group`.
    pub(crate) fn repack(&mut self) -> Result<()> {
        if !self.as_ref().has_map()
            || !self.body.disk.has_extents()
            || node::depth(&self.body.disk.i_block) == 0
        {
            return Ok(());
        }
        let Some((runs, nodes)) = self.as_ref().read_extents()? else { return Ok(()) };
        match self.volume.space().with_space_retry(|| self.build_tree(&runs, &nodes)) {
            // The tree stays as it is.
            Err(Error::NoSpace | Error::TransactionTooLarge { .. }) => Ok(()),
            done => done,
        }
    }
}

impl FileRef<'_> {
    /// The extents of a file, joined where they continue each other, and the nodes of its tree.
    /// `None` if there are too many.
    fn read_extents(self) -> Result<Option<(Vec<Extent>, Vec<BlockNr>)>> {
        let (mut runs, mut nodes): (Vec<Extent>, Vec<BlockNr>) = Default::default();
        self.each_block(&mut |used| {
            if let Used::Node(block) = used {
                nodes.push(block);
            }
            Ok(())
        })?;
        for run in self.runs(0..LOGICAL_END) {
            let run = run?;
            let (physical, state) = match run.target {
                Target::Hole => continue,
                Target::Written(block) => (block, ExtentState::Written),
                Target::Unwritten(block) => (block, ExtentState::Unwritten),
            };
            let next = Extent { logical: run.logical, len: run.len, physical, state };
            let is_full = runs.len() == RUNS_MAX;
            match runs.last_mut() {
                Some(last) if last.can_merge(&next) => last.len += next.len,
                _ if is_full => return Ok(None),
                _ => runs.push(next),
            }
        }
        Ok(Some((runs, nodes)))
    }

    /// The runs of a block map, and its pointer blocks.
    fn read_pointers(self) -> Result<(Vec<Extent>, Vec<BlockNr>)> {
        let (mut runs, mut pointers): (Vec<Extent>, Vec<BlockNr>) = Default::default();
        self.each_block(&mut |used| {
            let (logical, physical, len) = match used {
                Used::Node(block) => {
                    pointers.push(block);
                    return Ok(());
                }
                Used::Data { logical, start, len } => (logical, start, len),
            };
            let run = Extent { logical, len, physical, state: ExtentState::Written };
            let is_last = runs.len() == RUNS_MAX;
            match runs.last_mut() {
                Some(last) if last.can_merge(&run) => last.len += len,
                _ if is_last => {
                    return Err(Error::NotSupported("extents for a file in so many runs"));
                }
                _ => runs.push(run),
            }
            Ok(())
        })?;
        Ok((runs, pointers))
    }
}

impl FileMut<'_> {
    fn migrate_to_pointers(&mut self) -> Result<()> {
        let refused =
            || Err(Error::NotSupported("pointers for more than one run of direct blocks"));
        let root = &self.body.disk.i_block;
        if self.volume.geometry().cluster_ratio() > 1
            || node::depth(root) > 0
            || node::entries(root) > 1
        {
            return refused();
        }
        // This checks the map as reading the file does.
        let mut run = None;
        self.as_ref().each_block(&mut |used| {
            run = Some(used);
            Ok(())
        })?;
        let mut new = self.body.clone();
        new.disk.flags.remove(InodeFlags::EXTENTS);
        new.disk.i_block = [0; I_BLOCK_SIZE];
        if let Some(Used::Data { logical, start, len }) = run {
            let is_written = node::extent(root, 0).state == ExtentState::Written;
            let end = start.0 + u64::from(len);
            if !is_written || logical.0 + len > DIRECT || end > 1 << 32 {
                return refused();
            }
            let slots = new.disk.i_block.chunks_exact_mut(4).skip(logical.0 as usize);
            for (slot, block) in slots.zip(fits_u32(start.0)..=fits_u32(end - 1)) {
                slot.copy_from_slice(&block.to_le_bytes());
            }
        }
        if new.disk.size > new.disk.max_size(self.volume.inode_format()) {
            return refused();
        }
        let handle = self.volume.journal().start(Credits::blocks(self.volume.credits().store()))?;
        self.volume.context().require_full_commit(&handle, Ineligible::Migrate);
        new.synced.map_changed = true;
        *self.body = new;
        self.body.store(self.volume, &handle)?;
        handle.stop()
    }
}
