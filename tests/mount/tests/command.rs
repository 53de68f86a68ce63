//! `extant mount` and `extant unmount` as commands: when they return, what they refuse, what they
//! leave.

use extant_mount_tests::raw;
use extant_testkit::command::{Finished, run};
use extant_testkit::e2fsprogs::{debugfs, dumpe2fs, e2fsck, mke2fs};
use extant_testkit::extant::Extant;
use extant_testkit::fuse_mount::{FuseMount, unmount};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags, XattrFlags};
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// An image and a directory to mount it on.
struct Place {
    scratch: Scratch,
    extant: Extant,
    image: PathBuf,
    dir: PathBuf,
}

impl Place {
    fn new() -> Place {
        let scratch = Scratch::new();
        let (image, dir) = (scratch.file("volume.img"), scratch.file("mnt"));
        mke2fs(&image, 64 << 20, "-t ext4", None).unwrap();
        fs::create_dir(&dir).unwrap();
        Place { scratch, extant: Extant::get().unwrap(), image, dir }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.extant.bin());
        command.args(words);
        command
    }

    /// `extant mount -o OPTIONS IMG DIR`, which continues in the background.
    fn mount(&self, options: &str) -> Finished {
        let mut command = self.command(&["mount", "-o", options]);
        run(command.arg(&self.image).arg(&self.dir), LIMIT).unwrap()
    }

    fn unmount(&self) -> Finished {
        self.unmount_at(&self.dir)
    }

    fn unmount_at(&self, dir: &Path) -> Finished {
        unmount(&self.extant, dir.as_os_str()).unwrap()
    }

    fn expect_clean(&self) {
        e2fsck(&self.image, None).expect_clean().unwrap();
        let shown = dumpe2fs(&self.image).unwrap();
        assert!(!shown.contains("needs_recovery"), "{shown}");
    }

    fn server(&self) -> Option<u32> {
        let image = self.image.to_string_lossy().into_owned();
        fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let serves = line.contains("--in-background") && line.contains(&image);
            serves.then(|| entry.file_name().to_str()?.parse().ok()).flatten()
        })
    }
}

/// Unmounts what a test that failed left mounted.
impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = self.server() {
            let _ = Command::new("kill").args(["-9", &server.to_string()]).status();
            let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        }
    }
}

fn signal(server: u32) {
    assert!(Command::new("kill").arg(server.to_string()).status().unwrap().success());
}

fn wait_for_end(place: &Place) {
    let start = Instant::now();
    while place.server().is_some() {
        assert!(start.elapsed() < LIMIT, "the server lives on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_commands_return_when_mount_and_volume_are_ready() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    for options in ["", "plain", "plain,nouring", "sync", "dontcache", "data=journal"] {
        place.mount(options).success().unwrap();
        fs::write(place.dir.join("file"), b"content").unwrap();
        assert_eq!(fs::read(place.dir.join("file")).unwrap(), b"content");
        place.unmount().success().unwrap();
        assert_eq!(place.server(), None, "{options}");
        place.expect_clean();
    }
}

#[test]
fn a_signal_writes_statistics() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    mke2fs(&place.image, 64 << 20, "-t ext4 -O fast_commit", None).unwrap();
    for (options, wanted) in [("", " fast commits ("), ("nofast_commit", "fast commits off")] {
        let log = place.scratch.file("log");
        let mut command = place.command(&["mount", "-o", options, "--log"]);
        let done = run(command.arg(&log).arg(&place.image).arg(&place.dir), LIMIT).unwrap();
        done.success().unwrap();
        let mut file = fs::File::create(place.dir.join("file")).unwrap();
        for _ in 0..3 {
            file.write_all(b"content").unwrap();
            file.sync_all().unwrap();
        }
        let noted = statistics(&place, &log, " commits");
        assert!(noted.contains(wanted), "{noted}");
        drop(file);
        place.unmount().success().unwrap();
        fs::remove_file(log).unwrap();
    }
    place.expect_clean();
}

/// KiB of file data in the cache of the mount's server, as its statistics in `log` say.
fn cached_kib(place: &Place, log: &Path) -> u64 {
    const UNIT: &str = " KiB of file data cached";
    let text = statistics(place, log, UNIT);
    let (front, _) = text.split_once(UNIT).unwrap();
    front.rsplit(' ').next().unwrap().parse().unwrap()
}

