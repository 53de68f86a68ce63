//! Tars made by hand, byte by byte, and by another crate: good, unusual and hostile ones.

use super::*;
use crate::entry::{Kind, Meta, NodeId, Time, Xattr};
use crate::error::SourceError;
use crate::tree::Tree;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::io::Cursor;

/// A tar being written by hand.
#[derive(Default, Clone)]
pub(crate) struct TarBuilder {
    pub(crate) bytes: Vec<u8>,
}

impl TarBuilder {
    /// Adds one header with its data, without any check.
    pub(crate) fn entry(mut self, kind: u8, name: &str, link: &str, data: &[u8]) -> TarBuilder {
        self.header(kind, name, link, data.len() as u64, |_| {});
        self.data(data);
        self
    }

    /// Adds a file.
    pub(crate) fn file(self, name: &str, data: &[u8]) -> TarBuilder {
        self.entry(b'0', name, "", data)
    }

    /// Adds a directory.
    pub(crate) fn dir(self, name: &str) -> TarBuilder {
        self.entry(b'5', name, "", b"")
    }

    /// Adds an extended header before the next entry.
    fn pax(mut self, kind: u8, records: &[(&str, &[u8])]) -> TarBuilder {
        let mut body = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut len = rest + 1;
            while len.to_string().len() + rest != len {
                len = len.to_string().len() + rest;
            }
            body.extend_from_slice(format!("{len} {key}=").as_bytes());
            body.extend_from_slice(value);
            body.push(b'\n');
        }
        self.header(kind, "pax", "", body.len() as u64, |_| {});
        self.data(&body);
        self
    }

    fn header(
        &mut self,
        kind: u8,
        name: &str,
        link: &str,
        size: u64,
        change: impl FnOnce(&mut [u8; 512]),
    ) {
        let mut h = [0u8; 512];
        h[..name.len()].copy_from_slice(name.as_bytes());
        h[100..107].copy_from_slice(b"0000640");
        h[108..115].copy_from_slice(b"0000007");
        h[116..123].copy_from_slice(b"0000010");
        h[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        h[136..147].copy_from_slice(b"00000001750");
        h[156] = kind;
        h[157..157 + link.len()].copy_from_slice(link.as_bytes());
        h[257..265].copy_from_slice(b"ustar\x0000");
        h[329..336].copy_from_slice(b"0000001");
        h[337..344].copy_from_slice(b"0000003");
        change(&mut h);
        seal(&mut h);
        self.bytes.extend_from_slice(&h);
    }

    fn data(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }

    /// The two blocks that end a tar.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }
}

