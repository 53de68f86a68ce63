//! Checking a whole volume without changing it.
//!
//! ```text
//!   pass 0   superblock, its backups, descriptors, layout    ──► View, on which all passes rely
//!   pass 1   inode tables, in order, in parallel             ──► Inodes, Usage, notes for later
//!     1b     the owners of blocks that were claimed twice
//!     1c     attribute blocks, value inodes, symlink blocks, the volume's own files
//!   pass 2   directory blocks, in disk order, in parallel    ──► counted links, parents
//!   pass 3   every directory is reachable from the root
//!   pass 4   link and reference counts
//!   pass 5   bitmaps and counts compared with what was found
//!   data     the checksum file; with [`Options::data`] all data against its checksums
//! ```
//!
//! Every rule is one [`What`]. Nothing that was read from the device is used before it is checked.
//! A damaged structure ends only the walk of what depends on it. Memory: two bits per cluster and 8
//! bytes per inode in the used parts of the volume, 16 bytes per directory block, and 16 bytes per
//! name of the directories in progress.

pub(super) mod claim;
mod data;
mod inodes;
pub(super) mod map;
pub(super) mod pass0;
pub(super) mod pass1;
mod pass2;
mod pass3;
mod pass4;
mod pass5;
pub(super) mod report;
pub(super) mod scatter;
pub(super) mod view;

pub use report::{Finding, Report, Severity, Stats};

use crate::progress::{Phase, Progress};
use crate::recovery::{self, Request};
use crate::volume::VolumeOptions;
use extant_base::{Error, Result, Site, What};
use extant_blockdev::{BlockDevice, Overlay};
use extant_ondisk::features::RoCompat;
use report::Findings;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use view::View;

/// Options of a check.
#[derive(Clone)]
pub struct Options {
    /// Worker threads, 1..=64. Each uses about 3 MiB.
    pub threads: usize,
    /// How many findings are kept. Further ones are only counted.
    pub findings_limit: usize,
    /// Whether a volume that needs recovery is recovered in memory before it is checked.
    pub recover: bool,
    /// Whether the backup superblocks are checked, too.
    pub backups: bool,
    /// Whether data is read and compared with its checksums, if the volume has them.
    pub data: bool,
    /// Limits the data that is read to these byte ranges of the volume, in ascending order.
    pub data_within: Option<Vec<Range<u64>>>,
    /// The device of the volume's external journal.
    pub journal: Option<Arc<dyn BlockDevice>>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("threads", &self.threads)
            .field("findings_limit", &self.findings_limit)
            .field("recover", &self.recover)
            .field("backups", &self.backups)
            .field("data", &self.data)
            .field("data_within", &self.data_within.as_ref().map(Vec::len))
            .field("journal", &self.journal.is_some())
            .finish()
    }
}

impl Default for Options {
    fn default() -> Options {
        // More threads than processors, because most of them wait for the device.
        let threads = std::thread::available_parallelism().map_or(1, usize::from) * 4;
        let threads = threads.max(8);
        let (recover, backups, data, data_within) = (true, true, false, None);
        let findings_limit = 10_000;
        Options { threads, findings_limit, recover, backups, data, data_within, journal: None }
    }
}

/// Checks the volume on `device`. Nothing is written to it.
///
/// A volume that needs recovery is recovered in memory first. Damage is not an error of the call;
/// it is reported as findings.
///
/// # Errors
/// `Unsupported` for a volume with an unknown incompatible feature or an external journal's device;
/// `Device` if the superblock cannot be read.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::{FileDevice, check};
/// use std::sync::Arc;
///
/// let device = Arc::new(FileDevice::open("disk.img")?);
/// let report = check::check_device(device, &check::Options::default(), &())?;
/// for finding in &report.findings {
///     println!("{finding}");
/// }
/// assert!(report.clean);
/// # Ok::<(), extant::Error>(())
/// ```
pub fn check_device(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report> {
    let findings = Findings::new(options.findings_limit);
    progress.begin(Phase::CheckGroups, 0);
    let Some(found) = pass0::superblock::find(&*device, &findings)? else {
        return Ok(findings.into_report(None));
    };
    if found.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT) {
        let detail = "orphan inodes may need to be freed: recover the volume";
        findings.error_with(What::VolumeState, Site::NOWHERE.offset(0x64), detail);
    }
    let (device, superblock, recovered) = match options.recover && found.needs_recovery() {
        true => match recovered(&device, options, &findings) {
            Ok(overlay) => match pass0::superblock::find(&*overlay, &Findings::new(0))? {
                Some(superblock) => (overlay, superblock, true),
                None => (device, found, false),
            },
            Err(error) => {
                findings.corrupt(&error, "the journal cannot be recovered; checked as it is");
                (device, found, false)
            }
        },
        false => (device, found, false),
    };
    let Some(view) = View::new(device, superblock, &findings, options, progress, recovered) else {
        return Ok(findings.into_report(None));
    };
    let stats = run(view, options.data, options.data_within.as_deref())?;
    let mut report = findings.into_report(Some(stats));
    report.recovered = recovered;
    Ok(report)
}

fn run(mut view: View<'_>, data: bool, within: Option<&[Range<u64>]>) -> Result<Stats> {
    pass0::run(&mut view);
    let view = &view;
    view.progress.begin(Phase::CheckInodes, 0);
    let mut tables = pass1::run(view);
    view.progress.begin(Phase::CheckDirectories, 0);
    pass2::run(view, &mut tables);
    view.progress.begin(Phase::CheckConnectivity, 0);
    pass3::run(view, &tables);
    view.progress.begin(Phase::CheckCounts, 0);
    pass4::run(view, &tables);
    view.progress.begin(Phase::CheckBitmaps, 0);
    pass5::run(view, &mut tables);
    tables.stats.data_blocks = data::run(view, data, within);
    Ok(tables.stats)
}

/// The volume after recovery of its journal, in memory over `device`.
pub(super) fn recovered(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    findings: &Findings,
) -> Result<Arc<dyn BlockDevice>> {
    let overlay: Arc<dyn BlockDevice> = Arc::new(Overlay::new(Arc::clone(device)));
    let external = options.journal.clone();
    let external = external.map(|log| Arc::new(Overlay::new(log)) as Arc<dyn BlockDevice>);
    let volume = VolumeOptions::default();
    let report =
        recovery::recover(&Request { home: Arc::clone(&overlay), external, options: &volume })?;
    let detail = format!("{} transactions replayed in memory", report.transactions);
    findings.note(What::VolumeState, Site::NOWHERE.offset(0x60), detail);
    for problem in &report.problems {
        findings.corrupt(problem, "found during recovery");
    }
    Ok(overlay)
}

/// The finding that corresponds to an error about the volume's content.
fn finding_of(error: &Error) -> (What, Site, Option<String>) {
    match error {
        Error::Corrupt { what, at } => (*what, *at, None),
        Error::Device { .. } => (What::Unreadable, Site::NOWHERE, Some(error.to_string())),
        other => (What::SuperblockFeatures, Site::NOWHERE, Some(other.to_string())),
    }
}
