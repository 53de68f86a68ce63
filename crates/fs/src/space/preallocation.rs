//! Room kept for files that grow, in memory only.
//!
//! ```text
//!   free extents   ├──────────────────────── free ───────────────────────┤
//!   file 12 grows  │12 12│ held for 12        │13 13│ held for 13 │ free …│
//!   on disk        │used │ free               │used │ free        │ free …│
//! ```
//!
//! A stream (a regular file that has blocks already, or gets more than 16) holds the clusters right
//! behind its last ones, so that several files growing in turns each stay in few pieces; the hold
//! grows with the file up to 8 MiB, or a quarter of a group where that is less. Small files, which
//! get all their blocks at once, share one run a thread, so that they lie side by side and two
//! threads do not interleave theirs. Held clusters are out of the free extents but free on disk: a
//! crash loses none, and when space runs out all holds are let go first. Source: ext4
//! documentation, "Block and Inode Allocation Policy".

use crate::space::Space;
use crate::space::blocks::Request;
use crate::space::free_extents::Span;
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map, release_held};
use extant_base::lock::{Mutex, Rank};
use extant_base::{GroupNr, Ino, Result};
use extant_journal::Handle;
use hashbrown::HashMap;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

/// Files of up to so many blocks share their thread's run.
const SMALL_BLOCKS: u32 = 16;
/// Clusters of a run for small files, at most.
const SMALL_RUN: u32 = 512;
/// Runs for small files: threads beyond share them.
const SMALL_RUNS: u8 = 16;
/// Holds in one group.
const HOLDS_A_GROUP: usize = 64;
/// Streams of one shard that hold something; one more lets another's go.
const STREAMS_A_SHARD: usize = 64;
/// 2^4: the upper bits of a hash choose.
const SHARDS: usize = 16;

/// Who holds clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A growing file.
    Stream(Ino),
    /// The small files of one thread.
    Small(u8),
}

/// What is to be held behind an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) owner: Owner,
    /// Clusters, at most.
    pub(super) room: u32,
}

/// A regular file that gets blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The file.
    pub(crate) ino: Ino,
    /// Blocks up to its end, or to the end of the request where that is further.
    pub(crate) end: u32,
    /// The request begins at the file's first block.
    pub(crate) is_first: bool,
}

/// The held clusters of one group. Guarded by the group's lock.
#[derive(Debug, Default)]
pub(crate) struct Held(
    // In a box, as most groups hold nothing.
    Option<Box<Holds>>,
);

#[derive(Debug, Default)]
struct Holds {
    spans: Vec<(Owner, Span)>,
    /// Clusters that data is being written to, see `held_runs`.
    runs: Vec<Span>,
}

impl Holds {
    fn remove(&mut self, owner: Owner) -> Option<Span> {
        let n = self.spans.iter().position(|(who, _)| *who == owner)?;
        Some(self.spans.swap_remove(n).1)
    }
}

impl Held {
    /// What `owner` holds here.
    pub(super) fn of(&self, owner: Owner) -> Option<Span> {
        let spans = &self.0.as_ref()?.spans;
        spans.iter().find(|(who, _)| *who == owner).map(|&(_, span)| span)
    }

    /// Whether `owner` may hold something here.
    pub(super) fn has_room_for(&self, owner: Owner) -> bool {
        let held = self.0.as_ref().map_or(0, |holds| holds.spans.len());
        held < HOLDS_A_GROUP || self.of(owner).is_some()
    }

    /// Makes `owner` hold `span` instead of what comes back; an empty one is no hold.
    pub(super) fn put(&mut self, owner: Owner, span: Span) -> Option<Span> {
        if span.len == 0 {
            return self.remove(owner);
        }
        let holds = self.0.get_or_insert_default();
        let old = holds.remove(owner);
        holds.spans.push((owner, span));
        old
    }

    /// Lets `owner`'s hold go.
    pub(super) fn remove(&mut self, owner: Owner) -> Option<Span> {
        let old = self.0.as_mut()?.remove(owner);
        self.shrink();
        old
    }

    /// Whether something is kept for files that grow.
    pub(super) fn is_kept(&self) -> bool {
        self.0.as_ref().is_some_and(|holds| !holds.spans.is_empty())
    }

    /// One hold of a file that grows, let go.
    pub(super) fn pop(&mut self) -> Option<Span> {
        let (_, span) = self.0.as_mut()?.spans.pop()?;
        self.shrink();
        Some(span)
    }

    /// Holds `span` for data that is on its way.
    pub(super) fn hold_run(&mut self, span: Span) {
        self.0.get_or_insert_default().runs.push(span);
    }

