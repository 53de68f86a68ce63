//! The order of a repair: rounds on an overlay, each judged by a check.

use crate::hints::Hints;
use crate::older::Older;
use crate::plan::Plan;
use crate::report::{Class, Report};
use crate::volume::Volume;
use crate::volume::search::{self, FoundVolume};
use crate::{claims, counts, names, own, replay, scan, tree, values};
use extant::Progress;
use extant::check::{self, check_device};
use extant_base::{Error, Feature, FeatureSet, Holder, Result, Site, What};
use extant_blockdev::{BlockDevice, Overlay};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::mmp::{Mmp, MmpState};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// How many rounds a repair takes at most.
const ROUNDS_MAX: usize = 5;

/// The most threads of the first check; each takes about 0.5 MiB.
const FIRST_THREADS_MAX: usize = 4;

/// Options of a repair.
#[derive(Clone, Default)]
pub struct Options {
    /// Use the superblock copy of this group.
    pub backup: Option<u32>,
    /// The time for deletion times and new inodes, seconds since 1970.
    pub now: u32,
    /// Worker threads of the checks; 0: up to four before the repair, and one for each processor
    /// after it.
    pub threads: usize,
    /// The device of the volume's external journal, necessary if the volume needs a replay. Only
    /// [`Plan::end_journal`] writes to it.
    pub journal: Option<Arc<dyn BlockDevice>>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("backup", &self.backup)
            .field("now", &self.now)
            .field("threads", &self.threads)
            .field("journal", &self.journal.is_some())
            .finish()
    }
}

