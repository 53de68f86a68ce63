//! Why a device cannot be used as the member of a layout (mirror, stripes).

use core::fmt;

/// A device named as a member of a layout, and the problem with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberError {
    /// The device's name, as the caller gave it.
    pub member: String,
    /// The problem.
    pub problem: MemberProblem,
}

/// A problem with a member of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberProblem {
    /// Its file or device cannot be opened.
    CannotOpen {
        /// The system's error number.
        errno: i32,
    },
    /// It has no member record.
    NoRecord,
    /// Its length is 0 bytes.
    Empty,
    /// Its member record is damaged or has values that are out of range.
    Damaged,
    /// It belongs to another volume.
    Foreign,
    /// The records of two devices name the same member.
    Duplicate {
        /// The member's index, from 0.
        index: u16,
    },
    /// It is shorter than the volume needs.
    TooShort {
        /// The length in bytes that it must have.
        needed: u64,
    },
    /// A mirror was changed without it. Another member has the data.
    Stale,
    /// A striped volume (raid0) was changed without it. No other member has its data.
    StaleStripes,
    /// It was changed on its own, outside the layout.
    ChangedOutside,
    /// Its rebuild has not ended, so it lacks a part of the data.
    Unfinished,
    /// It and another member were each changed without the other.
    Split,
    /// The caller did not name a member that the volume needs.
    Missing {
        /// The missing member's index, from 0.
        index: u16,
        /// Number of members of the volume.
        count: u16,
    },
    /// A transfer to or from it failed, and the volume continues without it.
    Failed {
        /// The system's error number.
        errno: i32,
    },
    /// Bytes on it were unreadable or did not match their checksum. The mirror has replaced them
    /// with the copy of another member.
    Repaired {
        /// The first of those bytes, as an offset in the volume.
        at: u64,
        /// Their number.
        len: u64,
    },
    /// It was to be rebuilt from the mirror, but has changes that the mirror lacks.
    Newer {
        /// Its generation.
        generation: u64,
        /// The mirror's generation.
        source: u64,
    },
    /// It was to be rebuilt from the mirror, but each may have changes that the other lacks.
    Diverged {
        /// Its generation.
        generation: u64,
        /// The mirror's generation.
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
            MemberProblem::Repaired { at, len } => {
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