/// What the server writes to its log at a signal, up to `until` at least.
fn statistics(place: &Place, log: &Path, until: &str) -> String {
    fs::write(log, "").unwrap();
    let server = place.server().unwrap().to_string();
    assert!(Command::new("kill").args(["-USR1", &server]).status().unwrap().success());
    let start = Instant::now();
    loop {
        let text = fs::read_to_string(log).unwrap();
        if text.contains(until) {
            return text;
        }
        assert!(start.elapsed() < LIMIT, "{text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_stream_leaves_the_cache_and_a_small_file_stays() {
    require!(Root, Fuse, E2fsprogs);
    [false, true].into_iter().for_each(stream_leaves_cache);
}

fn stream_leaves_cache(appends: bool) {
    let place = Place::new();
    mke2fs(&place.image, 256 << 20, "-t ext4", None).unwrap();
    let log = place.scratch.file("log");
    let mut command = place.command(&["mount", "-o", "cache=1G", "--log"]);
    run(command.arg(&log).arg(&place.image).arg(&place.dir), LIMIT).unwrap().success().unwrap();
    let content = |n: u8| vec![n; 1 << 20];
    let small = place.dir.join("small");
    fs::write(&small, content(1)).unwrap();
    let mut stream = fs::OpenOptions::new();
    let stream = stream.create(true).append(appends).write(true);
    let mut stream = stream.open(place.dir.join("stream")).unwrap();
    for n in 0..96 {
        stream.write_all(&content(n)).unwrap();
        // On a machine with other work, bytes of a stream may wait for the device.
        if n % 8 == 0 {
            stream.sync_data().unwrap();
        }
    }
    stream.sync_all().unwrap();
    let kib = cached_kib(&place, &log);
    assert!((17 << 10..=48 << 10).contains(&kib), "{kib} KiB after writing");
    drop(stream);
    place.unmount().success().unwrap();
    let mut command = place.command(&["mount", "-o", "cache=1G", "--log"]);
    run(command.arg(&log).arg(&place.image).arg(&place.dir), LIMIT).unwrap().success().unwrap();
    assert!(fs::read(&small).unwrap() == content(1));
    let bytes = fs::read(place.dir.join("stream")).unwrap();
    assert!(bytes.chunks(1 << 20).enumerate().all(|(n, part)| part == content(n as u8)));
    let kib = cached_kib(&place, &log);
    assert!((17 << 10..=48 << 10).contains(&kib), "{kib} KiB after reading");
    place.unmount().success().unwrap();
    place.expect_clean();
}

#[test]
fn umount_of_a_block_device_returns_when_the_volume_is_clean() {
    require!(Root, Fuse, Loop);
    let place = Place::new();
    place.mount("").success().unwrap();
    fs::write(place.dir.join("file"), vec![7; 1 << 20]).unwrap();
    run(Command::new("umount").arg(&place.dir), LIMIT).unwrap().success().unwrap();
    place.expect_clean();
    wait_for_end(&place);
}

#[test]
fn a_signal_leaves_a_clean_volume_whether_files_are_open_or_not() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    for open in [false, true] {
        place.mount("").success().unwrap();
        let mut file = fs::File::create(place.dir.join("open")).unwrap();
        file.write_all(b"written, not synced").unwrap();
        let file = open.then_some(file);
        let server = place.server().unwrap();
        signal(server);
        if open {
            // The first waits until files are closed, the second does not.
            std::thread::sleep(Duration::from_millis(500));
            assert!(place.server().is_some());
            signal(server);
        }
        wait_for_end(&place);
        drop(file);
        place.expect_clean();
        let cat = place.extant.run(&["cat".as_ref(), place.image.as_os_str(), "/open".as_ref()]);
        assert_eq!(cat.unwrap().out(), "written, not synced");
    }
}

#[test]
fn an_unmounted_mirror_has_nothing_to_compare() {
    require!(Root, Fuse, E2fsprogs);
    let mut place = Place::new();
    let (a, b) = (place.scratch.file("a.img"), place.scratch.file("b.img"));
    let mut made = place.command(&["mkfs", "-q", "--size", "64M", "--layout", "raid1"]);
    run(made.arg(&a).arg(&b), LIMIT).unwrap().success().unwrap();
    place.image = PathBuf::from(format!("{}?member={}", a.display(), b.display()));
    for by_signal in [false, true] {
        place.mount("").success().unwrap();
        let path = place.dir.join("file");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![7; 4 << 20]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        match by_signal {
            true => signal(place.server().unwrap()),
            false => {
                place.unmount().success().unwrap();
            }
        }
        wait_for_end(&place);
        let mut info = place.command(&["info"]);
        let result = run(info.arg(&place.image), LIMIT).unwrap().success().unwrap();
        let result = result.out();
        assert!(result.contains("in use") && !result.contains("to compare"), "{result}");
        for member in [&a, &b] {
            e2fsck(member, None).expect_clean().unwrap();
        }
    }
}

#[test]
fn what_cannot_be_mounted_is_refused_with_a_reason() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    place.mount("").success().unwrap();
    let other = place.scratch.file("other");
    fs::create_dir(&other).unwrap();
    // A volume with a server gets no second one.
    let mut command = place.command(&["mount", "--foreground"]);
    let again = run(command.arg(&place.image).arg(&other), LIMIT).unwrap();
    assert_eq!(again.code(), Some(1));
    assert!(again.err().contains(", by another server"), "{}", again.err());
    place.unmount().success().unwrap();

    let not_a_volume = place.scratch.file("text");
    fs::write(&not_a_volume, vec![b'x'; 1 << 20]).unwrap();
    let cases: [(&Path, &Path, &str); 3] = [
        (&not_a_volume, &other, "not an ext2, ext3 or ext4 volume"),
        (&place.scratch.file("absent.img"), &other, "No such file"),
        (&place.image, &place.scratch.file("absent"), "No such file"),
    ];
    for (image, dir, reason) in cases {
        let done = run(place.command(&["mount"]).arg(image).arg(dir), LIMIT).unwrap();
        assert_eq!((done.code(), done.out().as_str()), (Some(1), ""), "{}", done.err());
        assert!(done.err().contains(reason), "{}", done.err());
    }
    let done = run(place.command(&["unmount"]).arg(&other), LIMIT).unwrap();
    assert!(done.err().contains("not a mount of extant"), "{}", done.err());
    let done = place.mount("commit=soon");
    assert_eq!(done.code(), Some(2), "{}", done.err());
}

#[test]
fn the_image_names_its_mount_for_unmount() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    let by_image = || run(place.command(&["umount"]).arg(&place.image), LIMIT).unwrap();
    assert!(by_image().err().contains("not a mount of extant"), "{}", by_image().err());
    for options in ["", "plain"] {
        place.mount(options).success().unwrap();
        by_image().success().unwrap();
        assert_eq!(place.server(), None, "{options}");
        place.expect_clean();
    }
    // Two mounts: only their directories say which one.
    let other = place.scratch.file("other");
    fs::create_dir(&other).unwrap();
    place.mount("").success().unwrap();
    run(place.command(&["mount"]).arg(&place.image).arg(&other), LIMIT).unwrap().success().unwrap();
    let done = by_image();
    assert_eq!(done.code(), Some(1));
    for dir in [&place.dir, &other] {
        assert!(done.err().contains(&*dir.to_string_lossy()), "{}", done.err());
    }
    place.unmount_at(&other).success().unwrap();
    // Another mount covers that of the image: it is not unmounted in its place.
    let mut tmpfs = Command::new("mount");
    assert!(tmpfs.args(["-t", "tmpfs", "none"]).arg(&place.dir).status().unwrap().success());
    fs::write(place.dir.join("on top"), b"").unwrap();
    let done = by_image();
    let there = place.dir.join("on top").exists();
    assert!(Command::new("umount").arg(&place.dir).status().unwrap().success());
    assert!(there && done.err().contains("another mount covers"), "{}", done.err());
    by_image().success().unwrap();
    place.expect_clean();
}

