//! A volume that programs work on, judged when they are done.
//!
//! ```text
//!   mke2fs ──► extant mount ──► programs ──► what the mount shows ─────────────────┐
//!                  ▲     └─ kill ─┐   └────► unmount ──► e2fsck -fn: clean         ├─► equal
//!                  └── remount ◄──┘                └───► Linux, read-only: shows ──┘
//! ```
//!
//! `EXTANT_MOUNT=linux` puts Linux' own ext4 in extant's place: what fails there, too, is the test's
//! fault. What kills the server does not run there. `EXTANT_MKFS=WORDS` makes volumes with these words, too:
//! `-O data_csum` gives all of them sums of data.

use extant_testkit::command::{Finished, run, run_in};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::extant::Extant;
use extant_testkit::fuse_mount::FuseMount;
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Time that a program gets unless told otherwise.
pub const LIMIT: Duration = Duration::from_secs(120);
/// What programs get beyond their limit before the server is ended: a call that nobody answers
/// cannot be ended in another way.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Mounted {
    Extant(FuseMount),
    Linux(LoopMount),
}

/// A volume of its own, mounted, with a scratch directory beside it.
#[derive(Debug)]
pub struct Served {
    // Before the directory that holds its image: fields go in this order.
    mounted: Option<Mounted>,
    scratch: Scratch,
    options: String,
}

/// Is Linux' own ext4 what programs meet (`EXTANT_MOUNT=linux`)?
pub fn by_linux() -> bool {
    std::env::var_os("EXTANT_MOUNT").is_some_and(|name| name == "linux")
}

/// How many times as much to do: 1, or the number in `EXTANT_SOAK`.
pub fn effort() -> usize {
    std::env::var("EXTANT_SOAK").map_or(1, |text| text.parse().unwrap_or(8).max(1))
}

