//! Which group to allocate in: from the goal outwards, in the order of the group index.
//!
//! ```text
//!   Near   goal      the goal itself, else the shortest run of its group that holds the request
//!          sure      the next groups whose longest run surely holds it
//!          perhaps   the next groups whose longest run may hold it
//!          shorter   the longest runs there are, half as long with each step
//!   Next   the first free clusters after the goal, however few: a bulk load fills the volume from
//!          front to back and leaves no gap
//!   all    every group is searched, with the preallocations of growing files
//! ```
//!
//! A run of a RAID stripe or more starts at the start of a stripe if possible, see `stripes`.
//!
//! Each step searches the group index, so groups without enough free space are never visited. The
//! entry of a group whose bitmap was not read yet can be too high. One call visits a bounded number
//! of such groups; the last step takes any free cluster. Source: ext4 documentation, "Block and
//! Inode Allocation Policy".

use crate::space::Space;
use crate::space::blocks::{Request, Search};
use crate::space::free_extents::{FreeExtents, Span};
use crate::space::free_space::FreeSpace;
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map, set_block_map_bad};
use crate::space::group_index::{level_of, sure_level};
use crate::space::preallocation::{Hold, Preallocations};
use crate::space::reservations::Allowance;
use crate::space::stripes::Stripes;
use extant_base::narrow::fits_u32;
use extant_base::{Error, GroupNr, Result};
use extant_journal::Handle;
use extant_ondisk::bitmap;
use extant_ondisk::geometry::Geometry;

/// Groups in which one call may find nothing before it accepts any run.
const VISITS: u32 = 64;
/// Clusters that should be free after a held run: the file's next held run goes there.
const SPARE_AFTER_HELD: u32 = 512;

/// A search inside one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pick {
    /// `want` clusters at `goal`; else as [`Pick::Whole`].
    At { goal: u32, want: u32, spare: u32 },
    /// The shortest run that holds `want` clusters and `spare` after them; else the shortest one
    /// for `want`.
    Whole { want: u32, spare: u32 },
    /// The longest run if it has at least `least` clusters, cut to `want`.
    Longest { least: u32, want: u32 },
    /// The first free clusters at or after this one, up to `want`.
    Next(u32, u32),
}

impl Pick {
    /// The result from the free extents. With `stripes`, a whole run starts at a stripe if some run
    /// allows it.
    pub(super) fn from(self, free: &FreeExtents, stripes: Option<Stripes>) -> Option<Span> {
        match self {
            Pick::At { goal, want, spare } => free
                .at(goal, want)
                .filter(|span| span.len == want)
                .or_else(|| Pick::Whole { want, spare }.from(free, stripes)),
            Pick::Whole { want, spare } => {
                whole(want, spare, stripes, |least| free.best_fit(least))
            }
            Pick::Longest { least, want } => {
                free.longest(want).filter(|_| free.longest_len() >= least)
            }
            Pick::Next(place, want) => free.next_from(place, want),
        }
    }

    /// The same result from the bitmap alone, of which the first `clusters` bits count.
    pub(super) fn scan(self, map: &[u8], clusters: u32, stripes: Option<Stripes>) -> Option<Span> {
        let runs = || {
            bitmap::zero_runs(map, 0..clusters)
                .map(|run| Span { start: run.start, len: run.end - run.start })
        };
        let cut = |span: Span, want: u32| Span { len: span.len.min(want), ..span };
        let best = |least| runs().filter(|run| run.len >= least).min_by_key(|run| run.len);
        match self {
            Pick::At { goal, want, spare } => {
                bitmap::next_zero_run(map, goal.min(clusters)..clusters)
                    .map(|run| Span { start: run.start, len: run.end - run.start })
                    .filter(|run| run.start == goal && run.len >= want)
                    .map(|run| cut(run, want))
                    .or_else(|| Pick::Whole { want, spare }.scan(map, clusters, stripes))
            }
            Pick::Whole { want, spare } => {
                whole(want, spare, stripes, |least| best(least).map(|run| cut(run, least)))
            }
            Pick::Longest { least, want } => runs()
                .max_by_key(|run| run.len)
                .filter(|run| run.len >= least)
                .map(|run| cut(run, want)),
            Pick::Next(place, want) => bitmap::next_zero_run(map, place.min(clusters)..clusters)
                .map(|run| cut(Span { start: run.start, len: run.end - run.start }, want)),
        }
    }
}

