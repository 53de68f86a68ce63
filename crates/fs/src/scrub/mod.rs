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
//! Rule L8: two contents that are both in order are never judged: from each member its own copy stays, and the
//! starts do not agree.
//!
//! Memory goes with what is judged, and that is bounded ([`Options::blocks_max`]): of members that differ
//! in more, each is checked by itself, and nothing is mended.

mod idle;
mod judge;
mod patchwork;
mod roles;

use crate::check::{self, check_device};
use crate::scrub::idle::Idle;
use crate::scrub::judge::{Judge, Start};
use crate::scrub::patchwork::{Patchwork, Piece};
use crate::scrub::roles::Roles;
use extant_base::{ByteOffset, Error, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_raid::{Differences, Mirror};
use std::ops::Range;
use std::sync::Arc;

/// Differing blocks that are judged at most: far more than damage to a device is, and less than 100 MiB
/// of memory.
const BLOCKS_MAX: usize = 1 << 18;

/// How to scrub.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether what differs is mended, and what a crash left is brought in line first.
    pub write: bool,
    /// The member to believe where nothing decides, counted among those in use. What is known to be
    /// damaged on it is not copied all the same.
    pub trust: Option<usize>,
    /// Differing blocks, or entries in them, with which it is given up: 262144 by default.
    pub blocks_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { write: false, trust: None, blocks_max: BLOCKS_MAX }
    }
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

/// Neighbouring blocks that differ still.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// First byte and the one past the last.
    pub range: Range<u64>,
    /// How many they are.
    pub blocks: usize,
    /// It is known which copies are right: nothing was to be changed.
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
    /// There are more than were to be judged: how many is not known, and nothing was mended.
    pub more: bool,
    /// For each member in use: errors that a check of the volume finds which are left when all that can be
    /// taken from another is; with `more`, when nothing is.
    pub errors: Vec<u64>,
    /// The trusted member was not believed: with its copies the volume has more errors than with another's.
    pub trust_refused: bool,
}

/// Compares the members of `mirror`, which nobody else uses, and mends what differs. Where a member is
/// behind, which [`Mirror::places`] tells, it is not compared.
///
/// Errors: `Device`; `ReadOnly` when a mirror that was opened to read is to be mended; those of
/// [`check_device`].
pub fn scrub(mirror: &Arc<Mirror>, options: &Options, progress: Progress<'_>) -> Result<Report> {
    if options.write {
        bring_in_line(mirror, &mut |done, all| progress(Step::BringingInLine, done, all))?;
    }
    let unit = block_bytes(mirror);
    let differing = mirror.compare(unit, options.blocks_max, &mut |done, all| {
        progress(Step::Comparing, done, all);
        true
    })?;
    progress(Step::Judging, 0, 0);
    let members = mirror.places().iter().filter(|place| place.active).count();
    let mut report = Report {
        bytes: mirror.len(),
        members,
        differing_blocks: differing.units,
        ..Report::default()
    };
    let roles = Roles::of(mirror, members).filter(|_| !differing.more);
    let cut = Cut::of(mirror, roles.as_ref(), &differing, unit, options.blocks_max);
    if differing.more || cut.more {
        report.more = true;
        report.errors =
            (0..members).map(|place| errors_of(mirror, place)).collect::<Result<_>>()?;
        let blocks = cut_blocks(&differing, unit);
        blocks.for_each(|(range, _)| report.add_unresolved(range, false));
        return Ok(report);
    }
    let pieces = cut.pieces;
    let mut judge = Judge::new(mirror, roles.as_ref(), &pieces);
    // With nothing to choose all starts are the same.
    let count = if pieces.is_empty() { 1 } else { members };
    let starts = (0..count).map(|place| judge.start(place)).collect::<Result<Vec<_>>>()?;
    report.errors = (0..members).map(|n| starts[n.min(starts.len() - 1)].errors).collect();
    let decided = decide(mirror, options, &pieces, &starts, &mut report);
    drop(starts);
    let blocks = cut_blocks(&differing, unit).map(|(range, _)| range);
    settle(mirror, options, blocks, &pieces, &decided, &mut report)?;
    if options.write {
        mirror.flush()?;
    }
    Ok(report)
}

/// Errors in what the member in `place` holds; 1 if it cannot be checked.
fn errors_of(mirror: &Arc<Mirror>, place: usize) -> Result<u64> {
    let device = Patchwork::of_member(Arc::clone(mirror), place);
    let options = check::Options { findings_limit: 0, ..check::Options::default() };
    match check_device(Arc::new(device), &options, &()) {
        Ok(report) => Ok(report.errors),
        Err(Error::Unsupported { .. } | Error::Device { .. }) => Ok(1),
        Err(error) => Err(error),
    }
}

impl Report {
    fn add_unresolved(&mut self, range: Range<u64>, is_known: bool) {
        match self.unresolved.last_mut() {
            Some(last) if last.range.end == range.start && last.is_known == is_known => {
                last.range.end = range.end;
                last.blocks += 1;
            }
            _ => self.unresolved.push(Difference { range, blocks: 1, is_known }),
        }
    }
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
    let unit = block_bytes(mirror);
    // The source's stay where more differ.
    let differing = mirror.compare_behind(unit, BLOCKS_MAX);
    if let (false, Some(source)) = (differing.ranges.is_empty(), mirror.source()) {
        let members = mirror.places().iter().filter(|place| place.active).count();
        let roles = Roles::of(mirror, members);
        let mut pieces = Cut::of(mirror, roles.as_ref(), &differing, unit, BLOCKS_MAX).pieces;
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

/// What is judged of what differs.
struct Cut {
    pieces: Vec<Piece>,
    /// They are not all.
    more: bool,
}

impl Cut {
    fn of(
        mirror: &Mirror,
        roles: Option<&Roles>,
        differing: &Differences,
        unit: u64,
        pieces_max: usize,
    ) -> Cut {
        let mut pieces = Vec::new();
        for (block, contents) in cut_blocks(differing, unit) {
            if pieces.len() >= pieces_max {
                return Cut { pieces, more: true };
            }
            match roles {
                Some(roles) => roles.cut(mirror, block, contents, &mut pieces),
                None => pieces.push(Piece::whole(block, contents)),
            }
        }
        Cut { pieces, more: false }
    }
}

/// The blocks that differ.
fn cut_blocks(
    differing: &Differences,
    unit: u64,
) -> impl Iterator<Item = (Range<u64>, &Arc<[Option<usize>]>)> {
    differing.ranges.iter().flat_map(move |found| {
        let starts = found.range.clone().step_by(unit as usize);
        let end = found.range.end;
        starts.map(move |at| (at..end.min(at + unit), &found.contents))
    })
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
    blocks: impl Iterator<Item = Range<u64>>,
    pieces: &[Piece],
    decided: &[Option<usize>],
    report: &mut Report,
) -> Result<()> {
    let mut from = 0;
    for block in blocks {
        let here = pieces[from..].iter().take_while(|piece| piece.range.end <= block.end);
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
            false => report.add_unresolved(block, is_known),
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
