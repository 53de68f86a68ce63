//! `extant-bench metadata`: names created, looked up and removed, against the kernel's ext4.
//!
//! ```text
//!   create_unlink   each thread in its own directory: create a file, remove it, repeat
//!   lookup          each thread looks up names of one directory, in random order
//!   big_dir         one directory: all names created, all looked up, all removed, in random order
//! ```
//!
//! Both subjects work on equal volumes in files of the same directory of the same disk, and the
//! time includes no sync. For the kernel the bench uses `mknodat`, `statx` and `unlinkat` relative
//! to the directory: the cheapest calls that do the same.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Barrier;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use extant::mkfs::{InodeCount, MkfsOptions, format};
use extant::{Environment, FileDevice, NewFile, Node, OpenOptions};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, mknodat, openat, statx, unlinkat,
};
use serde_json::json;

use crate::report::{Key, Params, Report};
use crate::rig::scatter;
use crate::rig::{Mount, Scratch, is_root};

/// What is done, where, and how often.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the volumes, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every subject once
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Files made and removed by each thread
    #[arg(long, default_value_t = 200_000)]
    pairs: usize,
    /// Names of the big directory
    #[arg(long, default_value_t = 1_000_000)]
    names: usize,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { rounds: 1, pairs: 20_000, names: 20_000, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan { scratch: ".".into(), rounds: 5, pairs: 200_000, names: 1_000_000 }
    }
}

/// Number of names in the directory for lookups.
const LOOKUP_NAMES: usize = 10_000;

/// A directory that one thread uses.
trait Dir: Send {
    fn create(&self, name: &str) -> Result<()>;
    fn lookup(&self, name: &str) -> Result<()>;
    fn unlink(&self, name: &str) -> Result<()>;
}

/// A volume that is mounted or open.
trait Subject {
    const NAME: &'static str;
    type Dir: Dir;
    /// Creates the directory if it does not exist, and opens it.
    fn dir(&self, name: &str) -> Result<Self::Dir>;
}

struct Extant(extant::Filesystem);

impl Subject for Extant {
    const NAME: &'static str = "extant";
    type Dir = Node;
    fn dir(&self, name: &str) -> Result<Node> {
        let root = self.0.root()?;
        match root.create_dir(name, &NewFile::directory()) {
            Ok(dir) => Ok(dir),
            Err(extant::Error::Exists) => Ok(root.lookup(name)?),
            Err(error) => Err(error.into()),
        }
    }
}

impl Dir for Node {
    fn create(&self, name: &str) -> Result<()> {
        Node::create_file(self, name, &NewFile::default())?;
        Ok(())
    }

    fn lookup(&self, name: &str) -> Result<()> {
        Node::lookup(self, name)?.metadata();
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(Node::remove_file(self, name)?)
    }
}

/// A volume that the kernel has mounted.
struct Kernel(Mount);

fn kernel(image: &Path, dir: &Path) -> Result<Kernel> {
    Ok(Kernel(Mount::image_with(image, dir, "ext4", false, "noatime")?))
}

impl Subject for Kernel {
    const NAME: &'static str = "kernel-ext4";
    type Dir = OwnedFd;
    fn dir(&self, name: &str) -> Result<OwnedFd> {
        let path = self.0.join(name);
        fs::create_dir_all(&path)?;
        Ok(openat(CWD, &path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?)
    }
}

impl Dir for OwnedFd {
    fn create(&self, name: &str) -> Result<()> {
        let mode = Mode::from_raw_mode(0o644);
        Ok(mknodat(self, name, FileType::RegularFile, mode, 0)?)
    }

