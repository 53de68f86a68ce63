//! All kinds of devices, checked against one table of rules.
//!
//! ```text
//!   file  file+direct  memory  slice  overlay  recorder  faulty  Arc  Box      devices
//!     └──────┴───────────┴───────┴───────┴────────┴─────────┴──────┴───┘
//!                              the same checks
//! ```

use extant_base::{ByteOffset, Error};
use extant_blockdev::{
    AlignedBuf, BlockDevice, FileDevice, FileOptions, MemoryDevice, Overlay, ReadOnly, Slice,
};
use extant_testdev::{Faulty, Recorder};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;
use tempfile::TempDir;

/// Odd, so that the last sector and page are cut short; long enough for direct transfers.
const LEN: u64 = (1 << 20) + 4096 * 3 + 77;

fn temp_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// One device of each kind, `LEN` zero bytes long.
fn devices(dir: &TempDir) -> Vec<(&'static str, Box<dyn BlockDevice>)> {
    let file = |name: &str| FileDevice::create(dir.path().join(name), LEN).unwrap();
    let direct = FileOptions::new().direct(true).create(dir.path().join("direct"), LEN).unwrap();
    let kept = file("kept");
    kept.allocate(LEN).unwrap();
    let memory = || MemoryDevice::new(LEN);
    vec![
        ("file", Box::new(file("plain"))),
        ("file, direct", Box::new(direct)),
        ("file, allocated", Box::new(kept)),
        ("memory", Box::new(memory())),
        ("slice", Box::new(Slice::new(MemoryDevice::new(LEN * 2), ByteOffset(513), LEN).unwrap())),
        ("slice of a file", {
            let whole = FileDevice::create(dir.path().join("whole"), LEN + 512).unwrap();
            Box::new(Slice::from_offset(whole, ByteOffset(512)).unwrap())
        }),
        ("overlay", Box::new(Overlay::new(ReadOnly::new(memory())))),
        ("recorder", Box::new(Recorder::new(memory()))),
        ("faulty", Box::new(Faulty::new(memory()))),
        ("arc", Box::new(Arc::new(memory()))),
        ("box", Box::new(Box::new(memory()) as Box<dyn BlockDevice>)),
    ]
}

/// A device and the bytes that it should hold.
struct Twin<'a> {
    name: &'a str,
    device: &'a dyn BlockDevice,
    want: Vec<u8>,
}

impl Twin<'_> {
    fn check(&self, after: &str) {
        let mut got = vec![0xee; self.want.len()];
        self.device.read_at(ByteOffset(0), &mut got).unwrap();
        let wrong = got.iter().zip(&self.want).position(|(got, want)| got != want);
        assert_eq!(wrong, None, "{} after {after}: first wrong byte", self.name);
    }

    fn range(&mut self, at: u64, len: usize) -> &mut [u8] {
        &mut self.want[at as usize..at as usize + len]
    }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31) ^ (n >> 8) as u8 ^ seed | 1).collect()
}

/// Offsets and lengths around every border: sector, page, chunk, direct, end.
const RANGES: [(u64, usize); 16] = [
    (0, 0),
    (0, 1),
    (511, 2),
    (4095, 4098),
    (8192, 4096),
    (65535, 2),
    (0, 65536),
    (65536, 65536),
    (4096, 1 << 20),
    (1, 1 << 20),
    (4095, 200_000),
    (131_072 - 3, 300_001),
    (LEN - 1, 1),
    (LEN - 77, 77),
    (LEN - 70_000, 70_000),
    (LEN, 0),
];

#[test]
fn what_is_written_is_read_by_any_way() {
    let dir = temp_dir();
    for (name, device) in &devices(&dir) {
        let mut twin = Twin { name, device: &**device, want: vec![0; LEN as usize] };
        assert_eq!((device.len(), device.is_empty(), device.is_read_only()), (LEN, false, false));
        assert!(device.alignment().is_power_of_two());
        twin.check("opening");
        for (seed, (at, len)) in RANGES.into_iter().enumerate() {
            let bytes = pattern(len, seed as u8);
            device.write_at(ByteOffset(at), &bytes).unwrap();
            twin.range(at, len).copy_from_slice(&bytes);
            let mut back = vec![0; len];
            device.read_at(ByteOffset(at), &mut back).unwrap();
            assert!(back == bytes, "{name}: {len} bytes at {at}");
        }
        twin.check("write_at");
        for (seed, (at, len)) in RANGES.into_iter().enumerate() {
            let bytes = AlignedBuf::copy_of(&pattern(len, seed as u8 ^ 0x50));
            device.write_at(ByteOffset(at), &bytes).unwrap();
            twin.range(at, len).copy_from_slice(&bytes);
        }
        twin.check("write_at from aligned memory");
        for (at, len) in RANGES {
            let bytes = pattern(len, 0x77);
            device.write_fua(ByteOffset(at), &bytes).unwrap();
            twin.range(at, len).copy_from_slice(&bytes);
        }
        device.flush().unwrap();
        twin.check("write_fua");
        for (at, len) in RANGES {
            device.zero(ByteOffset(at), len as u64).unwrap();
            twin.range(at, len).fill(0);
            twin.check("zero");
            let bytes = pattern(len, 0x33);
            device.write_at(ByteOffset(at), &bytes).unwrap();
            twin.range(at, len).copy_from_slice(&bytes);
        }
        twin.check("writes over zeros");
    }
}

