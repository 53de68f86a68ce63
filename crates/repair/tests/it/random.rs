//! Random damage of small volumes that hold every structure, compared with the undamaged original
//! and with e2fsck on a copy.
//!
//! `EXTANT_REPAIR_CASES=N` runs N cases instead of 300, `EXTANT_REPAIR_SEED=S` starts at seed S,
//! `EXTANT_REPAIR_KEEP=DIR` keeps the volumes, damaged and repaired.

use crate::files;
use crate::repairs::repair;
use extant_compat_tests::damage::damage;
use extant_compat_tests::volume::{Rich, make_as};
use extant_testkit::report::{expect_none, try_cases};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// Name, options of mke2fs, whether every structure has a checksum.
pub const VOLUMES: &[(&str, &str, bool)] = &[
    ("csum", "-b 1024 -I 256 -O metadata_csum,quota,project,ea_inode,orphan_file", true),
    ("csum4k", "-b 4096 -I 256 -O metadata_csum,^has_journal", true),
    ("plain", "-b 1024 -I 256 -O ^metadata_csum,quota,inline_data", false),
    ("ext2", "-b 1024 -I 128 -O none,sparse_super,filetype,resize_inode,dir_index,ext_attr", false),
    (
        "ext3",
        "-b 1024 -I 256 -O none,has_journal,sparse_super,filetype,resize_inode,dir_index,ext_attr",
        false,
    ),
    ("maps", "-b 1024 -I 128 -O ^metadata_csum,^extent,^64bit,^flex_bg,uninit_bg", false),
    ("cluster", "-b 1024 -C 4096 -O ^metadata_csum,bigalloc,^resize_inode", false),
    ("narrow", "-b 1024 -I 256 -O metadata_csum,^64bit,^flex_bg,casefold", true),
];

/// Seeds that once failed, run besides the others.
const ONCE_FAILED: &[u64] = &[
    1471, 2881, 2893, 3191, 3240, 4395, 4949, 5788, 7107, 7559, 8067, 8391, 9738, 9816, 11998,
    12162, 12372, 13052, 13650, 17492, 18236, 20647, 23349, 23913, 24075, 25978, 27425, 29072,
];

/// The bit of e2fsck's exit status that says that it could not do its work.
const OPERATIONAL_ERROR: i32 = 8;

/// A volume without damage, and its files.
pub struct Volume {
    pub rich: Rich,
    pub files: BTreeMap<PathBuf, files::Entry>,
}

