//! `extant-bench undelete`: `rm -r` of a tree, and how many of its files are found again.
//!
//! ```text
//!   writer: Linux, extant mount, library
//!     tree, unmount, mount, rm -r ─┬─ sync ─► copy        at_once
//!                                  ├─ other work ─► copy  after_work
//!                                  └─ unmount ─► copy     after_unmount     a run of its own
//!   copy ─► extant undelete, ext4magic, extundelete ─► files compared with the tree
//! ```
//!
//! `left`, for the subject `volume`: files whose blocks on the device still have their content,
//! without the journal's newer content of them. No program can find more. `contents`: files whose
//! content was found, under any name.
//! `named`: those of them at their own path.

mod recovered;
mod tree;
mod writer;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use extant::mkfs::{MkfsOptions, format};
use extant::{Environment, FileDevice};
use serde_json::json;
use std::sync::Arc;

use crate::build::extant_program;
use crate::process;
use crate::report::{Key, Params, Report};
use crate::rig::{Scratch, chosen, is_root, run};
use recovered::Recovered;
use tree::Tree;
use writer::{Session, Writer};

/// How often other work writes a file and makes it durable.
const WORK_PERIOD: Duration = Duration::from_millis(200);
/// Bytes of a file that other work writes.
const WORK_BYTES: usize = 8192;

/// How much is removed, and what happens afterwards.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the images
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Files that are removed
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    files: usize,
    /// Seconds of other work: five files a second, each synced
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    work: u64,
    /// Size of the volume in GiB, on which that of the journal depends
    #[arg(long, value_name = "GIB", default_value_t = 8)]
    size: u64,
    /// Only this writer: linux, extant or library; repeatable
    #[arg(long, value_name = "WRITER")]
    only: Vec<String>,
    /// Keep the copies of the volume in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { files: 300, work: 2, size: 1, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan { scratch: ".".into(), files: 10_000, work: 60, size: 8, only: Vec::new(), keep: None }
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "undelete")?;
    let mut report = Report::new("undelete");
    report.condition(format!(
        "a volume of {} GiB; {} files of up to {} bytes in directories of {}, removed in another session than they were made \
         in; other work: for {} s five files a second of {WORK_BYTES} bytes, each synced, a fifth of them removed",
        plan.size,
        plan.files,
        tree::LARGEST,
        tree::FILES_OF_A_DIRECTORY,
        plan.work
    ));
    let tree = Tree::of(plan.files);
    for writer in chosen(&plan.only, &Writer::ALL, Writer::name)? {
        if writer.needs_root() && !is_root() {
            report.condition(format!("{}: not measured, it needs root", writer.name()));
            continue;
        }
        let job = Job { plan, tree: &tree, scratch: &scratch, writer };
        job.measure(&mut report)?;
    }
    Ok(report)
}

/// The settings with one writer.
struct Job<'j> {
    plan: &'j Plan,
    tree: &'j Tree,
    scratch: &'j Scratch,
    writer: Writer,
}

impl Job<'_> {
    fn measure(&self, report: &mut Report) -> Result<()> {
        let image = self.scratch.join("volume.img");
        let (places, session) = self.removed(&image)?;
        session.sync()?;
        self.judge("at_once", &image, &places, report)?;
        other_work(&session, Duration::from_secs(self.plan.work))?;
        session.sync()?;
        self.judge("after_work", &image, &places, report)?;
        session.end()?;
        let (places, session) = self.removed(&image)?;
        session.end()?;
        self.judge("after_unmount", &image, &places, report)
    }

    /// Makes a volume with the tree, and removes the tree in a second session, which goes on.
    fn removed(&self, image: &Path) -> Result<(tree::Places, Session)> {
        let _ = fs::remove_file(image);
        self.make(image)?;
        let dir = self.scratch.join("mount");
        let session = self.writer.session(image, &dir)?;
        for (path, content) in self.tree.files() {
            session.write(&path, &content)?;
        }
        session.end()?;
        let places = self.tree.places(image)?;
        let session = self.writer.session(image, &dir)?;
        session.remove_tree(tree::TOP)?;
        Ok((places, session))
    }

    /// A new volume: by mke2fs for Linux, by extant for extant.
    fn make(&self, image: &Path) -> Result<()> {
        let len = self.plan.size << 30;
        if self.writer == Writer::Linux {
            File::create(image)?.set_len(len)?;
            return run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(image))
                .map(drop);
        }
        let device = Arc::new(FileDevice::create(image, len)?);
        format(device, &MkfsOptions::new(), &Environment::default())?;
        Ok(())
    }

    /// Copies the image, and runs each program on the copy.
    fn judge(
        &self,
        case: &'static str,
        image: &Path,
        places: &tree::Places,
        report: &mut Report,
    ) -> Result<()> {
        let copy = match &self.plan.keep {
            Some(dir) => dir.join(format!("{}-{case}.img", self.writer.name())),
            None => self.scratch.join("copy.img"),
        };
        copy_image(image, &copy)?;
        let copy = fs::canonicalize(copy)?;
        // ext4magic finds nothing that was deleted in the present second.
        std::thread::sleep(Duration::from_secs(2));
        let params = Params::from([
            ("writer", json!(self.writer.name())),
            ("files", json!(self.plan.files)),
        ]);
        let mut sample = |subject, metric, value| {
            report.sample(&Key { case, subject, metric, params: params.clone() }, value);
        };
        let left = self.tree.left(&copy, places)?;
        sample("volume", "left", left as f64);
        for (subject, mut command, output) in commands(&self.scratch.join("found"), &copy)? {
            let _ = fs::remove_dir_all(self.scratch.join("found"));
            fs::create_dir(self.scratch.join("found"))?;
            let start = Instant::now();
            // A program that gives up has found what it has found.
            if let Err(error) = process::run(&mut command, None, |_| true) {
                eprintln!("extant-bench: {case}: {subject}: {error:#}");
                continue;
            }
            sample(subject, "wall_s", start.elapsed().as_secs_f64());
            let Recovered { contents, named } = self.tree.compare(&output)?;
            sample(subject, "contents", contents as f64);
            sample(subject, "named", named as f64);
        }
        Ok(())
    }
}