#[test]
fn a_layout_names_its_mount_for_unmount() {
    require!(Root, Fuse);
    let place = Place::new();
    let (one, two) = (place.scratch.file("one"), place.scratch.file("two"));
    let mkfs = ["mkfs", "--quiet", "--size", "16M", "--layout", "raid1"];
    let made = run(place.command(&mkfs).args([&one, &two]), LIMIT).unwrap();
    made.success().unwrap();
    let name = format!("{}?member={}", one.display(), two.display());
    run(place.command(&["mount", &name]).arg(&place.dir), LIMIT).unwrap().success().unwrap();
    unmount(&place.extant, OsStr::new(&name)).unwrap().success().unwrap();
    assert_eq!(place.server(), None);
}

#[test]
fn what_was_synced_survives_a_kill_and_a_read_only_mount_shows_it_without_writing() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    let mount = FuseMount::new(&place.image, "").unwrap();
    let synced = mount.path().join("synced");
    fs::write(&synced, b"here").unwrap();
    fs::File::open(&synced).unwrap().sync_all().unwrap();
    mount.kill().unwrap();
    let before = fs::read(&place.image).unwrap();
    place.mount("ro").success().unwrap();
    assert_eq!(fs::read(place.dir.join("synced")).unwrap(), b"here");
    let refused = fs::write(place.dir.join("new"), b"").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    place.unmount().success().unwrap();
    assert!(fs::read(&place.image).unwrap() == before, "the image was written");
    place.mount("").success().unwrap();
    assert_eq!(fs::read(place.dir.join("synced")).unwrap(), b"here");
    place.unmount().success().unwrap();
    place.expect_clean();
}

#[test]
fn a_mount_with_a_byte_log_logs_its_durability_and_a_kill_is_recovered() {
    require!(Root, Fuse, E2fsprogs);
    if !cfg!(target_arch = "x86_64") {
        return println!("NOT RUN: cache lines cannot be written back");
    }
    let place = Place::new();
    mke2fs(&place.image, 64 << 20, "-O fast_commit", None).unwrap();
    let image = place.image.to_str().unwrap();
    let done = place.mount("dax_fc_bytelog=on,dax=never");
    assert!(done.err().contains("fsync writes a fast commit and flushes"), "{}", done.err());
    place.unmount().success().unwrap();
    let done = place.mount("dax_fc_bytelog=force,dax=never");
    assert!(!done.ok() && done.err().contains("byte log needs"), "{}", done.err());
    place.expect_clean();
    let done = place.mount("dax=always");
    assert_eq!((done.code(), done.err().as_str()), (Some(0), ""), "nobody asked");
    place.unmount().success().unwrap();

    let done = place.mount("dax_fc_bytelog=force,dax=always");
    assert!(done.ok() && done.err().contains("fsync stores into the byte log"), "{}", done.err());
    for n in 0..20 {
        let file = fs::File::create(place.dir.join(format!("file {n}"))).unwrap();
        (&file).write_all(b"synced").unwrap();
        file.sync_all().unwrap();
    }
    let server = place.server().unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &server]).status().unwrap().success());
    assert!(Command::new("umount").arg("-l").arg(&place.dir).status().unwrap().success());
    while place.server().is_some() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let info = place.extant.run(&["info", image]).unwrap().out();
    assert!(info.contains("byte log live") && info.contains("dax_fc_bytelog"), "{info}");
    // Reading does not change the image.
    let cat = place.extant.run(&["cat", image, "/file 19"]).unwrap();
    assert_eq!(cat.out(), "synced");
    let replay = place.extant.run(&["replay", image]).unwrap();
    assert!(replay.ok() && replay.out().contains("fast commit"), "{replay}");
    place.expect_clean();
    let info = place.extant.run(&["info", image]).unwrap().out();
    assert!(!info.contains("byte log") && !info.contains("dax_fc_bytelog"), "{info}");
    assert_eq!(place.extant.run(&["cat", image, "/file 0"]).unwrap().out(), "synced");
}

#[test]
fn what_was_closed_survives_a_kill_after_the_commit_timer() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    let mount = FuseMount::new(&place.image, "commit=1").unwrap();
    fs::write(mount.path().join("closed"), b"not synced").unwrap();
    // Data is written back after three seconds, and its size committed a second later.
    std::thread::sleep(Duration::from_millis(6500));
    mount.kill().unwrap();
    let cat = place.extant.run(&["cat".as_ref(), place.image.as_os_str(), "/closed".as_ref()]);
    assert_eq!(cat.unwrap().out(), "not synced");
}

#[test]
fn a_sync_of_the_mount_reaches_the_volume() {
    require!(Root, Fuse, Loop);
    let place = Place::new();
    let mount = FuseMount::new(&place.image, "commit=3600").unwrap();
    let file = fs::File::create(mount.path().join("file")).unwrap();
    (&file).write_all(b"content").unwrap();
    rustix::fs::syncfs(&file).unwrap();
    drop(file);
    mount.kill().unwrap();
    let cat = place.extant.run(&["cat".as_ref(), place.image.as_os_str(), "/file".as_ref()]);
    assert_eq!(cat.unwrap().out(), "content");
}

