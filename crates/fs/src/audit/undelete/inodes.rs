//! Inodes that were deleted.
//!
//! ```text
//!   inode tables, in parallel ─┬─ directories in use ──► where names were
//!                              └─ deleted, with the rest of a map ──► candidate
//!   old copies of their blocks, newest first: an inode with a name, whose number
//!                              and generation have none now ──► candidate
//!   fast commits: such an inode that no copy has ──► candidate
//! ```

use super::evidence::Evidence;
use super::map::{self, Run};
use super::owner::Owner;
use super::{Candidate, Options, fast_commits};
use crate::parallel;
use crate::progress::{Phase, Progress};
use crate::state::inode::Body;
use crate::tree::dir::read::{Entry, Position};
use extant_base::{BlockNr, GroupNr, Ino, Result, Tid};
use extant_journal::OldCopy;
use extant_ondisk::inode::{self, Inode as DiskInode, InodeFlags};
use hashbrown::HashSet;

/// Bytes of an inode table that are read at a time.
const PIECE: usize = 256 << 10;

/// A directory: in use, or one of the candidates.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Directory {
    Live(Ino),
    Deleted(usize),
}

/// Blocks of a directory.
#[derive(Clone, Copy)]
pub(super) struct DirBlocks {
    pub(super) directory: Directory,
    pub(super) run: Run,
    pub(super) owner: Owner,
}

impl DirBlocks {
    /// Whether this is the directory's first block.
    pub(super) fn is_first(&self, block: BlockNr) -> bool {
        self.run.logical == 0 && self.run.physical == block.0
    }
}

/// What the inode tables have.
#[derive(Default)]
pub(super) struct Found {
    pub(super) candidates: Vec<Candidate>,
    /// Candidates beyond the limit.
    pub(super) not_kept: u64,
    /// Directories' blocks that may have names of deleted files.
    pub(super) dir_blocks: Vec<DirBlocks>,
    /// Directories of which the log has blocks without a tag.
    pub(super) untagged_dirs: Vec<(Directory, Owner)>,
    /// Old contents of directories that lay in their inodes.
    pub(super) inline_dirs: Vec<InlineNames>,
}

/// The names of an inline directory at some time.
pub(super) struct InlineNames {
    pub(super) ino: Ino,
    pub(super) generation: u32,
    pub(super) tid: Tid,
    pub(super) names: Vec<Entry>,
}

impl Found {
    /// Adds a candidate, and returns its index; `None` beyond the limit.
    pub(super) fn add(&mut self, options: &Options, candidate: Candidate) -> Option<usize> {
        if self.candidates.len() >= options.files_limit {
            self.not_kept += 1;
            return None;
        }
        self.candidates.push(candidate);
        Some(self.candidates.len() - 1)
    }

    /// Adds a directory if the log has untagged blocks of it.
    fn add_untagged(&mut self, evidence: &Evidence<'_>, directory: Directory, owner: Owner) {
        if !evidence.untagged.of_directory(owner.seed()).is_empty() {
            self.untagged_dirs.push((directory, owner));
        }
    }
}

pub(super) fn find(
    evidence: &Evidence<'_>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Found> {
    let mut found = Found::default();
    old_copies(evidence, options, progress, &mut found)?;
    let mut known: HashSet<_> = found.candidates.iter().map(Candidate::identity).collect();
    fast_commits::find(evidence, options, &mut known, &mut found)?;
    let groups = evidence.volume.geometry().groups_count();
    progress.begin(Phase::UndeleteTables, groups.into());
    let parts = parallel::each(
        options.threads.clamp(1, 64),
        groups as usize,
        || (Found::default(), vec![0; PIECE.max(evidence.volume.block_size().bytes())]),
        |(part, buffer), group| {
            if let Ok(group) = u32::try_from(group) {
                table(evidence, options, GroupNr(group), buffer, part);
            }
            progress.advance(Phase::UndeleteTables, 1);
        },
    );
    for (part, _) in parts {
        found.not_kept += part.not_kept;
        found.dir_blocks.extend(part.dir_blocks);
        found.untagged_dirs.extend(part.untagged_dirs);
        for candidate in part.candidates {
            if !known.contains(&candidate.identity()) {
                found.add(options, candidate);
            }
        }
    }
    for n in 0..found.candidates.len() {
        if found.candidates[n].body.is_dir() && !found.candidates[n].body.has_inline_data() {
            let map = map::walk(evidence, &found.candidates[n])?;
            let owner = Owner::of(evidence, &found.candidates[n].body);
            let directory = Directory::Deleted(n);
            let blocks = map.runs.into_iter().map(|run| DirBlocks { directory, run, owner });
            found.dir_blocks.extend(blocks);
            found.add_untagged(evidence, directory, owner);
        }
    }
    Ok(found)
}

