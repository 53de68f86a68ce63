//! Writing to damaged volumes: nothing panics, hangs or grows without bound, and the damage does
//! not spread.
//!
//! ```text
//!   volume ──one structure damaged──┬─► e2fsck -fy ─► which files of /keep survive the damage
//!                                   ├─► opened to read ─► which files of /keep can be read
//!                                   └─► opened to write ─► script ─► those can be read still
//!                                                             │ close: marked, if damage was met
//!                                                             └─► e2fsck -fy ─► clean, same files
//! ```
//!
//! Cases run in a child process with a limit of memory, and of time for a case that never ends.
//! `EXTANT_HOSTILE=volume:seed` runs one of them, and keeps the damaged volume where `EXTANT_KEEP`
//! says.

mod case;

use extant_compat_tests::volume;
use extant_testkit::command::run;
use extant_testkit::report::run_cases;
use std::process::Command;
use std::time::Duration;

/// The number of cases in one child.
const BATCH: u64 = 12;
/// The time limit of a child: many times what it needs.
const LIMIT: Duration = Duration::from_secs(240);
/// Address space of a child, KiB.
const MEMORY_KIB: u64 = 3 << 20;
/// The variable that selects the child's cases.
const CHILD: &str = "EXTANT_HOSTILE";

/// Cases of each volume: few here, `EXTANT_SOAK` times as many for `make soak`.
fn rounds() -> u64 {
    number("EXTANT_ROUNDS").unwrap_or(24 * number("EXTANT_SOAK").unwrap_or(1))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn damaged_volumes_are_written_without_harm() {
    extant_testkit::require!(E2fsprogs);
    let first = number("EXTANT_SEED").unwrap_or(0) % (1 << 40);
    let batches: Vec<(&str, u64)> = volume::names()
        .flat_map(|name| (0..rounds().div_ceil(BATCH)).map(move |n| (name, first + n * BATCH)))
        .collect();
    run_cases(
        "hostile write",
        &batches,
        |(name, seed)| format!("{name}:{seed}"),
        |(name, seed)| in_child("one_batch", &format!("{name}:{seed}:{BATCH}")),
    );
}

#[test]
fn volumes_that_e2fsprogs_calls_damaged_are_written_without_harm() {
    extant_testkit::require!(E2fsprogs);
    let Some(images) = extant_testkit::damaged::images() else { return };
    run_cases(
        "hostile write to damaged images",
        &images,
        |image| image.name.clone(),
        |image| in_child("one_image", &image.name),
    );
}

/// Runs the test `name` of this program in a process of its own.
fn in_child(name: &str, work: &str) -> Result<String, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"")).arg(this);
    command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    let done = run(command.env(CHILD, work), LIMIT)?;
    let text = done.out() + &done.err();
    if done.ok() {
        let said = text.lines().filter(|line| line.starts_with("case ")).count();
        return Ok(format!("{said} cases"));
    }
    // The last case that began is the one that failed.
    let case = text.lines().rev().find(|line| line.starts_with("case ")).unwrap_or("no case began");
    let why = text.lines().filter(|line| line.contains("panicked") || line.starts_with("spread"));
    let why: Vec<&str> = why.take(4).collect();
    let detail = text.lines().skip_while(|line| !line.contains("panicked")).nth(1).unwrap_or("");
    Err(format!("{}: {case}: {} {detail}", done.ending(), why.join(" | ")))
}

fn work() -> Option<String> {
    std::env::var(CHILD).ok()
}

#[test]
#[ignore = "a child of damaged_volumes_are_written_without_harm"]
fn one_batch() {
    let Some(work) = work() else { return };
    let mut parts = work.split(':');
    let rich = volume::make(parts.next().expect("a volume"));
    let mut number = |or| parts.next().map_or(or, |n| n.parse().expect("a number"));
    let (seed, count) = (number(0), number(1));
    for seed in seed..seed + count {
        case::generated(&rich, seed);
    }
}

#[test]
#[ignore = "a child of volumes_that_e2fsprogs_calls_damaged_are_written_without_harm"]
fn one_image() {
    let Some(work) = work() else { return };
    let images = extant_testkit::damaged::images().expect("the images");
    let image = images.iter().find(|image| image.name == work).expect("its name");
    case::image(image);
}

#[test]
fn the_script_does_what_it_says_on_volumes_that_are_whole() {
    extant_testkit::require!(E2fsprogs);
    for name in volume::names() {
        case::undamaged(&volume::make(name));
    }
}
