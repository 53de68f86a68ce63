//! Direct, buffered and lent bytes, mixed at random, compared with a plain vector.

use crate::common::{judge, new_file};
use crate::direct::{ALL, VOLUMES, by};
use extant::FallocateMode;
use extant::direct::AlignedBuf;
use extant_testkit::rng::Rng;

const MOST: usize = 1 << 20;

#[test]
fn direct_buffered_and_borrowed_bytes_are_those_of_a_vector() {
    for volume in VOLUMES {
        for (block, cache, seed) in [
            (1024, Some(4), 1),
            (4096, Some(4), 2),
            (4096, None, 3),
            (65_536, Some(4), 4),
            (65_536, None, 5),
            (4096, Some(4), 6),
        ] {
            let (device, fs) = volume(block, cache);
            run(&fs, cache.is_some(), seed);
            fs.close().unwrap();
            judge(&*device);
        }
    }
}

fn run(fs: &extant::Filesystem, cached: bool, seed: u64) {
    let file = new_file(fs, "mixed");
    let mut rng = Rng::new(seed);
    let mut model: Vec<u8> = Vec::new();
    for step in 0..1500 {
        let site = format!("seed {seed}, step {step}");
        let align = [1, 512, 4096, 65_536][rng.below(4)];
        let at = rng.below(MOST) / align * align;
        let len = (rng.below(96 << 10) / align * align).max(align.min(4096));
        let options = by(ALL[rng.below(4)]);
        let fill = rng.below(251) as u8 + 1;
        match rng.below(12) {
            0..=3 => {
                let mut bytes = AlignedBuf::zeroed(len);
                bytes.iter_mut().enumerate().for_each(|(n, byte)| *byte = fill ^ (n / 512) as u8);
                let n = file.write_direct_at(&bytes, at as u64, &options).unwrap();
                store(&mut model, at, &bytes[..n]);
            }
            4 | 5 => {
                let bytes = vec![fill; len];
                let n = file.write_at(&bytes, at as u64).unwrap();
                store(&mut model, at, &bytes[..n]);
            }
            6 | 7 => {
                let mut back = AlignedBuf::zeroed(len);
                let n = file.read_direct_at(&mut back, at as u64, &options).unwrap();
                let want = model.get(at..).unwrap_or(&[]);
                let want = &want[..want.len().min(len)];
                assert_eq!(n, want.len(), "{site}: a direct read of {len} at {at}");
                assert!(back[..n] == *want, "{site}: a direct read of {len} at {at}");
            }
            8 => {
                let mut back = vec![0; len];
                let n = file.read_at(&mut back, at as u64).unwrap();
                let want = model.get(at..).unwrap_or(&[]);
                assert!(
                    back[..n] == want[..want.len().min(len)],
                    "{site}: a read of {len} at {at}"
                );
            }
            9 if cached && at + 100 < model.len() => {
                let end = (at + 100).min(at / 4096 * 4096 + 4096);
                if let Ok(mut lent) = file.borrow_mut(at as u64..end as u64) {
                    lent.fill(fill);
                    model[at..end].fill(fill);
                }
            }
            10 => {
                let (mode, from) = match rng.below(2) {
                    0 => (FallocateMode::PunchHole, at),
                    _ => (FallocateMode::ZeroRangeKeepSize, at),
                };
                file.allocate(mode, from as u64, len as u64).unwrap();
                let end = (from + len).min(model.len());
                if from < end {
                    model[from..end].fill(0);
                }
            }
            11 if rng.below(4) == 0 => {
                file.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            _ => {}
        }
    }
    let mut back = vec![0; model.len() + 1];
    assert_eq!(file.read_at(&mut back, 0).unwrap(), model.len());
    assert!(back[..model.len()] == model[..], "seed {seed}: at the end");
    assert_eq!(fs.direct_stats().conflicts, 0);
}

fn store(model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if model.len() < at + bytes.len() {
        model.resize(at + bytes.len(), 0);
    }
    model[at..at + bytes.len()].copy_from_slice(bytes);
}
