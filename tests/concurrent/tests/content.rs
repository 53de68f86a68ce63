//! Storms of operations on the bytes of one file, and readers of one directory that changes.

use extant::direct::DirectOptions;
use extant::{DataMode, Error, FallocateMode, File, NewFile, RenameFlags};
use extant_concurrent_tests::{Field, kinds};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Bytes of the piece that belongs to one writer alone.
const OWN: u64 = 64 << 10;
const WRITERS: usize = 3;
/// Where the part begins that all threads write to and truncate.
const SHARED: u64 = WRITERS as u64 * OWN;
/// Writes of the shared part begin and end at multiples of this.
const UNIT: u64 = 512;
const UNITS: u64 = 256;

/// The bytes of a write: the writer, and the number of the write.
fn mark(thread: usize, n: usize) -> u8 {
    1 + (thread * 80 + n % 80) as u8
}

#[test]
fn writers_cutters_and_syncs_on_one_file_keep_every_byte_of_its_owner() {
    require!(E2fsprogs);
    for kind in kinds() {
        let name = kind.name;
        for mode in [DataMode::Ordered, DataMode::Writeback, DataMode::Journal] {
            if mode == DataMode::Journal && !kind.journals_data {
                continue;
            }
            eprintln!("{name}, {mode:?}");
            let field = Field::opened(&kind, |options| {
                options.data_mode(mode);
            });
            let root = field.fs.root().unwrap();
            let node = root.create_file("file", &NewFile::default()).unwrap();
            let file = node.open().unwrap();
            // Half of each piece exists before: overwrites, and new blocks between them.
            file.write_all_at(&vec![0; (SHARED - OWN / 2) as usize], 0).unwrap();
            let left: Mutex<BTreeMap<usize, Vec<u8>>> = Mutex::default();
            field.storm(WRITERS + 2, |thread| {
                let mut rng = Rng::new(thread as u64 + 7);
                let mut own = vec![0; OWN as usize];
                for n in 0..150 {
                    if thread == WRITERS {
                        let to = SHARED + rng.below(UNITS as usize) as u64 * UNIT;
                        match rng.below(3) {
                            0 => file.allocate(FallocateMode::PunchHole, to, 8 * UNIT).unwrap(),
                            _ => file.set_len(to).unwrap(),
                        }
                        continue;
                    }
                    if thread > WRITERS {
                        match rng.below(2) {
                            0 => file.sync_all().unwrap(),
                            _ => file.sync_data().unwrap(),
                        }
                        let mut bytes = vec![0xEE; (SHARED + UNITS * UNIT) as usize];
                        let read = file.read_at(&mut bytes, 0).unwrap();
                        check_marks(&bytes[..read]);
                        continue;
                    }
                    let (at, len) = (rng.below(OWN as usize), 1 + rng.below(9000));
                    let len = len.min(own.len() - at);
                    own[at..at + len].fill(mark(thread, n));
                    let from = thread as u64 * OWN + at as u64;
                    match rng.below(3) {
                        0 => direct(&file, from, &own[at..at + len]),
                        _ => file.write_all_at(&own[at..at + len], from).unwrap(),
                    }
                    let unit = rng.below(UNITS as usize - 8) as u64;
                    let len = (1 + rng.below(8)) * UNIT as usize;
                    file.write_all_at(&vec![mark(thread, n); len], SHARED + unit * UNIT).unwrap();
                }
                left.lock().unwrap().insert(thread, own);
            });
            drop((file, node, root));
            let bytes = field.fs.read("/file").unwrap();
            check_marks(&bytes);
            for (thread, own) in left.into_inner().unwrap() {
                if thread < WRITERS {
                    let there = &bytes[thread * OWN as usize..][..OWN as usize];
                    assert!(there == own, "{name}, {mode:?}: bytes of thread {thread}");
                }
            }
            let again = field.judge(name);
            assert!(again.read("/file").unwrap() == bytes, "{name}, {mode:?}: opened again");
        }
    }
}

/// Past the cache, as far as offset and length allow.
fn direct(file: &File, at: u64, bytes: &[u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let options = DirectOptions::default();
        done += file.write_direct_at(&bytes[done..], at + done as u64, &options).unwrap();
    }
}

/// In the shared part, each unit is from one write, or zeros; no other bytes are anywhere.
#[track_caller]
fn check_marks(bytes: &[u8]) {
    let last = mark(WRITERS - 1, 79);
    assert!(bytes.iter().all(|byte| *byte <= last), "a byte that nobody wrote");
    let shared = bytes.get(SHARED as usize..).unwrap_or_default();
    let torn = shared.chunks(UNIT as usize).position(|unit| unit.iter().any(|b| *b != unit[0]));
    assert_eq!(torn, None, "two writes in one unit");
}

#[test]
fn readers_of_a_directory_that_changes_find_what_stays_once() {
    require!(E2fsprogs);
    const STAY: usize = 120;
    for kind in kinds() {
        let name = kind.name;
        eprintln!("{name}");
        let field = Field::new(&kind);
        let root = field.fs.root().unwrap();
        let dir = root.create_dir("d", &NewFile::directory()).unwrap();
        let file = root.create_file("f", &NewFile::default()).unwrap();
        for n in 0..STAY {
            dir.hard_link(&file, format!("stays {n:-<60}")).unwrap();
        }
        let (writers, lists) = (AtomicUsize::new(3), AtomicUsize::new(0));
        let done = AtomicBool::new(false);
        field.storm(5, |thread| {
            let mut rng = Rng::new(thread as u64 + 70);
            if thread < 3 {
                for n in 0..400 {
                    let name = |n: usize| format!("t{thread} {n:-<100}");
                    match rng.below(4) {
                        0 if n > 0 => match dir.remove_file(name(rng.below(n))) {
                            Ok(()) | Err(Error::NotFound) => {}
                            Err(error) => panic!("{error}"),
                        },
                        1 if n > 0 => {
                            let (from, to) = (name(rng.below(n)), name(n));
                            match dir.rename(from, &dir, to, RenameFlags::REPLACE) {
                                Ok(()) | Err(Error::NotFound) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                        _ => dir.hard_link(&file, name(n)).unwrap(),
                    }
                }
                let others = writers.fetch_sub(1, Ordering::AcqRel) - 1;
                done.fetch_or(others == 0, Ordering::AcqRel);
                return;
            }
            while !done.load(Ordering::Acquire) || lists.load(Ordering::Relaxed) < 4 {
                let mut found: BTreeMap<usize, usize> = BTreeMap::new();
                for entry in dir.read_dir().unwrap() {
                    let entry = entry.unwrap();
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if let Some(rest) = name.strip_prefix("stays ") {
                        let n = rest.trim_end_matches('-').parse().unwrap();
                        *found.entry(n).or_default() += 1;
                    }
                }
                let missed = (0..STAY).find(|n| !found.contains_key(n));
                let twice = found.iter().find(|(_, times)| **times > 1);
                assert_eq!((missed, twice), (None, None), "{name}: missed, twice");
                let n = rng.below(STAY);
                assert_eq!(dir.lookup(format!("stays {n:-<60}")).unwrap().ino(), file.ino());
                lists.fetch_add(1, Ordering::Relaxed);
            }
        });
        drop((dir, file, root));
        field.judge(name);
    }
}
