//! A run that a signal ends leaves nothing behind.
//!
//! ```text
//!   SIGINT, SIGTERM, SIGHUP ─► children killed ─► mounts below the scratch directories unmounted
//!                           ─► loop devices detached ─► directories removed
//! ```
//!
//! After SIGKILL they remain, as `extant-*-PID` in the directory of `--scratch`.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::rig::{Scratch, run};

/// The exit status of a program that Ctrl-C ended.
const ENDED: i32 = 130;

/// Whether a signal arrived.
static CAME: AtomicBool = AtomicBool::new(false);

/// From now on, a signal that ends the program cleans up first.
pub(crate) fn watch() -> Result<()> {
    let (mut out, into) = UnixStream::pair().context("cannot listen for signals")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::low_level::pipe::register(signal, into.try_clone()?)?;
    }
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        let mut byte = [0];
        while out.read(&mut byte).is_err() {}
        CAME.store(true, Ordering::SeqCst);
        eprintln!("extant-bench: ended by a signal: tidying");
        tidy();
        std::process::exit(ENDED);
    })?;
    Ok(())
}

/// Called at the end of the bench, which may have failed because the clean-up removed what it used.
/// If a signal arrived, does not return, and leaves the exit to the clean-up.
pub(crate) fn let_tidy() {
    while CAME.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn tidy() {
    let dirs = Scratch::all();
    let is_ours = |path: &Path| dirs.iter().any(|dir| path.starts_with(dir));
    // Repeated, because the bench may still start a next child; after a while that finds no
    // directory.
    for _ in 0..10 {
        children().into_iter().for_each(|child| {
            let _ = kill_process(child, Signal::KILL);
        });
        for mount in mounts().into_iter().rev().filter(|mount| is_ours(mount)) {
            let done = run(Command::new("umount").arg("--lazy").arg(&mount));
            if done.is_err() {
                let _ = run(Command::new("fusermount3").args(["-u", "-z"]).arg(&mount));
            }
        }
        loop_devices().into_iter().filter(|(_, file)| is_ours(file)).for_each(|(device, _)| {
            let _ = run(Command::new("losetup").arg("--detach").arg(device));
        });
        let removed = dirs.iter().all(|dir| fs::remove_dir_all(dir).is_ok() || !dir.exists());
        if removed && children().is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    for dir in dirs.iter().filter(|dir| dir.exists()) {
        eprintln!("extant-bench: {} is left: remove it", dir.display());
    }
}

/// Running processes that this one has started.
fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let child = |name: &str| {
        let stat = fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        // The program's name, in parentheses, may hold any bytes. After it: state, parent.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let is_dead = words.next() == Some("Z");
        (words.next() == Some(&own) && !is_dead).then_some(())?;
        Pid::from_raw(name.parse().ok()?)
    };
    processes.filter_map(|process| child(process.file_name().to_str()?)).collect()
}

/// Directories with mounts, in the order of mounting.
fn mounts() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = |line: &str| Some(line.split(' ').nth(4)?.replace("\\040", " ").into());
    text.lines().filter_map(place).collect()
}

/// Loop devices, and their files.
fn loop_devices() -> Vec<(PathBuf, PathBuf)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let attached = |device: fs::DirEntry| {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        let file = file.trim_end().trim_end_matches(" (deleted)");
        Some((Path::new("/dev").join(device.file_name()), PathBuf::from(file)))
    };
    devices.filter_map(attached).collect()
}