#[test]
fn vectored_transfers_are_like_plain_ones() {
    let dir = temp_dir();
    let shapes: [&[usize]; 7] = [
        &[],
        &[0, 5, 0],
        &[1, 4095, 4096, 4097],
        &[4096; 64],
        &[1000; 300],
        &[65536, 65536, 131_072],
        &[3; 3000],
    ];
    for (name, device) in &devices(&dir) {
        let mut twin = Twin { name, device: &**device, want: vec![0; LEN as usize] };
        for (seed, (shape, at)) in
            shapes.iter().flat_map(|shape| [0u64, 4096, 7, 65536].map(|at| (shape, at))).enumerate()
        {
            let bytes = pattern(shape.iter().sum(), seed as u8);
            let (mut rest, mut parts) = (&bytes[..], Vec::new());
            for len in *shape {
                let (part, after) = rest.split_at(*len);
                parts.push(AlignedBuf::copy_of(part));
                rest = after;
            }
            let bufs: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            device.write_vectored_at(ByteOffset(at), &bufs).unwrap();
            twin.range(at, bytes.len()).copy_from_slice(&bytes);
            for part in &mut parts {
                part.fill(0);
            }
            let mut bufs: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
            device.read_vectored_at(ByteOffset(at), &mut bufs).unwrap();
            let back: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
            assert!(back == bytes, "{name}: shape {seed}");
        }
        twin.check("vectored writes");
    }
}

#[test]
fn a_discarded_range_holds_old_bytes_or_zeros_and_the_rest_stays() {
    let dir = temp_dir();
    for (name, device) in &devices(&dir) {
        let bytes = pattern(LEN as usize, 9);
        for (at, len) in RANGES {
            device.write_at(ByteOffset(0), &bytes).unwrap();
            device.discard(ByteOffset(at), len as u64).unwrap();
            let mut got = vec![0; LEN as usize];
            device.read_at(ByteOffset(0), &mut got).unwrap();
            let range = at as usize..at as usize + len;
            for n in 0..LEN as usize {
                let fine = got[n] == bytes[n] || (range.contains(&n) && got[n] == 0);
                assert!(fine, "{name}: byte {n} after discarding {len} at {at}");
            }
        }
    }
}

#[test]
fn a_range_past_the_end_fails_and_moves_nothing() {
    let dir = temp_dir();
    for (name, device) in &devices(&dir) {
        for (at, len) in
            [(LEN, 1), (LEN - 1, 2), (0, LEN as usize + 1), (u64::MAX, 1), (u64::MAX - 3, 8)]
        {
            let at = ByteOffset(at);
            let mut buf = vec![7; len];
            let (first, last) = buf.split_at_mut(len / 2);
            let results = [
                device.read_vectored_at(at, &mut [IoSliceMut::new(first), IoSliceMut::new(last)]),
                device.write_vectored_at(at, &[IoSlice::new(first), IoSlice::new(last)]),
                device.read_at(at, &mut buf),
                device.write_at(at, &buf),
                device.write_fua(at, &buf),
                device.zero(at, len as u64),
                device.discard(at, len as u64),
            ];
            for (n, result) in results.into_iter().enumerate() {
                match result {
                    Err(Error::Device { source, .. })
                        if source.kind() == ErrorKind::UnexpectedEof => {}
                    other => panic!("{name}: call {n}, {len} bytes at {at}: {other:?}"),
                }
            }
            assert!(buf.iter().all(|byte| *byte == 7));
        }
        assert!(device.zero(ByteOffset(1), u64::MAX).is_err());
        let mut all = vec![1; LEN as usize];
        device.read_at(ByteOffset(0), &mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == 0), "{name}: something was written");
    }
}

#[test]
fn a_read_only_view_refuses_every_change() {
    let dir = temp_dir();
    let path = dir.path().join("file");
    drop(FileDevice::create(&path, LEN).unwrap());
    let memory = MemoryDevice::new(LEN);
    let views: [Box<dyn BlockDevice>; 3] = [
        Box::new(ReadOnly::new(memory)),
        Box::new(FileDevice::open(&path).unwrap()),
        Box::new(Slice::new(FileDevice::open(&path).unwrap(), ByteOffset(1), LEN - 1).unwrap()),
    ];
    for view in &views {
        assert!(view.is_read_only());
        let at = ByteOffset(0);
        let results = [
            view.write_at(at, b"x"),
            view.write_fua(at, b"x"),
            view.write_vectored_at(at, &[IoSlice::new(b"x")]),
            view.zero(at, 1),
            view.discard(at, 1),
        ];
        assert!(results.iter().all(|result| matches!(result, Err(Error::ReadOnly))));
        assert!(view.flush().is_ok() && view.read_at(at, &mut [0; 9]).is_ok());
    }
}
