//! POSIX access control lists: the list, its form on disk, and its form in `getxattr`/`setxattr`.
//!
//! ```text
//!   on disk        1 u32 │ tag u16, perm u16 │ tag u16, perm u16, id u32 │ …      little-endian
//!                          short: owner,       long: user, group
//!                          group, mask, other
//!   system call    2 u32 │ tag u16, perm u16, id u32 │ …     id FFFFFFFF for tags without an id
//! ```
//!
//! Rules:
//! - The order is owner, users by id, owning group, groups by id, mask, other.
//! - There is exactly one owner, owning group and other.
//! - There is at most one mask, and exactly one if there is any user or group.
//!
//! Source: ext4 documentation, "POSIX ACLs"; POSIX 1003.1e draft 17.

use alloc::vec::Vec;
use core::fmt;
use extant_base::{Result, Site, What};

const DISK_VERSION: u32 = 1;
const CALL_VERSION: u32 = 2;
const NO_ID: u32 = 0xFFFF_FFFF;
const HEADER_LEN: usize = 4;
const SHORT_LEN: usize = 4;
const LONG_LEN: usize = 8;

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclTag {
    /// The file's owner.
    Owner,
    /// A user by id.
    User(u32),
    /// The file's owning group.
    OwningGroup,
    /// A group by id.
    Group(u32),
    /// The mask: the upper limit for users, groups and the owning group.
    Mask,
    /// All other users.
    Other,
}

impl AclTag {
    fn code(self) -> (u16, Option<u32>) {
        match self {
            AclTag::Owner => (0x01, None),
            AclTag::User(id) => (0x02, Some(id)),
            AclTag::OwningGroup => (0x04, None),
            AclTag::Group(id) => (0x08, Some(id)),
            AclTag::Mask => (0x10, None),
            AclTag::Other => (0x20, None),
        }
    }

    fn is_long(code: u16) -> bool {
        matches!(code, 0x02 | 0x08)
    }

    fn from_code(code: u16, id: u32) -> Option<AclTag> {
        match code {
            0x01 => Some(AclTag::Owner),
            0x02 => Some(AclTag::User(id)),
            0x04 => Some(AclTag::OwningGroup),
            0x08 => Some(AclTag::Group(id)),
            0x10 => Some(AclTag::Mask),
            0x20 => Some(AclTag::Other),
            _ => None,
        }
    }
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// The subject.
    pub tag: AclTag,
    /// Read 4, write 2, execute 1.
    pub perm: u16,
}

