//! A tar header: one block that describes one entry.
//!
//! ```text
//! 0     100  108  116  124   136   148   156 157      257    263 265    297    329  337  345   500
//! ┌─────┬────┬────┬────┬─────┬─────┬─────┬──┬────────┬──────┬──┬──────┬──────┬────┬────┬──────┐
//! │name │mode│uid │gid │size │mtime│check│ty│linkname│magic │vr│uname │gname │maj │min │prefix│
//! └─────┴────┴────┴────┴─────┴─────┴─────┴──┴────────┴──────┴──┴──────┴──────┴────┴────┴──────┘
//!                                                     "ustar\0" POSIX: prefix + "/" + name
//!                                                     "ustar "  GNU: 345 atime, ctime, sparse
//! ```
//!
//! Numbers are octal digits, or big-endian binary with the top bit of the first byte set. `check`
//! is the sum of all bytes, where its own eight bytes count as spaces. Source: POSIX pax, "ustar
//! Interchange Format"; the GNU tar manual, "Basic Tar Format".

use super::Fault;
use super::input::BLOCK;
use extant_base::narrow::{low_u16, low_u32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// A header as it is in the archive.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone)]
#[repr(C)]
pub(crate) struct RawHeader {
    name: [u8; 100],
    mode: [u8; 8],
    uid: [u8; 8],
    gid: [u8; 8],
    size: [u8; 12],
    mtime: [u8; 12],
    check: [u8; 8],
    kind: u8,
    link: [u8; 100],
    magic: [u8; 8],
    uname: [u8; 32],
    gname: [u8; 32],
    major: [u8; 8],
    minor: [u8; 8],
    /// POSIX: the prefix. GNU: other fields, of which only the sparse ones are used.
    tail: [u8; 167],
}

const _: () = assert!(size_of::<RawHeader>() == BLOCK);

/// A header with a right checksum and valid numbers.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u16,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) size: u64,
    pub(crate) mtime: i64,
    /// Names of owner and group; empty where the header has none.
    pub(crate) user: Vec<u8>,
    pub(crate) group: Vec<u8>,
    pub(crate) major: u64,
    pub(crate) minor: u64,
    /// The first four sparse entries, whether more blocks follow, and the real size.
    pub(crate) sparse: Option<OldSparse>,
}

/// The sparse fields of a header of type `S`.
#[derive(Debug, Clone)]
pub(crate) struct OldSparse {
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) more: bool,
    pub(crate) real_size: u64,
}

/// Verifies the checksum of a block that may be a header.
pub(crate) fn checksum_is_right(block: &[u8; BLOCK]) -> bool {
    let Ok(stored) = number(&block[148..156]) else { return false };
    let outside = || block[..148].iter().chain(&block[156..]);
    let unsigned: i64 = outside().map(|&b| i64::from(b)).sum();
    // Some old programs added up signed bytes.
    let signed: i64 = outside().map(|&b| i64::from(b.cast_signed())).sum();
    stored == unsigned + 8 * 32 || stored == signed + 8 * 32
}