/// `want` clusters that start at a stripe, with `spare` after them if some run holds both.
/// `best_fit` gives the shortest run of a length, cut to that length. If no run contains the start
/// of a stripe, the clusters start where a run does.
fn whole(
    want: u32,
    spare: u32,
    stripes: Option<Stripes>,
    best_fit: impl Fn(u32) -> Option<Span>,
) -> Option<Span> {
    let with_spare = want.saturating_add(spare);
    if let Some(stripes) = stripes {
        let aligned = |least: u32| {
            let run = best_fit(least)?;
            let start = stripes.next(run.start);
            (start + want <= run.end()).then_some(Span { start, len: want })
        };
        // The shortest run may start at a stripe. A run that is longer by a stripe contains a
        // start.
        let lens = [
            with_spare,
            with_spare.saturating_add(stripes.spare()),
            want.saturating_add(stripes.spare()),
        ];
        if let Some(found) = lens.into_iter().find_map(aligned) {
            return Some(found);
        }
    }
    best_fit(with_spare).map(|run| Span { len: want, ..run }).or_else(|| best_fit(want))
}

/// A search for clusters on behalf of one request.
pub(super) struct GroupSearch<'a> {
    space: &'a FreeSpace,
    preallocations: &'a Preallocations,
    /// Clusters of a stripe.
    stripe: Option<u32>,
    handle: &'a Handle<'a>,
    request: Request,
    want: u32,
    /// The group of the goal.
    first: GroupNr,
    /// The goal in that group.
    bit: u32,
    /// One past the last group that may be used.
    end: u32,
    visits: u32,
    /// The clusters to preallocate after the run that is found.
    hold: Option<Hold>,
    /// The run starts at a stripe if possible.
    on_stripes: bool,
    /// The group's preallocations are released first.
    is_last: bool,
}

