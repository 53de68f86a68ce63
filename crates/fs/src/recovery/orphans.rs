//! Orphans: inodes that lost their last name while in use, and truncations that were interrupted.
//!
//! ```text
//!   superblock ─last_orphan─► inode 51 ─dtime─► inode 17 ─dtime─► 0       the list
//!   orphan file, block by block: │ 0 │ 12 │ 0 │ 40 │ …                    the file
//!
//!   links 0 ──► blocks freed a piece at a time, then the inode       links > 0 ──► cut at i_size
//!               └ between pieces the record stays: recovery continues after a power cut
//! ```
//!
//! Rule: an entry that names no inode in use ends the list, because nothing after it can be
//! trusted. The rest of the list is left to a checker, and the volume is marked as having errors.

use crate::inodes::lookup::Lookup;
use crate::inodes::map::LOGICAL_END;
use crate::recovery::RecoveryReport;
use crate::recovery::stage::Stage;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::Credits;
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::inode::FileKind;
use extant_ondisk::orphan_file;
use hashbrown::HashSet;

/// Runs of blocks that are freed in one piece. Each run touches at most two bitmaps and
/// descriptors.
const PIECE_RUNS: usize = 64;

/// Frees or truncates every recorded orphan, and empties the records.
///
/// Errors: `Device`; `Corrupt` only when nothing could be saved. Problems of single entries go into
/// the report.
pub(super) fn process(stage: &mut Stage, report: &mut RecoveryReport) -> Result<()> {
    if stage.volume.at_open().has_errors() {
        // The records may be part of the damage: a checker will find the inodes.
        stage.volume.context().superblock().write().last_orphan = 0;
        return Ok(());
    }
    let list = process_list(stage, report);
    skip_damaged_list(stage, report, list)?;
    if stage.volume.context().superblock().read().last_orphan != 0 {
        stage.volume.context().superblock().write().last_orphan = 0;
    }
    if stage.volume.has_compat(Compat::ORPHAN_FILE) {
        let file = process_file(stage, report);
        skip_damaged_list(stage, report, file)?;
    }
    Ok(())
}

/// Reports damage and continues; returns any other error.
fn skip_damaged_list(stage: &Stage, report: &mut RecoveryReport, done: Result<()>) -> Result<()> {
    match done {
        Err(error @ Error::Corrupt { .. }) => {
            stage.volume.context().note_error(&error);
            report.problems.push(error);
            Ok(())
        }
        done => done,
    }
}

fn process_list(stage: &mut Stage, report: &mut RecoveryReport) -> Result<()> {
    let mut seen = HashSet::new();
    loop {
        let next = stage.volume.context().superblock().read().last_orphan;
        let Some(ino) = Ino::new(next) else { return Ok(()) };
        if !seen.insert(ino) {
            return Err(Site::of_ino(ino).corrupt(What::OrphanList));
        }
        let after = stage.volume.orphan(ino)?.dtime;
        finish_off(stage, report, ino, |volume| {
            volume.context().superblock().write().last_orphan = after
        })?;
        stage.commit_if_large()?;
    }
}

fn process_file(stage: &mut Stage, report: &mut RecoveryReport) -> Result<()> {
    let (entries, seed) = file_entries(&stage.volume)?;
    for (nr, slot, ino) in entries {
        let clear = |volume: &Volume| clear_slot(volume, nr, slot, seed);
        let mut cleared = Ok(());
        let done = stage
            .volume
            .orphan(ino)
            .and_then(|_| finish_off(stage, report, ino, |volume| cleared = clear(volume)));
        if done.is_err() {
            cleared = clear(&stage.volume);
        }
        skip_damaged_list(stage, report, done)?;
        cleared?;
        stage.commit_if_large()?;
    }
    stage.volume.context().superblock().write().features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
    Ok(())
}

/// An entry of the orphan file: block, slot, inode.
type FileEntry = (BlockNr, usize, Ino);

