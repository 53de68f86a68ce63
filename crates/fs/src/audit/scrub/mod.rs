//! Deciding which of a mirror's copies is right where they differ, by checks of the volume itself.
//!
//! ```text
//!   compare ──► blocks that differ ──► roles.rs: cut into entries with checksums of their own
//!                                         │
//!   judge.rs, starting from each member:  ▼
//!       its copies ──► checksums of entries ──► a check ──► finding on a piece: try another copy
//!                                             └──► errors left: fewer with others of the rest?
//!                                         │
//!   every start ends at the same content ─┴─► that content is right
//!   idle.rs: nothing uses the bytes ────────► any copy
//!   else ───────────────────────────────────► reported and left; or the trusted member's result
//! ```
//!
//! Rule L8: if two contents are both consistent, none of them is preferred. Each start keeps its
//! own member's copy, so the starts do not agree.
//!
//! Memory grows with the number of pieces, which is limited by [`Options::blocks_max`]. If members
//! differ in more blocks, each member is only checked by itself, and nothing is repaired.

mod composite;
mod idle;
mod judge;
mod roles;

use crate::audit::check::{self, check_device};
use crate::audit::scrub::composite::{CompositeDevice, Piece};
use crate::audit::scrub::idle::Idle;
use crate::audit::scrub::judge::{Judge, Start};
use crate::audit::scrub::roles::Roles;
use crate::progress::{Phase, Progress};
use extant_base::narrow::fits_usize;
use extant_base::{ByteOffset, Error, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_raid::{Differences, Mirror};
use std::ops::Range;
use std::sync::Arc;

/// How many differing blocks are judged at most: far more than a damaged device causes, and less
/// than 100 MiB of memory.
const BLOCKS_MAX: usize = 1 << 18;

/// Options of a scrub.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether differences are repaired; a resync after a crash is then done first.
    pub write: bool,
    /// The member to trust where nothing else decides, as an index among the members in use. Its
    /// copies that are known to be damaged are not used even then.
    pub trust: Option<usize>,
    /// The scrub repairs nothing if there are more differing blocks, or more entries in them, than
    /// this. Default: 262144.
    pub blocks_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { write: false, trust: None, blocks_max: BLOCKS_MAX }
    }
}

/// Adjacent blocks that still differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first byte and the byte after the last.
    pub range: Range<u64>,
    /// The number of blocks.
    pub blocks: usize,
    /// Whether the right copies are known, and only writing was not requested.
    pub is_known: bool,
}

/// The result of a scrub.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The size of the volume in bytes.
    pub bytes: u64,
    /// The number of members in use.
    pub members: usize,
    /// How many blocks differed between members.
    pub differing_blocks: usize,
    /// How many of them are equal now.
    pub repaired_blocks: usize,
    /// The rest of them.
    pub unresolved: Vec<Difference>,
    /// There were more differences than the limit: their number is unknown, and nothing was
    /// repaired.
    pub more: bool,
    /// For each member in use: the errors that a check finds when the member's copies are replaced
    /// wherever another copy is better; with `more`, the errors of its own copies.
    pub errors: Vec<u64>,
    /// The trusted member's copies were not used: with them the volume has more errors than with
    /// another's.
    pub trust_refused: bool,
}

/// Compares the members of `mirror` and repairs differences. No other code may use the mirror. A
/// member that is out of date, as [`Mirror::places`] reports, is not compared.
///
/// # Errors
/// `Device`; `ReadOnly` if repairs are requested on a mirror that is open for reading only; those
/// of [`check_device`].
pub fn scrub(mirror: &Arc<Mirror>, options: &Options, progress: &dyn Progress) -> Result<Report> {
    if options.write {
        make_members_equal(mirror, progress)?;
    }
    let unit = block_bytes(mirror);
    let mut report_progress = reports(progress, Phase::ScrubCompare);
    let differing = mirror.compare(unit, options.blocks_max, &mut report_progress)?;
    progress.begin(Phase::ScrubJudge, 0);
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
    // Without pieces, all starts are the same.
    let count = if pieces.is_empty() { 1 } else { members };
    let starts = (0..count).map(|place| judge.start(place)).collect::<Result<Vec<_>>>()?;
    report.errors = (0..members).map(|n| starts[n.min(starts.len() - 1)].errors).collect();
    let decided = decide(mirror, options, &pieces, &starts, &mut report);
    drop(starts);
    let blocks = cut_blocks(&differing, unit).map(|(range, _)| range);
    apply(mirror, options, blocks, &pieces, &decided, &mut report)?;
    if options.write {
        mirror.flush()?;
    }
    Ok(report)
}

