//! Threads on one file, direct and buffered. Each has its own bytes between those of the others.

use crate::common::{judge, new_file};
use crate::direct::{ALL, VOLUMES, by};
use extant::FallocateMode;
use extant::direct::AlignedBuf;
use extant_testkit::rng::Rng;
use std::sync::atomic::{AtomicBool, Ordering};

const THREADS: usize = 4;
const SLOTS: usize = 128;

#[test]
fn concurrent_writes_to_neighbouring_bytes_lose_nothing() {
    for volume in VOLUMES {
        for (block, slot) in
            [(1024, 512), (4096, 512), (4096, 4096), (65_536, 4096), (65_536, 65_536)]
        {
            let (device, fs) = volume(block, Some(8));
            let file = new_file(&fs, "f");
            let len = THREADS * SLOTS.min((6 << 20) / slot / THREADS) * slot;
            let per_thread = len / slot / THREADS;
            file.set_len(len as u64).unwrap();
            file.allocate(FallocateMode::Allocate, 0, len as u64 / 2).unwrap();
            let ends = AtomicBool::new(false);
            let last: Vec<Vec<u8>> = std::thread::scope(|scope| {
                // Readers keep the range in the cache, and another thread punches holes where none
                // writes.
                scope.spawn(|| {
                    let mut bytes = vec![0; 65_536];
                    let mut rng = Rng::new(9);
                    while !ends.load(Ordering::Relaxed) {
                        file.read_at(&mut bytes, rng.below(len) as u64).unwrap();
                        let pos = (len + (1 << 20)) as u64;
                        file.allocate(FallocateMode::KeepSize, pos, 65_536).unwrap();
                        file.allocate(FallocateMode::PunchHole, pos, 65_536).unwrap();
                    }
                });
                let workers: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let file = &file;
                        scope.spawn(move || {
                            let mut rng = Rng::new(thread as u64);
                            let mut last = vec![0u8; per_thread];
                            let mut bytes = AlignedBuf::zeroed(slot);
                            for _ in 0..300 {
                                let n = rng.below(per_thread);
                                let at = ((n * THREADS + thread) * slot) as u64;
                                let fill = rng.below(255) as u8 + 1;
                                bytes.fill(fill);
                                match rng.below(3) {
                                    0 => file.write_all_at(&bytes, at).unwrap(),
                                    _ => {
                                        let how = by(ALL[rng.below(4)]);
                                        assert_eq!(
                                            file.write_direct_at(&bytes, at, &how).unwrap(),
                                            slot
                                        );
                                    }
                                }
                                last[n] = fill;
                                // Its own bytes are as it left them, whichever way it reads them.
                                let n = rng.below(per_thread);
                                let at = ((n * THREADS + thread) * slot) as u64;
                                bytes.fill(0xAA);
                                match rng.below(2) {
                                    0 => file.read_at(&mut bytes, at).unwrap(),
                                    _ => file.read_direct_at(&mut bytes, at, &by(ALL[0])).unwrap(),
                                };
                                let want = last[n];
                                let site = format!(
                                    "blocks of {block}, slots of {slot}, thread {thread}, slot {n}"
                                );
                                assert!(
                                    bytes.iter().all(|byte| *byte == want),
                                    "{site}: {} for {want}",
                                    bytes[0]
                                );
                            }
                            last
                        })
                    })
                    .collect();
                let last = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
                ends.store(true, Ordering::Relaxed);
                last
            });
            let check = |content: &[u8]| {
                for (n, bytes) in content.chunks(slot).enumerate() {
                    let want = last[n % THREADS][n / THREADS];
                    assert!(bytes.iter().all(|byte| *byte == want), "slot {n}");
                }
            };
            check(&fs.read("/f").unwrap());
            assert_eq!(fs.direct_stats().conflicts, 0);
            drop(file);
            fs.close().unwrap();
            judge(&*device);
            check(&crate::direct::open(&device, None).read("/f").unwrap());
        }
    }
}

#[test]
fn overlapping_writers_leave_one_of_their_blocks_and_appenders_all_of_theirs() {
    for volume in VOLUMES {
        let (device, fs) = volume(4096, Some(8));
        let file = new_file(&fs, "f");
        std::thread::scope(|scope| {
            for thread in 1..=4u8 {
                let file = &file;
                scope.spawn(move || {
                    let bytes = AlignedBuf::copy_of(&[thread; 65_536]);
                    for n in 0..40u64 {
                        match thread {
                            1 => file.write_all_at(&bytes, n % 8 * 65_536).unwrap(),
                            2 => drop(file.set_len(n % 9 * 65_536)),
                            _ => drop(file.write_direct_at(
                                &bytes,
                                n % 8 * 65_536,
                                &by(ALL[n as usize % 4]),
                            )),
                        }
                    }
                });
            }
        });
        let content = fs.read("/f").unwrap();
        assert!(content.iter().all(|byte| *byte <= 4), "every byte was written");
        drop(file);
        fs.close().unwrap();
        judge(&*device);
    }
}
