//! Errors as one line that says what failed, where, and what to do next.
//!
//! ```text
//!   extant: disk.img: /etc/foo: no such file or directory
//!   extant: disk.img: not an ext2, ext3 or ext4 volume: name a partition as IMG?offset=BYTES
//! ```

use crate::moment;
use crate::shown::Shown;
use extant::error::DiskError;
use extant::{Error, What};
use extant_base::{FeatureSet, MemberError, MemberProblem};
use extant_ondisk::features::Incompat;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Why a verb ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A message for standard error, without the program's name.
    Message(String),
    /// The same, for a command line that is wrong whatever the volume and the files contain.
    Usage(String),
    /// The error has already been reported.
    Reported,
    /// The reader of the output closed the pipe.
    Pipe,
}

impl Failure {
    /// A failure with this message.
    pub(crate) fn new(text: impl Display) -> Failure {
        Failure::Message(without_number(&text.to_string()))
    }

    /// A wrong command line, with this message.
    pub(crate) fn usage(text: impl Display) -> Failure {
        Failure::Usage(text.to_string())
    }

    /// Something at `path` in the volume failed.
    pub(crate) fn of_path(image: &Path, path: &[u8], error: &Error) -> Failure {
        let (image, path) = (Shown::path(image), Shown(path));
        Failure::Message(format!("{image}: {path}: {}", explained(error)))
    }

    /// A file of this machine could not be used.
    pub(crate) fn of_file(action: &str, path: &Path, error: impl Into<io::Error>) -> Failure {
        let error: io::Error = error.into();
        Failure::Message(format!("{}: cannot {action}: {}", Shown::path(path), plain(&error)))
    }

    /// Writing the output failed.
    pub(crate) fn of_output(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Pipe,
            _ => Failure::Message(format!("standard output: cannot write: {}", plain(&error))),
        }
    }

    /// Prints the message and returns the program's exit status.
    pub(crate) fn exit(self) -> ExitCode {
        match self {
            Failure::Message(text) => {
                print_message(text);
                ExitCode::from(1)
            }
            Failure::Usage(text) => {
                print_message(text);
                ExitCode::from(2)
            }
            Failure::Reported => ExitCode::from(1),
            Failure::Pipe => ExitCode::SUCCESS,
        }
    }
}

/// Prints a message on standard error. An error of that is ignored.
pub(crate) fn print_message(text: impl Display) {
    use std::io::Write;
    let _ = writeln!(io::stderr().lock(), "extant: {text}");
}

/// An error of the system without the number that Rust appends.
pub(crate) fn plain(error: &io::Error) -> String {
    without_number(&error.to_string())
}

/// The same for the text of an error, which may continue after the number.
pub(crate) fn without_number(text: &str) -> String {
    let number = text.find(" (os error ").and_then(|start| {
        let len = text[start..].find(')')?;
        Some((start, start + len + 1))
    });
    match number {
        Some((start, end)) => [&text[..start], &text[end..]].concat(),
        None => text.to_owned(),
    }
}

/// An error of the engine in one line, with what can be done about it.
pub(crate) fn explained(error: &Error) -> String {
    match error {
        error if is_no_volume(error) => {
            "not an ext2, ext3 or ext4 volume: name a partition as IMG?partition=NUMBER, or the \
             volume's first byte as IMG?offset=BYTES"
                .into()
        }
        Error::Corrupt { what: What::SuperblockBeyondDevice, .. } => {
            format!("{error}: the image is truncated; get a complete copy")
        }
        Error::Corrupt { what: What::JournalElsewhere, .. } => {
            "its journal is on another device: name that device as IMG?journal=DEVICE".into()
        }
        Error::Corrupt { what: What::DataChecksum, .. } => format!(
            "{error}: the device changed the file's data: write the file again; `extant check \
             --data` lists all such blocks"
        ),
        Error::Corrupt { what: What::DataSumsChecksum | What::DataSumsFile, .. } => format!(
            "{error}: `extant tune -O ^data_csum IMG`, then `extant tune -O data_csum IMG`, \
             computes new checksums of the data as it is"
        ),
        Error::Corrupt { .. } => format!(
            "{error}: `extant check` lists all damage, `extant repair` repairs it"
        ),
        Error::Busy => "mounted, or in use by another program: unmount it or end that program \
                        first".into(),
        Error::Locked { pid } => format!(
            "{} has locked the image and may write to it: end that process, or use a copy of \
             the image; root can look at what other users' processes have open",
            process(*pid)
        ),
        Error::Held { holder } => {
            let seen = moment::seconds(holder.seen);
            let advice = match holder.is_checker {
                // A checker that died leaves the same mark as a running one.
                true => "if it does not run any more, use `extant tune --clear-mmp IMG`",
                false => "end that first",
            };
            format!("in use by {holder}, last seen {seen}: {advice}")
        }
        Error::Unsupported { feature }
            if (feature.set, feature.bits)
                == (FeatureSet::Incompat, Incompat::JOURNAL_DEV.bits()) =>
        {
            "the journal of another volume: name that volume, as VOLUME?journal=DEVICE".into()
        }
        Error::Unsupported { feature } if feature.set == FeatureSet::RoCompat => {
            format!("{feature}: the volume can be read, but not changed")
        }
        Error::Unsupported { .. } => format!("{error}: a newer version of extant may support it"),
        Error::Device { op, source, .. } if *op == extant_base::IoOp::Open => {
            format!("cannot open: {}", plain(source))
        }
        Error::Device { op, at, len, source } => {
            format!("{op} of {len} bytes at byte {at} failed: {}", plain(source))
        }
        Error::Disk(problem) => match **problem {
            DiskError::NoTable => format!("{problem}: name it without the partition"),
            DiskError::Damaged => {
                format!("{problem}: name the volume's first byte as IMG?offset=BYTES")
            }
            DiskError::Several { .. } => format!("{problem}: name one as IMG?partition=NUMBER"),
            DiskError::NoSuchPartition => format!("{problem}: `extant info IMG` lists them"),
            _ => problem.to_string(),
        },
        Error::Member(member) => {
            without_number(&format!("{member}: {}", next_step(member.problem)))
        }
        Error::TransactionTooLarge { .. } => {
            "the change is larger than the volume's journal: nothing was changed; use --in-steps, or \
             a larger journal"
                .into()
        }
        Error::NoSpace => format!("{error}: `extant resize` can grow the volume"),
        Error::Invalid(why) => (*why).into(),
        other => other.to_string(),
    }
}