/// An inode with a name, as far as its slot says.
pub(super) fn has_name(inode: &DiskInode) -> bool {
    inode.links > 0 && inode.dtime == 0 && inode.kind().is_some()
}

/// Whether such an inode is a file that can be used: none of the volume's own, not the value of an
/// attribute, and not encrypted.
pub(super) fn is_file(evidence: &Evidence<'_>, ino: Ino, inode: &DiskInode) -> bool {
    let others = InodeFlags::EA_INODE | InodeFlags::ENCRYPT;
    ino.get() >= evidence.volume.at_open().first_ino
        && !evidence.volume.inodes().is_hidden(ino)
        && !inode.flags.intersects(others)
}

/// Examines the old copies of the blocks of inode tables.
fn old_copies(
    evidence: &Evidence<'_>,
    options: &Options,
    progress: &dyn Progress,
    found: &mut Found,
) -> Result<()> {
    let copies = evidence.history.copies();
    progress.begin(Phase::UndeleteLog, copies.len() as u64);
    for copies in copies.chunk_by(|a, b| a.block == b.block) {
        if let Some(first) = evidence.first_inode_in(copies[0].block) {
            table_block(evidence, options, first, copies, found)?;
        }
        progress.advance(Phase::UndeleteLog, copies.len() as u64);
    }
    Ok(())
}

/// What is known of a slot from newer contents of its block.
#[derive(Clone, Default)]
struct Slot {
    /// Generations that have a name now, or were found already.
    known: Vec<u32>,
    /// The transaction whose copy was examined last, and the time of deletion in it.
    newer: Option<Tid>,
    dtime: u32,
    /// The candidate that was found last: its generation and index.
    candidate: Option<(u32, usize)>,
    /// The bytes of the last inline directory that was examined.
    inline: Option<Box<[u8]>>,
}

/// Examines one block of an inode table: as it is now, and `copies`, newest first.
fn table_block(
    evidence: &Evidence<'_>,
    options: &Options,
    first: Ino,
    copies: &[OldCopy],
    found: &mut Found,
) -> Result<()> {
    let volume = evidence.volume;
    let (format, size) = (volume.inode_format(), volume.geometry().inode_size());
    let mut block = evidence.block_buffer();
    let mut slots = vec![Slot::default(); block.len() / size];
    if evidence.read_now(copies[0].block, &mut block) {
        for (n, (slot, bytes)) in slots.iter_mut().zip(block.chunks_exact(size)).enumerate() {
            let Some(inode) = parse(evidence, first, n, bytes) else { continue };
            match has_name(&inode.1) {
                true => slot.known.push(inode.1.generation),
                false => slot.dtime = inode.1.dtime,
            }
        }
    }
    for copy in copies {
        if !evidence.read_old(copy, &mut block)? {
            continue;
        }
        for (n, (slot, bytes)) in slots.iter_mut().zip(block.chunks_exact(size)).enumerate() {
            let before = slot.newer.replace(copy.tid);
            let Some((ino, inode)) = parse(evidence, first, n, bytes) else {
                slot.dtime = 0;
                continue;
            };
            if !has_name(&inode) {
                slot.dtime = inode.dtime;
                continue;
            }
            if inode.is_dir() && inode.has_inline_data() && slot.inline.as_deref() != Some(bytes) {
                slot.inline = Some(bytes.into());
                let body = Body::read_from(ino, inode.clone(), bytes.into());
                found.inline_dirs.extend(inline_names(evidence, &body, copy.tid));
            }
            if slot.known.contains(&inode.generation) {
                if let Some((_, n)) = slot.candidate.filter(|(of, _)| *of == inode.generation) {
                    found.candidates[n].note_links(inode.links);
                }
                continue;
            }
            slot.known.push(inode.generation);
            if !is_file(evidence, ino, &inode) || inode.check_fields(ino, format).is_err() {
                continue;
            }
            let committed = before.and_then(|tid| evidence.history.committed_at(tid));
            let deleted_at = match slot.dtime {
                0 => committed,
                dtime => Some(u64::from(dtime)),
            };
            let generation = inode.generation;
            let body = Body::read_from(ino, inode, bytes.into());
            let (seen, gone) = (Some(copy.tid), before);
            let candidate = Candidate { seen, gone, deleted_at, ..Candidate::new(body) };
            slot.candidate = found.add(options, candidate).map(|n| (generation, n));
        }
    }
    Ok(())
}

