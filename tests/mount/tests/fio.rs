//! fio's own verification of every block that it wrote, with each way to read and write.
//!
//! ```text
//!   engine × access × block size × page cache or not, two parallel jobs ──► crc32c of each block
//! ```

use extant_mount_tests::raw::{self, AsyncWrites};
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

/// The jobs of one engine: each combination is a job of its own, after the one before it.
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
                // Each access runs with one size in each mode, with all of them in a long run.
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

/// Whether this machine has `engine`.
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
    // Something must remain to compare: a file with holes between what was written.
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
fn blocks_with_data_csum_are_read_back() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("fio"));
    if by_linux() {
        return println!("NOT RUN: Linux writes to no volume with sums");
    }
    let plan = Plan { engine: "io_uring", extra: "iodepth=8\nfdatasync=64", direct: &[0, 1] };
    verified(&plan, "-O data_csum");
}

/// Buffered readers beside one writer that bypasses the kernel's cache by asynchronous direct
/// writes. When all have ended, the mount shows what was written last, and so does every reader
/// that starts then. As xfstests generic/451.
#[test]
fn no_stale_page_stays_after_an_asynchronous_direct_write() {
    require!(Root, Fuse, Loop, E2fsprogs);
    const BYTES: usize = 256 << 10;
    let served = Served::new(64, "");
    let path = served.dir().join("file");
    fs::write(&path, vec![0; BYTES]).unwrap();
    // Memory aligned to a page, as direct writes require it.
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

/// Threads change one file in every way that bypasses the kernel's cache or uses it, while others
/// read it. When they have ended, the kernel's cache has what the server has. A direct read comes
/// from the server.
#[test]
fn every_way_to_change_a_file_shows_in_every_way_to_read_it() {
    require!(Root, Fuse, Loop, E2fsprogs);
    const BYTES: u64 = 1 << 20;
    const MODES: [i32; 3] = [
        libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
        0,
    ];
    for (mkfs, options) in
        [("", ""), ("-O data_csum", ""), ("", "dontcache"), ("", "writeback_cache")]
    {
        if by_linux() && !(mkfs.is_empty() && options.is_empty()) {
            continue;
        }
        let served = Served::with_options(64, mkfs, options);
        let path = served.dir().join("file");
        let whole = vec![1; BYTES as usize];
        fs::write(&path, &whole).unwrap();
        let other = served.dir().join("other");
        fs::write(&other, &whole).unwrap();
        let buffered = File::options().read(true).write(true).open(&path).unwrap();
        let open_direct = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap()
        };
        for round in 0..effort() * 6 {
            thread::scope(|threads| {
                for worker in 0..6u64 {
                    let (buffered, direct, path, other) = (&buffered, open_direct(), &path, &other);
                    threads.spawn(move || {
                        let mut seed = round as u64 * 64 + worker + 1;
                        let mut next = |below: u64| {
                            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            (seed >> 33) % below
                        };
                        let mut page = vec![0u8; 3 * 4096];
                        let skip = page.as_ptr().align_offset(4096);
                        for _ in 0..60 {
                            let at = next(BYTES / 4096 - 1) * 4096;
                            let fill = next(256) as u8;
                            match worker {
                                0 | 1 => drop(buffered.read_at(&mut page[..8192], at)),
                                2 => {
                                    page.fill(fill);
                                    buffered
                                        .write_all_at(&page[..1 + next(5000) as usize], at)
                                        .unwrap();
                                }
                                3 => {
                                    page.fill(fill);
                                    direct.write_all_at(&page[skip..skip + 4096], at).unwrap();
                                }
                                4 => {
                                    let (from, into) =
                                        (File::open(other).unwrap(), &mut (at + next(4096)));
                                    let len = next(9000) as usize;
                                    rustix::fs::copy_file_range(
                                        &from,
                                        Some(&mut 7),
                                        buffered,
                                        Some(into),
                                        len,
                                    )
                                    .unwrap();
                                }
                                _ if next(8) == 0 => {
                                    let file = File::options().write(true).open(path).unwrap();
                                    file.set_len(at).unwrap();
                                    file.set_len(BYTES).unwrap();
                                }
                                _ => {
                                    let (at, len) =
                                        (at as i64 + next(4000) as i64, 1 + next(9000) as i64);
                                    raw::fallocate(buffered, MODES[next(3) as usize], at, len)
                                        .unwrap();
                                }
                            }
                        }
                    });
                }
            });
            let shown = fs::read(&path).unwrap();
            let mut kept = vec![0u8; shown.len() + 8192];
            let skip = kept.as_ptr().align_offset(4096);
            let len = shown.len().next_multiple_of(4096);
            let read = open_direct().read_at(&mut kept[skip..skip + len], 0).unwrap();
            assert_eq!(read, shown.len());
            let differs = shown.iter().zip(&kept[skip..]).position(|(shown, kept)| shown != kept);
            assert_eq!(
                differs, None,
                "{mkfs} {options}, round {round}: the page at this byte is stale"
            );
        }
        drop(buffered);
        served.finish();
    }
}
