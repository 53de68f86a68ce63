//! Logs that this engine was writing when the power was cut, replayed by e2fsck and by Linux.
//!
//! ```text
//!   mkfs ─► threads make, rename and remove names, sync ─► copy of the image, log full of it
//!              ├─► e2fsck replays ──┐
//!              ├─► Linux replays ───┼─► the same names, e2fsck finds nothing
//!              └─► extant replays ──┘
//! ```

use extant::mkfs::{JournalSize, MkfsOptions, format};
use extant::{BlockSize, Environment, Error, FileDevice, Filesystem, NewFile, OpenOptions};
use extant_base::IoOp;
use extant_testdev::Faulty;
use extant_testkit::command::{run, run_args};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::require;
use extant_testkit::scratch::{Scratch, copy_sparse};
use extant_testkit::uml::Uml;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// How many names each thread creates; each takes up to three changes.
const NAMES: usize = 80;

fn kinds() -> Vec<(&'static str, MkfsOptions)> {
    let features = |names: &str| MkfsOptions::new().features(names).unwrap();
    let small = |options: MkfsOptions| options.block_size(BlockSize::from_bytes(1024).unwrap());
    // The smallest log, so that it wraps around.
    let log = |options: MkfsOptions| options.journal(JournalSize::Blocks(1024));
    vec![
        ("modern", log(MkfsOptions::new())),
        ("ext3", log(small(MkfsOptions::of_type("ext3").unwrap()))),
        ("plain", log(small(features("^metadata_csum,^64bit,^orphan_file")))),
    ]
}

/// The work of one thread in its own directory: directories are created and removed, so that their
/// blocks are revoked, and names of all kinds.
fn work(fs: &Filesystem, thread: usize) {
    let top = format!("/t{thread}");
    fs.create_dir(&top, &NewFile::directory()).unwrap();
    for n in 0..NAMES {
        let dir = format!("{top}/d{}", n / 10);
        if n % 10 == 0 {
            fs.create_dir(&dir, &NewFile::directory()).unwrap();
        }
        fs.create_file(format!("{dir}/file with a longer name {n}"), &NewFile::default()).unwrap();
        match n % 5 {
            0 => fs.remove_file(format!("{dir}/file with a longer name {n}")).unwrap(),
            1 => fs
                .rename(format!("{dir}/file with a longer name {n}"), format!("{top}/{n}"))
                .unwrap(),
            2 => {
                fs.symlink("x".repeat(100), format!("{dir}/link {n}"), &NewFile::default())
                    .unwrap();
            }
            _ => (),
        }
        if n % 20 == 19 {
            fs.remove_dir_all(&dir).unwrap();
        }
        if n % 8 == 0 {
            fs.sync().unwrap();
        }
    }
}

/// A volume whose log contains what was synced last.
fn crashed(scratch: &Scratch, name: &str, options: &MkfsOptions) -> PathBuf {
    let path = scratch.file(&format!("{name}.img"));
    let device = Arc::new(FileDevice::create(&path, 16 << 20).unwrap());
    format(device, options, &Environment::default()).unwrap();
    let fs = OpenOptions::new().write(true).open(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let fs = &fs;
            scope.spawn(move || work(fs, thread));
        }
    });
    fs.sync().unwrap();
    let copy = scratch.file(&format!("{name}.crashed"));
    copy_sparse(&path, &copy).unwrap();
    fs.close().unwrap();
    if let Err(report) = e2fsck(&path, None).expect_clean() {
        panic!("{name}, closed: {report}");
    }
    copy
}

