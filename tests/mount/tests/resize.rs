//! A mounted volume grows while programs use it.

use extant_testkit::command::{Finished, run, run_args};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::extant::Extant;
use extant_testkit::fuse_mount::FuseMount;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn extant(words: &[&str]) -> Finished {
    Extant::get().unwrap().run(words).unwrap()
}

fn blocks_of(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).unwrap().f_blocks
}

/// Writes files of 1 MiB until the volume is full or `enough` says so. Returns how many there are.
fn fill(dir: &Path, from: usize, enough: impl Fn(usize) -> bool) -> usize {
    for n in from.. {
        let name = dir.join(format!("fill {n}"));
        let written = File::create(&name).and_then(|mut file| {
            file.write_all(&vec![n as u8; 1 << 20])?;
            file.sync_all()
        });
        if written.is_err() || enough(n) {
            let _ = fs::remove_file(&name);
            return n;
        }
    }
    unreachable!("a volume is never endless")
}

fn holds(dir: &Path, count: usize) {
    for n in 0..count {
        let content = fs::read(dir.join(format!("fill {n}"))).unwrap();
        assert!(content == vec![n as u8; 1 << 20], "file {n} changed");
    }
}

#[test]
fn a_full_mount_grows_while_a_program_writes() {
    require!(Root, Fuse, E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("volume.img");
    mke2fs(&image, 24 << 20, "-t ext4", None).unwrap();
    let mount = FuseMount::new(&image, "").unwrap();
    let dir = mount.path().to_str().unwrap().to_owned();
    let count = fill(mount.path(), 0, |_| false);
    let before = blocks_of(mount.path());
    let done = AtomicBool::new(false);
    let all = std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            let mut all = count;
            while !done.load(Ordering::Relaxed) {
                all = fill(mount.path(), all, |_| done.load(Ordering::Relaxed));
            }
            all
        });
        for size in ["+9M", "100M", "+1M"] {
            let text = extant(&["resize", &dir, size]).success().unwrap().out();
            assert!(text.contains("was"), "{text}");
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert!(blocks_of(mount.path()) > 3 * before);
    assert_eq!(fs::metadata(&image).unwrap().len(), 101 << 20);
    // The image names the mount, too, and the file may be extended first.
    File::options().write(true).open(&image).unwrap().set_len(120 << 20).unwrap();
    let text = extant(&["resize", "--json", image.to_str().unwrap()]).success().unwrap().out();
    assert!(text.contains(&format!("\"bytes\":{}", 120 << 20)), "{text}");
    let all = fill(mount.path(), all, |_| false);
    assert!(all > 80, "{all} files");
    holds(mount.path(), all);
    mount.unmount().unwrap();
    e2fsck(&image, None).expect_clean().unwrap();
    let mount = FuseMount::new(&image, "").unwrap();
    holds(mount.path(), all);
    mount.unmount().unwrap();
}

#[test]
fn resize2fs_resizes_a_mount() {
    require!(Root, Fuse, E2fsprogs);
    let scratch = Scratch::new();
    let ours = scratch.file("resize2fs");
    std::os::unix::fs::symlink(Extant::get().unwrap().bin(), &ours).unwrap();
    let mut texts = Vec::new();
    for tool in ["resize2fs", ours.to_str().unwrap()] {
        let image = scratch.file("volume.img");
        mke2fs(&image, 24 << 20, "-t ext4 -b 1024", None).unwrap();
        let mount = FuseMount::new(&image, "").unwrap();
        let name = image.to_str().unwrap();
        let grown = run_args(tool, &[name, "40M"]).unwrap().success().unwrap().out();
        let same = run_args(tool, &[name, "40M"]).unwrap().success().unwrap().err();
        let less = run_args(tool, &[name, "30M"]).unwrap();
        assert!(!less.ok() && less.err().contains("shrinking"), "{}", less.err());
        let text = [grown, same.lines().skip(1).collect()].join("|");
        texts.push(text.replace(mount.path().to_str().unwrap(), "DIR"));
        assert!(blocks_of(mount.path()) > 30 << 10);
        mount.unmount().unwrap();
        e2fsck(&image, None).expect_clean().unwrap();
        fs::remove_file(&image).unwrap();
    }
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn a_mount_does_not_grow_for_everybody_and_does_not_shrink() {
    require!(Root, Fuse, E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("volume.img");
    mke2fs(&image, 24 << 20, "-t ext4", None).unwrap();
    let mount = FuseMount::new(&image, "").unwrap();
    let dir = mount.path().to_str().unwrap();
    let refused = |words: &[&str], why: &str| {
        let done = extant(words);
        assert!(!done.ok() && done.err().contains(why), "{words:?}: {}", done.err());
    };
    refused(&["resize", dir, "10M"], "cannot become smaller: unmount it first");
    refused(&["resize", dir, "min"], "cannot become smaller: unmount it first");
    refused(&["resize", dir, "-1M"], "cannot become smaller: unmount it first");
    refused(&["resize", "/proc", "1G"], "no volume is mounted there by extant");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1001", "--regid", "1001", "--clear-groups"]);
    command.arg(Extant::get().unwrap().bin()).args(["resize", dir, "+8M"]);
    let done = run(&mut command, LIMIT).unwrap();
    assert!(!done.ok() && done.err().contains("only root"), "{}", done.err());
    mount.unmount().unwrap();
    assert_eq!(fs::metadata(&image).unwrap().len(), 24 << 20);
    let mount = FuseMount::new(&image, "ro").unwrap();
    refused(&["resize", mount.path().to_str().unwrap(), "+8M"], "read-only");
    mount.unmount().unwrap();
    e2fsck(&image, None).expect_clean().unwrap();
}
