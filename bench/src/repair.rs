//! `extant-bench repair`: a sound volume and a damaged one, repaired without questions.
//!
//! ```text
//!   volume of N files ─┬─► copy                      sound       ┐  extant repair --yes
//!                      └─► copy, damaged in D places damaged     ┘  e2fsck -fy
//!                             └─► repaired ─► files that equal the original: files_saved
//! ```
//!
//! Each damage changes one bit of an inode in use. The time ends when the repaired image is
//! durable. Images are read once before, so both find them in the page cache.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use clap::Args;
use extant::mkfs::{InodeCount, MkfsOptions, format};
use extant::{Environment, FileDevice, FileKind, Filesystem, NewFile, OpenOptions};
use serde_json::json;

use crate::build::{extant_program, warm};
use crate::process::{Cost, run};
use crate::report::{Key, Params, Report};
use crate::rig::Scratch;

const FILES_OF_A_DIRECTORY: u64 = 100;
/// Bytes of the largest file.
const LARGEST: u64 = 6000;

/// How large, how damaged, how often.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the images, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every subject once
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Files on the volume
    #[arg(long, value_name = "N", default_value_t = 150_000)]
    files: u64,
    /// Damaged places
    #[arg(long, value_name = "N", default_value_t = 1000)]
    damages: u64,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { rounds: 1, files: 2000, damages: 100, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan { scratch: ".".into(), rounds: 5, files: 150_000, damages: 1000 }
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let extant = extant_program()?;
    let scratch = Scratch::new(&plan.scratch, "repair")?;
    let mut report = Report::new("repair");
    report.condition(format!(
        "a volume of {} files of up to {LARGEST} bytes with checksums of metadata; damage: one bit of an inode in use, \
         {} times; images in the page cache, the repaired image flushed inside the time",
        plan.files, plan.damages
    ));
    let (sound, damaged) = (scratch.join("sound.img"), scratch.join("damaged.img"));
    fill(&sound, plan.files)?;
    fs::copy(&sound, &damaged)?;
    damage(&damaged, plan.damages)?;
    let original = files_of(&sound)?;
    let params = Params::from([("files", json!(plan.files)), ("damages", json!(plan.damages))]);
    let copy = scratch.join("copy.img");
    let side = scratch.join("side");
    let mut sample =
        |case: &'static str, subject: &'static str, cost: Cost, kept: Option<usize>| {
            let key = |metric| Key { case, subject, metric, params: params.clone() };
            report.sample(&key("wall_s"), cost.wall_s);
            report.sample(&key("peak_mib"), cost.peak_mib);
            if let Some(kept) = kept {
                let key =
                    Key { case: "files_saved", subject, metric: "files", params: params.clone() };
                report.sample(&key, kept as f64);
            }
        };
    for _ in 0..plan.rounds {
        for (case, image) in [("sound", &sound), ("damaged", &damaged)] {
            for subject in ["extant", "e2fsck"] {
                let _ = fs::remove_file(&side);
                fs::copy(image, &copy)?;
                File::open(&copy)?.sync_all()?;
                warm(&copy)?;
                let mut command = match subject {
                    "extant" => {
                        let mut command = Command::new(&extant);
                        command.args(["repair", "--yes", "--side-file"]).arg(&side);
                        command
                    }
                    _ => {
                        let mut command = Command::new("e2fsck");
                        command.arg("-fy");
                        command
                    }
                };
                let cost = run(command.arg(&copy), Some(&copy), |status| status <= 1)?;
                let kept = match case {
                    "damaged" => Some(equal(&original, &copy)?),
                    _ => None,
                };
                sample(case, subject, cost, kept);
            }
        }
    }
    for (case, metric) in [("sound", "wall_s"), ("damaged", "wall_s")] {
        let of = |subject| Key { case, subject, metric, params: params.clone() };
        if let (Some(ours), Some(theirs)) =
            (report.median(&of("extant")), report.median(&of("e2fsck")))
        {
            report.finding(format!("{case}: {:.2} times the speed of e2fsck", theirs / ours));
        }
    }
    Ok(report)
}