/// A valid, ordered access control list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// A list of these entries, which may be in any order.
    ///
    /// `None` unless there is exactly one owner, owning group and other; at most one mask, and one
    /// if there is any user or group; no id twice, and none FFFFFFFF; and no permission above 7.
    pub fn new(mut entries: Vec<AclEntry>) -> Option<Acl> {
        entries.sort_by_key(|entry| entry.tag);
        let acl = Acl { entries };
        acl.is_valid().then_some(acl)
    }

    /// The list with the permissions of mode bits 0..=8.
    pub fn from_mode(mode: u16) -> Acl {
        let perm = |shift: u16| mode >> shift & 7;
        let entries = [(AclTag::Owner, 6), (AclTag::OwningGroup, 3), (AclTag::Other, 0)];
        Acl { entries: entries.map(|(tag, shift)| AclEntry { tag, perm: perm(shift) }).into() }
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let named = self.entries.iter().any(|entry| entry.tag.code().1.is_some());
        let masks = count(AclTag::Mask);
        // In strictly ascending order no tag and no id occurs twice.
        self.entries.windows(2).all(|pair| pair[0].tag < pair[1].tag)
            && self.entries.iter().all(|e| e.perm <= 7 && e.tag.code().1 != Some(NO_ID))
            && [AclTag::Owner, AclTag::OwningGroup, AclTag::Other]
                .into_iter()
                .all(|t| count(t) == 1)
            && (masks == 1 || !named)
    }

    /// The entries in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    fn perm(&self, tag: AclTag) -> Option<u16> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    fn set_perm(&mut self, tag: AclTag, perm: u16) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.tag == tag) {
            entry.perm = perm & 7;
        }
    }

    /// The mode bits 0..=8 that correspond to this list; the group's bits are those of the mask, if
    /// there is one. The second value says whether the mode alone expresses the list, so that no
    /// attribute is needed.
    pub fn to_mode(&self) -> (u16, bool) {
        let group = self.perm(AclTag::Mask).or(self.perm(AclTag::OwningGroup)).unwrap_or(0);
        let owner = self.perm(AclTag::Owner).unwrap_or(0);
        let other = self.perm(AclTag::Other).unwrap_or(0);
        (owner << 6 | group << 3 | other, self.entries.len() == 3)
    }

    /// Applies a chmod to mode bits 0..=8: sets owner, mask (without a mask: owning group), other.
    pub fn chmod(&mut self, mode: u16) {
        self.set_perm(AclTag::Owner, mode >> 6);
        match self.perm(AclTag::Mask) {
            Some(_) => self.set_perm(AclTag::Mask, mode >> 3),
            None => self.set_perm(AclTag::OwningGroup, mode >> 3),
        }
        self.set_perm(AclTag::Other, mode);
    }

    /// The list and the mode bits of a new file in a directory with this default list: this list,
    /// restricted to the `requested` mode bits 0..=8.
    pub fn inherit(&self, requested: u16) -> (Acl, u16) {
        let mut acl = self.clone();
        let (most, _) = self.to_mode();
        let mode = most & requested;
        acl.chmod(mode);
        (acl, mode)
    }

    /// Reads an attribute's value as ext4 stores it.
    ///
    /// # Errors
    /// `Corrupt(Acl)`.
    pub fn from_disk(value: &[u8], at: Site) -> Result<Acl> {
        Self::parse_disk(value).ok_or(at.corrupt(What::Acl))
    }

    fn parse_disk(value: &[u8]) -> Option<Acl> {
        let mut rest = value.strip_prefix(&DISK_VERSION.to_le_bytes()[..])?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (tag, perm, after) = take_short(rest)?;
            rest = after;
            let mut id = NO_ID;
            if AclTag::is_long(tag) {
                let (bytes, after) = rest.split_first_chunk::<4>()?;
                id = u32::from_le_bytes(*bytes);
                rest = after;
            }
            entries.push(AclEntry { tag: AclTag::from_code(tag, id)?, perm });
        }
        let acl = Acl { entries };
        acl.is_valid().then_some(acl)
    }

    /// The attribute's value as ext4 stores it.
    pub fn to_disk(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEADER_LEN + self.entries.len() * LONG_LEN);
        value.extend(DISK_VERSION.to_le_bytes());
        for AclEntry { tag, perm } in &self.entries {
            let (code, id) = tag.code();
            value.extend(code.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.into_iter().flat_map(u32::to_le_bytes));
        }
        value
    }

    /// Bytes of [`Acl::to_disk`].
    pub fn disk_len(&self) -> usize {
        let long = self.entries.iter().filter(|entry| entry.tag.code().1.is_some()).count();
        HEADER_LEN + self.entries.len() * SHORT_LEN + long * (LONG_LEN - SHORT_LEN)
    }

    /// Decodes the value that a caller passes to `setxattr`, or that a tar archive holds. Entries
    /// may be in any order. `None` if it is not valid.
    pub fn from_call(value: &[u8]) -> Option<Acl> {
        let rest = value.strip_prefix(&CALL_VERSION.to_le_bytes()[..])?;
        let chunks = rest.chunks_exact(LONG_LEN);
        if !chunks.remainder().is_empty() {
            return None;
        }
        let mut entries = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let (tag, perm, id) = take_short(chunk)?;
            let id = u32::from_le_bytes(id.try_into().ok()?);
            entries.push(AclEntry { tag: AclTag::from_code(tag, id)?, perm });
        }
        Acl::new(entries)
    }

    /// The value that `getxattr` returns.
    pub fn to_call(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEADER_LEN + self.entries.len() * LONG_LEN);
        value.extend(CALL_VERSION.to_le_bytes());
        for AclEntry { tag, perm } in &self.entries {
            let (code, id) = tag.code();
            value.extend(code.to_le_bytes());
            value.extend(perm.to_le_bytes());
            value.extend(id.unwrap_or(NO_ID).to_le_bytes());
        }
        value
    }
}