/// The programs that search for deleted files on `copy`, and where each writes what it finds.
fn commands(found: &Path, copy: &Path) -> Result<Vec<(&'static str, Command, PathBuf)>> {
    let mut extant = Command::new(extant_program()?);
    extant.arg("undelete").arg(copy).arg("-o").arg(found);
    let mut commands = vec![("extant", extant, found.to_path_buf())];
    let is_there = |name: &str| Command::new(name).arg("--help").output().is_ok();
    if is_there("ext4magic") {
        for (subject, mode) in [("ext4magic-R", "-R"), ("ext4magic-m", "-m")] {
            let mut command = Command::new("ext4magic");
            command.arg(copy).arg(mode).arg("-d").arg(found).current_dir(found);
            commands.push((subject, command, found.to_path_buf()));
        }
    }
    if is_there("extundelete") {
        let mut command = Command::new("extundelete");
        command.args(["--log", "0", "--restore-all"]).arg(copy).current_dir(found);
        commands.push(("extundelete", command, found.join("RECOVERED_FILES")));
    }
    Ok(commands)
}

/// Copies an image with its holes.
fn copy_image(image: &Path, copy: &Path) -> Result<()> {
    let _ = fs::remove_file(copy);
    run(Command::new("cp").args(["--sparse=always"]).arg(image).arg(copy)).map(drop)
}

/// What goes on after the removal: files are written and synced, and some are removed.
fn other_work(session: &Session, time: Duration) -> Result<()> {
    let start = Instant::now();
    let mut n = 0_u32;
    while start.elapsed() < time {
        let path = format!("work/{}/file {n}", n % 10);
        session.write(&path, &[b'w'; WORK_BYTES]).context("other work")?;
        session.sync_file(&path)?;
        if n % 5 == 4 {
            session.remove_file(&path)?;
        }
        n += 1;
        std::thread::sleep((WORK_PERIOD * n).saturating_sub(start.elapsed()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library, because it needs no mount.
    #[test]
    fn a_removed_tree_is_found_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let image = dir.path().join("volume.img");
        let tree = Tree::of(40);
        let device = Arc::new(FileDevice::create(&image, 64 << 20).expect("an image"));
        format(device, &MkfsOptions::new(), &Environment::default()).expect("a volume");
        let session = Writer::Library.session(&image, dir.path()).expect("it opens");
        for (path, content) in tree.files() {
            session.write(&path, &content).expect("room");
        }
        session.end().expect("it closes");
        let places = tree.places(&image).expect("maps");
        let session = Writer::Library.session(&image, dir.path()).expect("it opens");
        session.remove_tree(tree::TOP).expect("it is there");
        other_work(&session, Duration::from_millis(1)).expect("room");
        session.end().expect("it closes");
        assert_eq!(tree.left(&image, &places).expect("it can be read"), 40);
        let found = dir.path().join("found");
        fs::create_dir_all(&found).expect("room");
        for (n, (path, content)) in tree.files().enumerate() {
            let path = if n % 2 == 0 { found.join(path) } else { found.join(n.to_string()) };
            fs::create_dir_all(path.parent().expect("it has one")).expect("room");
            // The last one is too short.
            let len = if n == 39 { content.len() - 1 } else { content.len() };
            fs::write(path, &content[..len]).expect("room");
        }
        let Recovered { contents, named } = tree.compare(&found).expect("it can be read");
        assert_eq!((contents, named), (39, 20));
    }
}