#[test]
fn owners_are_mapped_both_ways() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    place.mount("uid=4711,gid=4712,uidmap=1000:5000:10").success().unwrap();
    let root = fs::metadata(&place.dir).unwrap();
    assert_eq!((root.uid(), root.gid()), (4711, 4712));
    let file = place.dir.join("file");
    fs::write(&file, b"").unwrap();
    std::os::unix::fs::chown(&file, Some(5003), Some(4712)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().uid(), 5003);
    place.unmount().success().unwrap();
    let stat = place.extant.run(&["stat", "--json", place.image.to_str().unwrap(), "/file"]);
    let shown = stat.unwrap().out();
    assert!(shown.contains("\"uid\":1003") && shown.contains("\"gid\":0"), "{shown}");
}

#[test]
fn a_direct_write_that_fits_in_part_reports_a_full_volume() {
    require!(Root, Fuse, E2fsprogs);
    for options in ["", "sync", "data=journal"] {
        let place = Place::new();
        place.mount(options).success().unwrap();
        let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
        let mut file = fs::OpenOptions::new();
        let file = file.write(true).create(true).custom_flags(direct);
        let file = file.open(place.dir.join("all")).unwrap();
        let piece = vec![1_u8; 1 << 20];
        let result = (0..128).find_map(|n| file.write_all_at(&piece, n << 20).err());
        let result = result.expect("a volume of 64 MiB took 128").raw_os_error();
        assert_eq!(result, Some(rustix::io::Errno::NOSPC.raw_os_error()), "{options}");
        drop(file);
        place.unmount().success().unwrap();
        place.expect_clean();
    }
}

#[test]
fn of_what_the_kernel_collected_nothing_is_lost_unsaid_where_a_part_fits() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    place.mount("writeback_cache").success().unwrap();
    let file = fs::File::create(place.dir.join("all")).unwrap();
    let piece = vec![1_u8; 1 << 20];
    let write = |n: u64| file.write_all_at(&piece, n << 20).and_then(|()| file.sync_all());
    let synced = (0..128).take_while(|n| write(*n).is_ok()).count();
    assert!((16..128).contains(&synced), "{synced} MiB");
    drop(file);
    place.unmount().success().unwrap();
    place.expect_clean();
    let image = place.image.to_str().unwrap();
    let shown = place.extant.run(&["cat", image, "/all"]).unwrap().stdout;
    let found = shown.iter().take(synced << 20).filter(|byte| **byte == 1).count();
    assert_eq!(found, synced << 20);
}

#[test]
fn access_lists_name_the_owners_that_the_mount_shows() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("setfacl"), Program("getfacl"));
    let place = Place::new();
    place.mount("uid=4711,gid=4712,uidmap=1000:5000:10,gidmap=7:7000").success().unwrap();
    let facl = |dir: &Path, program: &str, words: &[&str]| {
        let done = run(Command::new(program).args(words).current_dir(dir), LIMIT);
        done.unwrap().success().unwrap().out()
    };
    let list = |dir: &Path, name: &str| facl(dir, "getfacl", &["-nc", name]);
    fs::write(place.dir.join("file"), b"content").unwrap();
    fs::set_permissions(place.dir.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(place.dir.join("dir")).unwrap();
    let words = "u:5003:r,u:4711:rw,u:9:x,g:7000:r,g:4712:w,g:70:x";
    facl(&place.dir, "setfacl", &["-m", words, "file"]);
    facl(&place.dir, "setfacl", &["-d", "-m", "u:5003:rx,g:7000:rwx", "dir"]);
    fs::write(place.dir.join("dir/new"), b"").unwrap();
    let shown = |user: [&str; 2], group: [&str; 2]| {
        let file = [
            &*format!("user::rw-\nuser:{}:rw-\nuser:9:--x\nuser:{}:r--\n", user[0], user[1]),
            &*format!("group::---\ngroup:{}:-w-\ngroup:{}:r--\n", group[0], group[1]),
            "group:70:--x\nmask::rwx\nother::---\n\n",
        ];
        let named = format!("user:{}:r-x", user[1]);
        (file.concat(), named, format!("group:{}:rwx", group[1]))
    };
    let check = |dir: &Path, (file, user, group): (String, String, String)| {
        let sorted = |list: &str| {
            let mut lines: Vec<String> = list.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&list(dir, "file")), sorted(&file));
        for line in [&user, &group] {
            let handed_on = list(dir, "dir");
            assert!(handed_on.contains(&format!("default:{line}\n")), "{line}: {handed_on}");
            assert!(list(dir, "dir/new").contains(line), "{line}: {}", list(dir, "dir/new"));
        }
    };
    check(&place.dir, shown(["4711", "5003"], ["4712", "7000"]));
    let reads = |uid: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", "99", "--clear-groups", "cat"]);
        run(command.arg(place.dir.join("file")), LIMIT).unwrap().ok()
    };
    assert!(reads("5003") && !reads("1003"));
    place.unmount().success().unwrap();
    place.expect_clean();
    let mount = LoopMount::ro(&place.image, "").unwrap();
    check(mount.path(), shown(["0", "1003"], ["0", "7"]));
    mount.unmount().unwrap();
    // From a program on the volume, too.
    place.mount("uid=4711,gid=4712,uidmap=1000:5000:10,gidmap=7:7000").success().unwrap();
    check(&place.dir, shown(["4711", "5003"], ["4712", "7000"]));
    place.unmount().success().unwrap();
}