fn seal(h: &mut [u8; 512]) {
    h[148..156].fill(b' ');
    let sum: u32 = h.iter().map(|&b| u32::from(b)).sum();
    h[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// Reads a tar in place and as a stream. Both results must agree.
fn read_both(bytes: &[u8]) -> Result<Tree, SourceError> {
    read_both_as(bytes, Meaning::Plain)
}

fn read_both_as(bytes: &[u8], meaning: Meaning) -> Result<Tree, SourceError> {
    let dir = std::env::temp_dir();
    let name = Path::new("t.tar");
    let mut spool = Spool::new(&dir).unwrap();
    let mut streamed = Overlay::new(1 << 16);
    let reader = Box::new(Cursor::new(bytes));
    let stream = read_stream(reader, &mut spool, name, meaning, &mut streamed, &())
        .and_then(|()| streamed.finish());
    let file = tempfile::tempfile().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
    let mut placed = Overlay::new(1 << 16);
    let region = Region::rest_of(file).unwrap();
    let place =
        read_in_place(region, name, meaning, &mut placed, &()).and_then(|()| placed.finish());
    match (&stream, &place) {
        (Ok(a), Ok(b)) => {
            assert_eq!(a.digest(), b.digest());
            for (id, node) in a.iter() {
                if node.kind.size() < 1 << 20 {
                    assert_eq!(a.reader().read(id).unwrap(), b.reader().read(id).unwrap());
                }
            }
        }
        (Err(a), Err(b)) => {
            // The position where a truncated archive ends has different words in the two messages.
            let head = |e: &SourceError| e.to_string().split("truncated").next().map(str::to_owned);
            assert_eq!(head(a), head(b));
        }
        (a, b) => panic!("stream {:?}, in place {:?}", a.as_ref().err(), b.as_ref().err()),
    }
    stream
}

fn fault(bytes: &[u8]) -> String {
    let Err(error) = read_both(bytes) else { return "taken".into() };
    let error = error.to_string();
    assert!(!error.contains('\n'));
    error
}

fn content(tree: &Tree, path: &str) -> Vec<u8> {
    tree.reader().read(tree.find(path.as_bytes()).expect("the file is there")).unwrap()
}

#[test]
fn every_kind_of_entry_is_read_with_its_metadata() {
    let tar = TarBuilder::default()
        .dir("./")
        .dir("dev/")
        .entry(b'3', "dev/null", "", b"")
        .entry(b'4', "dev/sda", "", b"")
        .entry(b'6', "dev/fifo", "", b"")
        .entry(b'2', "link", "dev/null", b"")
        .file("a", b"hello")
        .entry(b'1', "b", "./a", b"")
        .entry(0, "old/", "", b"")
        .file("deep/er/f", &[7; 1000])
        .end();
    let tree = read_both(&tar).unwrap();
    let node = |path: &str| *tree.node(tree.find(path.as_bytes()).unwrap());
    assert_eq!(node("dev/null").kind, Kind::CharDevice { major: 1, minor: 3 });
    assert_eq!(node("dev/sda").kind, Kind::BlockDevice { major: 1, minor: 3 });
    assert_eq!(node("dev/fifo").kind, Kind::Fifo);
    assert_eq!(tree.target(tree.find(b"link").unwrap()), b"dev/null");
    assert_eq!(tree.find(b"a"), tree.find(b"b"));
    assert_eq!(node("a").links(), 2);
    assert!(node("old").kind.is_directory());
    let meta = Meta { mode: 0o640, uid: 7, gid: 8, mtime: Time { sec: 1000, nsec: 0 } };
    assert_eq!(node("a").meta, meta);
    assert_eq!(tree.node(NodeId::ROOT).meta, meta);
    assert_eq!(node("deep/er").meta, Meta::IMPLIED_DIRECTORY);
    assert_eq!(content(&tree, "b"), b"hello");
    assert_eq!(content(&tree, "deep/er/f"), [7; 1000]);
    assert_eq!(tree.path(tree.find(b"deep/er/f").unwrap()), Path::new("deep/er/f"));
}

#[test]
fn extended_records_overrule_the_header() {
    let long = "n".repeat(200) + "/" + &"m".repeat(200);
    let tar = TarBuilder::default()
        .pax(b'g', &[("comment", b"x"), ("uid", b"99")])
        .pax(
            b'x',
            &[
                ("path", long.as_bytes()),
                ("mtime", b"12.5"),
                ("atime", b"13"),
                ("gid", b"4000000000"),
                ("SCHILY.xattr.user.a", b"v\n\0w"),
                ("LIBARCHIVE.xattr.security.capability", b"AQID"),
                ("SCHILY.acl.access", b"user::rw-,user:5:r--,group::r--,mask::r--,other::---"),
            ],
        )
        .file("short", b"x")
        .file("plain", b"y")
        .end();
    let tree = read_both(&tar).unwrap();
    let id = tree.find(long.as_bytes()).unwrap();
    let meta = tree.node(id).meta;
    assert_eq!(
        (meta.uid, meta.gid, meta.mtime),
        (99, 4_000_000_000, Time { sec: 12, nsec: 500_000_000 })
    );
    assert_eq!(tree.extra_times(id).atime, Some(Time { sec: 13, nsec: 0 }));
    let names: Vec<&[u8]> = tree.xattrs(id).iter().map(|x| &*x.name).collect();
    assert_eq!(names, [&b"security.capability"[..], b"system.posix_acl_access", b"user.a"]);
    let user = Xattr { name: (*b"user.a").into(), value: (*b"v\n\0w").into() };
    assert_eq!(tree.xattrs(id)[2], user);
    let plain = tree.find(b"plain").unwrap();
    assert_eq!((tree.node(plain).meta.uid, tree.xattrs(plain).len()), (99, 0));
}

#[test]
fn gnu_long_names_are_taken() {
    let name = "d/".repeat(80) + "file";
    let target = "t".repeat(300);
    let tar = TarBuilder::default()
        .entry(b'L', "././@LongLink", "", format!("{name}\0").as_bytes())
        .file("cut off", b"1")
        .entry(b'K', "././@LongLink", "", format!("{target}\0").as_bytes())
        .entry(b'2', "s", "cut off", b"")
        .end();
    let tree = read_both(&tar).unwrap();
    assert_eq!(content(&tree, &name), b"1");
    assert_eq!(tree.target(tree.find(b"s").unwrap()), target.as_bytes());
}

/// A file of 100 bytes: data "abc" at 10 and "de" at 50.
fn is_the_sparse_file(tree: &Tree, path: &str) {
    let id = tree.find(path.as_bytes()).unwrap();
    let mut want = vec![0; 100];
    want[10..13].copy_from_slice(b"abc");
    want[50..52].copy_from_slice(b"de");
    assert_eq!(tree.reader().read(id).unwrap(), want);
    assert_eq!(tree.data_map(id).ranges().collect::<Vec<_>>(), [(10, 3), (50, 2)]);
    // Read from every position, to cross every border.
    let mut reader = tree.reader();
    for at in 0..102u64 {
        let mut two = [9; 2];
        let len = reader.read_at(id, at, &mut two).unwrap();
        assert_eq!(two[..len], want[(at as usize).min(100)..(at as usize + 2).min(100)]);
    }
}

#[test]
fn all_gnu_sparse_forms_give_one_file() {
    let mut old = TarBuilder::default();
    old.header(b'S', "f", "", 5, |h| {
        h[257..265].copy_from_slice(b"ustar  \0");
        for (at, number) in [(386, 10), (398, 3), (410, 50), (422, 2), (434, 100), (446, 0)] {
            h[at..at + 11].copy_from_slice(format!("{number:011o}").as_bytes());
        }
        h[483..494].copy_from_slice(format!("{:011o}", 100).as_bytes());
    });
    old.data(b"abcde");
    is_the_sparse_file(&read_both(&old.end()).unwrap(), "f");

    let mut continued = TarBuilder::default();
    continued.header(b'S', "f", "", 5, |h| {
        h[257..265].copy_from_slice(b"ustar  \0");
        h[482] = 1;
        h[483..494].copy_from_slice(format!("{:011o}", 100).as_bytes());
    });
    let mut block = [0; 512];
    for (at, number) in [(0, 10), (12, 3), (24, 50), (36, 2)] {
        block[at..at + 11].copy_from_slice(format!("{number:011o}").as_bytes());
    }
    continued.bytes.extend_from_slice(&block);
    continued.data(b"abcde");
    is_the_sparse_file(&read_both(&continued.end()).unwrap(), "f");

    let v00: [(&str, &[u8]); 6] = [
        ("GNU.sparse.size", b"100"),
        ("GNU.sparse.numblocks", b"2"),
        ("GNU.sparse.offset", b"10"),
        ("GNU.sparse.numbytes", b"3"),
        ("GNU.sparse.offset", b"50"),
        ("GNU.sparse.numbytes", b"2"),
    ];
    let tar = TarBuilder::default().pax(b'x', &v00).file("f", b"abcde").end();
    is_the_sparse_file(&read_both(&tar).unwrap(), "f");

    let v01: [(&str, &[u8]); 3] =
        [("GNU.sparse.size", b"100"), ("GNU.sparse.name", b"f"), ("GNU.sparse.map", b"10,3,50,2")];
    let tar = TarBuilder::default().pax(b'x', &v01).file("GNUSparseFile.0/f", b"abcde").end();
    is_the_sparse_file(&read_both(&tar).unwrap(), "f");

    let v10: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"f"),
        ("GNU.sparse.realsize", b"100"),
    ];
    let mut data = b"2\n10\n3\n50\n2\n".to_vec();
    data.resize(512, 0);
    data.extend_from_slice(b"abcde");
    let tar = TarBuilder::default().pax(b'x', &v10).file("GNUSparseFile.0/f", &data).end();
    is_the_sparse_file(&read_both(&tar).unwrap(), "f");
}