/// Finds out how to make the volume on `device` consistent. Nothing is written to it.
///
/// The plan is not clean if the rounds end before a check finds nothing, or if the volume starts
/// elsewhere on the device ([`Plan::elsewhere`]); it must not be applied then. If no superblock is
/// at a usual place, the whole device is read once to find one.
///
/// # Errors
/// `Unsupported` for features that the repair does not know, and for data checksums if files need
/// copies of blocks; `Corrupt` if no superblock can be found, or if the external journal is
/// necessary and not given or damaged; `NoSpace` if the repair needs more space than is free;
/// `Invalid` for a journal's device if the volume has no external journal; `Device`.
pub fn plan(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Plan> {
    let overlay = Arc::new(Overlay::new(device));
    let journal = options.journal.clone().map(|device| Arc::new(Overlay::new(device)));
    let first = match check_of(&overlay, journal.as_ref(), options, true, progress) {
        Ok(report) => report,
        Err(error @ Error::Device { .. }) => return Err(error),
        Err(Error::Unsupported { feature }) => return Err(Error::Unsupported { feature }),
        Err(_) => None,
    };
    // A note may say something of which e2fsck makes an error.
    let is_sound = |found: &check::Report| found.findings.is_empty() && !found.recovered;
    if first.as_ref().is_some_and(is_sound) && options.backup.is_none() {
        return Ok(Plan::new(overlay, Report::default(), true, Vec::new()));
    }
    let mut volume = match opened(&overlay, options, progress)? {
        Opened::Volume(volume) => volume,
        Opened::Elsewhere(found) => return Ok(Plan::elsewhere_only(overlay, found)),
    };
    match refuse_unknown(&volume, options.journal.is_some()) {
        // Only a check knows these structures, and it found no error.
        Err(Error::Unsupported { .. }) if first.as_ref().is_some_and(|found| found.clean) => {
            return Ok(Plan::new(overlay, Report::default(), true, Vec::new()));
        }
        other => other?,
    }
    volume.load_groups()?;
    replay::run(&mut volume, journal.as_ref())?;
    let older = older_of(&volume)?;
    let mut report = std::mem::take(&mut volume.report);
    let mut hints = first.as_ref().map_or_else(Hints::default, Hints::of_first);
    let mut left = Vec::new();
    for _ in 0..ROUNDS_MAX {
        report = round(&overlay, options, report, &hints, older.clone())?;
        left.clear();
        let Some(found) = check_of(&overlay, journal.as_ref(), options, false, progress)? else {
            report.note("the result of a round could not be checked");
            continue;
        };
        if found.clean {
            let mut volume = Volume::open(&overlay, None, options.now, Report::default())?;
            refuse_copies(&volume, &report)?;
            volume.stamp()?;
            return Ok(Plan::new(overlay, report, true, Vec::new()).with_journal(journal));
        }
        hints = Hints::of(&found.findings);
        left = found.findings;
    }
    Ok(Plan::new(overlay, report, false, left))
}

/// What a device has.
enum Opened {
    Volume(Box<Volume>),
    /// Volumes that start elsewhere.
    Elsewhere(Vec<FoundVolume>),
}

/// Opens the volume, with a superblock from anywhere on the device if none is where it should be.
fn opened(
    overlay: &Arc<Overlay<Arc<dyn BlockDevice>>>,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Opened> {
    let open = |report| Volume::open(overlay, options.backup, options.now, report);
    let error = match open(Report::default()) {
        Ok(volume) => return Ok(Opened::Volume(Box::new(volume))),
        Err(error) => error,
    };
    let is_lost = match &error {
        Error::Corrupt { what, .. } => *what != What::SuperblockBeyondDevice,
        _ => false,
    };
    if !is_lost || options.backup.is_some() {
        return Err(error);
    }
    let search::Search { own, elsewhere } = search::run(&**overlay.inner(), progress)?;
    match own {
        Some(own) => {
            let mut report = Report::default();
            report.add(Class::SuperblockBackup);
            report.note(format!(
                "the superblock is lost; a copy of group {} was found by a search of the device",
                own.sb.block_group
            ));
            own.put(&**overlay)?;
            Ok(Opened::Volume(Box::new(open(report)?)))
        }
        None if elsewhere.is_empty() => Err(error),
        None => Ok(Opened::Elsewhere(elsewhere)),
    }
}

/// The copies in the log of a volume, if it has an internal one.
fn older_of(volume: &Volume) -> Result<Option<Rc<Older>>> {
    if !volume.sb().has_journal() || volume.sb().journal_inum == 0 {
        return Ok(None);
    }
    let Some(mut log) = replay::log_of(volume, volume.disk.device())? else { return Ok(None) };
    if volume.sb().features.compat.contains(Compat::FAST_COMMIT) {
        // An empty log does not name the area, and copies would be looked for in it.
        log = log.with_fast_commit_area();
    }
    Ok(Older::read(log, volume.geometry.block_size())?.map(Rc::new))
}

/// One round over the whole volume.
fn round(
    overlay: &Arc<Overlay<Arc<dyn BlockDevice>>>,
    options: &Options,
    report: Report,
    hints: &Hints,
    older: Option<Rc<Older>>,
) -> Result<Report> {
    let mut volume = Volume::open(overlay, None, options.now, report)?;
    volume.older = older;
    volume.load_groups()?;
    let faulty = hints.faulty.as_ref().filter(|_| is_as_checked(&volume));
    let mut table = scan::run(&mut volume, faulty)?;
    own::forget_broken(&mut volume, &mut table)?;
    values::run(&mut volume, &mut table)?;
    let mut usage = claims::run(&mut volume, &mut table)?;
    tree::root(&mut volume, &mut table, &mut usage)?;
    let mut names = names::run(&mut volume, &mut table, &mut usage, hints)?;
    tree::run(&mut volume, &mut table, &mut usage, &mut names)?;
    own::run(&mut volume, &mut table, &mut usage, hints)?;
    own::quota(&mut volume, &mut table, &mut usage)?;
    claims::write_maps(&mut volume, &mut table, &mut usage)?;
    if usage.was_reduced() || table.gave_up {
        usage = claims::collect(&volume, &mut table)?.usage;
    }
    counts::run(&mut volume, &table, &usage)?;
    let mut report = std::mem::take(&mut volume.report);
    (0..volume.blocks_from_log()).for_each(|_| report.add(Class::FromJournal));
    let inos: Vec<u32> = report.files().map(|(ino, _)| ino).collect();
    let mut paths = names::paths(&volume, &mut table, &names, &inos)?;
    report.set_paths(|ino| paths.remove(&ino));
    Ok(report)
}

/// Whether the check has read the inodes where the repair reads them, each with a map of its own.
fn is_as_checked(volume: &Volume) -> bool {
    let expected = [Class::JournalReplayed, Class::Orphans];
    volume.report.counts().all(|(class, _)| expected.contains(&class))
        && !volume.has_ro_compat(RoCompat::SHARED_BLOCKS)
}

/// A check of the overlay; `None` if it could not run.
fn check_of(
    overlay: &Arc<Overlay<Arc<dyn BlockDevice>>>,
    journal: Option<&Arc<Overlay<Arc<dyn BlockDevice>>>>,
    options: &Options,
    recover: bool,
    progress: &dyn Progress,
) -> Result<Option<check::Report>> {
    let journal = journal.map(|journal| Arc::clone(journal) as Arc<dyn BlockDevice>);
    let mut settings = check::Options { recover, journal, ..check::Options::default() };
    settings.threads = match options.threads {
        0 if recover => settings.threads.min(FIRST_THREADS_MAX),
        // What it reads was read before: no thread waits for the device.
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let device = Arc::clone(overlay) as Arc<dyn BlockDevice>;
    let report = check_device(device, &settings, progress)?;
    Ok(report.ran.then_some(report))
}

/// Refuses volumes with structures that the repair does not know.
fn refuse_unknown(volume: &Volume, has_journal: bool) -> Result<()> {
    let sb = volume.sb();
    if let Some(feature) = sb.features.all_unreadable().next() {
        return Err(Error::Unsupported { feature });
    }
    if sb.features.incompat.contains(Incompat::JOURNAL_DEV) {
        let feature = Feature { set: FeatureSet::Option, bits: 0, name: "journal_dev" };
        return Err(Error::Unsupported { feature });
    }
    if let Some(feature) = sb.features.compat.unknown().features().next() {
        return Err(Error::Unsupported { feature });
    }
    let known = RoCompat::ORPHAN_PRESENT
        | RoCompat::SHARED_BLOCKS
        | RoCompat::READONLY
        | RoCompat::DATA_CSUM;
    let unknown = |feature: &Feature| !known.contains(RoCompat::from_bits_retain(feature.bits));
    if let Some(feature) = sb.features.all_unwritable().find(unknown) {
        return Err(Error::Unsupported { feature });
    }
    let is_external = sb.has_journal() && sb.journal_inum == 0;
    if is_external && sb.needs_recovery() && !has_journal {
        return Err(Site::NOWHERE.corrupt(What::JournalElsewhere));
    }
    if has_journal && !is_external {
        return Err(Error::Invalid(
            "the volume has no external journal: repair it without a journal device",
        ));
    }
    refuse_held(volume)
}

/// Refuses a repair that copies blocks of files with checksums: the copies would have none.
fn refuse_copies(volume: &Volume, report: &Report) -> Result<()> {
    let has_copies = report.counts().any(|(class, _)| class == Class::Cloned);
    if has_copies && volume.has_ro_compat(RoCompat::DATA_CSUM) {
        let name = "data_csum, of which files need copies of blocks that they share";
        let feature = Feature { set: FeatureSet::Option, bits: 0, name };
        return Err(Error::Unsupported { feature });
    }
    Ok(())
}

/// Refuses a volume that another host uses.
fn refuse_held(volume: &Volume) -> Result<()> {
    if !volume.has_incompat(Incompat::MMP) {
        return Ok(());
    }
    let bytes = volume.disk.read(volume.sb().mmp_block.0)?;
    let Ok(block) = Mmp::check(&bytes, &volume.checksums, Site::NOWHERE) else { return Ok(()) };
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    match block.state {
        MmpState::Clean => Ok(()),
        state => Err(Error::Held {
            holder: Box::new(Holder {
                node: text(&block.nodename),
                device: text(&block.bdevname),
                seen: block.time,
                is_checker: state == MmpState::Checker,
            }),
        }),
    }
}