#[test]
fn a_full_volume_is_an_error_of_the_write_that_does_not_fit() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    place.mount("").success().unwrap();
    let mut file = fs::File::create(place.dir.join("all")).unwrap();
    let piece = vec![1_u8; 1 << 20];
    let mut written = 0;
    let result = loop {
        assert!(written < 128, "a volume of 64 MiB took {written} MiB");
        match file.write_all(&piece) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(result.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    // What was accepted is there.
    file.sync_all().unwrap();
    drop(file);
    let size = fs::metadata(place.dir.join("all")).unwrap().len();
    assert!(size >> 20 >= written, "{size} bytes of {written} MiB");
    fs::remove_file(place.dir.join("all")).unwrap();
    fs::write(place.dir.join("again"), &piece).unwrap();
    place.unmount().success().unwrap();
    place.expect_clean();
}

/// Pieces of a file, and directories, until there is no block for one more; all of it is on the
/// device.
fn fill(dir: &Path) {
    let mut file = fs::File::create(dir.join("all")).unwrap();
    let mut len = 1 << 20;
    loop {
        let before = file.metadata().unwrap().len();
        while file.write(&vec![1; len]).is_ok() {}
        // Reservations that were larger than needed are free then.
        file.sync_all().unwrap();
        match file.metadata().unwrap().len() == before {
            true if len == 1024 => break,
            true => len = 1024,
            false => {}
        }
    }
    // A free block, although a piece of the file needs two.
    let more = |n: &u32| fs::create_dir(dir.join(format!("more/{n}"))).is_err();
    let first = fs::read_dir(dir.join("more")).unwrap().count() as u32;
    (first..).find(more);
}

/// A call that needs space, in a directory.
type Call = (&'static str, fn(&Path) -> rustix::io::Result<()>);

const NO_MODE: Mode = Mode::empty();

/// Calls that need a block or more.
const NEED_BLOCKS: &[Call] = &[
    ("mkdir", |dir| rustix::fs::mkdir(dir.join("new"), NO_MODE)),
    ("symlink", |dir| rustix::fs::symlink("x".repeat(900), dir.join("new"))),
    ("setxattr", |dir| {
        rustix::fs::setxattr(dir.join("old"), "user.a", &[1; 900], XattrFlags::empty())
    }),
    ("fallocate", |dir| {
        let file = rustix::fs::open(dir.join("old"), OFlags::WRONLY, NO_MODE)?;
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 1 << 20)
    }),
    ("copy_file_range", |dir| {
        let from = rustix::fs::open(dir.join("source"), OFlags::RDONLY, NO_MODE)?;
        let to = rustix::fs::open(dir.join("copy"), OFlags::WRONLY, NO_MODE)?;
        rustix::fs::copy_file_range(from, None, to, None, 8192).map(drop)
    }),
    ("set project", |dir| {
        // The quota file has no entry for it, and no block for one more.
        let file = rustix::fs::open(dir.join("old"), OFlags::RDONLY, NO_MODE)?;
        let mut flags = raw::xflags(&file)?;
        flags.project = 0x0102_0304;
        raw::set_xflags(&file, flags)?;
        flags.project = 0;
        raw::set_xflags(&file, flags)
    }),
    ("link", |dir| rustix::fs::link(dir.join("old"), long_name(dir, "names", 3))),
    ("rename", |dir| rustix::fs::rename(dir.join("old"), long_name(dir, "names2", 3))),
];

/// Three of these fit a directory's block of 1 KiB.
fn long_name(dir: &Path, below: &str, n: usize) -> PathBuf {
    dir.join(below).join(n.to_string().repeat(250))
}

/// Calls that need an inode alone.
const NEED_INODES: &[Call] = &[
    ("create", |dir| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        rustix::fs::open(dir.join("new"), flags, NO_MODE).map(drop)
    }),
    ("mkdir", |dir| rustix::fs::mkdir(dir.join("new"), NO_MODE)),
    ("mknod", |dir| rustix::fs::mknodat(CWD, dir.join("new"), FileType::Fifo, NO_MODE, 0)),
    ("symlink", |dir| rustix::fs::symlink("x", dir.join("new"))),
    ("tmpfile", |dir| rustix::fs::open(dir, OFlags::TMPFILE | OFlags::WRONLY, NO_MODE).map(drop)),
];

/// The kernel releases a removed file some time after its last name was removed. Here it is open
/// for that long.
#[test]
fn space_of_what_was_just_removed_is_waited_for() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    let options = "-b 1024 -m 0 -N 256 -O quota,project -E quotatype=prjquota";
    mke2fs(&place.image, 16 << 20, options, None).unwrap();
    place.mount("").success().unwrap();
    let dir = &place.dir;
    for name in ["old", "copy"] {
        fs::write(dir.join(name), b"").unwrap();
    }
    fs::write(dir.join("source"), vec![1; 8192]).unwrap();
    for name in ["names", "names2", "more"] {
        fs::create_dir(dir.join(name)).unwrap();
        (0..3).for_each(|n| fs::write(long_name(dir, name, n), b"").unwrap());
    }
    let after_removal = |(name, call): &Call, removed: &str| {
        assert_eq!(call(dir), Err(rustix::io::Errno::NOSPC), "{name}");
        let open = fs::File::open(dir.join(removed)).unwrap();
        fs::remove_file(dir.join(removed)).unwrap();
        let close = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            drop(open);
        });
        assert_eq!(call(dir), Ok(()), "{name}");
        close.join().unwrap();
        let _ = fs::remove_dir(dir.join("new")).or_else(|_| fs::remove_file(dir.join("new")));
    };
    for call in NEED_BLOCKS {
        fill(dir);
        after_removal(call, "all");
    }
    let name = |n: u32| dir.join(n.to_string());
    let made = (0..).take_while(|n| fs::write(name(*n), b"").is_ok()).count() as u32;
    assert!((100..256).contains(&made), "{made}");
    for call in NEED_INODES {
        after_removal(call, "0");
        fs::write(name(0), b"").unwrap();
    }
    place.unmount().success().unwrap();
    place.expect_clean();
}

/// A loop device, detached on drop.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &Path) -> LoopDevice {
        let mut command = Command::new("losetup");
        let done = run(command.args(["--find", "--show"]).arg(file), LIMIT).unwrap();
        LoopDevice(done.success().unwrap().out().trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.0), LIMIT);
    }
}

