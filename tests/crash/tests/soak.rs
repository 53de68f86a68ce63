//! Threads at work on one volume for `EXTANT_SOAK_SECONDS`, through cuts, recoveries and times
//! without a free block, with memory within its limits throughout.

use extant_crash_tests::group::seed;
use extant_crash_tests::soak::{KINDS, Tally, Volume};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use std::io::Write;
use std::time::{Duration, Instant};

/// Sessions of one volume, then another kind takes over.
const LIVES: usize = 12;

/// Reports progress, past the capture of `cargo test`.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn a_volume_lives_through_cuts_full_times_and_threads_within_its_memory() {
    require!(E2fsprogs);
    let seconds = std::env::var("EXTANT_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let (began, time) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(6)));
    let kinds: Vec<_> = match std::env::var("EXTANT_CASE") {
        Ok(name) => KINDS.iter().filter(|kind| kind.name.contains(&name)).collect(),
        Err(_) => KINDS.iter().collect(),
    };
    // Short runs use every kind, too, in an order of their own.
    let lives = if seconds.is_some() { LIVES } else { 1 };
    let (mut all, mut rng) = (Tally::default(), Rng::new(seed()));
    let mut turn = 0;
    while turn < kinds.len() && seconds.is_none() || began.elapsed() < time {
        let (kind, seed) = (*kinds[turn % kinds.len()], rng.next_u64());
        turn += 1;
        let mut volume = Volume::new(kind, seed).unwrap_or_else(|e| panic!("{}: {e}", kind.name));
        for life in 0..lives {
            let time = Duration::from_millis(if seconds.is_some() { 1500 } else { 250 });
            if let Err(error) = volume.live(time, &mut all) {
                panic!("{}, seed {seed:#x} (turn {turn}), life {life}: {error}", kind.name);
            }
        }
        if seconds.is_some() {
            say(&format!(
                "{:5} s, {}, seed {seed:#x}: {all}",
                began.elapsed().as_secs(),
                kind.name
            ));
        }
    }
    say(&format!("soak: {all} ({} s)", began.elapsed().as_secs()));
}
