//! Compares behaviour: each answer of the script on a mount must be the kernel's own.
//!
//! ```text
//!   mke2fs ─┬─ loop mount ───► posix-script ──► lines ─┐
//!           └─ extant mount ─► posix-script ──► lines ─┴─► the same, but for `known.rs`
//! ```
//!
//! `EXTANT_FAMILIES=renames,times` runs these alone; `EXTANT_KEEP=DIR` keeps both lists of answers.

use extant_mount_tests::cases::GENERAL;
use extant_mount_tests::known::{
    KNOWN, KNOWN_OF_COLLECTED_WRITES, KNOWN_OF_SMALL_BLOCKS, KNOWN_OF_SUMS, Known, is_known,
};
use extant_testkit::command::run;
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::extant::Extant;
use extant_testkit::fuse_mount::FuseMount;
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::require;
use extant_testkit::scratch::{Scratch, copy_sparse};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SCRIPT_LIMIT: Duration = Duration::from_secs(240);
const DIFFERENCES_SHOWN: usize = 400;

fn script(dir: &Path, families: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posix-script"));
    let done = run(command.args(families).current_dir(dir), SCRIPT_LIMIT)?.success()?;
    Ok(done.out().lines().map(str::to_owned).collect())
}

/// From label to answer.
fn answers(lines: &[String]) -> BTreeMap<&str, &str> {
    lines.iter().map(|line| split(line)).collect()
}

fn split(line: &str) -> (&str, &str) {
    line.split_once('\t').expect("a label, a tab and an answer")
}

/// The unknown differences, in the order of the kernel's answers.
fn differences(kernel: &[String], mount: &[String], known: &[Known]) -> Vec<String> {
    let theirs = answers(mount);
    let ours = answers(kernel);
    let mut all = Vec::new();
    for line in kernel {
        let (label, answer) = split(line);
        match theirs.get(label) {
            Some(other) if *other == answer || is_known(known, label, answer, other) => {}
            Some(other) => all.push(format!("{label}: kernel {answer}, mount {other}")),
            None => all.push(format!("{label}: kernel {answer}, mount silent")),
        }
    }
    let more = mount.iter().map(|line| split(line)).filter(|(label, _)| !ours.contains_key(label));
    all.extend(more.map(|(label, answer)| format!("{label}: kernel silent, mount {answer}")));
    all
}

/// As a copy, without times: the script compares those.
const LOOK: Look = Look {
    ino: false,
    dir_shape: false,
    mtime: false,
    dir_times: false,
    nanoseconds: false,
    other_times: false,
    blocks: false,
    flags: false,
    xattrs: true,
    lost_and_found: false,
};

/// Two volumes that began as one.
struct Pair {
    scratch: Scratch,
    name: &'static str,
    known: Vec<Known>,
    /// The options of our mount.
    options: &'static str,
    /// Our volume has checksums of data.
    sums: bool,
}

impl Pair {
    fn new(name: &'static str, bytes: u64, options: &str) -> Pair {
        let scratch = Scratch::new();
        let mut known = KNOWN.to_vec();
        if options.contains("-b 1024") {
            known.extend(KNOWN_OF_SMALL_BLOCKS);
        }
        let sums = name == "sums";
        if sums {
            known.extend(KNOWN_OF_SUMS);
        }
        let pair = Pair { scratch, name, known, options: "", sums };
        mke2fs(&pair.image("kernel"), bytes, options, None).expect("mke2fs");
        pair.copy();
        pair
    }

    fn image(&self, side: &str) -> std::path::PathBuf {
        self.scratch.file(&format!("{}-{side}.img", self.name))
    }

    /// The mount's volume becomes a copy of the kernel's.
    fn copy(&self) {
        let _ = std::fs::remove_file(self.image("mount"));
        copy_sparse(&self.image("kernel"), &self.image("mount")).expect("room for a copy");
        if self.sums {
            let words = ["tune".as_ref(), "-O".as_ref(), "data_csum".as_ref()];
            let image = self.image("mount");
            let words: Vec<&OsStr> = words.into_iter().chain([image.as_os_str()]).collect();
            let done = Extant::get().and_then(|extant| extant.run(&words)?.success());
            done.expect("extant tune");
        }
    }

