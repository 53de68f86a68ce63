//! The state of a mirror's members and regions.

use super::{PRINTED, Slot};
use crate::part::Part;
use extant_ondisk::member::{INTENT_BITS, Intent, Kind, Member, Prints};
use std::ops::Range;
use std::sync::Arc;

/// The current state of one member.
pub(crate) struct Place {
    pub(crate) slot: Arc<Slot>,
    /// It takes part in reads and writes.
    pub(crate) active: bool,
    pub(crate) rebuilding: bool,
    /// While it is rebuilt: bytes from the start that are durable on it.
    pub(crate) rebuilt_bytes: u64,
    /// Regions that are out of sync with the source.
    pub(crate) out_of_sync: Intent,
    /// Reads in flight.
    pub(crate) reads: u32,
}

impl Place {
    /// Whether it is in sync everywhere.
    pub(crate) fn is_whole(&self) -> bool {
        self.active && !self.rebuilding && self.out_of_sync.is_empty()
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Region {
    /// Writes in flight.
    pub(crate) writes: u32,
    /// Number of the newest flush that had begun when the last write ended.
    pub(crate) last: u64,
}

/// Counters of a mirror since its opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Number of times that records were written.
    pub record_writes: u64,
    /// Reads served by another member, because one failed or returned wrong bytes.
    pub reads_redirected: u64,
    /// Ranges repaired on a member with the good copy.
    pub repaired: u64,
    /// Bytes copied between members.
    pub copied_bytes: u64,
    /// Members that failed since the opening.
    pub failed_members: u64,
}

/// The state of one member, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceState {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u16,
    /// It is in use.
    pub active: bool,
    /// It is being rebuilt.
    pub rebuilding: bool,
    /// Bytes that are out of sync.
    pub out_of_sync_bytes: u64,
}

/// Number of sequential read streams that are remembered.
const STREAMS: usize = 8;

pub(crate) struct State {
    pub(crate) places: Vec<Place>,
    pub(crate) generation: u64,
    pub(crate) confirmed: bool,
    /// This opening's generation is on record.
    pub(crate) started: bool,
    /// The intent bits that the next record write stores.
    pub(crate) intent: Intent,
    /// The intent bits that are durable in the records of all active members.
    pub(crate) durable: Intent,
    /// A member is out, and the records of the other members do not say so durably yet. No write or
    /// flush is acknowledged meanwhile. Also set when a record write failed for another reason.
    pub(crate) unrecorded: bool,
    /// Failures for which no thread has decided yet whether their members are out.
    pub(crate) undecided: usize,
    pub(crate) regions: Vec<Region>,
    /// Flushes that have begun.
    pub(crate) flushes: u64,
    /// Number of the newest flush that succeeded.
    pub(crate) flushed: u64,
    pub(crate) prints: Prints,
    /// A write of the superblock failed: which fingerprint it has is unknown.
    pub(crate) print_unknown: bool,
    /// Ranges with writes in flight.
    pub(crate) writing: Vec<Range<u64>>,
    /// Ranges under copy; writers to them wait.
    pub(crate) copying: Vec<Range<u64>>,
    /// Incremented whenever a region becomes out of sync.
    pub(crate) out_of_sync_events: u64,
    /// For each stream: the end of its last read, and the member that served it.
    pub(crate) streams: [(u64, usize); STREAMS],
    pub(crate) next_stream: usize,
    pub(crate) stats: MirrorStats,
}

impl State {
    pub(crate) fn new(
        taken: Vec<(Part, Member)>,
        freshest: &Member,
        print: u32,
        region_log2: u8,
    ) -> State {
        let regions = freshest.volume_bytes.div_ceil(1 << region_log2) as usize;
        debug_assert!(regions <= INTENT_BITS, "the record was checked");
        let mut intent = Intent::none();
        for (_, record) in taken.iter().filter(|(_, record)| !record.rebuilding) {
            intent.add(&record.intent);
        }
        let mut prints = freshest.prints;
        prints.add(print);
        let places = taken.into_iter().map(|(part, record)| {
            let mut out_of_sync = Intent::none();
            if record.index != freshest.index {
                out_of_sync = intent.clone();
            }
            if record.rebuilding {
                for region in (record.rebuilt_bytes >> region_log2) as usize..regions {
                    out_of_sync.set(region, true);
                }
            }
            Place {
                slot: Arc::new(Slot { device: part.device, name: part.name, index: record.index }),
                active: true,
                rebuilding: record.rebuilding,
                rebuilt_bytes: record.rebuilt_bytes,
                out_of_sync,
                reads: 0,
            }
        });
        State {
            places: places.collect(),
            generation: freshest.generation,
            confirmed: freshest.confirmed,
            started: false,
            intent,
            durable: Intent::none(),
            unrecorded: false,
            undecided: 0,
            regions: vec![Region::default(); regions],
            flushes: 0,
            flushed: 0,
            prints,
            print_unknown: false,
            writing: Vec::new(),
            copying: Vec::new(),
            out_of_sync_events: 0,
            streams: [(u64::MAX, 0); STREAMS],
            next_stream: 0,
            stats: MirrorStats::default(),
        }
    }

    /// Members that take writes, each with its number in `places`.
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
            confirmed: self.confirmed,
            rebuilding: place.rebuilding,
            rebuilt_bytes: place.rebuilt_bytes,
            active: self.active_mask(),
            prints: self.prints,
            intent: self.intent.clone(),
        }
    }

    /// Whether a member outside `failed` is in sync everywhere.
    pub(crate) fn can_lose(&self, failed: &[usize]) -> bool {
        let mut places = self.places.iter().enumerate();
        places.any(|(n, place)| place.is_whole() && !failed.contains(&n))
    }

    /// The source: the first member that is in sync everywhere.
    pub(crate) fn source(&self) -> Option<usize> {
        self.places.iter().position(Place::is_whole)
    }

    /// The content of `regions` is unknown on every member: marks all members but the source out of
    /// sync.
    pub(crate) fn mark_out_of_sync(&mut self, regions: Range<usize>) {
        let source = self.source();
        self.out_of_sync_events += 1;
        for (n, place) in self.places.iter_mut().enumerate() {
            if Some(n) != source {
                regions.clone().for_each(|region| place.out_of_sync.set(region, true));
            }
        }
    }

    /// Clears the intent bits of regions that had no write for `age` flushes. Returns whether any
    /// bit changed.
    pub(crate) fn clear_idle(&mut self, age: u64) -> bool {
        let mut any = false;
        for (n, region) in self.regions.iter().enumerate() {
            let is_idle = region.writes == 0 && region.last.saturating_add(age) <= self.flushed;
            let in_sync =
                || !self.places.iter().any(|place| place.active && place.out_of_sync.get(n));
            if self.intent.get(n) && is_idle && in_sync() {
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
