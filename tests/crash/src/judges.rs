//! e2fsck and Linux recover a crash state, too.
//!
//! ```text
//!   state ──► e2fsck -fy ──► no repairs? ──► e2fsck -fn ──► clean? ──► extant reads the same tree?
//!         └─► user-mode Linux mounts it ──► manifest ──► the one extant gives of the same state?
//! ```
//! Each mirror is such a state by itself.

use crate::make::Make;
use crate::oracle::same_but_bytes;
use crate::recovered::Recovered;
use crate::view::View;
use extant::Filesystem;
use extant_base::ByteOffset;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_compat_tests::{Verdict, linux_confirms};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_testdev::CrashState;
use extant_testkit::command::run;
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::extant::Extant;
use extant_testkit::manifest::Look;
use extant_testkit::scratch::Scratch;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A state for Linux to recover.
#[derive(Debug)]
pub struct Candidate {
    /// Its name in messages.
    pub name: String,
    /// The state.
    pub image: MemoryDevice,
    /// Its external journal.
    pub journal: Option<MemoryDevice>,
    /// The fields in which Linux must show the same.
    pub look: Look,
}

/// Whether other implementations can recover the state. They refuse a superblock that was torn
/// between its two sectors, which extant repairs. A commit block of which only the first sector
/// arrived is valid here, as in newer kernels, but not for e2fsck.
pub fn is_for_others(state: &CrashState) -> Result<bool, String> {
    Ok(state.completed >= state.cut && has_superblock(&state.image)?)
}

fn has_superblock(image: &MemoryDevice) -> Result<bool, String> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = image.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes);
    read.map_err(|e| e.to_string())?;
    let raw = RawSuperblock::from_prefix(&bytes).expect("so many bytes are a superblock");
    Ok(raw.checksum_is_right())
}

/// What Linux can recover of a state: the volume and its external journal, or each mirror by
/// itself. Nothing for stripes.
pub fn for_linux(
    make: &Make,
    state: &CrashState,
) -> Result<Option<(MemoryDevice, Option<MemoryDevice>)>, String> {
    if !make.has_members() {
        let text = |e: extant::Error| e.to_string();
        let parts = make.parts(&Arc::new(state.image.clone())).map_err(text)?;
        let journal = parts.journal.map(|journal| MemoryDevice::copy_of(&*journal));
        let volume = MemoryDevice::copy_of(&*parts.volume).map_err(text)?;
        return Ok(Some((volume, journal.transpose().map_err(text)?)));
    }
    let mut mirrors = make.mirrors(&state.image).map_err(|e| e.to_string())?;
    if mirrors.is_empty() {
        return Ok(None);
    }
    let mirror = mirrors.swap_remove(state.cut % mirrors.len());
    Ok(has_superblock(&mirror)?.then_some((mirror, None)))
}

/// e2fsck recovers the state itself and repairs nothing, and the result shows `want`.
pub fn e2fsck_agrees(make: &Make, image: &MemoryDevice, want: &View) -> Result<(), String> {
    let scratch = Scratch::new();
    let path = scratch.file("state.img");
    let parts = make.parts(&Arc::new(image.clone())).map_err(|e| format!("assemble: {e}"))?;
    save(&*parts.volume, &path)?;
    if make.has_sums() {
        return sums_agree(&path, want);
    }
    let mut command = Command::new("e2fsck");
    let mut journal_path = None;
    if let Some(journal) = parts.journal {
        let path = journal_path.insert(scratch.file("journal.img"));
        save(&*journal, path)?;
        command.arg("-j").arg(path);
    }
    let done = run(command.arg("-fy").arg(&path), Duration::from_secs(60))?;
    if let Some(found) = repair(&done.out()) {
        return Err(format!("e2fsck -fy repairs: {found}"));
    }
    if !matches!(done.code(), Some(0 | 1)) {
        return Err(format!("e2fsck -fy: {done}"));
    }
    e2fsck(&path, journal_path.as_deref()).expect_clean()?;
    let fs = Filesystem::open(&path).map_err(|e| format!("open after e2fsck: {e}"))?;
    let found = View::of(&fs).map_err(|e| format!("after e2fsck: {e}"))?;
    if !same_but_bytes(&found, want) {
        let all = found.differences(want);
        return Err(format!(
            "e2fsck | extant on {}: {}",
            make.name,
            all[..all.len().min(4)].join("; ")
        ));
    }
    let differs = |ino: &&u32| found.inodes[*ino].content != want.inodes[*ino].content;
    match want.inodes.keys().find(differs) {
        Some(ino) => Err(format!("e2fsck | extant: inode {ino} has other bytes")),
        None => Ok(()),
    }
}

