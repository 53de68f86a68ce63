//! `extant-bench fallocate`: allocates space for a file, 64 KiB at a time, one call after the
//! other.
//!
//! ```text
//!   image  made ─► filled to N % ─► a round: create, allocate … allocate │ sync, remove
//!          65,536-byte holes at random      └────────── timed ─────────┘
//!   extant           the library: free space by tree, checksums by flip and splice
//!   extant-without   the same library: searches the bitmap, computes checksums of whole blocks
//!   kernel-ext4      fallocate(2) on a loop mount of the same image
//! ```
//!
//! All subjects use the same image in turns. What a round allocated is removed before the next one,
//! so each finds the same free space. The measured time includes no wait for the disk; everything
//! is durable before the next subject begins. Published figures are from other machines.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use extant::check::{self, check_device};
use extant::mkfs::{MkfsOptions, format};
use extant::{BlockSize, Environment, FallocateMode, FileDevice, NewFile, OpenOptions};
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::json;

use crate::report::{Key, Params, Report};
use crate::rig::{Mount, Scratch, is_root, sync_filesystem};

const PIECE: u64 = 64 << 10;
const CASE: &str = "fallocate_64k";

/// Where, how often and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the images, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every volume and subject once
    #[arg(long, default_value_t = 7)]
    pub(crate) rounds: usize,
    /// Calls in one sample, at most
    #[arg(long, default_value_t = 20_000)]
    calls: u64,
    /// Only volumes with blocks of so many bytes
    #[arg(long, value_name = "BYTES")]
    blocks: Option<u32>,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { rounds: 1, calls: 2000, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan { scratch: ".".into(), rounds: 7, calls: 20_000, blocks: None }
    }
}

/// One volume to measure.
struct Setting {
    block_bytes: u32,
    blocks_per_group: u32,
    full_percent: u64,
    image: PathBuf,
    calls: u64,
}

impl Setting {
    fn params(&self) -> Params {
        Params::from([
            ("block_bytes", json!(self.block_bytes)),
            ("blocks_per_group", json!(self.blocks_per_group)),
            ("full_percent", json!(self.full_percent)),
        ])
    }
}

/// Block size, blocks per group, percent in use. 1 % means only the volume's own metadata.
const SETTINGS: [(u32, u32, u64); 11] = [
    (1024, 8192, 1),
    (4096, 32_768, 1),
    (16_384, 131_072, 1),
    (65_536, 65_528, 1),
    (65_536, 524_288, 1),
    (4096, 32_768, 50),
    (4096, 32_768, 95),
    (4096, 32_768, 99),
    (65_536, 524_288, 50),
    (65_536, 524_288, 95),
    (65_536, 524_288, 99),
];

/// Figures of the published kernel series, GB/s: block size, blocks per group, before, with all
/// patches.
const PUBLISHED: [(u32, u32, f64, f64); 5] = [
    (1024, 8192, 14.9, 15.3),
    (4096, 32_768, 16.8, 18.4),
    (16_384, 131_072, 13.5, 19.0),
    (65_536, 65_528, 8.24, 19.4),
    (65_536, 524_288, 2.84, 19.8),
];

/// Large enough for one group of the largest kind.
const VOLUME_BYTES: u64 = 40 << 30;

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "fallocate")?;
    let mut report = Report::new("fallocate");
    report.condition(format!(
        "volumes of {} GiB in sparse files; up to {} calls a sample, ordered by offset, one thread; \
         nothing is waited for inside the time, all is durable after it",
        VOLUME_BYTES >> 30,
        plan.calls
    ));
    report.condition("full: random pieces of 64 KiB are free; 1 %: an empty volume");
    let settings: Vec<Setting> = SETTINGS
        .iter()
        .filter(|(block_bytes, ..)| plan.blocks.is_none_or(|only| only == *block_bytes))
        .map(|setting| prepare(&scratch, plan, *setting))
        .collect::<Result<_>>()?;
    let mut refused: Vec<u32> = Vec::new();
    for _ in 0..plan.rounds {
        for setting in &settings {
            sample(&mut report, setting, "extant", extant(setting, true)?);
            sample(&mut report, setting, "extant-without", extant(setting, false)?);
            if !is_root() || refused.contains(&setting.block_bytes) {
                continue;
            }
            match kernel(setting, &scratch.join("mnt")) {
                Ok(seconds) => sample(&mut report, setting, "kernel-ext4", seconds),
                Err(error) => {
                    eprintln!("extant-bench: kernel-ext4 left out: {error:#}");
                    report.condition(format!(
                        "this kernel does not mount blocks of {} bytes",
                        setting.block_bytes
                    ));
                    refused.push(setting.block_bytes);
                }
            }
        }
    }
    for setting in &settings {
        judge(setting)?;
    }
    publish(&mut report);
    conclude(&mut report, &settings);
    Ok(report)
}

fn key(setting: &Setting, subject: &'static str, metric: &'static str) -> Key {
    Key { case: CASE, subject, metric, params: setting.params() }
}

fn sample(report: &mut Report, setting: &Setting, subject: &'static str, seconds: f64) {
    let bytes = (setting.calls * PIECE) as f64;
    report.sample(&key(setting, subject, "us_per_call"), seconds * 1e6 / setting.calls as f64);
    report.sample(&key(setting, subject, "gb_per_s"), bytes / seconds / 1e9);
}

