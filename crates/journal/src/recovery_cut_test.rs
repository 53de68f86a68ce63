//! Recovery is cut at every request, keeping any of what was not flushed, and starts over.

use crate::test_device::{Asked, TestDevice};
use crate::test_log::{HOME, SIZE, TestLog};
use extant_base::Tid;
use extant_ondisk::jbd2::BlockSum;
use std::sync::Arc;

/// Numbers that look random and are the same in every run.
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

/// The image after a power cut in front of request `cut`: flushed writes are there, of the others
/// any subset, each whole or torn at 512 bytes.
fn after_cut(
    before: &[u8],
    recorded: &[(Asked, Vec<u8>)],
    cut: usize,
    random: &mut Random,
) -> Vec<u8> {
    let recorded = &recorded[..cut];
    let flushed = recorded.iter().rposition(|(asked, _)| *asked == Asked::Flush).unwrap_or(0);
    let mut image = before.to_vec();
    for (i, (asked, bytes)) in recorded.iter().enumerate() {
        let (at, durable) = match *asked {
            Asked::Write { at, .. } => (at as usize, i < flushed),
            Asked::Fua { at, .. } => (at as usize, true),
            _ => continue,
        };
        for (sector, bytes) in bytes.chunks(512).enumerate() {
            if durable || random.below(2) == 0 {
                image[at + sector * 512..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    image
}

fn recover_and_finish(log: &TestLog, device: &Arc<TestDevice>) {
    let mut opened = log.open(device).unwrap();
    if opened.needs_recovery() {
        let recovery = opened.recover(&**device, log.limits()).unwrap();
        opened.finish(&**device, &recovery).unwrap();
    }
}

fn home(image: &[u8]) -> &[u8] {
    &image[..HOME as usize * SIZE]
}

#[test]
fn recovery_cut_anywhere_and_repeated_ends_in_the_same_volume() {
    for seed in 0..40 {
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
        let device = log.device();
        recover_and_finish(&log, &device);
        let want = device.content();
        let recorded = device.take_recorded();
        for cut in 0..=recorded.len() {
            for _ in 0..4 {
                let image = after_cut(&log.image, &recorded, cut, &mut random);
                let device = Arc::new(TestDevice::new(image));
                recover_and_finish(&log, &device);
                assert!(home(&device.content()) == home(&want), "seed {seed}, cut {cut}");
                let opened = log.open(&device).unwrap();
                assert!(!opened.needs_recovery());
                assert!(opened.next_tid().is_after(Tid(3)), "number 3 was the end");
            }
        }
    }
}