/// All entries of the orphan file, every block checked, and the seed of its blocks.
fn file_entries(volume: &Volume) -> Result<(Vec<FileEntry>, Option<u32>)> {
    let number = volume.at_open().orphan_file_inum;
    let file = Ino::new(number).ok_or(Site::NOWHERE.corrupt(What::OrphanFile))?;
    let inode = volume.inodes().get_internal(file)?;
    let body = inode.read().clone();
    let at = Site::of_ino(file);
    let blocks = body.size >> volume.block_size().log2();
    if body.file_kind() != FileKind::Regular || blocks > u64::from(orphan_file::MAX_BLOCKS) {
        return Err(at.corrupt(What::OrphanFile));
    }
    let seed = body.seed(volume.context());
    let mut entries = Vec::new();
    for logical in 0..fits_u32(blocks) {
        let block = volume.file(&body).content_block(LogicalBlock(logical))?;
        let block = block.ok_or(at.corrupt(What::OrphanFile))?;
        let bytes = block.read();
        let inodes = volume.geometry().inodes_count();
        let slots = orphan_file::check(&bytes, block.nr(), seed, inodes)?;
        entries.extend(slots.map(|(slot, ino)| (block.nr(), slot, ino)));
    }
    Ok((entries, seed))
}

/// Frees slot `slot` in block `nr` of the orphan file.
fn clear_slot(volume: &Volume, nr: BlockNr, slot: usize, seed: Option<u32>) -> Result<()> {
    let block = volume.journal().cache().get(nr)?;
    let handle = volume.journal().start(Credits::blocks(1))?;
    orphan_file::set_slot(&mut block.write(&handle)?.bytes_mut(), slot, None, nr, seed);
    handle.stop()
}

/// The orphan records as they are before fast commits are applied. Fast commits do not contain
/// them.
pub(super) struct OrphanRecords {
    list: Vec<Ino>,
    file: Vec<FileEntry>,
    seed: Option<u32>,
    gone: HashSet<Ino>,
}

