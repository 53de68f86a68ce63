//! The orphan records of a volume as they are in memory; `inodes/orphan.rs` describes them.

use extant_base::lock::{Mutex, MutexGuard, Rank};
use extant_base::{BlockNr, Ino, Result};
use extant_journal::{Handle, MetaBlock, MetaMut};
use extant_ondisk::features::Compat;
use extant_ondisk::orphan_file;
use extant_ondisk::superblock::Superblock;
use hashbrown::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The record that names an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OrphanPlace {
    /// None.
    #[default]
    None,
    /// The list.
    List,
    /// A slot of the orphan file.
    File {
        /// Block of the file.
        block: u32,
        /// Slot in it.
        slot: u32,
    },
}

/// The orphan records of one volume.
pub(crate) struct Orphans {
    /// A volume without a journal has no records.
    kept: bool,
    list: Mutex<OrphanList>,
    file: OnceLock<Option<OrphanFile>>,
}

impl Orphans {
    /// The records of a volume whose superblock was `at_open`.
    pub(crate) fn new(at_open: &Superblock) -> Orphans {
        let list = OrphanList { head: at_open.last_orphan, members: HashMap::new() };
        Orphans {
            kept: at_open.features.compat.contains(Compat::HAS_JOURNAL),
            list: Mutex::new(Rank::Orphan, list),
            file: OnceLock::new(),
        }
    }

    /// The list. Locks: takes `Orphan`.
    #[track_caller]
    pub(crate) fn list(&self) -> MutexGuard<'_, OrphanList> {
        self.list.lock()
    }

    /// Whether records are kept at all.
    pub(crate) fn are_kept(&self) -> bool {
        self.kept
    }

    /// The orphan file, which `load` reads when it is first needed.
    pub(crate) fn file(&self, load: impl FnOnce() -> Option<OrphanFile>) -> Option<&OrphanFile> {
        self.file.get_or_init(load).as_ref()
    }

    /// Whether no slot of the orphan file is in use.
    pub(crate) fn file_is_empty(&self) -> bool {
        match self.file.get() {
            Some(Some(file)) => file.blocks.iter().all(|block| block.state.lock().used == 0),
            _ => true,
        }
    }
}

/// The list as it is on disk.
#[derive(Debug, Default)]
pub(crate) struct OrphanList {
    head: u32,
    members: HashMap<u32, Member>,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    newer: Option<Ino>,
    older: u32,
}

impl OrphanList {
    /// The `dtime` of `ino`: its successor on the list.
    pub(crate) fn after(&self, ino: Ino) -> u32 {
        self.members.get(&ino.get()).map_or(0, |member| member.older)
    }

    /// The inode that was put on the list after `ino`.
    pub(crate) fn newer(&self, ino: Ino) -> Option<Ino> {
        self.members.get(&ino.get())?.newer
    }

    /// Puts `ino` at the head of the list.
    pub(crate) fn push(&mut self, ino: Ino) {
        if let Some(next) = self.members.get_mut(&self.head) {
            next.newer = Some(ino);
        }
        self.members.insert(ino.get(), Member { newer: None, older: self.head });
        self.head = ino.get();
    }

    /// Removes `ino` from the list.
    pub(crate) fn take(&mut self, ino: Ino) {
        let Some(gone) = self.members.remove(&ino.get()) else { return };
        if let Some(older) = self.members.get_mut(&gone.older) {
            older.newer = gone.newer;
        }
        match gone.newer.and_then(|newer| self.members.get_mut(&newer.get())) {
            Some(newer) => newer.older = gone.older,
            None => self.head = gone.older,
        }
    }
}

/// The orphan file. Its blocks keep their places while the volume is open.
pub(crate) struct OrphanFile {
    seed: Option<u32>,
    blocks: Box<[FileBlock]>,
    next: AtomicUsize,
}

struct FileBlock {
    nr: BlockNr,
    state: Mutex<FileBlockState>,
}

#[derive(Debug)]
struct FileBlockState {
    used: usize,
    /// No slot below this one is free.
    hint: usize,
}

impl OrphanFile {
    /// A file with these blocks, and how many slots of each are in use. `seed` is the checksum seed
    /// of its inode.
    pub(crate) fn new(seed: Option<u32>, blocks: Vec<(BlockNr, usize)>) -> OrphanFile {
        let block = |(nr, used)| {
            let state = FileBlockState { used, hint: 0 };
            FileBlock { nr, state: Mutex::new(Rank::Orphan, state) }
        };
        let blocks = blocks.into_iter().map(block).collect();
        OrphanFile { seed, blocks, next: AtomicUsize::new(0) }
    }

    /// The volume's block that holds block `index` of the file.
    pub(crate) fn block(&self, index: usize) -> BlockNr {
        self.blocks[index].nr
    }

    /// The file's blocks, in the order in which the caller looks for a free slot. Each call starts
    /// with another block, so that threads rarely meet at one.
    pub(crate) fn block_order(&self) -> impl Iterator<Item = usize> {
        let count = self.blocks.len();
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        (0..count).map(move |n| (start + n) % count)
    }

    /// Writes `ino` into block `index`, if it has a free slot.
    ///
    /// Errors: `Aborted`. Locks: takes `Orphan`.
    pub(crate) fn fill_slot(
        &self,
        handle: &Handle<'_>,
        index: usize,
        block: &MetaBlock,
        ino: Ino,
    ) -> Result<Option<usize>> {
        let at = &self.blocks[index];
        let block_mut = block.write(handle)?;
        let mut state = at.state.lock();
        let slots = orphan_file::slots_per_block(block.read().len());
        if state.used >= slots {
            return Ok(None);
        }
        let mut bytes = block_mut.bytes_mut();
        let free = orphan_file::free_slot_from(&bytes, state.hint);
        let Some(slot) = free else { return Ok(None) };
        orphan_file::set_slot(&mut bytes, slot, Some(ino), at.nr, self.seed);
        state.used += 1;
        state.hint = slot + 1;
        Ok(Some(slot))
    }

    /// Empties a slot of block `index`. Locks: takes `Orphan`.
    pub(crate) fn clear_slot(&self, block: &MetaMut<'_>, index: usize, slot: usize) {
        let at = &self.blocks[index];
        let mut state = at.state.lock();
        orphan_file::set_slot(&mut block.bytes_mut(), slot, None, at.nr, self.seed);
        state.used -= 1;
        state.hint = state.hint.min(slot);
    }
}
