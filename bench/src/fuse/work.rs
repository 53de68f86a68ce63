//! Names, trees, streams, pages and SQLite: the work that this program measures itself.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::fs::Advice;
use serde_json::json;

use super::run::{Run, in_threads, threads, timed, unpack};
use super::source::git;
use crate::report::Params;
use crate::rig::{run as run_command, scatter};

const MIB: usize = 1 << 20;
/// Size of a random access in bytes.
const PAGE: usize = 4096;
/// Numbers of threads, which keep that many requests in flight.
const DEPTHS: [usize; 2] = [1, 32];
/// `O_DIRECT`.
const DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// Drops the kernel's cache of names and inodes.
fn drop_names() {
    // Errors are ignored: the figures show how long the new requests took.
    let _ = fs::write("/proc/sys/vm/drop_caches", "2");
}

/// Creates, stats, lists and removes files, one directory for each thread.
pub(super) fn names(run: &mut Run<'_>) -> Result<()> {
    for count in [1, 2] {
        let each = run.plan.files / count;
        let dirs: Vec<PathBuf> =
            (0..count).map(|n| run.join(&format!("names{count}-{n}"))).collect();
        for dir in &dirs {
            fs::create_dir(dir)?;
        }
        let total = (each * count) as f64;
        let seconds = in_threads(&dirs, |dir| {
            (0..each).try_for_each(|n| {
                let new = OpenOptions::new().write(true).create_new(true).open(name(dir, n));
                new.map(drop).map_err(Into::into)
            })
        })?;
        run.add("create", "ops_per_s", threads(count), total / seconds);
        drop_names();
        let seconds = in_threads(&dirs, |dir| {
            (0..each)
                .try_for_each(|n| Ok(fs::symlink_metadata(name(dir, scatter(n, each))).map(drop)?))
        })?;
        run.add("stat", "ops_per_s", threads(count), total / seconds);
        drop_names();
        let seconds = in_threads(&dirs, |dir| {
            let found = fs::read_dir(dir)?.filter(Result::is_ok).count();
            if found != each { bail!("{found} names listed, {each} made") } else { Ok(()) }
        })?;
        run.add("readdir", "ops_per_s", threads(count), total / seconds);
        let seconds = in_threads(&dirs, |dir| {
            (0..each).try_for_each(|n| Ok(fs::remove_file(name(dir, scatter(n, each)))?))
        })?;
        run.add("unlink", "ops_per_s", threads(count), total / seconds);
        for dir in &dirs {
            fs::remove_dir(dir)?;
        }
    }
    Ok(())
}

fn name(dir: &Path, n: usize) -> PathBuf {
    dir.join(format!("file{n:06}"))
}

/// Unpacks an archive, runs git on it, and removes it, with ordinary programs.
pub(super) fn tree(run: &mut Run<'_>) -> Result<()> {
    let dir = run.join("tree");
    fs::create_dir(&dir)?;
    let files = run.plan.files as f64;
    let seconds = timed(&mut unpack(&run.inputs.archive, &dir))?;
    run.add("untar", "ops_per_s", threads(1), files / seconds);
    if run.wants("git_status") {
        run_command(git(&dir).args(["init", "-q"]))?;
        run_command(git(&dir).args(["add", "-A"]))?;
        drop_names();
        let seconds = timed(git(&dir).args(["status", "--porcelain"]))?;
        run.add("git_status", "ops_per_s", threads(1), files / seconds);
    }
    drop_names();
    let seconds = timed(Command::new("rm").arg("-r").arg(&dir))?;
    run.add("rm_r", "ops_per_s", threads(1), files / seconds);
    Ok(())
}

/// Writes and reads a large file in pieces of 1 MiB.
pub(super) fn streams(run: &mut Run<'_>) -> Result<()> {
    let mib = run.plan.mib;
    let path = run.join("stream");
    let piece = vec![0x5A; MIB];
    let start = Instant::now();
    let mut file = File::create(&path)?;
    for _ in 0..mib {
        file.write_all(&piece)?;
    }
    drop(file);
    let rate = |seconds: f64| (mib as usize * MIB) as f64 / 1e6 / seconds;
    run.add("stream_write", "mb_per_s", threads(1), rate(start.elapsed().as_secs_f64()));
    let mut file = File::open(&path)?;
    forget_content(&file)?;
    let mut piece = piece;
    let start = Instant::now();
    for _ in 0..mib {
        file.read_exact(&mut piece)?;
    }
    run.add("stream_read", "mb_per_s", threads(1), rate(start.elapsed().as_secs_f64()));
    drop(file);
    fs::remove_file(&path)?;
    Ok(())
}

/// Drops the kernel's cache of this file. The server keeps its own.
fn forget_content(file: &File) -> Result<()> {
    file.sync_all()?;
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?;
    Ok(())
}

/// Reads and writes 4 KiB at random offsets of a file.
pub(super) fn pages(run: &mut Run<'_>) -> Result<()> {
    let path = run.join("pages");
    let pages = (run.plan.mib as usize * MIB / 4 / PAGE).max(1024);
    let mut file = File::create(&path)?;
    let piece = vec![0x33; PAGE * 256];
    for _ in 0..pages.div_ceil(256) {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    for direct in [true, false] {
        for depth in DEPTHS {
            for writes in [false, true] {
                let case = if writes { "rand_write_4k" } else { "rand_read_4k" };
                if !run.wants(case) {
                    continue;
                }
                forget_content(&file)?;
                let seconds = at_random(&path, pages, depth, direct, writes)?;
                let params = Params::from([("depth", json!(depth)), ("direct", json!(direct))]);
                let done = (pages / depth * depth) as f64;
                run.add(case, "ops_per_s", params, done / seconds);
            }
        }
    }
    fs::remove_file(&path)?;
    Ok(())
}

fn at_random(path: &Path, pages: usize, depth: usize, direct: bool, writes: bool) -> Result<f64> {
    let flags = if direct { DIRECT } else { 0 };
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
    let each = pages / depth;
    let parts: Vec<usize> = (0..depth).collect();
    in_threads(&parts, |part| {
        let mut memory = vec![0x77_u8; 2 * PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        let page = &mut memory[start..start + PAGE];
        for n in 0..each {
            let place = (scatter(part * each + n, pages) * PAGE) as u64;
            match writes {
                true => file.write_all_at(page, place)?,
                false => file.read_exact_at(page, place)?,
            }
        }
        Ok(())
    })
}

/// Transactions of one row each, each made durable.
pub(super) fn sqlite(run: &mut Run<'_>) -> Result<()> {
    let commits = run.plan.commits;
    for (mode, threads_like) in [("delete", 1), ("wal", 1)] {
        let base = run.join(&format!("base-{mode}.db"));
        let mut script = format!(
            "PRAGMA journal_mode={mode};\nPRAGMA synchronous=FULL;\nCREATE TABLE t(n INTEGER, s TEXT);\n"
        );
        for n in 0..commits {
            script.push_str(&format!("INSERT INTO t VALUES({n}, 'a row of some length {n}');\n"));
        }
        let start = Instant::now();
        let mut sqlite = Command::new("sqlite3")
            .arg(&base)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot run sqlite3")?;
        sqlite.stdin.take().context("a pipe")?.write_all(script.as_bytes())?;
        if !sqlite.wait()?.success() {
            bail!("sqlite3 failed");
        }
        let seconds = start.elapsed().as_secs_f64();
        let params = Params::from([("threads", json!(threads_like)), ("journal", json!(mode))]);
        run.add("sqlite_commits", "ops_per_s", params, commits as f64 / seconds);
    }
    Ok(())
}
