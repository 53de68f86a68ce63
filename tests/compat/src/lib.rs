//! Suites in which extant and Linux read each other's volumes.
//!
//! ```text
//!   kernel_clean   Linux writes ──► extant reads the same, and finds no fault
//!   kernel_dirty   Linux is cut off ──► extant recovers; e2fsck and Linux agree
//!   damaged        e2fsprogs' broken volumes ──► extant says what is wrong and stays whole
//!   built          extant builds ──► e2fsck, debugfs, dumpe2fs and Linux accept and read the same
//! ```
//! Each suite is a test program; each of its tests is a group of cases with a line for every case.
//! `EXTANT_CASE=TEXT` runs the cases whose name holds `TEXT`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_testkit::kernel_images::{CleanCase, Maker};
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::uml::{IMAGES_MAX, Uml};

/// An image and what extant shows of it, for Linux to confirm.
#[derive(Debug)]
pub struct Verdict {
    /// The case's name.
    pub name: String,
    /// The image; Linux mounts it for writing, and recovers it where that is due.
    pub img: PathBuf,
    /// What Linux has to show.
    pub expected: Manifest,
    /// e2fsck has to find nothing after Linux unmounted it.
    pub clean_after: bool,
}

/// Mounts each image for writing in user-mode Linux, a few to a guest, and compares what Linux shows
/// with what is expected, as closely as `look` says. `work` is an empty directory. Returns the
/// failures, each with its case's name.
pub fn linux_confirms(verdicts: &[Verdict], look: Look, work: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    for batch in verdicts.chunks(IMAGES_MAX) {
        let images: Vec<&Path> = batch.iter().map(|v| v.img.as_path()).collect();
        let mut script = String::new();
        for at in 0..batch.len() {
            let device = char::from(b'a' + at as u8);
            script += &format!(
                "if mount -t ext4 -o noatime /dev/ubd{device} /dev/shm/m; then\n\
                 $KIT manifest /dev/shm/m > /mnt/work/{at} || echo $? > /mnt/work/{at}.error\n\
                 umount /dev/shm/m\n\
                 else dmesg | tail -n 3 > /mnt/work/{at}.error; fi\n"
            );
        }
        let run = || {
            let limit = Duration::from_secs(300);
            Uml::get()?.run(&script, &images, work, limit)?.success()
        };
        if let Err(error) = run() {
            let names: Vec<&str> = batch.iter().map(|v| v.name.as_str()).collect();
            failures.push(format!("{}: {error}", names.join(", ")));
        }
        for (at, verdict) in batch.iter().enumerate() {
            if let Err(error) = confirm(verdict, look, work, at) {
                failures.push(format!("{}: Linux: {error}", verdict.name));
            }
            for name in [format!("{at}"), format!("{at}.error")] {
                // Most have no error file.
                let _ = std::fs::remove_file(work.join(name));
            }
        }
    }
    failures
}

fn confirm(verdict: &Verdict, look: Look, work: &Path, at: usize) -> Result<(), String> {
    if let Ok(error) = std::fs::read_to_string(work.join(format!("{at}.error"))) {
        return Err(error.trim().replace('\n', " | "));
    }
    let text = std::fs::read_to_string(work.join(at.to_string()));
    let shown = Manifest::from_json_lines(&text.map_err(|e| format!("no manifest: {e}"))?)?;
    verdict.expected.diff(&shown, look).expect_same("extant | Linux")?;
    match verdict.clean_after {
        true => extant_testkit::e2fsprogs::e2fsck(&verdict.img, None).expect_clean(),
        false => Ok(()),
    }
}

/// How closely to compare a clean volume with its manifest, and the manifest without what cannot
/// be compared.
pub fn look_of(case: &CleanCase, manifest: Manifest) -> (Look, Manifest) {
    if case.maker == Maker::Mke2fs {
        // A copy by mke2fs 1.47.0: seconds only, and 32 bits of them; no links to symlinks.
        let look = Look { nanoseconds: false, ..Look::copy() };
        let manifest = manifest.without("/times").without("/links/sym_60");
        return (look, manifest.without("/links/sym_60_hard"));
    }
    (Look::all(), manifest)
}
