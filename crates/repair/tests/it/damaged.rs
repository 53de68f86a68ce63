//! Volumes with one kind of damage each: after a repair they are clean, and no file is lost that
//! e2fsck keeps.

use crate::files;
use crate::repairs::repair;
use extant_testkit::damaged::{DamagedImage, images};
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::process::Command;

/// Volumes that are refused unchanged, and why.
const REFUSED: &[(&str, &str)] = &[
    ("f_detect_junk", "not an ext2, ext3 or ext4 volume"),
    ("f_ext_journal", "the journal is on another device"),
];

/// Files of which e2fsck keeps something else.
const EXCEPTIONS: &[(&str, &str)] = &[
    // Three files share a block on a full volume: one of them has to lose it.
    ("f_cloneblock_alloc_error", "/c:"),
    // e2fsck clears extents that are out of order; the repair sorts them, and the block count of
    // the inode agrees.
    ("f_extents2", "/extent.c:"),
    ("f_extents2", "/overlap_extents:"),
];

fn case(image: &DamagedImage) -> Result<String, String> {
    let scratch = Scratch::new();
    let (ours, theirs) = (scratch.file("ours.img"), scratch.file("theirs.img"));
    image.unpack(&ours)?;
    image.unpack(&theirs)?;
    if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == image.name) {
        return match repair(&ours) {
            Err(text) if text.contains(why) => Ok(format!("refused: {text}")),
            other => Err(format!("not refused: {:?}", other.map(|_| ()))),
        };
    }
    let report = repair(&ours)?;
    let fsck = Command::new("timeout").arg("60").arg("e2fsck").arg("-fy").arg(&theirs).output();
    fsck.map_err(|e| e.to_string())?;
    let (kept, wanted) = (files::all(&ours), files::all(&theirs));
    let mut missing = files::missing(&wanted, &kept);
    missing.retain(|text| {
        !EXCEPTIONS.iter().any(|(name, path)| *name == image.name && text.starts_with(path))
    });
    let counts: Vec<String> =
        report.counts().map(|(class, count)| format!("{} {count}", class.name())).collect();
    let text = format!("{} files, e2fsck {}: {}", kept.len(), wanted.len(), counts.join(", "));
    match missing.is_empty() {
        true => Ok(text),
        false => Err(format!("e2fsck keeps {missing:?}; {text}")),
    }
}

#[test]
fn every_damaged_volume_is_clean_after_a_repair() {
    require!(E2fsprogs);
    let Some(images) = images() else { return };
    run_cases("repair_damaged", &images, |image| image.name.clone(), case);
}
