//! Deleted files that only fast commits recorded: made, synced and deleted between two full
//! commits.
//!
//! ```text
//!   INODE 12 ─► fields     ADD_RANGE 12, DEL_RANGE 12 ─► map     the last state of number 12
//!       └─ with a name, and its number and generation are neither in use nor known ──► candidate
//! ```
//!
//! A record's inode has no checksum of its own. The checksum of its fast commit covers it. The map
//! is complete if the transaction that made the file deleted it, too: later transactions may have
//! added blocks without a fast commit.

use super::evidence::Evidence;
use super::inodes::{self, Found};
use super::map::{Map, Run};
use super::{Candidate, Options};
use crate::state::inode::Body;
use extant_base::{Ino, Result, Tid};
use extant_ondisk::fast_commit::{MappedRange, Record};
use extant_ondisk::inode::Inode as DiskInode;
use hashbrown::{HashMap, HashSet};
use rangemap::RangeMap;

/// What fast commits recorded last of an inode number.
#[derive(Default)]
struct Recorded<'a> {
    inode: Option<(Tid, &'a [u8])>,
    generation: u32,
    /// The transaction that made it.
    made: Option<Tid>,
    /// For each block in the file: how far its block on the volume is from it, and whether it is
    /// written.
    map: RangeMap<u64, (i64, bool)>,
}

/// Adds the files that only fast commits have. `known` are numbers and generations of candidates.
pub(super) fn find(
    evidence: &Evidence<'_>,
    options: &Options,
    known: &mut HashSet<(Ino, u32)>,
    found: &mut Found,
) -> Result<()> {
    let mut recorded: HashMap<Ino, Recorded<'_>> = HashMap::new();
    for commit in &evidence.fast_commits {
        for record in commit.records() {
            match record {
                Record::Inode { ino, raw } => {
                    recorded.entry(ino).or_default().inode(commit.tid(), raw);
                }
                Record::AddRange(range) => {
                    recorded.entry(range.ino).or_default().add(evidence, &range);
                }
                Record::DelRange { ino, first, len_blocks } => {
                    let first = u64::from(first.0);
                    let blocks = first..first + u64::from(len_blocks);
                    recorded.entry(ino).or_default().map.remove(blocks);
                }
                Record::Create(change) => {
                    recorded.entry(change.ino).or_default().made = Some(commit.tid());
                }
                _ => {}
            }
        }
    }
    let mut numbers: Vec<Ino> = recorded.keys().copied().collect();
    numbers.sort_unstable();
    for ino in numbers {
        if let Some(candidate) = candidate(evidence, ino, &recorded[&ino])
            && known.insert(candidate.identity())
        {
            found.add(options, candidate);
        }
    }
    Ok(())
}

impl<'a> Recorded<'a> {
    fn inode(&mut self, tid: Tid, raw: &'a [u8]) {
        // At 64h in the inode.
        let generation = raw.get(0x64..).and_then(|rest| rest.first_chunk::<4>());
        let generation = generation.map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if self.inode.is_some() && generation != self.generation {
            self.map.clear();
            self.made = None;
        }
        self.generation = generation;
        self.inode = Some((tid, raw));
    }

    fn add(&mut self, evidence: &Evidence<'_>, range: &MappedRange) {
        let (first, len) = (u64::from(range.first.0), u64::from(range.len_blocks));
        if !evidence.volume.geometry().holds(range.start, len) || !evidence.spend() {
            return;
        }
        let distance = range.start.0.cast_signed() - first.cast_signed();
        self.map.insert(first..first + len, (distance, !range.unwritten));
    }

    fn map(&self, damaged: bool) -> Option<Map> {
        let run = |(blocks, (distance, written)): (&std::ops::Range<u64>, &(i64, bool))| {
            Some(Run {
                logical: u32::try_from(blocks.start).ok()?,
                physical: blocks.start.checked_add_signed(*distance)?,
                len: u32::try_from(blocks.end - blocks.start).ok()?,
                written: *written,
            })
        };
        let runs = self.map.iter().map(run).collect::<Option<Vec<_>>>()?;
        Some(Map { runs, damaged })
    }
}

/// The deleted file of a number, if there is one.
fn candidate(evidence: &Evidence<'_>, ino: Ino, recorded: &Recorded<'_>) -> Option<Candidate> {
    let (tid, raw) = recorded.inode?;
    let format = evidence.volume.inode_format();
    let mut slot = vec![0; format.inode_size()].into_boxed_slice();
    let len = raw.len().min(slot.len());
    slot[..len].copy_from_slice(&raw[..len]);
    let inode = DiskInode::parse_unverified(&slot, ino, format).ok()?;
    if !inodes::has_name(&inode)
        || !inodes::is_file(evidence, ino, &inode)
        || !inode.kind().is_some_and(|kind| kind.is_file())
        || inode.check_fields(ino, format).is_err()
    {
        return None;
    }
    let now = evidence.inode_now(ino);
    let is_same = |now: &Body| now.generation == inode.generation;
    let is_deleted = now.as_ref().is_none_or(|now| !inodes::has_name(now) || !is_same(now));
    is_deleted.then_some(())?;
    let dtime = now.filter(is_same).map_or(0, |now| now.dtime);
    let copies = evidence.history.copies_of(evidence.slot_of(ino)?.0);
    let gone = copies.iter().map(|copy| copy.tid).rfind(|later| !tid.is_after(*later));
    let is_complete = gone.is_some() && gone == recorded.made;
    let deleted_at = match dtime {
        0 => gone.and_then(|tid| evidence.history.committed_at(tid)),
        dtime => Some(u64::from(dtime)),
    };
    let recorded = match inode.has_inline_data() {
        true => None,
        false => Some(recorded.map(!is_complete)?),
    };
    let body = Body::read_from(ino, inode, slot);
    let seen = Some(tid);
    Some(Candidate { seen, gone, deleted_at, recorded, ..Candidate::new(body) })
}