#[test]
fn an_image_and_a_loop_device_over_it_are_not_both_written() {
    require!(Root, Fuse, Loop, E2fsprogs);
    let place = Place::new();
    let file = place.scratch.file("file");
    fs::write(&file, "content").unwrap();
    // The same file by another name.
    let link = place.scratch.file("link.img");
    fs::hard_link(&place.image, &link).unwrap();
    let device = LoopDevice::new(&link);
    let put =
        |target: &str| run(place.command(&["put", target]).arg(&file).arg("/file"), LIMIT).unwrap();
    // Nothing is in use yet: either result is fine.
    put(&device.0).success().unwrap();

    place.mount("").success().unwrap();
    let refused = put(&device.0);
    assert!(!refused.ok() && refused.err().contains("in use"), "{refused}");
    place.unmount().success().unwrap();

    let other = place.scratch.file("other");
    fs::create_dir(&other).unwrap();
    let mut mount = place.command(&["mount", &device.0]);
    run(mount.arg(&other), LIMIT).unwrap().success().unwrap();
    for name in [&place.image, &link] {
        let refused = put(name.to_str().unwrap());
        assert!(!refused.ok() && refused.err().contains("in use"), "{refused}");
    }
    place.unmount_at(&other).success().unwrap();

    // A second loop device over a file that Linux has mounted through the first.
    let second = LoopDevice::new(&place.image);
    let linux = LoopMount::rw(&link, "").unwrap();
    let refused = put(&second.0);
    assert!(!refused.ok() && refused.err().contains("in use"), "{refused}");
    linux.unmount().unwrap();
    drop((device, second));
    place.expect_clean();
}

/// What the kernel's table has for the mount on `dir`: source, type and options, as findmnt prints
/// them.
fn findmnt(dir: &Path) -> String {
    let mut command = Command::new("findmnt");
    command.args(["--noheadings", "--raw", "--output", "SOURCE,FSTYPE,VFS-OPTIONS"]).arg(dir);
    run(&mut command, LIMIT).unwrap().out().trim().to_owned()
}

#[test]
fn the_table_of_mounts_names_the_image() {
    require!(Root, Fuse, Loop, E2fsprogs);
    let mut place = Place::new();
    let spaced = place.scratch.file("a volume.img");
    fs::rename(&place.image, &spaced).unwrap();
    place.image = spaced;
    for options in ["", "ro", "plain"] {
        place.mount(options).success().unwrap();
        let source = findmnt(&place.dir);
        let kind = if options == "plain" { "fuse.extant" } else { "fuseblk.extant" };
        let expected =
            format!("{} {kind}", place.image.display().to_string().replace(' ', "\\x20"));
        assert!(source.starts_with(&expected), "{source} is not {expected}");
        let df = run(Command::new("df").arg(&place.dir), LIMIT).unwrap();
        assert!(df.out().contains("a volume.img"), "{df}");
        let mut losetup = Command::new("losetup");
        losetup.args(["--noheadings", "--list", "--output", "RO", "--associated"]);
        let loops = run(losetup.arg(&place.image), LIMIT).unwrap().success().unwrap();
        let read_only = match options {
            "" => "0",
            "ro" => "1",
            _ => "",
        };
        assert_eq!(loops.out().trim(), read_only, "{options}");
        // Other processes do not see what the mount needed to get this name.
        assert!(place.image.metadata().unwrap().is_file());
        place.unmount().success().unwrap();
    }
    place.expect_clean();
}

#[test]
fn a_dead_mount_is_taken_away_by_the_next_mount_or_unmount() {
    require!(Root, Fuse, Loop, E2fsprogs);
    let place = Place::new();
    let said =
        format!("extant: {}: unmounted: the server of this mount had ended\n", place.dir.display());
    let other = place.scratch.file("other");
    fs::create_dir(&other).unwrap();
    for options in ["", "plain"] {
        for by in ["mount", "mount elsewhere", "unmount", "umount"] {
            place.mount(options).success().unwrap();
            fs::File::create(place.dir.join("synced")).unwrap().sync_all().unwrap();
            let server = place.server().unwrap();
            assert!(
                Command::new("kill").args(["-9", &server.to_string()]).status().unwrap().success()
            );
            wait_for_end(&place);
            let (dir, done) = match by {
                "mount" => (&place.dir, place.mount(options)),
                "mount elsewhere" => {
                    let mut mount = place.command(&["mount"]);
                    (&other, run(mount.arg(&place.image).arg(&other), LIMIT).unwrap())
                }
                _ => {
                    let done = run(place.command(&[by]).arg(&place.dir), LIMIT).unwrap();
                    assert!(!done.ok() && done.err().contains("`extant replay`"), "{done}");
                    assert!(done.err().starts_with(&said), "{done}");
                    assert_eq!(findmnt(&place.dir), "");
                    place.mount(options).success().unwrap();
                    (&place.dir, place.unmount())
                }
            };
            assert!(done.ok(), "{options} {by}: {done}");
            if by.starts_with("mount") {
                assert_eq!(done.err(), said, "{options} {by}");
                assert!(dir.join("synced").exists());
                place.unmount_at(dir).success().unwrap();
            }
            place.expect_clean();
        }
    }
}

#[test]
fn mount_8_and_fstab_know_the_type() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("unshare"), Program("mount"));
    let place = Place::new();
    // mount(8) looks for helpers only in /sbin: here that is a directory of this test, for these
    // commands alone.
    let script = r#"
        set -eu
        bin=$1 image=$2 dir=$3 scratch=$4
        mkdir "$scratch/sbin"
        cp "$(command -v losetup)" "$scratch/sbin/"
        ln -s "$bin" "$scratch/sbin/mount.extant"
        ln -s "$bin" "$scratch/sbin/mount.fuse.extant"
        echo "$image $dir extant noauto,user,nofail 0 0" > "$scratch/fstab"
        mount --bind "$scratch/sbin" "$(readlink -f /sbin)"
        for way in "-t extant $image $dir" "-t fuse.extant $image $dir" "-T $scratch/fstab $dir" \
            "-o ro -t extant $image $dir"; do
            mount $way
            grep " $dir .* fuseblk.extant $image " /proc/self/mountinfo | cut -d ' ' -f 6
            umount "$dir"
        done
        mount -f -t extant "$image" "$dir"
        # As libfuse's mount.fuse calls it.
        "$bin" "$image" "$dir" -o rw
        "$bin" umount "$dir"
        "#;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    unshare.arg(place.extant.bin()).arg(&place.image).arg(&place.dir).arg(place.scratch.path());
    let done = run(&mut unshare, LIMIT).unwrap().success().unwrap();
    let options: Vec<_> =
        done.out().lines().map(|line| line.split(',').next().unwrap().to_owned()).collect();
    assert_eq!(options, ["rw", "rw", "rw", "ro"], "{done}");
    wait_for_end(&place);
    place.expect_clean();
}

