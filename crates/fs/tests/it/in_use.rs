//! A volume that the kernel has mounted is not changed.

use extant::{Error, OpenOptions};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;

#[test]
fn a_file_mounted_through_a_loop_device_is_refused_until_it_is_free() {
    require!(Root, Loop, E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("used.img");
    mke2fs(&img, 16 << 20, "", None).unwrap();
    let mount = LoopMount::rw(&img, "").unwrap();
    std::fs::write(mount.path().join("theirs"), "1").unwrap();
    assert!(matches!(OpenOptions::new().write(true).open(&img), Err(Error::Busy)));
    assert!(matches!(extant::recover(&img), Err(Error::Busy)));
    mount.unmount().unwrap();
    let fs = OpenOptions::new().write(true).open(&img).unwrap();
    fs.write("/ours", "2").unwrap();
    fs.close().unwrap();
    assert!(e2fsck(&img, None).clean());
}