impl Header {
    /// Reads a header block. Errors: a wrong checksum, or a field that is not a number.
    pub(crate) fn check(block: &[u8; BLOCK]) -> Result<Header, Fault> {
        if !checksum_is_right(block) {
            return Err("header checksum is wrong: the archive is damaged".into());
        }
        let raw = RawHeader::ref_from_bytes(block).expect("a header is one block");
        let field = |what: &str, bytes: &[u8]| {
            number(bytes).map_err(|_| format!("{what} in the header is no number"))
        };
        let natural = |what: &str, bytes: &[u8]| {
            u64::try_from(field(what, bytes)?).map_err(|_| format!("{what} is negative"))
        };
        let posix = raw.magic[..6] == *b"ustar\0";
        let gnu = raw.magic[..6] == *b"ustar ";
        let mut name = until_nul(&raw.name).to_vec();
        if posix && raw.tail[0] != 0 {
            let mut full = until_nul(&raw.tail[..155]).to_vec();
            full.push(b'/');
            full.append(&mut name);
            name = full;
        }
        let is_device = matches!(raw.kind, b'3' | b'4') && (posix || gnu);
        let sparse = match raw.kind {
            b'S' => Some(OldSparse {
                ranges: sparse_ranges(&raw.tail[41..137])?,
                more: raw.tail[137] != 0,
                real_size: natural("real size", &raw.tail[138..150])?,
            }),
            _ => None,
        };
        Ok(Header {
            kind: raw.kind,
            name,
            link: until_nul(&raw.link).to_vec(),
            mode: low_u16(low_u32((field("mode", &raw.mode)? & 0o7777).cast_unsigned())),
            uid: natural("owner", &raw.uid)?,
            gid: natural("group", &raw.gid)?,
            size: natural("size", &raw.size)?,
            mtime: field("time", &raw.mtime)?,
            user: if posix || gnu { until_nul(&raw.uname).to_vec() } else { Vec::new() },
            group: if posix || gnu { until_nul(&raw.gname).to_vec() } else { Vec::new() },
            major: if is_device { natural("device number", &raw.major)? } else { 0 },
            minor: if is_device { natural("device number", &raw.minor)? } else { 0 },
            sparse,
        })
    }
}

/// The entries of a GNU sparse header, or of a block that continues one: offset and length, 12
/// bytes each. The first empty entry ends them.
pub(crate) fn sparse_ranges(bytes: &[u8]) -> Result<Vec<(u64, u64)>, Fault> {
    let mut ranges = Vec::new();
    for entry in bytes.chunks_exact(24) {
        if entry[0] == 0 {
            break;
        }
        let value = |bytes| {
            let value = number(bytes).map_err(|_| "sparse map holds what is no number");
            u64::try_from(value?).map_err(|_| "sparse map holds a negative number")
        };
        ranges.push((value(&entry[..12])?, value(&entry[12..])?));
    }
    Ok(ranges)
}

/// A number field: octal digits between optional spaces and NULs, or binary. An empty field is
/// zero.
fn number(field: &[u8]) -> Result<i64, ()> {
    if field[0] & 0x80 != 0 {
        let negative = field[0] & 0x40 != 0;
        let first =
            if negative { i64::from(field[0].cast_signed()) } else { i64::from(field[0] & 0x3f) };
        return field[1..].iter().try_fold(first, |value, &b| {
            value.checked_mul(256).map(|v| v | i64::from(b)).ok_or(())
        });
    }
    let start = field.iter().position(|&b| b != b' ').unwrap_or(field.len());
    let digits = &field[start..];
    let end = digits.iter().position(|&b| b == b' ' || b == 0).unwrap_or(digits.len());
    digits[..end].iter().try_fold(0i64, |value, &b| match b {
        b'0'..=b'7' => value.checked_mul(8).map(|v| v + i64::from(b - b'0')).ok_or(()),
        _ => Err(()),
    })
}

fn until_nul(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|&b| b == 0).unwrap_or(field.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary_and_nothing_else() {
        let cases: [(&[u8], Result<i64, ()>); 12] = [
            (b"0000644\0", Ok(0o644)),
            (b"   644 \0", Ok(0o644)),
            (b"\0\0\0\0\0\0\0\0", Ok(0)),
            (b"        ", Ok(0)),
            (b"77777777", Ok(0o77777777)),
            (b"00008000", Err(())),
            (b"-0000001", Err(())),
            (b"12 garb\0", Ok(0o12)),
            (b"\x80\0\0\0\0\0\x01\x02", Ok(0x102)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Ok(-2)),
            (b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", Ok(i64::MAX)),
            (b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", Err(())),
        ];
        for (field, value) in cases {
            assert_eq!(number(field), value, "{}", field.escape_ascii());
        }
    }
}
