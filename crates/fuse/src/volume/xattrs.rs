//! Extended attributes.

use super::{Volume, errno};
use crate::operations::{Answer, Caller, NodeId};
use extant::XattrMode;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

impl Volume {
    pub(super) fn xattr(&self, node: NodeId, name: &OsStr) -> Answer<Vec<u8>> {
        self.node(node)?.xattr(name).map_err(errno)
    }

    /// Names, each ended by NUL; `trusted.` only for root, as everywhere.
    pub(super) fn xattr_names(&self, by: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        let mut all = Vec::new();
        for name in self.node(node)?.xattrs().map_err(errno)? {
            if by.uid != 0 && name.as_bytes().starts_with(b"trusted.") {
                continue;
            }
            all.extend_from_slice(name.as_bytes());
            all.push(0);
        }
        Ok(all)
    }

    pub(super) fn change_xattr(
        &self,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Answer<()> {
        let flags = XattrFlags::from_bits_retain(flags);
        let node = self.node(node)?;
        let mode = match flags {
            flags if flags.is_empty() => XattrMode::Any,
            XattrFlags::CREATE => XattrMode::Create,
            XattrFlags::REPLACE => XattrMode::Replace,
            // Neither can be: Linux says which of the two is the case.
            flags if flags == XattrFlags::CREATE | XattrFlags::REPLACE => match node.xattr(name) {
                Ok(_) => XattrMode::Create,
                Err(_) => XattrMode::Replace,
            },
            _ => return Err(Errno::INVAL),
        };
        node.set_xattr(name, value, mode).map_err(errno)?;
        if kill_sgid {
            let bits = node.metadata().permissions();
            if bits & 0o2000 != 0 {
                let mode = Some(bits & !0o2000);
                node.set_attributes(&extant::SetAttributes { mode, ..Default::default() })
                    .map_err(errno)?;
            }
        }
        self.made(())
    }
}
