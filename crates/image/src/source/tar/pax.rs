//! PAX extended headers: `len key=value\n` records that replace fields of the next header, or of
//! all later ones.
//!
//! ```text
//!   "30 mtime=1700000000.123456789\n"    len counts the whole record, itself included
//!    ▲                             ▲
//!    └──────────── 30 ─────────────┘
//! ```
//!
//! Source: POSIX pax, "pax Extended Header"; the GNU tar manual, "Storing Sparse Files";
//! attributes as star (`SCHILY.xattr.`) and libarchive (`LIBARCHIVE.xattr.`) write them.

use super::Fault;
use crate::entry::{Time, Xattr, is_storable_xattr};
use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use extant_base::narrow::low_u8;
use std::collections::BTreeMap;

/// Base64 with the standard alphabet; input may be padded or not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The contents of extended headers. Where a field is `None`, the header's own field counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pax {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) mtime: Option<Time>,
    pub(crate) atime: Option<Time>,
    pub(crate) ctime: Option<Time>,
    pub(crate) user: Option<Vec<u8>>,
    pub(crate) group: Option<Vec<u8>>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Access control lists as text, by the attribute that they become.
    pub(crate) acls: BTreeMap<&'static [u8], Vec<u8>>,
    pub(crate) sparse: PaxSparse,
}

/// GNU sparse files in their PAX forms.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaxSparse {
    pub(crate) major: Option<u64>,
    pub(crate) minor: Option<u64>,
    pub(crate) name: Option<Vec<u8>>,
    /// `GNU.sparse.size` (0.0, 0.1) or `GNU.sparse.realsize` (1.0).
    pub(crate) real_size: Option<u64>,
    /// Offsets and lengths of formats 0.0 and 0.1, alternating.
    pub(crate) numbers: Vec<u64>,
}

const XATTR_VALUE_MAX: usize = 65536;

impl Pax {
    /// Adds the records of one extended header.
    pub(crate) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        // A new sparse map replaces one from a global header.
        let mut new_map = true;
        while !bytes.is_empty() {
            let (key, value, rest) =
                record(bytes).ok_or("extended header holds a record of wrong length")?;
            bytes = rest;
            self.set(key, value, &mut new_map)
                .map_err(|fault| format!("extended header record {}: {fault}", shown(key)))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &[u8], value: &[u8], new_map: &mut bool) -> Result<(), Fault> {
        let text = (!value.is_empty()).then(|| value.to_vec());
        match key {
            b"path" => self.path = text,
            b"linkpath" => self.link = text,
            b"size" => self.size = natural(value)?,
            b"uid" => self.uid = natural(value)?,
            b"gid" => self.gid = natural(value)?,
            b"uname" => self.user = text,
            b"gname" => self.group = text,
            b"mtime" => self.mtime = time(value)?,
            b"atime" => self.atime = time(value)?,
            b"ctime" => self.ctime = time(value)?,
            b"GNU.sparse.major" => self.sparse.major = natural(value)?,
            b"GNU.sparse.minor" => self.sparse.minor = natural(value)?,
            b"GNU.sparse.name" => self.sparse.name = text,
            b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                self.sparse.real_size = natural(value)?;
            }
            b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => {
                if std::mem::take(new_map) {
                    self.sparse.numbers.clear();
                }
                let odd = self.sparse.numbers.len() % 2 == 1;
                if odd != (key == b"GNU.sparse.numbytes") {
                    return Err("offsets and lengths do not take turns".into());
                }
                self.sparse.numbers.push(natural(value)?.ok_or("is empty")?);
            }
            b"GNU.sparse.map" => {
                self.sparse.numbers.clear();
                for number in value.split(|&b| b == b',').filter(|n| !n.is_empty()) {
                    self.sparse.numbers.push(natural(number)?.ok_or("is empty")?);
                }
            }
            key => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    self.add_xattr(gnu_decoded(name), value.to_vec())?;
                } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                    let value = BASE64.decode(value).map_err(|_| "is not base64")?;
                    self.add_xattr(percent_decoded(name), value)?;
                } else if let Some(which) = key.strip_prefix(b"SCHILY.acl.") {
                    let name: &'static [u8] = match which {
                        b"access" => b"system.posix_acl_access",
                        b"default" => b"system.posix_acl_default",
                        _ => return Ok(()),
                    };
                    match value {
                        b"" => self.acls.remove(name),
                        value => self.acls.insert(name, value.to_vec()),
                    };
                }
            }
        }
        Ok(())
    }

    pub(super) fn add_xattr(&mut self, name: Vec<u8>, value: Vec<u8>) -> Result<(), Fault> {
        if !is_storable_xattr(&name) {
            return Ok(());
        }
        if name.len() > 255 || name.contains(&0) {
            return Err("the attribute's name is longer than 255 bytes or holds a NUL".into());
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err("the attribute's value is longer than 64 KiB".into());
        }
        self.xattrs.insert(name, value);
        Ok(())
    }

    /// Approximate memory use in bytes.
    pub(crate) fn weight(&self) -> usize {
        let texts = [&self.path, &self.link, &self.user, &self.group, &self.sparse.name];
        let texts = texts.into_iter().flatten().map(Vec::len).sum::<usize>();
        let xattrs = self.xattrs.iter().map(|(name, value)| name.len() + value.len() + 64);
        let acls = self.acls.values().map(Vec::len).sum::<usize>();
        texts + acls + xattrs.sum::<usize>() + self.sparse.numbers.len() * 8
    }

    /// The attributes, sorted by name.
    pub(crate) fn xattr_list(&self) -> Vec<Xattr> {
        let xattr = |(name, value): (&Vec<u8>, &Vec<u8>)| Xattr {
            name: name.as_slice().into(),
            value: value.as_slice().into(),
        };
        self.xattrs.iter().map(xattr).collect()
    }
}