/// The random moments of one test: those of `EXTANT_SEED`, or always the same.
pub fn moments(salt: u64) -> Rng {
    let seed = std::env::var("EXTANT_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let seed = seed.unwrap_or(1);
    println!("EXTANT_SEED={seed}");
    Rng::new(seed.wrapping_add(salt << 32))
}

/// Waits between `from_ms` and `to_ms` milliseconds.
pub fn a_moment(rng: &mut Rng, from_ms: usize, to_ms: usize) {
    std::thread::sleep(Duration::from_millis((from_ms + rng.below(to_ms - from_ms)) as u64));
}

/// What `done` is, or a panic with what it said.
#[track_caller]
pub fn ok<T>(done: Result<T, String>) -> T {
    done.unwrap_or_else(|said| panic!("{said}"))
}

impl Served {
    /// A fresh ext4 of `mib` MiB made with `mkfs` (words for mke2fs, or for `extant mkfs` where it alone knows a
    /// feature), mounted.
    #[track_caller]
    pub fn new(mib: u64, mkfs: &str) -> Self {
        Self::with_options(mib, mkfs, "")
    }

    /// The same, mounted with `options`.
    #[track_caller]
    pub fn with_options(mib: u64, mkfs: &str, options: &str) -> Self {
        let scratch = Scratch::new();
        let more = std::env::var("EXTANT_MKFS").unwrap_or_default();
        ok(made(&scratch.file("volume.img"), mib << 20, &format!("{mkfs} {more}")));
        let mut served = Self { mounted: None, scratch, options: options.to_owned() };
        served.mount();
        served
    }

    /// Mounts what [`unmount`](Self::unmount) or [`kill`](Self::kill) left; a crash is recovered from.
    #[track_caller]
    pub fn mount(&mut self) {
        assert!(self.mounted.is_none(), "it is mounted");
        self.mounted = Some(match by_linux() {
            true => Mounted::Linux(ok(LoopMount::rw(&self.image(), &self.options))),
            false => Mounted::Extant(ok(FuseMount::new(&self.image(), &self.options))),
        });
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.scratch.file("volume.img")
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        match self.mounted.as_ref().expect("it is not mounted") {
            Mounted::Extant(mount) => mount.path(),
            Mounted::Linux(mount) => mount.path(),
        }
    }

    /// The path `name` outside the volume; it goes with the volume.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// What the server noted, and how it ended, if it did.
    fn log(&self) -> String {
        let Some(Mounted::Extant(mount)) = &self.mounted else { return String::new() };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let ended = self.server().and_then(|pid| waitid(WaitId::Pid(pid), look).ok().flatten());
        let ended = ended.map(|status| match status.terminating_signal() {
            Some(signal) => format!("it was ended by signal {signal}; "),
            None => format!("it exited with {:?}; ", status.exit_status()),
        });
        ended.unwrap_or_default() + &mount.log()
    }

    /// Runs a script of `sh -e` at the volume's root; `$OUT` is the directory outside. Panics when
    /// it fails, and with what the server noted.
    #[track_caller]
    pub fn sh(&self, script: &str) -> Finished {
        let done = self.try_sh(script, LIMIT);
        if !done.ok() {
            panic!("{done}\n  the server: {}", self.log());
        }
        done
    }

    /// The same within `limit`; how it ended is for the caller to judge, unless time was up.
    #[track_caller]
    pub fn try_sh(&self, script: &str, limit: Duration) -> Finished {
        let out = self.scratch.path().display();
        let script = format!("OUT='{out}'\n{script}");
        let done = ok(self.watched(limit, || run_in(self.dir(), &script, limit)));
        assert!(!done.timed_out, "{done}\n  the server: {}", self.log());
        done
    }

    /// Runs `command` within `limit`.
    #[track_caller]
    pub fn run(&self, command: &mut Command, limit: Duration) -> Finished {
        let done = ok(self.watched(limit, || run(command, limit)));
        assert!(!done.timed_out, "{done}\n  the server: {}", self.log());
        done
    }

    /// Does `work`, and ends the server when that takes longer than `limit` and some grace.
    pub fn watched<T>(&self, limit: Duration, work: impl FnOnce() -> T) -> T {
        let server = self.server();
        std::thread::scope(|threads| {
            let (done, wait) = channel::<()>();
            threads.spawn(move || {
                let late = wait.recv_timeout(limit + GRACE) == Err(RecvTimeoutError::Timeout);
                if let (true, Some(server)) = (late, server) {
                    eprintln!("no end after {limit:?}: the server is killed");
                    // An error means that it has just ended by itself.
                    let _ = kill_process(server, Signal::KILL);
                }
            });
            let answer = work();
            drop(done);
            answer
        })
    }

    fn server(&self) -> Option<Pid> {
        match &self.mounted {
            Some(Mounted::Extant(mount)) => mount.pid().and_then(|pid| Pid::from_raw(pid as i32)),
            _ => None,
        }
    }

    /// Ends the server at once, under whoever uses the volume.
    #[track_caller]
    pub fn kill(&mut self) {
        match self.mounted.take() {
            Some(Mounted::Extant(mount)) => ok(mount.kill()),
            _ => panic!("only extant can be killed"),
        }
    }

    /// Unmounts, and `e2fsck -fn` finds nothing.
    #[track_caller]
    pub fn unmount(&mut self) {
        match self.mounted.take().expect("it is not mounted") {
            Mounted::Extant(mount) => ok(mount.unmount()),
            Mounted::Linux(mount) => ok(mount.unmount()),
        }
        ok(e2fsck(&self.image(), None).expect_clean());
    }

    /// All that the mount shows.
    #[track_caller]
    pub fn manifest(&self) -> Manifest {
        let manifest = ok(self.watched(LIMIT, || Manifest::walk(self.dir())));
        without_reading(manifest)
    }

    /// The end: unmounts, e2fsck finds nothing, and Linux shows what the mount showed.
    #[track_caller]
    pub fn finish(mut self) {
        let shown = self.manifest();
        for entry in shown.entries.values() {
            assert_eq!(entry.error, None, "{}", entry.path);
        }
        self.unmount();
        let mount = ok(LoopMount::ro(&self.image(), ""));
        let linux = without_reading(ok(Manifest::walk(mount.path())));
        // What was not written back yet takes no space yet.
        let look = Look { blocks: false, ..Look::all() };
        ok(shown.diff(&linux, look).expect_same("the mount | Linux"));
        ok(mount.unmount());
    }
}

/// Makes a volume of `bytes` with the words `mkfs`.
fn made(image: &Path, bytes: u64, mkfs: &str) -> Result<(), String> {
    if !mkfs.contains("data_csum") {
        return mke2fs(image, bytes, mkfs, None);
    }
    let (image, size) = (image.display().to_string(), bytes.to_string());
    let mut words = vec!["mkfs", "--quiet", "--size", &size];
    words.extend(mkfs.split_whitespace());
    words.push(&image);
    Extant::get()?.run(&words)?.success().map(drop)
}

/// Looking at a file is a reading of it, so each look finds another time of the last one.
fn without_reading(mut manifest: Manifest) -> Manifest {
    for entry in manifest.entries.values_mut() {
        entry.atime = None;
    }
    manifest
}
