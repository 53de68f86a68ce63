//! A log that is always nearly full: log space is made beside commits, by threads that start
//! handles and by the background thread.

use super::Ground;
use crate::explore::{Scene, Timers, explore, finds};
use crate::journal::JournalOptions;
use crate::journal::cache::block::Seq;
use crate::journal::cache::write_out::Share;
use crate::journal::test_journal::{empty_log, options};
use crate::journal::test_log::KINDS;
use crate::model::thread;
use std::time::Duration;

fn run(options: JournalOptions) {
    let ground = Ground::new(empty_log(KINDS[7], 50), options, 3);
    thread::scope(|scope| {
        for n in 0..3 {
            let ground = &ground;
            scope.spawn(move || {
                // Some threads fill the log, one changes the same blocks repeatedly.
                let first = 5 + 10 * n as u64;
                let more: Vec<u64> = (first..first + 6 * n as u64).collect();
                for round in 0..4 {
                    let (value, tid) = ground.change(n, &more).unwrap();
                    if round != 1 {
                        ground.journal.commit(tid).unwrap();
                        ground.acknowledge(n, value);
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..2 {
                ground.journal.write_back(0).unwrap();
                ground.cut();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3 {
                    ground.journal.transactions().unwrap().make_space(48).unwrap();
                    ground.cut();
                }
            });
        }
    });
    ground.cut();
    ground.close();
}

/// Blocks go home continuously, of transactions whose blocks a later one changes again.
fn home() {
    let ground = Ground { dwell: 20, ..Ground::new(empty_log(KINDS[7], 50), options(), 1) };
    let transactions = ground.journal.transactions().unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let (value, tid) = ground.change(0, &[]).unwrap();
                    ground.journal.commit(tid).unwrap();
                    ground.acknowledge(0, value);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..4 {
                transactions.checkpoint(Share::UpTo(Seq::MAX)).unwrap();
                ground.cut();
            }
        });
    });
    ground.close();
}

/// The journal is closed while another thread commits, as the background thread does by the clock.
fn close() {
    let ground = Ground::new(empty_log(KINDS[7], 1), options(), 1);
    let (_, tid) = ground.change(0, &[]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| ground.journal.commit(tid).unwrap());
        scope.spawn(|| ground.close());
    });
    ground.cut();
}

/// Threads that start handles make log space.
const ALONE: Scene = Scene {
    name: "journal_scenes::checkpoints::a_start_frees_log_space",
    timers: Timers::Never,
    run: || run(options()),
};

/// The background thread does, too.
const HELPED: Scene = Scene {
    name: "journal_scenes::checkpoints::log_space_is_freed_in_the_background",
    timers: Timers::Sometimes,
    run: || run(JournalOptions { commit_interval: Some(Duration::from_millis(2)), ..options() }),
};

const HOME: Scene = Scene {
    name: "journal_scenes::checkpoints::blocks_go_home_beside_changes",
    timers: Timers::Never,
    run: home,
};

const CLOSE: Scene = Scene {
    name: "journal_scenes::checkpoints::a_journal_closed_beside_a_commit_is_home",
    timers: Timers::Never,
    run: close,
};

#[test]
fn blocks_go_home_beside_changes() {
    explore(&HOME, 1000);
    finds("a block goes home though a later handle changed it", &HOME, 6000, "");
}

#[test]
fn a_journal_closed_beside_a_commit_is_home() {
    explore(&CLOSE, 1000);
    finds("waiters go on before a commit's blocks are to go home", &CLOSE, 1000, "did not go home");
}

#[test]
fn a_start_frees_log_space() {
    explore(&ALONE, 600);
}

#[test]
fn log_space_is_freed_in_the_background() {
    explore(&HELPED, 400);
}

#[test]
fn log_space_that_is_still_needed_is_found() {
    finds("the tail moves before blocks are durable at home", &ALONE, 1000, "");
    finds("an older tail follows a newer one", &ALONE, 6000, "");
}