#[test]
fn a_later_entry_wins() {
    let tar = TarBuilder::default()
        .file("a", b"old")
        .entry(b'1', "b", "a", b"")
        .file("a", b"new")
        .file("d/x", b"1")
        .dir("d")
        .file("e/x", b"1")
        .file("e", b"file")
        .file("g", b"file")
        .dir("g")
        .end();
    let tree = read_both(&tar).unwrap();
    assert_eq!(content(&tree, "a"), b"new");
    assert_eq!(content(&tree, "b"), b"old");
    assert_eq!(content(&tree, "d/x"), b"1");
    assert_eq!(tree.node(tree.find(b"d").unwrap()).meta.uid, 7);
    assert_eq!(content(&tree, "e"), b"file");
    assert!(tree.node(tree.find(b"g").unwrap()).kind.is_directory());
}

#[test]
fn what_leads_out_or_makes_no_sense_is_refused_in_one_line() {
    let good = || TarBuilder::default().file("ok", b"1");
    let mut huge = TarBuilder::default();
    huge.header(b'0', "huge", "", 0, |h| {
        h[124..136].copy_from_slice(b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff")
    });
    let mut extended = TarBuilder::default();
    extended.header(b'x', "x", "", 1 << 30, |_| {});
    let mut device = TarBuilder::default();
    device.header(b'4', "dev", "", 0, |h| h[329..336].copy_from_slice(b"7777777"));
    let many_dots = "../../../etc/passwd";
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "dots",
            good().file(many_dots, b"").end(),
            "entry ../../../etc/passwd at byte 1024: its name leads out",
        ),
        ("inner dots", good().file("a/../../b", b"").end(), "its name leads out of the tree (..)"),
        ("no name", good().file("", b"").end(), "it has no name"),
        ("root file", good().entry(b'6', "/", "", b"").end(), "the root must be a directory"),
        ("root link", good().entry(b'1', "/", "ok", b"").end(), "the root must be a directory"),
        (
            "nul",
            good().pax(b'x', &[("path", b"a\0b")]).file("a", b"").end(),
            "entry a\\u{0}b at byte 1024: its name holds a NUL",
        ),
        (
            "long part",
            good().pax(b'x', &[("path", &[b'a'; 256])]).file("a", b"").end(),
            "longer than 255",
        ),
        (
            "missing link",
            good().entry(b'1', "x", "y", b"").end(),
            "hard link to y, which no earlier entry made",
        ),
        (
            "link to itself",
            good().entry(b'1', "x", "x", b"").end(),
            "hard link to x, which no earlier entry made",
        ),
        (
            "link to dir",
            good().dir("d").entry(b'1', "x", "d", b"").end(),
            "hard link to d, which is a directory",
        ),
        ("link out", good().entry(b'1', "x", "../y", b"").end(), "hard link: its name leads out"),
        (
            "through link",
            good().entry(b'2', "l", "/etc", b"").file("l/passwd", b"").end(),
            "leads through l, a symbolic link: refused",
        ),
        (
            "link through link",
            good().entry(b'2', "l", ".", b"").entry(b'1', "x", "l/ok", b"").end(),
            "which no earlier entry made",
        ),
        ("through file", good().file("ok/x", b"").end(), "leads through ok, no directory"),
        ("empty link", good().entry(b'2', "l", "", b"").end(), "symbolic link without a target"),
        ("unknown type", good().entry(b'Q', "q", "", b"").end(), "entry type Q is not known"),
        ("volume", good().entry(b'M', "q", "", b"").end(), "another volume"),
        ("huge", huge.end(), "size 9223372036854775807 is over 63 bits"),
        ("extended", extended.end(), "extended header of 1073741824 bytes"),
        ("device", device.end(), "device number 2097151 is over 12 bits"),
        (
            "bad record",
            good().pax(b'x', &[("mtime", b"noon")]).file("a", b"").end(),
            "record mtime: is no time",
        ),
        (
            "uid",
            good().pax(b'x', &[("uid", b"4294967296")]).file("a", b"").end(),
            "owner 4294967296 is over 32 bits",
        ),
        ("pax at end", good().pax(b'x', &[("path", b"a")]).end(), "describes no entry"),
        (
            "lone zeros",
            [good().bytes, vec![0; 512], good().end()].concat(),
            "single block of zeros",
        ),
        (
            "sparse",
            good()
                .pax(b'x', &[("GNU.sparse.map", b"0,9"), ("GNU.sparse.size", b"5")])
                .file("f", b"123456789")
                .end(),
            "leaves the file",
        ),
        ("empty", vec![], "empty: no tar archive"),
        ("text", vec![b'x'; 2048], "no tar archive, or damaged at its start"),
    ];
    for (what, tar, message) in cases {
        let error = fault(&tar);
        assert!(error.contains(message), "{what}: {error}");
    }
}

