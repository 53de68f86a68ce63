use super::*;
use crate::{AlignedBuf, BufPool, FileOptions, MemoryDevice, OwnedMemory, Slice};
use crate::{CallerMemory, SharedCursor, SharedMemory, Source, Target};

const WAYS: [QueueWay; 4] = [QueueWay::Auto, QueueWay::Ring, QueueWay::Threads, QueueWay::Inline];

/// A file on disk, opened with and without direct I/O, and a device in memory.
fn devices(dir: &tempfile::TempDir) -> Vec<Arc<dyn BlockDevice>> {
    let file = |name: &str, direct| -> Arc<dyn BlockDevice> {
        Arc::new(FileOptions::new().direct(direct).create(dir.path().join(name), 1 << 20).unwrap())
    };
    let part = Slice::new(file("part", true), ByteOffset(8192), 1 << 19).unwrap();
    vec![
        file("cached", false),
        file("direct", true),
        Arc::new(part),
        Arc::new(MemoryDevice::new(1 << 20)),
    ]
}

#[test]
fn every_way_moves_every_byte_at_any_depth_and_alignment() {
    let dir = tempfile::tempdir().unwrap();
    let pool = BufPool::default();
    for device in devices(&dir) {
        for way in WAYS {
            for depth in [1, 3, 64] {
                let mut queue = Queue::new(Arc::clone(&device), depth, way);
                let places =
                    [(0, 4096), (4096, 8192), (16384, 100), (20001, 5000), (65536, 131072)];
                for (tag, (at, len)) in places.into_iter().enumerate() {
                    let mut buf = pool.take(len);
                    buf.fill(tag as u8 + depth as u8);
                    let memory = Memory::Owned(buf);
                    queue.submit(Request {
                        tag: tag as u64,
                        access: Access::Read,
                        at: ByteOffset(at),
                        memory,
                    });
                }
                let mut seen = Vec::new();
                while let Some(done) = queue.wait() {
                    done.result.unwrap();
                    seen.push(done.request.tag);
                }
                seen.sort_unstable();
                assert_eq!(seen, [0, 1, 2, 3, 4]);
                for (tag, (at, len)) in places.into_iter().enumerate() {
                    let mut owned = OwnedMemory::new(AlignedBuf::zeroed(len));
                    let memory = Memory::Lent(vec![owned.lend(len, Access::Write).unwrap()]);
                    queue.submit(Request {
                        tag: 0,
                        access: Access::Write,
                        at: ByteOffset(at),
                        memory,
                    });
                    queue.wait().unwrap().result.unwrap();
                    let buf = owned.into_buf().unwrap();
                    assert!(
                        buf.iter().all(|byte| *byte == tag as u8 + depth as u8),
                        "{way:?} {at}"
                    );
                }
            }
        }
    }
}

#[test]
fn borrowed_memory_is_moved_within_its_scope() {
    let dir = tempfile::tempdir().unwrap();
    for device in devices(&dir) {
        for way in WAYS {
            let bytes = AlignedBuf::copy_of(&[9; 12288]);
            let pieces =
                [&bytes[..4096], &bytes[4096..4099], &bytes[4099..]].map(std::io::IoSlice::new);
            let mut back = AlignedBuf::zeroed(12288);
            scope(Arc::clone(&device), 4, way, |queue| {
                let mut source = Source::vectored(&pieces);
                let spans = std::iter::from_fn(|| source.lend(usize::MAX, Access::Read)).collect();
                let at = ByteOffset(4096);
                queue.submit(Request {
                    tag: 1,
                    access: Access::Read,
                    at,
                    memory: Memory::Lent(spans),
                });
                queue.wait().unwrap().result.unwrap();
                assert_eq!(queue.in_flight(), 0);
            });
            scope(Arc::clone(&device), 4, way, |queue| {
                let mut target = Target::new(&mut back);
                for n in 0..3 {
                    let memory = Memory::Lent(vec![target.lend(4096, Access::Write).unwrap()]);
                    let at = ByteOffset(4096 + n * 4096);
                    queue.submit(Request { tag: n, access: Access::Write, at, memory });
                }
                // The scope ends with all of them in flight.
            });
            assert_eq!(&back[..], &bytes[..]);
        }
    }
}

