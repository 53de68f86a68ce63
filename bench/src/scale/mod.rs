//! `extant-bench scale`: cost of a unit of work, and memory, as volumes, trees and files grow.
//!
//! ```text
//!   device    64 TiB: mkfs, open, files, first and later allocations, close, check
//!   filled    the same at 0, 50 and 99 % full
//!   tree      files in directories of 1000: create, walk, stat, check, remove
//!   sparse    16 TiB with scattered blocks: write, read, seek, remove
//!   extents   every other block: write, look up, list, punch, remove
//!   full      filled to the last block: failed writes, rewrites, removals, refills
//!   memory    far more data and names than the given limits
//! ```
//!
//! Each part runs in a process of its own, whose peak memory is read from the system step by step
//! ([`Meter`]). Volumes are in sparse files. There is no rival: a part is compared with itself at
//! other sizes.

mod device;
mod files;
mod full;
mod memory;
mod meter;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use extant::check::{self, check_device};
use extant::{BlockDevice, FileDevice};
use serde_json::{Value, json};

use self::meter::Meter;
use crate::report::{Key, Params, Report};
use crate::rig::{Scratch, load};

/// Where, and which parts.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the volumes
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Only these parts
    #[arg(value_enum)]
    parts: Vec<Part>,
    #[arg(skip)]
    quick: bool,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { quick: true, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan { scratch: ".".into(), parts: Vec::new(), quick: false }
    }
}

/// One thing that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// A new volume, by TiB
    Device,
    /// A volume with more and more in use, by TiB
    Filled,
    /// A tree, by files
    Tree,
    /// A file of 16 TiB, by blocks in it
    Sparse,
    /// A file in pieces, by extents
    Extents,
    /// A volume without a free block, by MiB
    Full,
    /// More than fits into the limits, by MiB
    Memory,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Device => "device",
            Part::Filled => "filled",
            Part::Tree => "tree",
            Part::Sparse => "sparse",
            Part::Extents => "extents",
            Part::Full => "full",
            Part::Memory => "memory",
        }
    }

    /// The sizes to measure, smallest first.
    fn sizes(self, quick: bool) -> &'static [u64] {
        match (self, quick) {
            (Part::Device, false) => &[1, 16, 64],
            (Part::Device, true) => &[1, 64],
            (Part::Filled, false) => &[64],
            (Part::Filled, true) => &[1],
            (Part::Tree, false) => &[100_000, 1_000_000],
            (Part::Tree, true) => &[20_000],
            (Part::Sparse, false) => &[10_000, 100_000],
            (Part::Sparse, true) => &[1000],
            (Part::Extents, false) => &[10_000, 100_000, 1_000_000],
            (Part::Extents, true) => &[1000, 10_000],
            (Part::Full, false) => &[1024],
            (Part::Full, true) => &[128],
            (Part::Memory, false) => &[512, 2048],
            (Part::Memory, true) => &[256],
        }
    }

    /// The unit of a size.
    fn unit(self) -> &'static str {
        match self {
            Part::Device | Part::Filled => "tib",
            Part::Tree => "files",
            Part::Sparse => "blocks",
            Part::Extents => "extents",
            Part::Full | Part::Memory => "mib",
        }
    }
}

/// One part of one size: what the bench starts itself again for.
#[derive(Args, Clone, Debug)]
pub(crate) struct One {
    #[arg(value_enum)]
    part: Part,
    size: u64,
    dir: PathBuf,
}