/// The short text form, numbers for names:
/// `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, AclEntry { tag, perm }) in self.entries.iter().enumerate() {
            if n > 0 {
                f.write_str(",")?;
            }
            match tag {
                AclTag::Owner => f.write_str("user::"),
                AclTag::User(id) => write!(f, "user:{id}:"),
                AclTag::OwningGroup => f.write_str("group::"),
                AclTag::Group(id) => write!(f, "group:{id}:"),
                AclTag::Mask => f.write_str("mask::"),
                AclTag::Other => f.write_str("other::"),
            }?;
            for (bit, letter) in [(4, "r"), (2, "w"), (1, "x")] {
                f.write_str(if perm & bit != 0 { letter } else { "-" })?;
            }
        }
        Ok(())
    }
}

fn take_short(bytes: &[u8]) -> Option<(u16, u16, &[u8])> {
    let (&[t0, t1, p0, p1], rest) = bytes.split_first_chunk::<4>()?;
    Some((u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn sample() -> Acl {
        let entry = |tag, perm| AclEntry { tag, perm };
        Acl::new(vec![
            entry(AclTag::Other, 0),
            entry(AclTag::User(1000), 6),
            entry(AclTag::Owner, 7),
            entry(AclTag::Mask, 5),
            entry(AclTag::OwningGroup, 4),
        ])
        .unwrap()
    }

    #[test]
    fn the_text_form_has_numbers_for_names() {
        let want = "user::rwx,user:1000:rw-,group::r--,mask::r-x,other::---";
        assert_eq!(alloc::format!("{}", sample()), want);
    }

    #[test]
    fn the_disk_form_mixes_short_and_long_entries() {
        let value = sample().to_disk();
        let want = [
            &[1, 0, 0, 0][..],
            &[1, 0, 7, 0],
            &[2, 0, 6, 0, 0xE8, 3, 0, 0],
            &[4, 0, 4, 0],
            &[16, 0, 5, 0],
            &[32, 0, 0, 0],
        ]
        .concat();
        assert_eq!(value, want);
        assert_eq!(sample().disk_len(), want.len());
        assert_eq!(Acl::from_disk(&value, Site::NOWHERE).unwrap(), sample());
        for cut in 0..value.len() {
            assert!(Acl::from_disk(&value[..cut], Site::NOWHERE).is_err(), "{cut}");
        }
    }

    #[test]
    fn the_call_form_gives_every_entry_an_id() {
        let value = sample().to_call();
        assert_eq!(value[..12], [2, 0, 0, 0, 1, 0, 7, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert_eq!(value.len(), 4 + 5 * 8);
        assert_eq!(Acl::from_call(&value).unwrap(), sample());
        assert_eq!(Acl::from_call(&value[..value.len() - 1]), None);
    }

    #[test]
    fn a_list_of_three_is_a_mode() {
        let acl = Acl::from_mode(0o640);
        assert_eq!(acl.to_mode(), (0o640, true));
        assert_eq!(sample().to_mode(), (0o750, false));
    }

    #[test]
    fn chmod_changes_the_mask_and_not_the_group() {
        let mut acl = sample();
        acl.chmod(0o421);
        assert_eq!(acl.to_mode(), (0o421, false));
        assert_eq!(acl.perm(AclTag::OwningGroup), Some(4));
        let (inherited, mode) = sample().inherit(0o640);
        assert_eq!((inherited.to_mode(), mode), ((0o640, false), 0o640));
    }

    #[test]
    fn invalid_lists_are_refused() {
        let entry = |tag, perm| AclEntry { tag, perm };
        let base =
            [entry(AclTag::Owner, 7), entry(AclTag::OwningGroup, 5), entry(AclTag::Other, 5)];
        let with = |more: &[AclEntry]| Acl::new([&base[..], more].concat());
        assert!(with(&[]).is_some());
        assert!(with(&[entry(AclTag::Mask, 7)]).is_some());
        assert!(with(&[entry(AclTag::User(1), 7)]).is_none(), "no mask");
        assert!(with(&[entry(AclTag::Other, 7)]).is_none(), "twice");
        assert!(with(&[entry(AclTag::Mask, 8)]).is_none(), "permission");
        let users = [entry(AclTag::User(1), 7), entry(AclTag::User(1), 6), entry(AclTag::Mask, 7)];
        assert!(with(&users).is_none(), "an id twice");
        assert!(Acl::new(base[1..].to_vec()).is_none(), "no owner");
    }
}