/// Whether the image has no primary superblock.
pub(crate) fn is_no_volume(error: &Error) -> bool {
    matches!(error, Error::Corrupt { what: What::SuperblockMagic, at } if at.group.is_none())
}

/// The message for a member that is missing while the image is used.
pub(crate) fn absence_message(image: &Path, member: &MemberError) -> String {
    let next = match member.problem {
        MemberProblem::CannotOpen { .. } => "the volume is used without this member",
        problem => next_step(problem),
    };
    with_name(image, without_number(&format!("{member}: {next}")))
}

/// The message for a lock that was ignored: the process that holds it has the image open only for
/// reading.
pub(crate) fn ignored_lock_message(image: &Path, pid: u32) -> String {
    let process = process(pid);
    with_name(
        image,
        format!(
            "{process} has locked the image, but has it open for reading only: \
                         continuing"
        ),
    )
}

/// A process of this system, with its name if it can be read.
fn process(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

/// `error` after the name of the image.
pub(crate) fn with_name(image: &Path, error: String) -> String {
    let image = Shown::path(image).to_string();
    // The error of a member that was named by itself starts with that name.
    match error.strip_prefix(&image).is_some_and(|rest| rest.starts_with(':')) {
        true => error,
        false => image + ": " + &error,
    }
}

/// The next step for a member with a problem.
fn next_step(problem: MemberProblem) -> &'static str {
    match problem {
        MemberProblem::Missing { .. } => {
            "name all members, as IMG?member=IMG2; a mirror can be used without them as \
             IMG?degraded"
        }
        MemberProblem::CannotOpen { .. } => {
            "name a member that can be opened; a mirror can be used without it as IMG?degraded"
        }
        MemberProblem::NoRecord | MemberProblem::Foreign => "name the right device",
        MemberProblem::Empty => {
            "name the right device; for a mirror, `extant rebuild OTHER --member IT` fills it"
        }
        // Nothing shows what the member contains.
        MemberProblem::Damaged => {
            "for a mirror, `extant rebuild --force OTHER --member IT` copies it again; for raid0, \
             restore a copy of it"
        }
        MemberProblem::StaleStripes => {
            "restore its newest copy: raid0 has no second copy of its \
                                        data"
        }
        MemberProblem::Duplicate { .. } => "name each member once, without copies of it",
        MemberProblem::Repaired { .. } => "`extant scrub IMG` finds further differences",
        MemberProblem::TooShort { .. } => "it is truncated, or is another device",
        MemberProblem::Split | MemberProblem::ChangedOutside => {
            "choose the member with the right content and name only that, as IMG?degraded; then \
             copy it to the other with `extant rebuild --force`"
        }
        _ => "`extant rebuild IMG --member IT` copies what it lacks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_that_check_cannot_help_with_has_its_own_advice() {
        let with_name =
            |what: What| explained(&extant::Site::of_ino(extant::Ino::CHECKSUM_FILE).corrupt(what));
        for what in [What::DataSumsChecksum, What::DataSumsFile] {
            let text = with_name(what);
            assert!(text.contains("(ino 5): `extant tune -O ^data_csum IMG`, then"), "{text}");
        }
        assert!(with_name(What::DataChecksum).contains("`extant check --data`"));
        assert!(with_name(What::ExtentEmpty).ends_with("`extant repair` repairs it"));
    }

    #[test]
    fn the_number_of_an_error_is_taken_off() {
        assert_eq!(without_number("No such file (os error 2): look"), "No such file: look");
        assert_eq!(without_number("plain"), "plain");
        assert_eq!(plain(&io::Error::from_raw_os_error(2)), "No such file or directory");
    }
}
