//! Permissions on a mount that the kernel alone does not enforce.

use extant_testkit::command::{run, run_args};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::fuse_mount::FuseMount;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use rustix::fs::{AtFlags, StatxFlags};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A volume, mounted while `test` runs, and clean after it.
fn on_a_volume(test: impl FnOnce(&Path)) {
    let scratch = Scratch::new();
    let image = scratch.file("volume.img");
    mke2fs(&image, 64 << 20, "-t ext4", None).unwrap();
    let mount = FuseMount::new(&image, "").unwrap();
    fs::set_permissions(mount.path(), fs::Permissions::from_mode(0o755)).unwrap();
    test(mount.path());
    mount.unmount().unwrap();
    e2fsck(&image, None).expect_clean().unwrap();
}

/// A shell's `script` as user and group `id`; `$1` is `file`.
fn as_user(id: u32, script: &str, file: &Path) -> Output {
    let id = id.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]);
    command.args(["sh", "-c", script, "-"]).arg(file).output().unwrap()
}

/// Gives other users access to the mount, whose parent directory belongs to its creator.
fn open_parents(dir: &Path) {
    for parent in dir.ancestors().skip(1) {
        let mode = fs::metadata(parent).unwrap().permissions().mode();
        assert_ne!(mode & 0o005, 0, "{} is not open to others", parent.display());
    }
}

#[test]
fn a_write_to_a_program_clears_its_set_id_bits() {
    require!(Root, Fuse, E2fsprogs);
    on_a_volume(|dir| {
        open_parents(dir);
        let file = dir.join("id");
        fs::copy("/usr/bin/id", &file).unwrap();
        chown(&file, Some(1000), Some(1000)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
        let lent = as_user(1001, "\"$1\" -u", &file);
        assert_eq!(lent.stdout, b"1000\n", "{lent:?}");
        assert!(as_user(1000, "printf x >> \"$1\"", &file).status.success());
        let run = as_user(1001, "\"$1\" -u", &file);
        assert_eq!(run.stdout, b"1001\n", "{run:?}");
    });
}

/// A command that Linux knows with another size, so that it does not check the permission.
fn ask(file: &File, command: u32, word: u32) -> rustix::io::Result<()> {
    let mut words = [0; 64];
    (words[0], words[3]) = (word, 7);
    ask_long(file, command, &mut words)
}

/// A command with up to 256 bytes in and out.
fn ask_long(file: &File, command: u32, words: &mut [u32; 64]) -> rustix::io::Result<()> {
    use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
    struct Raw<'a>(Opcode, &'a mut [u32; 64]);
    // SAFETY: the argument is 256 bytes, and no command here is declared with more.
    unsafe impl Ioctl for Raw<'_> {
        type Output = ();
        const IS_MUTATING: bool = true;
        fn opcode(&self) -> Opcode {
            self.0
        }
        fn as_ptr(&mut self) -> *mut std::ffi::c_void {
            self.1.as_mut_ptr().cast()
        }
        unsafe fn output_from_ptr(
            _: IoctlOutput,
            _: *mut std::ffi::c_void,
        ) -> rustix::io::Result<()> {
            Ok(())
        }
    }
    // SAFETY: as above.
    unsafe { ioctl(file, Raw(command as Opcode, words)) }
}

#[test]
fn flags_change_by_the_commands_that_linux_checks_alone() {
    require!(Root, Fuse, E2fsprogs);
    on_a_volume(|dir| {
        let path = dir.join("file");
        let file = File::create(&path).unwrap();
        // FS_IOC32_SETFLAGS, FS_IOC_SETFLAGS with both directions, FS_IOC_FSSETXATTR of 32 bytes.
        for command in [0x4004_6602, 0xC008_6602, 0x4020_5820] {
            let answer = ask(&file, command, 0x10);
            assert_eq!(answer, Err(rustix::io::Errno::NOTTY), "{command:x}");
        }
        let path = path.to_str().unwrap();
        run_args("chattr", &["+d", path]).unwrap().success().unwrap();
        // Its buffer has four bytes for a version that is declared with eight.
        let shown = run_args("lsattr", &["-v", path]).unwrap().success().unwrap();
        assert!(shown.out().contains("d---"), "{}", shown.out());
    });
}

