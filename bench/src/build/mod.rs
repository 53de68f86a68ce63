//! `extant-bench build`: builds an image from a real tree, checks it, and reads all of it.
//!
//! ```text
//!   tree     SRC ─► image, durable      extant build │ mke2fs, mksquashfs, cp, tar, …
//!   archive  tar of SRC ─► image        extant build │ tar2sqfs
//!   oci      OCI layout ─► image        extant build │ umoci, to a directory
//!   check    image ─► verdict           extant check │ e2fsck -fn
//!   walk     image ─► every byte read   extant's library │ the kernel's mount, read-only
//! ```
//!
//! All subjects write to the same directory of the same disk, and the time includes the flush of
//! the output. Sources are read once before the first round, so every subject finds them in the
//! page cache.

mod read;
mod rivals;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;

use crate::process::{Cost, run};
use crate::report::{Key, Params, Report};
use crate::rig::{self, Scratch, is_root};
pub(crate) use read::warm;
use read::{walk_extant, walk_kernel};
use rivals::{Job, Rival};

/// A small tree, a middle one and a large one.
const SOURCES: [&str; 3] = ["/etc", "/usr/include", "/usr"];

/// Archives are made of trees of at most this many bytes.
const ARCHIVE_MAX: u64 = 1 << 30;

/// What is built, where, and how often.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory to build from; may be repeated
    #[arg(long, value_name = "DIR", default_values = SOURCES)]
    pub(crate) source: Vec<PathBuf>,
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
        let is_own = self.source.iter().map(PathBuf::as_path).eq(SOURCES.map(Path::new));
        let source = match is_own && small.is_dir() {
            true => vec![small.to_path_buf()],
            false => self.source,
        };
        Plan { source, rounds: 1, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan { source: SOURCES.map(PathBuf::from).to_vec(), scratch: ".".into(), rounds: 5 }
    }
}

/// Path of the `extant` program: from `EXTANT_BIN`, or in the directory of this program.
pub(crate) fn extant_program() -> Result<PathBuf> {
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
    let mut report = Report::new("build");
    report.condition(
        "sources in the page cache; outputs flushed inside the time; squashfs and erofs not compressed, but lz4 by \
         tar2sqfs",
    );
    for source in plan.source.iter().filter(|source| source.is_dir()) {
        Tree::new(plan, &extant, source, &mut report)?.measure(plan.rounds)?;
    }
    Ok(report)
}

/// One source, and its figures.
struct Tree<'a> {
    extant: &'a Path,
    source: &'a Path,
    scratch: Scratch,
    entries: u64,
    params: Params,
    report: &'a mut Report,
}