#[test]
fn memory_that_others_change_is_copied_where_a_device_wants_a_slice() {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(1 << 20));
    let memory = Arc::new(SharedMemory::zeroed(8192));
    for n in 0..1024 {
        memory.store(n * 8, n as u64);
    }
    let mut queue = Queue::new(Arc::clone(&device), 2, QueueWay::Threads);
    let mut cursor = SharedCursor::new(Arc::clone(&memory), 0, 8192);
    let spans = vec![cursor.lend(8192, Access::Read).unwrap()];
    queue.submit(Request {
        tag: 0,
        access: Access::Read,
        at: ByteOffset(1),
        memory: Memory::Lent(spans),
    });
    queue.wait().unwrap().result.unwrap();
    let other = Arc::new(SharedMemory::zeroed(8192));
    let mut cursor = SharedCursor::new(Arc::clone(&other), 0, 8192);
    let spans = std::iter::from_fn(|| cursor.lend(3000, Access::Write)).collect();
    queue.submit(Request {
        tag: 0,
        access: Access::Write,
        at: ByteOffset(1),
        memory: Memory::Lent(spans),
    });
    queue.wait().unwrap().result.unwrap();
    assert!((0..1024).all(|n| other.load(n * 8) == n as u64));
}

#[test]
fn what_may_only_be_read_is_not_filled_and_a_reader_does_not_write() {
    let bytes = [1; 512];
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(4096));
    let request = |access| Request {
        tag: 0,
        access,
        at: ByteOffset(0),
        memory: Memory::Lent(vec![Span::of(&bytes)]),
    };
    assert!(matches!(transfer(&*device, &mut request(Access::Write)), Err(Error::Invalid(_))));
    transfer(&*device, &mut request(Access::Read)).unwrap();
    let reader = crate::ReadOnly::new(device);
    assert!(matches!(transfer(&reader, &mut request(Access::Read)), Err(Error::ReadOnly)));
}

#[test]
fn the_transfers_of_one_call_all_arrive_and_stop_behind_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let pool = BufPool::default();
    for device in devices(&dir) {
        for access in [Access::Read, Access::Write] {
            let (mut next, mut seen) = (0..40u64, Vec::new());
            let give = || {
                let tag = next.next()?;
                let mut buf = pool.take(8192);
                if access == Access::Read {
                    buf.fill(tag as u8);
                }
                let memory = Memory::Owned(buf);
                Some(Request { tag, access, at: ByteOffset(tag * 8192), memory })
            };
            transfer_all(&*device, give, |done| {
                done.result.unwrap();
                let Memory::Owned(buf) = &done.request.memory else { panic!("owned") };
                assert!(buf.iter().all(|byte| *byte == done.request.tag as u8));
                seen.push(done.request.tag);
            });
            seen.sort_unstable();
            assert_eq!(seen, (0..40).collect::<Vec<_>>());
        }
        // The third lies past the end.
        let (mut given, mut failed) = (0, 0);
        let give = || {
            given += 1;
            let at = ByteOffset(if given == 3 { device.len() } else { 0 });
            let memory = Memory::Owned(pool.take(4096));
            (given <= 10).then_some(Request { tag: given, access: Access::Write, at, memory })
        };
        transfer_all(&*device, give, |done| failed += u64::from(done.result.is_err()));
        assert_eq!((given, failed), (3, 1));
    }
}

/// Miri runs this one.
#[test]
fn requests_fail_one_by_one() {
    let pool = BufPool::default();
    for way in WAYS {
        let mut queue = Queue::new(Arc::new(MemoryDevice::new(16384)), 8, way);
        for n in 0..6 {
            let memory = Memory::Owned(pool.take(4096));
            let access = if n == 5 { Access::Write } else { Access::Read };
            queue.submit(Request { tag: n, access, at: ByteOffset(n * 4096), memory });
        }
        let mut failed = Vec::new();
        while let Some(done) = queue.wait() {
            failed.extend(done.result.is_err().then_some(done.request.tag));
        }
        failed.sort_unstable();
        assert_eq!(failed, [4, 5], "past the end");
    }
}