#[test]
fn a_service_manager_hears_when_the_mount_is_ready_and_when_it_ends() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    let path = place.scratch.file("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let mut mount = place.command(&["mount", "-f"]);
    mount.arg(&place.image).arg(&place.dir).env("NOTIFY_SOCKET", &path);
    let mut server = mount.spawn().unwrap();
    let hear = || {
        let mut text = [0; 100];
        let len = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    assert_eq!(hear(), format!("READY=1\nMAINPID={}", server.id()));
    assert!(findmnt(&place.dir).contains("extant"));
    signal(server.id());
    assert_eq!(hear(), "STOPPING=1");
    assert!(server.wait().unwrap().success());
    place.expect_clean();
}

#[test]
fn fstabs_options_do_what_ext4_does_with_them() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    // Every option that ext4 and mount(8) accept and a mount may ignore, once each.
    place
        .mount("defaults,nofail,x-systemd.automount,nodelalloc,barrier=1,stripe=4")
        .success()
        .unwrap();
    fs::create_dir(place.dir.join("dir")).unwrap();
    fs::write(place.dir.join("dir/file"), b"content").unwrap();
    place.unmount().success().unwrap();
    for (option, reason) in
        [("noacl", "access control lists"), ("errors=panic", "remount-ro"), ("noload", "ro")]
    {
        let refused = place.mount(option);
        assert!(!refused.ok() && refused.err().contains(option), "{refused}");
        assert!(refused.err().contains(reason), "{refused}");
    }
    // ext4 subtracts its own metadata from the total of blocks unless minixdf is given.
    let blocks = |options: &str| {
        place.mount(options).success().unwrap();
        let blocks = rustix::fs::statvfs(&place.dir).unwrap().f_blocks;
        place.unmount().success().unwrap();
        blocks
    };
    let (own, without) = (blocks("minixdf"), blocks("bsddf"));
    assert!(own > without && own * 1024 >= 64 << 10, "{own} {without}");
    place.expect_clean();
    // Damage ends changes, or does not.
    let block = debugfs(&place.image, "blocks /dir").unwrap();
    let block: u64 = block.trim().parse().unwrap();
    let image = fs::OpenOptions::new().write(true).open(&place.image).unwrap();
    let block_bytes = (64 << 20) / own;
    image.write_all_at(&vec![0xFF; block_bytes as usize], block * block_bytes).unwrap();
    for (policy, is_writable) in [("remount-ro", false), ("continue", true)] {
        place.mount(&format!("errors={policy}")).success().unwrap();
        assert!(fs::read_dir(place.dir.join("dir")).unwrap().any(|name| name.is_err()));
        let written = fs::write(place.dir.join("new"), b"content");
        assert_eq!(written.is_ok(), is_writable, "{policy}: {written:?}");
        let _ = place.unmount();
        wait_for_end(&place);
    }
}

#[test]
fn large_files_begin_at_the_stripes_of_a_raid() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    // As the volume says, and as the mount says instead.
    for (options, stripe) in [("", 96), ("stripe=80", 80)] {
        mke2fs(&place.image, 64 << 20, "-t ext4 -b 1024 -E stride=16,stripe_width=96", None)
            .unwrap();
        place.mount(options).success().unwrap();
        fs::write(place.dir.join("odd"), [1; 5000]).unwrap();
        for n in 0..5 {
            fs::write(place.dir.join(format!("file{n}")), vec![2; 300_000]).unwrap();
        }
        place.unmount().success().unwrap();
        let first = |name: &str| -> u64 {
            let blocks = debugfs(&place.image, &format!("blocks /{name}")).unwrap();
            blocks.split_whitespace().next().unwrap().parse().unwrap()
        };
        let starts: Vec<u64> = (0..5).map(|n| first(&format!("file{n}"))).collect();
        assert!(starts.iter().all(|at| at.is_multiple_of(stripe)), "{options}: {starts:?}");
        place.expect_clean();
    }
}

/// Reads a file of `place` and drops its bytes from the kernel's cache. Returns its access time
/// then.
fn read_of(path: &Path, flags: OFlags) -> (i64, i64) {
    use rustix::fs::{Advice, fadvise, open};
    let metadata = fs::symlink_metadata(path).unwrap();
    if metadata.is_symlink() {
        fs::read_link(path).unwrap();
    } else if metadata.is_dir() {
        assert!(fs::read_dir(path).unwrap().next().is_none());
    } else {
        let file = open(path, OFlags::RDONLY | flags, Mode::empty()).unwrap();
        rustix::io::read(&file, &mut [0; 16]).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
    accessed(path)
}

fn accessed(path: &Path) -> (i64, i64) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.atime(), metadata.atime_nsec())
}

