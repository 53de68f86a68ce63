//! Which devices belong together, and which of them may be believed.
//!
//! ```text
//!   records ──► one volume? ──► the leader: newest generation, whole, lowest index
//!                                  │
//!   each other member:  same generation, each counts the other as active ──────────► taken
//!                       one less, the leader's not settled (a cut between records) ► taken
//!                       superblock's fingerprint not on record ─► changed by itself: refused
//!                                          … its checksum wrong ─► damaged: copied from the leader
//!                       both changed without the other ─────────► split: refused
//!                       older ──────────────────────────────────► left out, to be rebuilt
//!   to write:           every member that the leader counts as active, or `degraded`
//! ```

use crate::mirror::Mirror;
use crate::part::Part;
use crate::stripes::Stripes;
use extant_base::{ByteOffset, Error, MemberError, MemberProblem, Result, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::{Kind, MEMBERS_MAX, Member, print_of};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::sync::Arc;

/// How a layout is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Whether it may be changed.
    pub write: bool,
    /// Whether a mirror may be changed without members that it counts on. They are out of date from
    /// then on.
    pub degraded: bool,
    /// Whether transfers go to members side by side. Without, they go to one after the other: for
    /// tests that repeat.
    pub together: bool,
}

impl Opening {
    /// To read.
    pub fn read() -> Opening {
        Opening { write: false, degraded: false, together: true }
    }

    /// To read and write.
    pub fn write() -> Opening {
        Opening { write: true, ..Opening::read() }
    }
}

/// What the devices are together.
#[derive(Clone)]
pub enum Assembled {
    /// One device without a record.
    Single(Arc<dyn BlockDevice>),
    /// raid0.
    Striped(Arc<Stripes>),
    /// raid1.
    Mirrored(Arc<Mirror>),
}

impl std::fmt::Debug for Assembled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Assembled::Single(_) => f.write_str("Single"),
            Assembled::Striped(stripes) => f.debug_tuple("Striped").field(stripes).finish(),
            Assembled::Mirrored(mirror) => f.debug_tuple("Mirrored").field(mirror).finish(),
        }
    }
}

impl Assembled {
    /// The device that the volume lies on.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Assembled::Single(device) => Arc::clone(device),
            Assembled::Striped(stripes) => Arc::clone(stripes) as Arc<dyn BlockDevice>,
            Assembled::Mirrored(mirror) => Arc::clone(mirror) as Arc<dyn BlockDevice>,
        }
    }
}

/// Makes one device of `parts`, named in any order. One device without a record is itself.
///
/// A mirror may be read with members missing, out of date ones left out.
/// Errors: `Member` naming the device, and what is wrong with it or missing; `Device`.
pub fn assemble(parts: Vec<Part>, opening: Opening) -> Result<Assembled> {
    let mut known: Vec<(Part, Member)> = Vec::with_capacity(parts.len());
    let mut left_out = Vec::new();
    let alone = parts.len() == 1;
    for part in parts {
        match part.record() {
            Ok(Some(record)) => known.push((part, record)),
            Ok(None) if alone => return Ok(Assembled::Single(part.device)),
            Ok(None) => {
                let problem = match part.device.len() {
                    0 => MemberProblem::Empty,
                    _ => MemberProblem::NoRecord,
                };
                // A record that was written over is as good as none.
                match opening.degraded {
                    true => left_out.push((part, problem)),
                    false => return Err(part.refuse(problem)),
                }
            }
            Err(Error::Corrupt { .. }) if !alone => left_out.push((part, MemberProblem::Damaged)),
            Err(Error::Corrupt { .. }) => return Err(part.refuse(MemberProblem::Damaged)),
            // A device that cannot be read at all is as good as none.
            Err(error @ Error::Device { .. }) if !alone => {
                let errno = error.errno();
                left_out.push((part, MemberProblem::Failed { errno }));
            }
            Err(error) => return Err(error),
        }
    }
    let Some((_, first)) = known.first() else {
        let (part, problem) = left_out.first().ok_or(Error::Invalid("no device was named"))?;
        return Err(part.refuse(*problem));
    };
    let volume = |record: &Member| (record.uuid, record.kind, record.count, record.volume_bytes);
    let of_one = |member: &(Part, Member)| {
        let same = |other: &&(Part, Member)| volume(&other.1) == volume(&member.1);
        known.iter().filter(same).count()
    };
    // The volume that most of them belong to is meant; among equals the one that was named first.
    let most = known.iter().map(of_one).max().unwrap_or(0);
    let meant = known.iter().find(|member| of_one(member) == most);
    let first = meant.map_or(first, |(_, record)| record).clone();
    if let Some((part, _)) = known.iter().find(|(_, record)| volume(record) != volume(&first)) {
        return Err(part.refuse(MemberProblem::Foreign));
    }
    for (n, (part, record)) in known.iter().enumerate() {
        if known[..n].iter().any(|(_, other)| other.index == record.index) {
            return Err(part.refuse(MemberProblem::Duplicate { index: record.index }));
        }
        let needed = record.needed_bytes();
        if part.device.len() < needed {
            return Err(part.refuse(MemberProblem::TooShort { needed }));
        }
    }
    known.sort_by_key(|(_, record)| record.index);
    match first.kind {
        Kind::Striped { .. } => stripes(known, left_out, opening),
        Kind::Mirrored { .. } => mirror(known, left_out, opening),
    }
}

