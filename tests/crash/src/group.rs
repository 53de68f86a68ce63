//! Many cases, two at a time; a failing case is reduced before it is shown.
//!
//! ```text
//!   cases ──► lanes ──► Explorer ──► Tally, added up and printed
//!                          └── Failure ──► fewer operations, as long as it still fails
//! ```

use crate::alone;
use crate::explorer::{Budget, Explorer, Tally};
use crate::failure::Failure;
use crate::make::Make;
use crate::workload::Workload;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How many cases run at the same time.
const LANES: usize = 2;
/// The number of failures after which a group stops.
const FAILURES_MAX: usize = 8;
/// Attempts to reduce a failing workload.
const SHRINK_MAX: usize = 300;

/// Explores every case, then lets Linux recover the states that were kept for it. Prints the
/// counts.
///
/// Panics with every failure at the end.
pub fn explore_all(group: &str, explorer: &Explorer, cases: &[(Make, Workload)]) -> Tally {
    let began = Instant::now();
    let (tally, mut failures) = explore_cases(explorer, cases);
    failures.extend(explorer.linux_agrees(group));
    let secs = began.elapsed().as_secs_f32();
    // Bypasses the capture of `cargo test`, which hides the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "{group}: {tally} ({secs:.0} s)");
    let count = failures.len();
    assert!(failures.is_empty(), "{group}: {count} failed:\n  {}", failures.join("\n  "));
    tally
}

fn explore_cases(explorer: &Explorer, cases: &[(Make, Workload)]) -> (Tally, Vec<String>) {
    let next = AtomicUsize::new(0);
    let done = Mutex::new((Tally::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some((make, workload)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let explored = explorer.explore(make, workload);
                    let explored = explored.map_err(|failure| smaller(explorer, *failure));
                    let mut done = done.lock().unwrap_or_else(|e| e.into_inner());
                    match explored {
                        Ok(tally) => done.0 += tally,
                        Err(failure) => done.1.push(failure.to_string()),
                    }
                    if done.1.len() >= FAILURES_MAX {
                        next.store(cases.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// The same failure, or another one, of a workload with fewer operations.
pub fn smaller(explorer: &Explorer, mut failure: Failure) -> Failure {
    let mut left = SHRINK_MAX;
    let mut piece = failure.replay.workload.ops.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < failure.replay.workload.ops.len() && left > 0 {
            left -= 1;
            let mut trial = failure.replay.workload.clone();
            let end = (at + piece).min(trial.ops.len());
            trial.ops.drain(at..end);
            match explorer.explore(&failure.replay.make, &trial) {
                Err(found) => failure = *found,
                Ok(_) => at += piece,
            }
        }
        piece /= 2;
    }
    failure
}

/// Each operation alone, on each kind of volume.
pub fn each_alone(makes: impl IntoIterator<Item = Make>) -> Vec<(Make, Workload)> {
    let on = |make| {
        let all = alone::workloads().into_iter().chain(alone::workloads_on(&make));
        all.map(move |workload| (make, workload))
    };
    makes.into_iter().flat_map(on).collect()
}

/// On each kind of volume `rounds` workloads, times [`effort`]. `salt` makes their seeds differ
/// from those of other suites.
pub fn of_seeds(
    makes: impl IntoIterator<Item = Make>,
    (rounds, salt): (usize, u64),
    workload: impl Fn(u64) -> Workload,
) -> Vec<(Make, Workload)> {
    let seeds = (0..(rounds * effort()) as u64).map(|n| seed().wrapping_mul(salt).wrapping_add(n));
    let on = |make| seeds.clone().map(move |seed| (make, seed));
    let each = makes.into_iter().flat_map(on);
    each.map(|(make, seed)| (make, workload(seed))).collect()
}

/// The seed of this run: `EXTANT_SEED`, or a fixed one.
pub fn seed() -> u64 {
    std::env::var("EXTANT_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The meaning of `EXTANT_SOAK` if it is no number above 1.
const SOAK: usize = 8;

/// A factor for the amount of work: 1 unless `EXTANT_SOAK` is set. It multiplies the states of each
/// case and the number of random cases.
pub fn effort() -> usize {
    let Ok(text) = std::env::var("EXTANT_SOAK") else { return 1 };
    text.parse().ok().filter(|effort| *effort > 1).unwrap_or(SOAK)
}

impl Budget {
    /// With [`effort`] times as many states of each kind.
    pub fn with_effort(mut self) -> Budget {
        let effort = effort();
        self.states = self.states.saturating_mul(effort);
        self.cut_recoveries.0 *= effort;
        self.e2fsck *= effort;
        if effort > 1 {
            self.depth.exhaustive += 2;
            self.depth.samples *= 4;
            self.depth.torn += 1;
        }
        self
    }
}