impl<'a> Tree<'a> {
    fn new(
        plan: &Plan,
        extant: &'a Path,
        source: &'a Path,
        report: &'a mut Report,
    ) -> Result<Tree<'a>> {
        let scratch = Scratch::new(&plan.scratch, "build")?;
        let (entries, bytes) = warm(source)?;
        report.condition(format!(
            "source {}: {entries} entries, {} MiB of data",
            source.display(),
            bytes >> 20
        ));
        let params = Params::from([("files", json!(entries)), ("bytes", json!(bytes))]);
        Ok(Tree { extant, source, scratch, entries, params, report })
    }

    fn key(&self, case: &'static str, subject: &'static str, metric: &'static str) -> Key {
        Key { case, subject, metric, params: self.params.clone() }
    }

    fn sample(&mut self, case: &'static str, subject: &'static str, cost: Cost) {
        let (wall_s, peak_mib) =
            (self.key(case, subject, "wall_s"), self.key(case, subject, "peak_mib"));
        self.report.sample(&wall_s, cost.wall_s);
        self.report.sample(&peak_mib, cost.peak_mib);
    }

    fn measure(mut self, rounds: usize) -> Result<()> {
        let small = self.params["bytes"].as_u64().is_some_and(|bytes| bytes <= ARCHIVE_MAX);
        let (archive, layout) = (self.scratch.join("source.tar"), self.scratch.join("source.oci"));
        let mut cases = vec![("tree", self.source.to_path_buf(), self.here(&Rival::TREE))];
        if small && rivals::has("tar") {
            let mut tar = Command::new("tar");
            rig::run(tar.arg("-cf").arg(&archive).arg("-C").arg(self.source).arg("."))?;
            // umoci also makes the layout.
            let oci = self.here(&Rival::OCI);
            if !oci.is_empty() {
                rivals::oci_layout(&archive, &layout)?;
                cases.push(("oci", layout, oci));
            }
            cases.push(("archive", archive, self.here(&Rival::ARCHIVE)));
        }
        let mut left_out = Vec::new();
        for _ in 0..rounds {
            let image = self.scratch.join("extant.img");
            // The tree's image comes last, for the other cases.
            for (case, source, rivals) in cases.iter().rev() {
                let _ = fs::remove_file(&image);
                let mut build = Command::new(self.extant);
                build.arg("build").arg(source).arg("-o").arg(&image);
                let cost = run(&mut build, None, |status| status == 0)?;
                self.sample(case, "extant", cost);
                let job = Job {
                    source,
                    output: self.scratch.join("rival"),
                    mount: self.scratch.join("mnt"),
                    bytes: fs::metadata(&image)?.len(),
                    entries: self.entries,
                };
                for rival in rivals {
                    if left_out.contains(&rival.name) {
                        continue;
                    }
                    match rival.run(&job) {
                        Ok(cost) => self.sample(case, rival.name, cost),
                        Err(error) => {
                            self.report.left_out(format!("{} left out: {error:#}", rival.name));
                            left_out.push(rival.name);
                        }
                    }
                }
            }
            self.check(&image)?;
            self.walk(&image, &mut left_out)?;
        }
        self.conclude();
        Ok(())
    }

    /// Those that can run here. The others are reported.
    fn here(&mut self, rivals: &'static [Rival]) -> Vec<&'static Rival> {
        let (here, absent): (Vec<_>, Vec<_>) = rivals.iter().partition(|rival| rival.is_here());
        for rival in absent {
            self.report.left_out(format!("{} left out: it cannot be run here", rival.name));
        }
        here
    }

    /// Both find the image in the page cache.
    fn check(&mut self, image: &Path) -> Result<()> {
        warm(image)?;
        let success = |status| status == 0;
        let cost = run(Command::new(self.extant).arg("check").arg(image), None, success)?;
        self.sample("check", "extant", cost);
        if !rivals::has("e2fsck") {
            self.report.left_out("e2fsck left out: it cannot be run here");
        } else {
            let cost = run(Command::new("e2fsck").arg("-fn").arg(image), None, success)?;
            self.sample("check", "e2fsck", cost);
        }
        Ok(())
    }

    fn walk(&mut self, image: &Path, left_out: &mut Vec<&'static str>) -> Result<()> {
        const KERNEL: &str = "kernel-ext4";
        let (own, seconds) = walk_extant(image)?;
        let key = self.key("walk", "extant", "wall_s");
        self.report.sample(&key, seconds);
        if !is_root() || left_out.contains(&KERNEL) {
            return Ok(());
        }
        match walk_kernel(image, &self.scratch.join("mnt")) {
            Ok((theirs, _)) if own != theirs => {
                bail!("extant read {own} bytes of the image, the kernel {theirs}")
            }
            Ok((_, seconds)) => {
                let key = self.key("walk", KERNEL, "wall_s");
                self.report.sample(&key, seconds);
            }
            Err(error) => {
                self.report.left_out(format!("{KERNEL} left out: {error:#}"));
                left_out.push(KERNEL);
            }
        }
        Ok(())
    }

    /// Reports ratios to the rivals, one line for each.
    fn conclude(&mut self) {
        for row in self.report.keys() {
            if row.params != self.params || row.metric != "wall_s" || row.subject == "extant" {
                continue;
            }
            let own = self.report.median(&Key { subject: "extant", ..row.clone() });
            let theirs = self.report.median(&row);
            if let (Some(own), Some(theirs)) = (own, theirs) {
                let (source, case, rival) = (self.source.display(), row.case, row.subject);
                let ratio = theirs / own;
                let text = format!("{source}, {case}: {ratio:.2} times as fast as {rival}");
                self.report.finding(text);
            }
        }
    }
}
