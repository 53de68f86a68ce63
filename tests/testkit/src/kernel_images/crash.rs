//! Crash states made by this machine's kernel: the content of the device when the power is cut
//! after a persistence call.
//!
//! They are never mounted again here: see [`LoopMount`].

use std::fs::File;
use std::path::{Path, PathBuf};

use super::clean::make_with_journal;
use super::scenario::{Must, everyday, run_scenario};
use crate::loop_mount::LoopMount;
use crate::manifest::Manifest;
use crate::scratch::copy_sparse;

/// One crash state of the list.
#[derive(Debug, Clone)]
pub struct CrashCase {
    /// Its unique name: variant and scenario.
    pub name: String,
    /// Options for mke2fs.
    pub mkfs: String,
    /// Mount options in addition to `noatime`.
    pub mount: String,
    /// The scenario's name.
    pub scenario: String,
}

/// A finished crash state.
#[derive(Debug)]
pub struct CrashState {
    /// The image.
    pub img: PathBuf,
    /// Its external journal.
    pub journal: Option<PathBuf>,
    /// What must survive.
    pub must: Vec<Must>,
    /// The tree just before the crash, synced or not.
    pub live: Manifest,
}

const MIB: u64 = 32;
const FC: &str = "-b 4096 -O fast_commit";

/// Variants that each run four scenarios: a mixed one, revokes, fallocate (or what the format has
/// instead), and a random one.
const FULL_COMMIT: &[(&str, &str, &str)] = &[
    ("1k", "-b 1024", ""),
    ("2k", "-b 2048", ""),
    ("nocsum", "-b 4096 -O ^metadata_csum", ""),
    ("csum1", "-b 4096 -O ^metadata_csum", "journal_checksum"),
    ("async", "-b 4096", "journal_async_commit,data=writeback"),
    ("async-nocsum", "-b 4096 -O ^metadata_csum", "journal_async_commit,data=writeback"),
    ("no64", "-b 4096 -O ^64bit", ""),
    ("ext3-1k", "-t ext3 -b 1024", ""),
    ("ext3-4k", "-t ext3 -b 4096", ""),
    ("datajournal", "-b 4096", "data=journal"),
    ("datajournal-1k", "-b 1024", "data=journal"),
    ("writeback", "-b 4096", "data=writeback"),
    ("nodelalloc", "-b 4096", "nodelalloc"),
    ("bigalloc", "-b 4096 -O bigalloc -C 16384", ""),
    ("inline", "-b 4096 -O inline_data", ""),
    ("extjournal", "-b 4096 -J device=JOURNAL", ""),
    ("eainode", "-b 4096 -O ea_inode", ""),
];

/// Variants of fast commits, five scenarios each.
const FAST_COMMIT: &[(&str, &str)] = &[
    ("inline", "-b 4096 -O fast_commit,inline_data"),
    ("bigalloc", "-b 4096 -O fast_commit,bigalloc -C 16384"),
    ("nocsum", "-b 4096 -O fast_commit,^metadata_csum"),
    ("no64", "-b 4096 -O fast_commit,^64bit"),
    ("noextent", "-b 4096 -O fast_commit,^extent,^64bit"),
    ("orphanfile", "-b 4096 -O fast_commit,orphan_file"),
    ("i128", "-b 4096 -I 128 -O fast_commit"),
    ("extjournal", "-b 4096 -O fast_commit -J device=JOURNAL"),
];

const SINGLE: &[(&str, &str, &str)] = &[
    ("wrap-4k", "-b 4096 -J size=4", "wrap"),
    ("wrap-1k", "-b 1024 -J size=1", "wrap"),
    ("wrap-fc", "-b 4096 -O fast_commit -J size=5", "wrap"),
    ("wrap-fc1k", "-b 1024 -O fast_commit -J size=2", "many"),
    ("orphanfile-orphans", "-b 4096 -O orphan_file", "orphans"),
    ("orphanfile1k-orphans", "-b 1024 -O orphan_file", "orphans"),
    ("orphans-1k", "-b 1024", "orphans"),
    ("orphans-noextent", "-b 1024 -O ^extent,^64bit", "orphans"),
    ("nojournal-mixed", "-b 4096 -O ^has_journal", "mixed"),
    ("ext2-mixed", "-t ext2 -b 1024", "mixed"),
];