impl One {
    /// Prints one line for each step.
    pub(crate) fn run(&self) -> Result<()> {
        let (dir, size, meter) = (self.dir.as_path(), self.size, &Meter::default());
        match self.part {
            Part::Device => device::fresh(dir, size, meter),
            Part::Filled => device::filled(dir, size, meter),
            Part::Tree => tree::run(dir, size, meter),
            Part::Sparse => files::sparse(dir, size, meter),
            Part::Extents => files::extents(dir, size, meter),
            Part::Full => full::run(dir, size, meter),
            // Has its own limits.
            Part::Memory => return memory::run(dir, size, meter),
        }?;
        let groups = match self.part {
            Part::Device | Part::Filled => device::groups(size),
            _ => 0,
        };
        let besides = BESIDES + groups * BESIDES_OF_A_GROUP;
        meter.verdict(CACHE_BYTES as u64 + PAGE_CACHE_BYTES, besides)
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("scale");
    report.condition(load());
    report.condition(
        "each part and size in a process of its own; peak_mib: its largest resident memory in that step; \
         sparse files by the kernel's cache",
    );
    report.condition(format!(
        "memory for metadata {} MiB, for files' bytes {} MiB, unless a part says otherwise",
        CACHE_BYTES >> 20,
        PAGE_CACHE_BYTES >> 20
    ));
    let all = Part::value_variants();
    let parts = if plan.parts.is_empty() { all } else { &plan.parts };
    for part in parts {
        for size in part.sizes(plan.quick) {
            measure_one(&mut report, plan, *part, *size)
                .with_context(|| format!("{} of {size}", part.name()))?;
        }
    }
    Ok(report)
}

/// Runs one part in its own process and reads its output.
fn measure_one(report: &mut Report, plan: &Plan, part: Part, size: u64) -> Result<()> {
    let scratch = Scratch::new(&plan.scratch, "scale")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["scale-part", part.name(), &size.to_string()]).arg(scratch.join(""));
    let done = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !done.status.success() {
        bail!("ended with {}", done.status);
    }
    for line in String::from_utf8(done.stdout)?.lines() {
        let line: Value = serde_json::from_str(line)?;
        if let Some(text) = line["finding"].as_str() {
            report.finding(format!("{} of {size} {}: {text}", part.name(), part.unit()));
            continue;
        }
        let params = Params::from([
            (part.unit(), json!(size)),
            ("step", line["step"].clone()),
            ("per", line["per"].clone()),
        ]);
        let key =
            |metric| Key { case: part.name(), subject: "extant", metric, params: params.clone() };
        let (seconds, count) = (&line["seconds"], &line["count"]);
        let (Some(seconds), Some(count)) = (seconds.as_f64(), count.as_u64()) else {
            bail!("a step without a time: {line}");
        };
        report.sample(&key("us_per_unit"), seconds * 1e6 / count.max(1) as f64);
        if let Some(mib) = line["peak_mib"].as_f64() {
            report.sample(&key("peak_mib"), mib);
        }
    }
    Ok(())
}

/// Memory of a process besides its caches: the program, free extents (up to 50 MB), inodes of
/// cached files.
const BESIDES: u64 = 96 << 20;
/// In addition, for each group of the volume: the engine's data, and later that of a check.
const BESIDES_OF_A_GROUP: u64 = 256;
/// Memory for metadata in most parts.
const CACHE_BYTES: usize = 64 << 20;
/// Memory for file data in most parts.
const PAGE_CACHE_BYTES: u64 = 128 << 20;

/// Opens a volume for writing, with the limits of most parts.
fn open(device: &Arc<dyn BlockDevice>) -> Result<extant::Filesystem> {
    let mut options = extant::OpenOptions::new();
    options.write(true).cache_bytes(CACHE_BYTES).page_cache_bytes(PAGE_CACHE_BYTES);
    Ok(options.open_device(Arc::clone(device))?)
}

/// A volume file that does not use any space yet.
fn sparse_file(dir: &Path, len: u64) -> Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(FileDevice::create(dir.join("volume.img"), len)?))
}

/// Checks the volume. Errors: it is not clean.
fn check(device: &Arc<dyn BlockDevice>) -> Result<check::Stats> {
    let found = check_device(Arc::clone(device), &check::Options::default(), &())?;
    match found.findings.first().filter(|_| !found.clean) {
        Some(finding) => bail!("the volume is not clean: {finding}"),
        None => Ok(found.stats),
    }
}
