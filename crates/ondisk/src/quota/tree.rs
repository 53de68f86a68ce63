//! The tree of a quota file: lookup, insertion, removal and iteration of its entries.
//!
//! ```text
//!   id 0x00_01_86_A0:   root ─[00]─► block ─[01]─► block ─[86]─► block ─[A0]─► leaf ─► its entry
//!
//!   free block  ─► block ─► block          unused, linked by next_free
//!   free entry  ─► leaf  ◄─► leaf          with a free slot, linked both ways
//! ```
//!
//! A block number from the file is used only after a check against the file's count of blocks.

use super::*;
use alloc::collections::{BTreeMap, BTreeSet};
use extant_base::narrow::{len_u8, len_u16};

/// Bytes of a leaf before its entries.
const LEAF_HEAD: usize = size_of::<RawLeafHeader>();

impl QuotaInfo {
    /// Makes an empty quota file in `store`: header and root, two blocks.
    ///
    /// # Errors
    /// The errors of `store`.
    pub fn create(kind: QuotaKind, store: &mut impl QuotaStore) -> Result<QuotaInfo, Error> {
        let info = QuotaInfo {
            kind,
            block_grace: DEFAULT_GRACE,
            inode_grace: DEFAULT_GRACE,
            flags: 0,
            blocks: 2,
            free_block: 0,
            free_entry: 0,
        };
        info.write(store)?;
        store.write(ROOT_BLOCK, &[0; QUOTA_BLOCK])?;
        Ok(info)
    }

    /// Builds a whole quota file in memory. Entries are inserted in the order given, so ascending
    /// ids give the same file each time. If an id occurs twice, its last entry is kept.
    pub fn build(kind: QuotaKind, entries: impl IntoIterator<Item = QuotaEntry>) -> Vec<u8> {
        let mut file = Vec::new();
        let fill = || -> Result<(), Error> {
            let mut info = QuotaInfo::create(kind, &mut file)?;
            entries.into_iter().try_for_each(|entry| info.put(&mut file, &entry))
        };
        fill().expect("a file that was just made is in order, and memory does not fail");
        file
    }

    /// Reads block 0 of a file that has `file_blocks` blocks of 1 KiB.
    ///
    /// # Errors
    /// `QuotaFile`: magic, version, more blocks than the file has, or heads out of range.
    pub fn check(
        bytes: &QuotaBlock,
        kind: QuotaKind,
        file_blocks: u32,
    ) -> Result<QuotaInfo, Error> {
        let (raw, _) = RawQuotaHeader::ref_from_prefix(bytes).expect("a block holds the header");
        if raw.dqh_magic.get() != kind.magic() || raw.dqh_version.get() != 1 {
            return Err(corrupt(0, 0));
        }
        let info = QuotaInfo {
            kind,
            block_grace: raw.dqi_bgrace.get(),
            inode_grace: raw.dqi_igrace.get(),
            flags: raw.dqi_flags.get(),
            blocks: raw.dqi_blocks.get(),
            free_block: raw.dqi_free_blk.get(),
            free_entry: raw.dqi_free_entry.get(),
        };
        if info.blocks <= ROOT_BLOCK || info.blocks > file_blocks {
            return Err(corrupt(0, 0x14));
        }
        if !info.holds(info.free_block) || !info.holds(info.free_entry) {
            return Err(corrupt(0, 0x18));
        }
        Ok(info)
    }

    // Whether `block` is 0, which means none, or lies after the root and inside the file.
    fn holds(&self, block: u32) -> bool {
        block == 0 || (block > ROOT_BLOCK && block < self.blocks)
    }

    fn write(&self, store: &mut impl QuotaStore) -> Result<(), Error> {
        let raw = RawQuotaHeader {
            dqh_magic: self.kind.magic().into(),
            dqh_version: 1.into(),
            dqi_bgrace: self.block_grace.into(),
            dqi_igrace: self.inode_grace.into(),
            dqi_flags: self.flags.into(),
            dqi_blocks: self.blocks.into(),
            dqi_free_blk: self.free_block.into(),
            dqi_free_entry: self.free_entry.into(),
        };
        let mut bytes = [0; QUOTA_BLOCK];
        bytes[..32].copy_from_slice(raw.as_bytes());
        store.write(0, &bytes)
    }