    /// Holds `span`, a part of one such run, no more; whether it was held.
    pub(super) fn cut(&mut self, span: Span) -> bool {
        let Some(Holds { runs, .. }) = self.0.as_deref_mut() else { return false };
        let holds = |run: &Span| run.start <= span.start && span.end() <= run.end();
        let Some(n) = runs.iter().position(holds) else { return false };
        let run = runs.swap_remove(n);
        let (before, behind) = (run.start..span.start, span.end()..run.end());
        let rest = [before, behind].into_iter().filter(|rest| !rest.is_empty());
        runs.extend(rest.map(|rest| Span { start: rest.start, len: rest.end - rest.start }));
        self.shrink();
        true
    }

    /// All that is held.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.0.iter().flat_map(|holds| {
            holds.spans.iter().map(|&(_, span)| span).chain(holds.runs.iter().copied())
        })
    }

    /// Forgets all holds, where the bitmap was changed beneath them, but for what data is on its way to.
    pub(super) fn clear(&mut self) {
        if let Some(holds) = &mut self.0 {
            holds.spans.clear();
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        self.0 = self.0.take().filter(|holds| !holds.spans.is_empty() || !holds.runs.is_empty());
    }
}

/// Where streams hold something. Alone on its cache lines: neighbours are locked by other threads.
#[derive(Default)]
#[repr(align(128))]
struct Streams(HashMap<u32, GroupNr>);

/// In which group each owner holds something. A hint: the group knows.
pub(crate) struct Preallocations {
    streams: [Mutex<Streams>; SHARDS],
    small: Mutex<[Option<GroupNr>; SMALL_RUNS as usize]>,
}

impl Preallocations {
    pub(crate) fn new() -> Preallocations {
        Preallocations {
            streams: std::array::from_fn(|_| Mutex::new(Rank::Leaf, Streams::default())),
            small: Mutex::new(Rank::Leaf, [None; SMALL_RUNS as usize]),
        }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Streams> {
        // The first inodes of all groups would meet in one shard if the number chose it.
        &self.streams[(ino.get().wrapping_mul(0x9E37_79B9) >> 28) as usize]
    }

    fn group_of(&self, owner: Owner) -> Option<GroupNr> {
        match owner {
            Owner::Stream(ino) => self.shard(ino).lock().0.get(&ino.get()).copied(),
            Owner::Small(run) => self.small.lock()[usize::from(run)],
        }
    }

    fn forget(&self, owner: Owner) -> Option<GroupNr> {
        match owner {
            Owner::Stream(ino) => self.shard(ino).lock().0.remove(&ino.get()),
            Owner::Small(run) => self.small.lock()[usize::from(run)].take(),
        }
    }

    /// Notes that `owner` holds something in `nr`: whose hold elsewhere is to go, and where.
    fn note(&self, owner: Owner, nr: GroupNr) -> Option<(GroupNr, Owner)> {
        match owner {
            Owner::Stream(ino) => {
                let shard = &mut self.shard(ino).lock().0;
                if let Some(old) = shard.insert(ino.get(), nr) {
                    return (old != nr).then_some((old, owner));
                }
                let full = shard.len() > STREAMS_A_SHARD;
                let other =
                    full.then(|| shard.keys().find(|key| **key != ino.get()).copied())??;
                let group = shard.remove(&other)?;
                Some((group, Owner::Stream(Ino::new(other)?)))
            }
            Owner::Small(run) => {
                let old = self.small.lock()[usize::from(run)].replace(nr)?;
                (old != nr).then_some((old, owner))
            }
        }
    }

    fn take_all(&self) -> Vec<(GroupNr, Owner)> {
        let mut all = Vec::new();
        for shard in &self.streams {
            let streams = std::mem::take(&mut *shard.lock());
            let known = |(ino, nr)| Ino::new(ino).map(|ino| (nr, Owner::Stream(ino)));
            all.extend(streams.0.into_iter().filter_map(known));
        }
        let small = std::mem::take(&mut *self.small.lock());
        let known = |(run, nr): (u8, Option<GroupNr>)| nr.map(|nr| (nr, Owner::Small(run)));
        all.extend((0..).zip(small).filter_map(known));
        all
    }
}

/// The run for small files that this thread uses.
fn small_run() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    thread_local! {
        static RUN: Cell<Option<u8>> = const { Cell::new(None) };
    }
    RUN.with(|run| {
        run.get().unwrap_or_else(|| {
            let new = NEXT.fetch_add(1, Ordering::Relaxed) % SMALL_RUNS;
            run.set(Some(new));
            new
        })
    })
}

/// Bytes a file gets at once when it reaches `end_bytes`: its size doubles up to 1 MiB.
fn chunk_bytes(end_bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    match end_bytes.div_ceil(MIB) {
        0..=1 => end_bytes.next_power_of_two().max(64 << 10),
        2..=4 => 2 * MIB,
        5..=8 => 4 * MIB,
        _ => 8 * MIB,
    }
}

