//! Assembly: which devices belong together, and which of them are valid.
//!
//! ```text
//!   records ──► one volume? ──► the freshest member: newest generation, complete, lowest index
//!                                  │
//!   each other member:  same generation, each counts the other as active ──────────► used
//!                       one less, the freshest one unconfirmed (crash between records) ──► used
//!                       superblock fingerprint not on record ─► changed outside: refused
//!                                          … its checksum wrong ─► damaged: copied over
//!                       both changed without the other ─────────► split: refused
//!                       older ──────────────────────────────────► left out, to be rebuilt
//!   to write:           every member that the freshest one counts as active, or `degraded`
//! ```

use crate::mirror::Mirror;
use crate::opening::Opening;
use crate::origin::{SuperblockOrigin, is_changed_outside, superblock_origin};
use crate::part::Part;
use crate::stripes::Stripes;
use extant_base::{Error, MemberError, MemberProblem, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::{Kind, MEMBERS_MAX, Member};
use std::sync::Arc;

/// The result of [`assemble`].
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
    /// The device that holds the volume.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            Assembled::Single(device) => Arc::clone(device),
            Assembled::Striped(stripes) => Arc::clone(stripes) as Arc<dyn BlockDevice>,
            Assembled::Mirrored(mirror) => Arc::clone(mirror) as Arc<dyn BlockDevice>,
        }
    }
}

/// Composes one device from `parts`, which may be in any order. A single device without a record is
/// returned as it is. For reading, members of a mirror may be missing; out-of-date members are left
/// out.
///
/// # Errors
/// `Member`, which names the device and the problem; `Invalid` when `parts` is empty; `Device`;
/// `Unsupported` for a record of an unknown version.
pub fn assemble(parts: Vec<Part>, opening: Opening) -> Result<Assembled> {
    let mut found: Vec<(Part, Member)> = Vec::with_capacity(parts.len());
    let mut left_out = Vec::new();
    let is_single = parts.len() == 1;
    for part in parts {
        match part.record() {
            Ok(Some(record)) => found.push((part, record)),
            Ok(None) if is_single => return Ok(Assembled::Single(part.device)),
            Ok(None) => {
                let problem = match part.device.len() {
                    0 => MemberProblem::Empty,
                    _ => MemberProblem::NoRecord,
                };
                // A device whose record was overwritten counts as missing.
                match opening.degraded {
                    true => left_out.push((part, problem)),
                    false => return Err(part.refuse(problem)),
                }
            }
            Err(Error::Corrupt { .. }) if !is_single => {
                left_out.push((part, MemberProblem::Damaged))
            }
            Err(Error::Corrupt { .. }) => return Err(part.refuse(MemberProblem::Damaged)),
            // A device that cannot be read at all counts as missing.
            Err(error @ Error::Device { .. }) if !is_single => {
                let errno = error.errno();
                left_out.push((part, MemberProblem::Failed { errno }));
            }
            Err(error) => return Err(error),
        }
    }
    let Some((_, first)) = found.first() else {
        let (part, problem) = left_out.first().ok_or(Error::Invalid("no device was named"))?;
        return Err(part.refuse(*problem));
    };
    let volume = |record: &Member| (record.uuid, record.kind, record.count, record.volume_bytes);
    let of_one = |member: &(Part, Member)| {
        let same = |other: &&(Part, Member)| volume(&other.1) == volume(&member.1);
        found.iter().filter(same).count()
    };
    // The volume that most devices belong to is the intended one; among equals, the one named
    // first.
    let most = found.iter().map(of_one).max().unwrap_or(0);
    let intended = found.iter().find(|member| of_one(member) == most);
    let first = intended.map_or(first, |(_, record)| record).clone();
    if let Some((part, _)) = found.iter().find(|(_, record)| volume(record) != volume(&first)) {
        return Err(part.refuse(MemberProblem::Foreign));
    }
    for (n, (part, record)) in found.iter().enumerate() {
        if found[..n].iter().any(|(_, other)| other.index == record.index) {
            return Err(part.refuse(MemberProblem::Duplicate { index: record.index }));
        }
        let needed = record.needed_bytes();
        if part.device.len() < needed {
            return Err(part.refuse(MemberProblem::TooShort { needed }));
        }
    }
    found.sort_by_key(|(_, record)| record.index);
    match first.kind {
        Kind::Striped { .. } => stripes(found, left_out, opening),
        Kind::Mirrored { .. } => mirror(found, left_out, opening),
    }
}

