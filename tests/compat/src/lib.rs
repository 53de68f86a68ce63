//! Suites in which extant and Linux read each other's volumes.
//!
//! ```text
//!   kernel_clean   Linux writes ──► extant reads the same, finds no error ──► extant changes it:
//!                  e2fsck finds none, Linux reads the same
//!   kernel_dirty   Linux crashes ──► extant recovers; e2fsck and Linux agree
//!   linux_replays  extant crashes ──► Linux, e2fsck and extant itself recover: one tree
//!   linux_grows    Linux crashes while it grows a volume ──► extant and Linux recover the same
//!   linux_reads    extant writes: direct I/O, data_csum, mirrors ──► Linux reads the same
//!   check_agrees   one structure of a volume is damaged ──► extant's checker and e2fsck agree
//!   damaged        e2fsprogs' broken volumes ──► extant says what is wrong and does not crash
//!   built          extant builds ──► e2fsck, debugfs, dumpe2fs and Linux accept and read the same
//!   sets           the claims of `--compat`: each set's readers read it
//! ```
//! Each suite is a test program; each of its tests is a group of cases with a line for every case.
//! `EXTANT_CASE=TEXT` runs the cases with `TEXT` in their name.
#![forbid(unsafe_code)]

pub mod bounded;
pub mod busy;
pub mod changed;
pub mod damage;
pub mod script;
pub mod sums;
pub mod volume;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_testkit::e2fsprogs::{e2fsck, has_data_csum, is_member};
use extant_testkit::kernel_images::{CleanCase, Maker};
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::uml::{IMAGES_MAX, Uml};

/// An image and what extant shows of it, for Linux to confirm.
#[derive(Debug)]
pub struct Verdict {
    /// The case's name.
    pub name: String,
    /// The image. Linux mounts it for writing, or read-only if it has checksums of data or is a
    /// member of a mirror, and recovers it if needed.
    pub img: PathBuf,
    /// Its external journal.
    pub journal: Option<PathBuf>,
    /// What Linux must show.
    pub expected: Manifest,
    /// The fields to compare.
    pub look: Look,
    /// Linux recovers the volume itself. If it cannot (it has bugs there), the suite prints that;
    /// this is no failure, and neither is what e2fsck finds afterwards.
    pub recovered_by_linux: bool,
}

/// Mounts each image in user-mode Linux, several in one guest, and compares what Linux shows with
/// what is expected. `work` is an empty directory. Returns the failures, each with the name of its
/// case.
pub fn linux_confirms(group: &str, verdicts: &[Verdict], work: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    let mut unable = Vec::new();
    for batch in batches(verdicts) {
        let Err(died) = guest(batch, work) else {
            judge(batch, work, &mut failures, &mut unable);
            continue;
        };
        // One of them ended the guest: run each alone.
        for one in batch.chunks(1) {
            match guest(one, work) {
                Ok(()) => judge(one, work, &mut failures, &mut unable),
                Err(error) if one[0].recovered_by_linux => unable.push((&one[0].name, error)),
                Err(error) => failures.push(format!("{}: {error}; {died}", one[0].name)),
            }
        }
    }
    for (name, error) in &unable {
        println!("{group}: {name}: Linux itself cannot: {error}");
    }
    let (count, unable) = (verdicts.len(), unable.len());
    let same = count - unable - failures.len();
    // Bypasses the capture of `cargo test`.
    let _ = writeln!(
        std::io::stderr(),
        "{group}: Linux shows the same in {same} of {count} ({unable} it cannot recover)"
    );
    if unable * 4 > count {
        failures.push(format!("Linux fails to recover {unable} of {count}: a judge that cannot"));
    }
    failures
}

/// As many verdicts in one guest as it has disks.
fn batches(verdicts: &[Verdict]) -> Vec<&[Verdict]> {
    let (mut batches, mut rest) = (Vec::new(), verdicts);
    while !rest.is_empty() {
        let mut disks = 0;
        let fits = |verdict: &&Verdict| {
            disks += verdict.disks().len();
            disks <= IMAGES_MAX
        };
        let (batch, more) = rest.split_at(rest.iter().take_while(fits).count());
        batches.push(batch);
        rest = more;
    }
    batches
}