impl Space {
    /// What an allocation of `want` clusters should hold behind itself.
    pub(super) fn plan_hold(&self, request: &Request, want: u32) -> Option<Hold> {
        let growth = request.growth.filter(|_| request.below == u64::MAX)?;
        let group = self.context.geometry().clusters_per_group();
        if growth.is_first && growth.end <= SMALL_BLOCKS {
            let room = SMALL_RUN.min(group / 16).saturating_sub(want);
            return Some(Hold { owner: Owner::Small(small_run()), room });
        }
        let size = self.context.block_size();
        let cluster_log2 = size.log2() + self.context.geometry().log_cluster_ratio();
        let chunk = chunk_bytes(u64::from(growth.end) << size.log2()) >> cluster_log2;
        let room = (chunk.min(u64::from(group / 4)) as u32).saturating_sub(want);
        Some(Hold { owner: Owner::Stream(growth.ino), room })
    }

    /// Takes up to `want` clusters out of what `owner` holds, where that is where the request
    /// wants them: right at the goal for a stream, in the goal's flex group for small files.
    pub(super) fn take_held(
        &self,
        handle: &Handle<'_>,
        owner: Owner,
        request: &Request,
        want: u32,
    ) -> Result<Option<(GroupNr, Span)>> {
        let Some(nr) = self.preallocations.group_of(owner) else { return Ok(None) };
        let Some((goal_group, bit)) = self.context.geometry().bit_of_block(request.goal) else {
            return Ok(None);
        };
        let flex = self.context.geometry().groups_per_flex();
        let near = match owner {
            Owner::Stream(_) => nr == goal_group,
            Owner::Small(_) => nr.0 / flex == goal_group.0 / flex,
        };
        if !near || self.group(nr).is_bad(Map::Blocks) {
            return Ok(None);
        }
        let blocks = GroupBlocks::fetch(self, nr, Map::Blocks)?;
        let mut edit = GroupEdit::begin(self, &blocks, handle)?;
        let Some(held) = edit.state.held.of(owner).filter(|held| match owner {
            Owner::Stream(_) => held.start == bit,
            Owner::Small(_) => held.len >= want,
        }) else {
            return Ok(None);
        };
        let span = Span { start: held.start, len: want.min(held.len) };
        edit.check_free(span)?;
        edit.flip(span, true, handle)?;
        edit.state.held.put(owner, Span { start: span.end(), len: held.len - span.len });
        edit.count_used(span.len);
        edit.finish(&blocks, handle)?;
        // Whoever allocates for a stream has its inode locked: nobody notes a hold meanwhile.
        if span.len == held.len && matches!(owner, Owner::Stream(_)) {
            self.preallocations.forget(owner);
        }
        Ok(Some((nr, span)))
    }

    /// Notes that `owner` holds something in `nr` now, and lets its older hold go.
    ///
    /// Locks: takes `Group`.
    pub(super) fn note_hold(&self, owner: Owner, nr: GroupNr) {
        if let Some((other, whose)) = self.preallocations.note(owner, nr) {
            release_held(self, other, whose);
        }
    }

    /// Lets go what is held for `ino`: it was closed, cut or removed. Locks: takes `Group`.
    pub(crate) fn discard_preallocation(&self, ino: Ino) {
        let owner = Owner::Stream(ino);
        if let Some(nr) = self.preallocations.forget(owner) {
            release_held(self, nr, owner);
        }
    }

    /// Lets all holds go; whether there were any. Locks: takes `Group`.
    pub(crate) fn discard_all_preallocations(&self) -> bool {
        let all = self.preallocations.take_all();
        for &(nr, owner) in &all {
            release_held(self, nr, owner);
        }
        !all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gets_more_at_once_as_it_grows() {
        let chunks = [1, 70_000, 1 << 20, (1 << 20) + 1, 5 << 20, 100 << 20].map(chunk_bytes);
        assert_eq!(chunks, [1 << 16, 1 << 17, 1 << 20, 2 << 20, 4 << 20, 8 << 20]);
    }

    #[test]
    fn one_hold_an_owner_and_a_bounded_number_of_streams() {
        let known = Preallocations::new();
        let stream = |n| Owner::Stream(Ino::new(n).unwrap());
        assert_eq!(known.note(stream(16), GroupNr(1)), None);
        assert_eq!(known.note(stream(16), GroupNr(1)), None);
        assert_eq!(known.note(stream(16), GroupNr(2)), Some((GroupNr(1), stream(16))));
        let let_go = (2..2000).filter_map(|n| known.note(stream(16 * n), GroupNr(3))).count();
        let kept = SHARDS * STREAMS_A_SHARD;
        assert_eq!(let_go, 1999 - kept);
        assert_eq!(known.note(Owner::Small(3), GroupNr(7)), None);
        assert_eq!(known.take_all().len(), kept + 1);
        assert_eq!(known.group_of(Owner::Small(3)), None);
    }
}
