//! Handles beside commits: leaders, waiting threads, threads in between; and a device that fails.

use super::{Ground, scene};
use crate::explore::{Scene, Timers, explore, finds, is_repeatable};
use crate::journal::test_journal::{empty_log, journal_with_cache, options};
use crate::journal::test_log::KINDS;
use crate::journal::{CacheOptions, JournalOptions};
use crate::model::{below, thread};
use extant_base::BlockNr;
use std::sync::Arc;
use std::time::Duration;

/// Three threads change two pairs and commit; one commits everything; the power is cut at any
/// moment.
fn commits() {
    let ground = Ground::new(empty_log(KINDS[7], 1), options(), 2);
    thread::scope(|scope| {
        for n in 0..3 {
            let ground = &ground;
            scope.spawn(move || {
                for round in 0..2 {
                    let pair = (n + round) % 2;
                    let (value, tid) = ground.change(pair, &[]).unwrap();
                    ground.journal.commit(tid).unwrap();
                    assert!(ground.journal.is_durable(tid));
                    ground.acknowledge(pair, value);
                }
            });
        }
        scope.spawn(|| {
            ground.cut();
            ground.journal.sync().unwrap();
            ground.cut();
        });
    });
    ground.cut();
    ground.close();
}

/// The same, with a background thread and commits that take long, so that leaders wait for other
/// threads.
fn gathering() {
    let interval = Some(Duration::from_millis(1));
    let options = JournalOptions { commit_interval: interval, ..options() };
    let ground = Ground::new(empty_log(KINDS[7], 1), options, 3);
    thread::scope(|scope| {
        for n in 0..3 {
            let ground = &ground;
            scope.spawn(move || {
                for _ in 0..2 {
                    let (value, tid) = ground.change(n, &[]).unwrap();
                    // Commits that take this long are worth waiting for.
                    thread::sleep(Duration::from_millis(1));
                    ground.journal.commit(tid).unwrap();
                    ground.acknowledge(n, value);
                }
            });
        }
        scope.spawn(|| ground.cut());
    });
    ground.close();
}

/// The device fails for good: every thread gets an error, none waits for ever, and nothing
/// acknowledged is lost.
fn abort() {
    let ground = Ground::new(empty_log(KINDS[7], 1), options(), 2);
    ground.disk.fail_in(below(30) + 1);
    thread::scope(|scope| {
        for n in 0..3 {
            let ground = &ground;
            scope.spawn(move || {
                for round in 0..2 {
                    let pair = (n + round) % 2;
                    let Ok((value, tid)) = ground.change(pair, &[]) else { return };
                    if ground.journal.commit(tid).is_err() {
                        assert!(ground.journal.is_aborted());
                        return;
                    }
                    ground.acknowledge(pair, value);
                }
            });
        }
        scope.spawn(|| {
            let _ = ground.journal.write_back(0);
            ground.cut();
        });
    });
    let _ = ground.journal.close();
    ground.cut();
}

/// One flush loses what was written before it, and one thread gets its error: no other thread
/// continues as if it had succeeded.
fn lost() {
    let ground = Ground::new(empty_log(KINDS[7], 1), options(), 2);
    ground.disk.lose_in(below(8) + 1);
    thread::scope(|scope| {
        for n in 0..2 {
            let ground = &ground;
            scope.spawn(move || {
                for _ in 0..2 {
                    let Ok((value, tid)) = ground.change(n, &[]) else { return };
                    if ground.journal.commit(tid).is_err() {
                        return;
                    }
                    ground.acknowledge(n, value);
                }
            });
        }
        scope.spawn(|| {
            // Like a thread that syncs data alone.
            while ground.journal.flush().is_ok() && below(4) > 0 {}
            ground.cut();
        });
    });
    ground.cut();
}

/// Threads request blocks that one of them reads, in a cache too small for all.
fn loading() {
    let log = empty_log(KINDS[7], 1);
    let disk = Arc::new(super::Disk::new(log.image.clone()));
    let cache = CacheOptions { limit_bytes: 8 << 10, dirty_limit_bytes: 4 << 10 };
    let journal = journal_with_cache(&log, &disk, options(), cache);
    thread::scope(|scope| {
        for n in 0..3u64 {
            let journal = &journal;
            scope.spawn(move || {
                for nr in 0..6 {
                    let block = journal.cache().get(BlockNr((nr * (n + 1)) % 12 + 1)).unwrap();
                    assert_eq!(block.read()[0], crate::journal::test_log::OLD);
                }
            });
        }
    });
}

const COMMITS: Scene = Scene {
    name: "journal_scenes::commits::handles_beside_commits",
    timers: Timers::Never,
    run: commits,
};
const GATHERING: Scene = Scene {
    name: "journal_scenes::commits::leaders_that_wait_for_others",
    timers: Timers::Sometimes,
    run: gathering,
};
const ABORT: Scene = Scene {
    name: "journal_scenes::commits::a_device_that_fails",
    timers: Timers::Never,
    run: abort,
};

const LOST: Scene = Scene {
    name: "journal_scenes::commits::a_flush_that_loses_what_it_is_about",
    timers: Timers::Never,
    run: lost,
};

#[test]
fn handles_beside_commits() {
    explore(&COMMITS, 1500);
}

#[test]
fn leaders_that_wait_for_others() {
    explore(&GATHERING, 800);
}

#[test]
fn a_device_that_fails() {
    explore(&ABORT, 1500);
}

#[test]
fn a_flush_that_loses_what_it_is_about() {
    explore(&LOST, 1500);
    finds("a flush does not wait for concurrent ones that may fail", &LOST, 2000, "");
    finds("a flush that failed is forgotten", &LOST, 6000, "");
}

#[test]
fn readers_of_blocks_that_are_being_loaded() {
    let loading = scene(
        "journal_scenes::commits::readers_of_blocks_that_are_being_loaded",
        Timers::Never,
        loading,
    );
    explore(&loading, 800);
    finds("the loader of a block does not see a waiting reader", &loading, 2000, "deadlock");
}

#[test]
fn a_schedule_can_be_run_again() {
    is_repeatable(&COMMITS);
}

#[test]
fn a_waiter_that_is_not_woken_is_found() {
    finds("no thread is woken when handles may start again", &COMMITS, 500, "deadlock");
    finds("the leader is not woken when the last handle stops", &COMMITS, 500, "deadlock");
    finds("no thread is woken when a commit ends", &COMMITS, 500, "deadlock");
}

#[test]
fn half_a_handle_is_found() {
    finds("a commit does not wait for running handles", &COMMITS, 2000, "");
    finds("what a commit has not copied is not kept aside", &COMMITS, 2000, "");
}

#[test]
fn what_counts_as_durable_and_is_not_is_found() {
    finds("the commit block does not wait for what it closes", &COMMITS, 500, "lost");
    finds("a transaction counts as durable before its commit block is", &COMMITS, 2000, "lost");
}
