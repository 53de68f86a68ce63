//! Progress of work that takes long.
//!
//! ```text
//!   check, survey, scrub, resize, a build of an image
//!        │ begin(phase, total) … advance(phase, amount) …        from any thread
//!        ▼
//!   Progress                                                     a bar, a log, or `()`
//! ```

/// A part of long work. Its amount of work is counted in the unit that is given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// A check reads the superblock and the descriptors. No unit.
    CheckGroups,
    /// A check reads inodes and their maps, in pieces of inode tables.
    CheckInodes,
    /// A check reads directories, in batches of them.
    CheckDirectories,
    /// A check finds what the root does not lead to. No unit.
    CheckConnectivity,
    /// A check compares link and reference counts. No unit.
    CheckCounts,
    /// A check compares bitmaps, in blocks of them.
    CheckBitmaps,
    /// A check compares data with its checksums, in blocks.
    CheckData,
    /// A survey reads block groups.
    SurveyGroups,
    /// A survey reads names and their inodes, in inodes. The total is the count of the superblock.
    SurveyNames,
    /// An undelete examines old copies in the log, in copies.
    UndeleteLog,
    /// An undelete reads inode tables, in block groups.
    UndeleteTables,
    /// A dump copies metadata, in blocks.
    Dump,
    /// A scrub makes members equal where a crash left them different, in bytes.
    ScrubResync,
    /// A scrub compares all members, in bytes.
    ScrubCompare,
    /// A scrub checks the volume, as often as necessary. No unit.
    ScrubJudge,
    /// A device that fails is copied before the copy is repaired, in bytes.
    RepairCopy,
    /// A repair searches a device for a superblock, in bytes.
    RepairSearch,
    /// A resize moves blocks and inodes out of the part that is removed, in block groups.
    ResizeMove,
    /// A resize adds space, in blocks.
    ResizeGrow,
    /// A build lists the entries of its sources.
    BuildList,
    /// A build lists file data, or reads it when an archive is spooled, in bytes. It runs at the
    /// same time as [`Phase::BuildList`].
    BuildRead,
    /// A build lays out inodes, directories and the place of every file, in entries.
    BuildLayout,
    /// A build copies the content of files, in bytes.
    BuildCopy,
    /// A build makes the image durable. No unit.
    BuildFlush,
}

/// Receives the progress of work, often and from several threads at once. Implementations should
/// only add to atomic counters, and display them elsewhere. `()` ignores all progress.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::{FileDevice, Phase, Progress, check};
/// use std::sync::Arc;
///
/// struct Names;
/// impl Progress for Names {
///     fn begin(&self, phase: Phase, total: u64) {
///         eprintln!("{phase:?}, {total} in all");
///     }
/// }
/// let device = Arc::new(FileDevice::open("disk.img")?);
/// check::check_device(device, &check::Options::default(), &Names)?;
/// # Ok::<(), extant::Error>(())
/// ```
pub trait Progress: Sync {
    /// `phase` begins, or begins again with a total that is now known. `total` is its amount of
    /// work; 0 if unknown.
    fn begin(&self, phase: Phase, total: u64) {
        let _ = (phase, total);
    }

    /// `amount` more of `phase` is done. The sum may differ from the total, which can be an
    /// estimate.
    fn advance(&self, phase: Phase, amount: u64) {
        let _ = (phase, amount);
    }
}

/// Ignores all progress.
impl Progress for () {}
