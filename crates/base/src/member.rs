//! Why a device cannot be a part of the device that it is named for.

use core::fmt;

/// A device of a layout, by the name it was given, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberError {
    /// As the caller named it.
    pub member: String,
    /// What is wrong.
    pub problem: MemberProblem,
}

/// What can be wrong with a member of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberProblem {
    /// Its file or device cannot be opened.
    CannotOpen {
        /// What the system said, as a number.
        errno: i32,
    },
    /// It has no member record.
    NoRecord,
    /// It has no bytes at all.
    Empty,
    /// Its member record is damaged, or says what cannot be.
    Damaged,
    /// It belongs to another volume.
    Foreign,
    /// Another device says that it is the same member.
    Duplicate {
        /// Which member, from 0.
        index: u16,
    },
    /// It is shorter than the volume needs.
    TooShort {
        /// Bytes it must have.
        needed: u64,
    },
    /// The volume was changed without it.
    Stale,
    /// The same of a member of raid0, which nothing holds a second time.
    StaleStripes,
    /// It was changed by itself, past the layout.
    ChangedOutside,
    /// It is being rebuilt and does not hold everything yet.
    Unfinished,
    /// It and another one were each changed without the other.
    Split,
    /// A member that is needed was not named with it.
    Missing {
        /// Which member, from 0.
        index: u16,
        /// Members of the volume.
        count: u16,
    },
    /// A transfer to it failed, and the volume goes on without it.
    Failed {
        /// What the system said, as a number.
        errno: i32,
    },
    /// Bytes of it could not be read or did not match their checksum, and have the copy of another member now.
    Mended {
        /// The first of them, in the volume.
        at: u64,
        /// How many.
        len: u64,
    },
    /// It has changes that those lack which it is to be copied from.
    Newer {
        /// Its generation.
        generation: u64,
        /// Theirs.
        source: u64,
    },
    /// It and those which it is to be copied from may each have changes that the other lacks.
    Diverged {
        /// Its generation.
        generation: u64,
        /// Theirs.
        source: u64,
    },
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let member = &self.member;
        match self.problem {
            MemberProblem::CannotOpen { errno } => {
                let why = std::io::Error::from_raw_os_error(errno);
                write!(f, "{member}: cannot be opened: {why}")
            }
            MemberProblem::NoRecord => write!(f, "{member}: is no member of a layout"),
            MemberProblem::Empty => write!(f, "{member}: is empty"),
            MemberProblem::Damaged => write!(f, "{member}: its member record is damaged"),
            MemberProblem::Foreign => write!(f, "{member}: is a member of another volume"),
            MemberProblem::Duplicate { index } => {
                write!(f, "{member}: is member {index} a second time")
            }
            MemberProblem::TooShort { needed } => {
                write!(f, "{member}: is too short, {needed} bytes are needed")
            }
            MemberProblem::Stale | MemberProblem::StaleStripes => {
                write!(f, "{member}: is out of date, the volume was changed without it")
            }
            MemberProblem::ChangedOutside => {
                write!(f, "{member}: was changed by itself, without the other members")
            }
            MemberProblem::Unfinished => {
                write!(f, "{member}: is being rebuilt and does not hold everything yet")
            }
            MemberProblem::Split => {
                write!(f, "{member}: it and another member were each changed without the other")
            }
            MemberProblem::Missing { index, count } => {
                write!(f, "{member}: is one of {count} members, and member {index} is missing")
            }
            MemberProblem::Failed { errno } => {
                let why = std::io::Error::from_raw_os_error(errno);
                write!(f, "{member}: failed, the volume goes on without this member: {why}")
            }
            MemberProblem::Mended { at, len } => {
                write!(
                    f,
                    "{member}: {len} bytes at byte {at} were bad: another member's copy is there now"
                )
            }
            MemberProblem::Newer { generation, source } => write!(
                f,
                "{member}: is at generation {generation}, newer than what it is to be copied from, at {source}"
            ),
            MemberProblem::Diverged { generation, source } => write!(
                f,
                "{member}: it, at generation {generation}, and what it is to be copied from, at {source}, \
                 were each changed without the other"
            ),
        }
    }
}
