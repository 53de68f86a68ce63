//! A device that fails, at each request in turn.

use crate::common::{judge, new_file, pattern};
use crate::{ALL, GARBAGE, VOLUMES, by};
use extant::{FallocateMode, OpenOptions};
use extant_base::IoOp;
use extant_blockdev::Faulty;
use std::sync::Arc;

const LEN: usize = 256 << 10;

#[test]
fn a_failed_write_shows_nothing_that_was_on_the_device_before() {
    for volume in VOLUMES {
        let (empty, fs) = volume(4096, None);
        fs.close().unwrap();
        for cache in [0, 4] {
            for nth in 1..40 {
                let device = Arc::new((*empty).clone());
                let faulty = Arc::new(Faulty::new(device.clone()));
                let mut options = OpenOptions::new();
                options.write(true).commit_interval(None).page_cache_bytes(cache << 20);
                let fs = options.open_device(faulty.clone()).unwrap();
                let file = new_file(&fs, "f");
                let old = pattern(LEN, 1);
                file.write_all_at(0, &old).unwrap();
                file.allocate(FallocateMode::ZeroRange, 65_536, 65_536).unwrap();
                file.allocate(FallocateMode::PunchHole, 131_072, 65_536).unwrap();
                fs.sync().unwrap();
                let new = vec![0x55; LEN + 65_536];
                faulty.fail(IoOp::Write, nth);
                let mut done = 0;
                while done < new.len() {
                    match file.write_direct_at(
                        done as u64,
                        &new[done..],
                        &by(ALL[nth as usize % 4]),
                    ) {
                        Ok(n) => done += n,
                        Err(_) => break,
                    }
                }
                faulty.heal();
                for direct in [false, true] {
                    let mut back = vec![0; new.len()];
                    let n = match direct {
                        true => file.read_direct_at(0, &mut back, &by(ALL[0])).unwrap(),
                        false => file.read_at(0, &mut back).unwrap(),
                    };
                    assert!(n >= done, "write {nth} failed: {done} bytes written, {n} there");
                    for (at, byte) in back[..n].iter().enumerate() {
                        let is_old = old.get(at) == Some(byte) || *byte == 0;
                        let is_new = *byte == 0x55;
                        assert!(
                            *byte != GARBAGE || old.get(at) == Some(&GARBAGE),
                            "write {nth}: garbage at {at}"
                        );
                        assert!(
                            is_new || (at >= done && is_old),
                            "write {nth}: byte {at} is {byte:#x}"
                        );
                    }
                }
                drop(file);
                // A journal that gave up needs its log replayed.
                let _ = fs.close();
                let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
                fs.close().unwrap();
                let report = extant::check::check_device(
                    device.clone(),
                    &extant::check::Options::default(),
                    &(),
                );
                let report = report.unwrap();
                let noted_only =
                    report.findings.iter().all(|found| format!("{found:?}").contains("rror"));
                assert!(report.clean || noted_only, "write {nth}: {:?}", report.findings);
            }
        }
    }
}

#[test]
fn a_failed_read_hands_out_what_was_read_before_and_then_the_error() {
    for volume in VOLUMES {
        let (device, fs) = volume(4096, None);
        let file = new_file(&fs, "f");
        let bytes = pattern(3 << 20, 1);
        file.write_all_at(0, &bytes).unwrap();
        drop(file);
        fs.close().unwrap();
        judge(&*device);
        let faulty = Arc::new(Faulty::new(device));
        let fs = OpenOptions::new().open_device(faulty.clone()).unwrap();
        let file = fs.open_file("/f").unwrap();
        let mut back = vec![0; 3 << 20];
        file.read_direct_at(0, &mut back, &by(ALL[0])).unwrap();
        for nth in 1..4 {
            back.fill(0);
            faulty.fail(IoOp::Read, nth);
            // Each of its chunks is a request.
            match file.read_direct_at(0, &mut back, &by(ALL[1])) {
                Ok(n) => assert!(back[..n] == bytes[..n]),
                Err(_) => assert_eq!(nth, 1),
            }
            faulty.heal();
        }
    }
}
