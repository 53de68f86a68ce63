//! The states in which a power cut could leave a device, derived from a recorded run.
//!
//! ```text
//!   log:  w0  w1  flush  w2  w3 fua  w4  w5 ┆ cut after 7
//!         └─────┘        │    │      │   │
//!         durable        ?  durable  ?  the last: complete, or torn
//!
//!   w2, w4:  lost or kept independently         every subset, or a sample when there are many
//!   order:   kept writes that overlap may land in the opposite order
//!   torn:    of a kept write, only some of its 512-byte sectors may have landed
//! ```
//!
//! ```text
//!   log:  s0  s1  write back 2 (s0)  s3  fence 4  s5 ┆ cut after 6        stores, a line each
//!         │   ?                      ?            └ the last: complete, or torn at 8 bytes
//!         durable: written back, then fenced       a flush does not make stores durable, nor does
//!                                                  a fence make writes durable
//! ```
//!
//! The states without the last operation are those of the cut before it, so every state occurs
//! once. All choices derive from one seed and the number of the cut.

#[cfg(test)]
mod dax_test;
mod landing;

use crate::op::Op;
use extant_blockdev::{BlockDevice, LINE_BYTES, MemoryDevice};
use landing::{Random, apply, parts_of, reorder, tear};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Which states of a recorded run to make.
#[derive(Clone, Debug)]
pub struct CrashPlan {
    base: MemoryDevice,
    log: Arc<[Op]>,
    seed: u64,
    exhaustive: u32,
    samples: usize,
    torn: usize,
    cuts: RangeInclusive<usize>,
}

impl CrashPlan {
    /// All cuts of a run that began with `base` and continued with `log`: every subset of up to 4
    /// undecided operations, 16 samples of more, and 1 torn variant of each.
    ///
    /// # Panics
    /// If `base` is shorter than the ranges that `log` changes.
    pub fn new(base: MemoryDevice, log: impl Into<Arc<[Op]>>) -> CrashPlan {
        let log = log.into();
        for (at, len) in log.iter().map(Op::range) {
            assert!(at.0 + len <= base.len(), "the base image is no device this log was made on");
        }
        let cuts = 0..=log.len();
        CrashPlan { base, log, seed: 0, exhaustive: 4, samples: 16, torn: 1, cuts }
    }

    /// The seed of every choice.
    pub fn seed(mut self, seed: u64) -> CrashPlan {
        self.seed = seed;
        self
    }

    /// Takes every subset when at most `n` operations are undecided, `n` at most 16.
    pub fn exhaustive_up_to(mut self, n: u32) -> CrashPlan {
        self.exhaustive = n.min(16);
        self
    }

    /// Takes `n` subsets, at least 2, when there are too many for every one.
    pub fn samples(mut self, n: usize) -> CrashPlan {
        self.samples = n.max(2);
        self
    }

    /// Makes `n` torn variants of each subset.
    pub fn torn(mut self, n: usize) -> CrashPlan {
        self.torn = n;
        self
    }

    /// Cuts only after these numbers of operations, each from 0 to the length of the log.
    pub fn cuts(mut self, cuts: RangeInclusive<usize>) -> CrashPlan {
        self.cuts = cuts;
        self
    }

    /// The states, made one at a time.
    pub fn states(&self) -> CrashStates {
        CrashStates {
            plan: self.clone(),
            durable: self.base.clone(),
            undecided: Vec::new(),
            on_the_way: Vec::new(),
            next_cut: 0,
            index: 0,
            queue: VecDeque::new(),
        }
    }
}