/// Makes a volume and fills it completely, then frees random pieces.
fn prepare(
    scratch: &Scratch,
    plan: &Plan,
    (block_bytes, blocks_per_group, full_percent): (u32, u32, u64),
) -> Result<Setting> {
    let image = scratch.join(&format!("{block_bytes}-{blocks_per_group}-{full_percent}.img"));
    let block_size = BlockSize::from_bytes(block_bytes).context("a block size")?;
    let options = MkfsOptions::new().block_size(block_size).blocks_per_group(blocks_per_group);
    let device = Arc::new(FileDevice::create(&image, VOLUME_BYTES)?);
    format(device, &options, &Environment::default())?;
    let mut free_pieces = VOLUME_BYTES / PIECE;
    if full_percent > 1 {
        let fs = OpenOptions::new().write(true).open(&image)?;
        let filler = fs.create_file("/filler", &NewFile::default())?.open()?;
        // Fails with ENOSPC at the end. What was allocated remains.
        let _ = filler.allocate(FallocateMode::Allocate, 0, VOLUME_BYTES);
        let mut pieces: Vec<u64> = (0..filler.metadata().len() / PIECE).collect();
        shuffle(&mut pieces);
        free_pieces = pieces.len() as u64 * (100 - full_percent) / 100;
        for piece in &pieces[..free_pieces as usize] {
            filler.allocate(FallocateMode::PunchHole, piece * PIECE, PIECE)?;
        }
        drop(filler);
        fs.close()?;
    }
    // Not the last of the free space: some is reserved for metadata.
    let calls = plan.calls.min((free_pieces / 2).max(1));
    Ok(Setting { block_bytes, blocks_per_group, full_percent, image, calls })
}

/// Shuffles in an order that is the same every time.
fn shuffle(pieces: &mut [u64]) {
    let mut seed = 0x5eed_u64;
    for n in (1..pieces.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        pieces.swap(n, (seed >> 33) as usize % (n + 1));
    }
}

/// Seconds that the calls took through the library.
fn extant(setting: &Setting, short_cuts: bool) -> Result<f64> {
    let fs = OpenOptions::new().write(true).short_cuts(short_cuts).open(&setting.image)?;
    let file = fs.create_file("/timed", &NewFile::default())?.open()?;
    // Reads the group of the first calls before the clock starts.
    file.allocate(FallocateMode::Allocate, 0, PIECE)?;
    let start = Instant::now();
    for n in 1..=setting.calls {
        file.allocate(FallocateMode::Allocate, n * PIECE, PIECE)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    drop(file);
    fs.sync()?;
    fs.remove_file("/timed")?;
    fs.close()?;
    Ok(seconds)
}

/// Seconds that the calls took through a mount at `dir`.
fn kernel(setting: &Setting, dir: &Path) -> Result<f64> {
    let mount = Mount::image_with(&setting.image, dir, "ext4", false, "noinit_itable")?;
    let path = mount.join("timed");
    let file = File::create(&path)?;
    let allocate = |n: u64| fallocate(&file, FallocateFlags::empty(), n * PIECE, PIECE);
    allocate(0)?;
    let start = Instant::now();
    for n in 1..=setting.calls {
        allocate(n)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    drop(file);
    sync_filesystem(&path)?;
    fs::remove_file(path)?;
    Ok(seconds)
}

/// Checks that the volume is consistent afterwards.
fn judge(setting: &Setting) -> Result<()> {
    let device = Arc::new(FileDevice::open_rw(&setting.image)?);
    let found = check_device(device, &check::Options::default(), &())?;
    if let Some(finding) = found.findings.first().filter(|_| !found.clean) {
        bail!("{}: {finding:?}", setting.image.display());
    }
    // e2fsck does not support larger groups.
    let checked = Command::new("e2fsck").arg("-fn").arg(&setting.image).output();
    let Ok(checked) = checked else { return Ok(()) };
    if setting.blocks_per_group <= 65_528 && !checked.status.success() {
        bail!("{}: {}", setting.image.display(), String::from_utf8_lossy(&checked.stdout));
    }
    Ok(())
}

fn publish(report: &mut Report) {
    for (block_bytes, blocks_per_group, before, all) in PUBLISHED {
        let params = Params::from([
            ("block_bytes", json!(block_bytes)),
            ("blocks_per_group", json!(blocks_per_group)),
            ("full_percent", json!(1)),
        ]);
        for (subject, figure) in [("series, before", before), ("series, all parts", all)] {
            let params = params.clone();
            report.publish(Key { case: CASE, subject, metric: "gb_per_s", params }, figure);
        }
    }
}

fn conclude(report: &mut Report, settings: &[Setting]) {
    let time = |report: &Report, setting: &Setting, subject| {
        report.median(&key(setting, subject, "us_per_call"))
    };
    let mut findings = Vec::new();
    for setting in settings {
        let Some(own) = time(report, setting, "extant") else { continue };
        let name = format!(
            "blocks of {}, groups of {}, {} % full",
            setting.block_bytes, setting.blocks_per_group, setting.full_percent
        );
        let against = |subject| time(report, setting, subject).map(|other: f64| other / own);
        if let Some(times) = against("kernel-ext4") {
            findings.push(format!("{name}: {times:.1} times as many calls as the kernel"));
        }
        if let Some(times) = against("extant-without") {
            findings.push(format!("{name}: {times:.1} times as many calls as without"));
        }
    }
    let empty: Vec<f64> = settings
        .iter()
        .filter(|setting| setting.full_percent == 1)
        .filter_map(|setting| time(report, setting, "extant"))
        .collect();
    if let (Some(least), Some(most)) =
        (empty.iter().copied().reduce(f64::min), empty.iter().copied().reduce(f64::max))
    {
        let percent = 100.0 * (most / least - 1.0);
        findings.push(format!("empty volumes of all block and group sizes: within {percent:.0} %"));
    }
    for finding in findings {
        report.finding(finding);
    }
}