/// Every name of a volume, sorted.
fn names(path: &Path) -> Vec<String> {
    let fs = OpenOptions::new().open(path).unwrap();
    let mut names: Vec<_> =
        fs.walk("/").map(|entry| entry.unwrap().path().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn e2fsck_and_linux_replay_the_log() {
    require!(E2fsprogs, Uml);
    let scratch = Scratch::new();
    let mut linux = Vec::new();
    for (name, options) in kinds() {
        let image = crashed(&scratch, name, &options);
        let want = names(&image);
        assert!(want.len() > 3 * NAMES / 2, "{name}: {} names", want.len());
        let by_extant = scratch.file("by_extant");
        let by_e2fsck = scratch.file("by_e2fsck");
        copy_sparse(&image, &by_extant).unwrap();
        copy_sparse(&image, &by_e2fsck).unwrap();
        let report = OpenOptions::new().recover_in_place(&by_extant).unwrap();
        assert!(report.transactions > 1, "{name}: {report:?}");
        let replayed =
            run_args("e2fsck", &["-E", "journal_only", "-p", by_e2fsck.to_str().unwrap()]);
        replayed.unwrap().success().unwrap();
        for (by, path) in [("extant", &by_extant), ("e2fsck", &by_e2fsck)] {
            if let Err(report) = e2fsck(path, None).expect_clean() {
                panic!("{name}, {by}: {report}");
            }
            assert_eq!(names(path), want, "{name}, {by}");
        }
        linux.push((name, image, want));
    }
    let images: Vec<&Path> = linux.iter().map(|(_, image, _)| image.as_path()).collect();
    let script = "for d in a b c; do mount /dev/ubd$d /dev/shm/m || exit 1; \
                  find /dev/shm/m | sort > /mnt/work/names.$d; umount /dev/shm/m; done";
    let guest = Uml::get().unwrap();
    guest.run(script, &images, scratch.path(), Duration::from_secs(60)).unwrap().success().unwrap();
    for ((name, image, want), letter) in linux.iter().zip('a'..) {
        if let Err(report) = e2fsck(image, None).expect_clean() {
            panic!("{name}, Linux: {report}");
        }
        assert_eq!(&names(image), want, "{name}, Linux");
        let shown = std::fs::read_to_string(scratch.file(&format!("names.{letter}"))).unwrap();
        assert_eq!(shown.lines().count(), want.len(), "{name}, Linux");
    }
}

/// Creates names and writes bytes until a write or flush fails, then closes. Returns the first
/// error.
fn work_until(fs: Filesystem) -> Option<Error> {
    let steps = || -> Result<(), Error> {
        for n in 0..12 {
            let path = format!("file {n}");
            fs.create_file(&path, &NewFile::default())?.open()?.write_all_at(&[7; 3000], 0)?;
            match n % 4 {
                0 => fs.open_file(&path)?.sync_all()?,
                2 => fs.sync()?,
                _ => {}
            }
        }
        Ok(())
    };
    let failed = steps().err();
    failed.or(fs.close().err())
}

/// The output of dumpe2fs for the superblocks of volume and log.
fn superblock_of(path: &Path) -> String {
    let mut dump = Command::new("dumpe2fs");
    run(dump.arg("-h").arg(path), Duration::from_secs(60)).unwrap().out()
}

/// Wherever the journal aborts, the volume records it at once and for everything that opens it
/// next: e2fsck then checks all of it without being forced to, and finds only that.
#[test]
fn an_aborted_journal_marks_the_volume() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let (fresh, path) = (scratch.file("fresh"), scratch.file("image"));
    mke2fs(&fresh, 8 << 20, "-b 1024 -O quota -J size=1", None).unwrap();
    let mut recorded = 0;
    for op in [IoOp::Write, IoOp::Flush] {
        for nth in 1.. {
            std::fs::copy(&fresh, &path).unwrap();
            let device = Arc::new(Faulty::new(FileDevice::open_rw(&path).unwrap()));
            let mut options = OpenOptions::new();
            let fs = options.write(true).commit_interval(None).open_device(device.clone()).unwrap();
            device.fail(op, nth);
            let Some(error) = work_until(fs) else { break };
            drop(device);
            // A failed write of file data is an error only for its caller.
            let says = superblock_of(&path);
            if !says.contains("with errors") {
                assert!(matches!(error, Error::Device { .. }), "{op} {nth}: {error}");
                continue;
            }
            recorded += 1;
            assert!(
                says.contains("Last error function:      JournalAborted"),
                "{op} {nth}: {says}"
            );
            assert!(says.contains("Last error err:           EIO"), "{op} {nth}: {says}");
            let by_extant = scratch.file("by_extant");
            std::fs::copy(&path, &by_extant).unwrap();
            OpenOptions::new().write(true).open(&by_extant).unwrap().close().unwrap();
            let says = superblock_of(&by_extant);
            assert!(says.contains("with errors"), "{op} {nth}: {says}");
            assert!(!says.contains("Journal errno"), "{op} {nth}: {says}");
            e2fsck(&by_extant, None)
                .expect_clean()
                .unwrap_or_else(|why| panic!("{op} {nth}: {why}"));
            let mut fsck = Command::new("e2fsck");
            let done = run(fsck.arg("-p").arg(&path), Duration::from_secs(60)).unwrap();
            let said = done.out();
            assert!(said.contains("with errors, check forced"), "{op} {nth}: {said}");
            e2fsck(&path, None).expect_clean().unwrap_or_else(|why| panic!("{op} {nth}: {why}"));
        }
    }
    assert!(recorded > 10, "{recorded}");
}
