//! A volume that Linux filled, changed by extant: e2fsck finds nothing, and Linux shows what extant
//! shows.
//!
//! ```text
//!   extant changes, closes ──► e2fsck ──► check ──► this machine's kernel mounts it: same tree?
//! ```

use crate::busy::Busy;
use extant::OpenOptions;
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::extant::Extant;
use extant_testkit::kernel_images::{CleanCase, CleanVolume, Maker};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::manifest::{Look, Manifest};
use std::path::Path;

/// Changes a volume in every way; e2fsck must find nothing wrong afterwards.
pub fn change(img: &Path, journal: Option<&Path>) -> Result<(), String> {
    let mut options = OpenOptions::new();
    if let Some(journal) = journal {
        options.journal_device(journal);
    }
    let fs = options.write(true).open(img).map_err(|e| format!("open to write: {e}"))?;
    Busy::new(&fs, 1).all()?;
    fs.close().map_err(|e| format!("close: {e}"))?;
    e2fsck(img, journal).expect_clean().map_err(|e| format!("changed by extant: {e}"))
}

/// Changes a clean volume, and lets Linux judge it, too.
pub fn change_and_judge(
    extant: &Extant,
    case: &CleanCase,
    volume: &CleanVolume,
) -> Result<(), String> {
    let journal = volume.journal.as_deref();
    change(&volume.img, journal)?;
    extant.expect_clean(&volume.img)?;
    let shown = match case.profiles.contains("encrypt") {
        true => extant.manifest_in_part(&volume.img)?,
        false => extant.manifest(&volume.img)?,
    };
    if case.maker != Maker::Host {
        return Ok(());
    }
    let mount = LoopMount::mount(&volume.img, journal, case.mount)?;
    let linux = Manifest::walk(mount.path())?;
    mount.unmount()?;
    shown.diff(&linux, Look::all()).expect_same("changed by extant | Linux")?;
    e2fsck(&volume.img, journal).expect_clean()
}
