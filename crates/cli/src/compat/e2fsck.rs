//! `e2fsck` and `fsck.ext2`, `fsck.ext3`, `fsck.ext4`: checks and repairs a volume.
//!
//! ```text
//!   superblock ─► journal replayed ─► check due? ── no ──► "clean", 0
//!        │            (not with -n)       └ yes ─► check ─► finds nothing ─► 0
//!        └ not found: 8; -y looks for a copy          └─► -n: 4;  repair planned ─► -p: safe? ─► 1
//! ```
//!
//! The check is that of `extant check`, the repair that of `extant repair`, with its side file. The
//! side file is removed when the repair is complete, unless `-z` named it.

mod due;
mod optimize;
mod options;
mod progress;
mod repaired;
mod summary;

use super::console::Console;
use super::volume::{Copy, RawVolume};
use super::{Call, words};
use crate::failure::Failure;
use crate::image::Image;
use crate::shown::Shown;
use extant::check::{self, Finding, Report, Severity, check_device};
use extant::{BlockDevice, Error, FileOptions, Site, What};
use options::{Mode, Options, Other};
use progress::Passes;
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use summary::Summary;

const CLEAN: u8 = 0;
const CORRECTED: u8 = 1;
const LEFT: u8 = 4;
const TROUBLE: u8 = 8;
const WRONG_USAGE: u8 = 16;

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    let options = match Options::of(call.arguments) {
        Ok(options) => options,
        Err(other) => return Ok(instead(&other, console)),
    };
    let numbers = match descriptor(options.progress) {
        Ok(numbers) => numbers,
        Err(number) => {
            console.error(format_args!(
                "Error validating file descriptor {number}: Bad file descriptor\n"
            ));
            console.complain("Invalid completion information file descriptor");
            return Ok(TROUBLE);
        }
    };
    if options.mode != Mode::Preen {
        console.error(format_args!("{}", Console::banner("e2fsck")));
    }
    if options.mode == Mode::Ask && !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        console.complain("need terminal for interactive repairs");
        return Ok(TROUBLE);
    }
    let mut image = Image::parse(&options.device)?;
    image.journal = options.journal.clone().or(image.journal);
    Check { options, image, name: String::new(), numbers }.run(console)
}

/// Opens the descriptor of `-C`. 0 is a bar instead.
fn descriptor(number: Option<u32>) -> Result<Option<File>, u32> {
    match number {
        None | Some(0) => Ok(None),
        Some(number) => {
            let path = format!("/proc/self/fd/{number}");
            File::options().write(true).open(path).map(Some).map_err(|_| number)
        }
    }
}

/// A run on one volume.
struct Check {
    options: Options,
    image: Image,
    /// The label, or the name of the device: it begins the lines of results.
    name: String,
    numbers: Option<File>,
}

impl Check {
    fn run(mut self, console: &mut Console) -> Result<u8, Failure> {
        self.name = Shown::path(&self.image.name).to_string();
        let copy = Copy { block: self.options.superblock, block_bytes: self.options.block_bytes };
        let volume = match RawVolume::open(&self.image, copy) {
            Ok(volume) if volume.checksum_is_right => volume,
            Ok(_) => {
                let error = Site::NOWHERE.corrupt(What::SuperblockChecksum);
                return self.without_superblock(&error, console);
            }
            Err(error) => return self.without_superblock(&error, console),
        };
        if !volume.sb.label().is_empty() {
            self.name = Shown(volume.sb.label()).to_string();
        }
        if self.options.mode != Mode::No && !self.may_write(console) {
            return Ok(TROUBLE);
        }
        if copy.block.is_some() {
            if !self.options.force {
                let name = &self.name;
                console.print(format_args!("{name} was not cleanly unmounted, check forced.\n"))?;
            }
            return self.all(Some(volume.sb.block_group.0), console);
        }
        drop(volume);
        let was_damaged = !self.replay(console)?;
        let volume = match RawVolume::open(&self.image, copy) {
            Ok(volume) => volume,
            Err(error) => return self.without_superblock(&error, console),
        };
        if !was_damaged && self.options.journal_only {
            return Ok(CLEAN);
        }
        if !self.options.force && !was_damaged {
            match due::reason(&volume) {
                None => return self.done(&volume, console),
                Some(reason) => {
                    console.print(format_args!("{} {reason}, check forced.\n", self.name))?;
                }
            }
        }
        drop(volume);
        self.all(None, console)
    }

