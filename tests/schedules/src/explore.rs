//! Runs scenes under the explorer, and proves that it finds errors.
//!
//! ```text
//!   explore(scene)      random schedules, each with a seed of its own          a failure prints
//!                       schedules by priorities (PCT), some dozens to a seed    EXTANT_SCHEDULE=…
//!   finds(wrong, scene) the same with a wrong form in place: one has to fail
//! ```
//!
//! A schedule fails if an assertion fails, if all threads wait, or if it does not end.

use crate::model::time;
use crate::wrong_forms::WRONG_FORMS;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// What happens to a timed wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timers {
    /// It lasts until a wake-up: a lost wake-up is a deadlock, not a delay.
    Never,
    /// It ends when the explorer chooses.
    Sometimes,
}

std::thread_local! {
    static WRONG: Cell<&'static str> = const { Cell::new("") };
    static TIMERS: Cell<Timers> = const { Cell::new(Timers::Never) };
}

/// Whether the wrong form `name` is active.
pub(crate) fn is_wrong(name: &str) -> bool {
    WRONG.get() == name
}

pub(crate) fn timers() -> Timers {
    TIMERS.get()
}

/// A run of threads, with assertions.
pub(crate) struct Scene {
    /// The test that runs it: part of the line that replays.
    pub(crate) name: &'static str,
    pub(crate) timers: Timers,
    pub(crate) run: fn(),
}

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Any thread, each time.
    Random,
    /// The thread of highest priority. Priorities change at this many points, less one.
    Pct(usize),
}

/// Schedules that share a seed under PCT, which learns their length from the first.
const BATCH: u64 = 25;

const CHOICES: [Choice; 4] = [Choice::Random, Choice::Pct(2), Choice::Pct(3), Choice::Pct(6)];

impl Choice {
    fn name(self) -> String {
        match self {
            Choice::Random => "random".into(),
            Choice::Pct(depth) => format!("pct{depth}"),
        }
    }

    fn of(name: &str) -> Option<Choice> {
        CHOICES.into_iter().find(|choice| choice.name() == name)
    }

    /// The choice and the seed of the schedules from number `n` on, and how many these are.
    fn plan(n: u64, seed: u64) -> (Choice, u64, u64) {
        // Every other schedule is a random one.
        let (round, place) = (n / (2 * BATCH), n % (2 * BATCH));
        match place < BATCH {
            true => (Choice::Random, seed.wrapping_add(n), 1),
            false => {
                let pct = CHOICES[1 + round as usize % (CHOICES.len() - 1)];
                (pct, seed.wrapping_add(n), BATCH)
            }
        }
    }

    /// Runs `count` schedules of `scene`. Returns what went wrong.
    fn run(self, scene: &Scene, seed: u64, count: u64) -> Result<(), String> {
        TIMERS.set(scene.timers);
        let run = scene.run;
        let start = move || {
            time::begin();
            run();
        };
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(2_000_000);
        config.silence_warnings = true;
        let count = count as usize;
        let done = catch_unwind(AssertUnwindSafe(|| match self {
            Choice::Random => {
                Runner::new(RandomScheduler::new_from_seed(seed, count), config).run(start)
            }
            Choice::Pct(depth) => {
                Runner::new(PctScheduler::new_from_seed(seed, depth, count), config).run(start)
            }
        }));
        done.map(drop).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_else(|| "it panicked".into())
        })
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs about `schedules` schedules of `scene`, `EXTANT_SOAK` times as many; none may fail.
/// `EXTANT_SEED` selects others; `EXTANT_SCHEDULE` runs one that failed.
pub(crate) fn explore(scene: &Scene, schedules: u64) {
    if let Ok(text) = std::env::var("EXTANT_SCHEDULE") {
        let mut parts = text.split(':');
        let choice = parts.next().and_then(Choice::of);
        let seed = parts.next().and_then(|seed| seed.parse().ok());
        let (Some(choice), Some(seed)) = (choice, seed) else {
            panic!("EXTANT_SCHEDULE={text}: a choice and a seed are wanted, as in random:7")
        };
        let count = if choice == Choice::Random { 1 } else { BATCH };
        return choice.run(scene, seed, count).unwrap();
    }
    let all = schedules * number("EXTANT_SOAK").unwrap_or(1).max(1);
    let first = number("EXTANT_SEED").unwrap_or(1).wrapping_mul(1_000_003);
    if let Some((choice, seed, why)) = search(scene, all, first) {
        panic!(
            "{why}\nagain: EXTANT_SCHEDULE={}:{seed} cargo test -p extant-schedule-tests {} -- --nocapture",
            choice.name(),
            scene.name
        );
    }
}

fn search(scene: &Scene, schedules: u64, first: u64) -> Option<(Choice, u64, String)> {
    let mut n = 0;
    while n < schedules {
        let (choice, seed, count) = Choice::plan(n, first);
        if let Err(why) = choice.run(scene, seed, count) {
            return Some((choice, seed, why));
        }
        n += count;
    }
    None
}

/// With the wrong form `name` active, one of `schedules` schedules of `scene` must fail with a
/// message that contains `how`.
pub(crate) fn finds(name: &'static str, scene: &Scene, schedules: u64, how: &str) {
    assert!(WRONG_FORMS.iter().any(|form| form.name == name), "no wrong form {name:?}");
    WRONG.set(name);
    let found = search(scene, schedules, 77);
    WRONG.set("");
    let Some((_, _, why)) = found else { panic!("not found in {schedules} schedules: {name}") };
    assert!(why.contains(how), "{name}: found, but not by {how:?}: {why}");
}

/// A run of the scene depends on the schedule alone: the same schedule twice gives the same run
/// twice.
pub(crate) fn is_repeatable(scene: &Scene) {
    TIMERS.set(scene.timers);
    let run = scene.run;
    let start = Arc::new(move || {
        time::begin();
        run();
    });
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.failure_persistence = FailurePersistence::None;
    let scheduler = RandomScheduler::new_from_seed(9, 20);
    let scheduler = shuttle::scheduler::UncontrolledNondeterminismCheckScheduler::new(scheduler);
    Runner::new(scheduler, config).run(move || start());
}
