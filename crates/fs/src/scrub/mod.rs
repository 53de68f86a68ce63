//! Which of a mirror's copies is right, where they differ: the volume itself is asked.
//!
//! ```text
//!   compare ──► blocks that differ ──► roles.rs: cut where entries have sums of their own
//!                                         │
//!   judge.rs, from each member in turn:   ▼
//!       its copies ──► sums of entries ──► a check ──► a finding on a piece: another's copy of it
//!                                             └──► errors left: parts of the rest from another: fewer?
//!                                         │
//!   every start ends at the same copy ────┴─► that one is right
//!   idle.rs: nothing uses the bytes ────────► any
//!   else ───────────────────────────────────► told, and left; or the trusted member's start
//! ```
//!
//! Two contents that are both in order are never judged: from each member its own copy stays, and the
//! starts do not agree.

mod idle;
mod judge;
mod patchwork;
mod roles;

use crate::scrub::idle::Idle;
use crate::scrub::judge::{Judge, Start};
use crate::scrub::patchwork::{Patchwork, Piece};
use crate::scrub::roles::Roles;
use extant_base::{ByteOffset, Result};
use extant_blockdev::BlockDevice;
use extant_layout::{Comparison, Mirror};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::sync::Arc;

/// How to scrub.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether what differs is mended, and what a crash left is brought in line first.
    pub write: bool,
    /// The member to believe where nothing decides, counted among those in use. What is known to be
    /// damaged on it is not copied all the same.
    pub trust: Option<usize>,
}

/// A part of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// What a crash left is copied; steps are bytes.
    BringingInLine,
    /// All members are read; steps are bytes.
    Comparing,
    /// The volume is checked, as often as that takes.
    Judging,
}

/// Hears which step is how far: done, and of how much, 0 where that is not known.
pub type Progress<'a> = &'a mut dyn FnMut(Step, u64, u64);

/// A block that differs still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its first byte.
    pub at: u64,
    /// It is known which copy is right: nothing was to be changed.
    pub is_known: bool,
}

/// What a scrub found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Bytes of the volume.
    pub bytes: u64,
    /// Members in use.
    pub members: usize,
    /// Blocks in which members differed.
    pub differing_blocks: usize,
    /// Those of them that are the same now.
    pub mended_blocks: usize,
    /// The others.
    pub unresolved: Vec<Difference>,
    /// For each member in use: errors that a check of the volume finds which are left when all that can be
    /// taken from another is.
    pub errors: Vec<u64>,
    /// The trusted member was not believed: with its copies the volume has more errors than with another's.
    pub trust_refused: bool,
}

/// Compares the members of `mirror`, which nobody else uses, and mends what differs.
///
/// Errors: `Device`; `ReadOnly` when a mirror that was opened to read is to be mended; those of
/// [`check_device`](crate::check::check_device).
pub fn scrub(mirror: &Arc<Mirror>, options: &Options, progress: Progress<'_>) -> Result<Report> {
    if options.write {
        bring_in_line(mirror, &mut |done, all| progress(Step::BringingInLine, done, all))?;
    }
    let unit = block_bytes(mirror);
    let differing = mirror.compare(unit, &mut |done, all| {
        progress(Step::Comparing, done, all);
        true
    })?;
    progress(Step::Judging, 0, 0);
    let members = mirror.places().iter().filter(|place| place.active).count();
    let mut report = Report {
        bytes: mirror.len(),
        members,
        differing_blocks: differing.len(),
        ..Report::default()
    };
    let roles = Roles::of(mirror, members);
    let pieces = cut(mirror, roles.as_ref(), &differing);
    let mut judge = Judge::new(mirror, roles.as_ref(), &pieces);
    // With nothing to choose all starts are the same.
    let count = if pieces.is_empty() { 1 } else { members };
    let starts = (0..count).map(|place| judge.start(place)).collect::<Result<Vec<_>>>()?;
    report.errors = (0..members).map(|n| starts[n.min(starts.len() - 1)].errors).collect();
    let decided = decide(mirror, options, &pieces, &starts, &mut report);
    settle(mirror, options, &differing, &pieces, &decided, &mut report)?;
    if options.write {
        mirror.flush()?;
    }
    Ok(report)
}

