//! Starting from one member's copies, finding copies with which the volume is consistent.
//!
//! ```text
//!   1  entries with a wrong checksum, right in another copy    that copy is used
//!   2  pieces with a finding on them                           another copy; undone if bad, too
//!   3  errors are left: all other pieces from another member
//!        the same findings ──► none of them matters            the search ends here
//!        else ──► each half alone ──► … ──► one piece: used if there are fewer errors
//! ```

use super::composite::{CompositeDevice, Piece};
use super::roles::Roles;
use crate::audit::check::{Finding, Options, Severity, check_device};
use extant_base::narrow::fits_usize;
use extant_base::{Error, Result, What};
use extant_raid::Mirror;
use std::sync::Arc;

/// How many checks of the whole volume one start may make. What is undecided after them stays so.
const CHECKS_MAX: u32 = 128;
/// How many findings of one check are kept.
const FINDINGS_MAX: usize = 1 << 16;

/// The result of starting with one member's copies.
pub(super) struct Start {
    /// For each piece: the member whose copy is used.
    pub(super) choice: Vec<usize>,
    /// Whether the volume can be checked with these copies.
    pub(super) ran: bool,
    /// How many errors are left.
    pub(super) errors: u64,
}

impl Start {
    pub(super) fn is_better_than(&self, other: &Start) -> bool {
        (!self.ran, self.errors) < (!other.ran, other.errors)
    }
}

/// The result of a check with one choice of copies.
struct Checked {
    ran: bool,
    /// Errors, plus backup superblocks that are wrong.
    wrong: u64,
    errors: u64,
    findings: Vec<Finding>,
}

impl Checked {
    fn is_better_than(&self, other: &Checked) -> bool {
        (!self.ran, self.wrong) < (!other.ran, other.wrong)
    }

    fn is_same(&self, other: &Checked) -> bool {
        self.ran == other.ran && self.wrong == other.wrong && self.findings == other.findings
    }
}