/// As xfstests generic/683 (fallocate), 684 (punched holes) and 685 (zeroed ranges).
#[test]
fn space_that_another_user_changes_takes_both_set_ids_away() {
    require!(Root, Fuse, E2fsprogs);
    on_a_volume(|dir| {
        open_parents(dir);
        // The mode of fallocate, and the permission bits before and after it: with and without
        // execution by the group.
        for options in ["-o 0", "--punch-hole -o 0", "--zero-range -o 0"] {
            for (before, after) in [(0o6666, 0o666), (0o6777, 0o777)] {
                for (group, kept) in [(1000, 0), (1001, 0o2000)] {
                    let file = dir.join("file");
                    fs::write(&file, [1; 8192]).unwrap();
                    chown(&file, Some(1000), Some(group)).unwrap();
                    fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
                    let done = as_user(1001, &format!("fallocate {options} -l 4096 \"$1\""), &file);
                    assert!(done.status.success(), "{done:?}");
                    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
                    // A member of the group keeps set-group-ID where it does not mean execution.
                    let kept = if before & 0o010 == 0 { kept } else { 0 };
                    assert_eq!(
                        mode,
                        after | kept,
                        "{options}, {before:o}, group {group}: {mode:o}"
                    );
                    fs::remove_file(&file).unwrap();
                }
            }
        }
    });
}

/// As xfstests generic/079.
#[test]
fn an_append_only_file_is_touched_and_given_no_other_time() {
    require!(Root, Fuse, E2fsprogs);
    on_a_volume(|dir| {
        let file = dir.join("log");
        fs::write(&file, "line\n").unwrap();
        run_args("chattr", &["+a", file.to_str().unwrap()]).unwrap().success().unwrap();
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        run_args("touch", &[file.to_str().unwrap()]).unwrap().success().unwrap();
        assert!(fs::metadata(&file).unwrap().modified().unwrap() > before);
        for refused in [["-d", "2020-01-01"], ["-md", "2020-01-01"]] {
            let words = [refused[0], refused[1], file.to_str().unwrap()];
            assert!(!run_args("touch", &words).unwrap().ok(), "{refused:?}");
        }
        run_args("chattr", &["-a", file.to_str().unwrap()]).unwrap().success().unwrap();
    });
}

/// What `stat` shows of `path`, as the kernel has it (`DONT_SYNC`) or as the server says
/// (`FORCE_SYNC`).
fn attributes(path: &Path, from: AtFlags) -> [u64; 8] {
    let flags = from | AtFlags::SYMLINK_NOFOLLOW;
    let shown = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::BASIC_STATS).unwrap();
    let time = |at: rustix::fs::StatxTimestamp| {
        at.tv_sec.cast_unsigned() * 1_000_000_000 + u64::from(at.tv_nsec)
    };
    [
        shown.stx_ino,
        shown.stx_mode.into(),
        shown.stx_nlink.into(),
        (u64::from(shown.stx_uid) << 32) | u64::from(shown.stx_gid),
        shown.stx_size,
        shown.stx_blocks,
        time(shown.stx_mtime),
        time(shown.stx_ctime),
    ]
}

const COPY_RANGE: &str = "copy_file_range";

/// As xfstests generic/277, which changes flags by chattr, and by every other way to change
/// attributes.
#[test]
fn no_attribute_that_the_kernel_keeps_is_stale_after_a_change() {
    require!(Root, Fuse, E2fsprogs, Program("setfacl"), Program("setfattr"));
    on_a_volume(|dir| {
        let sh = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-euc", script]).current_dir(dir);
            run(&mut command, LIMIT).unwrap().success().unwrap();
        };
        sh(
            "head -c 100000 /dev/zero > file; cp file other; mkdir dir dir/sub away; ln file dir/second; touch dir/gone; \
            ln other away/hidden; mknod pipe p; ln -s file link",
        );
        for change in [
            "chattr +d file",
            "chattr -d file",
            "chattr +A dir",
            "lsattr -v file",
            "setfattr -n user.a -v b file",
            "setfattr -x user.a file",
            "setfacl -m u:7:rwx,m::rwx file",
            "setfacl -d -m u:7:rwx dir",
            "setfacl -b file",
            "chmod 640 file",
            "chown 5:6 other",
            "touch -d 2020-01-01 file",
            "ln file third",
            "rm third",
            "mv dir/second away/second",
            "mv away/second other",
            "rm away/hidden",
            "ln -sf elsewhere link",
            "mkdir dir/new",
            "rmdir dir/new",
            "mv dir/sub away/sub",
            "rm dir/gone",
            "echo more >> file",
            "echo x | dd of=file bs=1 seek=5 conv=notrunc status=none",
            "dd if=/dev/zero of=file bs=4096 count=2 oflag=direct conv=notrunc status=none",
            "truncate -s 70000 file",
            "fallocate -l 300000 file",
            "fallocate --keep-size -o 300000 -l 8192 file",
            "fallocate --punch-hole -o 4096 -l 4096 file",
            "fallocate --zero-range -o 8192 -l 4096 file",
            COPY_RANGE,
            "head -c 5000 /dev/urandom > file",
        ] {
            let all = ["file", "other", "dir", "away", "dir/sub", "pipe", "link", "."];
            let paths = all.map(|name| dir.join(name));
            let there = |path: &&PathBuf| path.symlink_metadata().is_ok();
            paths.iter().filter(there).for_each(|path| {
                let _ = attributes(path, AtFlags::empty());
            });
            if change == COPY_RANGE {
                let [from, to] = ["other", "file"].map(|name| {
                    File::options().read(true).write(true).open(dir.join(name)).unwrap()
                });
                let at = &mut 200_000;
                rustix::fs::copy_file_range(&from, Some(&mut 0), &to, Some(at), 50_000).unwrap();
            } else {
                sh(change);
            }
            for path in paths.iter().filter(there) {
                let kept = attributes(path, AtFlags::empty());
                let said = attributes(path, AtFlags::STATX_FORCE_SYNC);
                assert_eq!(kept, said, "{} after {change}", path.display());
            }
        }
    });
}

