//! The server is killed under several writers: what was acknowledged as synced is there again.
//!
//! ```text
//!   writers (processes) ──► the mount ── SIGKILL ──► remount ──► each file is as synced, or as
//!      └──► "about to", "synced" ──► a log outside ─────────────┘   something tried since
//! ```

use extant_mount_tests::served::{Served, a_moment, by_linux, effort, moments, ok};
use extant_mount_tests::writers::{self, WRITERS};
use extant_testkit::command::Finished;
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::extant::Extant;
use extant_testkit::fuse_mount::FuseMount;
use extant_testkit::qemu::{self, Qemu};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use rustix::fs::{FallocateFlags, Mode, OFlags, copy_file_range, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROUNDS: usize = 5;

fn start_writer(served: &Served, n: usize, seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", "one_writer"]);
    command.env("EXTANT_WRITER_DIR", writers::dir_of(served.dir(), n));
    command.env("EXTANT_WRITER_LOG", writers::log_of(&served.outside(""), n));
    command.env("EXTANT_WRITER_SEED", seed.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
#[ignore = "a process of the other tests"]
fn one_writer() {
    let of = |name: &str| std::env::var(format!("EXTANT_WRITER_{name}"));
    let (Ok(dir), Ok(log)) = (of("DIR"), of("LOG")) else { return };
    let seed = of("SEED").unwrap().parse().unwrap();
    writers::work(PathBuf::from(dir), &PathBuf::from(log), seed);
}

#[test]
fn what_was_synced_outlives_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs);
    if by_linux() {
        return println!("NOT RUN: Linux' own ext4 cannot be killed");
    }
    let mut rng = moments(30);
    // A volume for each run, because the files grow.
    for _ in 0..effort() {
        kills_on_a_volume(&mut rng, Served::new(256, ""));
    }
}

#[test]
fn what_was_synced_to_the_byte_log_outlives_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs);
    if by_linux() || !cfg!(target_arch = "x86_64") {
        return println!("NOT RUN: there is no byte log");
    }
    let mut rng = moments(31);
    for _ in 0..effort() {
        let served = Served::with_options(256, "-O fast_commit", "dax_fc_bytelog=force,dax=always");
        kills_on_a_volume(&mut rng, served);
    }
}

#[test]
fn what_was_synced_with_data_csum_outlives_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs);
    if by_linux() {
        return println!("NOT RUN: Linux writes to no volume with sums");
    }
    let mut rng = moments(32);
    for _ in 0..effort() {
        kills_on_a_volume(&mut rng, Served::new(256, "-O data_csum"));
    }
}

fn kills_on_a_volume(rng: &mut Rng, mut served: Served) {
    let logs = served.outside("");
    writers::prepare(served.dir(), &logs).unwrap();
    for round in 0..ROUNDS {
        let writers: Vec<Child> =
            (0..WRITERS).map(|n| start_writer(&served, n, rng.next_u64())).collect();
        a_moment(rng, 100, 1500);
        served.kill();
        for writer in writers {
            let done = writer.wait_with_output().unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        served.mount();
        if rng.below(3) == 0 {
            served.kill();
            served.mount();
        }
        for n in 0..WRITERS {
            let (tried, synced) = writers::progress(&writers::log_of(&logs, n));
            println!("round {round}, writer {n}: {tried} steps, {synced} synced");
            writers::judge(served.dir(), &logs, n);
        }
        // Otherwise the next kill would hit a log that begins with a recovery.
        if rng.below(2) == 0 {
            served.unmount();
            served.mount();
        }
    }
    served.finish();
}

/// `copy_file_range` and `fallocate` through an opening with O_SYNC: no request for a sync follows
/// them.
#[test]
fn space_and_copies_of_a_synchronous_opening_outlive_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs);
    if by_linux() {
        return println!("NOT RUN: Linux' own ext4 cannot be killed");
    }
    for sync in [OFlags::DSYNC, OFlags::SYNC] {
        let mut served = Served::new(64, "");
        let source = vec![7; 300_000];
        fs::write(served.dir().join("source"), &source).unwrap();
        for name in ["copy", "punched", "given"] {
            fs::write(served.dir().join(name), vec![1; 65_536]).unwrap();
            File::open(served.dir().join(name)).unwrap().sync_all().unwrap();
        }
        File::open(served.dir()).unwrap().sync_all().unwrap();
        let from = File::open(served.dir().join("source")).unwrap();
        let open = |name: &str| {
            rustix::fs::open(served.dir().join(name), OFlags::RDWR | sync, Mode::empty()).unwrap()
        };
        let (copy, punched, given) = (open("copy"), open("punched"), open("given"));
        let mut at = (0, 0);
        while at.0 < source.len() as u64 {
            let left = source.len() - at.0 as usize;
            let (from_at, to_at) = (&mut at.0, &mut at.1);
            copy_file_range(&from, Some(from_at), &copy, Some(to_at), left).unwrap();
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&punched, punch, 4096, 8192).unwrap();
        fallocate(&given, FallocateFlags::empty(), 0, 200_000).unwrap();
        served.kill();
        drop((from, copy, punched, given));
        served.mount();
        let read = |name: &str| fs::read(served.dir().join(name)).unwrap();
        assert!(read("copy") == source, "{sync:?}: the copy is lost");
        let holes = [vec![1; 4096], vec![0; 8192], vec![1; 65_536 - 12_288]].concat();
        assert!(read("punched") == holes, "{sync:?}: the hole is lost");
        assert_eq!(read("given").len(), 200_000, "{sync:?}: the space is lost");
        served.finish();
    }
}

