//! Failures between the page cache and the device: each opener gets each error once, data that was
//! not written stays dirty, nothing hangs, and reserved space is available.

use crate::common::{judge, mke2fs, new_file};
use extant::cache::{CacheUse, DontCachePolicy};
use extant::{Error, File, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_base::IoOp;
use extant_testdev::Faulty;
use extant_testkit::e2fsprogs;
use extant_testkit::rng::{self, Rng};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// Longer than any test here takes.
const PATIENCE: Duration = Duration::from_secs(60);

type Device = Arc<Faulty<MemoryDevice>>;

fn options(cache_mib: u64) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(cache_mib << 20);
    options
}

fn volume(mib: u64, mke2fs_options: &str, cache_mib: u64) -> (Device, Filesystem) {
    let device = Arc::new(Faulty::new(mke2fs(mib, mke2fs_options)));
    let fs = options(cache_mib).open_device(device.clone()).unwrap();
    (device, fs)
}

/// The content of a file on the device as it is now.
fn on_device(device: &MemoryDevice, name: &str) -> Vec<u8> {
    let copy = Arc::new(MemoryDevice::copy_of(device).unwrap());
    OpenOptions::new().page_cache_bytes(0).open_device(copy).unwrap().read(name).unwrap()
}

/// Runs `work` in a thread of its own. Panics if it takes too long.
#[track_caller]
fn without_hanging<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, done) = mpsc::channel();
    let thread = std::thread::spawn(move || send.send(work()));
    match done.recv_timeout(PATIENCE) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the answer was sent"),
        },
    }
}

fn is_device_error(done: Result<(), Error>) -> bool {
    matches!(done, Err(Error::Device { .. }))
}

#[test]
fn a_write_that_the_device_refuses_is_reported_whichever_thread_wrote() {
    let device = Arc::new(Faulty::new(mke2fs(24, "-b 4096")));
    let (send, reported) = mpsc::channel();
    let mut options = options(8);
    options.on_error(Arc::new(move |error| drop(send.send(error.again()))));
    let fs = options.open_device(device.clone()).unwrap();
    let file = new_file(&fs, "f");
    fs.sync().unwrap();
    file.write_all_at(&[1; 100_000], 0).unwrap();
    device.fail_from(IoOp::Write, 0);
    // The error of the flusher, for which no caller waits.
    let first = reported.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(first, Error::Device { op: IoOp::Write, .. }), "{first}");
    device.heal();
    fs.sync().unwrap();
    drop(file);
    fs.close().unwrap();
    judge(device.inner());
}

const KINDS: [&str; 5] = [
    "-b 4096",
    "-b 1024 -O ^has_journal",
    "-b 1024 -O ^extents,^64bit",
    "-b 1024 -O bigalloc",
    "-b 4096 -O inline_data,^metadata_csum",
];

