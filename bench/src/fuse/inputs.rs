//! What the cases need, made once, next to the volumes.
//!
//! ```text
//!   tree.tar   small files in directories          untar, git_status, rm_r
//!   source     of a program, as a tar and a repository
//!   postgres   a data directory for pgbench
//!   programs   those that this machine has       a missing one is reported with its cases
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::run::TREE_CASES;
use super::source::{self, Source};
use super::{Plan, programs};
use crate::load::answers;
use crate::load::postgres::Template;
use crate::report::Report;
use crate::rig::{Scratch, run};

/// Number of directories in the archive, and the size of its files.
const ARCHIVE_DIRS: usize = 200;
const ARCHIVE_FILE_BYTES: usize = 1500;

/// A program that cases need, and arguments with which it succeeds.
struct Needed {
    name: &'static str,
    arguments: &'static [&'static str],
    cases: &'static [&'static str],
}

const NEEDED: [Needed; 8] = [
    Needed { name: "tar", arguments: &["--version"], cases: &TREE_CASES },
    Needed { name: "tar", arguments: &["--version"], cases: &source::CASES },
    Needed { name: "fio", arguments: &["--version"], cases: &programs::FIO_CASES },
    Needed { name: "git", arguments: &["--version"], cases: &["git_status", "git_clone"] },
    Needed { name: "make", arguments: &["--version"], cases: &["build_source"] },
    Needed { name: "cc", arguments: &["--version"], cases: &["build_source"] },
    Needed { name: "sysbench", arguments: &["--version"], cases: &[programs::SYSBENCH_CASE] },
    Needed { name: "sqlite3", arguments: &["--version"], cases: &["sqlite_commits"] },
];

/// See the module.
pub(super) struct Inputs {
    pub(super) archive: PathBuf,
    /// The source of a program, if a case needs it.
    pub(super) source: Option<Source>,
    /// PostgreSQL with its tables, if a case needs it.
    pub(super) postgres: Option<Template>,
    /// Cases that cannot run here.
    left_out: Vec<&'static str>,
}

impl Inputs {
    pub(super) fn new(plan: &Plan, scratch: &Scratch, report: &mut Report) -> Result<Inputs> {
        let archive = scratch.join("tree.tar");
        let mut inputs = Inputs { archive, source: None, postgres: None, left_out: Vec::new() };
        for Needed { name, arguments, cases } in NEEDED {
            if cases.iter().any(|case| plan.wants(case)) && !answers(name, arguments) {
                inputs.leave_out(cases, &format!("{name} is missing"), report);
            }
        }
        let lacking = inputs.left_out.clone();
        let wants = |case: &&str| plan.wants(case) && !lacking.contains(case);
        if TREE_CASES.iter().any(wants) {
            make_archive(&inputs.archive, plan.files)?;
        }
        if source::CASES.iter().any(wants) {
            let repository = wants(&"git_clone");
            let modules = plan.files / 200;
            let made = Source::new(scratch, plan.source.as_deref(), modules, repository);
            inputs.source = Some(made.context("the source of a program")?);
        }
        if wants(&programs::PGBENCH_CASE) {
            match Template::new(scratch) {
                Ok(template) => inputs.postgres = Some(template),
                Err(error) => {
                    inputs.leave_out(&[programs::PGBENCH_CASE], &format!("{error:#}"), report)
                }
            }
        }
        Ok(inputs)
    }

    /// Whether this machine has all that a case needs.
    pub(super) fn has(&self, case: &str) -> bool {
        !self.left_out.contains(&case)
    }

    fn leave_out(&mut self, cases: &[&'static str], reason: &str, report: &mut Report) {
        report.left_out(format!("{reason}: left out: {}", cases.join(", ")));
        self.left_out.extend(cases);
    }
}

/// Makes an archive of small files in directories.
fn make_archive(path: &Path, files: usize) -> Result<()> {
    let dir = path.with_extension("dir");
    for n in 0..ARCHIVE_DIRS {
        fs::create_dir_all(dir.join(format!("dir{n:03}")))?;
    }
    let content = vec![b'x'; ARCHIVE_FILE_BYTES];
    for n in 0..files {
        fs::write(dir.join(format!("dir{:03}/file{n:06}", n % ARCHIVE_DIRS)), &content)?;
    }
    pack(&dir, path)
}

/// Packs the content of a directory into an archive, and removes the directory.
pub(super) fn pack(dir: &Path, archive: &Path) -> Result<()> {
    run(Command::new("tar").arg("-cf").arg(archive).arg("-C").arg(dir).arg("."))?;
    Ok(fs::remove_dir_all(dir)?)
}