/// Makes a volume with `files` files.
fn fill(image: &Path, files: u64) -> Result<()> {
    let len = (files * (LARGEST / 2 + 4096) + (64 << 20)).next_multiple_of(1 << 20);
    let device = Arc::new(FileDevice::create(image, len)?);
    let inodes = u32::try_from(files + files / 50 + 1000)?;
    let options = MkfsOptions::new().inodes(InodeCount::AtLeast(inodes));
    format(device, &options, &Environment::default())?;
    let fs = OpenOptions::new().write(true).open(image)?;
    let content: Vec<u8> = (0..LARGEST).map(|n| (n % 251) as u8).collect();
    for n in 0..files {
        let dir = format!("/dir{}", n / FILES_OF_A_DIRECTORY);
        if n % FILES_OF_A_DIRECTORY == 0 {
            fs.create_dir(&dir, &NewFile::directory())?;
        }
        let len = usize::try_from(n * 37 % LARGEST + 1)?;
        fs.write(format!("{dir}/file{n}"), &content[..len])?;
    }
    fs.close()?;
    Ok(())
}

/// A generator of numbers whose sequence is always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Flips `count` bits of inodes in use, all in different ones where there are enough.
fn damage(image: &Path, count: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(image)?;
    let mut superblock = [0; 1024];
    file.read_exact_at(&mut superblock, 1024)?;
    let word = |bytes: &[u8], at: usize| {
        bytes[at..].first_chunk().map_or(0, |word| u64::from(u32::from_le_bytes(*word)))
    };
    let half = |bytes: &[u8], at: usize| {
        bytes[at..].first_chunk().map_or(0, |half| u64::from(u16::from_le_bytes(*half)))
    };
    let block = 1024 << word(&superblock, 24);
    let (per_group, inode) = (word(&superblock, 40), half(&superblock, 88));
    let groups = word(&superblock, 0) / per_group;
    let desc = half(&superblock, 254).max(32);
    let table_of = |group: u64| -> Result<u64> {
        let mut bytes = [0; 64];
        let at = (word(&superblock, 20) + 1) * block + group * desc;
        file.read_exact_at(&mut bytes[..usize::try_from(desc)?.min(64)], at)?;
        Ok((word(&bytes, 8) | word(&bytes, 40) << 32) * block)
    };
    // The type, the size, the link count, the flags, and the map.
    let places = [1, 4, 26, 32, 40, 52, 60];
    let mut numbers = Numbers(0x5EED);
    let (mut done, mut tried) = (0, 0);
    while done < count {
        tried += 1;
        ensure!(tried < count * 1000 + 100_000, "too few inodes are in use");
        let at = table_of(numbers.below(groups))? + (numbers.below(per_group - 16) + 16) * inode;
        let mut slot = [0; 128];
        file.read_exact_at(&mut slot, at)?;
        if half(&slot, 26) == 0 {
            continue;
        }
        let place = places[usize::try_from(numbers.below(places.len() as u64))?];
        slot[place] ^= 1 << numbers.below(8);
        file.write_all_at(&slot, at)?;
        done += 1;
    }
    Ok(())
}

/// What is compared of each file: mode, owner, and a hash of the content.
type Files = HashMap<PathBuf, (u32, u32, u32, u64)>;

fn files_of(image: &Path) -> Result<Files> {
    let fs = Filesystem::open(image)?;
    let mut files = Files::new();
    for entry in fs.walk("/") {
        let entry = entry?;
        let meta = entry.metadata()?;
        let mut hash = DefaultHasher::new();
        match entry.file_type() {
            FileKind::Regular => fs.read(entry.path())?.hash(&mut hash),
            FileKind::Directory => {}
            other => bail!("{}: {other:?}", entry.path().display()),
        }
        let row = (meta.mode(), meta.uid(), meta.gid(), hash.finish());
        files.insert(entry.path().to_path_buf(), row);
    }
    Ok(files)
}

/// How many files of the original the image still has, equal.
fn equal(original: &Files, image: &Path) -> Result<usize> {
    let fs = Filesystem::open(image)?;
    let is_equal = |(path, row): (&PathBuf, &(u32, u32, u32, u64))| {
        let meta = fs.symlink_metadata(path).ok()?;
        let mut hash = DefaultHasher::new();
        if meta.is_file() {
            fs.read(path).ok()?.hash(&mut hash);
        }
        (*row == (meta.mode(), meta.uid(), meta.gid(), hash.finish())).then_some(())
    };
    Ok(original.iter().filter_map(is_equal).count())
}