#[test]
fn an_archive_cut_off_anywhere_is_an_error() {
    let tar = TarBuilder::default()
        .file("a", &[1; 700])
        .pax(b'x', &[("path", b"b"), ("SCHILY.xattr.user.x", &[2; 600])])
        .file("c", b"3")
        .dir("d")
        .end();
    // Complete, but without any end mark: cut directly before the zeros.
    let body = tar.len() - 1024;
    for cut in (0..=body).step_by(512) {
        let error = fault(&tar[..cut]);
        assert!(error.contains("truncated") || error.contains("empty"), "{cut}: {error}");
    }
    for cut in [1, 511, 513, 1100, 1537, 2100, body - 1, body + 5, body + 511, body + 1023] {
        assert!(fault(&tar[..cut]).contains("truncated"), "{cut}");
    }
    // One block of zeros is accepted as an end mark.
    assert!(read_both(&tar[..body + 512]).is_ok());
    let error = fault(&tar[..body]);
    assert!(error.contains(&format!("at byte {body}")), "{error}");
}

/// Its digest shows that nothing is missing.
#[test]
fn a_layer_may_lack_its_end_mark_and_the_padding_before_it() {
    let tar = TarBuilder::default().dir("d").file("d/a", &[1; 700]).end();
    let body = tar.len() - 1024;
    let last_byte = body - (1024 - 700);
    for cut in [body, last_byte, last_byte + 100] {
        let tree = read_both_as(&tar[..cut], Meaning::Layer).unwrap();
        assert_eq!(content(&tree, "d/a"), [1; 700], "{cut}");
        assert!(fault(&tar[..cut]).contains("truncated"), "{cut}");
    }
    for cut in [last_byte - 1, 512 + 100, 1024 + 300] {
        let error = read_both_as(&tar[..cut], Meaning::Layer).unwrap_err().to_string();
        assert!(error.contains("truncated"), "{cut}: {error}");
    }
}