impl Verdict {
    fn disks(&self) -> Vec<&Path> {
        [Some(self.img.as_path()), self.journal.as_deref()].into_iter().flatten().collect()
    }
}

/// Lets Linux write a manifest of each image to `work`, or an error.
fn guest(batch: &[Verdict], work: &Path) -> Result<(), String> {
    let images: Vec<&Path> = batch.iter().flat_map(Verdict::disks).collect();
    // Quotas need a module.
    let mut script = String::from("modprobe $MODULES quota_v2 2>/dev/null\n");
    let mut letters = b'a'..;
    let mut next = || char::from(letters.next().expect("a guest has fewer disks"));
    for (at, verdict) in batch.iter().enumerate() {
        let device = next();
        let journal = verdict.journal.as_ref().map(|_| format!(",journal_path=/dev/ubd{}", next()));
        // Linux does not write to a volume with an unknown feature, and must not write to one of
        // several mirrors.
        let ro = if has_data_csum(&verdict.img) || is_member(&verdict.img) { ",ro" } else { "" };
        let options = format!("noatime{}{ro}", journal.unwrap_or_default());
        script += &format!(
            "if mount -t ext4 -o {options} /dev/ubd{device} /dev/shm/m; then\n\
             $KIT manifest /dev/shm/m > /mnt/work/{at} || echo no manifest > /mnt/work/{at}.error\n\
             umount /dev/shm/m\n\
             else dmesg | tail -n 3 > /mnt/work/{at}.error; fi\n"
        );
        for name in [format!("{at}"), format!("{at}.error")] {
            // Left from an earlier batch; mostly there is none.
            let _ = std::fs::remove_file(work.join(name));
        }
    }
    Uml::get()?.run(&script, &images, work, Duration::from_secs(300))?.success().map(drop)
}

fn judge<'v>(
    batch: &'v [Verdict],
    work: &Path,
    failures: &mut Vec<String>,
    unable: &mut Vec<(&'v String, String)>,
) {
    for (at, verdict) in batch.iter().enumerate() {
        let error = std::fs::read_to_string(work.join(format!("{at}.error"))).ok();
        let error = error.map(|text| text.trim().replace('\n', " | "));
        match error {
            Some(error) if verdict.recovered_by_linux => unable.push((&verdict.name, error)),
            Some(error) => failures.push(format!("{}: Linux: {error}", verdict.name)),
            None => {
                if let Err(error) = confirm(verdict, &work.join(at.to_string())) {
                    failures.push(format!("{}: {error}", verdict.name));
                }
            }
        }
    }
}

fn confirm(verdict: &Verdict, manifest: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(manifest).map_err(|e| format!("no manifest: {e}"))?;
    let shown = Manifest::from_json_lines(&text)?;
    verdict.expected.diff(&shown, verdict.look).expect_same("extant | Linux")?;
    match verdict.recovered_by_linux {
        true => Ok(()),
        false => e2fsck(&verdict.img, verdict.journal.as_deref()).expect_clean(),
    }
}

/// The fields in which a clean volume and its manifest must agree, and the manifest without what
/// cannot be compared.
pub fn look_of(case: &CleanCase, manifest: Manifest) -> (Look, Manifest) {
    if case.maker == Maker::Mke2fs {
        // A copy by mke2fs 1.47.0: seconds only, and 32 bits of them; no links to symlinks; the
        // root has times of its own.
        let look = Look { nanoseconds: false, ..Look::copy() };
        let mut manifest = manifest.without("/times").without("/");
        manifest = manifest.without("/links/sym_60").without("/links/sym_60_hard");
        if case.mkfs.contains("inline_data") {
            // It loses a hole at the end there.
            manifest = manifest.without("/sparse/tail_hole");
        }
        return (look, manifest);
    }
    (Look::all(), manifest)
}