    // The leaf and the slot of the entry of `id`; without an entry, the lowest pointer block that
    // exists on the path to it.
    fn locate(&self, store: &mut impl QuotaStore, id: u32) -> Result<Found, Error> {
        let mut block = ROOT_BLOCK;
        for level in 0..TREE_DEPTH {
            let bytes = store.read(block)?;
            let next = pointer(&bytes, slot_of(id, level));
            if !self.holds(next) {
                return Err(corrupt(block, slot_of(id, level) * 4));
            }
            if next == 0 {
                return Ok(Found::EndsAt { level, block });
            }
            block = next;
        }
        let bytes = store.read(block)?;
        let slot = leaf_entries(&bytes)
            .iter()
            .position(|entry| entry.dqb_id.get() == id && !entry.is_free())
            .ok_or_else(|| corrupt(block, LEAF_HEAD))?;
        Ok(Found::Entry { block, slot })
    }

    /// Usage and limits of `id`, or `None` if the file has no entry for it.
    ///
    /// # Errors
    /// `QuotaFile`, and the errors of `store`.
    pub fn get(&self, store: &mut impl QuotaStore, id: u32) -> Result<Option<QuotaEntry>, Error> {
        Ok(match self.locate(store, id)? {
            Found::EndsAt { .. } => None,
            Found::Entry { block, slot } => Some(leaf_entries(&store.read(block)?)[slot].meaning()),
        })
    }

    /// The place of the entry of `id`: the block, and the byte offset in it. `None` without an
    /// entry.
    ///
    /// # Errors
    /// Those of [`QuotaInfo::get`].
    pub fn place(
        &self,
        store: &mut impl QuotaStore,
        id: u32,
    ) -> Result<Option<(u32, usize)>, Error> {
        Ok(match self.locate(store, id)? {
            Found::EndsAt { .. } => None,
            Found::Entry { block, slot } => Some((block, LEAF_HEAD + slot * ENTRY_LEN)),
        })
    }

    /// Stores usage and limits of `entry.id`, and inserts an entry if the file has none for the id.
    /// Writes one block if the file has an entry, at most 8 for a new one.
    ///
    /// # Errors
    /// `QuotaFile`, `FileTooLarge`, and the errors of `store`.
    pub fn put(&mut self, store: &mut impl QuotaStore, entry: &QuotaEntry) -> Result<(), Error> {
        match self.locate(store, entry.id)? {
            Found::Entry { block, slot } => {
                let mut bytes = store.read(block)?;
                leaf_entries_mut(&mut bytes)[slot] = entry.to_raw();
                store.write(block, &bytes)
            }
            Found::EndsAt { level, block } => {
                // Blocks are allocated from the top down, as other tools do. They are written from
                // the bottom up, so that the path is complete before the write that links its top.
                let mut new = [0; TREE_DEPTH];
                for block in &mut new[level + 1..] {
                    *block = self.allocate_block(store)?;
                }
                let mut child = self.add_to_leaf(store, entry)?;
                for level in (level + 1..TREE_DEPTH).rev() {
                    let mut bytes = [0; QUOTA_BLOCK];
                    set_pointer(&mut bytes, slot_of(entry.id, level), child);
                    store.write(new[level], &bytes)?;
                    child = new[level];
                }
                let mut bytes = store.read(block)?;
                set_pointer(&mut bytes, slot_of(entry.id, level), child);
                store.write(block, &bytes)?;
                self.write(store)
            }
        }
    }

    fn add_to_leaf(
        &mut self,
        store: &mut impl QuotaStore,
        entry: &QuotaEntry,
    ) -> Result<u32, Error> {
        let (leaf, mut bytes) = match self.free_entry {
            0 => {
                let leaf = self.allocate_block(store)?;
                self.free_entry = leaf;
                (leaf, [0; QUOTA_BLOCK])
            }
            leaf => (leaf, store.read(leaf)?),
        };
        let slot = leaf_entries(&bytes)
            .iter()
            .position(RawQuotaEntry::is_free)
            .ok_or_else(|| corrupt(leaf, LEAF_HEAD))?;
        leaf_entries_mut(&mut bytes)[slot] = entry.to_raw();
        let used = leaf_entries(&bytes).iter().filter(|entry| !entry.is_free()).count();
        let header = leaf_header_mut(&mut bytes);
        header.dqdh_entries = len_u16(used).into();
        if used == LEAF_ENTRIES {
            // Now full: remove it from the list of leaves with a free slot. It is the list's head.
            let next = header.dqdh_next_free.get();
            (header.dqdh_next_free, header.dqdh_prev_free) = (0.into(), 0.into());
            if !self.holds(next) || next == leaf {
                return Err(corrupt(leaf, 0));
            }
            if next != 0 {
                let mut other = store.read(next)?;
                leaf_header_mut(&mut other).dqdh_prev_free = 0.into();
                store.write(next, &other)?;
            }
            self.free_entry = next;
        }
        store.write(leaf, &bytes)?;
        Ok(leaf)
    }

