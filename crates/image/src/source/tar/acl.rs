//! Access control lists as tars write them, in text, to the value of the attribute.
//!
//! ```text
//!   "user::rw-,user:1000:r--,group::r--,mask::r--,other::---"
//!
//!   value   version 2 u32 │ tag u16 │ perm u16 │ id u32 │ tag …     little-endian, as the
//!                         └──────── one entry ──────────┘           system calls take it
//! ```
//!
//! A name of a user cannot be turned into a number here; star and GNU tar append the number.

use super::Fault;

/// Turns an ACL's text form into the value of `system.posix_acl_access` or `_default`.
pub(super) fn from_text(text: &[u8]) -> Result<Vec<u8>, Fault> {
    const NO_ID: u32 = u32::MAX;
    let mut entries = Vec::new();
    for line in text.split(|&b| b == b',' || b == b'\n') {
        let line = line.split(|&b| b == b'#').next().unwrap_or(b"").trim_ascii();
        if line.is_empty() {
            continue;
        }
        let parts: Vec<&[u8]> = line.split(|&b| b == b':').collect();
        let (tag, who, perm, id) = match parts[..] {
            [tag, perm] => (tag, &b""[..], perm, None),
            [tag, who, perm] => (tag, who, perm, None),
            [tag, who, perm, id] => (tag, who, perm, Some(id)),
            _ => return Err("is no access control list".into()),
        };
        let number = match (id, who) {
            (_, b"") => None,
            (Some(id), _) => super::pax::decimal(id),
            (None, who) => super::pax::decimal(who),
        };
        let id = match (who.is_empty(), number.and_then(|n| u32::try_from(n).ok())) {
            (true, _) => NO_ID,
            (false, Some(id)) => id,
            (false, None) => {
                let who = crate::error::Shown::bytes(who);
                return Err(format!(
                    "names {who} without a number: make the archive with --numeric-owner"
                ));
            }
        };
        let tag: u16 = match (tag, id) {
            (b"user" | b"u", NO_ID) => 0x01,
            (b"user" | b"u", _) => 0x02,
            (b"group" | b"g", NO_ID) => 0x04,
            (b"group" | b"g", _) => 0x08,
            (b"mask" | b"m", _) => 0x10,
            (b"other" | b"o", _) => 0x20,
            _ => return Err("is no access control list".into()),
        };
        let mut bits = 0u16;
        for b in perm {
            bits |= match b {
                b'r' => 4,
                b'w' => 2,
                b'x' => 1,
                b'-' => 0,
                _ => return Err("is no access control list".into()),
            };
        }
        entries.push((tag, id, bits));
    }
    entries.sort_unstable();
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, id, bits) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&bits.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_value_that_system_calls_take() {
        let value = from_text(b"user::rw-,group::r--,user:1000:r-x,mask::r-x,other::---").unwrap();
        let none = [255, 255, 255, 255];
        let mut want = vec![2, 0, 0, 0];
        want.extend([[1, 0, 6, 0], none].concat());
        want.extend([[2, 0, 5, 0], [0xe8, 3, 0, 0]].concat());
        want.extend([[4, 0, 4, 0], none].concat());
        want.extend([[0x10, 0, 5, 0], none].concat());
        want.extend([[0x20, 0, 0, 0], none].concat());
        assert_eq!(value, want);
        assert_eq!(from_text(b"user:joe:r--:7\n").unwrap()[4..], [2, 0, 4, 0, 7, 0, 0, 0]);
        assert!(from_text(b"user:joe:r--").is_err());
        assert!(from_text(b"nobody").is_err());
    }
}