/// Random scenarios in addition to the table's if `EXTANT_SEED` is set, as `make soak` does.
const SOAK_CASES: u64 = 60;

/// Every case, about 150; more with `EXTANT_SEED`.
pub fn crash_cases() -> Vec<CrashCase> {
    let mut cases = Vec::new();
    let mut add = |variant: &str, mkfs: &str, mount: &str, scenario: &str| {
        cases.push(CrashCase {
            name: format!("{variant}-{scenario}"),
            mkfs: mkfs.into(),
            mount: mount.into(),
            scenario: scenario.into(),
        });
    };
    for scenario in everyday().chain(["revoke", "random-1", "random-2", "random-3"]) {
        add("full", "-b 4096", "", scenario);
    }
    for scenario in everyday().chain(["revoke"]) {
        add("fc", FC, "", scenario);
    }
    for seed in 1..=8 {
        add("fc", FC, "", &format!("random-{seed}"));
        add("fc", FC, "", &format!("quick-{seed}"));
    }
    for scenario in ["mixed", "append", "sparse", "truncate", "random-11", "quick-12", "quick-13"] {
        add("fc1k", "-b 1024 -O fast_commit", "", scenario);
    }
    for (variant, mkfs) in FAST_COMMIT {
        for scenario in ["mixed", "linkunlink", "orphans", "random-21", "quick-22"] {
            add(&format!("fc-{variant}"), mkfs, "", scenario);
        }
    }
    for (variant, mkfs, mount) in FULL_COMMIT {
        let third = match *mount {
            "data=journal" => "escape",
            _ if mkfs.contains("ext3") => "truncate",
            _ => "fallocs",
        };
        for scenario in ["mixed", "revoke", third, "random-31"] {
            add(variant, mkfs, mount, scenario);
        }
    }
    for (name, mkfs, scenario) in SINGLE {
        add(name, mkfs, "", scenario);
    }
    if let Some(seed) = std::env::var("EXTANT_SEED").ok().and_then(|s| s.parse::<u64>().ok()) {
        for i in 0..SOAK_CASES {
            let (variant, mkfs, mount) = FULL_COMMIT[i as usize % FULL_COMMIT.len()];
            let (fc_variant, fc_mkfs) = FAST_COMMIT[i as usize % FAST_COMMIT.len()];
            let scenario = format!("random-{}", seed.wrapping_add(i));
            if !mkfs.contains("JOURNAL") {
                add(&format!("soak-{variant}"), mkfs, mount, &scenario);
            }
            let quick = scenario.replace("random", "quick");
            add(&format!("soak-fc-{fc_variant}"), fc_mkfs, "", &quick);
        }
    }
    cases
}

impl CrashCase {
    /// The volume has fast commits.
    pub fn fast_commits(&self) -> bool {
        self.mkfs.contains("fast_commit")
    }

    /// The volume has a journal, so recovery can make it consistent.
    pub fn journaled(&self) -> bool {
        !self.mkfs.contains("^has_journal") && !self.mkfs.contains("-t ext2")
    }

    /// Makes the state in `dir`.
    pub fn make(&self, dir: &Path) -> Result<CrashState, String> {
        let (work, img) = (dir.join("work.img"), dir.join("crash.img"));
        let external = self.mkfs.contains("JOURNAL");
        let work_journal = external.then(|| dir.join("work-journal.img"));
        make_with_journal(&work, MIB << 20, &self.mkfs, work_journal.as_deref())?;
        let mount = LoopMount::mount(&work, work_journal.as_deref(), &self.mount)?;
        let (must, held) = run_scenario(mount.path(), &self.scenario)?;
        let live = Manifest::walk_names(mount.path())?;
        let root = File::open(mount.path()).map_err(|e| e.to_string())?;
        crate::sys::shut_down(&root).map_err(|e| format!("EXT4_IOC_SHUTDOWN: {e}"))?;
        copy_sparse(&work, &img)?;
        let journal = external.then(|| dir.join("journal.img"));
        if let (Some(from), Some(to)) = (&work_journal, &journal) {
            copy_sparse(from, to)?;
        }
        drop((root, held));
        mount.unmount()?;
        for file in [Some(work), work_journal].into_iter().flatten() {
            std::fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(CrashState { img, journal, must, live })
    }
}
