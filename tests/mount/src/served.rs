//! A volume that programs work on, judged when they are done.
//!
//! ```text
//!   mke2fs ──► extant mount ──► programs ──► what the mount shows ─────────────────┐
//!                  ▲     └─ kill ─┐   └────► unmount ──► e2fsck -fn: clean         ├─► equal
//!                  └── remount ◄──┘                └───► Linux, read-only: shows ──┘
//! ```
//!
//! `EXTANT_MOUNT=linux` uses Linux' own ext4 instead of extant: what fails there, too, is a defect
//! of the test. Tests that kill the server do not run there. `EXTANT_MKFS=WORDS` makes volumes with
//! these options, too: `-O data_csum` gives all of them checksums of data.

use extant_testkit::command::{Finished, run, run_in};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::extant::Extant;
use extant_testkit::fuse_mount::FuseMount;
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The default time limit of a program.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Time beyond that limit before the server is killed: a call that gets no answer cannot be ended
/// in another way.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Mounted {
    Extant(FuseMount),
    Linux(LoopMount),
}

/// A mounted volume, with a scratch directory outside it.
#[derive(Debug)]
pub struct Served {
    // Before the directory that contains its image: fields are dropped in this order.
    mounted: Option<Mounted>,
    scratch: Scratch,
    options: String,
    layout: Layout,
}

/// How a volume is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Single,
    /// Stripes on two files, neither of which is a volume by itself.
    Stripes,
    /// Two files, each of which is a whole volume.
    Mirrors,
}

impl Layout {
    /// The layout that options for `extant mkfs` give.
    fn of(mkfs: &str) -> Layout {
        match (mkfs.contains("--layout raid0"), mkfs.contains("--layout raid1")) {
            (true, _) => Layout::Stripes,
            (_, true) => Layout::Mirrors,
            _ => Layout::Single,
        }
    }
}

/// Whether programs run on Linux' own ext4 (`EXTANT_MOUNT=linux`).
pub fn by_linux() -> bool {
    std::env::var_os("EXTANT_MOUNT").is_some_and(|name| name == "linux")
}

/// A factor for the amount of work: 1, or the number in `EXTANT_SOAK`.
pub fn effort() -> usize {
    std::env::var("EXTANT_SOAK").map_or(1, |text| text.parse().unwrap_or(8).max(1))
}

/// The random moments of one test: those of `EXTANT_SEED`, or fixed ones.
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

/// The value of `done`, or a panic with its message.
#[track_caller]
pub fn ok<T>(done: Result<T, String>) -> T {
    done.unwrap_or_else(|said| panic!("{said}"))
}

impl Served {
    /// A new ext4 of `mib` MiB made with `mkfs` (options for mke2fs, or for `extant mkfs` if only
    /// that knows a feature or layout), mounted. A layout has a second file.
    #[track_caller]
    pub fn new(mib: u64, mkfs: &str) -> Self {
        Self::with_options(mib, mkfs, "")
    }

    /// The same, mounted with `options`.
    #[track_caller]
    pub fn with_options(mib: u64, mkfs: &str, options: &str) -> Self {
        let scratch = Scratch::new();
        let more = std::env::var("EXTANT_MKFS").unwrap_or_default();
        let (options, layout) = (options.to_owned(), Layout::of(mkfs));
        let mut served = Self { mounted: None, scratch, options, layout };
        let second = (layout != Layout::Single).then(|| served.second());
        ok(made(&served.image(), second.as_deref(), mib << 20, &format!("{mkfs} {more}")));
        served.mount();
        served
    }

    /// Mounts what [`unmount`](Self::unmount) or [`kill`](Self::kill) left; recovers it after a
    /// crash.
    #[track_caller]
    pub fn mount(&mut self) {
        assert!(self.mounted.is_none(), "it is mounted");
        self.mounted = Some(match by_linux() {
            true => Mounted::Linux(ok(LoopMount::rw(&self.image(), &self.options))),
            false => Mounted::Extant(ok(FuseMount::new(&self.whole(), &self.options))),
        });
    }

    /// The image, or the first of the two files of a layout.
    pub fn image(&self) -> PathBuf {
        self.scratch.file("volume.img")
    }

