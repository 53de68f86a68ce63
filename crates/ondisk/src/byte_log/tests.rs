use super::*;
use crate::fast_commit::{NameChange, encode};
use alloc::vec;
use alloc::vec::Vec;
use extant_base::Ino;

const TID: Tid = Tid(9);
const RING: Ring = Ring { base: 1024, end: 15 << 10 };

fn link(name: &[u8]) -> Vec<u8> {
    let ino = Ino::new(12).unwrap();
    let mut bytes = Vec::new();
    encode(&Record::Link(NameChange { parent: Ino::ROOT, ino, name }), &mut bytes);
    bytes
}

fn inode(len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&Record::Inode { ino: Ino::new(12).unwrap(), raw: &vec![7; len] }, &mut bytes);
    bytes
}

fn commit(from: Cursor, batch: usize, records: &[Vec<u8>]) -> (Vec<u8>, Cursor) {
    let mut commit = FastCommitBytes::new(RING, from, batch, Vec::new());
    for record in records {
        assert!(commit.add(record));
    }
    commit.finish()
}

/// The records of some bytes: header, and the payload's length in fast-commit records.
fn walk(mut bytes: &[u8]) -> Vec<(Header, usize)> {
    let mut found = Vec::new();
    while let Some(head) = bytes.first_chunk::<HEADER_LEN>() {
        let header = Header::read(head, bytes.len() as u64, Site::NOWHERE).unwrap();
        let payload = &bytes[HEADER_LEN..HEADER_LEN + header.payload_len];
        let records = header.records(payload, 65536, Site::NOWHERE).unwrap();
        found.push((header, records.len()));
        let (record, after) = bytes.split_at(header.record_len() as usize);
        assert!(record[HEADER_LEN + header.payload_len..].iter().all(|byte| *byte == 0));
        bytes = after;
    }
    assert!(bytes.is_empty(), "records are whole");
    found
}

#[test]
fn a_record_is_laid_out_byte_by_byte() {
    let record = link(b"name");
    let (bytes, end) = commit(Cursor::start(TID, RING), 0, core::slice::from_ref(&record));
    assert_eq!(record, [&[4, 0, 12, 0, 2, 0, 0, 0, 12, 0, 0, 0][..], b"name"].concat());
    let crc = sum(!0, &record);
    let mut head = [
        &b"FCBL"[..],
        &[1, 0, 64, 0, 9, 0, 0, 0, 4, 0, 1, 0, 16, 0, 0, 0],
        &crc.to_le_bytes(),
        &[128, 0, 0, 0, 0, 0, 0, 0],
        &[0; 32],
    ]
    .concat();
    let own = sum(!0, &head).to_le_bytes();
    head[0x1C..0x20].copy_from_slice(&own);
    assert_eq!(bytes[..64], head);
    assert!(bytes[64..80] == record && bytes[80..128] == [0; 48]);
    let anchor = [
        &[10, 0, 40, 0, 9, 0, 0, 0, 0, 0, 0, 0][..],
        &(1024u64 + 256).to_le_bytes(),
        &1024u64.to_le_bytes(),
        &2u64.to_le_bytes(),
        &crc.to_le_bytes(),
        &[0; 4],
    ]
    .concat();
    assert_eq!(bytes[192..236], anchor);
    assert_eq!((bytes.len(), end.head, end.seq), (256, 1280, 2));
    assert_eq!(end.crc, sum(crc, &anchor));
}

#[test]
fn a_small_change_is_one_record_with_its_anchor() {
    // An inode of 160 bytes and one range: the records of an fsync after a small append.
    let records = [inode(160), vec![1, 0, 16, 0, 12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]];
    let (bytes, _) = commit(Cursor::start(TID, RING), BATCH_BYTES, &records);
    assert_eq!(bytes.len(), 320);
    assert_eq!(
        walk(&bytes).iter().map(|(header, n)| (header.tag, *n)).collect::<Vec<_>>(),
        [(TAG_BATCH, 3)]
    );
}

#[test]
fn records_are_gathered_up_to_the_limit() {
    let record = link(b"1234"); // 16 bytes
    // limit, records added, fast-commit records in each record
    let rows: [(usize, usize, &[usize]); 7] = [
        (0, 3, &[1, 1, 1, 1]),
        (64, 1, &[2]),
        (64, 2, &[2, 1]),
        (64, 5, &[4, 2]),
        (4096, 100, &[101]),
        (4096, 256, &[256, 1]),
        (usize::MAX, 257, &[256, 2]),
    ];
    for (limit, count, want) in rows {
        let (bytes, end) = commit(Cursor::start(TID, RING), limit, &vec![record.clone(); count]);
        let found = walk(&bytes);
        assert_eq!(found.iter().map(|(_, n)| *n).collect::<Vec<_>>(), want, "{limit} {count}");
        assert!(found.iter().enumerate().all(|(n, (header, _))| header.seq == n as u64));
        assert_eq!((end.seq, end.head), (found.len() as u64, 1024 + bytes.len() as u64));
    }
}

#[test]
fn what_is_longer_than_the_limit_goes_alone() {
    let records = [link(b"a"), inode(5000), link(b"b")];
    let (bytes, _) = commit(Cursor::start(TID, RING), BATCH_BYTES, &records);
    let found: Vec<_> = walk(&bytes).iter().map(|(header, n)| (header.tag, *n)).collect();
    assert_eq!(found, [(4, 1), (6, 1), (TAG_BATCH, 2)]);
}

