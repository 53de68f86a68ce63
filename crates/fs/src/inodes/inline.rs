//! Inline data: content that is stored in the inode itself.
//!
//! ```text
//!   i_block (60 bytes)          attribute "system.data" in the inode's tail
//!   ┌──────────────────────┐    ┌────────────────────────┐
//!   │ bytes 0..60          │    │ bytes 60..size         │
//!   └──────────────────────┘    └────────────────────────┘
//! ```
//!
//! A regular file may have a larger size than its content (mke2fs stores a file that is all hole
//! so); zeros follow. The attribute exists as long as the flag is set, even with no bytes: without
//! it, the content after the first 60 bytes would be lost. It never leaves the inode. Source: ext4
//! documentation, "Inline Data".

use crate::inodes::file::FileRef;
use extant_base::{Result, Site, What};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::xattr::{NameIndex, ValueRef, XattrArea};

/// The stored name of the attribute that continues inline content, without its prefix `system.`.
pub(crate) const INLINE_NAME: &[u8] = b"data";

/// The two places of inline content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineParts<'a> {
    /// The first bytes.
    pub(crate) head: &'a [u8; I_BLOCK_SIZE],
    /// The bytes after them; may be empty.
    pub(crate) tail: &'a [u8],
}

impl InlineParts<'_> {
    /// The bytes of both parts together.
    pub(crate) fn capacity(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Copies from byte `offset` on into `buf`. Bytes past the capacity read as zeros.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) {
        buf.fill(0);
        let mut done = 0;
        for (start, part) in [(0, &self.head[..]), (I_BLOCK_SIZE as u64, self.tail)] {
            let skip = (offset + done as u64).checked_sub(start);
            let from = skip.and_then(|skip| part.get(usize::try_from(skip).ok()?..));
            if let Some(from) = from {
                let len = from.len().min(buf.len() - done);
                buf[done..done + len].copy_from_slice(&from[..len]);
                done += len;
            }
        }
    }
}

impl<'a> FileRef<'a> {
    /// The two parts of the content of an inode with INLINE_DATA.
    ///
    /// Errors: `InlineData` when the attribute is missing or in a value inode, or when the size of
    /// anything but a regular file exceeds the capacity; those of reading attributes.
    pub(crate) fn inline_parts(self) -> Result<InlineParts<'a>> {
        let at = Site::of_ino(self.ino());
        let ea_inode = self.volume.has_incompat(Incompat::EA_INODE);
        let area = XattrArea::in_inode(self.body.xattr_tail(self.volume.context()), ea_inode, at)?;
        let tail = match area.and_then(|area| area.find(NameIndex::SYSTEM, INLINE_NAME)) {
            Some(entry) => match entry.value {
                ValueRef::Here(value) => value,
                ValueRef::InInode { .. } => return Err(at.corrupt(What::InlineData)),
            },
            None => return Err(at.corrupt(What::InlineData)),
        };
        let parts = InlineParts { head: &self.body.disk.i_block, tail };
        if self.body.disk.size > parts.capacity() as u64 && !self.body.disk.is_file() {
            return Err(at.offset(4).corrupt(What::InlineData));
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_crosses_from_the_block_map_into_the_attribute() {
        let head: [u8; I_BLOCK_SIZE] = std::array::from_fn(|n| n as u8);
        let tail: Vec<u8> = (60..100).collect();
        let parts = InlineParts { head: &head, tail: &tail };
        for (offset, len) in
            [(0, 0), (0, 60), (0, 100), (59, 2), (60, 40), (75, 3), (100, 0), (90, 30), (300, 5)]
        {
            let mut buf = vec![0xFF; len];
            parts.read(offset as u64, &mut buf);
            let byte = |n: usize| if n < 100 { n as u8 } else { 0 };
            let expected: Vec<u8> = (offset..offset + len).map(byte).collect();
            assert_eq!(buf, expected);
        }
    }
}