    // Allocates an unused block, or the next one past the end. The caller overwrites all of it.
    fn allocate_block(&mut self, store: &mut impl QuotaStore) -> Result<u32, Error> {
        if self.free_block == 0 {
            let block = self.blocks;
            self.blocks = self.blocks.checked_add(1).ok_or(Error::FileTooLarge)?;
            store.write(block, &[0; QUOTA_BLOCK])?;
            return Ok(block);
        }
        let block = self.free_block;
        let next = leaf_header(&store.read(block)?).dqdh_next_free.get();
        if !self.holds(next) || next == block {
            return Err(corrupt(block, 0));
        }
        self.free_block = next;
        Ok(block)
    }

    /// Removes the entry of `id` and every block that becomes empty. Returns whether there was an
    /// entry. Writes at most 11 blocks.
    ///
    /// # Errors
    /// `QuotaFile`, and the errors of `store`.
    pub fn remove(&mut self, store: &mut impl QuotaStore, id: u32) -> Result<bool, Error> {
        let mut way = [ROOT_BLOCK; TREE_DEPTH + 1];
        for level in 0..TREE_DEPTH {
            let slot = slot_of(id, level);
            let next = pointer(&store.read(way[level])?, slot);
            if next == 0 {
                return Ok(false);
            }
            if !self.holds(next) || way[..=level].contains(&next) {
                return Err(corrupt(way[level], slot * 4));
            }
            way[level + 1] = next;
        }
        self.remove_from_leaf(store, way[TREE_DEPTH], id)?;
        for level in (0..TREE_DEPTH).rev() {
            let mut bytes = store.read(way[level])?;
            set_pointer(&mut bytes, slot_of(id, level), 0);
            if level > 0 && bytes.iter().all(|byte| *byte == 0) {
                self.release_block(store, way[level])?;
            } else {
                store.write(way[level], &bytes)?;
                break;
            }
        }
        self.write(store)?;
        Ok(true)
    }

    fn remove_from_leaf(
        &mut self,
        store: &mut impl QuotaStore,
        leaf: u32,
        id: u32,
    ) -> Result<(), Error> {
        let mut bytes = store.read(leaf)?;
        let used = leaf_entries(&bytes).iter().filter(|entry| !entry.is_free()).count();
        let slot = leaf_entries(&bytes)
            .iter()
            .position(|entry| entry.dqb_id.get() == id && !entry.is_free())
            .ok_or_else(|| corrupt(leaf, LEAF_HEAD))?;
        if used == 1 {
            self.unlink_leaf(store, leaf, &bytes)?;
            return self.release_block(store, leaf);
        }
        leaf_entries_mut(&mut bytes)[slot] = RawQuotaEntry::default();
        leaf_header_mut(&mut bytes).dqdh_entries = (len_u16(used) - 1).into();
        if used == LEAF_ENTRIES {
            // It has a free slot now: it becomes the list's head.
            let next = self.free_entry;
            if next == leaf {
                return Err(corrupt(leaf, 0));
            }
            if next != 0 {
                let mut other = store.read(next)?;
                leaf_header_mut(&mut other).dqdh_prev_free = leaf.into();
                store.write(next, &other)?;
            }
            let header = leaf_header_mut(&mut bytes);
            (header.dqdh_next_free, header.dqdh_prev_free) = (next.into(), 0.into());
            self.free_entry = leaf;
        }
        store.write(leaf, &bytes)
    }