    /// Prints that no check is necessary.
    fn done(&self, volume: &RawVolume, console: &mut Console) -> Result<u8, Failure> {
        let text = due::clean(volume).map_err(|error| Failure::new(words::of(&error).text))?;
        console.print(format_args!("{}: clean, {text}\n", self.name))?;
        Ok(CLEAN)
    }

    /// Whether the device may be written. If not, prints why.
    fn may_write(&self, console: &mut Console) -> bool {
        let opened = FileOptions::new().write(true).open(&self.image.path);
        let name = Shown::path(&self.image.name);
        match opened {
            Ok(_) => true,
            Err(Error::Busy) => {
                let text = format!("{} while trying to open {name}", words::of(&Error::Busy).text);
                console.complain(&text);
                let hint = "Filesystem mounted or opened exclusively by another program?\n";
                let _ = console.print(format_args!("{hint}"));
                false
            }
            Err(error) => {
                let text = words::of(&error).text;
                console.complain(&format!("{text} while trying to open {name}"));
                false
            }
        }
    }

    /// Replays the journal. Returns whether the volume can be relied on after that.
    fn replay(&self, console: &mut Console) -> Result<bool, Failure> {
        let volume = RawVolume::open(&self.image, Copy::default());
        let Ok(volume) = volume else { return Ok(false) };
        let needs = volume.sb.needs_recovery() || due::has_orphans(&volume.sb);
        let is_logged = volume.sb.needs_recovery();
        drop(volume);
        if !needs {
            return Ok(true);
        }
        if self.options.mode == Mode::No {
            if is_logged {
                console.print(format_args!(
                    "Warning: skipping journal recovery because doing a read-only filesystem \
                     check.\n"
                ))?;
            }
            return Ok(true);
        }
        if is_logged {
            console.print(format_args!("{}: recovering journal\n", self.name))?;
            console.flush()?;
        }
        match self.image.options().recover_in_place(&self.image.path) {
            Ok(report) => Ok(report.problems.is_empty()),
            Err(Error::Corrupt { what: What::JournalElsewhere, .. }) => {
                Err(Failure::new("the journal is on another device: name it with -j"))
            }
            Err(Error::Corrupt { .. }) => Ok(false),
            Err(error) => Err(Failure::new(words::of(&error).text)),
        }
    }

    /// Checks the whole volume and repairs it, with the superblock copy in a group.
    fn all(&mut self, backup: Option<u32>, console: &mut Console) -> Result<u8, Failure> {
        console.flush()?;
        let quiet = self.options.mode == Mode::Preen;
        let bar = self.options.progress == Some(0);
        let device = Shown::path(&self.image.name).to_string();
        let passes = Passes::new(&device, !quiet, self.numbers.take(), bar);
        let report = self.check(&passes);
        passes.finish();
        let report = report?;
        // A check that finds nothing clears the state by itself.
        let is_state = |finding: &Finding| finding.what == What::VolumeState;
        let sound = report.ran && report.clean && report.findings.iter().all(is_state);
        match self.options.mode {
            Mode::No => self.answer(&report, console),
            _ if sound && backup.is_none() && self.options.optimize => {
                optimize::directories(self, &report, console)
            }
            _ if sound && backup.is_none() => self.note_check(&report, console),
            _ => {
                let code = repaired::repair(self, backup, &report, console)?;
                match code {
                    CLEAN | CORRECTED if self.options.optimize => {
                        optimize::after_repair(self, code, console)
                    }
                    code => Ok(code),
                }
            }
        }
    }

    /// Checks the volume as it is on disk.
    fn check(&self, passes: &Passes) -> Result<Report, Failure> {
        let failed = |error: Error| Failure::new(words::of(&error).text);
        let device = self.image.options().assemble(&self.image.path).map_err(failed)?.device();
        self.check_on(device, passes)
    }

    fn check_on(
        &self,
        device: Arc<dyn BlockDevice>,
        progress: &dyn extant::Progress,
    ) -> Result<Report, Failure> {
        let failed = |error: Error| Failure::new(words::of(&error).text);
        let mut options = check::Options { recover: false, ..check::Options::default() };
        if let Some(journal) = &self.image.journal {
            options.journal = Some(Arc::new(FileOptions::new().open(journal).map_err(failed)?));
        }
        check_device(device, &options, progress).map_err(failed)
    }

    /// Prints the findings of a check that changes nothing.
    fn answer(&self, report: &Report, console: &mut Console) -> Result<u8, Failure> {
        if !report.ran {
            return Err(Failure::new("the volume could not be checked"));
        }
        let is_damage = |finding: &&Finding| finding.severity == Severity::Error;
        for finding in report.findings.iter().filter(is_damage) {
            console.print(format_args!("{}\n", Shown(finding.to_string().as_bytes())))?;
        }
        let summary = Summary::of(self, &report.stats);
        if report.clean {
            return summary.print(console).map(|()| CLEAN);
        }
        let name = &self.name;
        console.print(format_args!(
            "\n{name}: ********** WARNING: Filesystem still has errors **********\n\n"
        ))?;
        summary.print(console).map(|()| LEFT)
    }