/// The names of an inline directory, as far as they can be read.
pub(super) fn inline_names(evidence: &Evidence<'_>, body: &Body, tid: Tid) -> Option<InlineNames> {
    let mut names = Vec::new();
    let dir = evidence.volume.file(body).dir().ok()?;
    dir.next_batch(&mut Position::default(), |entry| names.extend(entry)).ok()?;
    Some(InlineNames { ino: body.ino(), generation: body.disk.generation, tid, names })
}

/// The inode in a slot, if it is not empty and its checksum is right.
pub(super) fn parse(
    evidence: &Evidence<'_>,
    first: Ino,
    slot: usize,
    bytes: &[u8],
) -> Option<(Ino, DiskInode)> {
    if inode::is_zero_slot(bytes) {
        return None;
    }
    let ino = Ino::new(first.get().checked_add(u32::try_from(slot).ok()?)?)?;
    let inode = DiskInode::parse(bytes, ino, evidence.volume.inode_format()).ok()?;
    Some((ino, inode))
}

/// Examines the inode table of one group as it is now.
fn table(
    evidence: &Evidence<'_>,
    options: &Options,
    group: GroupNr,
    buffer: &mut [u8],
    found: &mut Found,
) {
    let volume = evidence.volume;
    let geometry = volume.geometry();
    let groups = volume.space().groups();
    let Ok(desc) = groups.descriptor(group) else { return };
    let (size, block_bytes) = (geometry.inode_size(), volume.block_size().bytes());
    let used = desc.used_slots(geometry, volume.checksums()) as usize;
    let blocks = (used * size).div_ceil(block_bytes);
    for (n, start) in (0..blocks).step_by(buffer.len() / block_bytes).enumerate() {
        let bytes = (blocks - start).min(buffer.len() / block_bytes) * block_bytes;
        let buffer = &mut buffer[..bytes];
        if !evidence.read_now(BlockNr(desc.inode_table.0 + start as u64), buffer) {
            continue;
        }
        let before = n * (PIECE.max(block_bytes) / size);
        for (k, bytes) in buffer.chunks_exact(size).take(used.saturating_sub(before)).enumerate() {
            // Most slots are files in use, or empty.
            let mode = u16::from_le_bytes([bytes[0], bytes[1]]);
            let links = u16::from_le_bytes([bytes[26], bytes[27]]);
            let is_dir = mode & 0o170_000 == 0o040_000;
            if mode == 0 || (links > 0 && !is_dir) {
                continue;
            }
            let slot = u32::try_from(before + k).ok();
            let Some(first) = slot.and_then(|slot| geometry.ino_of_slot(group, slot)) else {
                return;
            };
            let Some((ino, inode)) = parse(evidence, first, 0, bytes) else { continue };
            let body = Body::read_from(ino, inode, bytes.into());
            match has_name(&body.disk) {
                true => live_directory(evidence, body, found),
                false => remains(evidence, options, body, found),
            }
        }
    }
}

/// Notes the blocks of a directory in use of which the log has copies.
fn live_directory(evidence: &Evidence<'_>, body: Body, found: &mut Found) {
    let ino = body.ino();
    let may_be = ino == Ino::ROOT || ino.get() >= evidence.volume.at_open().first_ino;
    if !may_be || !body.is_dir() || body.has_inline_data() {
        return;
    }
    let owner = Owner::of(evidence, &body);
    let directory = Directory::Live(ino);
    found.add_untagged(evidence, directory, owner);
    let candidate = Candidate::new(body);
    if let Ok(map) = map::walk(evidence, &candidate) {
        let runs = map.runs.into_iter();
        let runs = runs.filter(|run| !evidence.copies_in(run).is_empty());
        found.dir_blocks.extend(runs.map(|run| DirBlocks { directory, run, owner }));
    }
}

/// A deleted inode whose map can be restored from what the deletion left.
fn remains(evidence: &Evidence<'_>, options: &Options, mut body: Body, found: &mut Found) {
    if !is_file(evidence, body.ino(), &body.disk)
        || body.disk.kind().is_none_or(|kind| !kind.is_file() && !kind.is_dir())
        || !body.has_extents()
        || !map::restore_root(evidence, &mut body)
    {
        return;
    }
    let deleted_at = Some(u64::from(body.disk.dtime)).filter(|dtime| *dtime > 0);
    let size_known = false;
    let mut candidate = Candidate { deleted_at, size_known, ..Candidate::new(body) };
    let Ok(map) = map::walk(evidence, &candidate) else { return };
    if let Some(last) = map.runs.last() {
        candidate.body.disk.size = last.end() << evidence.volume.block_size().log2();
        found.add(options, candidate);
    }
}