#[test]
fn flipped_bits_never_panic_or_hang() {
    let tar = TarBuilder::default()
        .pax(b'g', &[("comment", b"hello")])
        .file("a", &[1; 100])
        .pax(
            b'x',
            &[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"100"), ("mtime", b"1.5")],
        )
        .file("s", b"1\n10\n3\n")
        .entry(b'L', "L", "", b"long/name\0")
        .entry(b'1', "h", "a", b"")
        .entry(b'3', "dev", "", b"")
        .end();
    let mut random = SmallRng::seed_from_u64(0x7a72);
    let mut refused = 0;
    for _ in 0..3000 {
        let mut bent = tar.clone();
        for _ in 0..random.random_range(1..6) {
            let at = random.random_range(0..bent.len());
            bent[at] ^= 1 << random.random_range(0..8);
        }
        if random.random_range(0..4) > 0 {
            // Correct the checksum of most blocks, so that the code after the check is reached.
            for block in bent.chunks_exact_mut(512) {
                if block[257..262] == *b"ustar" {
                    seal(block.try_into().unwrap());
                }
            }
        }
        refused += u32::from(read_both(&bent).is_err());
        read_any(&bent);
    }
    assert!(refused > 1000);
}

#[test]
fn a_tar_of_another_program_is_read() {
    let mut builder = ::tar::Builder::new(Vec::new());
    let long = "p/".repeat(70) + "name";
    for (name, data) in [("x", &b"one"[..]), (&long, b"two")] {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o4755);
        header.set_uid(3_000_000);
        header.set_cksum();
        builder.append_data(&mut header, name, data).unwrap();
    }
    let tree = read_both(&builder.into_inner().unwrap()).unwrap();
    assert_eq!(content(&tree, &long), b"two");
    let meta = tree.node(tree.find(b"x").unwrap()).meta;
    assert_eq!((meta.mode, meta.uid), (0o4755, 3_000_000));
}