/// Writes that bypass the kernel's cache: the kernel requests no sync after them, whatever the
/// flags of the opening are.
#[test]
fn synchronous_writes_past_the_kernels_cache_outlive_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs);
    if by_linux() {
        return println!("NOT RUN: Linux' own ext4 cannot be killed");
    }
    for sync in [OFlags::DSYNC, OFlags::SYNC] {
        let mut served = Served::with_options(64, "", "strictatime");
        let flags = OFlags::CREATE | OFlags::WRONLY | sync;
        let path = served.dir().join("file");
        let file = File::from(rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).unwrap());
        file.write_all_at(&[7; 300_000], 0).unwrap();
        served.kill();
        drop(file);
        served.mount();
        let content = fs::read(served.dir().join("file")).unwrap_or_default();
        assert!(content == [7; 300_000], "{sync:?}: {} bytes of the file", content.len());
        served.finish();
    }
}

/// Changes that `chattr +S` and `+D` require to be durable at their return: no request for a sync
/// follows them.
#[test]
fn what_flags_of_files_make_synchronous_outlives_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("chattr"));
    if by_linux() {
        return println!("NOT RUN: Linux' own ext4 cannot be killed");
    }
    for options in ["", "writeback_cache"] {
        let mut served = Served::with_options(64, "", options);
        let path = |name: &str| served.dir().join(name);
        fs::write(path("file"), "old").unwrap();
        fs::create_dir(path("dir")).unwrap();
        served.sh("chattr +S file; chattr +D dir");
        fs::write(path("file"), vec![7; 300_000]).unwrap();
        fs::write(path("dir/new"), "").unwrap();
        served.kill();
        served.mount();
        let content = fs::read(served.dir().join("file")).unwrap();
        assert!(content == [7; 300_000], "{options}: {} bytes of the file", content.len());
        assert!(served.dir().join("dir/new").exists(), "{options}: the name is lost");
        served.finish();
    }
}

/// Changes of names on a mount with `dirsync`: no request for a sync follows them. The content of
/// files is not synced.
#[test]
fn names_of_a_dirsync_mount_outlive_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs);
    if by_linux() {
        return println!("NOT RUN: Linux' own ext4 cannot be killed");
    }
    for mkfs in ["", "-O fast_commit"] {
        let mut served = Served::with_options(64, mkfs, "dirsync");
        let path = |served: &Served, name: &str| served.dir().join(name);
        let kill = |served: &mut Served| {
            served.kill();
            served.mount();
        };
        fs::create_dir(path(&served, "dir")).unwrap();
        for name in ["old", "from"] {
            File::create(path(&served, name)).unwrap();
        }
        fs::hard_link(path(&served, "old"), path(&served, "dir/link")).unwrap();
        std::os::unix::fs::symlink("old", path(&served, "symlink")).unwrap();
        kill(&mut served);
        for name in ["old", "from", "dir/link"] {
            assert!(path(&served, name).exists(), "{mkfs}: {name} is lost");
        }
        assert!(path(&served, "symlink").is_symlink(), "{mkfs}: the symlink is lost");
        fs::rename(path(&served, "from"), path(&served, "dir/to")).unwrap();
        kill(&mut served);
        assert!(path(&served, "dir/to").exists() && !path(&served, "from").exists(), "{mkfs}");
        for name in ["old", "dir/link", "dir/to"] {
            fs::remove_file(path(&served, name)).unwrap();
        }
        fs::remove_dir(path(&served, "dir")).unwrap();
        kill(&mut served);
        for name in ["old", "dir"] {
            assert!(!path(&served, name).exists(), "{mkfs}: {name} is there again");
        }
        served.finish();
    }
}