/// Brings all members of `mirror` in line after a crash, once its log was replayed. What differs is
/// the source's, but where the volume shows that to be damaged and another member's not.
///
/// Errors: `Device` when the source cannot be read.
pub(crate) fn bring_in_line(
    mirror: &Arc<Mirror>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    if mirror.behind_bytes() == 0 {
        return Ok(());
    }
    let differing = mirror.compare_behind(block_bytes(mirror));
    if let (false, Some(source)) = (differing.is_empty(), mirror.source()) {
        let members = mirror.places().iter().filter(|place| place.active).count();
        let roles = Roles::of(mirror, members);
        let mut pieces = cut(mirror, roles.as_ref(), &differing);
        if roles.as_ref().is_some_and(Roles::has_sums) {
            // What was on its way at the end is mostly log, or was never anybody's.
            let choice = vec![source; pieces.len()];
            let device = Patchwork::new(Arc::clone(mirror), &pieces, &choice);
            let idle = Idle::of(Arc::new(device));
            pieces.retain(|piece| !idle.as_ref().is_some_and(|idle| idle.holds(piece)));
        }
        if !pieces.is_empty() {
            // A volume that nobody can check says nothing: the source it is.
            let start = Judge::new(mirror, roles.as_ref(), &pieces).start(source);
            let choice = start.map_or(vec![source; pieces.len()], |start| start.choice);
            for (piece, place) in pieces.iter().zip(choice) {
                if piece.contents[place] != piece.contents[source] {
                    let bytes = read_piece(mirror, piece, place)?;
                    mirror.write_at(ByteOffset(piece.range.start), &bytes)?;
                }
            }
        }
    }
    mirror.resync(&mut |done, all| {
        progress(done, all);
        true
    })?;
    Ok(())
}

fn cut(mirror: &Mirror, roles: Option<&Roles>, differing: &[Comparison]) -> Vec<Piece> {
    let whole = |block: &Comparison| vec![Piece::whole(block)];
    let cut = |block| roles.map_or_else(|| whole(block), |roles| roles.cut(mirror, block));
    differing.iter().flat_map(cut).collect()
}

/// For each piece the place whose copy is taken, if one is.
fn decide(
    mirror: &Arc<Mirror>,
    options: &Options,
    pieces: &[Piece],
    starts: &[Start],
    report: &mut Report,
) -> Vec<Option<usize>> {
    let agreed = |n: usize| {
        let content = |start: &Start| pieces[n].contents[start.choice[n]];
        let first = content(&starts[0]);
        (first.is_some() && starts.iter().all(|start| content(start) == first))
            .then_some(starts[0].choice[n])
    };
    let mut decided: Vec<_> = (0..pieces.len()).map(agreed).collect();
    if decided.iter().all(Option::is_some) {
        return decided;
    }
    // What is used is only known of a volume in order.
    if starts.iter().all(|start| start.ran && start.errors == 0) {
        let idle = starts.iter().map(|start| {
            let device = Patchwork::new(Arc::clone(mirror), pieces, &start.choice);
            Idle::of(Arc::new(device))
        });
        let idle: Vec<_> = idle.collect();
        for (n, piece) in pieces.iter().enumerate().filter(|(n, _)| agreed(*n).is_none()) {
            let is_idle = |idle: &Option<Idle>| idle.as_ref().is_some_and(|idle| idle.holds(piece));
            if idle.iter().all(is_idle) {
                decided[n] = Some(starts[0].choice[n]);
            }
        }
    }
    let Some(trusted) = options.trust.and_then(|place| starts.get(place)) else { return decided };
    if starts.iter().any(|start| start.is_better_than(trusted)) {
        report.trust_refused = decided.iter().any(Option::is_none);
        return decided;
    }
    for (n, place) in decided.iter_mut().enumerate() {
        place.get_or_insert(trusted.choice[n]);
    }
    decided
}

/// Writes what was decided, and counts.
fn settle(
    mirror: &Mirror,
    options: &Options,
    differing: &[Comparison],
    pieces: &[Piece],
    decided: &[Option<usize>],
    report: &mut Report,
) -> Result<()> {
    let mut from = 0;
    for block in differing {
        let here = pieces[from..].iter().take_while(|piece| piece.range.end <= block.range.end);
        let count = here.count();
        let (pieces, decided) = (&pieces[from..from + count], &decided[from..from + count]);
        from += count;
        let is_known = decided.iter().all(Option::is_some);
        if options.write {
            for (piece, place) in pieces.iter().zip(decided) {
                let Some(place) = place else { continue };
                let bytes = read_piece(mirror, piece, *place)?;
                mirror.write_at(ByteOffset(piece.range.start), &bytes)?;
            }
        }
        match options.write && is_known {
            true => report.mended_blocks += 1,
            false => report.unresolved.push(Difference { at: block.range.start, is_known }),
        }
    }
    Ok(())
}

fn read_piece(mirror: &Mirror, piece: &Piece, place: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (piece.range.end - piece.range.start) as usize];
    mirror.read_of(place, piece.range.start, &mut bytes)?;
    Ok(bytes)
}

/// The volume's block size, as far as a member can tell it.
fn block_bytes(mirror: &Mirror) -> u64 {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let count = mirror.places().len();
    let sizes = (0..count).filter_map(|place| {
        mirror.read_of(place, SUPERBLOCK_OFFSET, &mut bytes).ok()?;
        let superblock = RawSuperblock::from_prefix(&bytes)?;
        superblock.check(extant_base::Site::NOWHERE).ok().map(|sb| sb.block_size.bytes() as u64)
    });
    sizes.max().unwrap_or(4096)
}