pub(super) struct Judge<'a> {
    mirror: &'a Arc<Mirror>,
    roles: Option<&'a Roles>,
    pieces: &'a [Piece],
    options: Options,
    checks_left: u32,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        mirror: &'a Arc<Mirror>,
        roles: Option<&'a Roles>,
        pieces: &'a [Piece],
    ) -> Judge<'a> {
        let within = pieces.iter().map(|piece| piece.range.clone()).collect();
        let options = Options {
            findings_limit: FINDINGS_MAX,
            data: !pieces.is_empty(),
            data_within: Some(within),
            ..Options::default()
        };
        Judge { mirror, roles, pieces, options, checks_left: 0 }
    }

    /// Starts with the copies of the member at `place`.
    ///
    /// Errors: `Unsupported` for a volume that cannot be checked with any copies; `Device`.
    pub(super) fn start(&mut self, place: usize) -> Result<Start> {
        self.checks_left = CHECKS_MAX;
        let first = |piece: &Piece| match piece.contents[place] {
            Some(_) => place,
            None => piece.contents.iter().position(Option::is_some).unwrap_or(place),
        };
        let mut choice: Vec<usize> = self.pieces.iter().map(first).collect();
        self.use_right_checksums(&mut choice);
        let mut best = self.check(&choice)?;
        self.use_undamaged_copies(&mut choice, &mut best)?;
        for other in 0..self.mirror.places().len() {
            let differs = |n: &usize| {
                let contents = &self.pieces[*n].contents;
                contents.get(other).is_some_and(|c| c.is_some() && *c != contents[choice[*n]])
            };
            let rest: Vec<usize> = (0..self.pieces.len()).filter(differs).collect();
            self.improve(&mut choice, &mut best, &rest, other)?;
        }
        Ok(Start { choice, ran: best.ran, errors: best.errors })
    }

    /// Uses those copies of entries that are better by their own checksums.
    fn use_right_checksums(&self, choice: &mut [usize]) {
        let Some(roles) = self.roles else { return };
        for (piece, chosen) in self.pieces.iter().zip(choice) {
            let worth = |place: usize| {
                let mut bytes = vec![0; fits_usize(piece.range.end - piece.range.start)];
                piece.contents[place]?;
                self.mirror.read_of(place, piece.range.start, &mut bytes).ok()?;
                Some(roles.worth(piece.role, &bytes))
            };
            let mut held = worth(*chosen);
            for place in 0..piece.contents.len() {
                let found = worth(place);
                if found > held {
                    (held, *chosen) = (found, place);
                }
            }
        }
    }

    /// Uses another member's copy of each piece that has a finding, if the other copy has none.
    fn use_undamaged_copies(&mut self, choice: &mut Vec<usize>, best: &mut Checked) -> Result<()> {
        let members = self.pieces.first().map_or(0, |piece| piece.contents.len());
        let mut tried = vec![0u64; self.pieces.len()];
        loop {
            let named = self.named(best);
            let mut next = choice.clone();
            let mut taken = Vec::new();
            for n in named {
                let contents = &self.pieces[n].contents;
                tried[n] |= 1 << choice[n];
                let is_new = |place: &usize| {
                    tried[n] & 1 << place == 0
                        && contents[*place].is_some()
                        && contents[*place] != contents[choice[n]]
                };
                if let Some(place) = (0..members).find(is_new) {
                    tried[n] |= 1 << place;
                    next[n] = place;
                    taken.push(n);
                }
            }
            if taken.is_empty() || self.checks_left < 2 {
                return Ok(());
            }
            let mut seen = self.check(&next)?;
            let named = self.named(&seen);
            let is_named = |n: &usize| named.binary_search(n).is_ok();
            let back: Vec<usize> = taken.iter().copied().filter(is_named).collect();
            if !back.is_empty() && seen.ran {
                back.iter().for_each(|n| next[*n] = choice[*n]);
                seen = self.check(&next)?;
            }
            if seen.ran || !best.ran {
                (*choice, *best) = (next, seen);
            }
        }
    }

    /// Uses those pieces of `set` from `place` that reduce the number of errors.
    fn improve(
        &mut self,
        choice: &mut Vec<usize>,
        best: &mut Checked,
        set: &[usize],
        place: usize,
    ) -> Result<()> {
        if set.is_empty() || self.checks_left == 0 || best.ran && best.wrong == 0 {
            return Ok(());
        }
        let mut next = choice.clone();
        set.iter().for_each(|n| next[*n] = place);
        let seen = self.check(&next)?;
        if seen.is_same(best) {
            return Ok(());
        }
        if set.len() == 1 {
            if seen.is_better_than(best) {
                (*choice, *best) = (next, seen);
            }
            return Ok(());
        }
        let (left, right) = set.split_at(set.len() / 2);
        self.improve(choice, best, left, place)?;
        self.improve(choice, best, right, place)
    }

    fn check(&mut self, choice: &[usize]) -> Result<Checked> {
        self.checks_left = self.checks_left.saturating_sub(1);
        let device = CompositeDevice::new(Arc::clone(self.mirror), self.pieces, choice);
        let report = match check_device(Arc::new(device), &self.options, &()) {
            Ok(report) => report,
            // A damaged superblock can cause any error, and so can one that replaces it.
            Err(Error::Unsupported { .. } | Error::Device { .. }) if !self.pieces.is_empty() => {
                let findings = Vec::new();
                return Ok(Checked { ran: false, wrong: u64::MAX, errors: 1, findings });
            }
            Err(error) => return Err(error),
        };
        let is_copy = |found: &Finding| found.what == What::Backup;
        let mut findings = report.findings;
        findings.retain(|found| found.severity == Severity::Error || is_copy(found));
        let copies = findings.iter().filter(|found| is_copy(found)).count() as u64;
        Ok(Checked {
            ran: report.ran,
            wrong: report.errors + copies,
            errors: report.errors,
            findings,
        })
    }

    /// The pieces on which findings are, in ascending order.
    fn named(&self, checked: &Checked) -> Vec<usize> {
        let mut named: Vec<usize> =
            checked.findings.iter().flat_map(|found| self.pieces_of(found)).collect();
        named.sort_unstable();
        named.dedup();
        named
    }

    fn pieces_of(&self, found: &Finding) -> std::ops::Range<usize> {
        let Some(roles) = self.roles else { return 0..0 };
        let size = roles.geometry.block_size();
        let bytes = match (found.at.block, found.at.ino, found.at.group) {
            (Some(block), _, _) => {
                let start = size.start_of(block).0;
                Some(start..start.saturating_add(size.bytes() as u64))
            }
            (None, Some(ino), _) => roles.place_of_inode(ino).map(|at| at..at + 1),
            (None, None, Some(group)) => roles.place_of_descriptor(group).map(|at| at..at + 1),
            (None, None, None) => Some(1024..2048),
        };
        let Some(bytes) = bytes else { return 0..0 };
        let first = self.pieces.partition_point(|piece| piece.range.end <= bytes.start);
        let last = self.pieces.partition_point(|piece| piece.range.start < bytes.end);
        first..last.max(first)
    }
}
