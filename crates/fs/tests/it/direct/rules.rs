//! The rules for bounced transfers, and for transfers that must not wait.

use crate::common::{judge, new_file, pattern};
use crate::direct::doubles::{Absent, FaultsAt, Mapping};
use crate::direct::{ALL, VOLUMES, by, volume};
use extant::direct::{
    AlignedBuf, Bounce, CallerMemory, DirectOptions, SharedCursor, SharedMemory, Target,
};
use extant::{Error, FallocateMode, Filesystem};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const MIB: usize = 1 << 20;

fn content(fs: &Filesystem, name: &str) -> Vec<u8> {
    fs.read(format!("/{name}")).unwrap()
}

#[test]
fn each_byte_is_lent_or_copied_once_and_never_both() {
    for cache in [None, Some(4)] {
        let (_device, fs) = volume(4096, cache);
        let file = new_file(&fs, "f");
        file.allocate(FallocateMode::Allocate, 0, 4 << 20).unwrap();
        let bytes = AlignedBuf::copy_of(&pattern(3 * MIB, 9));
        let mut back = AlignedBuf::zeroed(3 * MIB);
        for bounce in ALL {
            let before = fs.direct_stats();
            assert_eq!(file.write_direct_at(&bytes, 0, &by(bounce)).unwrap(), 3 * MIB);
            assert_eq!(file.read_direct_at(&mut back, 0, &by(bounce)).unwrap(), 3 * MIB);
            let after = fs.direct_stats();
            let copied = after.copied_bytes - before.copied_bytes;
            let lent = after.lent_bytes - before.lent_bytes;
            let want = match bounce {
                Bounce::Auto | Bounce::Never => (0, 6 * MIB as u64),
                Bounce::Always | Bounce::Checksummed => (6 * MIB as u64, 0),
            };
            assert_eq!((copied, lent), want, "{bounce:?}");
            assert_eq!(after.buffered_bytes, 0);
            assert!(back[..] == bytes[..]);
        }
    }
}

