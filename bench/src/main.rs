//! `extant-bench`: extant's mechanisms against rivals, on one machine, in one run.
//!
//! ```text
//!   extant-bench VERB ──► a bench fills a Report with samples, round by round
//!                            │
//!                            ├── a table for people         standard output
//!                            ├── --json FILE                one object a bench, a line each
//!                            └── --report DIR               DIR/VERB.txt, DIR/VERB.json, and DIR/report.html of all
//! ```

#![forbid(unsafe_code)]

mod backing;
mod build;
mod crc;
mod direct;
mod dontcache;
mod fallocate;
mod fsync;
mod fuse;
mod metadata;
mod overwrite;
mod process;
mod programs;
mod published;
mod report;
mod rig;
mod serve;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::report::{Host, Report};

/// Measures extant's mechanisms against rivals, side by side in one run.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// End within 60 seconds; good for a check, not for figures
    #[arg(long, global = true)]
    quick: bool,
    /// Write the figures to FILE as JSON, one object a bench, a line each
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write each bench's table and JSON into DIR, and one page of pictures of all of them
    #[arg(long, global = true, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// Figures of earlier runs, and where their page goes.
#[derive(Clone, clap::Args)]
struct Picture {
    /// Files that --json wrote
    #[arg(required = true, value_name = "JSON")]
    files: Vec<PathBuf>,
    /// The page to write
    #[arg(short, long, value_name = "HTML")]
    output: PathBuf,
    /// Write its first picture alone to SVG, too
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,
}

impl Picture {
    fn draw(&self) -> Result<()> {
        let mut benches = Vec::new();
        for path in &self.files {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                benches
                    .push(serde_json::from_str(line).with_context(|| {
                        format!("{} is not what --json writes", path.display())
                    })?);
            }
        }
        let write = |path: &Path, text: String| {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if let Some(path) = &self.plot {
            write(path, report::plot(&benches))?;
        }
        write(&self.output, report::page(&benches, "extant-bench"))
    }
}

/// The benches.
#[derive(Clone, Subcommand)]
enum Verb {
    /// CRC32C whole and after a change: full, flip, splice, combine
    Crc,
    /// An image from a tree, checked and read: against mke2fs, tar, e2fsck and the kernel
    Build(build::Plan),
    /// Space for a file in 64 KiB pieces, at several block sizes and fullnesses: against the kernel
    Fallocate(fallocate::Plan),
    /// Names made, looked up and removed: against the kernel
    Metadata(metadata::Plan),
    /// Small writes over cached bytes, by folio size: against the kernel's ext4, XFS and tmpfs
    Overwrite(overwrite::Plan),
    /// Writes whose bytes do not stay in the cache, by policy: against buffered ones and the kernel's own
    Dontcache(dontcache::Plan),
    /// Small changes made durable: by full commits, fast commits and the byte log, against the kernel
    Fsync(fsync::Plan),
    /// Reads and writes past the page cache, with copies and without: against the device and the kernel
    Direct(direct::Plan),
    /// Programs' work on a mount: against fuse2fs, files in memory on the same transport, and the kernel
    Fuse(fuse::Plan),
    /// SQLite, sysbench on MariaDB and fio on a mount, by how its fsync is made durable: against fuse2fs and
    /// the kernel
    Programs(programs::Plan),
    #[command(hide = true)]
    Serve(serve::Serve),
    /// Every bench, one after the other
    All,
    /// One page of pictures of runs whose JSON was kept
    Picture(Picture),
}

impl Verb {
    /// Runs the benches that the verb names.
    fn run(&self, quick: bool) -> Result<Vec<Report>> {
        Ok(match self {
            Verb::Crc => vec![crc::run(crc::Plan::new(quick))?],
            Verb::Build(plan) if quick => vec![build::measure(&plan.clone().quick())?],
            Verb::Build(plan) => vec![build::measure(plan)?],
            Verb::Fallocate(plan) if quick => vec![fallocate::measure(&plan.clone().quick())?],
            Verb::Fallocate(plan) => vec![fallocate::measure(plan)?],
            Verb::Metadata(plan) if quick => vec![metadata::measure(&plan.clone().quick())?],
            Verb::Metadata(plan) => vec![metadata::measure(plan)?],
            Verb::Overwrite(plan) if quick => vec![overwrite::measure(&plan.clone().quick())?],
            Verb::Overwrite(plan) => vec![overwrite::measure(plan)?],
            Verb::Dontcache(plan) if quick => vec![dontcache::measure(&plan.clone().quick())?],
            Verb::Dontcache(plan) => vec![dontcache::measure(plan)?],
            Verb::Fsync(plan) if quick => vec![fsync::measure(&plan.clone().quick())?],
            Verb::Fsync(plan) => vec![fsync::measure(plan)?],
            Verb::Direct(plan) if quick => vec![direct::measure(&plan.clone().quick())?],
            Verb::Direct(plan) => vec![direct::measure(plan)?],
            Verb::Fuse(plan) if quick => vec![fuse::measure(&plan.clone().quick())?],
            Verb::Fuse(plan) => vec![fuse::measure(plan)?],
            Verb::Programs(plan) if quick => vec![programs::measure(&plan.clone().quick())?],
            Verb::Programs(plan) => vec![programs::measure(plan)?],
            Verb::Serve(serve) => {
                serve.run()?;
                Vec::new()
            }
            Verb::Picture(picture) => {
                picture.draw()?;
                Vec::new()
            }
            Verb::All => {
                let mut reports = Verb::Crc.run(quick)?;
                reports.extend(Verb::Build(build::Plan::standard()).run(quick)?);
                reports.extend(Verb::Fallocate(fallocate::Plan::standard()).run(quick)?);
                reports.extend(Verb::Metadata(metadata::Plan::standard()).run(quick)?);
                reports.extend(Verb::Overwrite(overwrite::Plan::standard()).run(quick)?);
                reports.extend(Verb::Dontcache(dontcache::Plan::standard()).run(quick)?);
                reports.extend(Verb::Fsync(fsync::Plan::standard()).run(quick)?);
                reports.extend(Verb::Direct(direct::Plan::standard()).run(quick)?);
                reports.extend(Verb::Fuse(fuse::Plan::standard()).run(quick)?);
                reports.extend(Verb::Programs(programs::Plan::standard()).run(quick)?);
                reports
            }
        })
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    let host = Host::of_this_machine();
    // Opened first: a bad path should not cost a long run.
    let mut json = cli.json.as_deref().map(create).transpose()?;
    if let Some(dir) = &cli.report {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let mut objects = Vec::new();
    for report in cli.verb.run(cli.quick)? {
        let object = report.json(&host);
        let (table, line) = (report.table(&host), object.to_string());
        objects.push(object);
        print!("{table}");
        if let Some(file) = &mut json {
            writeln!(file, "{line}").context("cannot write the JSON file")?;
        }
        if let Some(dir) = &cli.report {
            write!(create(&dir.join(format!("{}.txt", report.bench)))?, "{table}")?;
            writeln!(create(&dir.join(format!("{}.json", report.bench)))?, "{line}")?;
        }
    }
    if let Some(dir) = &cli.report {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let page = report::page(&objects, &format!("extant-bench {}", words.join(" ")));
        write!(create(&dir.join("report.html"))?, "{page}")?;
    }
    Ok(())
}

fn create(path: &Path) -> Result<fs::File> {
    fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))
}