/// One state that a power cut could leave.
#[derive(Clone, Debug)]
pub struct CrashState {
    /// The content of the device.
    pub image: MemoryDevice,
    /// How many operations had begun.
    pub cut: usize,
    /// The state's index among the states of this cut, from 0. With the plan's seed it identifies
    /// the state.
    pub index: usize,
    /// How many of these operations had returned to the caller: `cut`, or one less when the last
    /// was a forced write that the cut tore.
    pub completed: usize,
    /// Operations of which nothing landed, by index in the log.
    pub lost: Vec<usize>,
    /// Operations of which only some sectors landed, by index in the log.
    pub torn: Vec<usize>,
    /// Whether kept operations landed in an order other than that of the log.
    pub reordered: bool,
}

impl fmt::Display for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cut {}, lost {:?}, torn {:?}", self.cut, self.lost, self.torn)?;
        if self.reordered { f.write_str(", reordered") } else { Ok(()) }
    }
}

/// Iterates over the states of a [`CrashPlan`], in the order of the cuts.
#[derive(Debug)]
pub struct CrashStates {
    plan: CrashPlan,
    /// What every state from the last flush on contains.
    durable: MemoryDevice,
    /// Operations that may still be lost, by index in the log.
    undecided: Vec<usize>,
    /// Stores among them that were written back since the last fence.
    on_the_way: Vec<usize>,
    next_cut: usize,
    /// How many states of the current cut were returned or skipped.
    index: usize,
    queue: VecDeque<Recipe>,
}

/// How to make one state: the operations in the order in which they land, and which parts of them
/// land.
#[derive(Debug)]
struct Recipe {
    cut: usize,
    completed: usize,
    steps: Vec<Step>,
    lost: Vec<usize>,
    reordered: bool,
}

#[derive(Clone, Debug)]
struct Step {
    op: usize,
    /// The bytes of the operation that land; `None` means all of them.
    parts: Option<Vec<Range<u64>>>,
}

impl Iterator for CrashStates {
    type Item = CrashState;

    fn next(&mut self) -> Option<CrashState> {
        self.next_where(|_, _| true)
    }
}

impl CrashStates {
    /// The next state for which `take` returns true. Its arguments are the cut and the state's
    /// index in that cut. Skipped states are never made, so counting all states is cheap.
    pub fn next_where(&mut self, mut take: impl FnMut(usize, usize) -> bool) -> Option<CrashState> {
        loop {
            let Some(recipe) = self.queue.pop_front() else {
                if self.next_cut > self.plan.log.len().min(*self.plan.cuts.end()) {
                    return None;
                }
                self.enter_cut();
                continue;
            };
            let index = self.index;
            self.index += 1;
            if take(recipe.cut, index) {
                return Some(self.make(recipe, index));
            }
        }
    }

    /// Applies the steps of a recipe to a copy of the durable content.
    fn make(&self, recipe: Recipe, index: usize) -> CrashState {
        let image = self.durable.clone();
        for step in &recipe.steps {
            apply(&image, &self.plan.log[step.op], step.parts.as_deref());
        }
        let torn = recipe.steps.iter().filter(|step| step.parts.is_some()).map(|step| step.op);
        CrashState {
            image,
            cut: recipe.cut,
            index,
            completed: recipe.completed,
            torn: torn.collect(),
            lost: recipe.lost,
            reordered: recipe.reordered,
        }
    }

    /// Moves to the next cut: includes one more operation, and queues the states of a cut after it.
    fn enter_cut(&mut self) {
        let cut = self.next_cut;
        self.next_cut += 1;
        self.index = 0;
        if cut > 0 {
            let last = cut - 1;
            match &self.plan.log[last] {
                Op::Flush => self.flush(0..u64::MAX),
                Op::FlushRange { at, len } => self.flush(at.0..at.0 + len),
                Op::WriteBack { at, len } => {
                    self.send(at.0 / LINE_BYTES..(at.0 + len).div_ceil(LINE_BYTES));
                    // Everything that could be lost before can still be lost: no new states.
                    return;
                }
                Op::Fence => self.fence(),
                _ => self.undecided.push(last),
            }
        }
        if !self.plan.cuts.contains(&cut) {
            return;
        }
        let mut random = Random::new(self.plan.seed, cut as u64);
        for kept in self.subsets(&mut random) {
            self.queue_subset(cut, &kept, &mut random);
        }
    }