/// As xfstests generic/003.
#[test]
fn reads_set_the_time_of_access_as_the_options_say() {
    use rustix::fs::{AtFlags, Timespec, Timestamps, utimensat};
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    place.mount("").success().unwrap();
    let names = ["file", "dir", "link"].map(|name| place.dir.join(name));
    let [file, dir, link] = &names;
    fs::write(file, b"content").unwrap();
    fs::create_dir(dir).unwrap();
    std::os::unix::fs::symlink("file", link).unwrap();
    let at = |sec| Timespec { tv_sec: sec, tv_nsec: 0 };
    // Long ago, and later than the last change, as far as the day allows.
    let set = |path: &Path, sec| {
        let times = Timestamps { last_access: at(sec), last_modification: at(1_000_000) };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    };
    let old = 2_000_000;
    names.iter().for_each(|path| set(path, old));
    place.unmount().success().unwrap();
    // No read sets it.
    for options in ["noatime", "ro"] {
        place.mount(options).success().unwrap();
        for path in &names {
            assert_eq!(read_of(path, OFlags::empty()), (old, 0), "{options} {path:?}");
        }
        place.unmount().success().unwrap();
    }
    place.mount("nodiratime").success().unwrap();
    assert_eq!(read_of(dir, OFlags::empty()), (old, 0));
    assert_eq!(read_of(file, OFlags::NOATIME), (old, 0));
    place.unmount().success().unwrap();
    // The first read after a change sets it; later ones do not.
    place.mount("").success().unwrap();
    let set_to = names.each_ref().map(|path| {
        let first = read_of(path, OFlags::empty());
        assert_ne!(first.0, old, "{path:?}");
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(read_of(path, OFlags::empty()), first, "{path:?}");
        first
    });
    fs::write(file, b"other").unwrap();
    set(link, 77);
    place.unmount().success().unwrap();
    // It is stored; a time set by a call afterwards stays.
    place.mount("ro").success().unwrap();
    let stored = names.each_ref().map(|path| accessed(path));
    assert_eq!(stored, [set_to[0], set_to[1], (77, 0)]);
    place.unmount().success().unwrap();
    // Each read sets it, although the kernel has read the file before.
    place.mount("strictatime").success().unwrap();
    for path in &names {
        let mut last = accessed(path);
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(5));
            // Without a call that empties the kernel's cache.
            match path == file {
                true => drop(fs::read(path).unwrap()),
                false => drop(read_of(path, OFlags::empty())),
            }
            let now = accessed(path);
            assert!(now > last, "{path:?} {now:?}");
            last = now;
        }
    }
    place.unmount().success().unwrap();
    place.expect_clean();
}

/// Bytes that the image takes on its filesystem.
fn taken(place: &Place) -> u64 {
    fs::metadata(&place.image).unwrap().blocks() * 512
}

#[test]
fn free_space_goes_back_from_the_image() {
    require!(Root, Fuse, E2fsprogs);
    const FILE: usize = 16 << 20;
    let noise: Vec<u8> =
        (0..FILE as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (options, by_verb) in [("", true), ("discard", false)] {
        let place = Place::new();
        place.mount(options).success().unwrap();
        fs::write(place.dir.join("keep"), &noise[..1 << 20]).unwrap();
        fs::write(place.dir.join("go"), &noise).unwrap();
        let root = fs::File::open(&place.dir).unwrap();
        rustix::fs::syncfs(&root).unwrap();
        let before = taken(&place);
        fs::remove_file(place.dir.join("go")).unwrap();
        // The file is freed when the kernel forgets it.
        let start = Instant::now();
        loop {
            rustix::fs::syncfs(&root).unwrap();
            if by_verb {
                let done = run(place.command(&["trim"]).arg(&place.dir), LIMIT).unwrap();
                done.success().unwrap();
            }
            if taken(&place) + FILE as u64 <= before + (1 << 20) {
                break;
            }
            assert!(start.elapsed() < LIMIT, "{options}: {before} {}", taken(&place));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(fs::read(place.dir.join("keep")).unwrap() == noise[..1 << 20]);
        drop(root);
        place.unmount().success().unwrap();
        place.expect_clean();
        // An image that is not mounted; a copy took all of its space.
        let whole = fs::read(&place.image).unwrap();
        fs::write(&place.image, &whole).unwrap();
        let before = taken(&place);
        let done = run(place.command(&["trim"]).arg(&place.image), LIMIT).unwrap();
        let said = done.success().unwrap().out();
        assert!(said.contains("bytes of free space trimmed"), "{said}");
        assert!(taken(&place) < before / 2, "{before} {}", taken(&place));
        place.expect_clean();
        place.mount("ro").success().unwrap();
        assert!(fs::read(place.dir.join("keep")).unwrap() == noise[..1 << 20]);
        place.unmount().success().unwrap();
    }
}

/// As xfstests generic/732.
#[test]
fn a_second_mount_of_a_volume_shows_the_first() {
    require!(Root, Fuse, E2fsprogs);
    let place = Place::new();
    let other = place.scratch.file("other");
    fs::create_dir(&other).unwrap();
    let second = |options: &str| {
        let mut command = place.command(&["mount", "-o", options]);
        run(command.arg(&place.image).arg(&other), LIMIT).unwrap()
    };
    let unmount = |dir: &Path| place.unmount_at(dir).success().unwrap();
    for first_goes_first in [false, true] {
        place.mount("").success().unwrap();
        let said = second("").success().unwrap().err();
        assert!(said.contains(place.dir.to_str().unwrap()), "{said}");
        fs::write(other.join("file"), b"content").unwrap();
        assert_eq!(fs::read(place.dir.join("file")).unwrap(), b"content");
        let (gone, left) = match first_goes_first {
            true => (&place.dir, &other),
            false => (&other, &place.dir),
        };
        unmount(gone);
        assert!(!gone.join("file").exists());
        assert_eq!(fs::read(left.join("file")).unwrap(), b"content");
        unmount(left);
        place.expect_clean();
    }
    // Options that differ from those of the first mount would have no effect.
    place.mount("").success().unwrap();
    for options in ["ro", "noatime"] {
        let refused = second(options);
        assert!(!refused.ok() && refused.err().contains(place.dir.to_str().unwrap()), "{refused}");
    }
    // Other users cannot use it either, because they have no bind mounts.
    fs::set_permissions(place.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
    command.arg(place.extant.bin()).arg("mount").arg(&place.image).arg(&other);
    let refused = run(&mut command, LIMIT).unwrap();
    assert!(!refused.ok() && refused.err().contains("already"), "{refused}");
    unmount(&place.dir);
    place.expect_clean();
}
