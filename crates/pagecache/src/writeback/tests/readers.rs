//! Write-back while readers use the device.

use super::*;

#[test]
fn while_a_reader_is_active_one_thread_has_one_write_in_flight() {
    let scene = Scene::new(Plan::default());
    scene.shut(true);
    let files: Vec<_> = (0..4).map(|_| Arc::new(FakeFile::default())).collect();
    let reading = scene.account.readers.begin();
    for file in &files {
        scene.write(file, 0..MIB, Use::DropBehind).unwrap();
    }
    let visits = |n: u64| scene.device.visits.load(Ordering::SeqCst) >= n;
    assert!(scene.comes(Duration::from_secs(10), |_| visits(1)));
    assert_eq!(scene.device.writes_in_flight.load(Ordering::SeqCst), 1);
    // The other thread checks again and again, and files wait.
    std::thread::sleep(Duration::from_millis(50));
    assert!(!visits(2));
    drop(reading);
    assert!(scene.comes(Duration::from_secs(10), |_| visits(2)));
    assert_eq!(scene.device.writes_in_flight.load(Ordering::SeqCst), 4);
    scene.shut(false);
    assert!(scene.settles(Duration::from_secs(10)));
}

#[test]
fn everything_is_written_although_a_reader_never_ends() {
    let scene = Scene::new(Plan::default());
    let _reading = scene.account.readers.begin();
    let files: Vec<_> = (0..8).map(|_| Arc::new(FakeFile::default())).collect();
    for file in &files {
        scene.write(file, 0..MIB, Use::DropBehind).unwrap();
    }
    assert!(scene.settles(Duration::from_secs(10)));
}