    /// Records that the stores to these lines become durable at the next fence.
    fn send(&mut self, lines: Range<u64>) {
        let log = &self.plan.log;
        let sent = self.undecided.iter().filter(|op| {
            is_store(&log[**op]) && lines.contains(&(log[**op].range().0.0 / LINE_BYTES))
        });
        self.on_the_way.extend(sent);
    }

    fn fence(&mut self) {
        let sent = std::mem::take(&mut self.on_the_way);
        self.make_durable(|op, _| sent.contains(&op));
    }

    /// Makes all writes that begin in `range` durable.
    fn flush(&mut self, range: Range<u64>) {
        self.make_durable(|_, done| !is_store(done) && range.contains(&done.range().0.0));
    }

    /// Applies the undecided operations for which `durable` returns true to the durable content.
    fn make_durable(&mut self, durable: impl Fn(usize, &Op) -> bool) {
        let log = Arc::clone(&self.plan.log);
        let all = std::mem::take(&mut self.undecided);
        for op in all {
            match durable(op, &log[op]) {
                true => apply(&self.durable, &log[op], None),
                false => self.undecided.push(op),
            }
        }
    }

    /// The subsets of undecided operations to keep. Each contains the last operation, and all
    /// operations that were durable when they returned.
    fn subsets(&self, random: &mut Random) -> Vec<Vec<usize>> {
        let Some((last, earlier)) = self.undecided.split_last() else { return vec![Vec::new()] };
        let free = earlier.iter().filter(|op| !self.plan.log[**op].is_fua()).count();
        let subset = |keep: &mut dyn FnMut(usize) -> bool| {
            let mut number = 0;
            let mut kept = Vec::with_capacity(self.undecided.len());
            for op in earlier {
                if self.plan.log[*op].is_fua() {
                    kept.push(*op);
                } else {
                    if keep(number) {
                        kept.push(*op);
                    }
                    number += 1;
                }
            }
            kept.push(*last);
            kept
        };
        if free <= self.plan.exhaustive as usize {
            return (0..1u32 << free).map(|mask| subset(&mut |n| mask >> n & 1 == 1)).collect();
        }
        let mut subsets = vec![subset(&mut |_| false), subset(&mut |_| true)];
        while subsets.len() < self.plan.samples {
            let one = random.below(free as u64) as usize;
            subsets.push(match subsets.len() % 4 {
                2 => subset(&mut |n| n != one),
                3 => subset(&mut |n| n == one),
                _ => {
                    // Keep few, half or most: an even chance for each would nearly always keep
                    // about half.
                    let density = [1, 4, 7][random.below(3) as usize];
                    subset(&mut |_| random.below(8) < density)
                }
            });
        }
        subsets
    }

    /// Queues the variants of one subset: complete, reordered, torn.
    fn queue_subset(&mut self, cut: usize, kept: &[usize], random: &mut Random) {
        let log = Arc::clone(&self.plan.log);
        let lost: Vec<_> = self.undecided.iter().filter(|op| !kept.contains(op)).copied().collect();
        let whole: Vec<_> = kept.iter().map(|op| Step { op: *op, parts: None }).collect();
        let recipe = |steps, completed, reordered| Recipe {
            cut,
            completed,
            steps,
            lost: lost.clone(),
            reordered,
        };
        self.queue.push_back(recipe(whole.clone(), cut, false));
        if let Some(steps) = reorder(&log, &whole, random) {
            self.queue.push_back(recipe(steps, cut, true));
        }
        let in_flight = |op: usize| op + 1 == cut;
        let can_tear = |op: usize| parts_of(&log[op]) > 1 && (!log[op].is_fua() || in_flight(op));
        let tearable: Vec<_> = (0..whole.len()).filter(|n| can_tear(whole[*n].op)).collect();
        if tearable.is_empty() {
            return;
        }
        for _ in 0..self.plan.torn {
            let mut steps = whole.clone();
            let sure = tearable[random.below(tearable.len() as u64) as usize];
            for n in &tearable {
                if *n == sure || random.below(4) == 0 {
                    steps[*n].parts = Some(tear(&log[steps[*n].op], random));
                }
            }
            let half_done = |step: &Step| step.parts.is_some() && log[step.op].is_fua();
            let completed = cut - usize::from(steps.iter().any(half_done));
            self.queue.push_back(recipe(steps, completed, false));
        }
    }
}

