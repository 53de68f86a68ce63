//! Files with checksums on a failing device: at the end nothing is held or reserved, and readable
//! data matches.

use crate::audit::check;
use crate::files::direct::DirectOptions;
use crate::offline::mkfs::{MkfsOptions, format};
use crate::open::OpenOptions;
use crate::{Environment, File, Filesystem};
use extant_base::{BlockSize, IoOp};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testdev::Faulty;
use extant_testkit::rng::Rng;
use std::sync::Arc;

const LEN: usize = 1 << 20;

fn volume(features: &str) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let size = BlockSize::from_bytes(4096).unwrap();
    let options = MkfsOptions::new().block_size(size).zeroed(true).features(features).unwrap();
    format(device.clone(), &options, &Environment::default()).unwrap();
    MemoryDevice::clone(&device)
}

fn open(device: Arc<dyn BlockDevice>) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(8 << 20);
    options.open_device(device).unwrap()
}

/// Writes something in one of the possible ways. Returns whether the write was accepted.
fn step(file: &File, rng: &mut Rng, want: &mut [u8]) -> bool {
    let at = rng.below(LEN - 70_000);
    let byte = rng.below(255) as u8 + 1;
    if rng.below(3) == 0 {
        let (at, bytes) = (at / 4096 * 4096, vec![byte; 4096 * (1 + rng.below(10))]);
        let done = file.write_direct_at(&bytes, at as u64, &DirectOptions::default());
        // What part of a failed write is there is unknown.
        return match done {
            Ok(n) => {
                want[at..at + n].copy_from_slice(&bytes[..n]);
                n == bytes.len()
            }
            Err(_) => false,
        };
    }
    let bytes = vec![byte; 1 + rng.below(60_000)];
    match file.write_at(&bytes, at as u64) {
        Ok(n) => {
            want[at..at + n].copy_from_slice(&bytes[..n]);
            true
        }
        Err(_) => false,
    }
}

fn is_sound(device: &MemoryDevice) {
    let device = Arc::new(device.clone());
    OpenOptions::new().recover_device_in_place(device.clone()).unwrap();
    let options = check::Options { data: true, ..check::Options::default() };
    let report = check::check_device(device, &options, &()).unwrap();
    assert!(report.clean, "{:?}", report.findings);
}

#[test]
fn data_that_does_not_reach_the_device_stays_dirty_and_reserved() {
    for seed in 0..6 {
        let mut rng = Rng::new(100 + seed);
        let device = Arc::new(Faulty::new(volume("data_csum")));
        let fs = open(device.clone());
        let file = fs.create_file("/f", &Default::default()).unwrap().open().unwrap();
        let mut want = vec![0; LEN];
        file.write_all_at(&want, 0).unwrap();
        file.sync_all().unwrap();
        let place = file.extents().unwrap()[0].block.0 * 4096;
        let mut failed = 0;
        for round in 0..8 {
            // Starts at the file, where its new blocks are, except some; the journal and tables are
            // before it.
            let start = place + rng.below(LEN) as u64;
            if round % 2 == 0 {
                device.fail_range(IoOp::Write, start..device.len());
            }
            for _ in 0..12 {
                step(&file, &mut rng, &mut want);
            }
            failed += u32::from(file.sync_all().is_err());
            let mut back = vec![0; LEN];
            assert_eq!(file.read_at(&mut back, 0).unwrap(), LEN);
            assert!(back == want, "seed {seed}, round {round}");
            device.heal();
        }
        assert!(failed > 0, "no write failed");
        file.sync_all().unwrap();
        fs.sync().unwrap();
        assert_eq!(
            fs.volume().space().reserved_clusters(),
            0,
            "seed {seed}: held or reserved for nothing"
        );
        drop(file);
        fs.close().unwrap();
        let fs = open(Arc::new(device.inner().clone()));
        assert!(fs.read("/f").unwrap() == want, "seed {seed}");
        drop(fs);
        is_sound(device.inner());
    }
}

#[test]
fn each_request_fails_once_and_what_is_readable_matches() {
    let base = volume("data_csum");
    for nth in (0..150).step_by(3) {
        for op in [IoOp::Write, IoOp::Flush, IoOp::Read] {
            let device = Arc::new(Faulty::new(base.clone()));
            let fs = open(device.clone());
            let file = fs.create_file("/f", &Default::default()).unwrap().open().unwrap();
            let mut want = vec![0; LEN];
            let mut rng = Rng::new(nth);
            let _ = file.write_all_at(&want, 0);
            let _ = file.sync_all();
            device.fail(op, nth / if op == IoOp::Write { 1 } else { 4 });
            for n in 0..20 {
                step(&file, &mut rng, &mut want);
                if n % 3 == 0 {
                    let _ = file.sync_all();
                }
                if n == 9 {
                    let _ = file.set_len(LEN as u64 - 1000);
                }
            }
            drop(file);
            drop(fs);
            device.heal();
            is_sound(device.inner());
        }
    }
}
