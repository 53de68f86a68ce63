//! fio's own verification of every block it wrote, with each way to read and write there is.
//!
//! ```text
//!   engine × access × block size × page cache or not, two jobs side by side ──► crc32c of each block
//! ```

use extant_mount_tests::raw::AsyncWrites;
use extant_mount_tests::served::{LIMIT, Served, by_linux, effort};
use extant_testkit::command::run_in;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Bytes of each job's file.
const SIZE_MIB: usize = 6;

/// What one engine is asked for: each combination is a job of its own, after the one before it.
struct Plan {
    engine: &'static str,
    /// Lines for every job.
    extra: &'static str,
    direct: &'static [u8],
}

const ACCESSES: [&str; 4] = ["rw", "randrw", "write", "randwrite"];
const SIZES: [&str; 4] = ["4k", "32k", "256k", "1m"];

impl Plan {
    fn jobs(&self) -> String {
        let mut text = format!(
            "[global]\nioengine={}\nsize={SIZE_MIB}m\nverify=crc32c\nverify_fatal=1\ndo_verify=1\n\
             serialize_overlap=0\nnumjobs=2\nfallocate=none\nunlink=1\nrandseed=1\n{}\n",
            self.engine, self.extra
        );
        for (at, &direct) in self.direct.iter().enumerate() {
            for (n, access) in ACCESSES.into_iter().enumerate() {
                // Each access meets one size in each mode, all of them in a long run.
                let sizes = if effort() > 1 { 4 } else { 1 };
                for size in (0..sizes).map(|more| SIZES[(n + 2 * at + more) % 4]) {
                    writeln!(
                        text,
                        "[{access}-{size}-direct{direct}]\nstonewall\nrw={access}\nbs={size}\n\
                         direct={direct}"
                    )
                    .unwrap();
                }
            }
        }
        text
    }
}

/// Does this machine have `engine` at all?
fn has(engine: &str) -> bool {
    let scratch = Scratch::new();
    let script = format!("fio --name=probe --ioengine={engine} --size=64k --rw=write");
    run_in(scratch.path(), &script, LIMIT).is_ok_and(|done| done.ok())
}

fn verified(plan: &Plan, mkfs: &str) {
    if !has(plan.engine) {
        return println!("NOT RUN: fio cannot use {} here", plan.engine);
    }
    let served = Served::new(256, mkfs);
    std::fs::write(served.outside("jobs"), plan.jobs()).unwrap();
    served.sh("fio --minimal $OUT/jobs > $OUT/said 2>&1 || { grep -v '^3;' $OUT/said | tail -n 12; exit 1; }");
    // Something is left to compare: a file with holes between what was written.
    served
        .sh("fio --minimal --name=left --rw=randwrite --bs=4k --size=8m --io_size=2m --fsync=32 \
         --verify=crc32c --do_verify=1 --verify_fatal=1 --ioengine=psync > /dev/null");
    served.finish();
}

#[test]
fn blocks_written_by_psync_are_read_back() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("fio"));
    verified(&Plan { engine: "psync", extra: "fdatasync=64", direct: &[0, 1] }, "");
}

#[test]
fn blocks_written_by_libaio_are_read_back() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("fio"));
    verified(&Plan { engine: "libaio", extra: "iodepth=8", direct: &[0, 1] }, "");
}

#[test]
fn blocks_written_by_io_uring_are_read_back() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("fio"));
    verified(&Plan { engine: "io_uring", extra: "iodepth=8", direct: &[0, 1] }, "");
}

#[test]
fn blocks_written_through_maps_are_read_back() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("fio"));
    verified(&Plan { engine: "mmap", extra: "", direct: &[0] }, "");
}

#[test]
fn blocks_with_sums_are_read_back() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("fio"));
    if by_linux() {
        return println!("NOT RUN: Linux writes to no volume with sums");
    }
    let plan = Plan { engine: "io_uring", extra: "iodepth=8\nfdatasync=64", direct: &[0, 1] };
    verified(&plan, "-O data_csum");
}

/// Buffered readers beside one writer that passes the kernel's cache by asynchronous direct writes: when all have ended,
/// the mount shows what was written last, and so does every reader that begins then.
#[test]
fn no_stale_page_stays_behind_an_asynchronous_direct_write() {
    require!(Root, Fuse, Loop, E2fsprogs);
    const BYTES: usize = 256 << 10;
    let served = Served::new(64, "");
    let path = served.dir().join("file");
    fs::write(&path, vec![0; BYTES]).unwrap();
    // Memory at a page's border, as direct writes want it.
    let memory = vec![0u8; BYTES + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    let done = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let file = File::open(&path).unwrap();
                let mut page = vec![0; 4096];
                while !done.load(Ordering::Relaxed) {
                    for at in (0..BYTES).step_by(4096) {
                        file.read_exact_at(&mut page, at as u64).unwrap();
                    }
                }
            });
        }
        let mut memory = memory;
        let direct =
            OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let writes = AsyncWrites::new().unwrap();
        for round in 1..=400u32 {
            let bytes = &mut memory[skip..skip + BYTES];
            bytes.fill(round as u8);
            for at in (0..BYTES).step_by(64 << 10) {
                let part = &bytes[at..at + (64 << 10)];
                assert_eq!(writes.write(&direct, part, at as u64), Ok(64 << 10));
            }
            if round % 40 == 0 {
                let shown = fs::read(&path).unwrap();
                let stale = shown.iter().position(|byte| *byte != round as u8);
                if stale.is_some() {
                    done.store(true, Ordering::Relaxed);
                }
                assert_eq!(stale, None, "round {round}: an old byte is shown");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    served.finish();
}
