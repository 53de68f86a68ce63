//! Runs the one state that `EXTANT_CRASH_REPLAY` names.

use extant_crash_tests::explorer::Explorer;
use extant_crash_tests::failure::{REPLAY, Replay};

#[test]
fn the_state_of_a_failure_is_seen_again() {
    let Ok(text) = std::env::var(REPLAY) else { return };
    let replay: Replay = text.parse().unwrap_or_else(|e| panic!("{REPLAY}: {e}"));
    match Explorer::replay(&replay) {
        Ok(done) => println!("no failure: {done}"),
        Err(failure) => panic!("{failure}"),
    }
}