fn stripes(
    found: Vec<(Part, Member)>,
    left_out: Vec<(Part, MemberProblem)>,
    opening: Opening,
) -> Result<Assembled> {
    if let Some((part, problem)) = left_out.first() {
        return Err(part.refuse(match *problem {
            // A striped volume does not work without it.
            MemberProblem::Failed { errno } => MemberProblem::CannotOpen { errno },
            problem => problem,
        }));
    }
    let count = found[0].1.count;
    for index in 0..count {
        if !found.iter().any(|(_, record)| record.index == index) {
            return Err(found[0].0.refuse(MemberProblem::Missing { index, count }));
        }
    }
    let newest = found.iter().map(|(_, record)| record.generation).max().unwrap_or(0);
    let confirmed = found.iter().any(|(_, record)| record.generation == newest && record.confirmed);
    for (part, record) in &found {
        let between = !confirmed && record.generation.checked_add(1) == Some(newest);
        if record.generation != newest && !between {
            return Err(part.refuse(MemberProblem::StaleStripes));
        }
    }
    Ok(Assembled::Striped(Arc::new(Stripes::new(found, opening.write, opening.together))))
}

/// Decides about a member but the freshest one: `None` uses it, a problem leaves it out or refuses
/// it.
fn problem_of(
    freshest: &(Part, Member),
    other: &(Part, Member),
    newest_confirmed: bool,
) -> Result<Option<MemberProblem>> {
    let (freshest, record) = (&freshest.1, &other.1);
    let counts = |a: &Member, b: &Member| a.active & (1 << b.index) != 0;
    let same = record.generation == freshest.generation;
    let between =
        !newest_confirmed && record.generation.checked_add(1) == Some(freshest.generation);
    // Neither counts the other, so both may have changes that the other lacks.
    let is_split = !counts(freshest, record) && !counts(record, freshest) && !record.rebuilding;
    if same && !counts(freshest, record) || is_split {
        return Ok(Some(MemberProblem::Split));
    }
    if !(same || between) || !counts(freshest, record) || !counts(record, freshest) {
        // A newer member that is still rebuilding was never counted on.
        return Ok(Some(MemberProblem::Stale));
    }
    Ok(is_changed_outside(&other.0, record)?.then_some(MemberProblem::ChangedOutside))
}

fn mirror(
    found: Vec<(Part, Member)>,
    mut left_out: Vec<(Part, MemberProblem)>,
    opening: Opening,
) -> Result<Assembled> {
    let complete = found.iter().filter(|(_, record)| !record.rebuilding);
    let newest = complete.clone().map(|(_, record)| record.generation).max();
    let Some(newest) = newest else {
        return Err(found[0].0.refuse(MemberProblem::Unfinished));
    };
    let is_newest = |(_, record): &&(Part, Member)| record.generation == newest;
    let newest_confirmed = found.iter().filter(is_newest).any(|(_, record)| record.confirmed);
    let can_lead = |member: &&(Part, Member)| {
        is_newest(member)
            && superblock_origin(&member.0, &member.1).ok() == Some(SuperblockOrigin::Own)
    };
    let freshest = complete.clone().find(can_lead).or_else(|| complete.clone().find(is_newest));
    let freshest = freshest.expect("its generation was found there").clone();
    if found.len() > 1 && is_changed_outside(&freshest.0, &freshest.1)? {
        return Err(freshest.0.refuse(MemberProblem::ChangedOutside));
    }
    let mut taken = Vec::new();
    for mut member in found {
        if member.1.index == freshest.1.index {
            taken.push(member);
            continue;
        }
        if superblock_origin(&member.0, &member.1).ok() == Some(SuperblockOrigin::Damaged) {
            // Treat it like a torn write: the freshest member's bytes are copied to it.
            member.1.intent.set(0, true);
        }
        match problem_of(&freshest, &member, newest_confirmed) {
            Ok(None) => taken.push(member),
            Ok(Some(problem @ MemberProblem::Stale)) => left_out.push((member.0, problem)),
            Ok(Some(problem)) => return Err(member.0.refuse(problem)),
            Err(error @ Error::Device { .. }) => {
                left_out.push((member.0, MemberProblem::Failed { errno: error.errno() }));
            }
            Err(error) => return Err(error),
        }
    }
    let count = freshest.1.count;
    if opening.write && !opening.degraded {
        let is_there = |index: u16| taken.iter().any(|(_, record)| record.index == index);
        let missing = (0..count.min(MEMBERS_MAX))
            .find(|index| freshest.1.active & (1 << index) != 0 && !is_there(*index));
        if let Some(index) = missing {
            return Err(match left_out.first() {
                Some((part, problem)) => part.refuse(*problem),
                None => freshest.0.refuse(MemberProblem::Missing { index, count }),
            });
        }
    }
    let left_out = left_out
        .into_iter()
        .map(|(part, problem)| MemberError { member: part.name, problem })
        .collect();
    Mirror::new(taken, freshest.1, left_out, opening)
        .map(|mirror| Assembled::Mirrored(Arc::new(mirror)))
}
