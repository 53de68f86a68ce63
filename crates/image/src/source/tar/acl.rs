//! Converting access control lists from the text form in tars to the value of the attribute.
//!
//! ```text
//!   "user::rw-,user:1000:r--,group::r--,mask::r--,other::---"
//!
//!   value   version 2 u32 │ tag u16 │ perm u16 │ id u32 │ tag …     little-endian, as in the
//!                         └──────── one entry ──────────┘           system calls
//! ```
//!
//! star appends the number to a name, "user:joe:r--:1000". GNU tar writes only the name: its number
//! is taken from entries of the same archive whose owner or group has that name.

use super::Fault;
use hashbrown::HashMap;

/// Names and numbers of the owners and groups of an archive's entries.
#[derive(Debug, Default)]
pub(super) struct Names {
    users: HashMap<Vec<u8>, u32>,
    groups: HashMap<Vec<u8>, u32>,
}

/// The longest name, and the number of names, that are kept.
const NAME_MAX: usize = 256;
const NAMES_MAX: usize = 1 << 16;

impl Names {
    /// Records the owner and group of an entry. The first number for a name is kept.
    pub(super) fn learn(&mut self, (user, uid): (&[u8], u32), (group, gid): (&[u8], u32)) {
        for (names, name, id) in [(&mut self.users, user, uid), (&mut self.groups, group, gid)] {
            if !(1..=NAME_MAX).contains(&name.len()) || names.len() >= NAMES_MAX {
                continue;
            }
            if !names.contains_key(name) {
                names.insert(name.to_vec(), id);
            }
        }
    }
}

/// Why a text cannot be converted.
#[derive(Debug)]
pub(super) enum Wrong {
    /// It is invalid.
    Fault(Fault),
    /// It names an owner or group that no entry so far has.
    Unknown(Fault),
}

impl Wrong {
    /// The reason as a text.
    pub(super) fn into_fault(self) -> Fault {
        match self {
            Wrong::Fault(fault) | Wrong::Unknown(fault) => fault,
        }
    }
}

/// Converts an ACL's text form to the value of `system.posix_acl_access` or `_default`.
pub(super) fn from_text(text: &[u8], names: &Names) -> Result<Vec<u8>, Wrong> {
    let malformed = || Wrong::Fault("is no access control list".into());
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
            _ => return Err(malformed()),
        };
        let number = match (id, who) {
            (_, b"") => None,
            (Some(id), _) => super::pax::decimal(id),
            (None, who) => super::pax::decimal(who).or_else(|| {
                let names = match tag {
                    b"user" | b"u" => &names.users,
                    _ => &names.groups,
                };
                names.get(who).map(|id| u64::from(*id))
            }),
        };
        let id = match (who.is_empty(), number.and_then(|n| u32::try_from(n).ok())) {
            (true, _) => NO_ID,
            (false, Some(id)) => id,
            (false, None) => {
                let who = crate::error::Shown::bytes(who);
                return Err(Wrong::Unknown(format!(
                    "its access control list names {who}, who owns nothing in the archive: make it \
                     with --numeric-owner"
                )));
            }
        };
        let tag: u16 = match (tag, id) {
            (b"user" | b"u", NO_ID) => 0x01,
            (b"user" | b"u", _) => 0x02,
            (b"group" | b"g", NO_ID) => 0x04,
            (b"group" | b"g", _) => 0x08,
            (b"mask" | b"m", _) => 0x10,
            (b"other" | b"o", _) => 0x20,
            _ => return Err(malformed()),
        };
        let mut bits = 0u16;
        for b in perm {
            bits |= match b {
                b'r' => 4,
                b'w' => 2,
                b'x' => 1,
                b'-' => 0,
                _ => return Err(malformed()),
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
        let names = &mut Names::default();
        names.learn((b"joe", 9), (b"staff", 50));
        names.learn((b"joe", 10), (b"", 0));
        let from_text = |text| from_text(text, names);
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
        assert_eq!(from_text(b"user:joe:r--").unwrap()[8..], [9, 0, 0, 0]);
        assert_eq!(from_text(b"group:staff:r--").unwrap()[8..], [50, 0, 0, 0]);
        assert!(matches!(from_text(b"user:staff:r--"), Err(Wrong::Unknown(_))));
        assert!(matches!(from_text(b"nobody"), Err(Wrong::Fault(_))));
    }
}