    fn lookup(&self, name: &str) -> Result<()> {
        statx(self, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
        Ok(())
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(unlinkat(self, name, AtFlags::empty())?)
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "metadata")?;
    let mut report = Report::new("metadata");
    report.condition(format!(
        "volumes of 4 KiB blocks with a journal, room for {} inodes; no sync inside the time; \
         each create and each unlink counts as one",
        inodes(plan)
    ));
    let mut kernel_failed = !is_root();
    for _ in 0..plan.rounds {
        let image = scratch.join("extant.img");
        make_volume(&image, plan)?;
        let fs = OpenOptions::new().write(true).cache_bytes(1 << 30).open(&image)?;
        run(&Extant(fs.clone()), plan, &mut report)?;
        fs.close()?;
        if !kernel_failed {
            let image = scratch.join("kernel.img");
            make_volume(&image, plan)?;
            match kernel(&image, &scratch.join("mnt")) {
                Ok(kernel) => run(&kernel, plan, &mut report)?,
                Err(error) => {
                    eprintln!("extant-bench: kernel-ext4 left out: {error:#}");
                    kernel_failed = true;
                }
            }
        }
    }
    conclude(plan, &mut report);
    Ok(report)
}

fn inodes(plan: &Plan) -> usize {
    plan.names + 50_000
}

fn make_volume(path: &Path, plan: &Plan) -> Result<()> {
    let _ = fs::remove_file(path);
    // A group of 128 MiB has at most 32,768 inodes.
    let bytes = ((inodes(plan) as u64 >> 15) + 8) << 27;
    let options = MkfsOptions::new().inodes(InodeCount::AtLeast(inodes(plan) as u32));
    let device = Arc::new(FileDevice::create(path, bytes)?);
    format(device, &options, &Environment::default())?;
    Ok(())
}

fn key(case: &'static str, subject: &'static str, params: Params) -> Key {
    Key { case, subject, metric: "ops_per_s", params }
}

fn pairs_params(threads: usize, plan: &Plan) -> Params {
    Params::from([("threads", json!(threads)), ("names", json!(plan.pairs))])
}

fn big_params(step: &'static str, plan: &Plan) -> Params {
    Params::from([("threads", json!(1)), ("names", json!(plan.names)), ("step", json!(step))])
}

fn run<S: Subject>(subject: &S, plan: &Plan, report: &mut Report) -> Result<()> {
    for threads in [1, 2] {
        let dirs =
            (0..threads).map(|n| subject.dir(&format!("pairs{n}"))).collect::<Result<_>>()?;
        let rate = in_threads(dirs, 2 * plan.pairs, |dir| {
            for n in 0..plan.pairs {
                let name = format!("file{n}");
                dir.create(&name)?;
                dir.unlink(&name)?;
            }
            Ok(())
        })?;
        report.sample(&key("create_unlink", S::NAME, pairs_params(threads, plan)), rate);
    }
    let dir = subject.dir("lookup")?;
    for n in 0..LOOKUP_NAMES {
        dir.create(&format!("file{n}"))?;
    }
    for threads in [1, 2] {
        let dirs = (0..threads).map(|_| subject.dir("lookup")).collect::<Result<_>>()?;
        let rate = in_threads(dirs, plan.pairs, |dir| {
            (0..plan.pairs)
                .try_for_each(|n| dir.lookup(&format!("file{}", scatter(n, LOOKUP_NAMES))))
        })?;
        let params = Params::from([("threads", json!(threads)), ("names", json!(LOOKUP_NAMES))]);
        report.sample(&key("lookup", S::NAME, params), rate);
    }
    let names: Vec<String> =
        (0..plan.names).map(|n| format!("name-{:08x}", n * 2_654_435_761)).collect();
    for step in ["create", "lookup", "remove"] {
        let rate = in_threads(vec![subject.dir("big")?], names.len(), |dir| {
            for n in 0..names.len() {
                match step {
                    "create" => dir.create(&names[n])?,
                    "lookup" => dir.lookup(&names[scatter(n, names.len())])?,
                    _ => dir.unlink(&names[scatter(n, names.len())])?,
                }
            }
            Ok(())
        })?;
        report.sample(&key("big_dir", S::NAME, big_params(step, plan)), rate);
    }
    Ok(())
}

/// Runs `work` in one thread for each directory, `each` times in each thread. Returns the
/// operations per second of all threads.
fn in_threads<D: Dir>(
    dirs: Vec<D>,
    each: usize,
    work: impl Fn(&D) -> Result<()> + Sync,
) -> Result<f64> {
    let count = dirs.len();
    let barrier = Barrier::new(count + 1);
    let seconds = std::thread::scope(|scope| -> Result<f64> {
        let (barrier, work) = (&barrier, &work);
        let run = |dir: D| {
            move || {
                barrier.wait();
                work(&dir)
            }
        };
        let threads: Vec<_> = dirs.into_iter().map(|dir| scope.spawn(run(dir))).collect();
        barrier.wait();
        let start = Instant::now();
        for thread in threads {
            thread.join().expect("a bench thread panicked")?;
        }
        Ok(start.elapsed().as_secs_f64())
    })?;
    Ok((each * count) as f64 / seconds)
}

fn conclude(plan: &Plan, report: &mut Report) {
    let mut findings = Vec::new();
    let mut compare = |case: &'static str, params: Params, text: String| {
        let own = report.median(&key(case, "extant", params.clone()));
        let theirs = report.median(&key(case, "kernel-ext4", params));
        if let (Some(own), Some(theirs)) = (own, theirs) {
            findings.push(format!("{case}, {text}: {:.2} times kernel-ext4", own / theirs));
        }
    };
    for threads in [1, 2] {
        compare("create_unlink", pairs_params(threads, plan), format!("{threads} threads"));
    }
    for step in ["create", "lookup", "remove"] {
        compare("big_dir", big_params(step, plan), step.to_string());
    }
    let pairs =
        |threads| report.median(&key("create_unlink", "extant", pairs_params(threads, plan)));
    if let (Some(one), Some(two)) = (pairs(1), pairs(2)) {
        findings
            .push(format!("create_unlink: two threads do {:.2} times what one does", two / one));
    }
    for finding in findings {
        report.finding(finding);
    }
}
