//! Write-back while readers use the device.

use super::*;

#[test]
fn while_a_reader_is_active_one_thread_has_one_write_in_flight() {
    let fixture = Fixture::new(Plan::default());
    fixture.shut(true);
    let files: Vec<_> = (0..4).map(|_| Arc::new(FakeFile::default())).collect();
    let reading = fixture.account.readers.begin();
    for file in &files {
        fixture.write(file, 0..MIB, Use::DropBehind).unwrap();
    }
    let visits = |n: u64| fixture.device.visits.load(Ordering::SeqCst) >= n;
    assert!(fixture.comes(Duration::from_secs(10), |_| visits(1)));
    assert_eq!(fixture.device.writes_in_flight.load(Ordering::SeqCst), 1);
    // The other thread checks again and again, and files wait.
    std::thread::sleep(Duration::from_millis(50));
    assert!(!visits(2));
    drop(reading);
    assert!(fixture.comes(Duration::from_secs(10), |_| visits(2)));
    assert_eq!(fixture.device.writes_in_flight.load(Ordering::SeqCst), 4);
    fixture.shut(false);
    assert!(fixture.becomes_clean(Duration::from_secs(10)));
}

#[test]
fn everything_is_written_although_a_reader_never_ends() {
    let fixture = Fixture::new(Plan::default());
    let _reading = fixture.account.readers.begin();
    let files: Vec<_> = (0..8).map(|_| Arc::new(FakeFile::default())).collect();
    for file in &files {
        fixture.write(file, 0..MIB, Use::DropBehind).unwrap();
    }
    assert!(fixture.becomes_clean(Duration::from_secs(10)));
}