#[test]
fn a_short_copy_releases_everything_and_is_reported() {
    for volume in VOLUMES {
        let (device, fs) = volume(4096, Some(4));
        let file = new_file(&fs, "f");
        file.write_all_at(&pattern(4 * MIB, 1), 0).unwrap();
        file.sync_all().unwrap();
        let before = content(&fs, "f");
        let bytes = pattern(3 * MIB, 2);
        for at in [0, 1, 4096, MIB - 1, MIB, 2 * MIB + 5, 3 * MIB - 1] {
            for (start, len) in [(0, 3 * MIB), (512, 3072), (4096, MIB)] {
                let mut memory = FaultsAt::new(&bytes[..len], at.min(len - 1), false);
                let done = file.write_direct(&mut memory, start, &DirectOptions::default());
                assert!(
                    matches!(done, Err(Error::Fault)),
                    "{len} bytes that end at {at}: {done:?}"
                );
                assert_eq!(memory.left(), len, "all is given back");
                assert!(content(&fs, "f") == before, "nothing is written");
            }
        }
        // Complete steps count, as with any short write.
        let mut memory = FaultsAt::new(&bytes[..5000], 4700, false);
        let n = file.write_direct(&mut memory, 0, &DirectOptions::default()).unwrap();
        // Whole sectors, or whole blocks if they have checksums.
        assert!([4096, 4608].contains(&n), "{n}");
        assert_eq!(memory.left(), 5000 - n);
        drop(file);
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn memory_that_is_not_present_is_faulted_in_with_nothing_held() {
    for volume in VOLUMES {
        let (_device, fs) = volume(4096, Some(4));
        let file = new_file(&fs, "f");
        let bytes = pattern(2 * MIB, 3);
        let mut memory = FaultsAt::new(&bytes, 70_000, true);
        assert_eq!(file.write_direct(&mut memory, 0, &DirectOptions::default()).unwrap(), 2 * MIB);
        assert_eq!((memory.faulted_in, memory.left()), (1, 0));
        assert!(content(&fs, "f") == bytes);
        // Pages that become absent repeatedly: at the end the bytes are copied where waiting is
        // allowed.
        let mut memory = FaultsAt::new(&bytes[..MIB], 0, true);
        memory.stays_absent = 1000;
        assert_eq!(file.write_direct(&mut memory, 0, &DirectOptions::default()).unwrap(), MIB);
        assert!(memory.faulted_in < 100);
        assert!(content(&fs, "f") == bytes);
    }
}

#[test]
fn a_hole_is_read_into_memory_that_is_not_present() {
    for volume in VOLUMES {
        let (_device, fs) = volume(4096, Some(4));
        let file = new_file(&fs, "f");
        file.write_direct_at(&pattern(64 << 10, 3), 64 << 10, &DirectOptions::default()).unwrap();
        for (at, hole) in [(0, 32 << 10), (32 << 10, 32 << 10), (64 << 10, 0)] {
            let mut got = vec![0xEE; 32 << 10];
            let mut memory = Absent { inner: Target::new(&mut got), present: false };
            let done = file.read_direct(&mut memory, at, &DirectOptions::default()).unwrap();
            assert_eq!((done, memory.left()), (32 << 10, 0));
            let wanted =
                if hole > 0 { vec![0; hole] } else { pattern(64 << 10, 3)[..32 << 10].to_vec() };
            assert!(got == wanted, "at {at}");
        }
    }
}

#[test]
fn a_buffer_that_maps_the_file_being_written_does_not_deadlock() {
    for volume in VOLUMES {
        for block in [1024, 4096, 65_536] {
            let (device, fs) = volume(block, Some(8));
            let file = new_file(&fs, "f");
            let bytes = pattern(512 << 10, 4);
            file.write_all_at(&bytes, 0).unwrap();
            // From the same range, from an overlapping one, into a hole, past the end, and
            // unaligned.
            for (from, to, len) in [
                (0, 0, 65_536),
                (8192, 4096, 65_536),
                (0, 300_000 / 4096 * 4096, 131_072),
                (5, 700_001, 70_000),
            ] {
                let mut want = content(&fs, "f");
                let copy = want[from..from + len].to_vec();
                let size = want.len().max(to + len);
                want.resize(size, 0);
                want[to..to + len].copy_from_slice(&copy);
                let mut memory =
                    Mapping { file: &file, start: from as u64, len, at: 0, present: 0 };
                let mut done = 0;
                while done < len {
                    done += file
                        .write_direct(&mut memory, (to + done) as u64, &DirectOptions::default())
                        .unwrap();
                    assert_eq!(memory.left(), len - done);
                }
                // If the ranges overlap, the program cannot know which bytes it sends.
                let overlaps = from < to + len && to < from + len && from != to;
                assert!(overlaps || content(&fs, "f") == want, "blocks of {block}: {from} to {to}");
            }
            drop(file);
            fs.close().unwrap();
            judge(&*device);
        }
    }
}

#[test]
fn a_transfer_that_may_not_wait_returns_would_block() {
    let (_device, fs) = volume(4096, Some(4));
    let file = new_file(&fs, "f");
    file.write_all_at(&pattern(MIB, 1), 0).unwrap();
    file.sync_all().unwrap();
    // So few that the flusher does not write them yet.
    file.write_all_at(&[1; 100], 0).unwrap();
    let bytes = AlignedBuf::copy_of(&[2; 4096]);
    let mut back = AlignedBuf::zeroed(4096);
    let now = DirectOptions { no_wait: true, ..DirectOptions::default() };
    let blocks = |done: extant::Result<usize>| matches!(done, Err(Error::WouldBlock));
    assert!(blocks(file.read_direct_at(&mut back, 0, &now)), "dirty bytes are in the way");
    file.sync_all().unwrap();
    assert_eq!(file.read_direct_at(&mut back, 0, &now).unwrap(), 4096);
    // The first write sets the change time.
    file.write_direct_at(&bytes, 0, &by(Bounce::Auto)).unwrap();
    while blocks(file.write_direct_at(&bytes, 0, &now)) {
        file.write_direct_at(&bytes, 0, &by(Bounce::Auto)).unwrap();
    }
    for bounce in [Bounce::Always, Bounce::Checksummed] {
        let now = DirectOptions { bounce, ..now };
        assert!(blocks(file.write_direct_at(&bytes, 0, &now)), "a copy may wait for memory");
        assert!(blocks(file.read_direct_at(&mut back, 0, &now)));
    }
    assert!(blocks(file.write_direct_at(&bytes, MIB as u64, &now)), "it grows");
    assert!(blocks(file.write_direct_at(&bytes, 10, &now)), "the cache may wait");
    assert!(blocks(file.read_direct_at(&mut back, 10, &now)));
    file.allocate(FallocateMode::PunchHole, 0, 4096).unwrap();
    assert!(blocks(file.write_direct_at(&bytes, 0, &now)), "blocks have to be found");
    assert_eq!(file.metadata().len(), MIB as u64);
}

#[test]
fn chunks_shrink_when_memory_is_short_and_no_page_is_an_error() {
    for volume in VOLUMES {
        let (device, fs) = volume(4096, Some(4));
        let file = new_file(&fs, "f");
        file.allocate(FallocateMode::Allocate, 0, 4 << 20).unwrap();
        let bytes = pattern(MIB, 6);
        for (most, least) in [(64 * MIB, 1), (MIB, 1), (700 << 10, 2), (4096, 256)] {
            fs.limit_direct_chunks(most);
            let before = fs.direct_stats().chunks;
            let done = file.write_direct_at(&bytes, 0, &by(Bounce::Always));
            let used = fs.direct_stats().chunks - before;
            assert_eq!(done.unwrap(), MIB);
            assert!(used >= least && (used == 1 || least > 1), "{used} chunks out of {most} bytes");
            let mut back = vec![0; MIB];
            assert_eq!(file.read_direct_at(&mut back, 0, &by(Bounce::Always)).unwrap(), MIB);
            assert!(back == bytes);
        }
        fs.limit_direct_chunks(0);
        let small = AlignedBuf::zeroed(4096);
        let done = file.write_direct_at(&small, 0, &by(Bounce::Always));
        assert!(matches!(done, Err(Error::NoMemory)));
        fs.limit_direct_chunks(64 * MIB);
        assert!(content(&fs, "f")[..MIB] == bytes[..], "nothing was written without memory");
        drop(file);
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn a_buffer_that_changes_during_a_write_leaves_old_or_new_words_only() {
    for volume in VOLUMES {
        let (_device, fs) = volume(4096, Some(4));
        let file = new_file(&fs, "f");
        file.allocate(FallocateMode::Allocate, 0, 1 << 20).unwrap();
        let memory = Arc::new(SharedMemory::zeroed(65_536));
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut n = 0u64;
                while !ends.load(Ordering::Relaxed) {
                    memory.store((n as usize * 8) % 65_536, (n % 250) * 0x0101_0101_0101_0101);
                    n += 1;
                }
            });
            for n in 0..100 {
                let mut cursor = SharedCursor::new(Arc::clone(&memory), 0, 65_536);
                file.write_direct(&mut cursor, 0, &by(ALL[n % 4])).unwrap();
                let mut back = AlignedBuf::zeroed(65_536);
                file.read_direct_at(&mut back, 0, &by(Bounce::Auto)).unwrap();
                let whole = |word: &[u8]| word.iter().all(|byte| *byte == word[0]);
                assert!(back.chunks(8).all(whole));
                let mut again = vec![0; 65_536];
                file.read_at(&mut again, 0).unwrap();
                assert!(back[..] == again[..], "buffered and direct readers see the same");
            }
            ends.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn vectors_of_odd_lengths_are_written_and_read_whole() {
    for volume in VOLUMES {
        let (_device, fs) = volume(4096, Some(4));
        let file = new_file(&fs, "f");
        let bytes = pattern(100_000, 8);
        for cuts in [vec![1, 4095, 4096, 7777], vec![512, 1024, 99_000], vec![50_001]] {
            for bounce in ALL {
                let mut pieces = Vec::new();
                let mut from = 0;
                for to in cuts.iter().copied().chain([bytes.len()]) {
                    pieces.push(std::io::IoSlice::new(&bytes[from..to]));
                    from = to;
                }
                let mut source = extant::direct::Source::vectored(&pieces);
                let mut done = 0;
                while source.left() > 0 {
                    done += file.write_direct(&mut source, done as u64, &by(bounce)).unwrap();
                }
                let mut back = vec![0; bytes.len()];
                let mut targets = Vec::new();
                let mut rest = &mut back[..];
                let mut from = 0;
                for to in cuts.iter().copied() {
                    let (piece, after) = rest.split_at_mut(to - from);
                    targets.push(std::io::IoSliceMut::new(piece));
                    (rest, from) = (after, to);
                }
                targets.push(std::io::IoSliceMut::new(rest));
                let mut target = extant::direct::Target::vectored(&mut targets);
                let n = file.read_direct(&mut target, 0, &by(bounce)).unwrap();
                drop(target);
                drop(targets);
                assert_eq!(n, bytes.len());
                assert!(back == bytes, "{cuts:?} {bounce:?}");
            }
        }
    }
}
