//! Cuts the power of a recorded run at every point, and compares each recovered volume with the
//! run.
//!
//! ```text
//!   record ──► History ──► CrashPlan ──► states, a sample if there are many
//!                                          │ equal images are recovered once
//!                                          ▼
//!                       recover ──► View ──► oracle          every state taken
//!                          │  └──► extant's checker           every state taken
//!                          ├──► cut again, recover again       some
//!                          ├──► e2fsck recovers the same       some
//!                          └──► Linux recovers the same        a few, all at the end
//! ```

use crate::failure::{Failure, Replay};
use crate::fingerprint::Fingerprint;
use crate::history::{History, Step};
use crate::judges;
use crate::make::Make;
use crate::op::Op;
use crate::record::{record, record_on};
use crate::recovered::{Recovered, look, recover, recover_on};
use crate::workload::Workload;
use extant_blockdev::MemoryDevice;
use extant_testdev::{CrashPlan, CrashState, Recorder};
use extant_testkit::rng::Rng;
use std::collections::{HashMap, HashSet};
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// Which crash states of a cut exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// Every subset of the unflushed writes, if there are at most this many.
    pub exhaustive: u32,
    /// The number of sampled subsets, if there are more.
    pub samples: usize,
    /// The number of torn variants of each subset.
    pub torn: usize,
}

/// How many crash states of one run to take, and how many to examine further.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Which crash states exist.
    pub depth: Depth,
    /// About how many of them to take; those directly after a persistence point are added.
    pub states: usize,
    /// How many recoveries to cut, and how many states of each to recover again.
    pub cut_recoveries: (usize, usize),
    /// How many states e2fsck recovers, too.
    pub e2fsck: usize,
    /// How many states are kept for Linux.
    pub linux: usize,
}

/// Counts of the work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs.
    pub runs: usize,
    /// Operations that were refused with an errno.
    pub refused: usize,
    /// Device operations. Each is a cut, and each run has one more.
    pub device_ops: usize,
    /// States that a cut could leave, within the depth.
    pub possible: usize,
    /// States judged.
    pub judged: usize,
    /// Different images among them.
    pub distinct: usize,
    /// Those that ended in fast commits.
    pub fast: usize,
    /// Recoveries that were cut and repeated.
    pub cut_recoveries: usize,
    /// States that e2fsck recovered and judged.
    pub e2fsck: usize,
    /// States kept for Linux.
    pub linux: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.runs += other.runs;
        self.refused += other.refused;
        self.device_ops += other.device_ops;
        self.possible += other.possible;
        self.judged += other.judged;
        self.distinct += other.distinct;
        self.fast += other.fast;
        self.cut_recoveries += other.cut_recoveries;
        self.e2fsck += other.e2fsck;
        self.linux += other.linux;
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} runs ({} operations refused), {} cuts, {} states of {} possible, {} distinct, \
             {} with fast commits, {} recoveries cut, e2fsck {}, Linux {}",
            self.runs,
            self.refused,
            self.device_ops + self.runs,
            self.judged,
            self.possible,
            self.distinct,
            self.fast,
            self.cut_recoveries,
            self.e2fsck,
            self.linux
        )
    }
}

/// Explores runs. Shared by threads.
#[derive(Debug)]
pub struct Explorer {
    seed: u64,
    budget: Budget,
    past_setup: bool,
    linux: Mutex<Vec<judges::Candidate>>,
}

impl Explorer {
    /// An explorer whose choices all come from `seed`.
    pub fn new(seed: u64, budget: Budget) -> Explorer {
        Explorer { seed, budget, past_setup: false, linux: Mutex::default() }
    }

    /// Cuts only after the first sync of each run: what comes before it is setup.
    pub fn past_setup(mut self) -> Explorer {
        self.past_setup = true;
        self
    }

    /// Runs a workload and explores what a cut could leave of it.
    pub fn explore(&self, make: &Make, workload: &Workload) -> Result<Tally, Box<Failure>> {
        let history = catch(|| record(make, workload));
        let history = history.map_err(|what| self.failure(make, workload, None, what))?;
        self.explore_history(make, workload, &history)
    }