    /// Runs the families on both. Returns the differences; both volumes are clean afterwards.
    fn compare(&self, families: &[&str], read_only: bool) -> Result<(), String> {
        let (ours, theirs) = (self.image("kernel"), self.image("mount"));
        let options = if read_only { "ro" } else { "" };
        let kernel = LoopMount::rw(&ours, options)?;
        let mount = FuseMount::new(&theirs, &format!("{options},{}", self.options))?;
        let (kernel_lines, mount_lines) = std::thread::scope(|scope| {
            let other = scope.spawn(|| script(kernel.path(), families));
            let mount_lines = script(mount.path(), families);
            (other.join().expect("no panic"), mount_lines)
        });
        let (kernel_lines, mount_lines) = (kernel_lines?, mount_lines?);
        if let Some(dir) = std::env::var_os("EXTANT_KEEP") {
            for (side, lines) in [("kernel", &kernel_lines), ("mount", &mount_lines)] {
                let path = Path::new(&dir).join(format!("{}-{side}.txt", self.name));
                std::fs::write(path, lines.join("\n")).map_err(|error| error.to_string())?;
            }
        }
        kernel.unmount()?;
        let shown = Manifest::walk(mount.path())?;
        let unmounted = mount.unmount();
        let clean = e2fsck(&theirs, None).expect_clean();
        let kept = self.tree("mount").and_then(|tree| {
            shown.diff(&tree, LOOK).expect_same("shown by the mount, and kept by it")
        });
        let mut wrong = differences(&kernel_lines, &mount_lines, &self.known);
        let count = wrong.len();
        wrong.truncate(DIFFERENCES_SHOWN);
        wrong.extend(unmounted.err());
        wrong.extend(clean.err());
        wrong.extend(kept.err());
        wrong.extend(e2fsck(&ours, None).expect_clean().err());
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{}: {count} of {} answers differ\n{}",
                self.name,
                kernel_lines.len(),
                wrong.join("\n")
            )),
        }
    }

    fn tree(&self, side: &str) -> Result<Manifest, String> {
        let mount = LoopMount::ro(&self.image(side), "")?;
        let tree = Manifest::walk(mount.path())?;
        mount.unmount()?;
        Ok(tree)
    }

    /// What the kernel finds on both afterwards is the same. Not for inline data: Linux 6.18
    /// sometimes loses bytes of such files, which shows once they are read back from the device.
    fn same_trees(&self) -> Result<(), String> {
        if self.name == "inline" {
            return Ok(());
        }
        self.tree("kernel")?.diff(&self.tree("mount")?, LOOK).expect_same("what both left")
    }
}

fn same(outcome: Result<(), String>) {
    if let Err(differences) = outcome {
        panic!("{differences}");
    }
}

/// The usual mount: the kernel sends writes as programs make them.
fn general(name: &'static str, options: &str, leave_out: &[&str]) {
    general_mounted(name, options, leave_out, "");
}

fn general_mounted(
    name: &'static str,
    options: &str,
    leave_out: &[&str],
    mount_options: &'static str,
) {
    require!(Root, Loop, E2fsprogs, Fuse);
    let chosen = std::env::var("EXTANT_FAMILIES").unwrap_or_default();
    let chosen: Vec<&str> = chosen.split(',').filter(|family| !family.is_empty()).collect();
    let families: Vec<&str> = GENERAL
        .iter()
        .map(|(family, _)| *family)
        .filter(|family| chosen.is_empty() || chosen.contains(family))
        .filter(|family| !leave_out.contains(family))
        .collect();
    let mut pair = Pair::new(name, 128 << 20, options);
    pair.options = mount_options;
    if mount_options.contains("writeback_cache") {
        pair.known.extend(KNOWN_OF_COLLECTED_WRITES);
    }
    same(pair.compare(&families, false).and_then(|()| pair.same_trees()));
}

#[test]
fn a_usual_volume_answers_as_linux() {
    general("usual", "-b 4096 -N 32768", &[]);
}

#[test]
fn collected_writes_answer_as_linux_except_for_late_errors() {
    general_mounted("collected", "-b 4096 -N 32768", &[], "writeback_cache");
}

#[test]
fn old_maps_and_small_blocks_answer_as_linux() {
    general(
        "old",
        "-b 1024 -O ^extents,^64bit,^dir_index,^metadata_csum,^extra_isize -I 128 -N 32768",
        &["time-changes"],
    );
}

#[test]
fn inline_data_and_large_attributes_answer_as_linux() {
    general("inline", "-b 4096 -O inline_data,ea_inode,large_dir -N 32768", &[]);
}

#[test]
fn a_volume_with_data_csum_answers_as_linux() {
    general("sums", "-b 4096 -N 32768", &[]);
}

#[test]
fn a_full_volume_answers_as_linux() {
    require!(Root, Loop, E2fsprogs, Fuse);
    let pair = Pair::new("full", 8 << 20, "-b 1024 -N 1024 -m 5");
    same(pair.compare(&["full"], false));
}

#[test]
fn statfs_answers_as_linux() {
    require!(Root, Loop, E2fsprogs, Fuse);
    let pair = Pair::new("statfs", 64 << 20, "-b 4096");
    same(pair.compare(&["statfs"], false));
}

/// Made by the kernel, then copied.
fn prepared(name: &'static str, options: &str, prepare: &str, families: &[&str], read_only: bool) {
    require!(Root, Loop, E2fsprogs, Fuse);
    let pair = Pair::new(name, 64 << 20, options);
    let mount = LoopMount::rw(&pair.image("kernel"), "").unwrap();
    let made = script(mount.path(), &[prepare]).unwrap();
    assert!(made.iter().all(|line| line.ends_with("\tok")), "{made:?}");
    mount.unmount().unwrap();
    pair.copy();
    same(pair.compare(families, read_only));
}

#[test]
fn a_volume_mounted_for_reading_answers_as_linux() {
    prepared("read-only", "-b 4096", "read-only-prepare", &["read-only"], true);
}

#[test]
fn the_last_links_of_a_file_answer_as_linux() {
    prepared("many-links", "-b 4096", "many-links-prepare", &["many-links"], false);
}