/// Each mirror of a recovered volume is a volume by itself: e2fsck finds nothing, and it shows the
/// same.
pub fn mirrors_are_volumes(make: &Make, recovered: &Recovered) -> Result<(), String> {
    let mirrors = make.mirrors(&recovered.device).map_err(|e| e.to_string())?;
    for (n, mirror) in mirrors.iter().enumerate() {
        let scratch = Scratch::new();
        let path = scratch.file("mirror.img");
        save(mirror, &path)?;
        let named = |e: String| format!("mirror {n} alone: {e}");
        let fs = Filesystem::open(&path).map_err(|e| named(e.to_string()))?;
        let found = View::of(&fs).map_err(named)?;
        drop(fs);
        if found != recovered.view {
            return Err(named(found.differences(&recovered.view).join("; ")));
        }
        e2fsck(&path, None).expect_clean().map_err(named)?;
    }
    Ok(())
}

/// A volume with checksums of data, which only extant recovers: e2fsck finds nothing in a copy
/// without the feature bit.
fn sums_agree(path: &Path, want: &View) -> Result<(), String> {
    extant::recover(path).map_err(|e| format!("recovery: {e}"))?;
    let fs = Filesystem::open(path).map_err(|e| format!("open after recovery: {e}"))?;
    let found = View::of(&fs).map_err(|e| format!("after recovery: {e}"))?;
    drop(fs);
    if !same_but_bytes(&found, want) {
        return Err(format!("recovered again: {}", found.differences(want).join("; ")));
    }
    e2fsck(path, None).expect_clean()
}

/// Questions that e2fsck asks about a consistent volume that was not closed: closing a volume
/// settles the superblock's totals of free blocks and inodes, and clears the flag of the orphan
/// file. If e2fsck itself freed the inodes of the orphan file, it asks whether to empty the file.
const HARMLESS: [&str; 4] = [
    "Orphan file (inode ",
    "Free blocks count wrong (",
    "Free inodes count wrong (",
    "Feature orphan_present is set but orphan file is clean",
];

/// What e2fsck had to repair.
fn repair(text: &str) -> Option<String> {
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        lines.push(line);
        if line.contains("? yes") {
            let is_harmless = |line: &&str| HARMLESS.iter().any(|text| line.starts_with(text));
            if !lines.iter().any(is_harmless) {
                return Some(lines[lines.len().saturating_sub(2)..].join(" "));
            }
            lines.clear();
        }
    }
    None
}

/// Lets Linux recover every candidate, several in one guest. Returns the failures.
pub fn linux_agrees(group: &str, candidates: &[Candidate]) -> Vec<String> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let scratch = Scratch::new();
    let mut failures = Vec::new();
    let mut verdicts = Vec::new();
    for (n, candidate) in candidates.iter().enumerate() {
        let img = scratch.file(&format!("{n}.img"));
        let mut named = img.as_os_str().to_owned();
        let journal = candidate.journal.as_ref().map(|journal| {
            let path = scratch.file(&format!("{n}.journal"));
            named.push("?journal=");
            named.push(&path);
            save(journal, &path).map(|()| path)
        });
        let saved = save(&candidate.image, &img).and_then(|()| journal.transpose());
        let (journal, expected) = match saved {
            Ok(journal) => (journal, Extant::get().and_then(|e| e.manifest(Path::new(&named)))),
            Err(error) => (None, Err(error)),
        };
        match expected {
            Err(error) => failures.push(format!("{}: {error}", candidate.name)),
            Ok(expected) => verdicts.push(Verdict {
                name: candidate.name.clone(),
                img,
                journal,
                expected,
                look: candidate.look,
                recovered_by_linux: true,
            }),
        }
    }
    let work = Scratch::new();
    failures.extend(linux_confirms(group, &verdicts, work.path()));
    failures
}

/// Writes an image to a file.
pub fn save(image: &dyn BlockDevice, path: &Path) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = std::fs::File::create(path).map_err(|e| text(&e))?;
    file.set_len(image.len()).map_err(|e| text(&e))?;
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < image.len() {
        let len = piece.len().min((image.len() - at) as usize);
        image.read_at(ByteOffset(at), &mut piece[..len]).map_err(|e| text(&e))?;
        if piece[..len].iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece[..len], at).map_err(|e| text(&e))?;
        }
        at += len as u64;
    }
    Ok(())
}