/// One sync after many files were written and closed, as git does with `core.fsyncMethod=batch`:
/// all of them are durable.
#[test]
fn files_that_were_closed_before_a_sync_outlive_the_server() {
    require!(Root, Fuse, Loop, E2fsprogs);
    if by_linux() {
        return println!("NOT RUN: Linux' own ext4 cannot be killed");
    }
    let kinds = [
        ("", ""),
        ("-O fast_commit", ""),
        ("-O fast_commit", "writeback_cache"),
        ("-O data_csum", ""),
        ("--layout raid0", ""),
        ("--layout raid1", ""),
        #[cfg(target_arch = "x86_64")]
        ("-O fast_commit,data_csum", "dax_fc_bytelog=force,dax=always"),
    ];
    for (mkfs, options) in kinds {
        let mut served = Served::with_options(64, mkfs, options);
        let content = |n: usize| vec![n as u8 + 1; n * 3_000 + 1];
        for n in 0..20 {
            fs::write(served.dir().join(format!("object{n}")), content(n)).unwrap();
        }
        let last = File::create(served.dir().join("last")).unwrap();
        last.sync_all().unwrap();
        served.kill();
        drop(last);
        served.mount();
        for n in 0..20 {
            let read = fs::read(served.dir().join(format!("object{n}"))).unwrap_or_default();
            assert!(read == content(n), "{mkfs} {options}: object{n} has {} bytes", read.len());
        }
        served.finish();
    }
}

/// Script of one guest: `$FIRST` makes the volumes; then writers work on a mount whose byte log is
/// on persistent memory.
const GUEST: &str = r#"
set -e
for module in nd_e820 nd_pmem ext4 fuse; do modprobe $MODULES $module; done
mkdir /mnt/dax /mnt/volume
if [ "$FIRST" = 1 ]; then mke2fs -q -t ext4 -b 4096 /dev/pmem0; fi
mount -t ext4 -o dax=always /dev/pmem0 /mnt/dax
if [ "$FIRST" = 1 ]; then
    truncate -s 200M /mnt/dax/volume.img
    $EXTANT mkfs --quiet -O fast_commit /mnt/dax/volume.img
fi
$EXTANT mount -o dax_fc_bytelog=force /mnt/dax/volume.img /mnt/volume
if [ "$FIRST" = 1 ]; then
    mkdir /mnt/volume/shared
    for n in 0 1 2 3; do mkdir /mnt/volume/w$n; : > /mnt/work/w$n.log; done
    sync -f /mnt/volume
fi
for n in 0 1 2 3; do
    EXTANT_WRITER_DIR=/mnt/volume/w$n EXTANT_WRITER_LOG=/mnt/work/w$n.log EXTANT_WRITER_SEED=$SEED$n \
        "$WRITER" --exact --ignored --nocapture one_writer > /mnt/work/w$n.out 2>&1 &
done
echo > /mnt/work/working
wait
"#;

/// What the mount in a guest prints if its byte log is on persistent memory.
const DURABLE: &str = "fsync stores into the byte log (clwb): survives a power cut";

