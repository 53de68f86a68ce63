//! `extant-bench build`: builds an image from a real tree, checks it, and reads all of it.
//!
//! ```text
//!   tree    SRC ─► image, durable      extant build │ mke2fs -d │ tar (no image: lower bound)
//!   check   image ─► verdict           extant check │ e2fsck -fn
//!   walk    image ─► every byte read   extant's library │ the kernel's mount, read-only
//! ```
//!
//! All subjects write to the same directory of the same disk, and the time includes the flush of
//! the output. Sources are read once before the first round, so every subject finds them in the
//! page cache.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use extant::{FileKind, Filesystem};
use serde_json::json;

use crate::process::run;
use crate::report::{Key, Params, Report};
use crate::rig::{Mount, Scratch, is_root};

/// What is built, where, and how often.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory to build from
    #[arg(long, value_name = "DIR", default_value = "/usr")]
    pub(crate) source: PathBuf,
    /// Directory for the outputs, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every subject once
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
}

impl Plan {
    /// A plan for `--quick`: a small tree, one round.
    pub(crate) fn quick(self) -> Plan {
        let small = Path::new("/usr/share/perl");
        let source = if self.source == Path::new("/usr") && small.is_dir() {
            small.to_path_buf()
        } else {
            self.source
        };
        Plan { source, rounds: 1, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan { source: "/usr".into(), scratch: ".".into(), rounds: 5 }
    }
}

/// Path of the `extant` program: from `EXTANT_BIN`, or in the directory of this program.
fn extant_program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("EXTANT_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe()?;
    let beside = own.with_file_name("extant");
    if !beside.is_file() {
        bail!("no extant beside {}: build it with cargo build --release", own.display());
    }
    Ok(beside)
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let extant = extant_program()?;
    let scratch = Scratch::new(&plan.scratch, "build")?;
    let (files, bytes) = warm(&plan.source)?;
    let params = Params::from([("files", json!(files)), ("bytes", json!(bytes))]);
    let key = |case, subject, metric| Key { case, subject, metric, params: params.clone() };
    let mut report = Report::new("build");
    report.condition(format!(
        "source {}: {files} entries, {} MiB of data, in the page cache; outputs flushed inside the time",
        plan.source.display(),
        bytes >> 20
    ));
    let have = |program: &str| {
        let found = Command::new(program).arg("--version").output().is_ok();
        if !found {
            eprintln!("extant-bench: no {program} here: left out");
        }
        found
    };
    let (mke2fs, tar, e2fsck) = (have("mke2fs"), have("tar"), have("e2fsck"));
    let image = scratch.join("extant.img");
    let mut mount_failed = false;
    for _ in 0..plan.rounds {
        let _ = fs::remove_file(&image);
        let cost = run(
            Command::new(&extant).arg("build").arg(&plan.source).arg("-o").arg(&image),
            None,
            |status| status == 0,
        )?;
        report.sample(&key("tree", "extant", "wall_s"), cost.wall_s);
        report.sample(&key("tree", "extant", "peak_mib"), cost.peak_mib);
        if mke2fs {
            let output = scratch.join("mke2fs.img");
            let size = fs::metadata(&image)?.len() / 1024 * 5 / 4 + (128 << 10);
            let cost = run(
                Command::new("mke2fs")
                    .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-i", "8192", "-d"])
                    .arg(&plan.source)
                    .arg(&output)
                    .arg(format!("{size}k")),
                Some(&output),
                |status| status == 0,
            )?;
            report.sample(&key("tree", "mke2fs", "wall_s"), cost.wall_s);
            report.sample(&key("tree", "mke2fs", "peak_mib"), cost.peak_mib);
            fs::remove_file(&output)?;
        }
        if tar {
            let output = scratch.join("tree.tar");
            let cost = run(
                Command::new("tar").arg("-cf").arg(&output).arg("-C").arg(&plan.source).arg("."),
                Some(&output),
                // Status 1: a file changed while tar read it.
                |status| status <= 1,
            )?;
            report.sample(&key("tree", "tar", "wall_s"), cost.wall_s);
            report.sample(&key("tree", "tar", "peak_mib"), cost.peak_mib);
            fs::remove_file(&output)?;
        }

        // Both find the image in the page cache.
        warm(&image)?;
        let cost = run(Command::new(&extant).arg("check").arg(&image), None, |status| status == 0)?;
        report.sample(&key("check", "extant", "wall_s"), cost.wall_s);
        report.sample(&key("check", "extant", "peak_mib"), cost.peak_mib);
        if e2fsck {
            let cost =
                run(Command::new("e2fsck").arg("-fn").arg(&image), None, |status| status == 0)?;
            report.sample(&key("check", "e2fsck", "wall_s"), cost.wall_s);
            report.sample(&key("check", "e2fsck", "peak_mib"), cost.peak_mib);
        }

        let (own, seconds) = walk_extant(&image)?;
        report.sample(&key("walk", "extant", "wall_s"), seconds);
        if is_root() && !mount_failed {
            match walk_kernel(&image, &scratch.join("mnt")) {
                Ok((theirs, seconds)) => {
                    if own != theirs {
                        bail!("extant read {own} bytes of the image, the kernel {theirs}");
                    }
                    report.sample(&key("walk", "kernel-ext4", "wall_s"), seconds);
                }
                Err(error) => {
                    eprintln!("extant-bench: kernel-ext4 left out: {error:#}");
                    mount_failed = true;
                }
            }
        }
    }
    let median = |case, subject| report.median(&key(case, subject, "wall_s"));
    let mut findings = Vec::new();
    for (case, rival) in
        [("tree", "mke2fs"), ("tree", "tar"), ("check", "e2fsck"), ("walk", "kernel-ext4")]
    {
        if let (Some(own), Some(theirs)) = (median(case, "extant"), median(case, rival)) {
            findings.push(format!("{case}: {:.2} times as fast as {rival}", theirs / own));
        }
    }
    for finding in findings {
        report.finding(finding);
    }
    Ok(report)
}

/// Reads everything below `path` once. Returns the number of entries and of data bytes.
fn warm(path: &Path) -> Result<(u64, u64)> {
    let (mut entries, mut bytes) = (0, 0);
    let mut buffer = vec![0; 1 << 20];
    let mut stack = vec![path.to_path_buf()];
    while let Some(path) = stack.pop() {
        entries += 1;
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            for entry in fs::read_dir(&path)? {
                stack.push(entry?.path());
            }
        } else if meta.is_file() {
            let mut file = fs::File::open(&path)?;
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    len => bytes += len as u64,
                }
            }
        }
    }
    Ok((entries, bytes))
}