    /// The second file of a layout.
    fn second(&self) -> PathBuf {
        self.scratch.file("second.img")
    }

    /// The volume as `extant` takes it.
    fn whole(&self) -> PathBuf {
        let (image, second) = (self.image(), self.second());
        match self.layout {
            Layout::Single => image,
            _ => format!("{}?member={}", image.display(), second.display()).into(),
        }
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        match self.mounted.as_ref().expect("it is not mounted") {
            Mounted::Extant(mount) => mount.path(),
            Mounted::Linux(mount) => mount.path(),
        }
    }

    /// The path `name` outside the volume; it is removed with the volume.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// What the server printed, and how it ended, if it did.
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

    /// Runs a script of `sh -e` at the volume's root; `$OUT` is the directory outside. Panics if it
    /// fails, with what the server printed.
    #[track_caller]
    pub fn sh(&self, script: &str) -> Finished {
        let done = self.try_sh(script, LIMIT);
        if !done.ok() {
            panic!("{done}\n  the server: {}", self.log());
        }
        done
    }

    /// The same within `limit`. The caller judges how it ended, unless the time was over.
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

    /// Runs `work`, and kills the server if that takes longer than `limit` and some extra time.
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

    /// Kills the server at once, while programs use the volume.
    #[track_caller]
    pub fn kill(&mut self) {
        match self.mounted.take() {
            Some(Mounted::Extant(mount)) => ok(mount.kill()),
            _ => panic!("only extant can be killed"),
        }
    }

    /// Unmounts; `e2fsck -fn` must find nothing, on both mirrors. `extant check` judges stripes.
    #[track_caller]
    pub fn unmount(&mut self) {
        match self.mounted.take().expect("it is not mounted") {
            Mounted::Extant(mount) => ok(mount.unmount()),
            Mounted::Linux(mount) => ok(mount.unmount()),
        }
        if self.layout == Layout::Stripes {
            let check = ok(Extant::get()).run(&[OsStr::new("check"), self.whole().as_os_str()]);
            ok(check.and_then(Finished::success));
            return;
        }
        ok(e2fsck(&self.image(), None).expect_clean());
        if self.layout == Layout::Mirrors {
            ok(e2fsck(&self.second(), None).expect_clean());
        }
    }

    /// A manifest of the mount.
    #[track_caller]
    pub fn manifest(&self) -> Manifest {
        let manifest = ok(self.watched(LIMIT, || Manifest::walk(self.dir())));
        without_reading(manifest)
    }

    /// The end: unmounts, e2fsck finds nothing, and Linux shows what the mount showed. Linux cannot
    /// read stripes.
    #[track_caller]
    pub fn finish(mut self) {
        let shown = self.manifest();
        for entry in shown.entries.values() {
            assert_eq!(entry.error, None, "{}", entry.path);
        }
        self.unmount();
        if self.layout == Layout::Stripes {
            return;
        }
        let mount = ok(LoopMount::ro(&self.image(), ""));
        let linux = without_reading(ok(Manifest::walk(mount.path())));
        // Data that was not written back takes no space yet.
        let look = Look { blocks: false, ..Look::all() };
        ok(shown.diff(&linux, look).expect_same("the mount | Linux"));
        ok(mount.unmount());
    }
}

/// Makes a volume of `bytes` with the options `mkfs`.
fn made(image: &Path, second: Option<&Path>, bytes: u64, mkfs: &str) -> Result<(), String> {
    if second.is_none() && !mkfs.contains("data_csum") {
        return mke2fs(image, bytes, mkfs, None);
    }
    let (image, size) = (image.display().to_string(), bytes.to_string());
    let mut words = vec!["mkfs", "--quiet", "--size", &size];
    words.extend(mkfs.split_whitespace());
    words.push(&image);
    let second = second.map(|path| path.display().to_string());
    words.extend(second.as_deref());
    Extant::get()?.run(&words)?.success().map(drop)
}

/// Examining a file reads it, so each time the access time differs.
fn without_reading(mut manifest: Manifest) -> Manifest {
    for entry in manifest.entries.values_mut() {
        entry.atime = None;
    }
    manifest
}
