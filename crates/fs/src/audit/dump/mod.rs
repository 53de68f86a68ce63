//! A copy of a volume without the content of its files, for reports of bugs.
//!
//! ```text
//!   volume as it is ──► scan ──► pieces ─┐                              ┌─► output: sparse, of the
//!        │                               ├─► minus content ─► rewritten ┤   volume's size
//!        └─ recovered in memory ─► scan ─┘                              └─► the superblock last
//!
//!   rewritten   inodes with inline data; with `scramble` all names, targets, the label
//! ```
//!
//! Rules:
//! - A block that some file has as content, before or after a replay of the journal, is copied only
//!   if its bytes prove that it is metadata, whatever else claims it.
//! - A block that does not have the form of what it should hold is not copied: a damaged map may
//!   lead to content that was deleted.
//! - If names are scrambled, or if inodes hold content, the log is left out except for its
//!   superblock, and the copy shows the volume after recovery: the log has all of that, too. So it
//!   does if a replay needs a copy that may be content.

mod copy;
mod form;
mod inode_slots;
mod log;
mod scan;
mod scramble;

use crate::audit::check::pass0;
use crate::audit::check::report::Findings;
use crate::audit::check::view::View;
use crate::audit::check::{self, recovered};
use crate::progress::{Phase, Progress};
use copy::{Condition, Copy};
use extant_base::{BlockNr, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::Superblock;
use scan::{Kind, Metadata};
use scramble::Scrambler;
use std::sync::Arc;

/// Options of a dump.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Replaces names of files, targets of symbolic links, the label and the path of the last mount
    /// by random ones of the same length. The same seed gives the same names.
    pub scramble: Option<u64>,
    /// Worker threads, 1..=64.
    pub threads: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { scramble: None, threads: check::Options::default().threads }
    }
}

/// What a dump contains, and what it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes of the volume, which is also the size of the copy.
    pub size: u64,
    /// Blocks of metadata that were copied. Blocks of zeros are counted but not written.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks that could not be read and are zeros in the copy.
    pub unreadable: u64,
    /// Blocks that metadata claims, but that are content of a file or have another form.
    pub left_out: u64,
    /// Blocks of the log that are not in the copy.
    pub log_left_out: u64,
    /// The copy shows the volume after recovery, with an empty log.
    pub recovered: bool,
    /// Inodes whose inline content was replaced by zeros.
    pub inline_files: u64,
    /// Names of files that were replaced.
    pub names: u64,
    /// Names that stay because no other one has a place in the index of the directory.
    pub names_kept: u64,
}

/// The part of the log that a dump contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LogPart {
    /// All but copies of content.
    Metadata,
    /// Its superblock.
    Superblock,
}

/// The size of a dump of the volume on `device`, in bytes: that of the volume, or of the device if
/// that is shorter.
///
/// # Errors
/// `Corrupt(SuperblockMagic)` or another error of the superblock if there is no volume;
/// `Unsupported`; `Device`.
pub fn size_of(device: &dyn BlockDevice) -> Result<u64> {
    let sb = superblock(device)?;
    Ok(sb.blocks_count.saturating_mul(sb.block_size.bytes() as u64).min(device.len()))
}

fn superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let findings = Findings::new(1);
    if let Some(superblock) = pass0::superblock::find(device, &findings)? {
        return Ok(superblock);
    }
    let found = findings.into_report(None).findings;
    let error = found.first().map(|finding| finding.at.corrupt(finding.what));
    Err(error.unwrap_or(Site::NOWHERE.corrupt(What::SuperblockMagic)))
}

