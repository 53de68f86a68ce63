//! A recovered crash state: what it shows, and whether it is consistent.

use crate::external::FlushPart;
use crate::layouts;
use crate::make::{Make, Parts};
use crate::view::View;
use extant::{RecoveryReport, check};
use extant_blockdev::MemoryDevice;
use std::sync::Arc;

/// A state after recovery.
#[derive(Debug)]
pub struct Recovered {
    /// The device.
    pub device: Arc<MemoryDevice>,
    /// What it shows.
    pub view: View,
    /// Inodes without a name that the recovery freed.
    pub orphans_freed: u64,
    /// Fast commits that it applied.
    pub fast_commits: u32,
}

/// Recovers `image` for good, reads all of it and checks it.
///
/// `Err` if recovery fails or skips something, if something cannot be read, if the checker finds
/// damage, or if a file ends in a block whose old content was not zeroed.
pub fn recover(make: &Make, image: MemoryDevice) -> Result<Recovered, String> {
    let device = Arc::new(image);
    let report = recover_on(make, &device, false)?;
    let view = look(make, &device)?;
    let volume = parts(make, &device)?.volume;
    if let Some(ino) = view.stale_tail(&*volume, make.block_bytes()).map_err(|e| e.to_string())? {
        return Err(format!("inode {ino}: stale bytes behind its end"));
    }
    let (orphans_freed, fast_commits) = (report.orphans_freed, report.fast_commits);
    Ok(Recovered { device, view, orphans_freed, fast_commits })
}

fn parts<D: FlushPart + 'static>(make: &Make, device: &Arc<D>) -> Result<Parts, String> {
    make.parts(device).map_err(|e| format!("assemble: {e}"))
}

/// Recovers the volume on a device. Mirrors are brought in line `first` or afterwards; both must
/// show the same.
pub fn recover_on<D: FlushPart + 'static>(
    make: &Make,
    device: &Arc<D>,
    first: bool,
) -> Result<RecoveryReport, String> {
    let parts = parts(make, device)?;
    if let Some(mirror) = parts.mirror.as_ref().filter(|_| first) {
        layouts::bring_in_line(mirror)?;
    }
    let mut options = make.open_options(&parts);
    let report = options.write(true).recover_device_in_place(parts.volume.clone());
    let report = report.map_err(|e| format!("recovery: {e}"))?;
    if let Some(mirror) = &parts.mirror {
        layouts::bring_in_line(mirror)?;
    }
    match report.problems.first() {
        Some(problem) => Err(format!("recovery passed over: {problem}")),
        None => Ok(report),
    }
}

/// Reads all of a volume that needs no recovery, and checks it.
pub fn look(make: &Make, device: &Arc<MemoryDevice>) -> Result<View, String> {
    let mirrors = make.mirrors(device).map_err(|e| e.to_string())?;
    layouts::same_but_records(&mirrors)?;
    let parts = parts(make, device)?;
    let mut options = make.open_options(&parts);
    let fs = options.recover(false).open_device(parts.volume.clone());
    let fs = fs.map_err(|e| format!("open after recovery: {e}"))?;
    let view = View::of(&fs).map_err(|e| format!("after recovery: {e}"))?;
    let journal = parts.journal;
    let options = check::Options {
        threads: 1,
        recover: false,
        data: true,
        journal,
        ..check::Options::default()
    };
    let report =
        check::check_device(parts.volume, &options, &()).map_err(|e| format!("check: {e}"))?;
    if !report.clean {
        let found: Vec<String> = report.findings.iter().take(4).map(|f| f.to_string()).collect();
        return Err(format!("check: {}", found.join("; ")));
    }
    Ok(view)
}
