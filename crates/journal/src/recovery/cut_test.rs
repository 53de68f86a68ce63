//! Recovery is cut at every request, keeping any of the writes that were not flushed, and starts
//! over.

use crate::test_log::{HOME, SIZE, TestLog};
use extant_base::{ByteOffset, Tid};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::jbd2::BlockSum;
use extant_testdev::Recorder;
use std::sync::Arc;

/// Pseudo-random numbers, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn recover_and_finish<D: BlockDevice + 'static>(log: &TestLog, device: &Arc<D>) {
    let mut opened = log.open(device).unwrap();
    if opened.needs_recovery() {
        let recovery = opened.recover(&**device, log.limits()).unwrap();
        opened.finish(&**device, &recovery).unwrap();
    }
}

fn home(device: &impl BlockDevice) -> Vec<u8> {
    let mut home = vec![0; HOME as usize * SIZE];
    device.read_at(ByteOffset(0), &mut home).unwrap();
    home
}

#[test]
fn recovery_cut_anywhere_and_repeated_ends_in_the_same_volume() {
    for seed in 0..24 {
        let mut random = Random(seed);
        let kind = (if seed % 2 == 0 { BlockSum::V3 } else { BlockSum::None }, true);
        let mut log = TestLog::new(kind, u32::MAX - 2, 1 + random.below(63) as u32, 0);
        for _ in 0..6 {
            if random.below(3) == 0 {
                log.revoke(&[random.below(HOME), random.below(HOME)]);
            }
            let blocks: Vec<_> =
                (0..4).map(|_| (random.below(HOME), random.next() as u8)).collect();
            log.transaction(&blocks);
        }
        let before = MemoryDevice::from_bytes(&log.image);
        let recorder = Arc::new(Recorder::new(before.clone()));
        recover_and_finish(&log, &recorder);
        let want = home(&*recorder);
        let plan = recorder.crash_plan(&before).seed(seed).samples(6);
        for state in plan.states() {
            let what = state.to_string();
            let device = Arc::new(state.image);
            recover_and_finish(&log, &device);
            assert!(home(&*device) == want, "seed {seed}, {what}");
            let opened = log.open(&device).unwrap();
            assert!(!opened.needs_recovery());
            assert!(opened.next_tid().is_after(Tid(3)), "number 3 was the end");
        }
    }
}