#[test]
fn the_ring_fills_to_its_last_byte_and_no_further() {
    let record = link(b"1234");
    // One record with its ANCHOR takes 128 bytes; with a limit of 0 two of 128.
    for (batch, takes) in [(BATCH_BYTES, 128), (0, 256), (16, 256)] {
        for (space, fits) in [(takes, true), (takes + 1, true), (takes - 1, false), (0, false)] {
            let ring = Ring { end: RING.base + space, ..RING };
            let mut commit =
                FastCommitBytes::new(ring, Cursor::start(TID, ring), batch, Vec::new());
            assert_eq!(commit.add(&record), fits, "{batch} {space}");
            assert_eq!(commit.is_empty(), !fits);
            if fits {
                let (bytes, end) = commit.finish();
                assert_eq!((bytes.len() as u64, end.head), (takes, RING.base + takes));
            }
        }
    }
}

#[test]
fn whatever_was_added_its_anchor_fits() {
    for batch in [0, 64, 300, BATCH_BYTES] {
        for space in (128..1500).step_by(32) {
            let ring = Ring { end: RING.base + space, ..RING };
            let mut commit =
                FastCommitBytes::new(ring, Cursor::start(TID, ring), batch, Vec::new());
            let (mut added, mut name) = (0, vec![b'n']);
            while commit.add(&link(&name)) {
                added += 1;
                name.resize(1 + added * 7 % 90, b'n');
            }
            if added > 0 {
                let (bytes, end) = commit.finish();
                assert!(end.head <= ring.end, "{batch} {space}");
                let records: usize = walk(&bytes).iter().map(|(_, n)| n).sum();
                assert_eq!(records, added + 1);
            }
        }
    }
}

#[test]
fn any_changed_bit_of_a_record_shows() {
    let (bytes, _) = commit(Cursor::start(TID, RING), BATCH_BYTES, &[link(b"name")]);
    let payload = 16 + ANCHOR_LEN;
    for byte in 0..HEADER_LEN + payload {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[byte] ^= 1 << bit;
            let head = bytes.first_chunk().unwrap();
            let read = Header::read(head, 128, Site::NOWHERE).and_then(|header| {
                header.records(&bytes[HEADER_LEN..][..payload], 256, Site::NOWHERE).map(drop)
            });
            assert!(read.is_err(), "{byte} {bit}");
        }
    }
}

#[test]
fn headers_that_lie_are_refused() {
    let payload = [link(b"a"), link(b"b")].concat();
    let good = Header {
        tid: TID,
        tag: TAG_BATCH,
        seq: 0,
        payload_len: payload.len(),
        payload_crc: sum(!0, &payload),
    };
    let read = |header: Header, space| Header::read(&header.bytes(), space, Site::NOWHERE);
    assert_eq!(read(good, 128).unwrap(), good);
    assert!(read(good, 127).is_err(), "past the end of the ring");
    for payload_len in [0, 3, PAYLOAD_MAX + 1, u32::MAX as usize - 64] {
        assert!(read(Header { payload_len, ..good }, u64::MAX).is_err(), "{payload_len}");
    }
    assert!(read(Header { payload_len: PAYLOAD_MAX, ..good }, u64::MAX).is_ok());
    let records =
        |header: Header, payload: &[u8]| header.records(payload, 256, Site::NOWHERE).is_ok();
    assert!(records(good, &payload));
    assert!(!records(Header { tag: 4, ..good }, &payload), "a batch that says it is one");
    assert!(!records(good, &payload[1..]));
    // Sums are right, the content has no place in a record.
    let mut tlvs = vec![vec![7, 0, 0, 0], vec![9, 0, 8, 0, 0, 0, 0, 0, 9, 0, 0, 0]];
    tlvs.push([link(b"a"), vec![0, 0]].concat());
    tlvs.push([link(b"a"), vec![4, 0, 200, 0, 1, 2]].concat());
    tlvs.push([&[8, 0, 8, 0][..], &[0; 8]].concat());
    tlvs.push(inode(300));
    for tlv in tlvs {
        for tag in [u16::from_le_bytes([tlv[0], tlv[1]]), TAG_BATCH] {
            let lying = Header { tag, payload_len: tlv.len(), payload_crc: sum(!0, &tlv), ..good };
            assert!(!records(lying, &tlv), "{tlv:?}");
        }
    }
}

#[test]
fn the_ring_lies_between_the_first_block_and_the_last() {
    let size = BlockSize::ALL[0];
    assert_eq!(Ring::new(16, size), Some(Ring { base: 1024, end: 15 << 10 }));
    assert_eq!(Ring::new(3, size), Some(Ring { base: 1024, end: 2048 }));
    assert!([0, 1, 2].iter().all(|blocks| Ring::new(*blocks, size).is_none()));
    assert!(Ring::new(u32::MAX, BlockSize::ALL[6]).is_some());
}

#[test]
fn an_anchor_reads_back_and_ignores_its_gaps() {
    let anchor = Anchor { tid: TID, head: 1 << 40, tail: 1024, seq: 3, crc: 0x0102_0304 };
    let mut value = anchor.value();
    value[4..8].fill(0xAA);
    value[36..].fill(0xBB);
    assert_eq!(Anchor::read(&value), Some(anchor));
    let open = Anchor::open(TID, RING);
    assert_eq!((open.seq, open.tail, open.head), (OPEN, RING.base, RING.end));
}