/// Copies the metadata of the volume on `device` to `output`, which must be all zeros and have the
/// size of [`size_of`]. Content of files is never copied. The superblock is written last, so a copy
/// that was interrupted is no volume.
///
/// Damage is not an error: what cannot be read is left out and counted.
///
/// # Errors
/// As [`size_of`]; `Device` if `output` cannot be written.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::{FileDevice, dump};
/// use std::sync::Arc;
///
/// let device = Arc::new(FileDevice::open("disk.img")?);
/// let output = FileDevice::create("meta.img", dump::size_of(&*device)?)?;
/// let report = dump::dump_device(device, &output, &dump::Options::default(), &())?;
/// println!("{} blocks", report.blocks);
/// # Ok::<(), extant::Error>(())
/// ```
pub fn dump_device(
    device: Arc<dyn BlockDevice>,
    output: &dyn BlockDevice,
    options: &Options,
    progress: &dyn Progress,
) -> Result<Report> {
    let size = size_of(&*device)?;
    let check = check::Options { threads: options.threads, ..check::Options::default() };
    let findings = Findings::new(0);
    let sb = superblock(&*device)?;
    let after = match sb.needs_recovery() {
        true => recovered(&device, &check, &findings).ok(),
        false => None,
    };
    let has_inline = sb.features.incompat.contains(Incompat::INLINE_DATA);
    let log = match options.scramble.is_some() || has_inline {
        true => LogPart::Superblock,
        false => LogPart::Metadata,
    };
    let is_recovered = log == LogPart::Superblock && after.is_some();
    let state = match (log, after) {
        (LogPart::Superblock, Some(after)) => State { device: after, after: None, log },
        (_, after) => State { device, after, log },
    };
    let job = Job { check: &check, findings: &findings, options, progress };
    let report = match job.run(&state, output, size)? {
        Some(report) => Report { recovered: is_recovered, ..report },
        // A replay needs blocks that may be content: the copy is that of the volume after it.
        None => {
            let device = state.after.unwrap_or(state.device);
            let state = State { device, after: None, log: LogPart::Superblock };
            let report = job.run(&state, output, size)?;
            Report { recovered: true, ..report.unwrap_or_default() }
        }
    };
    Ok(report)
}

/// The volume as it is copied.
struct State {
    device: Arc<dyn BlockDevice>,
    /// The same after recovery, if the copy has the log.
    after: Option<Arc<dyn BlockDevice>>,
    log: LogPart,
}

/// What does not depend on the state.
struct Job<'j> {
    check: &'j check::Options,
    findings: &'j Findings,
    options: &'j Options,
    progress: &'j dyn Progress,
}

impl<'j> Job<'j> {
    fn open(&self, device: &Arc<dyn BlockDevice>) -> Result<View<'j>> {
        let sb = superblock(&**device)?;
        let device = Arc::clone(device);
        let view = View::new(device, sb, self.findings, self.check, self.progress, false);
        let mut view = view.ok_or(Site::NOWHERE.corrupt(What::ResourceLimit))?;
        view.backups = false;
        pass0::run(&mut view);
        Ok(view)
    }

    /// Copies a state. `None`, and nothing is written, if the log would lack what a replay needs.
    fn run(&self, state: &State, output: &dyn BlockDevice, size: u64) -> Result<Option<Report>> {
        let view = self.open(&state.device)?;
        let metadata = scan::find(&view);
        let later = match &state.after {
            Some(after) => Some(scan::find(&self.open(after)?)),
            None => None,
        };
        let later = later.as_ref();
        let is_metadata = |block: BlockNr| {
            let in_later = later.is_some_and(|later| later.claimed.holds(block.0));
            let is_content = metadata.is_content(later, block.0);
            (metadata.claimed.holds(block.0) || in_later) && !is_content
        };
        let log = log::find(&view, state.log == LogPart::Superblock, &is_metadata);
        if log.lacks_needed && state.after.is_some() {
            return Ok(None);
        }
        let scrambler = self.options.scramble.map(|seed| Scrambler::new(&view, seed));
        let mut copy = Copy::new(&view, output, size, scrambler.as_ref());
        let total = metadata.pieces.iter().map(|piece| piece.len).sum();
        self.progress.begin(Phase::Dump, total);
        all(&mut copy, &metadata, later)?;
        copy.log(&log)?;
        copy.finish().map(Some)
    }
}

/// Copies everything but the log.
fn all(copy: &mut Copy<'_, '_>, metadata: &Metadata, later: Option<&Metadata>) -> Result<()> {
    let is_old = |block: u64| later.is_some_and(|later| !later.claimed.holds(block));
    let when = |kind: Kind, block: u64| match kind {
        Kind::Fixed | Kind::Table(_) => Condition::Always,
        // A block that recovery frees may have been content in between. But the removal of an
        // orphan needs the nodes of its map.
        _ if is_old(block) || metadata.is_content(later, block) => Condition::Proof,
        _ => Condition::Form,
    };
    copy.pieces(&metadata.pieces, &when)?;
    copy.directories(metadata, &when)
}