fn is_store(op: &Op) -> bool {
    matches!(op, Op::Store { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorder;
    use extant_base::ByteOffset;
    use std::collections::HashSet;

    const SECTOR: u64 = 512;
    const LEN: usize = 4096;

    /// Records what `run` does to an empty device.
    fn record(run: impl FnOnce(&Recorder<MemoryDevice>)) -> CrashPlan {
        let base = MemoryDevice::new(LEN as u64);
        let device = Recorder::new(base.clone());
        run(&device);
        device.crash_plan(&base)
    }

    fn write(device: &impl BlockDevice, sector: u64, sectors: usize, byte: u8) {
        device.write_at(ByteOffset(sector * SECTOR), &vec![byte; sectors * 512]).unwrap();
    }

    /// The first byte of each sector. Asserts that no sector is torn inside.
    fn picture(state: &CrashState) -> String {
        let mut all = vec![0; LEN];
        state.image.read_at(ByteOffset(0), &mut all).unwrap();
        let sector = |bytes: &[u8]| {
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a sector is torn: {state}");
            if bytes[0] == 0 { '.' } else { char::from(bytes[0]) }
        };
        all.chunks(512).map(sector).collect()
    }

    fn pictures(plan: CrashPlan) -> HashSet<String> {
        plan.states().map(|state| picture(&state)).collect()
    }

    #[test]
    fn every_subset_of_unflushed_writes_comes_up_once() {
        let plan = record(|device| {
            for (sector, byte) in (0..4).zip(*b"abcd") {
                write(device, sector, 1, byte);
            }
        });
        let states: Vec<_> = plan.states().map(|state| picture(&state)).collect();
        let distinct: HashSet<_> = states.iter().cloned().collect();
        assert_eq!((states.len(), distinct.len()), (16, 16));
    }

    #[test]
    fn flushed_data_is_always_there() {
        let plan = record(|device| {
            write(device, 0, 2, b'a');
            device.flush().unwrap();
            write(device, 4, 3, b'b');
            write(device, 1, 1, b'c');
        });
        let mut unflushed = HashSet::new();
        for state in plan.torn(8).states() {
            let picture = picture(&state);
            if state.completed >= 2 {
                assert!(["aa", "ac"].contains(&&picture[..2]), "{state}: {picture}");
                unflushed.insert(picture[4..7].to_string());
            }
        }
        assert!(unflushed.contains("...") && unflushed.contains("bbb"));
        assert!(unflushed.len() > 2, "no torn state: {unflushed:?}");
    }

    #[test]
    fn a_write_with_forced_unit_access_is_durable_when_it_returned() {
        let plan = record(|device| {
            write(device, 0, 1, b'a');
            device.write_fua(ByteOffset(512), &[b'f'; 1024]).unwrap();
            write(device, 5, 1, b'b');
        });
        let (mut early, mut torn) = (HashSet::new(), false);
        for state in plan.torn(8).states() {
            let picture = picture(&state);
            if state.completed >= 2 {
                assert_eq!(&picture[1..3], "ff", "{state}");
                early.insert(picture[..1].to_string());
            } else if state.cut == 2 {
                torn |= ["f.", ".f"].contains(&&picture[1..3]);
            }
        }
        assert_eq!(early.len(), 2, "the plain write before it may be lost");
        assert!(torn, "cut off while it runs, it may be torn");
    }

    #[test]
    fn overlapping_writes_land_in_either_order() {
        let seen = pictures(record(|device| {
            write(device, 0, 2, b'a');
            write(device, 1, 2, b'b');
        }));
        for want in ["........", "aa......", ".bb.....", "abb.....", "aab....."] {
            assert!(seen.contains(want), "{want} is missing in {seen:?}");
        }
    }

    #[test]
    fn nothing_passes_a_forced_write() {
        let seen = pictures(record(|device| {
            write(device, 0, 1, b'a');
            device.write_fua(ByteOffset(0), &[b'f'; 512]).unwrap();
            device.flush().unwrap();
        }));
        let want = ["........", "a.......", "f......."].map(String::from);
        assert_eq!(seen, HashSet::from(want));
    }

    #[test]
    fn the_flush_of_one_device_leaves_the_other_undecided() {
        let seen = pictures(record(|device| {
            write(device, 0, 1, b'a');
            write(device, 4, 1, b'b');
            device.flush_range(ByteOffset(2048), 2048).unwrap();
            write(device, 5, 1, b'c');
        }));
        assert!(seen.contains("....bc..") && seen.contains("a...bc.."), "{seen:?}");
        assert!(!seen.contains(".....c.."), "{seen:?}");
    }

    #[test]
    fn states_that_are_passed_over_keep_their_numbers() {
        let plan = record(|device| {
            for n in 0..6 {
                write(device, n, 1, b'a' + n as u8);
            }
        });
        let all: Vec<_> = plan.states().map(|state| (state.cut, state.index)).collect();
        let mut some = plan.states();
        let third = some.next_where(|cut, index| (cut, index) == (4, 2)).unwrap();
        assert_eq!((third.cut, third.index), (4, 2));
        let place = all.iter().position(|at| *at == (4, 2)).unwrap();
        assert_eq!(some.next().map(|state| (state.cut, state.index)), Some(all[place + 1]));
    }

    #[test]
    fn zeroing_and_discards_are_lost_or_kept_too() {
        let seen = pictures(record(|device| {
            write(device, 0, 3, b'a');
            device.flush().unwrap();
            device.zero(ByteOffset(0), 512).unwrap();
            device.discard(ByteOffset(512), 512).unwrap();
        }));
        for want in ["aaa.....", ".aa.....", "a.a.....", "..a....."] {
            assert!(seen.contains(want), "{want} is missing in {seen:?}");
        }
    }

    #[test]
    fn one_seed_makes_one_sequence_and_a_cut_repeats_alone() {
        let plan = record(|device| {
            for n in 0..12 {
                write(device, n % 7, 2, b'a' + n as u8);
            }
        });
        let named_pictures = |plan: &CrashPlan| -> Vec<_> {
            plan.states().map(|state| (state.to_string(), picture(&state))).collect()
        };
        let plan = plan.seed(7).samples(5);
        assert_eq!(named_pictures(&plan), named_pictures(&plan));
        assert_ne!(named_pictures(&plan), named_pictures(&plan.clone().seed(8)));
        let alone = named_pictures(&plan.clone().cuts(9..=9));
        let among: Vec<_> = named_pictures(&plan)
            .into_iter()
            .filter(|(name, _)| name.starts_with("cut 9,"))
            .collect();
        assert!(!alone.is_empty() && alone == among);
    }

    #[test]
    fn the_last_state_with_all_flushed_is_the_recorded_device() {
        let plan = record(|device| {
            write(device, 0, 8, b'a');
            write(device, 2, 1, b'b');
            device.flush().unwrap();
        });
        let last: Vec<_> = plan.cuts(3..=3).states().map(|state| picture(&state)).collect();
        assert_eq!(last, ["aabaaaaa"]);
    }
}
