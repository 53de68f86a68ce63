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
//!   superblock, and the copy shows the volume after recovery: the log has all of that, too.

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
    let (device, after) = match (log, after) {
        (LogPart::Superblock, Some(after)) => (after, None),
        (_, after) => (device, after),
    };
    let open = |device: &Arc<dyn BlockDevice>| {
        let sb = superblock(&**device)?;
        let view = View::new(Arc::clone(device), sb, &findings, &check, progress, false);
        let mut view = view.ok_or(Site::NOWHERE.corrupt(What::ResourceLimit))?;
        view.backups = false;
        pass0::run(&mut view);
        Ok::<_, extant_base::Error>(view)
    };
    let view = open(&device)?;
    let metadata = scan::find(&view);
    let later = match &after {
        Some(after) => Some(scan::find(&open(after)?)),
        None => None,
    };
    let scrambler = options.scramble.map(|seed| Scrambler::new(&view, seed));
    let mut copy = Copy::new(&view, output, size, scrambler.as_ref());
    progress.begin(Phase::Dump, metadata.pieces.iter().map(|piece| piece.len).sum());
    all(&mut copy, &metadata, later.as_ref(), log)?;
    let report = copy.finish()?;
    Ok(Report { recovered: is_recovered, ..report })
}

fn all(
    copy: &mut Copy<'_, '_>,
    metadata: &Metadata,
    later: Option<&Metadata>,
    part: LogPart,
) -> Result<()> {
    let is_content = |block: u64| {
        metadata.files.holds(block) || later.is_some_and(|later| later.files.holds(block))
    };
    let is_old = |block: u64| later.is_some_and(|later| !later.claimed.holds(block));
    let when = |kind: Kind, block: u64| match kind {
        Kind::Fixed | Kind::Table(_) => Condition::Always,
        _ if is_old(block) => Condition::Never,
        _ if is_content(block) => Condition::Proof,
        _ => Condition::Form,
    };
    copy.pieces(&metadata.pieces, &when)?;
    copy.directories(metadata, &when)?;
    let is_metadata = |block: BlockNr| {
        let in_later = later.is_some_and(|later| later.claimed.holds(block.0));
        (metadata.claimed.holds(block.0) || in_later) && !is_content(block.0)
    };
    let log = log::find(copy.view(), part == LogPart::Superblock, &is_metadata);
    copy.log(&log)
}
