//! Writers are throttled smoothly, and dirty bytes stay within their limits.

use super::*;

/// Time limits are generous: the machine may be busy.
fn within_the_cap(writers: usize, call: u64) {
    within(Plan::default(), writers, call);
    // Without the gate, calls under way may fill the last quarter, and no more.
    let plan = Plan { gate: false, ..Plan::default() };
    let most = plan.cap / 4 / writers as u64;
    within(plan, writers, call.min(most));
}

fn within(plan: Plan, writers: usize, call: u64) {
    let (cap, bandwidth) = (plan.cap, plan.bandwidth);
    let fixture = Fixture::new(plan);
    let seen = storm(&fixture, writers, call, Use::DropBehind, Duration::from_millis(400));
    let peak = fixture.stats().drop_behind_dirty_peak;
    assert!(peak <= cap, "{peak} bytes were dirty or under write-back");
    let (least, most) = (seen.written.iter().min().unwrap(), seen.written.iter().max().unwrap());
    // The first writers find nothing dirty and run ahead.
    assert!(least * 4 + cap >= *most, "one writer got {least} bytes and another {most}");
    let stall = seen.quantile(1.0);
    let share = call as f64 * writers as f64 / bandwidth;
    let fair = Duration::from_millis(250).max(Duration::from_secs_f64(share * 4.0));
    assert!(stall < fair, "a call took {stall:?}");
    let rate = fixture.device.written() as f64 / seen.time.as_secs_f64();
    assert!(rate > bandwidth * 0.4, "{} MB/s", rate / 1e6);
    assert!(fixture.becomes_clean(Duration::from_secs(2)), "bytes were left to a timer");
}

#[test]
fn one_writer_stays_within_the_cap() {
    within_the_cap(1, 64 << 10);
}

#[test]
fn four_writers_stay_within_the_cap() {
    within_the_cap(4, MIB);
}

#[test]
fn thirty_two_writers_stay_within_the_cap() {
    within_the_cap(32, 64 << 10);
}

#[test]
fn thirty_two_writers_of_large_calls_stay_within_the_cap() {
    within(Plan::default(), 32, MIB);
}

#[test]
fn ordinary_writers_stay_near_the_dirty_limit() {
    let dirty_limit = 16 * MIB;
    let fixture = Fixture::new(Plan { dirty_limit, ..Plan::default() });
    let seen = storm(&fixture, 4, 256 << 10, Use::Keep, Duration::from_millis(500));
    assert!(fixture.stats().dirty_peak <= dirty_limit + 4 * (256 << 10));
    assert!(seen.quantile(1.0) < Duration::from_millis(250), "{:?}", seen.quantile(1.0));
    let left = fixture.stats().dirty;
    assert!(left > 0 && left <= dirty_limit, "{left} bytes are dirty: background write-back");
}

#[test]
fn no_writer_is_throttled_while_little_is_dirty() {
    let fixture = Fixture::new(Plan { bandwidth: 1e6, ..Plan::default() });
    let file = Arc::new(FakeFile::default());
    let start = Instant::now();
    fixture.write(&file, 0..MIB, Use::DropBehind).unwrap();
    fixture.write(&file, MIB..9 * MIB, Use::Keep).unwrap();
    assert!(start.elapsed() < Duration::from_millis(100));
}

#[test]
fn waiting_writers_go_on_one_by_one_as_bytes_are_written() {
    let fixture = Fixture::new(Plan { gate: false, ..Plan::default() });
    fixture.shut(true);
    let file = Arc::new(FakeFile::default());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8u64)
            .map(|n| {
                let (fixture, file) = (&fixture, &file);
                scope.spawn(move || {
                    let at = n * 64 * MIB;
                    for call in 0..6 {
                        fixture.write(
                            file,
                            at + call * MIB..at + (call + 1) * MIB,
                            Use::DropBehind,
                        )?;
                    }
                    Ok::<(), Error>(())
                })
            })
            .collect();
        // Three quarters of the cap are full. Each writer exceeds that by at most one call.
        assert!(fixture.comes(Duration::from_secs(2), |stats| stats.drop_behind_dirty >= 6 * MIB));
        std::thread::sleep(Duration::from_millis(120));
        let full = fixture.stats().drop_behind_dirty;
        assert!(full <= 14 * MIB, "{full}");
        fixture.shut(false);
        for writer in writers {
            writer.join().unwrap().unwrap();
        }
    });
    assert!(fixture.stats().drop_behind_dirty_peak <= 14 * MIB);
    assert!(fixture.becomes_clean(Duration::from_secs(2)));
}

/// The levels at which the first pause was charged and at which the writer stopped, in bytes of its
/// class. The writer writes calls of 64 KiB to a device that completes nothing.
fn thresholds_of(how: Use, plan: Plan) -> (u64, u64) {
    const CALL: u64 = 64 << 10;
    let fixture = Fixture::new(plan);
    fixture.shut(true);
    // With such a fast device pauses are charged, but none is long enough to sleep.
    fixture.writeback.rate.set(1 << 40);
    let throttle = match how {
        Use::DropBehind => &fixture.account.marked_throttle,
        Use::Keep => &fixture.account.throttle,
    };
    let level = || match how {
        Use::DropBehind => fixture.account.marked_held(),
        Use::Keep => fixture.account.held(),
    };
    let first = AtomicU64::new(u64::MAX);
    let over = AtomicBool::new(false);
    let file = Arc::new(FakeFile::default());
    let stopped = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for call in 0.. {
                fixture.write(&file, call * CALL..(call + 1) * CALL, how).unwrap();
                // From then on bytes leave, and the level says nothing about this writer.
                if over.load(Ordering::Relaxed) {
                    break;
                }
                if throttle.seen().0 {
                    first.fetch_min(level(), Ordering::Relaxed);
                }
            }
        });
        // The level alone shows a writer that waits elsewhere or not at all.
        fixture.comes(Duration::from_secs(10), |_| throttle.seen().1 == 1 || level() > 64 * MIB);
        let stopped = level();
        over.store(true, Ordering::Relaxed);
        fixture.shut(false);
        writer.join().unwrap();
        stopped
    });
    (first.into_inner() - CALL, stopped)
}

#[test]
fn dont_cache_writers_pause_from_half_of_the_cap_on_and_stop_at_three_quarters() {
    let plan = || Plan { cap: 8 * MIB, ..Plan::default() };
    assert_eq!(thresholds_of(Use::DropBehind, plan()), (4 * MIB, 6 * MIB));
    // The gate does not affect these levels.
    let plan = Plan { gate: false, ..plan() };
    assert_eq!(thresholds_of(Use::DropBehind, plan), (4 * MIB, 6 * MIB));
}

#[test]
fn ordinary_writers_pause_from_half_of_the_dirty_limit_on_and_stop_at_it() {
    let plan = Plan { dirty_limit: 8 * MIB, ..Plan::default() };
    assert_eq!(thresholds_of(Use::Keep, plan), (4 * MIB, 8 * MIB));
}