#[test]
fn each_opening_gets_an_error_once_and_the_bytes_are_written_later() {
    for kind in KINDS {
        let (device, fs) = volume(24, kind, 8);
        let file = new_file(&fs, "f");
        let bytes = rng::bytes(7, 1_500_000);
        file.write_all_at(&bytes[..300_000], 0).unwrap();
        file.sync_all().unwrap();
        let other = fs.open_file("f").unwrap();
        // In place, after the end, and after a hole.
        file.write_all_at(&bytes[1000..101_000], 0).unwrap();
        file.write_all_at(&bytes[300_000..1_000_000], 300_000).unwrap();
        file.write_all_at(&bytes[1_200_000..], 1_200_000).unwrap();
        device.fail_from(IoOp::Write, 1);
        assert!(is_device_error(file.sync_data()), "{kind}");
        let dirty = fs.cache_stats().unwrap().dirty;
        assert!(dirty >= 900_000, "{kind}: {dirty} bytes are dirty");
        device.heal();
        let later = fs.open_file("f").unwrap();
        later.sync_all().unwrap();
        assert!(is_device_error(other.sync_all()), "{kind}: the other opener gets the error");
        other.sync_all().unwrap();
        file.sync_all().unwrap();
        later.sync_all().unwrap();
        let mut want = bytes[1000..101_000].to_vec();
        want.extend_from_slice(&bytes[100_000..1_000_000]);
        want.resize(1_200_000, 0);
        want.extend_from_slice(&bytes[1_200_000..]);
        assert!(fs.read("f").unwrap() == want, "{kind}");
        assert!(on_device(device.inner(), "f") == want, "{kind}");
        drop((file, other, later));
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn after_each_failing_write_nothing_stale_is_read_and_nothing_is_lost() {
    for kind in KINDS {
        for nth in 1..6 {
            let (device, fs) = volume(24, kind, 8);
            let file = new_file(&fs, "f");
            let bytes = rng::bytes(nth, 5_000_000);
            file.write_all_at(&bytes, 0).unwrap();
            file.write_all_at(&bytes[..2000], 6_000_000).unwrap();
            let mut want = bytes.clone();
            want.resize(6_000_000, 0);
            want.extend_from_slice(&bytes[..2000]);
            // The first transfers of a sync are data, wherever its handles end.
            device.fail(IoOp::Write, nth);
            let failed = file.write_back(0, u64::MAX);
            device.heal();
            if failed.is_err() {
                assert!(is_device_error(failed), "{kind}, write {nth}");
                assert!(fs.cache_stats().unwrap().dirty > 0, "{kind}, write {nth}");
            }
            // The state that a crash would leave now, with what is committed.
            if !kind.contains("^has_journal") {
                fs.create_file("g", &NewFile::default()).unwrap();
                let _ = fs.open_file("g").unwrap().sync_all();
                let left = on_device(device.inner(), "f");
                assert!(left[..] == want[..left.len()], "{kind}, write {nth}");
            }
            file.sync_all().or_else(|_| file.sync_all()).unwrap();
            assert!(on_device(device.inner(), "f") == want, "{kind}, write {nth}");
            drop(file);
            fs.close().unwrap();
            judge(&*device);
        }
    }
}

#[test]
fn a_flush_that_fails_is_reported_and_no_later_sync_succeeds() {
    for kind in KINDS {
        let (device, fs) = volume(24, kind, 8);
        let file = new_file(&fs, "f");
        file.write_all_at(&[1; 100_000], 0).unwrap();
        file.sync_all().unwrap();
        file.write_all_at(&[2; 100_000], 0).unwrap();
        device.fail(IoOp::Flush, 1);
        assert!(file.sync_all().is_err(), "{kind}");
        if !kind.contains("^has_journal") {
            assert!(matches!(file.sync_all(), Err(Error::Aborted { .. })), "{kind}");
            assert!(fs.sync().is_err(), "{kind}");
            assert!(fs.close().is_err(), "{kind}");
        }
    }
}

#[test]
fn a_device_that_is_gone_is_reported_and_no_thread_waits_for_it() {
    for kind in KINDS {
        without_hanging(move || {
            let (device, fs) = volume(24, kind, 4);
            let files: Vec<_> = (0..3).map(|n| new_file(&fs, &format!("f{n}"))).collect();
            for file in &files {
                file.write_all_at(&[1; 200_000], 0).unwrap();
            }
            fs.sync().unwrap();
            for (n, file) in files.iter().enumerate() {
                file.set_dont_cache(n == 1);
                file.write_all_at(&[2; 250_000], 100_000).unwrap();
            }
            for op in [IoOp::Read, IoOp::Write, IoOp::Flush, IoOp::Discard] {
                device.fail_from(op, 1);
            }
            for file in &files {
                // Into memory, or an error.
                let _ = file.write_all_at(&[3; 10], 150_000);
                let _ = file.append(&[4; 50_000]);
                let mut bytes = [0; 100];
                if file.read_at(&mut bytes, 100_000).is_ok() {
                    assert_eq!(bytes, [2; 100]);
                }
                assert!(file.sync_all().is_err(), "{kind}");
                assert!(file.write_back(0, u64::MAX).is_err(), "{kind}");
                let _ = file.set_len(10);
                let _ = file.allocate(extant::FallocateMode::PunchHole, 0, 50_000);
            }
            assert!(fs.sync().is_err(), "{kind}");
            drop(files);
            let clone = fs.clone();
            assert!(fs.close().is_err(), "{kind}");
            drop(clone);
        });
    }
}

#[test]
fn writers_at_the_limit_of_memory_get_the_error_of_a_failing_device() {
    let policies =
        [DontCachePolicy::Inline, DontCachePolicy::RateLimited, DontCachePolicy::Flusher];
    let ways = policies.map(|policy| (policy, CacheUse::DropBehind));
    for (policy, how) in ways.into_iter().chain([(DontCachePolicy::Flusher, CacheUse::Keep)]) {
        without_hanging(move || {
            let device = Arc::new(Faulty::new(mke2fs(48, "-b 4096")));
            let mut options = options(1);
            options.dont_cache_policy(policy).dont_cache_cap_bytes(256 << 10);
            let fs = options.open_device(device.clone()).unwrap();
            let files: Vec<_> = (0..3).map(|n| new_file(&fs, &format!("f{n}"))).collect();
            fs.sync().unwrap();
            device.fail_from(IoOp::Write, 1);
            std::thread::scope(|scope| {
                for file in &files {
                    scope.spawn(move || {
                        let chunk = [7; 65536];
                        let write = |n: u64| {
                            let pieces = [IoSlice::new(&chunk)];
                            file.write_vectored_at_with(&pieces, n << 16, how).map(drop)
                        };
                        let failed = (0..200).map(write).find(Result::is_err);
                        assert!(failed.is_some(), "{policy:?}, {how:?}: 12 MiB went into 1 MiB");
                    });
                }
            });
            let stats = fs.cache_stats().unwrap();
            assert!(stats.cached_peak <= 3 << 20, "{policy:?}, {how:?}: {stats:?}");
            device.heal();
            for file in &files {
                file.sync_all().or_else(|_| file.sync_all()).unwrap();
            }
            assert_eq!(fs.cache_stats().unwrap().dirty, 0);
            drop(files);
            fs.close().unwrap();
            judge(&*device);
        });
    }
}

#[test]
fn changes_in_place_fail_before_memory_is_full_if_the_device_fails() {
    let (device, fs) = volume(64, "-b 4096", 8);
    let file = new_file(&fs, "f");
    file.set_len(48 << 20).unwrap();
    fs.sync().unwrap();
    device.fail_from(IoOp::Write, 1);
    let (file, refused) = without_hanging(move || {
        let change =
            |n: u64| file.borrow_mut(n << 16..(n + 1) << 16).map(|mut bytes| bytes.fill(1));
        let refused = (0..768).find_map(|n| change(n).err());
        (file, refused)
    });
    assert!(matches!(refused, Some(Error::Device { .. })), "{refused:?}");
    assert!(fs.cache_stats().unwrap().dirty_peak <= 8 << 20);
    device.heal();
    let _ = file.sync_all();
    file.sync_all().unwrap();
    drop(file);
    fs.close().unwrap();
    judge(&*device);
}

/// The bytes that a file accepted, by the results of the calls.
struct Taken {
    file: File,
    bytes: Vec<u8>,
    /// Position and length of the last write.
    last: (usize, usize),
}

impl Taken {
    /// Writes at a random place. Returns whether there was space for all of it.
    fn write(&mut self, rng: &mut Rng) -> bool {
        let longest = [700, 9_000, 120_000][rng.below(3)];
        let len = 1 + rng.below(longest);
        let at = match rng.below(4) {
            0 => rng.below(3_000_000),
            _ => self.bytes.len(),
        };
        let bytes = rng::bytes(rng.below(1 << 20) as u64, len);
        let (took, ended) = match self.file.write_at(&bytes, at as u64) {
            Ok(n) => (n, n < len),
            Err(Error::NoSpace | Error::QuotaExceeded) => (0, true),
            Err(error) => panic!("{error}"),
        };
        if took > 0 {
            self.bytes.resize(self.bytes.len().max(at + took), 0);
            self.bytes[at..at + took].copy_from_slice(&bytes[..took]);
            self.last = (at, took);
        }
        !ended
    }
}

/// Fills a volume from several threads while another creates names, and checks that reserved space
/// exists.
fn fill(kind: &str, mib: u64, cache_mib: u64, open: impl Fn(&mut OpenOptions)) {
    let device = Arc::new(Faulty::new(mke2fs(mib, kind)));
    let mut options = options(cache_mib);
    open(&mut options);
    let fs = options.open_device(device.clone()).unwrap();
    let create = |n: u64| {
        let new = NewFile { uid: 77, ..NewFile::default() };
        fs.root().unwrap().create_file(format!("f{n}"), &new).unwrap().open().unwrap()
    };
    let files: Vec<_> = (0..3).map(create).collect();
    let taken: Vec<Taken> = std::thread::scope(|scope| {
        let write = |(n, file): (usize, File)| {
            scope.spawn(move || {
                let mut rng = Rng::new(n as u64 + 1);
                let mut taken = Taken { file, bytes: Vec::new(), last: (0, 0) };
                let mut refused = 0;
                while refused < 40 {
                    refused += usize::from(!taken.write(&mut rng));
                }
                taken
            })
        };
        let writers: Vec<_> = files.into_iter().enumerate().map(write).collect();
        // Names and attributes need blocks, too.
        for n in 0..3000 {
            let name = format!("{n:-<200}");
            match fs.create_file(&name, &NewFile::default()) {
                Ok(node) if n % 3 == 0 => {
                    let _ = node.set_xattr("user.a", &[1; 900], extant::XattrMode::Any);
                }
                Ok(_) => {}
                Err(Error::NoSpace) => std::thread::yield_now(),
                Err(error) => panic!("{kind}: {error}"),
            }
        }
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for Taken { file, bytes, last: (at, took) } in &taken {
        // Overwriting existing data needs no space.
        file.write_all_at(&bytes[*at..at + took], *at as u64)
            .unwrap_or_else(|e| panic!("{kind}, {cache_mib}: {at} {took} of {}: {e}", bytes.len()));
    }
    fs.sync().unwrap_or_else(|error| panic!("{kind}, {cache_mib}, sync: {error}"));
    assert_eq!(fs.cache_stats().unwrap().dirty, 0, "{kind}");
    for (n, taken) in taken.iter().enumerate() {
        assert!(fs.read(format!("f{n}")).unwrap() == taken.bytes, "{kind}: f{n}, in memory");
        let found = on_device(device.inner(), &format!("f{n}"));
        assert!(found == taken.bytes, "{kind}: f{n}, on the device");
    }
    let total: usize = taken.iter().map(|taken| taken.bytes.len()).sum();
    assert!(total > 100_000, "{kind}: only {total} bytes");
    drop(taken);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn an_accepted_write_finds_its_space_on_a_full_volume() {
    for kind in [
        "-b 4096 -m 0",
        "-b 1024 -m 0 -O ^has_journal",
        "-b 1024 -m 0 -J size=1",
        "-b 4096 -m 0 -O bigalloc -C 65536",
        "-b 1024 -m 0 -O bigalloc,^has_journal -C 8192",
        "-b 1024 -m 0 -O ^extents,^64bit",
        "-b 1024 -m 0 -O ^extents,^64bit,^has_journal",
        "-b 4096 -m 0 -O inline_data -I 256",
    ] {
        fill(kind, 12, 64, |_| {});
        fill(kind, 12, 1, |_| {});
    }
}

#[test]
fn an_accepted_write_finds_its_space_beside_root_reserved_blocks() {
    fill("-b 1024 -m 20", 12, 64, |options| {
        options.use_reserve(false);
    });
}

/// Writes to a new file until there is no space. Returns what the file accepted.
fn fill_file(fs: &Filesystem, name: &str) -> Taken {
    let file = new_file(fs, name);
    let (mut taken, mut rng) = (Taken { file, bytes: Vec::new(), last: (0, 0) }, Rng::new(5));
    let mut len = 200_000;
    while len > 0 {
        let bytes = rng::bytes(rng.below(1 << 20) as u64, len);
        match taken.file.append(&bytes) {
            Ok(n) => taken.bytes.extend_from_slice(&bytes[..n]),
            Err(Error::NoSpace) => len /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    taken
}

#[test]
fn reservations_stay_after_a_failed_write() {
    for kind in [
        "-b 1024 -m 0",
        "-b 1024 -m 0 -O bigalloc -C 8192",
        "-b 1024 -m 0 -O ^extents,^64bit",
        "-b 1024 -m 0 -O ^extents,^64bit,^has_journal",
    ] {
        for nth in [1, 2, 3] {
            let (device, fs) = volume(12, kind, 64);
            let file = new_file(&fs, "f");
            let bytes = rng::bytes(3, 900_000);
            file.write_all_at(&bytes, 0).unwrap();
            file.write_all_at(&bytes[..5000], 1_100_000).unwrap();
            let first = fill_file(&fs, "first");
            device.fail(IoOp::Write, nth);
            let failed = file.write_back(0, u64::MAX);
            device.heal();
            // Space that the failure freed by mistake would be used now.
            let second = fill_file(&fs, "second");
            fs.sync().unwrap_or_else(|error| panic!("{kind}, write {nth} ({failed:?}): {error}"));
            let mut want = bytes.clone();
            want.resize(1_100_000, 0);
            want.extend_from_slice(&bytes[..5000]);
            assert!(on_device(device.inner(), "f") == want, "{kind}, write {nth}");
            assert!(on_device(device.inner(), "first") == first.bytes, "{kind}, write {nth}");
            assert!(on_device(device.inner(), "second") == second.bytes, "{kind}, write {nth}");
            drop((file, first, second));
            fs.close().unwrap();
            judge(&*device);
        }
    }
}

/// The position of a block that cannot be read: the last of its page.
const BAD: u64 = 303 << 10;

/// A volume with a file of 2 MiB that is a hole, except for the block at [`BAD`].
fn with_bad_block(kind: &str) -> (Device, Filesystem) {
    let (device, fs) = volume(12, kind, 64);
    let file = new_file(&fs, "f");
    let block = u64::from(fs.space().block_bytes);
    file.write_all_at(&vec![5; block as usize], BAD / block * block).unwrap();
    file.set_len(2 << 20).unwrap();
    fs.sync().unwrap();
    let bad = file.extent_at(BAD).unwrap().unwrap().block.0 * block;
    drop(file);
    fs.close().unwrap();
    let fs = options(64).open_device(device.clone()).unwrap();
    device.fail_range(IoOp::Read, bad..bad + block);
    (device, fs)
}

/// A way to change bytes around [`BAD`] that fails or ends early. Returns how many bytes were
/// changed.
type Attempt = fn(&File) -> extant::Result<usize>;

const ATTEMPTS: [(&str, u64, Attempt); 4] = [
    ("begins in it", BAD + 100, |file| file.write_at(&[6; 1 << 20], BAD + 100)),
    ("ends in it", BAD - 200_000, |file| file.write_at(&[6; 200_100], BAD - 200_000)),
    ("ends in it, from the block before", BAD - 100, |file| file.write_at(&[6; 200], BAD - 100)),
    ("in place", BAD - 1024, |file| {
        file.borrow_mut(BAD - 1024..BAD + 100).map(|mut bytes| bytes.fill(6)).map(|()| 1124)
    }),
];

#[test]
fn the_reservations_of_a_failed_write_are_returned() {
    for kind in [
        "-b 1024 -m 0",
        "-b 4096 -m 0",
        "-b 1024 -m 0 -O bigalloc -C 8192",
        "-b 1024 -m 0 -O ^extents,^64bit",
        "-b 1024 -m 0 -O ^extents,^64bit,^has_journal",
    ] {
        for (name, start, attempt) in ATTEMPTS {
            let found = [true, false].map(|fails| {
                let (device, fs) = with_bad_block(kind);
                let file = fs.open_file("f").unwrap();
                let failed = match fails {
                    true => attempt(&file).unwrap_or(0),
                    false => 0,
                };
                assert!(failed < 200_100, "{kind}, {name}: it can be read");
                device.heal();
                (device, fs, file, failed)
            });
            let [(device, fs, file, n), (plain_device, plain, plain_file, _)] = found;
            // Another volume on which the same was written without a failure.
            plain_file.write_all_at(&vec![6; n], start).unwrap();
            let what = format!("{kind}, {name}, {n} bytes");
            // A reservation for a map is an upper bound, and no more than on the volume without a
            // failure.
            assert!(fs.space().free >= plain.space().free, "{what}: {:?}", fs.space());
            let sectors = |file: &File| file.metadata().sectors();
            assert_eq!(sectors(&file), sectors(&plain_file), "{what}");
            let (rest, plain_rest) = (fill_file(&fs, "rest"), fill_file(&plain, "rest"));
            assert_eq!(rest.bytes.len(), plain_rest.bytes.len(), "{what}");
            fs.sync().unwrap();
            plain.sync().unwrap();
            assert_eq!(fs.space(), plain.space(), "{what}");
            assert!(fs.read("f").unwrap() == plain.read("f").unwrap(), "{what}");
            assert!(on_device(device.inner(), "rest") == rest.bytes, "{what}");
            drop((file, rest, plain_file, plain_rest));
            fs.close().unwrap();
            plain.close().unwrap();
            judge(&*device);
            judge(&*plain_device);
        }
    }
}

#[test]
fn a_failed_write_does_not_take_the_reservations_of_concurrent_writes() {
    let (device, fs) = with_bad_block("-b 1024 -m 0");
    let file = fs.open_file("f").unwrap();
    let rest = fill_file(&fs, "rest");
    fs.sync().unwrap();
    rest.file.set_len(rest.bytes.len() as u64 - (250 << 10)).unwrap();
    fs.sync().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                let _ = file.write_at(&[6; 200_100], BAD - 200_000);
            }
        });
        scope.spawn(|| {
            for n in 0..3000 {
                file.write_all_at(&[6; 500], BAD - 1024 * (1 + n % 3)).unwrap();
            }
        });
        scope.spawn(|| {
            for _ in 0..30 {
                file.sync_all().unwrap();
            }
        });
    });
    device.heal();
    fs.sync().unwrap();
    for n in 1..=3 {
        let mut bytes = [0; 500];
        assert_eq!(file.read_at(&mut bytes, BAD - 1024 * n).unwrap(), 500);
        assert_eq!(bytes, [6; 500]);
    }
    drop((file, rest));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn an_accepted_write_is_not_refused_later_for_a_quota_limit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    e2fsprogs::mke2fs(&path, 24 << 20, "-b 1024 -O quota", None).unwrap();
    let new = NewFile { uid: 77, ..NewFile::default() };
    let fs = options(8).open(&path).unwrap();
    fs.create_file("f0", &new).unwrap().open().unwrap().write_all_at(&[1; 50_000], 0).unwrap();
    fs.close().unwrap();
    set_limit(&path, 77, 700);
    let fs = options(8).enforce_quota(true).open(&path).unwrap();
    let open = |n| match n {
        0 => fs.open_file("f0").unwrap(),
        n => fs.create_file(format!("f{n}"), &new).unwrap().open().unwrap(),
    };
    let files: Vec<File> = (0..3).map(open).collect();
    let all: Vec<Taken> = std::thread::scope(|scope| {
        let write = |(n, file): (usize, File)| {
            scope.spawn(move || {
                let mut rng = Rng::new(n as u64 + 1);
                let bytes = if n == 0 { vec![1; 50_000] } else { Vec::new() };
                let mut taken = Taken { file, bytes, last: (0, 0) };
                let mut refused = 0;
                while refused < 20 {
                    refused += usize::from(!taken.write(&mut rng));
                }
                taken
            })
        };
        let writers: Vec<_> = files.into_iter().enumerate().map(write).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    fs.sync().unwrap();
    let used: u64 = all.iter().map(|taken| taken.file.metadata().sectors() / 2).sum();
    // Each file's reservation was checked alone.
    assert!(used >= 600, "{used} KiB of 700");
    for (n, taken) in all.iter().enumerate() {
        assert!(fs.read(format!("f{n}")).unwrap() == taken.bytes, "f{n}");
    }
    drop(all);
    fs.close().unwrap();
    e2fsprogs::e2fsck(&path, None).expect_clean().unwrap();
}

/// Sets the hard space limit of a user with one file, in KiB, directly in the bytes of the quota
/// file.
fn set_limit(path: &std::path::Path, id: u32, kib: u64) {
    let mut image = std::fs::read(path).unwrap();
    let id = u64::from(id).to_le_bytes();
    let mut found = 0;
    for entry in image.chunks_exact_mut(1024).flat_map(|block| block[16..].chunks_exact_mut(72)) {
        if entry[..8] == id && entry[8..24] == [0; 16] && entry[24..32] == 1u64.to_le_bytes() {
            entry[32..40].copy_from_slice(&kib.to_le_bytes());
            found += 1;
        }
    }
    // The log has a copy that nothing reads.
    assert!(found >= 1, "the user has an entry");
    std::fs::write(path, image).unwrap();
}