#[test]
fn more_names_than_allowed_are_refused() {
    let mut tar = TarBuilder::default();
    for n in 0..20 {
        tar = tar.file(&format!("f{n}"), b"");
    }
    let mut overlay = Overlay::new(10);
    let mut spool = Spool::new(&std::env::temp_dir()).unwrap();
    let reader = Box::new(Cursor::new(tar.end()));
    let name = Path::new("t.tar");
    let read = read_stream(reader, &mut spool, name, Meaning::Plain, &mut overlay, &());
    assert!(read.unwrap_err().to_string().contains("more than 10 entries"));
}

#[test]
fn a_packed_stream_cut_off_anywhere_is_truncated() {
    use crate::source::pack::Packing;
    use std::io::Write;
    let noise: Vec<u8> =
        (0..90_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let tar = TarBuilder::default().file("a", &noise).file("b", b"2").end();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    zstd.include_checksum(true).unwrap();
    zstd.write_all(&tar).unwrap();
    for packed in [gzip.finish().unwrap(), zstd.finish().unwrap()] {
        let packing = Packing::detect(&packed).unwrap();
        let read = |bytes: &[u8]| {
            let mut spool = Spool::new(&std::env::temp_dir()).unwrap();
            let mut overlay = Overlay::new(1 << 16);
            let name = Path::new("t.tar");
            let reader = packing.unpack(Cursor::new(bytes.to_vec())).unwrap();
            read_ahead(reader, &mut spool, name, Meaning::Plain, &mut overlay, &())
        };
        read(&packed).unwrap();
        let len = packed.len();
        for cut in [20, 400, len / 2, len - 40, len - 8, len - 4, len - 1] {
            let error = read(&packed[..cut]).unwrap_err().to_string();
            assert!(
                error.contains("truncated: ") && error.starts_with("t.tar: "),
                "{packing:?} {cut} of {len}: {error}"
            );
        }
    }
}

#[test]
fn names_in_access_lists_are_found_among_the_owners() {
    let list = |who: &str| format!("user::rw-,{who}:r--,group::r--,mask::r--,other::---");
    let owned = |mut tar: TarBuilder, name: &str, user: &str, uid: &str| {
        tar.header(b'0', name, "", 0, |h| {
            h[265..265 + user.len()].copy_from_slice(user.as_bytes());
            h[108..108 + uid.len()].copy_from_slice(uid.as_bytes());
        });
        tar
    };
    // One user owns an earlier entry, one owns the file itself, one owns only a later entry.
    let mut tar = owned(TarBuilder::default(), "first", "joe", "0000021");
    for (name, who) in [("a", "user:joe"), ("b", "user:eve"), ("c", "group:staff")] {
        tar = tar.pax(b'x', &[("SCHILY.acl.access", list(who).as_bytes())]).file(name, b"");
    }
    tar = owned(tar, "last", "eve", "0000022");
    tar = tar.pax(b'x', &[("gname", b"staff"), ("gid", b"70")]).file("d", b"");
    let tree = read_both(&tar.clone().end()).unwrap();
    for (name, tag, id) in [("a", 2, 0o21), ("b", 2, 0o22), ("c", 8, 70)] {
        let xattrs = tree.xattrs(tree.find(name.as_bytes()).unwrap());
        let value = &xattrs[0].value;
        assert!(value[4..].chunks(8).any(|e| e[0] == tag && e[4] == id), "{name}: {value:?}");
    }
    let bad = tar.pax(b'x', &[("SCHILY.acl.access", list("user:nil").as_bytes())]).file("e", b"");
    let error = fault(&bad.file("f", b"").end());
    assert!(error.starts_with("t.tar: entry e at byte ") && error.contains("nil"), "{error}");
}

/// Reads `data` as a plain tar and as a layer.
fn read_any(data: &[u8]) {
    for meaning in [Meaning::Plain, Meaning::Layer] {
        let Ok(mut spool) = Spool::new(&std::env::temp_dir()) else { return };
        let mut overlay = Overlay::new(1 << 16);
        let reader: Box<dyn Read> = Box::new(Cursor::new(data));
        let name = Path::new("fuzz.tar");
        if read_stream(reader, &mut spool, name, meaning, &mut overlay, &()).is_ok() {
            let tree = overlay.finish().expect("what was taken can be assembled");
            let _ = tree.digest();
        }
    }
}
