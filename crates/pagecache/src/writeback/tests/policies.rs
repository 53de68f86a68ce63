//! What the flusher writes when, and in which order.

use super::*;

#[test]
fn a_kick_leaves_nothing_to_a_timer() {
    let fixture = Fixture::new(Plan::default());
    let files: Vec<Arc<FakeFile>> = (0..20).map(|_| Arc::default()).collect();
    for (n, file) in files.iter().enumerate() {
        fixture.write(file, 0..(n as u64 + 1) * PAGE, Use::DropBehind).unwrap();
    }
    assert!(fixture.becomes_clean(Duration::from_secs(2)));
    assert!(fixture.writeback.dirty_files().is_empty());
}

#[test]
fn small_writes_in_order_write_each_page_once() {
    let fixture = Fixture::new(Plan::default());
    let file = Arc::new(FakeFile::default());
    for at in (0..64 * PAGE + 100).step_by(1000) {
        fixture.write(&file, at..at + 1000, Use::DropBehind).unwrap();
    }
    // The page in which the writer stopped is written once, after the writer has stopped.
    assert!(fixture.becomes_clean(Duration::from_secs(2)));
    let bytes = fixture.device.written();
    let pages = (64 * PAGE + 1100).div_ceil(PAGE);
    // On a busy machine the writer may stay away from a page for longer than the flusher spares it.
    assert!((pages..pages + 3).contains(&(bytes / PAGE)), "{} of {pages}", bytes / PAGE);
}

#[test]
fn a_small_file_is_written_without_a_second_call() {
    let fixture = Fixture::new(Plan::default());
    let file = Arc::new(FakeFile::default());
    fixture.write(&file, 0..10, Use::DropBehind).unwrap();
    assert!(fixture.becomes_clean(Duration::from_secs(2)));
}

#[test]
fn ordinary_data_waits_for_its_age() {
    let fixture = Fixture::new(Plan { expire: Duration::from_millis(150), ..Plan::default() });
    let file = Arc::new(FakeFile::default());
    let start = Instant::now();
    fixture.write(&file, 0..MIB, Use::Keep).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(fixture.stats().dirty == MIB || start.elapsed() > Duration::from_millis(150));
    assert!(fixture.becomes_clean(Duration::from_secs(2)));
    assert!(start.elapsed() >= Duration::from_millis(150));
}

#[test]
fn write_everything_writes_the_oldest_file_first() {
    let fixture = Fixture::new(Plan { threads: 1, ..Plan::default() });
    let files: Vec<Arc<FakeFile>> = (0..8).map(|_| Arc::default()).collect();
    for file in &files {
        fixture.write(file, 0..3 * PAGE, Use::Keep).unwrap();
    }
    fixture.writeback.write_everything();
    assert!(fixture.becomes_clean(Duration::from_secs(2)));
    let order: Vec<u64> = fixture.device.log.lock().unwrap().iter().map(|write| write.0).collect();
    assert_eq!(order, files.iter().map(|file| file.state.id()).collect::<Vec<_>>());
}

#[test]
fn drop_behind_data_does_not_wait_for_gigabytes_of_others() {
    let fixture = Fixture::new(Plan { threads: 1, ..Plan::default() });
    let (old, new) = (Arc::new(FakeFile::default()), Arc::new(FakeFile::default()));
    fixture.write(&old, 0..100 * MIB, Use::Keep).unwrap();
    fixture.write(&new, 0..MIB, Use::DropBehind).unwrap();
    assert!(fixture.comes(Duration::from_secs(2), |stats| stats.drop_behind_dirty == 0));
    let left = fixture.stats().dirty;
    assert!(left >= 80 * MIB, "{left} bytes are left");
}

#[test]
fn a_file_under_constant_writes_does_not_delay_others() {
    let fixture =
        Fixture::new(Plan { threads: 1, bandwidth: 50e6, cap: 64 * MIB, ..Plan::default() });
    let (busy, quiet) = (Arc::new(FakeFile::default()), Arc::new(FakeFile::default()));
    fixture.write(&busy, 0..8 * MIB, Use::DropBehind).unwrap();
    fixture.write(&quiet, 0..MIB, Use::DropBehind).unwrap();
    let start = Instant::now();
    let mut at = 8 * MIB;
    while quiet.is_dirty() {
        fixture.write(&busy, at..at + MIB, Use::DropBehind).unwrap();
        at += MIB;
        assert!(start.elapsed() < Duration::from_secs(5), "{} bytes of others", at);
    }
}

#[test]
fn a_visit_goes_on_while_no_other_file_waits() {
    let fixture = Fixture::new(Plan { threads: 1, dirty_limit: 32 * MIB, ..Plan::default() });
    let file = Arc::new(FakeFile::default());
    fixture.write(&file, 0..100 * MIB, Use::Keep).unwrap();
    assert!(fixture.comes(Duration::from_secs(5), |stats| stats.dirty <= 16 * MIB));
    let visits = fixture.device.visits.load(Ordering::SeqCst);
    assert!(visits <= 2, "{visits} visits, each of 10 MiB at most if it ends");
}

#[test]
fn inline_writes_its_own_range_before_it_returns() {
    let fixture = Fixture::new(Plan { policy: DontCachePolicy::Inline, ..Plan::default() });
    let file = Arc::new(FakeFile::default());
    fixture.write(&file, 0..MIB, Use::Keep).unwrap();
    fixture.write(&file, 4 * MIB..5 * MIB, Use::DropBehind).unwrap();
    assert_eq!(fixture.stats().dirty, MIB);
    // A call that finishes no page writes none; the next one writes the page whole.
    fixture.write(&file, 5 * MIB..5 * MIB + 100, Use::DropBehind).unwrap();
    assert_eq!(fixture.stats().dirty, MIB + PAGE);
    fixture.write(&file, 5 * MIB + 100..5 * MIB + PAGE, Use::DropBehind).unwrap();
    assert_eq!(fixture.stats().dirty, MIB);
}

#[test]
fn a_rate_limited_call_in_flight_writes_the_bytes_of_skipped_calls() {
    let fixture = Fixture::new(Plan { policy: DontCachePolicy::RateLimited, ..Plan::default() });
    let file = Arc::new(FakeFile::default());
    std::thread::scope(|scope| {
        for n in 0..8u64 {
            let (fixture, file) = (&fixture, &file);
            scope.spawn(move || {
                for call in 0..20 {
                    let at = (n * 20 + call) * 16 * PAGE;
                    fixture.write(file, at..at + 16 * PAGE, Use::DropBehind).unwrap();
                }
            });
        }
    });
    assert!(fixture.becomes_clean(Duration::from_secs(2)), "{:?}", fixture.stats());
}