impl OrphanRecords {
    /// Reads list and file. Damage ends the list, or makes the file count as empty.
    pub(super) fn read(volume: &Volume, report: &mut RecoveryReport) -> Result<OrphanRecords> {
        let mut records =
            OrphanRecords { list: Vec::new(), file: Vec::new(), seed: None, gone: HashSet::new() };
        if volume.at_open().has_errors() {
            return Ok(records);
        }
        let mut seen = HashSet::new();
        let mut next = Ino::new(volume.at_open().last_orphan);
        while let Some(ino) = next {
            let body = match seen.insert(ino) {
                true => volume.orphan(ino),
                false => Err(Site::of_ino(ino).corrupt(What::OrphanList)),
            };
            match body {
                Ok(body) => next = Ino::new(body.dtime),
                Err(error @ Error::Corrupt { .. }) => {
                    volume.context().note_error(&error);
                    report.problems.push(error);
                    break;
                }
                Err(error) => return Err(error),
            }
            records.list.push(ino);
        }
        if volume.has_compat(Compat::ORPHAN_FILE) {
            match file_entries(volume) {
                Ok((entries, seed)) => (records.file, records.seed) = (entries, seed),
                // Reported when the file is processed.
                Err(Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(records)
    }

    /// Whether a record names the inode.
    pub(super) fn holds(&self, ino: Ino) -> bool {
        !self.gone.contains(&ino)
            && (self.list.contains(&ino) || self.file.iter().any(|entry| entry.2 == ino))
    }

    /// Removes an inode from the records.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.gone.insert(ino);
    }

    /// Rewrites the list, and clears the slots of the inodes that were removed.
    pub(super) fn store(&self, volume: &Volume) -> Result<()> {
        let mut next = 0;
        for ino in self.list.iter().rev().filter(|ino| !self.gone.contains(*ino)) {
            let inode = volume.inodes().get_as(*ino, Lookup::Internal)?;
            let mut body = inode.write();
            if body.dtime != next {
                body.disk.dtime = next;
                let handle = volume.journal().start(Credits::blocks(1))?;
                body.store(volume, &handle)?;
                handle.stop()?;
            }
            next = ino.get();
        }
        volume.context().superblock().write().last_orphan = next;
        for (nr, slot, _) in self.file.iter().filter(|entry| self.gone.contains(&entry.2)) {
            clear_slot(volume, *nr, *slot, self.seed)?;
        }
        Ok(())
    }
}

/// Frees or truncates one orphan. `forget` removes its record in the same transaction.
fn finish_off(
    stage: &mut Stage,
    report: &mut RecoveryReport,
    ino: Ino,
    forget: impl FnOnce(&Volume),
) -> Result<()> {
    let body = stage.volume.orphan(ino)?;
    let freed = body.links == 0;
    if stage.volume.file(&body).has_map() && (freed || body.file_kind() == FileKind::Regular) {
        let size = stage.volume.block_size();
        let keep = match freed {
            true => 0,
            false => u32::try_from(size.blocks_for(body.size)).unwrap_or(LOGICAL_END),
        };
        free_pieces(stage, &body, keep)?;
    }
    let volume = &stage.volume;
    let inode = volume.inodes().get_as(ino, Lookup::Orphan)?;
    {
        let mut body = inode.write();
        let handle = volume.journal().start(Credits::blocks(64))?;
        if freed {
            volume.file_mut(&mut body).release_inode(&handle)?;
        } else {
            if body.file_kind() == FileKind::Regular {
                let size = body.size;
                volume.file_mut(&mut body).truncate(&handle, size)?;
            }
            body.disk.dtime = 0;
            body.store(volume, &handle)?;
        }
        handle.stop()?;
    }
    forget(volume);
    match freed {
        true => report.orphans_freed += 1,
        false => report.orphans_truncated += 1,
    }
    Ok(())
}

/// Frees the blocks from `keep` on, starting at the end, and commits a step when much has changed.
fn free_pieces(stage: &mut Stage, body: &Body, keep: u32) -> Result<()> {
    let mut starts = vec![keep];
    let mut mapped = 0;
    for run in stage.volume.file(body).runs(keep..LOGICAL_END) {
        let run = run?;
        if run.target.block().is_some() {
            mapped += 1;
            if mapped % PIECE_RUNS == 0 {
                starts.push(run.logical.0);
            }
        }
    }
    if mapped == 0 {
        return Ok(());
    }
    // The last piece is freed together with the inode.
    for start in starts.into_iter().rev() {
        let volume = &stage.volume;
        let inode = volume.inodes().get_as(body.ino(), Lookup::Orphan)?;
        {
            let mut body = inode.write();
            let handle = volume.journal().start(Credits::blocks(64))?;
            match body.file_kind() {
                FileKind::Regular => {
                    volume.file_mut(&mut body).unmap(&handle, start..LOGICAL_END)?
                }
                _ => volume.file_mut(&mut body).unmap_content(&handle, start)?,
            }
            body.store(volume, &handle)?;
            handle.stop()?;
        }
        stage.commit_if_large()?;
    }
    Ok(())
}

impl Volume {
    /// The inode that an orphan record names, which must be in use.
    ///
    /// Errors: `OrphanList` when it is not; those of
    /// [`Inodes::get_as`](crate::inodes::Inodes::get_as).
    pub(super) fn orphan(&self, ino: Ino) -> Result<Body> {
        if !self.is_inode_marked(ino)? {
            return Err(Site::of_ino(ino).corrupt(What::OrphanList));
        }
        let inode = self.inodes().get_as(ino, Lookup::Orphan)?;
        let body = inode.read().clone();
        Ok(body)
    }

    /// Whether the inode bitmap marks `ino` as used.
    pub(super) fn is_inode_marked(&self, ino: Ino) -> Result<bool> {
        let place = self.geometry().inode_place(ino);
        let place = place.ok_or_else(|| Site::of_ino(ino).corrupt(What::InodeNumber))?;
        let bitmap = self.space().inode_bitmap(place.group)?;
        let slot = place.slot;
        Ok(bitmap.with(|bytes| extant_ondisk::bitmap::count_set(bytes, slot..slot + 1) == 1))
    }
}
