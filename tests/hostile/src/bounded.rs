//! A bounded run of a target, in a process of its own: with a limit of memory, and of time for an
//! input that never ends.
//!
//! ```text
//!   parent ─► child: unchanged seeds, then mutated ones, until the time is over
//!               │  the number of each input, before it runs ─► file
//!   child dies or takes too long ─► parent reads the number ─► EXTANT_HOSTILE=target:seed:number
//!                                                              runs that input again
//! ```

use crate::image::volumes;
use crate::{Target, mutate, target, targets};
use extant_testkit::command::run;
use extant_testkit::report::run_cases;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::os::unix::fs::FileExt;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Processor time of all targets, in seconds; `EXTANT_SOAK` times as much for `make soak`.
const ALL_SECONDS: f64 = 60.0;
/// The time limit of an input.
const INPUT_LIMIT: Duration = Duration::from_secs(60);
/// The time limit for everything that is made before the first input.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Address space of a child in KiB; most of it is stacks and arenas of threads.
const MEMORY_KIB: u64 = 2 << 20;
/// The variable that says what the child runs.
pub const CHILD: &str = "EXTANT_HOSTILE";
/// The variable that names the file in which the child writes the number of its input.
const PROGRESS: &str = "EXTANT_HOSTILE_PROGRESS";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs every target for its part of the time, in children of this program that run its test
/// `child`.
pub fn run_all(child: &str) {
    let soak = number("EXTANT_SOAK").unwrap_or(1) as f64;
    let seconds = number("EXTANT_SECONDS").map_or(ALL_SECONDS * soak, |seconds| seconds as f64);
    let seed = number("EXTANT_SEED").unwrap_or(0) % (1 << 40);
    let weights: u32 = targets().map(|target| target.weight).sum();
    // The long ones first, so that all end at about the same time.
    let mut all: Vec<&Target> = targets().collect();
    all.sort_by_key(|target| std::cmp::Reverse(target.weight));
    let scratch = Scratch::new();
    volumes::write_to(scratch.path()).expect("room for the volumes");
    run_cases(
        "hostile bytes",
        &all,
        |target| target.name.to_owned(),
        |target| {
            let part = seconds * f64::from(target.weight) / f64::from(weights);
            in_child(child, target.name, seed, Duration::from_secs_f64(part), scratch.path())
        },
    );
}

fn in_child(
    child: &str,
    name: &str,
    seed: u64,
    time: Duration,
    kept: &Path,
) -> Result<String, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let scratch = Scratch::new();
    let progress = scratch.file("progress");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"")).arg(this);
    command.args([child, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("{name}:{seed}:for:{}", time.as_millis())).env(PROGRESS, &progress);
    command.env(volumes::KEPT, kept).env("TMPDIR", scratch.path()).env("RUST_BACKTRACE", "0");
    let done = run(&mut command, time + START_LIMIT + INPUT_LIMIT)?;
    let text = done.out() + &done.err();
    if done.ok() {
        let said = text.lines().find_map(|line| line.strip_prefix("inputs: "));
        return said.map(|count| format!("{count} inputs")).ok_or("nothing was run".into());
    }
    let input = std::fs::read_to_string(&progress).unwrap_or_default();
    let why: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    let from = why.iter().position(|line| line.contains("panicked")).unwrap_or(0);
    let why = why[from..why.len().min(from + 4)].join(" | ");
    Err(format!("{}: {CHILD}={name}:{seed}:{}: {why}", done.ending(), input.trim()))
}

/// The child: `target:seed:for:milliseconds`, or `target:seed:number` for one input, which is
/// shown.
pub fn child() {
    let Ok(work) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = work.split(':').collect();
    let [name, seed, what, rest @ ..] = &words[..] else { panic!("{CHILD}=target:seed:number") };
    let (target, seed) = (target(name), seed.parse().expect("a seed"));
    let seeds = (target.seeds)();
    if *what != "for" {
        let data = input(target, &seeds, seed, what.parse().expect("a number"));
        println!("{name}: {} bytes: {data:02x?}", data.len());
        if let Some(path) = std::env::var_os("EXTANT_KEEP") {
            std::fs::write(path, &data).expect("room to keep it");
        }
        return (target.run)(&data);
    }
    let time = Duration::from_millis(rest[0].parse().expect("milliseconds"));
    let progress =
        std::env::var_os(PROGRESS).map(|path| std::fs::File::create(path).expect("room"));
    let began = Instant::now();
    let mut nr = 0;
    // All unchanged seeds, however long that takes.
    while nr < seeds.len() as u64 || began.elapsed() < time {
        if let Some(progress) = &progress {
            progress.write_all_at(format!("{nr:<20}\n").as_bytes(), 0).expect("room");
        }
        let data = input(target, &seeds, seed, nr);
        if catch_unwind(|| (target.run)(&data)).is_err() {
            panic!("{name}: {CHILD}={name}:{seed}:{nr}: {:02x?}", &data[..data.len().min(400)]);
        }
        nr += 1;
    }
    println!("\ninputs: {nr}");
}

/// The unchanged seeds, and then mutations of them.
fn input(target: &Target, seeds: &[Vec<u8>], seed: u64, nr: u64) -> Vec<u8> {
    match seeds.get(nr as usize) {
        Some(whole) => whole.clone(),
        None => mutate::input(seeds, target.longest, &mut Rng::new(seed << 24 ^ nr)),
    }
}