/// Number of threads that read a tree.
const READERS: usize = 2;

/// Reads all files of `list` with `read`, on [`READERS`] threads. Returns the number of bytes.
fn read_all<T: Sync>(
    list: &[T],
    read: impl Fn(&T, &mut [u8]) -> Result<u64> + Sync,
) -> Result<u64> {
    let (next, sum) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            let mut buffer = vec![0; 1 << 20];
            while let Some(item) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                sum.fetch_add(read(item, &mut buffer)?, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..READERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a reader panicked"))
    })?;
    Ok(sum.into_inner())
}

/// Walks and reads the image with extant's library. Returns bytes and seconds.
fn walk_extant(image: &Path) -> Result<(u64, f64)> {
    let start = Instant::now();
    let fs = Filesystem::open(image)?;
    let mut files = Vec::new();
    for entry in fs.walk("/") {
        let entry = entry?;
        if entry.metadata()?.file_type() == FileKind::Regular {
            files.push(entry.path().to_path_buf());
        }
    }
    let bytes = read_all(&files, |path, buffer| {
        let file = fs.open_file(path)?;
        let mut at = 0;
        loop {
            match file.read_at(buffer, at)? {
                0 => return Ok(at),
                len => at += len as u64,
            }
        }
    })?;
    Ok((bytes, start.elapsed().as_secs_f64()))
}

/// The same through the kernel, mounted read-only at `dir`.
fn walk_kernel(image: &Path, dir: &Path) -> Result<(u64, f64)> {
    let _mount = Mount::image_with(image, dir, "ext4", false, "ro,noatime")?;
    read_mounted(dir)
}

fn read_mounted(dir: &Path) -> Result<(u64, f64)> {
    let start = Instant::now();
    let mut files: Vec<OsString> = Vec::new();
    let mut stack = vec![dir.to_path_buf()];
    while let Some(path) = stack.pop() {
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            // Metadata is requested because extant's walk does it too.
            let meta = entry.metadata()?;
            if meta.is_dir() {
                stack.push(entry.path());
            } else if meta.is_file() {
                files.push(entry.path().into_os_string());
            }
        }
    }
    let bytes = read_all(&files, |path, buffer| {
        let mut file = fs::File::open(Path::new(std::ffi::OsStr::from_bytes(path.as_bytes())))?;
        let mut sum = 0;
        loop {
            match file.read(buffer)? {
                0 => return Ok(sum),
                len => sum += len as u64,
            }
        }
    })?;
    Ok((bytes, start.elapsed().as_secs_f64()))
}
