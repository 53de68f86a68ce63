//! Volumes with multiple mount protection, as seen by e2fsprogs and Linux.

use extant::{BlockDevice, Error, FileDevice, NewFile, OpenOptions};
use extant_base::IoOp;
use extant_testdev::Faulty;
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{debugfs, e2fsck, mke2fs};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A volume whose holder writes a heartbeat every second.
fn protected(scratch: &Scratch) -> std::path::PathBuf {
    let img = scratch.file("shared.img");
    mke2fs(&img, 16 << 20, "-O mmp -E mmp_update_interval=1", None).unwrap();
    img
}

/// The protection block as e2fsprogs shows it.
fn shown(img: &Path) -> String {
    debugfs(img, "dump_mmp").unwrap()
}

#[test]
fn the_second_writer_is_refused_and_gets_the_holder() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = protected(&scratch);
    let fs = OpenOptions::new().write(true).open(&img).unwrap();
    assert!(!shown(&img).contains("sequence: ff4d4d50"));
    let second = OpenOptions::new().write(true).lock(false).open(&img);
    let Err(Error::Held { holder }) = second else { panic!("two writers") };
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!((holder.node.as_str(), holder.device.as_str()), (host.trim(), "shared.img"));
    OpenOptions::new().lock(false).open(&img).unwrap();
    assert!(!fs.is_read_only());
    fs.close().unwrap();
    assert!(shown(&img).contains("sequence: ff4d4d50"));
    run_args("dumpe2fs", &["-m", img.to_str().unwrap()]).unwrap().success().unwrap();
    assert!(e2fsck(&img, None).clean());
    OpenOptions::new().write(true).open(&img).unwrap().close().unwrap();
}

/// A system reports a lost write once, to the first caller: here to the heartbeat thread.
#[test]
fn no_sync_succeeds_after_a_heartbeat_that_failed() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = protected(&scratch);
    let device = Arc::new(Faulty::new(FileDevice::open_rw(&img).unwrap()));
    let open = || {
        let device = Arc::clone(&device) as Arc<dyn BlockDevice>;
        OpenOptions::new().write(true).commit_interval(None).open_device(device).unwrap()
    };
    let fs = open();
    fs.create_file("before", &NewFile::default()).unwrap();
    fs.sync().unwrap();
    fs.create_file("after", &NewFile::default()).unwrap();
    device.fail(IoOp::Write, 1);
    let before = device.count(IoOp::Write);
    for _ in 0..100 {
        if device.count(IoOp::Write) > before {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(fs.sync().is_err());
    drop(fs);
    let fs = open();
    assert!(fs.metadata("/before").is_ok());
    fs.close().unwrap();
    drop(device);
    e2fsck(&img, None).expect_clean().unwrap();
}

#[test]
fn a_volume_that_linux_has_mounted_is_refused() {
    require!(Root, Loop, E2fsprogs);
    let scratch = Scratch::new();
    let img = protected(&scratch);
    let mount = LoopMount::rw(&img, "").unwrap();
    let second = OpenOptions::new().write(true).lock(false).open(&img);
    assert!(matches!(second, Err(Error::Held { .. })));
    drop(mount);
    OpenOptions::new().write(true).lock(false).open(&img).unwrap().close().unwrap();
    assert!(e2fsck(&img, None).clean());
}