    // Removes a leaf from the list of leaves with a free slot. Its neighbours must link to it.
    fn unlink_leaf(
        &mut self,
        store: &mut impl QuotaStore,
        leaf: u32,
        bytes: &QuotaBlock,
    ) -> Result<(), Error> {
        let header = leaf_header(bytes);
        let (next, prev) = (header.dqdh_next_free.get(), header.dqdh_prev_free.get());
        let wrong = || corrupt(leaf, 0);
        if !self.holds(next) || !self.holds(prev) || next == leaf || prev == leaf {
            return Err(wrong());
        }
        let (mut after, mut before) = (None, None);
        if next != 0 {
            let bytes = store.read(next)?;
            (leaf_header(&bytes).dqdh_prev_free.get() == leaf).then_some(()).ok_or_else(wrong)?;
            after = Some(bytes);
        }
        if prev != 0 {
            let bytes = store.read(prev)?;
            (leaf_header(&bytes).dqdh_next_free.get() == leaf).then_some(()).ok_or_else(wrong)?;
            before = Some(bytes);
        } else if self.free_entry != leaf {
            return Err(wrong());
        }
        if let Some(mut bytes) = after {
            leaf_header_mut(&mut bytes).dqdh_prev_free = prev.into();
            store.write(next, &bytes)?;
        }
        match before {
            Some(mut bytes) if prev != next => {
                leaf_header_mut(&mut bytes).dqdh_next_free = next.into();
                store.write(prev, &bytes)
            }
            Some(_) => Err(wrong()),
            None => {
                self.free_entry = next;
                Ok(())
            }
        }
    }

    // Frees a block: it becomes the head of the list of unused blocks.
    fn release_block(&mut self, store: &mut impl QuotaStore, block: u32) -> Result<(), Error> {
        let mut bytes = [0; QUOTA_BLOCK];
        leaf_header_mut(&mut bytes).dqdh_next_free = self.free_block.into();
        store.write(block, &bytes)?;
        self.free_block = block;
        Ok(())
    }

    /// Calls `each` for every entry, by ascending id. A tree with loops or with shared pointer
    /// blocks is an error.
    ///
    /// # Errors
    /// `QuotaFile`, and the errors of `store` and of `each`.
    pub fn for_each(
        &self,
        store: &mut impl QuotaStore,
        mut each: impl FnMut(QuotaEntry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.walk(store, |_, leaf, slot| each(leaf_entries(leaf)[slot].meaning()))
    }

    /// A leaf that has an entry in use to which no path of the tree leads. Linux does not find such
    /// an entry, but tools that read all leaves count it.
    ///
    /// # Errors
    /// Those of [`QuotaInfo::for_each`].
    pub fn stray(&self, store: &mut impl QuotaStore) -> Result<Option<u32>, Error> {
        let mut left = BTreeMap::new();
        self.walk(store, |block, leaf, _| {
            let used = || leaf_entries(leaf).iter().filter(|entry| !entry.is_free()).count();
            *left.entry(block).or_insert_with(used) -= 1;
            Ok(())
        })?;
        Ok(left.into_iter().find(|(_, left)| *left > 0).map(|(block, _)| block))
    }

    // Calls `each` with the leaf, its bytes and the slot of every entry, by ascending id.
    fn walk(
        &self,
        store: &mut impl QuotaStore,
        mut each: impl FnMut(u32, &QuotaBlock, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut seen = BTreeSet::from([ROOT_BLOCK]);
        // The path from the root: pointer block and next slot, per level.
        let mut path = Vec::from([(store.read(ROOT_BLOCK)?, 0usize)]);
        let mut prefix = [0u8; TREE_DEPTH];
        while let Some(level) = path.len().checked_sub(1) {
            let (bytes, slot) = &mut path[level];
            if *slot == 256 {
                path.pop();
                continue;
            }
            let next = pointer(bytes, *slot);
            prefix[level] = len_u8(*slot);
            *slot += 1;
            if next == 0 {
                continue;
            }
            if !self.holds(next) {
                return Err(corrupt(0, 0x14));
            }
            if level + 1 < TREE_DEPTH {
                if !seen.insert(next) {
                    return Err(corrupt(next, 0));
                }
                path.push((store.read(next)?, 0));
            } else {
                let id = u32::from_be_bytes(prefix);
                let leaf = store.read(next)?;
                let slot = leaf_entries(&leaf)
                    .iter()
                    .position(|entry| entry.dqb_id.get() == id && !entry.is_free())
                    .ok_or_else(|| corrupt(next, LEAF_HEAD))?;
                each(next, &leaf, slot)?;
            }
        }
        Ok(())
    }
}

enum Found {
    Entry { block: u32, slot: usize },
    EndsAt { level: usize, block: u32 },
}