fn stripes(
    known: Vec<(Part, Member)>,
    left_out: Vec<(Part, MemberProblem)>,
    opening: Opening,
) -> Result<Assembled> {
    if let Some((part, problem)) = left_out.first() {
        return Err(part.refuse(match *problem {
            // Stripes do not go on without it.
            MemberProblem::Failed { errno } => MemberProblem::CannotOpen { errno },
            problem => problem,
        }));
    }
    let count = known[0].1.count;
    for index in 0..count {
        if !known.iter().any(|(_, record)| record.index == index) {
            return Err(known[0].0.refuse(MemberProblem::Missing { index, count }));
        }
    }
    let newest = known.iter().map(|(_, record)| record.generation).max().unwrap_or(0);
    let settled = known.iter().any(|(_, record)| record.generation == newest && record.settled);
    for (part, record) in &known {
        let between = !settled && record.generation.checked_add(1) == Some(newest);
        if record.generation != newest && !between {
            return Err(part.refuse(MemberProblem::StaleStripes));
        }
    }
    Ok(Assembled::Striped(Arc::new(Stripes::new(known, opening.write, opening.together))))
}

/// What is to be done with a member beside the leader.
fn verdict(
    leader: &(Part, Member),
    other: &(Part, Member),
    newest_settled: bool,
) -> Result<Option<MemberProblem>> {
    let (leader, record) = (&leader.1, &other.1);
    let counts = |a: &Member, b: &Member| a.active & (1 << b.index) != 0;
    let same = record.generation == leader.generation;
    let between = !newest_settled && record.generation.checked_add(1) == Some(leader.generation);
    // Neither knows of the other's changes, whoever made more of them.
    let is_apart = !counts(leader, record) && !counts(record, leader) && !record.rebuilding;
    if same && !counts(leader, record) || is_apart {
        return Ok(Some(MemberProblem::Split));
    }
    if !(same || between) || !counts(leader, record) || !counts(record, leader) {
        // One that is newer and rebuilding never came to be counted on.
        return Ok(Some(MemberProblem::Stale));
    }
    Ok(is_changed_outside(&other.0, record)?.then_some(MemberProblem::ChangedOutside))
}

/// Whether somebody else wrote the superblock of the member `part`.
pub(crate) fn is_changed_outside(part: &Part, record: &Member) -> Result<bool> {
    Ok(face(part, record)? == Face::Foreign)
}

/// What a member's superblock says of who wrote it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Face {
    /// The layout.
    Own,
    /// Nobody: its checksum is wrong.
    Damaged,
    /// Somebody else.
    Foreign,
}

fn face(part: &Part, record: &Member) -> Result<Face> {
    if record.volume_bytes < 2048 {
        return Ok(Face::Own);
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    part.device.read_fresh_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes)?;
    if record.prints.has(print_of(&bytes[..512])) {
        return Ok(Face::Own);
    }
    let superblock = RawSuperblock::from_prefix(&bytes).map(|raw| raw.check(Site::NOWHERE));
    match superblock {
        Some(Err(Error::Corrupt { .. })) => Ok(Face::Damaged),
        _ => Ok(Face::Foreign),
    }
}

fn mirror(
    known: Vec<(Part, Member)>,
    mut left_out: Vec<(Part, MemberProblem)>,
    opening: Opening,
) -> Result<Assembled> {
    let whole = known.iter().filter(|(_, record)| !record.rebuilding);
    let newest = whole.clone().map(|(_, record)| record.generation).max();
    let Some(newest) = newest else {
        return Err(known[0].0.refuse(MemberProblem::Unfinished));
    };
    let is_newest = |(_, record): &&(Part, Member)| record.generation == newest;
    let newest_settled = known.iter().filter(is_newest).any(|(_, record)| record.settled);
    let can_lead = |member: &&(Part, Member)| {
        is_newest(member) && face(&member.0, &member.1).ok() == Some(Face::Own)
    };
    let leader = whole.clone().find(can_lead).or_else(|| whole.clone().find(is_newest));
    let leader = leader.expect("its generation was found there").clone();
    if known.len() > 1 && is_changed_outside(&leader.0, &leader.1)? {
        return Err(leader.0.refuse(MemberProblem::ChangedOutside));
    }
    let mut taken = Vec::new();
    for mut member in known {
        if member.1.index == leader.1.index {
            taken.push(member);
            continue;
        }
        if face(&member.0, &member.1).ok() == Some(Face::Damaged) {
            // As if a write had been cut there: it follows the leader.
            member.1.intent.set(0, true);
        }
        match verdict(&leader, &member, newest_settled) {
            Ok(None) => taken.push(member),
            Ok(Some(problem @ MemberProblem::Stale)) => left_out.push((member.0, problem)),
            Ok(Some(problem)) => return Err(member.0.refuse(problem)),
            Err(error @ Error::Device { .. }) => {
                left_out.push((member.0, MemberProblem::Failed { errno: error.errno() }));
            }
            Err(error) => return Err(error),
        }
    }
    let count = leader.1.count;
    if opening.write && !opening.degraded {
        let is_there = |index: u16| taken.iter().any(|(_, record)| record.index == index);
        let missing = (0..count.min(MEMBERS_MAX))
            .find(|index| leader.1.active & (1 << index) != 0 && !is_there(*index));
        if let Some(index) = missing {
            return Err(match left_out.first() {
                Some((part, problem)) => part.refuse(*problem),
                None => leader.0.refuse(MemberProblem::Missing { index, count }),
            });
        }
    }
    let left_out = left_out
        .into_iter()
        .map(|(part, problem)| MemberError { member: part.name, problem })
        .collect();
    Mirror::new(taken, leader.1, left_out, opening)
        .map(|mirror| Assembled::Mirrored(Arc::new(mirror)))
}