/// Reports how much of `phase` is done, and of how much. It never stops the work.
fn reports(progress: &dyn Progress, phase: Phase) -> impl FnMut(u64, u64) -> bool {
    let mut before = None;
    move |done, total| {
        if before.is_none() {
            progress.begin(phase, total);
        }
        progress.advance(phase, done - before.replace(done).unwrap_or(0));
        true
    }
}

/// The number of errors in the copies of the member at `place`; 1 if they cannot be checked.
fn errors_of(mirror: &Arc<Mirror>, place: usize) -> Result<u64> {
    let device = CompositeDevice::of_member(Arc::clone(mirror), place);
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

/// Makes all members of `mirror` equal after a crash and the replay of its log. The source's copies
/// are used, except where the volume shows that the source's copy is damaged and another member's
/// is not.
///
/// Errors: `Device` if the source cannot be read.
pub(crate) fn make_members_equal(mirror: &Arc<Mirror>, progress: &dyn Progress) -> Result<()> {
    if mirror.out_of_sync_bytes() == 0 {
        return Ok(());
    }
    let unit = block_bytes(mirror);
    // If more blocks than the limit differ, the source's copies are used for the rest.
    let differing = mirror.compare_behind(unit, BLOCKS_MAX);
    if let (false, Some(source)) = (differing.ranges.is_empty(), mirror.source()) {
        let members = mirror.places().iter().filter(|place| place.active).count();
        let roles = Roles::of(mirror, members);
        let mut pieces = Cut::of(mirror, roles.as_ref(), &differing, unit, BLOCKS_MAX).pieces;
        if roles.as_ref().is_some_and(Roles::has_checksums) {
            // Writes in flight at the crash went mostly to the log or to blocks that are not in
            // use.
            let choice = vec![source; pieces.len()];
            let device = CompositeDevice::new(Arc::clone(mirror), &pieces, &choice);
            let idle = Idle::of(Arc::new(device));
            pieces.retain(|piece| !idle.as_ref().is_some_and(|idle| idle.holds(piece)));
        }
        if !pieces.is_empty() {
            // If the volume cannot be checked, the source's copies are used.
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
    mirror.resync(&mut reports(progress, Phase::ScrubResync))?;
    Ok(())
}

/// The pieces of differing blocks to judge.
struct Cut {
    pieces: Vec<Piece>,
    /// The pieces exceed the limit and are incomplete.
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
        let starts = found.range.clone().step_by(fits_usize(unit));
        let end = found.range.end;
        starts.map(move |at| (at..end.min(at + unit), &found.contents))
    })
}

/// For each piece: the member whose copy is used, if that can be decided.
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
    // Which bytes are in use is known only for a volume without errors.
    if starts.iter().all(|start| start.ran && start.errors == 0) {
        let idle = starts.iter().map(|start| {
            let device = CompositeDevice::new(Arc::clone(mirror), pieces, &start.choice);
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

/// Writes the chosen copies, and counts the results.
fn apply(
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
            true => report.repaired_blocks += 1,
            false => report.add_unresolved(block, is_known),
        }
    }
    Ok(())
}

fn read_piece(mirror: &Mirror, piece: &Piece, place: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; fits_usize(piece.range.end - piece.range.start)];
    mirror.read_of(place, piece.range.start, &mut bytes)?;
    Ok(bytes)
}

/// The volume's block size, from any member with a valid superblock.
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