/// Power cuts of a guest whose byte log is on persistent memory: `EXTANT_ROUNDS` of them, 3 unless
/// it is set.
///
/// Each round ends a guest at a random moment, takes its memory, and recovers on this machine.
/// extant replays the outer volume, which Linux was using with DAX, takes the image out of it and
/// mounts it, and the writers' logs say what must be there. The recovered image goes back into the
/// memory, and the next guest continues with it.
#[test]
#[ignore = "runs machines in an emulator: make guest"]
fn what_was_synced_to_the_byte_log_outlives_the_power() {
    require!(Root, Fuse, E2fsprogs);
    let rounds = std::env::var("EXTANT_ROUNDS").map_or(3, |text| text.parse().expect("a number"));
    let qemu = ok(Qemu::get());
    let extant = ok(Extant::get());
    let mut rng = moments(33);
    let scratch = Scratch::new();
    // The guest has a /dev of its own, so the shared directory is elsewhere.
    let shared = tempfile::Builder::new().prefix("extant-guest.").tempdir().unwrap();
    let memory = scratch.file("memory");
    let (mut tried, mut synced) = (0, 0);
    for round in 0..rounds {
        // A long session makes large files, and large files make the check slow.
        let first = round % 20 == 0;
        let script = format!(
            "FIRST={} SEED={} EXTANT='{}' WRITER='{}'\n{GUEST}",
            u8::from(first),
            rng.below(1 << 20),
            extant.bin().display(),
            std::env::current_exe().unwrap().display()
        );
        let _ = fs::remove_file(shared.path().join("working"));
        let mut guest = ok(qemu.start(&script, shared.path(), &memory));
        ok(guest.wait_for("working", Duration::from_secs(180)));
        a_moment(&mut rng, 500, 8000);
        guest.kill();
        let (outer, inner) = (scratch.file("outer.img"), scratch.file("inner.img"));
        ok(qemu::take_pmem(&memory, &outer));
        let run = |args: &[&str]| ok(extant.run(args).and_then(Finished::success));
        run(&["replay", outer.to_str().unwrap()]);
        ok(e2fsck(&outer, None).expect_clean());
        let _ = fs::remove_file(&inner);
        run(&["get", outer.to_str().unwrap(), "/volume.img", inner.to_str().unwrap()]);
        let noted = fs::read_to_string(shared.path().join("output")).unwrap();
        assert!(noted.contains(DURABLE), "{noted}");
        let mount = ok(FuseMount::new(&inner, ""));
        for n in 0..WRITERS {
            let of = writers::progress(&writers::log_of(shared.path(), n));
            (tried, synced) = (tried + of.0, synced + of.1);
            writers::judge(mount.path(), shared.path(), n);
        }
        ok(mount.unmount());
        ok(e2fsck(&inner, None).expect_clean());
        // Both copies do not fit at the same time.
        run(&["rm", outer.to_str().unwrap(), "/volume.img"]);
        run(&["put", outer.to_str().unwrap(), inner.to_str().unwrap(), "/volume.img"]);
        ok(qemu::put_pmem(&outer, &memory));
        println!("round {round}: {tried} steps, {synced} synced, nothing lost");
    }
}

/// Script of a guest that measures: every volume is a file on one DAX volume.
const FIGURES: &str = r#"
set -e
for module in nd_e820 nd_pmem ext4 loop; do modprobe $MODULES $module; done
mkdir /mnt/dax
mke2fs -q -t ext4 -b 4096 /dev/pmem0
mount -t ext4 -o dax=always /dev/pmem0 /mnt/dax
"$BENCH" fsync --scratch /mnt/dax --store tmpfs --threads 1 --rounds 3 --millis 1000 \
    --only extant-full-commit --only extant-fast-commit --only extant-byte-log --only kernel-ext4-fast-commit
"#;

/// Prints the cost of an fsync on a guest's persistent memory, by `extant-bench` at `EXTANT_BENCH`.
///
/// The processor is emulated, so only ratios mean something, and little: stores and kernel code
/// slow down by different factors.
#[test]
#[ignore = "runs a machine in an emulator: make guest"]
fn figures_of_the_byte_log_on_persistent_memory() {
    require!(Root);
    let Some(bench) = std::env::var_os("EXTANT_BENCH") else {
        return println!("NOT RUN: EXTANT_BENCH names no extant-bench");
    };
    let scratch = Scratch::new();
    let shared = tempfile::Builder::new().prefix("extant-guest.").tempdir().unwrap();
    let script = format!("BENCH='{}'\n{FIGURES}", PathBuf::from(bench).display());
    let mut guest = ok(ok(Qemu::get()).start(&script, shared.path(), &scratch.file("memory")));
    ok(guest.wait_for("exit", Duration::from_secs(600)));
    let text = |name| fs::read_to_string(shared.path().join(name)).unwrap();
    println!("emulated processor, memory of the guest as the device\n{}", text("output"));
    assert_eq!(text("exit").trim(), "0");
}