    /// Records in the superblock that a check found nothing.
    fn note_check(&self, report: &Report, console: &mut Console) -> Result<u8, Failure> {
        let was_valid = due::note_check(&self.image);
        let was_valid = was_valid.map_err(|error| Failure::new(words::of(&error).text))?;
        Summary::of(self, &report.stats).print(console)?;
        Ok(if was_valid { CLEAN } else { CORRECTED })
    }

    /// The volume has no superblock that can be used.
    fn without_superblock(&self, error: &Error, console: &mut Console) -> Result<u8, Failure> {
        let said = words::of(error).text;
        let name = Shown::path(&self.image.name);
        if let Error::Unsupported { feature } = error {
            console.error(format_args!("{name} has unsupported feature(s): {}\n", feature.name));
            console.complain("Get a newer version of e2fsck!");
            return Ok(TROUBLE);
        }
        let is_missing = matches!(error, Error::Device { .. });
        if self.options.mode == Mode::Yes && !is_missing && self.options.superblock.is_none() {
            console.print(format_args!(
                "ext2fs_open2: {said}\n{}: Superblock invalid, trying backup blocks...\n",
                console.name().to_owned()
            ))?;
            return repaired::repair_lost(self, error, console);
        }
        self.complain(&said, is_missing, console)
    }

    /// Prints why the volume cannot be opened.
    fn complain(&self, said: &str, is_missing: bool, console: &mut Console) -> Result<u8, Failure> {
        let name = Shown::path(&self.image.name);
        console.complain(&format!("{said} while trying to open {name}"));
        if is_missing {
            let hint = match fs::metadata(&self.image.path) {
                Err(_) => "Possibly non-existent device?\n",
                Ok(_) => "Could this be a zero-length partition?\n",
            };
            console.print(format_args!("{hint}"))?;
            return Ok(TROUBLE);
        }
        if self.options.mode == Mode::Preen {
            console.print(format_args!("{name}: "))?;
        }
        console.print(format_args!("{NO_SUPERBLOCK}"))?;
        Ok(TROUBLE)
    }
}

const NO_SUPERBLOCK: &str = "
The superblock could not be read or does not describe a valid ext2/ext3/ext4
filesystem.  If the device is valid and it really contains an ext2/ext3/ext4
filesystem (and not swap or ufs or something else), then the superblock
is corrupt, and you might try running e2fsck with an alternate superblock:
    e2fsck -b 8193 <device>
 or
    e2fsck -b 32768 <device>

";

/// Answers a call that is no check.
fn instead(other: &Other, console: &mut Console) -> u8 {
    match other {
        Other::Version => console.version("e2fsck"),
        Other::Usage(why) => {
            if let Some(why) = why {
                console.complain(why);
            }
            let name = console.name().to_owned();
            console.error(format_args!("Usage: {name} {USAGE}"));
            WRONG_USAGE
        }
        Other::Extended(word) => {
            console.error(format_args!("Unknown extended option: {word}\n{EXTENDED}"));
            WRONG_USAGE
        }
        Other::Contradiction(text) => {
            console.complain(text);
            TROUBLE
        }
        Other::Modes => {
            console.complain("Only one of the options -p/-a, -n or -y may be specified.");
            TROUBLE
        }
    }
}

const USAGE: &str = "[-panyrftvDFV] [-b superblock] [-B blocksize]
\t\t[-C fd] [-j external_journal]
\t\t[-E extended-options] [-z undo_file] device

Emergency help:
 -p                   Automatic repair (no questions)
 -n                   Make no changes to the filesystem
 -y                   Assume \"yes\" to all questions
 -f                   Force checking even if filesystem is marked clean
 -v                   Be verbose
 -b superblock        Use alternative superblock
 -B blocksize         Force blocksize when looking for superblock
 -j external_journal  Set location of the external journal
 -D                   Optimize directories
 -z undo_file         Create an undo file
";

const EXTENDED: &str = "
Extended options are separated by commas, and may take an argument which
is set off by an equals ('=') sign.  Valid extended options are:

\tjournal_only
\tnodiscard
\tno_optimize_extents
\tinode_count_fullmap
\tno_inode_count_fullmap
\treadahead_kb=<buffer size>
\tfixes_only

";
