//! Runs the cases of a group, two at a time, and prints a line for each.
//!
//! ```text
//!   kernel_clean: b1k: ok, 2345 entries (1.2 s)
//!   kernel_clean: b2k: FAILED: /files/size_60: uid 0 | 1
//! ```
//! A group fails at its end, after all of its cases ran, with the list of those that failed.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How many cases run at the same time.
const LANES: usize = 2;

/// A test program runs one group at a time, whatever its number of threads.
static GROUP: Mutex<()> = Mutex::new(());

/// Runs [`try_cases`] and panics at the end if any case failed, naming all of them.
pub fn run_cases<C: Sync>(
    group: &str,
    cases: &[C],
    name: impl Fn(&C) -> String + Sync,
    work: impl Fn(&C) -> Result<String, String> + Sync,
) {
    expect_none(group, &try_cases(group, cases, name, work));
}

/// Panics with the list of `failures` unless it is empty.
pub fn expect_none(group: &str, failures: &[String]) {
    let count = failures.len();
    assert!(failures.is_empty(), "{group}: {count} failed:\n  {}", failures.join("\n  "));
}

/// Runs `work` on each of `cases` and prints a line for each; `name` returns the name of a case.
/// The line shows what `work` returns, after `ok` or as the failure. Returns the failures, each
/// with the name of its case.
///
/// The last line of the group bypasses the capture of `cargo test`. The lines of the cases show if
/// the group fails, or with `--nocapture`. `EXTANT_CASE=TEXT` runs only the cases with `TEXT` in
/// their name.
pub fn try_cases<C: Sync>(
    group: &str,
    cases: &[C],
    name: impl Fn(&C) -> String + Sync,
    work: impl Fn(&C) -> Result<String, String> + Sync,
) -> Vec<String> {
    // A group that failed leaves no inconsistent state.
    let _one = GROUP.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let only = std::env::var("EXTANT_CASE").unwrap_or_default();
    let cases: Vec<&C> = cases.iter().filter(|case| name(case).contains(&only)).collect();
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let start = Instant::now();
                    let result = catch_unwind(AssertUnwindSafe(|| work(case)))
                        .unwrap_or_else(|panic| Err(format!("panicked: {}", message(&panic))));
                    let name = name(case);
                    let secs = start.elapsed().as_secs_f32();
                    match result {
                        Ok(note) => println!("{group}: {name}: ok {note} ({secs:.1} s)"),
                        Err(error) => {
                            println!("{group}: {name}: FAILED: {error} ({secs:.1} s)");
                            failed.lock().expect("no lane panics").push(format!("{name}: {error}"));
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no lane panics");
    let (bad, all) = (failed.len(), cases.len());
    let secs = began.elapsed().as_secs_f32();
    // Bypasses the capture of `cargo test`, which hides the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "{group}: {} of {all} cases ok ({secs:.0} s)", all - bad);
    failed
}

fn message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
}
