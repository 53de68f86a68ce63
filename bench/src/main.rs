//! `extant-bench`: measures extant's mechanisms against rivals, on one machine, in one run.
//!
//! ```text
//!   extant-bench VERB ──► a bench fills a Report with samples, round by round
//!                            │
//!                            ├── a table for people         standard output
//!                            ├── --json FILE                one object a bench, a line each
//!                            └── --report DIR               DIR/VERB.txt, DIR/VERB.json, and one
//!                                                           DIR/report.html
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
mod interrupt;
mod load;
mod metadata;
mod mounted;
mod overwrite;
mod process;
mod programs;
mod published;
mod repair;
mod report;
mod rig;
mod scale;
mod serve;
mod undelete;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use serde_json::Value;

use crate::report::{Host, Report};

/// Measures extant's mechanisms against rivals, side by side in one run.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
    /// End within 60 seconds (all: minutes); good for a check, not for figures
    #[arg(long, global = true)]
    quick: bool,
    /// Write the figures to FILE as JSON, one object a bench, a line each
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table and JSON of each bench into DIR as it ends, one page with all pictures
    /// (report.html), and its first picture alone (plot.svg), a bar for each of twelve jobs
    #[arg(long, global = true, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Bind the bench, its servers and its programs to the first N processors
    #[arg(long, global = true, value_name = "N")]
    cpus: Option<usize>,
}

