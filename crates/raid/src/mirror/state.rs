//! What a mirror knows of its members and regions.

use super::{PRINTED, Slot};
use crate::part::Part;
use extant_ondisk::member::{INTENT_BITS, Intent, Kind, Member, Prints};
use std::ops::Range;
use std::sync::Arc;

/// One member as it is now.
pub(crate) struct Place {
    pub(crate) slot: Arc<Slot>,
    /// It takes reads and writes.
    pub(crate) active: bool,
    pub(crate) rebuilding: bool,
    /// Bytes from the front that are durable on it, while it is rebuilt.
    pub(crate) rebuilt_bytes: u64,
    /// Regions that are not in line with the source.
    pub(crate) behind: Intent,
    /// Reads under way.
    pub(crate) reads: u32,
}

impl Place {
    /// Whether it holds everything.
    pub(crate) fn is_whole(&self) -> bool {
        self.active && !self.rebuilding && self.behind.is_empty()
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Region {
    /// Writes under way.
    pub(crate) writes: u32,
    /// The newest flush that had begun when the last write ended.
    pub(crate) last: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Times that records were written.
    pub record_writes: u64,
    /// Reads that another member answered, because one failed or what it gave was wrong.
    pub reads_redirected: u64,
    /// Of those, places that were mended by the good copy.
    pub repaired: u64,
    /// Bytes copied from member to member.
    pub copied_bytes: u64,
    /// Members that failed while open.
    pub failed_members: u64,
}

/// One member, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceState {
    /// Its name.
    pub name: String,
    /// Which member.
    pub index: u16,
    /// It is in use.
    pub active: bool,
    /// It is being rebuilt.
    pub rebuilding: bool,
    /// Bytes that are not yet in line.
    pub behind_bytes: u64,
}

/// Places in a stream of reads that are remembered.
const STREAMS: usize = 8;

pub(crate) struct State {
    pub(crate) places: Vec<Place>,
    pub(crate) generation: u64,
    pub(crate) settled: bool,
    /// This opening's generation is on record.
    pub(crate) started: bool,
    /// Bits that records shall have.
    pub(crate) intent: Intent,
    /// Bits that the records of all active members have, durably.
    pub(crate) durable: Intent,
    /// A member is out, and the records of the others do not say so durably yet: nothing is acknowledged.
    /// Also when a record could not be written for anything else.
    pub(crate) untold: bool,
    /// Failures on members of which nobody has decided yet whether those are out.
    pub(crate) doubts: usize,
    pub(crate) regions: Vec<Region>,
    /// Flushes that have begun.
    pub(crate) flushes: u64,
    /// The newest that succeeded.
    pub(crate) flushed: u64,
    pub(crate) prints: Prints,
    /// A write of the superblock failed: nobody knows which of the fingerprints it has.
    pub(crate) print_unknown: bool,
    /// Ranges that are being written.
    pub(crate) writing: Vec<Range<u64>>,
    /// Ranges that are being copied: writers wait.
    pub(crate) copying: Vec<Range<u64>>,
    /// Goes up whenever something falls behind.
    pub(crate) setbacks: u64,
    /// Where reads went on, and on which place.
    pub(crate) streams: [(u64, usize); STREAMS],
    pub(crate) next_stream: usize,
    pub(crate) stats: MirrorStats,
}

impl State {
    pub(crate) fn new(
        taken: Vec<(Part, Member)>,
        leader: &Member,
        print: u32,
        region_log2: u8,
    ) -> State {
        let regions = leader.volume_bytes.div_ceil(1 << region_log2) as usize;
        debug_assert!(regions <= INTENT_BITS, "the record was checked");
        let mut intent = Intent::none();
        for (_, record) in taken.iter().filter(|(_, record)| !record.rebuilding) {
            intent.add(&record.intent);
        }
        let mut prints = leader.prints;
        prints.add(print);
        let places = taken.into_iter().map(|(part, record)| {
            let mut behind = Intent::none();
            if record.index != leader.index {
                behind = intent.clone();
            }
            if record.rebuilding {
                for region in (record.rebuilt_bytes >> region_log2) as usize..regions {
                    behind.set(region, true);
                }
            }
            Place {
                slot: Arc::new(Slot { device: part.device, name: part.name, index: record.index }),
                active: true,
                rebuilding: record.rebuilding,
                rebuilt_bytes: record.rebuilt_bytes,
                behind,
                reads: 0,
            }
        });
        State {
            places: places.collect(),
            generation: leader.generation,
            settled: leader.settled,
            started: false,
            intent,
            durable: Intent::none(),
            untold: false,
            doubts: 0,
            regions: vec![Region::default(); regions],
            flushes: 0,
            flushed: 0,
            prints,
            print_unknown: false,
            writing: Vec::new(),
            copying: Vec::new(),
            setbacks: 0,
            streams: [(u64::MAX, 0); STREAMS],
            next_stream: 0,
            stats: MirrorStats::default(),
        }
    }

    /// Members that take writes, with their place.
    pub(crate) fn targets(&self) -> Vec<(usize, Arc<Slot>)> {
        let active = self.places.iter().enumerate().filter(|(_, place)| place.active);
        active.map(|(n, place)| (n, Arc::clone(&place.slot))).collect()
    }

    pub(crate) fn active_mask(&self) -> u32 {
        let active = self.places.iter().filter(|place| place.active);
        active.fold(0, |mask, place| mask | 1 << place.slot.index)
    }

    /// The record of the member in `place`.
    pub(crate) fn record(&self, place: &Place, of: &super::Mirror) -> Member {
        Member {
            kind: Kind::Mirrored { region_log2: of.region_log2 },
            index: place.slot.index,
            count: of.count,
            uuid: of.uuid,
            generation: self.generation,
            volume_bytes: of.len,
            settled: self.settled,
            rebuilding: place.rebuilding,
            rebuilt_bytes: place.rebuilt_bytes,
            active: self.active_mask(),
            prints: self.prints,
            intent: self.intent.clone(),
        }
    }

    /// Whether there is a whole member beside those in `failed`.
    pub(crate) fn can_lose(&self, failed: &[usize]) -> bool {
        let mut places = self.places.iter().enumerate();
        places.any(|(n, place)| place.is_whole() && !failed.contains(&n))
    }

    /// The place that the others follow: the first whole one.
    pub(crate) fn source(&self) -> Option<usize> {
        self.places.iter().position(Place::is_whole)
    }

    /// Nobody knows what the members hold in `regions`: the source counts.
    pub(crate) fn fall_behind(&mut self, regions: Range<usize>) {
        let source = self.source();
        self.setbacks += 1;
        for (n, place) in self.places.iter_mut().enumerate() {
            if Some(n) != source {
                regions.clone().for_each(|region| place.behind.set(region, true));
            }
        }
    }

    /// Clears the bits of regions that were not written for `age` flushes; whether there were any.
    pub(crate) fn rest(&mut self, age: u64) -> bool {
        let mut any = false;
        for (n, region) in self.regions.iter().enumerate() {
            let rests = region.writes == 0 && region.last.saturating_add(age) <= self.flushed;
            let in_line = || !self.places.iter().any(|place| place.active && place.behind.get(n));
            if self.intent.get(n) && rests && in_line() {
                self.intent.set(n, false);
                self.durable.set(n, false);
                any = true;
            }
        }
        any
    }
}

pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Whether the range holds bytes of the superblock's first sector.
pub(crate) fn is_printed(range: &Range<u64>) -> bool {
    overlap(range, &PRINTED)
}
