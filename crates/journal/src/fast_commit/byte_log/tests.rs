//! Fast commits written to the ring, cut or damaged at any point, and read again.

use super::ByteLog;
use crate::fast_commit::fast_commit_log::FastCommitLog;
use crate::fast_commit::sink::Sink;
use crate::log::watched::Watched;
use crate::recovery::cut_test::Random;
use crate::test_log::{SIZE, TestLog};
use crate::{Log, LogMap, LogRun};
use extant_base::{BlockNr, BlockSize, ByteOffset, Error, Ino, IoOp, LogicalBlock, Tid};
use extant_blockdev::{BlockDevice, MemoryDevice, PersistenceDomain, ReadOnly};
use extant_ondisk::byte_log::{
    Anchor, BATCH_BYTES, HEADER_LEN, Header, PAYLOAD_MAX, Ring, TAG_BATCH, sum,
};
use extant_ondisk::fast_commit::{BlockWriter, FcSum, MappedRange, NameChange, Record, encode};
use extant_ondisk::jbd2::BlockSum;
use extant_testdev::{Faulty, Op, Recorder};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The first transaction that is not complete.
const T: Tid = Tid(8);
const INODE_BYTES: usize = 65536;

/// A log with one transaction, 7, and a fast-commit area of `blocks` - 1 blocks.
fn log(blocks: u32) -> TestLog {
    let mut log = TestLog::new((BlockSum::V3, true), 7, 1, blocks);
    log.transaction(&[(3, 1)]);
    log
}

/// A copy of a record's bytes, to compare.
type RecordBytes = Vec<u8>;

fn bytes_of(record: &Record<'_>) -> RecordBytes {
    let mut bytes = Vec::new();
    encode(record, &mut bytes);
    bytes
}

fn link(name: &[u8]) -> RecordBytes {
    bytes_of(&Record::Link(NameChange { parent: Ino::ROOT, ino: Ino::new(12).unwrap(), name }))
}

fn inode(len: usize, value: u8) -> RecordBytes {
    bytes_of(&Record::Inode { ino: Ino::new(12).unwrap(), raw: &vec![value; len] })
}

fn add_range(start: u64, len_blocks: u16) -> RecordBytes {
    let (ino, first) = (Ino::new(12).unwrap(), LogicalBlock(0));
    let start = BlockNr(start);
    bytes_of(&Record::AddRange(MappedRange { ino, first, len_blocks, unwritten: false, start }))
}

/// Writes a fast commit of `records`. Returns the bytes that it stored; `None` if the ring is full.
fn sync(ring: &mut ByteLog, tid: Tid, records: &[RecordBytes]) -> Option<usize> {
    let before = ring.state().bytes.load(Ordering::Relaxed);
    let put = ring.put(tid, &records.concat()).unwrap();
    put.then(|| (ring.state().bytes.load(Ordering::Relaxed) - before) as usize)
}

fn found(log: &Log) -> Option<FastCommitLog> {
    log.fast_commits(T, INODE_BYTES).unwrap()
}

/// The number of fast commits found, and the bytes of each record.
fn found_records(log: &Log) -> (u32, Vec<RecordBytes>) {
    let Some(found) = found(log) else { return (0, Vec::new()) };
    assert!(found.is_byte_log() && found.tid() == T);
    (found.commits(), found.records().map(|record| bytes_of(&record)).collect())
}

struct Written {
    image: TestLog,
    device: Arc<Recorder<MemoryDevice>>,
    volume: Arc<Watched>,
    log: Log,
    ring: ByteLog,
}

fn open(image: TestLog, batch: usize) -> Written {
    let device = Arc::new(Recorder::new(MemoryDevice::from_bytes(&image.image)));
    let volume = Watched::new(Arc::clone(&device) as Arc<dyn BlockDevice>);
    let log = image.open(&volume).unwrap();
    volume.flush().unwrap();
    let ring = ByteLog::open(&log, &volume, batch).expect("memory is a window");
    Written { image, device, volume, log, ring }
}

impl Written {
    fn sync(&mut self, tid: Tid, records: &[RecordBytes]) -> Option<usize> {
        sync(&mut self.ring, tid, records)
    }

