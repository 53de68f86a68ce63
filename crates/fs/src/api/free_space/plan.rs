//! Which pieces of files of one group move where, so that its free space gets fewer and longer
//! runs.
//!
//! ```text
//!   before   │aa..bbb.....ccc.dd....ee│      pieces from the last to the first:
//!   ee ──►   │aaeebbb.....ccc.dd......│      an exact hole: one run less
//!   dd ──►   │aaeebbbdd...ccc.........│      two runs become one
//!   after    │aaeebbbddccc............│
//! ```
//!
//! A piece moves if there are fewer free runs afterwards, or if as many are left and free space
//! went from a shorter run to a longer one.

use crate::space::free_extents::{FreeExtents, Span};
use extant_base::{Ino, LogicalBlock};

/// A piece of a file in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupPiece {
    /// Its blocks, from the group's start.
    pub(super) span: Span,
    /// Which file it belongs to.
    pub(super) owner: (Ino, LogicalBlock),
}

/// The free runs of a group as they are after the moves so far.
pub(super) struct GroupPlan {
    free: FreeExtents,
}

impl GroupPlan {
    pub(super) fn new(runs: impl IntoIterator<Item = Span>) -> GroupPlan {
        let mut free = FreeExtents::default();
        runs.into_iter().for_each(|run| free.release(run));
        GroupPlan { free }
    }

    /// Whether no move can improve anything.
    pub(super) fn is_done(&self) -> bool {
        self.free.runs() <= 1
    }

    /// Where to move a piece, if that improves the free space. The plan then has it there.
    pub(super) fn place(&mut self, piece: Span) -> Option<Span> {
        // On a damaged volume a file may have blocks that are free, or those of another file.
        if self.free.next_from(piece.start, 1).is_some_and(|free| free.start < piece.end()) {
            return None;
        }
        let whole = self.free.best_fit(piece.len)?;
        let run = self.free.containing(whole.start)?;
        let before = self.free.runs();
        self.free.take(whole);
        self.free.release(piece);
        let after = self.free.runs();
        let joined = self.free.containing(piece.start);
        let grows = joined.is_some_and(|joined| joined.len > run.len);
        if after < before || (after == before && grows) {
            return Some(whole);
        }
        self.undo(piece, whole);
        None
    }

    /// Takes a move back that was not made.
    pub(super) fn undo(&mut self, piece: Span, to: Span) {
        self.free.take(piece);
        self.free.release(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u32, len: u32) -> Span {
        Span { start, len }
    }

    fn runs(plan: &GroupPlan) -> Vec<Span> {
        let mut all = Vec::new();
        let mut at = 0;
        while let Some(run) = plan.free.next_from(at, u32::MAX) {
            at = run.end();
            all.push(run);
        }
        all
    }

    #[test]
    fn pieces_fill_holes_and_the_end_becomes_free() {
        // aa..bbb.....ccc.dd....ee
        let mut plan = GroupPlan::new([span(2, 2), span(7, 5), span(15, 1), span(18, 4)]);
        assert_eq!(plan.place(span(22, 2)), Some(span(2, 2)));
        assert_eq!(runs(&plan), [span(7, 5), span(15, 1), span(18, 6)]);
        assert_eq!(plan.place(span(16, 2)), Some(span(7, 2)));
        assert_eq!(runs(&plan), [span(9, 3), span(15, 9)]);
        assert_eq!(plan.place(span(12, 3)), Some(span(9, 3)));
        assert_eq!(runs(&plan), [span(12, 12)]);
        assert!(plan.is_done());
    }

    #[test]
    fn a_move_that_makes_more_runs_is_not_made() {
        // A piece between used blocks, and a hole that it does not fill.
        let mut plan = GroupPlan::new([span(0, 5)]);
        assert_eq!(plan.place(span(10, 3)), None);
        assert_eq!(runs(&plan), [span(0, 5)]);
        // It fits nowhere.
        assert_eq!(plan.place(span(10, 6)), None);
    }

    #[test]
    fn free_space_goes_to_the_longer_run_only() {
        let mut plan = GroupPlan::new([span(0, 4), span(13, 20)]);
        assert_eq!(plan.place(span(10, 3)), Some(span(0, 3)), "next to the long run");
        let mut plan = GroupPlan::new([span(0, 40), span(53, 2)]);
        assert_eq!(plan.place(span(50, 3)), None, "next to the short run");
    }

    #[test]
    fn a_piece_whose_blocks_are_free_stays() {
        let mut plan = GroupPlan::new([span(0, 4), span(12, 20)]);
        assert_eq!(plan.place(span(10, 3)), None);
        assert_eq!(plan.place(span(9, 3)), Some(span(0, 3)));
        assert_eq!(plan.place(span(9, 3)), None, "another file has the same blocks");
    }

    #[test]
    fn random_plans_never_add_runs() {
        let mut seed = 11_u64;
        let mut next = |below: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as u32 % below
        };
        for _ in 0..200 {
            let (mut free, mut pieces, mut at) = (Vec::new(), Vec::new(), 0);
            while at < 500 {
                let len = 1 + next(9);
                match next(3) {
                    0 if free.last().is_none_or(|run: &Span| run.end() < at) => {
                        free.push(span(at, len));
                    }
                    1 => pieces.push(span(at, len)),
                    _ => {}
                }
                at += len;
            }
            let mut plan = GroupPlan::new(free.iter().copied());
            let total: u32 = free.iter().map(|run| run.len).sum();
            for piece in pieces.iter().rev() {
                let before = runs(&plan).len();
                plan.place(*piece);
                assert!(runs(&plan).len() <= before);
                assert_eq!(runs(&plan).iter().map(|run| run.len).sum::<u32>(), total);
            }
        }
    }
}