impl Volume {
    /// Makes one of [`VOLUMES`].
    pub fn make((name, options, checksummed): &(&'static str, &str, bool)) -> Volume {
        let rich = make_as(name, 8 << 20, options, *checksummed);
        let scratch = Scratch::new();
        let img = scratch.file("whole.img");
        std::fs::write(&img, &rich.bytes).unwrap();
        Volume { files: files::all(&img), rich }
    }
}

/// The number in an environment variable.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The seeds of a test: `usual` of them, `EXTANT_SOAK` times as many in a long search.
pub fn seeds(usual: u64) -> Vec<u64> {
    let first = number("EXTANT_REPAIR_SEED", number("EXTANT_SEED", 1) % (1 << 40));
    let count = number("EXTANT_REPAIR_CASES", usual * number("EXTANT_SOAK", 1));
    (first..first + count).collect()
}

/// Files that are kept in all cases together.
#[derive(Default)]
pub struct Totals {
    more: usize,
    lossy: usize,
    ours: usize,
    theirs: usize,
}

impl Totals {
    /// Prints them.
    pub fn print(&self, group: &str) {
        let Totals { more, lossy, ours, theirs } = self;
        println!(
            "{group}: {ours} files kept, e2fsck {theirs}; of {lossy} volumes on which e2fsck \
             loses files, more on {more}"
        );
    }
}

fn case(volumes: &[Volume], seed: u64, totals: &Mutex<Totals>) -> Result<String, String> {
    let mut rng = Rng::new(seed);
    let volume = &volumes[rng.below(volumes.len())];
    let mut bytes = volume.rich.bytes.clone();
    let done = damage(&volume.rich, &mut bytes, &mut rng);
    judged(volume, &bytes, &done, &seed.to_string(), totals)
}

/// Repairs a damaged volume, and compares what is left with what e2fsck leaves. `done` says how it
/// was damaged; `label` names it.
pub fn judged(
    volume: &Volume,
    bytes: &[u8],
    done: &str,
    label: &str,
    totals: &Mutex<Totals>,
) -> Result<String, String> {
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.file("ours.img"), scratch.file("theirs.img"));
    for path in [&ours, &theirs] {
        std::fs::write(path, bytes).map_err(|e| e.to_string())?;
    }
    if let Some(to) = std::env::var_os("EXTANT_REPAIR_KEEP") {
        let name = format!("{label}.img");
        std::fs::write(PathBuf::from(to).join(name), bytes).map_err(|e| e.to_string())?;
    }
    let name = volume.rich.name;
    let context = |text: String| format!("{name}, {done}: {text}");
    let repaired = repair(&ours);
    if let Some(to) = std::env::var_os("EXTANT_REPAIR_KEEP") {
        let name = format!("{label}.repaired.img");
        std::fs::copy(&ours, PathBuf::from(to).join(name)).map_err(|e| e.to_string())?;
    }
    let fsck = Command::new("timeout").arg("60").arg("e2fsck").arg("-fy").arg(&theirs).output();
    let fsck = fsck.map_err(|e| e.to_string())?;
    let gave_up = fsck.status.code().is_some_and(|code| code & OPERATIONAL_ERROR != 0);
    match repaired {
        // The only superblock is gone, or has a feature that does not exist.
        Err(text) if text.starts_with("plan:") && (gave_up || files::all(&theirs).is_empty()) => {
            let unchanged = std::fs::read(&ours).is_ok_and(|now| now == bytes);
            return if unchanged { Ok(context(text)) } else { Err(context(text)) };
        }
        repaired => repaired.map_err(context)?,
    };
    let equal = |img| {
        let left = files::all(img);
        let same = |(path, entry): &(&PathBuf, &files::Entry)| left.get(*path) == Some(entry);
        let (same, gone): (Vec<_>, Vec<_>) = volume.files.iter().partition(same);
        (same.len(), gone.into_iter().map(|(path, _)| path.clone()).collect::<Vec<_>>())
    };
    let (kept, gone) = equal(&ours);
    let (wanted, theirs_gone) = equal(&theirs);
    let mut sum = totals.lock().map_err(|e| e.to_string())?;
    sum.ours += kept;
    sum.theirs += wanted;
    sum.lossy += usize::from(wanted < volume.files.len());
    sum.more += usize::from(kept > wanted);
    match kept >= wanted {
        true => Ok(format!("{name}, {done}: {kept} files, e2fsck {wanted}")),
        false => {
            let only: Vec<&PathBuf> =
                gone.iter().filter(|path| !theirs_gone.contains(path)).take(5).collect();
            Err(context(format!("{kept} files, e2fsck {wanted}; lost: {only:?}")))
        }
    }
}

#[test]
fn random_damage_never_costs_more_files_than_e2fsck() {
    require!(E2fsprogs);
    let mut seeds = seeds(300);
    if seeds[0] == 1 {
        seeds.extend(ONCE_FAILED);
    }
    let volumes: Vec<Volume> = VOLUMES.iter().map(Volume::make).collect();
    let totals = Mutex::new(Totals::default());
    let failures = try_cases(
        "repair_random",
        &seeds,
        |seed| format!("seed {seed}"),
        |seed| case(&volumes, *seed, &totals),
    );
    totals.into_inner().unwrap().print("repair_random");
    expect_none("repair_random", &failures);
}
