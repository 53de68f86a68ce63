//! Devices that fail or hang, and a cache that stops.

use super::*;

#[test]
fn a_failing_file_stays_dirty_and_its_writers_get_the_error() {
    let fixture = Fixture::new(Plan::default());
    let file = Arc::new(FakeFile::default());
    file.fails.store(true, Ordering::SeqCst);
    let mut at = 0;
    let start = Instant::now();
    let error = loop {
        match fixture.write(&file, at..at + MIB, Use::DropBehind) {
            Ok(()) => at += MIB,
            Err(error) => break error,
        }
        assert!(at <= 16 * MIB, "no writer got the error");
    };
    assert_eq!(error.errno(), 5);
    assert!(start.elapsed() < Duration::from_secs(2));
    assert!(file.errors.load(Ordering::SeqCst) >= 1);
    assert_eq!(fixture.stats().dirty, at + MIB);
    // The flusher retries with delays, and succeeds in the end.
    let errors = file.errors.load(Ordering::SeqCst);
    assert!(errors <= 6, "{errors} tries");
    file.fails.store(false, Ordering::SeqCst);
    assert!(fixture.becomes_clean(Duration::from_secs(6)));
    fixture.write(&file, at..at + MIB, Use::DropBehind).unwrap();
}

#[test]
fn a_failing_file_does_not_stop_the_others() {
    let fixture = Fixture::new(Plan::default());
    let bad = Arc::new(FakeFile::default());
    bad.fails.store(true, Ordering::SeqCst);
    fixture.write(&bad, 0..MIB, Use::DropBehind).unwrap();
    let seen = storm(&fixture, 2, 64 << 10, Use::DropBehind, Duration::from_millis(300));
    assert!(seen.bytes() > 8 * MIB, "{} bytes", seen.bytes());
    assert!(fixture.comes(Duration::from_secs(2), |stats| stats.dirty == MIB));
}

#[test]
fn stop_wakes_waiting_writers() {
    let fixture = Fixture::new(Plan::default());
    fixture.shut(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let file = Arc::new(FakeFile::default());
            for n in 0..8 {
                fixture.write(&file, n * MIB..(n + 1) * MIB, Use::DropBehind).unwrap();
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!writer.is_finished());
        let stop = scope.spawn(|| fixture.writeback.stop());
        writer.join().unwrap();
        // `stop` waits for the visit under way.
        assert!(!stop.is_finished());
        fixture.shut(false);
        stop.join().unwrap();
    });
    fixture.writeback.stop();
}

#[test]
fn without_a_flusher_writers_do_not_wait() {
    let fixture = Fixture::new(Plan::default());
    fixture.writeback.stop();
    let file = Arc::new(FakeFile::default());
    for n in 0..32 {
        fixture.write(&file, n * MIB..(n + 1) * MIB, Use::DropBehind).unwrap();
    }
}

#[test]
fn the_list_keeps_no_file_alive() {
    let fixture = Fixture::new(Plan { expire: Duration::from_millis(30), ..Plan::default() });
    let file = Arc::new(FakeFile::default());
    fixture.write(&file, 0..PAGE, Use::Keep).unwrap();
    assert_eq!(fixture.writeback.dirty_files().len(), 1);
    assert_eq!(Arc::strong_count(&file), 1);
    drop(file);
    assert!(fixture.writeback.dirty_files().is_empty());
    std::thread::sleep(Duration::from_millis(80));
    assert_eq!(fixture.device.written(), 0);
}

#[test]
fn files_dirty_at_the_stop_stay_listed() {
    let fixture = Fixture::new(Plan::default());
    let file = Arc::new(FakeFile::default());
    fixture.write(&file, 0..PAGE, Use::Keep).unwrap();
    fixture.writeback.stop();
    let later = Arc::new(FakeFile::default());
    fixture.write(&later, 0..PAGE, Use::Keep).unwrap();
    assert_eq!(fixture.writeback.dirty_files().len(), 2);
}