impl<'a> GroupSearch<'a> {
    /// A search for up to `want` clusters for `request`.
    pub(super) fn new(
        space: &'a Space,
        handle: &'a Handle<'a>,
        request: &Request,
        want: u32,
    ) -> GroupSearch<'a> {
        let geometry = space.context.geometry();
        let (first, bit) = geometry.bit_of_block(request.goal).unwrap_or((GroupNr(0), 0));
        GroupSearch {
            space: &space.free_space,
            preallocations: &space.preallocations,
            stripe: space.stripe,
            handle,
            request: *request,
            want,
            first,
            bit,
            end: groups_below(geometry, request.below).min(space.free_space.usable_groups()),
            visits: VISITS,
            hold: None,
            on_stripes: false,
            is_last: false,
        }
    }

    /// Takes the clusters from the goal outwards, and holds clusters after them for `hold`. `None`:
    /// it found no free cluster.
    pub(super) fn near_goal(mut self, hold: Option<Hold>) -> Result<Option<(GroupNr, Span)>> {
        self.hold = hold;
        let (first, bit, want) = (self.first, self.bit, self.want);
        if self.request.search == Search::Next {
            return self.in_order();
        }
        let stripes = self.stripes_in(first).filter(|stripes| {
            let held = hold.map_or(0, |hold| hold.spare);
            want.saturating_add(held) > stripes.spare()
        });
        self.on_stripes = stripes.is_some();
        let spare = if self.only_holds() { SPARE_AFTER_HELD } else { 0 };
        let spare = hold.map_or(spare, |hold| hold.spare);
        // The goal of a file's first blocks is one of many good places. Later blocks follow those
        // before them.
        let is_first = self.request.growth.is_some_and(|growth| growth.is_first);
        let at = match stripes {
            Some(stripes) if is_first && stripes.next(bit) != bit => Pick::Whole { want, spare },
            _ => Pick::At { goal: bit, want, spare },
        };
        if first.0 < self.end
            && let Some(span) = self.take_in(first, at)?
        {
            return Ok(Some((first, span)));
        }
        // Groups whose runs also contain the start of a stripe come first.
        let most = want.saturating_add(spare).saturating_add(stripes.map_or(0, Stripes::spare));
        let (with_spare, sure, perhaps) = (sure_level(most), sure_level(want), level_of(want));
        let whole = Pick::Whole { want, spare };
        // Search equal levels once.
        let steps = [
            Some(with_spare),
            (sure < with_spare).then_some(sure),
            (perhaps < sure).then_some(perhaps),
        ];
        let steps = steps.into_iter().flatten().map(|level| (level, whole));
        let shorter = (1..=perhaps).rev().map(|level| {
            let least = 1 << (level - 1);
            (level, Pick::Longest { least, want })
        });
        for (level, pick) in steps.chain(shorter) {
            let found = self.on_level(level, pick)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Takes clusters from any group, whatever the index and the lists say. `None`: no group had a
    /// free cluster when it was searched.
    pub(super) fn anywhere(mut self) -> Result<Option<(GroupNr, Span)>> {
        self.is_last = true;
        for nr in (0..self.end).map(GroupNr) {
            let is_empty = {
                let state = self.space.groups().get(nr).state.lock();
                let kept = state.held.is_kept() || state.pending.spans().next().is_some();
                !kept && self.space.index().level(nr) == Some(0)
            };
            if is_empty {
                continue;
            }
            let pick = Pick::Longest { least: 1, want: self.want };
            if let Some(span) = self.take_in(nr, pick)? {
                return Ok(Some((nr, span)));
            }
        }
        Ok(None)
    }

    /// Whether the run that is found is held and not marked as used.
    fn only_holds(&self) -> bool {
        matches!(self.request.allowance, Allowance::Held { .. })
    }

    /// The stripes of group `nr`; `None` without stripes.
    fn stripes_in(&self, nr: GroupNr) -> Option<Stripes> {
        Stripes::in_group(self.space.context().geometry(), nr, self.stripe?)
    }

    /// Tries the groups of one level once: those after the goal's group first, then those up to it.
    fn on_level(&mut self, level: u8, pick: Pick) -> Result<Option<(GroupNr, Span)>> {
        let middle = (self.first.0 + 1).min(self.end);
        for range in [middle..self.end, 0..middle] {
            let mut at = range.start;
            while let Some(nr) = self.space.next_group_on(level, at..range.end)? {
                // The last level takes any free cluster, so every group may be visited there.
                if self.visits == 0 && level > 1 {
                    return Ok(None);
                }
                if let Some(span) = self.take_in(nr, pick)? {
                    return Ok(Some((nr, span)));
                }
                self.visits = self.visits.saturating_sub(1);
                at = nr.0 + 1;
            }
        }
        Ok(None)
    }

    /// Takes the first free clusters at or after the goal; past the last group it continues at the
    /// first.
    fn in_order(&mut self) -> Result<Option<(GroupNr, Span)>> {
        let (first, want) = (self.first, self.want);
        if first.0 < self.end
            && let Some(span) = self.take_in(first, Pick::Next(self.bit, want))?
        {
            return Ok(Some((first, span)));
        }
        self.on_level(1, Pick::Next(0, want))
    }

    /// Takes what `pick` finds in group `nr`. A damaged group is noted and marked bad, and gives
    /// nothing.
    fn take_in(&self, nr: GroupNr, pick: Pick) -> Result<Option<Span>> {
        let is_out = !self.is_last && self.space.index().level(nr) == Some(0);
        if self.space.groups().get(nr).is_bad(Map::Blocks) || is_out {
            return Ok(None);
        }
        match self.take_from(nr, pick) {
            Err(error @ Error::Corrupt { .. }) => {
                self.space.context().note_error(&error);
                set_block_map_bad(self.space, nr);
                Ok(None)
            }
            taken => taken,
        }
    }

    fn take_from(&self, nr: GroupNr, pick: Pick) -> Result<Option<Span>> {
        let (space, handle) = (self.space, self.handle);
        let blocks = GroupBlocks::fetch(space, nr, Map::Blocks)?;
        let stripes = if self.on_stripes { self.stripes_in(nr) } else { None };
        if blocks.finds_nothing(space, pick, stripes) {
            return Ok(None);
        }
        let mut edit = GroupEdit::begin(space, &blocks, handle)?;
        if self.is_last {
            edit.release_kept();
        }
        let Some(span) = edit.pick(pick, stripes)? else {
            edit.leave(&blocks, handle)?;
            return Ok(None);
        };
        if self.only_holds() {
            edit.take(span);
            edit.state.held.hold_run(span);
            edit.leave(&blocks, handle)?;
            return Ok(Some(span));
        }
        edit.flip(span, true, handle)?;
        edit.take(span);
        let holder = self.hold.filter(|hold| edit.hold_after(span, *hold));
        edit.count_used(span.len);
        edit.finish(&blocks, handle)?;
        if let Some(hold) = holder {
            self.preallocations.note_hold(space, hold.owner, nr);
        }
        Ok(Some(span))
    }
}

/// How many groups end at or before block `below`.
fn groups_below(geometry: &Geometry, below: u64) -> u32 {
    if below >= geometry.blocks_count() {
        return geometry.groups_count();
    }
    let blocks = below.saturating_sub(geometry.first_data_block().0);
    // Fewer groups than the volume has.
    fits_u32(blocks / u64::from(geometry.blocks_per_group()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_at_stripe(span: Span, stripes: Option<Stripes>) -> bool {
        stripes.is_none_or(|stripes| stripes.next(span.start) == span.start)
    }

    #[test]
    fn tree_and_bitmap_give_the_same_answers() {
        const CLUSTERS: u32 = 500;
        let mut seed = 0x5eed_u64;
        for round in 0..300 {
            let mut map = vec![0u8; 64];
            for byte in &mut map {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte =
                    if round % 3 == 0 { (seed >> 33) as u8 } else { ((seed >> 40) & 0x81) as u8 };
            }
            bitmap::fill_padding(&mut map, CLUSTERS);
            let free = FreeExtents::from_bitmap(&map, CLUSTERS);
            let (place, want) = ((seed >> 20) as u32 % CLUSTERS, 1 + (seed >> 50) as u32 % 9);
            let at = free.at(place, want);
            assert_eq!(
                Pick::Next(place, want).from(&free, None),
                Pick::Next(place, want).scan(&map, CLUSTERS, None)
            );
            let len = |span: Option<Span>| span.map(|span| span.len);
            for pick in [
                Pick::At { goal: place, want, spare: 0 },
                Pick::Whole { want, spare: 0 },
                Pick::Whole { want, spare: 20 },
                Pick::Longest { least: 1, want },
                Pick::Longest { least: 30, want },
            ] {
                let (tree, scan) = (pick.from(&free, None), pick.scan(&map, CLUSTERS, None));
                assert_eq!(len(tree), len(scan), "{pick:?}");
                if matches!(pick, Pick::At { .. }) && len(at) == Some(want) {
                    assert_eq!(tree, at);
                    assert_eq!(scan, at);
                }
            }
            let stripes = Stripes::of(place % 7, 7);
            for pick in [Pick::Whole { want, spare: 0 }, Pick::Whole { want, spare: 20 }] {
                let found = [pick.from(&free, stripes), pick.scan(&map, CLUSTERS, stripes)];
                let begins = found.map(|span| span.map(|span| is_at_stripe(span, stripes)));
                assert_eq!(begins[0], begins[1], "{pick:?} {found:?}");
                assert!(found.iter().flatten().all(|span| span.len == want));
                let fits = free.longest_len() >= want + 6;
                assert!(!fits || begins[0] == Some(true), "{pick:?} {found:?}");
            }
        }
    }
}
