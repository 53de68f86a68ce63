//! Preallocation for growing files, in memory only.
//!
//! ```text
//!   free extents   ├──────────────────────── free ───────────────────────┤
//!   file 12 grows  │12 12│ held for 12        │13 13│ held for 13 │ free …│
//!   on disk        │used │ free               │used │ free        │ free …│
//! ```
//!
//! A stream (a regular file that has blocks already, or gets more than 16) holds the clusters right
//! after its last ones. So several files that grow at the same time each stay in few pieces. The
//! hold grows with the file up to 8 MiB, or to a quarter of a group if that is less. Small files,
//! which get all their blocks at once, share one run for each thread: they lie side by side, and
//! the files of two threads do not mix. Held clusters are not in the free extents but are free on
//! disk. So a crash loses none, and when space runs out all holds are released first. Source: ext4
//! documentation, "Block and Inode Allocation Policy".

use crate::context::Context;
use crate::space::blocks::Request;
use crate::space::free_extents::Span;
use crate::space::free_space::FreeSpace;
use crate::space::group_edit::{GroupBlocks, GroupEdit, Map, release_preallocation};
use extant_base::lock::{Mutex, Rank};
use extant_base::narrow::fits_u32;
use extant_base::{GroupNr, Ino, Result};
use extant_journal::Handle;
use hashbrown::HashMap;
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

/// Files of up to this many blocks share their thread's run.
const SMALL_BLOCKS: u32 = 16;
/// Most clusters of a run for small files.
const SMALL_RUN: u32 = 512;
/// Runs for small files. More threads than this share them.
const SMALL_RUNS: u8 = 16;
/// Most holds in one group.
const HOLDS_A_GROUP: usize = 64;
/// Streams of one shard with a hold. One more stream releases the hold of another.
const STREAMS_A_SHARD: usize = 64;
/// 2^4: the upper bits of a hash select the shard.
const SHARDS: usize = 16;

/// The owner of held clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A growing file.
    Stream(Ino),
    /// The small files of one thread.
    Small(u8),
}

/// The clusters to hold after an allocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) owner: Owner,
    /// Most clusters to hold.
    pub(super) spare: u32,
}

impl Hold {
    /// The clusters to hold after an allocation of `want` clusters.
    pub(super) fn after(context: &Context, request: &Request, want: u32) -> Option<Hold> {
        let growth = request.growth.filter(|_| request.below == u64::MAX)?;
        let group = context.geometry().clusters_per_group();
        if growth.is_first && growth.end <= SMALL_BLOCKS {
            let spare = SMALL_RUN.min(group / 16).saturating_sub(want);
            return Some(Hold { owner: Owner::Small(small_run()), spare });
        }
        let size = context.block_size();
        let cluster_log2 = size.log2() + context.geometry().log_cluster_ratio();
        let chunk = chunk_bytes(u64::from(growth.end) << size.log2()) >> cluster_log2;
        let spare = fits_u32(chunk.min(u64::from(group / 4))).saturating_sub(want);
        Some(Hold { owner: Owner::Stream(growth.ino), spare })
    }
}

/// The growth of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The file.
    pub(crate) ino: Ino,
    /// Blocks up to the file's end, or up to the end of the request if that is further.
    pub(crate) end: u32,
    /// The request begins at the file's first block.
    pub(crate) is_first: bool,
}

/// The held clusters of one group. Guarded by the group's lock.
#[derive(Debug, Default)]
pub(crate) struct Held(
    // Boxed, because most groups hold nothing.
    Option<Box<Holds>>,
);

#[derive(Debug, Default)]
struct Holds {
    spans: Vec<(Owner, Span)>,
    /// Clusters to which data is being written, see `held_runs`.
    runs: Vec<Span>,
}

impl Holds {
    fn remove(&mut self, owner: Owner) -> Option<Span> {
        let n = self.spans.iter().position(|(other, _)| *other == owner)?;
        Some(self.spans.swap_remove(n).1)
    }
}

impl Held {
    /// The clusters that `owner` holds here.
    pub(super) fn of(&self, owner: Owner) -> Option<Span> {
        let spans = &self.0.as_ref()?.spans;
        spans.iter().find(|(other, _)| *other == owner).map(|&(_, span)| span)
    }

    /// Whether `owner` may hold clusters here.
    pub(super) fn may_hold(&self, owner: Owner) -> bool {
        let held = self.0.as_ref().map_or(0, |holds| holds.spans.len());
        held < HOLDS_A_GROUP || self.of(owner).is_some()
    }

    /// Makes `owner` hold `span` and returns its former hold. An empty `span` is no hold.
    pub(super) fn put(&mut self, owner: Owner, span: Span) -> Option<Span> {
        if span.len == 0 {
            return self.remove(owner);
        }
        let holds = self.0.get_or_insert_default();
        let old = holds.remove(owner);
        holds.spans.push((owner, span));
        old
    }

    /// Removes and returns `owner`'s hold.
    pub(super) fn remove(&mut self, owner: Owner) -> Option<Span> {
        let old = self.0.as_mut()?.remove(owner);
        self.shrink();
        old
    }

