//! A tar archive.
//!
//! ```text
//!   input:  choice (1) │ archive          choice: bit 0 leaves the headers' checksums as they are
//! ```

use super::{SCRATCH, build};
use extant_image::{SourceKind, SourceSpec};
use std::io::Write;

const BLOCK: usize = 512;

/// Reads the archive and builds a volume from it.
pub fn run(data: &[u8]) {
    let Some((&choice, archive)) = data.split_first() else { return };
    let mut archive = archive.to_vec();
    if choice & 1 == 0 {
        seal_all(&mut archive);
    }
    SCRATCH.with(|scratch| {
        let path = scratch.file("archive");
        std::fs::write(&path, &archive).expect("room");
        let kind = [Some(SourceKind::Tar), None][usize::from(choice >> 1 & 1)];
        build(&SourceSpec { path, kind }, scratch.path());
    });
}

/// Sets the checksum of every block that looks like a header.
fn seal_all(archive: &mut [u8]) {
    for header in archive.as_chunks_mut::<BLOCK>().0 {
        if header[257..262] == *b"ustar" {
            seal(header);
        }
    }
}

fn seal(header: &mut [u8; BLOCK]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// An archive under construction.
#[derive(Clone, Default)]
pub struct Archive(Vec<u8>);

impl Archive {
    /// One header with its data.
    pub fn entry(mut self, kind: u8, name: &str, link: &str, data: &[u8]) -> Archive {
        let mut header = [0; BLOCK];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000640");
        header[108..115].copy_from_slice(b"0000007");
        header[116..123].copy_from_slice(b"0000010");
        header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000001750");
        header[156] = kind;
        header[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[329..336].copy_from_slice(b"0000001");
        header[337..344].copy_from_slice(b"0000003");
        seal(&mut header);
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }

    /// A file.
    pub fn file(self, name: &str, data: &[u8]) -> Archive {
        self.entry(b'0', name, "", data)
    }

    /// An extended header, for the next entry (`x`) or all (`g`).
    fn pax(self, kind: u8, records: &[(&str, &str)]) -> Archive {
        let mut body = String::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let digits = [1, 2, 3, 4].into_iter().find(|n| (rest + n).to_string().len() == *n);
            body += &format!("{} {key}={value}\n", rest + digits.expect("a short record"));
        }
        self.entry(kind, "pax", "", body.as_bytes())
    }

    /// The archive with the blocks that end it.
    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

/// Archives with every kind of entry.
pub fn seeds() -> Vec<Vec<u8>> {
    let plain = Archive::default()
        .entry(b'5', "etc", "", b"")
        .file("etc/hostname", b"guest\n")
        .entry(b'1', "etc/again", "etc/hostname", b"")
        .entry(b'2', "lib", "usr/lib", b"")
        .entry(b'3', "dev/null", "", b"")
        .entry(b'4', "dev/disk", "", b"")
        .entry(b'6', "run/pipe", "", b"")
        .file("usr/lib/deep/er/file", &[7; 3000])
        .end();
    let long = "a/long/name/".repeat(20);
    let gnu = Archive::default()
        .entry(b'L', "././@LongLink", "", format!("{long}file\0").as_bytes())
        .file("short", b"1")
        .entry(b'K', "././@LongLink", "", format!("{long}file\0").as_bytes())
        .entry(b'2', "link", "short", b"")
        .end();
    let extended = Archive::default()
        .pax(b'g', &[("mtime", "1700000000.5"), ("comment", "all")])
        .pax(
            b'x',
            &[
                ("path", "straße/file"),
                ("uid", "4000000000"),
                ("mtime", "-5.000000001"),
                ("SCHILY.xattr.user.name", "value"),
                ("SCHILY.acl.access", "user::rwx,user:lp:rw-,group::r--,mask::rw-,other::---"),
                ("SCHILY.acl.default", "user::rwx,group::r-x,other::r-x"),
                ("LIBARCHIVE.xattr.user.b", "dmFsdWU"),
            ],
        )
        .file("f", b"data")
        .pax(b'x', &[("linkpath", "straße/file"), ("size", "0")])
        .entry(b'1', "hard", "f", b"")
        .end();
    let map = "2\n0\n4\n1048576\n4\n";
    let sparse = [map.as_bytes(), &vec![0; BLOCK - map.len()], b"onetwo!!"].concat();
    let sparse_1_0 = Archive::default()
        .pax(
            b'x',
            &[
                ("GNU.sparse.major", "1"),
                ("GNU.sparse.minor", "0"),
                ("GNU.sparse.name", "holes"),
                ("GNU.sparse.realsize", "2097152"),
            ],
        )
        .file("GNUSparseFile.0/holes", &sparse)
        .pax(
            b'x',
            &[
                ("GNU.sparse.size", "1048576"),
                ("GNU.sparse.numblocks", "1"),
                ("GNU.sparse.map", "4096,8"),
            ],
        )
        .file("older", b"12345678")
        .end();
    let layer = Archive::default()
        .file("etc/.wh.a", b"")
        .file("usr/lib/.wh..wh..opq", b"")
        .file("usr/lib/new", b"n")
        .file(".wh..wh.plnk", b"")
        .end();
    let mut old = Archive::default().entry(b'S', "old sparse", "", &[5; 512]).end();
    // offset 0, 512 bytes; the real size is 1 MiB.
    old[386..397].copy_from_slice(b"00000000000");
    old[398..409].copy_from_slice(b"00000001000");
    old[483..494].copy_from_slice(b"00004000000");
    old[257..265].copy_from_slice(b"ustar  \0");
    let gz = |bytes: &[u8]| {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(bytes).and_then(|()| gz.finish()).expect("memory")
    };
    let zst = zstd::encode_all(&extended[..], 1).expect("memory");
    let packed = [gz(&plain), zst].map(|bytes| [&[1], &bytes[..]].concat());
    let all = [plain, gnu, extended, sparse_1_0, layer, old];
    all.iter().map(|bytes| [&[0], &bytes[..]].concat()).chain(packed).collect()
}