/// A run whose JSON was kept.
#[derive(Clone, clap::Args)]
struct Kept {
    /// Directory that --report wrote, or that --keep did
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Write only the content of README's picture into DIR: plot.svg and its rows as JSON. Without
    /// this option, write report.html and plot.svg next to the JSON
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl Kept {
    fn draw(&self) -> Result<()> {
        let benches = read_run(&self.from)?;
        let write = |path: &Path, text: &str| {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let Some(dir) = &self.keep else {
            let words = format!("extant-bench report --from {}", self.from.display());
            write(&self.from.join("report.html"), &report::page(&benches, &words))?;
            let picture = report::picture(&benches);
            return picture.map_or(Ok(()), |svg| write(&self.from.join("plot.svg"), &svg));
        };
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let kept: Vec<Value> = benches.iter().filter_map(report::kept).collect();
        let Some(picture) = report::picture(&kept) else {
            bail!("{} has no figures of the picture's jobs", self.from.display());
        };
        for bench in &kept {
            let name = format!("{}.json", bench["bench"].as_str().unwrap_or_default());
            write(&dir.join(name), &format!("{bench:#}\n"))?;
        }
        write(&dir.join("plot.svg"), &picture)
    }
}

/// The objects in a directory's JSON files, in the order of the files' names.
fn read_run(dir: &Path) -> Result<Vec<Value>> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    let mut paths: Vec<PathBuf> = paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    paths.sort();
    ensure!(!paths.is_empty(), "{} has no JSON files: make them with --report", dir.display());
    let mut benches = Vec::new();
    for path in paths {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for object in serde_json::Deserializer::from_str(&text).into_iter() {
            benches.push(
                object.with_context(|| format!("{} is not what --json writes", path.display()))?,
            );
        }
    }
    Ok(benches)
}

/// The benches.
#[derive(Clone, Subcommand)]
enum Verb {
    /// CRC32C whole and after a change: full, flip, splice, combine
    Crc,
    /// An image from a tree, checked and read: against mke2fs, mksquashfs, tar, e2fsck and others
    Build(build::Plan),
    /// A sound volume and a damaged one, repaired: against e2fsck
    Repair(repair::Plan),
    /// Removed trees, found again: against ext4magic and extundelete
    Undelete(undelete::Plan),
    /// Space for a file in 64 KiB pieces, at several block sizes and fullnesses: against the kernel
    Fallocate(fallocate::Plan),
    /// Names made, looked up and removed: against the kernel
    Metadata(metadata::Plan),
    /// Small writes over cached bytes, by folio size: against the kernel's ext4, XFS and tmpfs
    Overwrite(overwrite::Plan),
    /// Writes whose bytes do not stay in the cache, by policy: against buffered writes and the
    /// kernel's own
    Dontcache(dontcache::Plan),
    /// Small changes made durable, by full commits, fast commits and the byte log: against the
    /// kernel
    Fsync(fsync::Plan),
    /// Reads and writes past the page cache, with and without copies: against device and kernel
    Direct(direct::Plan),
    /// Programs on a mount: against fuse2fs, files in memory on the same transport, and the kernel
    Fuse(fuse::Plan),
    /// SQLite, sysbench on MariaDB and fio on a mount, by the way of fsync: against fuse2fs and the
    /// kernel
    Programs(programs::Plan),
    #[command(hide = true)]
    Serve(serve::Serve),
    /// Very large devices, trees and files, full volumes, little memory: cost of a unit of work
    Scale(scale::Plan),
    #[command(hide = true)]
    ScalePart(scale::One),
    /// Every bench, one after the other
    All(All),
    /// The page of pictures and README's picture, from a run whose JSON was kept
    Report(Kept),
}

/// How all benches are run.
#[derive(Clone, clap::Args)]
struct All {
    /// Rounds of each bench, instead of its own number
    #[arg(long)]
    rounds: Option<usize>,
    /// Directory that the bench "build" makes its image from, also with --quick [default: /etc,
    /// /usr/include, /usr]
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
}

/// The benches with a plan: `Variant module`, in the order of `all`.
macro_rules! planned {
    ($($variant:ident $module:ident),*) => {
        impl Verb {
            fn standard() -> Vec<Verb> {
                vec![Verb::Crc, $(Verb::$variant($module::Plan::standard())),*]
            }

            /// With less work, for a check.
            fn quick(self) -> Verb {
                match self {
                    $(Verb::$variant(plan) => Verb::$variant(plan.quick()),)*
                    other => other,
                }
            }

            /// Runs it. Returns `None` if it measures nothing.
            fn run(&self, quick: bool) -> Result<Option<Report>> {
                match self {
                    Verb::Crc => crc::run(crc::Plan::new(quick)).map(Some),
                    $(Verb::$variant(plan) => $module::measure(plan).map(Some),)*
                    Verb::Serve(serve) => serve.run().map(|()| None),
                    Verb::ScalePart(one) => one.run().map(|()| None),
                    Verb::Report(kept) => kept.draw().map(|()| None),
                    Verb::All(_) => Ok(None),
                }
            }
        }
    };
}

planned!(
    Build build, Repair repair, Undelete undelete, Fallocate fallocate, Metadata metadata, Overwrite overwrite, Dontcache dontcache, Fsync fsync,
    Direct direct, Fuse fuse, Programs programs, Scale scale
);

impl Verb {
    /// The benches that the verb names, in order.
    fn benches(&self, quick: bool) -> Vec<Verb> {
        let benches = match self {
            Verb::All(_) => Verb::standard(),
            one => vec![one.clone()],
        };
        let sized = benches.into_iter().map(|bench| if quick { bench.quick() } else { bench });
        let Verb::All(All { rounds, source }) = self else { return sized.collect() };
        sized
            .map(|bench| rounds.map_or(bench.clone(), |rounds| bench.in_rounds(rounds)))
            .map(|bench| source.as_ref().map_or(bench.clone(), |dir| bench.of_tree(dir)))
            .collect()
    }

    /// Uses this directory as the tree, if the bench needs one.
    fn of_tree(mut self, dir: &Path) -> Verb {
        if let Verb::Build(plan) = &mut self {
            plan.source = vec![dir.to_path_buf()];
        }
        self
    }