/// Splits off the first record: key, value, rest.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|&b| b == b' ')?;
    let len = usize::try_from(decimal(&bytes[..space])?).ok()?;
    if len <= space + 1 || len > bytes.len() || bytes[len - 1] != b'\n' {
        return None;
    }
    let body = &bytes[space + 1..len - 1];
    let equals = body.iter().position(|&b| b == b'=')?;
    Some((&body[..equals], &body[equals + 1..], &bytes[len..]))
}

/// A number of decimal digits and nothing else.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &b| match b {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

fn natural(value: &[u8]) -> Result<Option<u64>, Fault> {
    match value {
        b"" => Ok(None),
        value => decimal(value).map(Some).ok_or_else(|| "is no number".into()),
    }
}

/// Seconds with an optional fraction. The sign applies to the whole number, so the fraction counts
/// away from zero. Digits below a nanosecond are dropped.
fn time(value: &[u8]) -> Result<Option<Time>, Fault> {
    if value.is_empty() {
        return Ok(None);
    }
    let (negative, digits) = match value.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, value),
    };
    let mut parts = digits.splitn(2, |&b| b == b'.');
    let whole = parts.next().and_then(decimal).and_then(|s| i64::try_from(s).ok());
    let fraction = parts.next().unwrap_or(b"");
    let (Some(whole), true) = (whole, fraction.iter().all(u8::is_ascii_digit)) else {
        return Err("is no time".into());
    };
    let nsec = (0..9)
        .fold(0, |n, at| n * 10 + fraction.get(at).map_or(0, |digit| u32::from(digit - b'0')));
    let time = match (negative, nsec) {
        (false, nsec) => Time { sec: whole, nsec },
        (true, 0) => Time { sec: -whole, nsec: 0 },
        (true, nsec) => Time { sec: -whole - 1, nsec: 1_000_000_000 - nsec },
    };
    Ok(Some(time))
}

/// `%41` is `A`; all other text stays. libarchive writes attribute names in this way.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    decoded(text, |digits| {
        let [high, low] = digits.map(|digit| (digit as char).to_digit(16));
        Some(low_u8(high? * 16 + low?))
    })
}

/// `%25` is `%` and `%3D` is `=`; all other text stays, even `%3d`. GNU tar writes attribute names
/// in this way.
fn gnu_decoded(text: &[u8]) -> Vec<u8> {
    decoded(text, |digits| match &digits {
        b"25" => Some(b'%'),
        b"3D" => Some(b'='),
        _ => None,
    })
}

/// Replaces each `%` and the two bytes after it by the byte that `byte_of` returns, if any.
fn decoded(text: &[u8], byte_of: impl Fn([u8; 2]) -> Option<u8>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [a, b, after @ ..]) => byte_of([*a, *b]).map(|byte| (byte, after)),
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, tail));
        bytes.push(byte);
        rest = after;
    }
    bytes
}

fn shown(key: &[u8]) -> String {
    crate::error::Shown::bytes(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nanoseconds_and_signs() {
        let at = |sec, nsec| Ok(Some(Time { sec, nsec }));
        assert_eq!(time(b"1700000000.123456789"), at(1_700_000_000, 123_456_789));
        assert_eq!(time(b"5"), at(5, 0));
        assert_eq!(time(b"5.5"), at(5, 500_000_000));
        assert_eq!(time(b"5.1234567899"), at(5, 123_456_789));
        assert_eq!(time(b"-1.25"), at(-2, 750_000_000));
        assert_eq!(time(b"-3"), at(-3, 0));
        assert_eq!(time(b""), Ok(None));
        for bad in [&b"x"[..], b"1.x", b"--1", b".5", b"99999999999999999999"] {
            assert!(time(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn records_must_be_as_long_as_they_say() {
        let mut pax = Pax::default();
        pax.read(b"12 path=abc\n20 SCHILY.xattr.x=y\n").unwrap();
        assert_eq!(pax.path.as_deref(), Some(&b"abc"[..]));
        assert!(pax.xattrs.is_empty(), "no namespace, no attribute");
        for bad in [
            &b"13 path=abc\n"[..],
            b"11 path=abc\n",
            b"0 path=abc\n",
            b"3 \n",
            b"path=abc\n",
            b"99999999999999999999999 a=b\n",
            b"10 pathabc\n",
        ] {
            assert!(Pax::default().read(bad).is_err(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn both_attribute_spellings_give_the_same_bytes() {
        let mut pax = Pax::default();
        pax.set(b"SCHILY.xattr.user.a b", b"\x00\xff\n", &mut true).unwrap();
        let one = pax.xattr_list();
        let mut pax = Pax::default();
        pax.set(b"LIBARCHIVE.xattr.user.a%20b", b"AP8K", &mut true).unwrap();
        assert_eq!(pax.xattr_list(), one);
        let mut pax = Pax::default();
        pax.set(b"SCHILY.xattr.user.%3D%25%3d%41%", b"x", &mut true).unwrap();
        assert_eq!(&*pax.xattr_list()[0].name, b"user.=%%3d%41%");
        assert_eq!(BASE64.decode(b"AA").unwrap(), [0]);
        assert_eq!(BASE64.decode(b"AAE=").unwrap(), [0, 1]);
        assert!(BASE64.decode(b"A").is_err() && BASE64.decode(b"A*==").is_err());
    }
}