    /// Explores what a cut could leave of a run.
    pub fn explore_history(
        &self,
        make: &Make,
        workload: &Workload,
        history: &History,
    ) -> Result<Tally, Box<Failure>> {
        self.explore_histories(make, workload, std::slice::from_ref(history))
    }

    /// Explores what a cut could leave of parallel runs on one device, each in its own directory.
    /// All have the same log.
    pub fn explore_histories(
        &self,
        make: &Make,
        workload: &Workload,
        histories: &[History],
    ) -> Result<Tally, Box<Failure>> {
        self.case(make, workload, histories).explore()
    }

    fn case<'a>(
        &'a self,
        make: &'a Make,
        workload: &'a Workload,
        histories: &'a [History],
    ) -> Case<'a> {
        let plan = self.plan(&histories[0]);
        Case { explorer: self, make, workload, histories, plan, seen: HashMap::new() }
    }

    /// Judges one state, or all of a run, and returns the result as text.
    pub fn replay(replay: &Replay) -> Result<String, Box<Failure>> {
        let budget = Budget {
            depth: replay.depth,
            states: usize::MAX,
            cut_recoveries: (4, 16),
            e2fsck: 1,
            linux: 0,
        };
        let explorer = Explorer::new(replay.seed, budget);
        let (make, workload) = (&replay.make, &replay.workload);
        let Some((cut, index)) = replay.at else {
            return explorer.explore(make, workload).map(|tally| tally.to_string());
        };
        let fail = |what| explorer.failure(make, workload, None, what);
        let history = catch(|| record(make, workload)).map_err(fail)?;
        let mut states = explorer.plan(&history).cuts(cut..=cut).states();
        let state = states.next_where(|_, n| n == index);
        let state = state.ok_or_else(|| fail("the run has no such state".to_owned()))?;
        let mut case = explorer.case(make, workload, std::slice::from_ref(&history));
        let mut tally = Tally::default();
        case.judge(&state, &mut tally)?;
        case.look_closer(&state, &mut tally)?;
        Ok(format!("{state}: {tally}"))
    }

    /// Lets Linux recover the states that were kept for it. It must show what extant shows. Returns
    /// the failures.
    pub fn linux_agrees(&self, group: &str) -> Vec<String> {
        let kept = std::mem::take(&mut *self.linux.lock().unwrap_or_else(|e| e.into_inner()));
        judges::linux_agrees(group, &kept)
    }

    /// Crashes a run, starts another one on the result, and explores what a cut could leave of the
    /// second; `times` times, each from another state.
    pub fn explore_next(
        &self,
        make: &Make,
        (first, second): (&Workload, &Workload),
        times: usize,
    ) -> Result<Tally, Box<Failure>> {
        let fail = |what| self.failure(make, first, None, what);
        let history = catch(|| record(make, first)).map_err(fail)?;
        let mut tally = Tally::default();
        let mut draw = Rng::new(self.seed);
        for _ in 0..times {
            let cut = draw.below(history.log.len() + 1);
            let Some(state) = self.plan(&history).cuts(cut..=cut).states().last() else { continue };
            let again = catch(|| record_on(make, state.image.clone(), second));
            let again = again.map_err(|what| self.failure(make, first, Some(&state), what))?;
            let next = Workload {
                name: format!("{} after {first}, {state}", second.name),
                ops: second.ops.clone(),
            };
            tally += self.explore_history(make, &next, &again)?;
        }
        Ok(tally)
    }

    fn plan(&self, history: &History) -> CrashPlan {
        let Depth { exhaustive, samples, torn } = self.budget.depth;
        let mut plan = CrashPlan::new(history.base.clone(), Arc::clone(&history.log));
        let setup = history.steps.iter().find(|step| step.op == Op::Sync);
        if let Some(setup) = setup.filter(|_| self.past_setup) {
            plan = plan.cuts(setup.end..=history.log.len());
        }
        plan.seed(self.seed).exhaustive_up_to(exhaustive).samples(samples).torn(torn)
    }

    fn failure(
        &self,
        make: &Make,
        workload: &Workload,
        state: Option<&CrashState>,
        what: String,
    ) -> Box<Failure> {
        let replay = Replay {
            make: *make,
            seed: self.seed,
            depth: self.budget.depth,
            // The next run through the page cache has another log.
            at: state.filter(|_| !make.is_cached()).map(|state| (state.cut, state.index)),
            workload: workload.clone(),
        };
        Box::new(Failure {
            replay,
            state: state.map(ToString::to_string).unwrap_or_default(),
            what,
        })
    }
}

