//! Moving the blocks of an inode out of the part that is removed.
//!
//! ```text
//!   extents   ─► runs to move: copied to free clusters ─► new list ─► new tree ─┐
//!   attribute block, shared or not: one copy, references moved one by one ──────┼─► inode ─► step
//!   pointers  (block map): in place, block by block ────────────────────────────┤
//!   the GNU Hurd's translator: one block ───────────────────────────────────────┘
//! ```
//!
//! With bigalloc, whole clusters move. A cluster that two extents share moves once.

use super::shrink::{CREDITS, Shrink};
use super::tree::joined;
use crate::inodes::map::used::Used;
use crate::inodes::map::{LOGICAL_END, Target};
use crate::state::inode::Body;
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, Ino, Result, Site, What};
use extant_ondisk::extent::{Extent, ExtentState};
use extant_ondisk::features::Compat;
use extant_ondisk::orphan_file;
use extant_ondisk::xattr::BlockHeader;

/// Clusters that moved together: (old first, new first, number).
type Moved = (u64, u64, u64);

impl Shrink<'_> {
    /// Moves all blocks of an inode that are beyond the new end.
    pub(super) fn move_blocks_of(&mut self, ino: Ino) -> Result<()> {
        if ino == Ino::JOURNAL && self.volume.at_open().journal_inum == ino.get() {
            return Ok(());
        }
        let Some(mut body) = self.body(ino)? else { return Ok(()) };
        if let Some(block) = body.disk.file_acl.filter(|block| self.is_past_end(*block)) {
            body.disk.file_acl = Some(self.move_attributes(ino, block)?);
            self.store(&mut body)?;
        }
        if let Some(block) = body.disk.translator.filter(|block| self.is_past_end(*block)) {
            body.disk.translator = Some(self.move_block(ino, block, false)?);
            self.store(&mut body)?;
            self.commit_if_large()?;
        }
        if !self.volume.file(&body).has_map() {
            return self.commit_if_large();
        }
        if body.has_extents() {
            while self.move_extents(&mut body)? {
                self.commit_step()?;
            }
            return self.commit_if_large();
        }
        self.move_pointers(&mut body)
    }

    /// Moves blocks of an inode with extents, a bounded number at a time. Returns whether more are
    /// left.
    fn move_extents(&mut self, body: &mut Body) -> Result<bool> {
        let (extents, nodes) = self.tree_of(body)?;
        let is_past_end = |extent: &Extent| extent.physical_end() > self.end;
        if !extents.iter().any(is_past_end) && !nodes.iter().any(|node| self.is_past_end(*node)) {
            return Ok(false);
        }
        let mut places = Places { budget: self.places_of_a_step(), ..Places::default() };
        let mut moved = Vec::with_capacity(extents.len());
        for extent in extents {
            self.move_extent(extent, &mut places, &mut moved)?;
        }
        let new_nodes = self.write_tree(body, &joined(moved))?;
        let ratio = u64::from(self.volume.geometry().cluster_ratio());
        let change = |n: usize| self.volume.context().sectors(n as u64 * ratio);
        if new_nodes.len() != nodes.len() {
            body.disk.sectors += change(new_nodes.len());
            body.disk.sectors = body.disk.sectors.saturating_sub(change(nodes.len()));
            self.usage_changed = true;
        }
        for (old, new, clusters) in places.moved {
            self.done.moved_blocks += clusters * ratio;
            let first = self.volume.geometry().first_data_block().0;
            let block = |cluster: u64| BlockNr(first + cluster * ratio);
            self.mark_used(block(new), clusters * ratio)?;
            let end = self.volume.geometry().blocks_count();
            self.mark_free(block(old), (clusters * ratio).min(end - block(old).0))?;
        }
        for node in new_nodes {
            self.mark_used(node, 1)?;
        }
        for node in nodes {
            self.mark_free(node, 1)?;
        }
        if self.is_orphan_file(body.ino()) {
            self.renew_orphan_file(body)?;
        }
        self.store(body)?;
        Ok(places.is_spent)
    }

    /// An inode's extents in order, and the nodes of its tree.
    fn tree_of(&self, body: &Body) -> Result<(Vec<Extent>, Vec<BlockNr>)> {
        let mut nodes = Vec::new();
        self.volume.file(body).each_block(&mut |used| {
            if let Used::Node(block) = used {
                nodes.push(block);
            }
            Ok(())
        })?;
        let mut extents = Vec::new();
        for run in self.volume.file(body).runs(0..LOGICAL_END) {
            let run = run?;
            let (physical, state) = match run.target {
                Target::Hole => continue,
                Target::Written(block) => (block, ExtentState::Written),
                Target::Unwritten(block) => (block, ExtentState::Unwritten),
            };
            extents.push(Extent { logical: run.logical, len: run.len, physical, state });
        }
        Ok((extents, nodes))
    }

    /// For how many groups one step may move data: each costs at worst two bitmaps and a descriptor
    /// block.
    fn places_of_a_step(&self) -> usize {
        let limit = self.exclusive.staged.limit().unwrap_or(4096);
        (limit / 16).max(1) as usize
    }

    /// Appends the extent's new location. Parts that need not move keep theirs.
    fn move_extent(
        &mut self,
        extent: Extent,
        places: &mut Places,
        out: &mut Vec<Extent>,
    ) -> Result<()> {
        let ratio = u64::from(self.volume.geometry().cluster_ratio());
        let origin = self.volume.geometry().first_data_block().0;
        let mut left = extent;
        while left.len > 0 {
            let start = left.physical.0;
            if start < self.end {
                // The end is the end of a cluster, so the remaining part shares no cluster with the
                // part to move.
                let stay = fits_u32(u64::from(left.len).min(self.end - start));
                out.push(Extent { len: stay, ..left });
                left = rest_of(left, stay);
                continue;
            }
            let cluster = (start - origin) / ratio;
            let last = (start + u64::from(left.len) - 1 - origin) / ratio;
            let Some((old, new, clusters)) =
                self.place_of(cluster, last - cluster + 1, left.state, places)?
            else {
                out.push(left);
                return Ok(());
            };
            let reach = origin + (old + clusters) * ratio - start;
            let len = fits_u32(u64::from(left.len).min(reach));
            let physical = BlockNr(origin + new * ratio + (start - origin - old * ratio));
            out.push(Extent { len, physical, ..left });
            left = rest_of(left, len);
        }
        Ok(())
    }

    /// The new location of the clusters from `cluster` on, which are copied now if they were not
    /// copied before. `None` if the step has become large.
    fn place_of(
        &mut self,
        cluster: u64,
        want: u64,
        state: ExtentState,
        places: &mut Places,
    ) -> Result<Option<Moved>> {
        let found = places.moved.last();
        if let Some(moved) = found.filter(|(old, _, n)| (*old..old + n).contains(&cluster)) {
            return Ok(Some(*moved));
        }
        if places.moved.len() >= places.budget {
            places.is_spent = true;
            return Ok(None);
        }
        let geometry = self.volume.geometry();
        let (ratio, origin) = (u64::from(geometry.cluster_ratio()), geometry.first_data_block().0);
        // Within one group, so that one move changes one bitmap on each side.
        let per_group = u64::from(geometry.clusters_per_group());
        let want = fits_u32(want.min(per_group - cluster % per_group));
        let (first, got) = self.free.take(want)?;
        let from = BlockNr(origin + cluster * ratio);
        // A cluster may contain written and unwritten blocks, so all of it is copied.
        if state == ExtentState::Written || ratio > 1 {
            let blocks = (u64::from(got) * ratio).min(geometry.blocks_count() - from.0);
            self.copy(from, first, blocks)?;
        }
        let moved = (cluster, (first.0 - origin) / ratio, u64::from(got));
        places.moved.push(moved);
        Ok(Some(moved))
    }

    /// Moves this inode's reference from its attribute block to a copy that remains.
    fn move_attributes(&mut self, ino: Ino, old: BlockNr) -> Result<BlockNr> {
        let at = Site::of_ino(ino).block(old);
        let cache = self.volume.journal().cache();
        let content = cache.get(old)?.read().to_vec();
        let count = BlockHeader::read(&content, at)?.refcount;
        if count == 0 {
            return Err(at.corrupt(What::XattrHeader));
        }
        let seed = self.volume.checksums().seed();
        let update_checksum = |bytes: &mut [u8], refs: u32, nr: BlockNr| {
            BlockHeader::set_refcount(bytes, refs);
            if let Some(seed) = seed {
                BlockHeader::set_checksum(bytes, seed, nr);
            }
        };
        let known = self.attribute_blocks.get(&old).copied();
        let new = match known {
            Some(new) => new,
            None => self.free.take(1)?.0,
        };
        {
            let handle = self.volume.journal().start(CREDITS)?;
            let block = match known {
                Some(new) => cache.get(new)?,
                None => cache.get_new(new)?,
            };
            let refs = match known {
                Some(_) => BlockHeader::read(&block.read(), at)?.refcount + 1,
                None => 1,
            };
            {
                let block = block.write(&handle)?;
                let mut bytes = block.bytes_mut();
                bytes.copy_from_slice(&content);
                update_checksum(&mut bytes, refs, new);
            }
            if count > 1 {
                let left = cache.get(old)?;
                let left = left.write(&handle)?;
                update_checksum(&mut left.bytes_mut(), count - 1, old);
            }
            handle.stop()?;
        }
        if known.is_none() {
            self.mark_used(new, 1)?;
            self.attribute_blocks.insert(old, new);
            self.done.moved_blocks += 1;
        }
        if count == 1 {
            self.mark_free(old, 1)?;
        }
        Ok(new)
    }

    /// Whether this is the orphan file.
    pub(super) fn is_orphan_file(&self, ino: Ino) -> bool {
        self.volume.has_compat(Compat::ORPHAN_FILE)
            && ino.get() == self.volume.at_open().orphan_file_inum
    }

    /// Computes all checksums of the orphan file again.
    fn renew_orphan_file(&self, body: &Body) -> Result<()> {
        let seed = body.seed(self.volume.context());
        let blocks = body.disk.size >> self.volume.block_size().log2();
        let blocks = u32::try_from(blocks).unwrap_or(LOGICAL_END);
        for run in self.volume.file(body).runs(0..blocks) {
            let run = run?;
            if let Some(first) = run.target.block() {
                self.renew_orphan_blocks(first, run.len, seed)?;
            }
        }
        Ok(())
    }

    /// Writes blocks of the orphan file, whose checksums include their block numbers. All of them
    /// are empty.
    pub(super) fn renew_orphan_blocks(
        &self,
        first: BlockNr,
        count: u32,
        seed: Option<u32>,
    ) -> Result<()> {
        let handle = self.volume.journal().start(CREDITS)?;
        for n in 0..u64::from(count) {
            let nr = BlockNr(first.0 + n);
            let block = self.volume.journal().cache().get_new(nr)?;
            let block = block.write(&handle)?;
            orphan_file::init(&mut block.bytes_mut(), nr, seed);
        }
        handle.stop()
    }
}

/// Where one step moves clusters.
#[derive(Default)]
struct Places {
    moved: Vec<Moved>,
    /// The maximum number of moves.
    budget: usize,
    /// There are more to move.
    is_spent: bool,
}

fn rest_of(extent: Extent, len: u32) -> Extent {
    Extent {
        logical: extant_base::LogicalBlock(extent.logical.0 + len),
        physical: BlockNr(extent.physical.0 + u64::from(len)),
        len: extent.len - len,
        state: extent.state,
    }
}