    /// Whether any growing file holds clusters here.
    pub(super) fn is_kept(&self) -> bool {
        self.0.as_ref().is_some_and(|holds| !holds.spans.is_empty())
    }

    /// Removes and returns one hold of a growing file.
    pub(super) fn pop(&mut self) -> Option<Span> {
        let (_, span) = self.0.as_mut()?.spans.pop()?;
        self.shrink();
        Some(span)
    }

    /// Holds `span` for data that is being written.
    pub(super) fn hold_run(&mut self, span: Span) {
        self.0.get_or_insert_default().runs.push(span);
    }

    /// Ends the hold of `span`, a part of one such run. Returns whether it was held.
    pub(super) fn cut(&mut self, span: Span) -> bool {
        let Some(Holds { runs, .. }) = self.0.as_deref_mut() else { return false };
        let holds = |run: &Span| run.start <= span.start && span.end() <= run.end();
        let Some(n) = runs.iter().position(holds) else { return false };
        let run = runs.swap_remove(n);
        let (before, after) = (run.start..span.start, span.end()..run.end());
        let rest = [before, after].into_iter().filter(|rest| !rest.is_empty());
        runs.extend(rest.map(|rest| Span { start: rest.start, len: rest.end - rest.start }));
        self.shrink();
        true
    }

    /// All held clusters.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.0.iter().flat_map(|holds| {
            holds.spans.iter().map(|&(_, span)| span).chain(holds.runs.iter().copied())
        })
    }

    /// Drops all holds because the bitmap changed, except those to which data is being written.
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

/// The group in which each stream holds clusters. A shard has cache lines of its own, because other
/// threads lock its neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Streams(HashMap<u32, GroupNr>);

/// The group in which each owner holds clusters. A hint: only the group itself is exact.
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
        // If the number itself chose the shard, the first inodes of all groups would be in one
        // shard.
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

    /// Notes that `owner` holds clusters in `nr`. Returns the group and the owner of a hold that
    /// must be released instead.
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

    /// Takes up to `want` clusters from `owner`'s hold if it is where the request wants them:
    /// exactly at the goal for a stream, in the goal's flex group for small files.
    pub(super) fn take(
        &self,
        space: &FreeSpace,
        handle: &Handle<'_>,
        owner: Owner,
        request: &Request,
        want: u32,
    ) -> Result<Option<(GroupNr, Span)>> {
        let Some(nr) = self.group_of(owner) else { return Ok(None) };
        let Some((goal_group, bit)) = space.context().geometry().bit_of_block(request.goal) else {
            return Ok(None);
        };
        let flex = space.context().geometry().groups_per_flex();
        let near = match owner {
            Owner::Stream(_) => nr == goal_group,
            Owner::Small(_) => nr.0 / flex == goal_group.0 / flex,
        };
        if !near || space.groups().get(nr).is_bad(Map::Blocks) {
            return Ok(None);
        }
        let blocks = GroupBlocks::fetch(space, nr, Map::Blocks)?;
        let mut edit = GroupEdit::begin(space, &blocks, handle)?;
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
        // A thread that allocates for a stream holds the inode's lock, so no other thread notes a
        // hold for it.
        if span.len == held.len && matches!(owner, Owner::Stream(_)) {
            self.forget(owner);
        }
        Ok(Some((nr, span)))
    }

    /// Notes that `owner` holds clusters in `nr` now, and releases its older hold.
    ///
    /// Locks: takes `Group`.
    pub(super) fn note_hold(&self, space: &FreeSpace, owner: Owner, nr: GroupNr) {
        if let Some((other, owner)) = self.note(owner, nr) {
            release_preallocation(space, other, owner);
        }
    }

    /// Releases the hold of `ino`, which was closed, truncated or removed. Locks: takes `Group`.
    pub(super) fn discard(&self, space: &FreeSpace, ino: Ino) {
        let owner = Owner::Stream(ino);
        if let Some(nr) = self.forget(owner) {
            release_preallocation(space, nr, owner);
        }
    }

    /// Releases all holds. Returns whether there were any. Locks: takes `Group`.
    pub(super) fn discard_all(&self, space: &FreeSpace) -> bool {
        let all = self.take_all();
        for &(nr, owner) in &all {
            release_preallocation(space, nr, owner);
        }
        !all.is_empty()
    }
}

/// This thread's run for small files.
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

/// Bytes that a file gets at once when it reaches `end_bytes`. Up to 1 MiB the file's size doubles.
fn chunk_bytes(end_bytes: u64) -> u64 {
    const MIB: u64 = 1 << 20;
    match end_bytes.div_ceil(MIB) {
        0..=1 => end_bytes.next_power_of_two().max(64 << 10),
        2..=4 => 2 * MIB,
        5..=8 => 4 * MIB,
        _ => 8 * MIB,
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
        let released = (2..2000).filter_map(|n| known.note(stream(16 * n), GroupNr(3))).count();
        let kept = SHARDS * STREAMS_A_SHARD;
        assert_eq!(released, 1999 - kept);
        assert_eq!(known.note(Owner::Small(3), GroupNr(7)), None);
        assert_eq!(known.take_all().len(), kept + 1);
        assert_eq!(known.group_of(Owner::Small(3)), None);
    }
}
