//! Extended attributes.
//!
//! ```text
//!   system.posix_acl_access, _default  2 u32 │ tag u16, permissions u16, id u32 │ …  little-endian
//! ```
//!
//! Users and groups in access lists are mapped like owners. Source: acl(5); the layout is that of
//! the system calls.

use super::context::Context;
use super::{VolumeOptions, errno};
use crate::operations::{Answer, Caller, NodeId};
use extant::XattrMode;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Tags of entries that name a user or a group.
const USER: u16 = 2;
const GROUP: u16 = 8;

/// Requests about extended attributes.
pub(super) struct Xattrs<'a>(pub(super) &'a Context);

impl Xattrs<'_> {
    pub(super) fn get(&self, node: NodeId, name: &OsStr) -> Answer<Vec<u8>> {
        let mut value = self.0.node(node)?.xattr(name).map_err(errno)?;
        let VolumeOptions { users, groups, .. } = self.0.options();
        if is_access_list(name) {
            map_named(&mut value, |id| users.shown(id), |id| groups.shown(id));
        }
        Ok(value)
    }

    /// Names, each terminated by a NUL. As everywhere on Linux, only root sees `trusted.`.
    pub(super) fn names(&self, by: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        let mut all = Vec::new();
        for name in self.0.node(node)?.xattrs().map_err(errno)? {
            if by.uid != 0 && name.as_bytes().starts_with(b"trusted.") {
                continue;
            }
            all.extend_from_slice(name.as_bytes());
            all.push(0);
        }
        Ok(all)
    }

    pub(super) fn set(
        &self,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Answer<()> {
        let flags = XattrFlags::from_bits_retain(flags);
        let node = self.0.node(node)?;
        let mode = match flags {
            flags if flags.is_empty() => XattrMode::Any,
            XattrFlags::CREATE => XattrMode::Create,
            XattrFlags::REPLACE => XattrMode::Replace,
            // CREATE and REPLACE together always fail. As on Linux, the error depends on whether
            // the attribute exists.
            flags if flags == XattrFlags::CREATE | XattrFlags::REPLACE => match node.xattr(name) {
                Ok(_) => XattrMode::Create,
                Err(_) => XattrMode::Replace,
            },
            _ => return Err(Errno::INVAL),
        };
        let mut value = Cow::Borrowed(value);
        let VolumeOptions { users, groups, .. } = self.0.options();
        if is_access_list(name) {
            map_named(value.to_mut(), |id| users.stored(id), |id| groups.stored(id));
        }
        node.set_xattr(name, &value, mode).map_err(errno)?;
        if kill_sgid {
            let bits = node.metadata().permissions();
            if bits & 0o2000 != 0 {
                let mode = Some(bits & !0o2000);
                node.set_attributes(&extant::SetAttributes { mode, ..Default::default() })
                    .map_err(errno)?;
            }
        }
        self.0.made(())
    }
}

fn is_access_list(name: &OsStr) -> bool {
    name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

/// Replaces the ids in an access list and sorts its entries by id. A value that is not an access
/// list stays unchanged; its reader refuses it.
fn map_named(value: &mut [u8], user: impl Fn(u32) -> u32, group: impl Fn(u32) -> u32) {
    const VERSION: [u8; 4] = [2, 0, 0, 0];
    let Some(entries) = value.strip_prefix(&VERSION) else { return };
    let entry = |bytes: &[u8; 8]| {
        let [tag, tag_high, low, high, id @ ..] = *bytes;
        let (tag, id) = (u16::from_le_bytes([tag, tag_high]), u32::from_le_bytes(id));
        let id = match tag {
            USER => user(id),
            GROUP => group(id),
            _ => id,
        };
        (tag, id, [low, high])
    };
    let (entries, rest) = entries.as_chunks::<8>();
    if !rest.is_empty() {
        return;
    }
    let mut entries: Vec<_> = entries.iter().map(entry).collect();
    entries.sort();
    let bytes = entries.iter().flat_map(|(tag, id, permissions)| {
        tag.to_le_bytes().into_iter().chain(*permissions).chain(id.to_le_bytes())
    });
    for (place, byte) in value[VERSION.len()..].iter_mut().zip(bytes) {
        *place = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entry = |&(tag, permissions, id): &(u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        [vec![2, 0, 0, 0], entries.iter().flat_map(entry).collect()].concat()
    }

    #[test]
    fn named_users_and_groups_are_mapped_and_in_order() {
        const NONE: u32 = u32::MAX;
        let mut value = list(&[
            (1, 6, NONE),
            (2, 4, 0),
            (2, 5, 7),
            (4, 1, NONE),
            (8, 2, 7),
            (16, 7, NONE),
            (32, 0, NONE),
        ]);
        let user = |id| if id == 0 { 1000 } else { id };
        map_named(&mut value, user, |id| id + 1);
        let mapped = [
            (1, 6, NONE),
            (2, 5, 7),
            (2, 4, 1000),
            (4, 1, NONE),
            (8, 2, 8),
            (16, 7, NONE),
            (32, 0, NONE),
        ];
        assert_eq!(value, list(&mapped));
    }

    #[test]
    fn what_is_no_list_stays() {
        let whole = list(&[(2, 4, 0), (8, 4, 0)]);
        let wrong_version = [&[1][..], &whole[1..]].concat();
        for value in [&b""[..], b"\x02\0\0", &whole[..whole.len() - 1], &wrong_version] {
            let mut mapped = value.to_vec();
            map_named(&mut mapped, |_| 1000, |_| 1000);
            assert_eq!(mapped, value);
        }
    }
}