#[test]
fn what_takes_a_capability_takes_user_0() {
    require!(Root, Fuse, E2fsprogs);
    on_a_volume(|dir| {
        open_parents(dir);
        let file = dir.join("file");
        fs::write(&file, b"content").unwrap();
        chown(&file, Some(1000), Some(1000)).unwrap();
        // CAP_SYS_RESOURCE for setting and clearing the flag for journaled data.
        assert!(!as_user(1000, "chattr +j \"$1\"", &file).status.success());
        assert!(as_user(1000, "chattr +A \"$1\"", &file).status.success());
        assert!(as_user(0, "chattr +j \"$1\"", &file).status.success());
        assert!(!as_user(1000, "chattr -j \"$1\"", &file).status.success());
        // CAP_SYS_ADMIN.
        assert!(!as_user(1000, "fstrim \"$(dirname \"$1\")\"", &file).status.success());
        assert!(as_user(0, "fstrim \"$(dirname \"$1\")\"", &file).status.success());
        let opened = File::open(&file).unwrap();
        let label = |name: &[u8]| {
            let mut words = [0u32; 64];
            for (n, byte) in name.iter().enumerate() {
                words[n / 4] |= u32::from(*byte) << (8 * (n % 4));
            }
            words
        };
        // FS_IOC_SETFSLABEL, FS_IOC_GETFSLABEL; more than 16 bytes are refused.
        ask_long(&opened, 0x4100_9432, &mut label(b"backups")).unwrap();
        let long = ask_long(&opened, 0x4100_9432, &mut label(b"seventeen letters"));
        assert_eq!(long, Err(rustix::io::Errno::INVAL));
        let mut shown = [0u32; 64];
        ask_long(&opened, 0x8100_9431, &mut shown).unwrap();
        assert_eq!(shown, label(b"backups"));
        // FS_IOC_SETVERSION: refused with checksums of metadata, as by Linux. Also an unknown
        // command.
        for command in [0x4008_7602, 0x4008_6604, 0xC018_58FF] {
            let answer = ask_long(&opened, command, &mut label(b"1"));
            assert_eq!(answer, Err(rustix::io::Errno::NOTTY), "{command:x}");
        }
    });
}

#[test]
fn a_volume_that_is_shut_down_keeps_what_was_written_and_takes_no_more() {
    require!(Root, Fuse, E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("volume.img");
    mke2fs(&image, 64 << 20, "-t ext4 -O ^metadata_csum", None).unwrap();
    let mount = FuseMount::new(&image, "").unwrap();
    let path = mount.path().join("file");
    fs::write(&path, b"content").unwrap();
    let file = File::open(&path).unwrap();
    // FS_IOC_SETVERSION, FS_IOC_GETVERSION.
    ask_long(&file, 0x4008_7602, &mut [77; 64]).unwrap();
    let mut shown = [0; 64];
    ask_long(&file, 0x8008_7601, &mut shown).unwrap();
    assert_eq!(shown[0], 77);
    // EXT4_IOC_SHUTDOWN.
    ask_long(&file, 0x8004_587D, &mut [0; 64]).unwrap();
    assert!(fs::write(mount.path().join("other"), b"").is_err());
    assert_eq!(fs::read(&path).unwrap(), b"content");
    drop(file);
    mount.kill().unwrap();
    // Whatever happened to the server: what was written is there.
    let mount = FuseMount::new(&image, "").unwrap();
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"content");
    mount.unmount().unwrap();
    e2fsck(&image, None).expect_clean().unwrap();
}
