//! Power cuts around an abort. The error state is written directly to the superblock, and a cut may
//! tear that write.
//!
//! ```text
//!   a write fails ─► errno in the log's superblock ─► state and record in the volume's ─┬─ cut
//!                                                                                       ▼
//!   open: errno copied, log replayed, emptied ─┬─ cut ─► open ─► synced files, error are there
//!                                              └───────► open …
//! ```

use crate::common::{image_of, pattern};
use extant::{BlockDevice, Error, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_base::{ByteOffset, IoOp};
use extant_testdev::{Faulty, Recorder};
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::sync::Arc;

type Device = Arc<Faulty<Recorder<MemoryDevice>>>;

/// A run that a failure ended.
struct Run {
    base: MemoryDevice,
    device: Device,
    /// How many requests were recorded before the failure.
    began: usize,
    /// How many files were synced.
    synced: usize,
    journaled: bool,
}

/// Creates files and syncs each, until the `nth` request of kind `op` fails; `None` if none fails.
fn run(base: &MemoryDevice, op: IoOp, nth: u64) -> Option<Run> {
    let mut compat = [0];
    base.read_at(ByteOffset(1024 + 0x5C), &mut compat).unwrap();
    let journaled = compat[0] & 4 != 0;
    let device: Device = Arc::new(Faulty::new(Recorder::new(base.clone())));
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(0);
    let fs = options.open_device(Arc::clone(&device) as Arc<dyn BlockDevice>).unwrap();
    device.fail(op, nth);
    let (mut synced, mut began) = (0, device.inner().position());
    let mut failed = None;
    for n in 0..4 {
        let step = || -> Result<(), Error> {
            let file = fs.create_file(format!("file {n}"), &NewFile::default())?.open()?;
            file.write_all_at(&pattern(3000, n), 0)?;
            file.sync_all()
        };
        if let Err(error) = step() {
            failed = Some(error);
            break;
        }
        (synced, began) = (synced + 1, device.inner().position());
    }
    match failed {
        Some(_) => drop(fs),
        None => failed = fs.close().err(),
    }
    failed.map(|_| Run { base: base.clone(), device, began, synced, journaled })
}

/// Whether `s_state` of the volume has the error bit.
fn is_marked(device: &MemoryDevice) -> bool {
    let mut state = [0; 2];
    device.read_at(ByteOffset(1024 + 0x3A), &mut state).unwrap();
    state[0] & 2 != 0
}

/// The function in the record of the last error.
fn record(device: &MemoryDevice) -> String {
    let mut func = [0; 32];
    device.read_at(ByteOffset(1024 + 0x1E0), &mut func).unwrap();
    let len = func.iter().position(|byte| *byte == 0).unwrap_or(32);
    String::from_utf8_lossy(&func[..len]).into_owned()
}

#[track_caller]
fn check_files(fs: &Filesystem, synced: usize, what: &str) {
    for n in 0..synced {
        let name = format!("file {n}");
        let bytes = fs.read(&name).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        assert!(bytes == pattern(3000, n as u8), "{what}: {name}");
    }
}

/// Calls `judge` with each state that a cut after the last sync before the failure can leave, and
/// its name.
fn each_cut(run: &Run, seed: u64, mut judge: impl FnMut(Arc<MemoryDevice>, &str)) {
    let recorder = run.device.inner();
    let log = recorder.log();
    let plan = recorder.crash_plan(&run.base).seed(seed).samples(2).torn(2);
    for state in plan.cuts(run.began..=log.len()).states() {
        // Without a journal, the superblock's block is written like others, and can be lost or torn
        // like them.
        let is_required = |op: &usize| log[*op].is_fua() || log[*op].range().0 != ByteOffset(1024);
        let can_happen = run.journaled || state.torn.iter().chain(&state.lost).all(is_required);
        if state.completed >= run.began && can_happen {
            let what = state.to_string();
            judge(Arc::new(state.image), &what);
        }
    }
}

fn each_run(kind: &str, mut judge: impl FnMut(&Run, &str, u64)) {
    let base = crate::common::mke2fs(if kind.contains("4096") { 16 } else { 8 }, kind);
    for op in [IoOp::Write, IoOp::Flush] {
        for nth in 1.. {
            let Some(run) = run(&base, op, nth) else { break };
            judge(&run, &format!("{kind}, {op} {nth}"), nth);
        }
    }
}

fn open(device: &Arc<MemoryDevice>, options: &OpenOptions, what: &str) -> Filesystem {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    options.open_device(device).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// The volume opens for reading and for writing, with everything that was synced, and is then
/// consistent.
fn opens(device: &Arc<MemoryDevice>, synced: usize, what: &str) {
    check_files(&open(device, &OpenOptions::new(), what), synced, what);
    let fs = open(device, OpenOptions::new().write(true), what);
    check_files(&fs, synced, what);
    fs.close().unwrap();
}

#[track_caller]
fn judge(device: &MemoryDevice, what: &str) {
    let scratch = Scratch::new();
    let img = scratch.file("img");
    std::fs::write(&img, image_of(device)).unwrap();
    e2fsck(&img, None).expect_clean().unwrap_or_else(|why| panic!("{what}: {why}"));
}

#[test]
fn a_cut_anywhere_around_an_abort_leaves_a_volume_that_opens() {
    require!(E2fsprogs);
    let mut states = 0;
    for kind in ["-b 1024 -J size=1", "-b 4096 -J size=4", "-b 1024 -O ^metadata_csum -J size=1"] {
        each_run(kind, |run, name, nth| {
            each_cut(run, nth, |device, cut| {
                let what = format!("{name}, {cut}");
                states += 1;
                opens(&device, run.synced, &what);
                if states % 50 == 0 {
                    judge(&device, &what);
                }
            });
        });
    }
    assert!(states > 200, "{states}");
}

/// Without a journal, nothing else is guaranteed after a crash.
#[test]
fn the_superblock_of_a_volume_without_a_journal_is_not_torn_by_an_abort() {
    require!(E2fsprogs);
    each_run("-b 1024 -O ^has_journal", |run, name, nth| {
        each_cut(run, nth, |device, cut| {
            open(&device, &OpenOptions::new(), &format!("{name}, {cut}"));
        });
        let now = MemoryDevice::copy_of(&*run.device).unwrap();
        assert!(!is_marked(&now) || record(&now) == "JournalAborted", "{name}");
    });
}

#[test]
fn a_cut_anywhere_while_an_abort_is_recovered_loses_neither_volume_nor_record() {
    require!(E2fsprogs);
    let (mut states, mut recorded) = (0, 0);
    for kind in ["-b 1024 -J size=1", "-b 4096 -J size=4"] {
        each_run(kind, |run, name, nth| {
            let aborted = MemoryDevice::copy_of(&*run.device).unwrap();
            if record(&aborted) != "JournalAborted" {
                return;
            }
            recorded += 1;
            let recorder = Arc::new(Recorder::new(aborted.clone()));
            let device = Arc::clone(&recorder) as Arc<dyn BlockDevice>;
            OpenOptions::new().recover_device_in_place(device).unwrap();
            let plan = recorder.crash_plan(&aborted).seed(nth).samples(2).torn(2);
            for state in plan.states() {
                let what = format!("{name}, taken over, {state}");
                states += 1;
                let device = Arc::new(state.image);
                opens(&device, run.synced, &what);
                assert!(is_marked(&device), "{what}: not marked");
                assert_eq!(record(&device), "JournalAborted", "{what}");
                if states % 50 == 0 {
                    judge(&device, &what);
                }
            }
        });
    }
    assert!(states > 200 && recorded > 10, "{states} states of {recorded}");
}

/// Errors that were recorded before the abort are in the log, and newer than those on the volume.
#[test]
fn an_error_that_is_in_the_log_survives_its_replay() {
    require!(E2fsprogs);
    let image = crate::common::Image::mke2fs(8, "-b 1024");
    let fs = image.open();
    crate::common::new_file(&fs, "bad");
    fs.close().unwrap();
    extant_testkit::e2fsprogs::debugfs_write(&image.path, "sif /bad checksum 0x1234").unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image.path).unwrap()));
    let fs = open(&device, OpenOptions::new().write(true).commit_interval(None), "to write");
    assert!(matches!(fs.read("/bad"), Err(Error::Corrupt { .. })));
    fs.sync().unwrap();
    let cut = Arc::new(MemoryDevice::copy_of(&*device).unwrap());
    assert_eq!(record(&cut), "", "it went home");
    open(&cut, OpenOptions::new().write(true), "after the cut").close().unwrap();
    assert!(is_marked(&cut));
    assert_eq!(record(&cut), "InodeChecksum");
}