    /// Sets the number of rounds, if the bench has rounds.
    fn in_rounds(mut self, n: usize) -> Verb {
        match &mut self {
            Verb::Build(build::Plan { rounds, .. })
            | Verb::Repair(repair::Plan { rounds, .. })
            | Verb::Fallocate(fallocate::Plan { rounds, .. })
            | Verb::Metadata(metadata::Plan { rounds, .. })
            | Verb::Overwrite(overwrite::Plan { rounds, .. })
            | Verb::Dontcache(dontcache::Plan { rounds, .. })
            | Verb::Fsync(fsync::Plan { rounds, .. })
            | Verb::Direct(direct::Plan { rounds, .. })
            | Verb::Fuse(fuse::Plan { rounds, .. })
            | Verb::Programs(programs::Plan { rounds, .. }) => *rounds = n,
            _ => {}
        }
        self
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.verb {
        // These are parts of a bench and end with it.
        Verb::Serve(_) | Verb::ScalePart(_) => run(&cli),
        _ => interrupt::watch().and_then(|()| run(&cli)),
    };
    interrupt::let_tidy();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    if let Some(count) = cli.cpus {
        rig::bind(count)?;
    }
    let host = Host::of_this_machine();
    // Opened first, so that a wrong path does not cost a long run.
    let mut json = cli.json.as_deref().map(create).transpose()?;
    if let Some(dir) = &cli.report {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mut objects, mut failed) = (Vec::new(), 0);
    let benches = cli.verb.benches(cli.quick);
    for bench in &benches {
        let mut report = match bench.run(cli.quick) {
            Ok(Some(report)) => report,
            Ok(None) => continue,
            Err(error) if benches.len() == 1 => return Err(error),
            Err(error) => {
                eprintln!("extant-bench: {error:#}");
                failed += 1;
                continue;
            }
        };
        if let Some(count) = cli.cpus {
            report.condition(format!(
                "--cpus {count}: bench, servers and programs bound to that many processors, the kernel's \
                 threads to none"
            ));
        }
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
            let page = report::page(&objects, &format!("extant-bench {}", words.join(" ")));
            write!(create(&dir.join("report.html"))?, "{page}")?;
            if let Some(picture) = report::picture(&objects) {
                write!(create(&dir.join("plot.svg"))?, "{picture}")?;
            }
        }
    }
    ensure!(failed == 0, "{failed} of {} benches failed", benches.len());
    Ok(())
}

fn create(path: &Path) -> Result<fs::File> {
    fs::File::create(path).with_context(|| format!("cannot create {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn benches(words: &[&str]) -> Vec<Verb> {
        let cli = Cli::parse_from(["extant-bench"].iter().chain(words));
        cli.verb.benches(cli.quick)
    }

    #[test]
    fn all_takes_a_tree_also_when_it_is_quick() {
        for words in [&["all", "--source", "/srv"][..], &["all", "--quick", "--source", "/srv"]] {
            let found = benches(words);
            let build = found.iter().find_map(|verb| match verb {
                Verb::Build(plan) => Some(plan.source.clone()),
                _ => None,
            });
            assert_eq!(build, Some(vec![PathBuf::from("/srv")]));
        }
    }

    #[test]
    fn a_run_that_was_kept_is_drawn_and_one_without_json_is_an_error() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = read_run(dir.path()).expect_err("nothing is there");
        assert!(error.to_string().contains("has no JSON files"), "{error:#}");
        fs::write(dir.path().join("a.json"), "{\"bench\": ").expect("a file");
        let error = read_run(dir.path()).expect_err("half an object");
        assert!(error.to_string().contains("is not what --json writes"), "{error:#}");

        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks/run");
        let kept = dir.path().join("kept");
        Kept { from: run.into(), keep: Some(kept.clone()) }.draw().expect("kept");
        // Keeping from a kept run changes nothing.
        for name in ["plot.svg", "fuse.json"] {
            let read = |dir: &Path| fs::read_to_string(dir.join(name)).expect(name);
            assert!(read(&kept) == read(Path::new(run)), "{name}");
        }
        Kept { from: kept.clone(), keep: None }.draw().expect("drawn");
        assert!(kept.join("report.html").is_file());
    }
}