/// One run being explored.
struct Case<'a> {
    explorer: &'a Explorer,
    make: &'a Make,
    workload: &'a Workload,
    histories: &'a [History],
    plan: CrashPlan,
    /// The results of equal images.
    seen: HashMap<u64, Arc<Recovered>>,
}

impl Case<'_> {
    fn explore(&mut self) -> Result<Tally, Box<Failure>> {
        let budget = self.explorer.budget;
        let mut possible = 0;
        let _ = self.plan.states().next_where(|_, _| {
            possible += 1;
            false
        });
        let mut tally = Tally {
            runs: 1,
            refused: self.steps().filter(|step| step.refused.is_some()).count(),
            device_ops: self.histories[0].log.len(),
            possible,
            ..Tally::default()
        };
        let persisted = self.persistence_points();
        let mut draw = Rng::new(self.explorer.seed ^ possible as u64);
        let mut states = self.plan.states();
        let closer_every = (budget.states.min(possible) / most(&budget).max(1)).max(1);
        let mut taken = 0;
        while let Some(state) = states.next_where(|cut, index| {
            let lucky = budget.states >= possible || draw.below(possible) < budget.states;
            lucky || (index < 2 && persisted.contains(&cut))
        }) {
            self.judge(&state, &mut tally)?;
            if taken % closer_every == closer_every / 2 {
                self.look_closer(&state, &mut tally)?;
            }
            taken += 1;
        }
        Ok(tally)
    }

    /// The cuts directly after a step that made others durable.
    fn persistence_points(&self) -> HashSet<usize> {
        self.steps().filter(|step| step.op.persists()).map(|step| step.end).collect()
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.histories.iter().flat_map(|history| &history.steps)
    }

    /// Recovers a state and compares it with the run.
    fn judge(&mut self, state: &CrashState, tally: &mut Tally) -> Result<(), Box<Failure>> {
        tally.judged += 1;
        let mut judge = || {
            let recovered = self.recovered(state, tally)?;
            for history in self.histories {
                if let Some(contents) = &history.contents {
                    contents.judge(history, &recovered.view, (state.cut, state.completed))?;
                    continue;
                }
                let bounds = history.bounds(state.cut, state.completed);
                history.judge(&recovered.view.below(&history.root), &bounds)?;
            }
            Ok(())
        };
        let judged = catch(AssertUnwindSafe(&mut judge));
        judged.map_err(|what| self.failure(state, what))
    }

    fn recovered(
        &mut self,
        state: &CrashState,
        tally: &mut Tally,
    ) -> Result<Arc<Recovered>, String> {
        let print = Fingerprint::of(&self.histories[0].log, &state.image);
        if let Some(recovered) = self.seen.get(&print.0) {
            return Ok(Arc::clone(recovered));
        }
        tally.distinct += 1;
        let recovered = Arc::new(recover(self.make, state.image.clone())?);
        tally.fast += usize::from(recovered.fast_commits > 0);
        self.seen.insert(print.0, Arc::clone(&recovered));
        Ok(recovered)
    }

    /// Checks that are too slow for every state.
    fn look_closer(&mut self, state: &CrashState, tally: &mut Tally) -> Result<(), Box<Failure>> {
        let budget = self.explorer.budget;
        let mut look = || -> Result<(), String> {
            let want = self.recovered(state, &mut Tally::default())?;
            if tally.cut_recoveries < budget.cut_recoveries.0 * budget.cut_recoveries.1 {
                tally.cut_recoveries += self.cut_recovery(state, &want, budget.cut_recoveries.1)?;
            }
            if !judges::is_for_others(state)? {
                return Ok(());
            }
            let leaks = self.make.has_value_inodes() && want.orphans_freed > 0;
            // Its own recovery loses what fast commits recorded.
            let is_lost = want.fast_commits > 0 || self.make.has_fast_commits();
            if tally.e2fsck < budget.e2fsck && !leaks {
                judges::mirrors_are_volumes(self.make, &want)?;
            }
            if tally.e2fsck < budget.e2fsck && !leaks && !is_lost {
                judges::e2fsck_agrees(self.make, &state.image, &want.view)?;
                tally.e2fsck += 1;
            }
            // Linux sets another time on a file whose truncation it completes; here long files are
            // truncated.
            let ends_alike = !(self.make.is_cached() && self.make.journals_data());
            if tally.linux < budget.linux
                && ends_alike
                && let Some((image, journal)) = judges::for_linux(self.make, state)?
            {
                let name = format!("{} on {}, {state}", self.workload.name, self.make.name);
                let candidate = judges::Candidate { name, image, journal, look: self.make.look() };
                self.explorer.linux.lock().unwrap_or_else(|e| e.into_inner()).push(candidate);
                tally.linux += 1;
            }
            Ok(())
        };
        let looked = catch(AssertUnwindSafe(&mut look));
        looked.map_err(|what| self.failure(state, what))
    }

    /// Cuts the recovery of a state, recovers again, and requires the same result. Returns how many
    /// states it took, at most `most`.
    fn cut_recovery(
        &self,
        state: &CrashState,
        want: &Recovered,
        most: usize,
    ) -> Result<usize, String> {
        let recorder = Arc::new(Recorder::new(state.image.clone()));
        recover_on(self.make, &recorder, state.index.is_multiple_of(2))?;
        let plan = recorder.crash_plan(&state.image).seed(self.explorer.seed);
        let plan = plan.exhaustive_up_to(2).samples(6).torn(1);
        let mut possible = 0;
        let _ = plan.states().next_where(|_, _| {
            possible += 1;
            false
        });
        let mut draw = Rng::new(self.explorer.seed ^ state.cut as u64);
        let mut states = plan.states();
        let mut count = 0;
        while let Some(again) = states.next_where(|_, _| draw.below(possible) < most) {
            let at = format!("recovery cut at {again}");
            let found = recover(self.make, again.image).map_err(|e| format!("{at}: {e}"))?;
            if found.view != want.view {
                let differences = found.view.differences(&want.view);
                return Err(format!("{at}: recovers to something else: {differences:?}"));
            }
            count += 1;
        }
        self.use_on(want).map_err(|e| format!("used after recovery: {e}"))?;
        Ok(count)
    }

    /// A recovered volume can be changed, and stays consistent.
    fn use_on(&self, recovered: &Recovered) -> Result<(), String> {
        let device: Arc<MemoryDevice> = Arc::new((*recovered.device).clone());
        crate::apply::use_volume(self.make, &device).map_err(|e| e.to_string())?;
        let after = look(self.make, &device)?;
        let kept = |path: &&String| !after.names.contains_key(*path);
        match recovered.view.names.keys().find(kept) {
            Some(path) => Err(format!("{path} is gone")),
            None => Ok(()),
        }
    }

    fn failure(&self, state: &CrashState, what: String) -> Box<Failure> {
        self.explorer.failure(self.make, self.workload, Some(state), what)
    }
}

/// How many states are examined further.
fn most(budget: &Budget) -> usize {
    budget.cut_recoveries.0.max(budget.e2fsck).max(budget.linux)
}

/// A panic is a failure like any other: the seed must not be lost.
fn catch<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}