    /// Where byte `at` of the area lies on the device.
    fn place(&self, at: u64) -> ByteOffset {
        let first = self.log.superblock().fast_commit_area().start;
        ByteOffset(self.log.map().locate(first).unwrap().0.0 + at)
    }

    /// The log on a device whose area holds `bytes` at `at` instead.
    fn changed(&self, at: u64, bytes: &[u8]) -> Log {
        let copy = Arc::new(MemoryDevice::copy_of(&*self.device).unwrap());
        copy.write_at(self.place(at), bytes).unwrap();
        self.image.open(&copy).unwrap()
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.device.read_at(self.place(at), &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn whole_fast_commits_are_found_in_order() {
    for batch in [0, 64, BATCH_BYTES] {
        let mut written = open(log(32), batch);
        let commits = [
            vec![add_range(40, 3), inode(160, 1), link(b"a")],
            vec![inode(5000, 2), link(b"longer than the batch")],
            (0..30).map(|n| inode(200, n)).chain([add_range(50, 1)]).collect(),
        ];
        for commit in &commits {
            written.sync(T, commit).unwrap();
        }
        let (count, records) = found_records(&written.log);
        assert_eq!(count, 3);
        assert!(records == commits.concat(), "batch {batch}");
        let found = found(&written.log).unwrap();
        assert_eq!(found.excluded(), [(BlockNr(40), 3), (BlockNr(50), 1)]);
    }
}

#[test]
fn a_small_sync_costs_five_lines_and_no_flush() {
    let mut written = open(log(16), BATCH_BYTES);
    assert_eq!(written.ring.state().persistence_domain, PersistenceDomain::Power);
    let before = written.device.position();
    written.sync(T, &[link(b"first")]).unwrap();
    let first = written.device.counts_since(before);
    assert_eq!((first.writes, first.fua_writes, first.written_bytes), (1, 1, SIZE as u64));
    let before = written.device.position();
    let stored = written.sync(T, &[inode(160, 1), add_range(40, 1)]).unwrap();
    let later = written.device.counts_since(before);
    assert_eq!((stored, later.stored_bytes, later.written_back_lines), (320, 320, 5));
    assert_eq!((later.fences, later.flushes, later.writes), (1, 0, 0));
}

/// Fills the ring and block 0 with two epochs of older transactions. The last one is longer than
/// what the test will write.
fn with_older_epochs(image: TestLog) -> TestLog {
    let mut written = open(image.clone(), BATCH_BYTES);
    for tid in [Tid(T.0 - 2), Tid(T.0 - 1)] {
        for n in 0..6 {
            written.sync(tid, &[inode(160, 0xA0 + n), link(b"stale")]).unwrap();
        }
    }
    let mut image = image;
    let len = image.image.len();
    written.device.read_at(ByteOffset(0), &mut image.image[..len]).unwrap();
    image
}

#[test]
fn cut_after_any_line_every_acknowledged_sync_is_there() {
    for (seed, batch) in [(1, BATCH_BYTES), (2, 64), (3, 0)] {
        for stale in [false, true] {
            let mut image = log(16);
            if stale {
                image = with_older_epochs(image);
            }
            let base = MemoryDevice::from_bytes(&image.image);
            let mut written = open(image, batch);
            let commits = [
                vec![inode(160, 1), add_range(40, 1), link(b"first")],
                vec![inode(160, 2), link(b"second, a longer name")],
                vec![inode(300, 3), add_range(50, 1), inode(160, 4)],
            ];
            let mut done = Vec::new();
            for commit in &commits {
                written.sync(T, commit).unwrap();
                done.push(written.device.position());
            }
            let plan = written.device.crash_plan(&base).seed(seed).samples(24).torn(2);
            let mut seen = [0; 4];
            for state in plan.states() {
                let what = state.to_string();
                let device = Arc::new(state.image);
                let (count, records) = found_records(&written.image.open(&device).unwrap());
                let acknowledged = done.iter().filter(|mark| **mark <= state.completed).count();
                let begun = done.iter().filter(|mark| **mark < state.cut).count() + 1;
                let count = count as usize;
                assert!((acknowledged..=begun.min(3)).contains(&count), "{count} of {what}");
                assert!(records == commits[..count].concat(), "{what}");
                seen[count] += 1;
            }
            assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
        }
    }
}

#[test]
fn records_of_an_earlier_session_with_the_same_numbers_do_not_continue_the_epoch() {
    // The log was created again over an old one; its transactions start at the same number.
    let mut written = open(log(16), BATCH_BYTES);
    for name in [&b"one"[..], b"two", b"three"] {
        written.sync(T, &[inode(160, 9), link(name)]).unwrap();
    }
    let mut image = written.image.clone();
    written.device.read_at(ByteOffset(0), &mut image.image).unwrap();
    let mut written = open(image, BATCH_BYTES);
    written.sync(T, &[inode(160, 8), link(b"new")]).unwrap();
    let second = written.read(SIZE as u64 + 320, HEADER_LEN);
    let header = Header::read(second.first_chunk().unwrap(), 4096, Default::default()).unwrap();
    assert_eq!((header.tid, header.seq), (T, 1), "the old record follows at once");
    assert_eq!(found_records(&written.log).1, [inode(160, 8), link(b"new")]);
}

#[test]
fn an_epoch_that_was_not_opened_is_not_read() {
    let mut written = open(log(16), BATCH_BYTES);
    for tid in [Tid(7), Tid(9), Tid(u32::MAX)] {
        written.sync(tid, &[link(b"other")]).unwrap();
        assert!(found(&written.log).is_none(), "{tid}");
    }
    written.sync(T, &[link(b"ours")]).unwrap();
    assert_eq!(found_records(&written.log), (1, vec![link(b"ours")]));
}

#[test]
fn the_ring_takes_a_sync_that_fills_it_and_no_byte_more() {
    // A ring of two blocks, 2048 bytes.
    for (batch, more) in [(BATCH_BYTES, 1), (0, 1)] {
        for first in [false, true] {
            let mut written = open(log(4), batch);
            let mut taken = 0;
            if first {
                taken = written.sync(T, &[link(b"before")]).unwrap();
            }
            // A header, and an ANCHOR in the same record or in its own.
            let around = if batch == 0 { 64 + 128 } else { 64 + 44 };
            let left = 2048 - taken - around;
            let exact = inode(left - 8, 5);
            assert_eq!(exact.len(), left);
            assert_eq!(written.sync(T, &[inode(left - 8 + more, 5)]), None, "one more byte");
            let kept = usize::from(first);
            assert_eq!(found_records(&written.log).0 as usize, kept, "nothing was touched");
            let stored = written.sync(T, std::slice::from_ref(&exact)).unwrap();
            assert_eq!(taken + stored, 2048);
            assert_eq!(written.sync(T, &[link(b"x")]), None, "full");
            let (count, records) = found_records(&written.log);
            assert!(count as usize == kept + 1 && records.last() == Some(&exact));

            let mut written = open(log(4), batch);
            if first {
                written.sync(T, &[link(b"before")]).unwrap();
            }
            let less = inode(left - 9, 5);
            assert_eq!(written.sync(T, std::slice::from_ref(&less)).map(|n| n + taken), Some(2048));
            assert_eq!(found_records(&written.log).1.last(), Some(&less), "one byte less");
        }
    }
}

#[test]
fn any_changed_bit_ends_the_log_there() {
    let mut written = open(log(16), BATCH_BYTES);
    let first = [inode(160, 1), link(b"first")];
    let stored = written.sync(T, &first).unwrap() as u64;
    written.sync(T, &[link(b"second")]).unwrap();
    let base = SIZE as u64;
    for (start, live, want) in [(base, 64 + 168 + 17 + 44, 0), (base + stored, 64 + 18 + 44, 1)] {
        for byte in start..start + live {
            for bit in [0, 3, 7] {
                let was = written.read(byte, 1)[0];
                let changed = written.changed(byte, &[was ^ 1 << bit]);
                assert_eq!(found_records(&changed).0, want, "{byte} {bit}");
            }
        }
    }
}

#[test]
fn a_torn_or_strange_first_block_opens_nothing() {
    let mut written = open(log(16), BATCH_BYTES);
    written.sync(T, &[link(b"name")]).unwrap();
    for byte in 0..12 + 44 + 12 {
        let was = written.read(byte, 1)[0];
        match written.changed(byte, &[was ^ 4]).fast_commits(T, INODE_BYTES) {
            Ok(found) => assert!(found.is_none(), "{byte}"),
            Err(error) => {
                assert!(matches!(error, Error::Unsupported { .. }) && (4..8).contains(&byte));
            }
        }
    }
    let ring = Ring::new(16, BlockSize::ALL[0]).unwrap();
    let open = Anchor::open(T, ring);
    let strange = [
        Anchor { tid: Tid(9), ..open },
        Anchor { head: ring.end + 1, ..open },
        Anchor { head: u64::MAX, ..open },
        Anchor { tail: 0, ..open },
        Anchor { tail: ring.end + 64, ..open },
        Anchor { tail: ring.base + 1, ..open },
        Anchor { tail: ring.base + 64, ..open },
        Anchor { head: ring.base, ..open },
        Anchor { seq: 0, ..open },
        Anchor { seq: u64::MAX - 1, ..open },
    ];
    let block = |records: &[Record<'_>]| {
        let mut block = vec![0; SIZE];
        let mut writer = BlockWriter::new(&mut block, FcSum::default());
        assert!(records.iter().all(|record| writer.record(record)));
        writer.tail(T).unwrap();
        block
    };
    let head = Record::Head { tid: T };
    for anchor in strange {
        let changed = written.changed(0, &block(&[head, Record::Anchor(anchor)]));
        assert!(found(&changed).is_none(), "{anchor:?}");
    }
    let name = NameChange { parent: Ino::ROOT, ino: Ino::ROOT, name: b"n" };
    for records in [
        &[head, Record::Anchor(open), Record::Anchor(open)][..],
        &[head, Record::Link(name), Record::Anchor(open)],
        &[Record::Anchor(open)],
    ] {
        assert!(found(&written.changed(0, &block(records))).is_none());
    }
    assert!(found(&written.changed(0, &block(&[head, Record::Anchor(open)]))).is_some());
}

/// A record as any writer could write it.
fn record(tid: Tid, seq: u64, tag: u16, payload: &[u8]) -> Vec<u8> {
    let payload_crc = sum(!0, payload);
    let header = Header { tid, tag, seq, payload_len: payload.len(), payload_crc };
    let mut bytes = [&header.bytes(), payload].concat();
    bytes.resize(header.record_len() as usize, 0);
    bytes
}

#[test]
fn a_window_as_published_is_read_whole_or_not_at_all() {
    let mut written = open(log(16), BATCH_BYTES);
    written.sync(T, &[link(b"to be replaced")]).unwrap();
    let payloads = [[link(b"a"), link(b"b")].concat(), inode(160, 3), add_range(40, 2)];
    let crc = payloads.iter().fold(!0, |crc, payload| sum(crc, payload));
    let records = [
        record(T, 0, TAG_BATCH, &payloads[0]),
        record(T, 1, 6, &payloads[1]),
        record(T, 2, 1, &payloads[2]),
    ]
    .concat();
    let base = SIZE as u64;
    let right = Anchor { tid: T, tail: base, head: base + records.len() as u64, seq: 3, crc };
    let read = |anchor: Anchor| {
        let mut area = vec![0; SIZE];
        let mut writer = BlockWriter::new(&mut area, FcSum::default());
        writer.record(&Record::Head { tid: T });
        writer.record(&Record::Anchor(anchor));
        writer.tail(T).unwrap();
        area.extend_from_slice(&records);
        found_records(&written.changed(0, &area))
    };
    let want = vec![link(b"a"), link(b"b"), inode(160, 3), add_range(40, 2)];
    assert_eq!(read(right), (1, want));
    for wrong in [
        Anchor { seq: 2, ..right },
        Anchor { seq: 4, ..right },
        Anchor { crc: crc ^ 1, ..right },
        Anchor { head: right.head + 64, ..right },
        Anchor { head: right.head - 64, ..right },
        Anchor { tail: base + 128, ..right },
    ] {
        assert_eq!(read(wrong).0, 0, "{wrong:?}");
    }
}

#[test]
fn records_that_are_right_only_by_their_own_checksums_end_the_log() {
    let mut written = open(log(16), BATCH_BYTES);
    let stored = written.sync(T, &[link(b"kept")]).unwrap() as u64;
    let at = SIZE as u64 + stored;
    let payload = link(b"x");
    let anchored = |tail: u64, seq: u64, crc: u32| {
        let head = at + 128;
        let anchor = Record::Anchor(Anchor { tid: T, head, tail, seq, crc });
        record(T, 1, TAG_BATCH, &[payload.clone(), bytes_of(&anchor)].concat())
    };
    let first = written.read(SIZE as u64, stored as usize);
    let crc = sum(sum(!0, &first[64..64 + 16 + 44]), &payload);
    let read = |bytes: &[u8]| found_records(&written.changed(at, bytes)).0;
    assert_eq!(read(&anchored(at, 2, crc)), 2, "the right one");
    for (tail, seq, crc) in [(at - 64, 2, crc), (at, 1, crc), (at, 3, crc), (at, 2, crc ^ 1)] {
        assert_eq!(read(&anchored(tail, seq, crc)), 1);
    }
    assert_eq!(read(&record(T, 1, 4, &payload)), 1, "no ANCHOR follows");
    assert_eq!(read(&record(Tid(7), 1, 4, &payload)), 1);
    assert_eq!(read(&record(T, 2, 4, &payload)), 1);
    let open = bytes_of(&Record::Anchor(Anchor::open(T, Ring { base: 0, end: 0 })));
    assert_eq!(read(&record(T, 1, TAG_BATCH, &[open, payload.clone()].concat())), 1);
    for payload_len in [PAYLOAD_MAX, PAYLOAD_MAX + 1, u32::MAX as usize] {
        let header = Header { tid: T, tag: 4, seq: 1, payload_len, payload_crc: 0 };
        assert_eq!(read(&header.bytes()), 1, "{payload_len}");
    }
}

#[test]
fn garbage_is_the_end_of_the_log() {
    let mut written = open(log(16), 64);
    let mut commits = Vec::new();
    for n in 0..20 {
        commits.push(vec![inode(130 + n, n as u8), link(format!("name {n}").as_bytes())]);
        written.sync(T, &commits[n]).unwrap();
    }
    let whole = written.read(0, 15 * SIZE);
    let mut random = Random(5);
    for _ in 0..400 {
        let mut area = whole.clone();
        // A run of garbage, of zeros, or of another part of the area, at any offset.
        let (at, len) = (random.below(15 << 10) as usize, random.below(400) as usize);
        let end = (at + len).min(area.len());
        match random.below(3) {
            0 => area[at..end].iter_mut().for_each(|byte| *byte = random.next() as u8),
            1 => area[at..end].fill(0),
            _ => {
                let from = random.below((area.len() - (end - at)) as u64) as usize & !63;
                area.copy_from_slice(&whole);
                let piece = whole[from..from + (end - at)].to_vec();
                area[at & !63..(at & !63) + piece.len()].copy_from_slice(&piece);
            }
        }
        let Ok(found) = written.changed(0, &area).fast_commits(T, INODE_BYTES) else { continue };
        let Some(found) = found else { continue };
        let records: Vec<_> = found.records().map(|record| bytes_of(&record)).collect();
        assert!(records == commits[..found.commits() as usize].concat());
    }
}

#[test]
fn without_a_window_or_in_pieces_there_is_no_byte_log() {
    let image = log(16);
    let watched = |device: Arc<dyn BlockDevice>| Watched::new(device);
    let memory = |image: &TestLog| watched(Arc::new(MemoryDevice::from_bytes(&image.image)));
    let volume = memory(&image);
    assert!(ByteLog::open(&image.open(&volume).unwrap(), &volume, BATCH_BYTES).is_some());
    let another = memory(&image);
    assert!(ByteLog::open(&image.open(&volume).unwrap(), &another, BATCH_BYTES).is_none());
    let volume = watched(Arc::new(ReadOnly::new(MemoryDevice::from_bytes(&image.image))));
    assert!(ByteLog::open(&image.open(&volume).unwrap(), &volume, BATCH_BYTES).is_none());
    // The area's last block lies in another run.
    let maxlen = image.superblock.maxlen;
    let mut runs = image.map().runs().to_vec();
    let last = runs.last_mut().unwrap();
    last.count -= 1;
    let at = last.at.0 + u64::from(last.count + 1) * SIZE as u64;
    runs.push(LogRun { first: maxlen - 1, count: 1, at: ByteOffset(at) });
    let map = LogMap::new(BlockSize::ALL[0], runs).unwrap();
    let volume = memory(&image);
    let log = Log::open(Arc::clone(&volume) as Arc<dyn BlockDevice>, map).unwrap();
    assert!(ByteLog::open(&log, &volume, BATCH_BYTES).is_none());
    let small = super::tests::log(2);
    let volume = memory(&small);
    let log = small.open(&volume).unwrap();
    assert!(ByteLog::open(&log, &volume, BATCH_BYTES).is_none(), "no ring");
}

#[test]
fn a_store_or_fence_that_fails_is_an_error() {
    for op in [IoOp::Write, IoOp::Flush] {
        let image = log(16);
        let device = Arc::new(Faulty::new(MemoryDevice::from_bytes(&image.image)));
        let volume = Watched::new(Arc::clone(&device) as Arc<dyn BlockDevice>);
        let log = image.open(&volume).unwrap();
        let mut ring = ByteLog::open(&log, &volume, BATCH_BYTES).unwrap();
        sync(&mut ring, T, &[link(b"a")]).unwrap();
        device.fail(op, 1);
        assert!(matches!(ring.put(T, &link(b"b")), Err(Error::Device { .. })));
    }
}

#[test]
fn file_data_is_flushed_before_the_records_that_refer_to_it() {
    let mut written = open(log(16), BATCH_BYTES);
    written.sync(T, &[link(b"a")]).unwrap();
    for (data, flushes) in [(false, 0), (true, 1), (false, 0)] {
        if data {
            written.volume.write_at(ByteOffset(0), &[1; 1024]).unwrap();
        }
        let before = written.device.position();
        written.sync(T, &[inode(160, 1)]).unwrap();
        assert_eq!(written.device.counts_since(before).flushes, flushes);
        let first = &written.device.log()[before];
        assert_eq!(matches!(first, Op::Flush), data, "{first:?}");
    }
}

#[test]
fn a_new_epoch_starts_at_the_base_and_hides_the_old_one() {
    let mut written = open(log(16), BATCH_BYTES);
    let old = Tid(T.0 - 1);
    let whole = written.ring.capacity();
    written.sync(old, &[inode(160, 1), link(b"old")]).unwrap();
    assert_eq!(written.ring.capacity(), whole - 320);
    written.ring.new_epoch().unwrap();
    assert!(written.read(0, 512).iter().all(|byte| *byte == 0), "no HEAD is left");
    assert_eq!(written.ring.capacity(), whole);
    assert!(found(&written.log).is_none());
    written.sync(T, &[link(b"new")]).unwrap();
    assert_eq!(found_records(&written.log), (1, vec![link(b"new")]));
}

#[test]
fn an_epoch_of_an_earlier_session_is_wiped_before_the_first_commit() {
    let mut older = open(log(16), BATCH_BYTES);
    older.sync(T, &[link(b"of an old session")]).unwrap();
    let mut image = older.image.clone();
    older.device.read_at(ByteOffset(0), &mut image.image).unwrap();
    let mut written = open(image, BATCH_BYTES);
    assert!(found(&written.log).is_some());
    written.ring.new_epoch().unwrap();
    assert!(found(&written.log).is_none());
    let before = written.device.position();
    written.ring.new_epoch().unwrap();
    assert_eq!(written.device.position(), before, "once");
}
