//! Inline data: content that lives in the inode itself.
//!
//! ```text
//!   i_block (60 bytes)          attribute "system.data" in the inode's tail
//!   ┌──────────────────────┐    ┌────────────────────────┐
//!   │ bytes 0..60          │    │ bytes 60..size         │     size never passes both together
//!   └──────────────────────┘    └────────────────────────┘
//! ```
//!
//! The attribute exists as long as the flag is set, perhaps with no bytes. It never leaves the
//! inode. Source: ext4 documentation, "Inline Data".

use crate::inode::Body;
use crate::volume::Volume;
use extant_base::{Ino, Result, Site, What};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::xattr::{NameIndex, ValueRef, XattrArea};

/// The stored name of the attribute that continues inline content, behind `system.`.
pub(crate) const INLINE_NAME: &[u8] = b"data";

/// The two places of inline content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineParts<'a> {
    /// The first bytes.
    pub(crate) head: &'a [u8; I_BLOCK_SIZE],
    /// The bytes behind them; may be empty.
    pub(crate) tail: &'a [u8],
}

impl InlineParts<'_> {
    /// How many bytes both hold together.
    pub(crate) fn capacity(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Copies from byte `offset` on into `buf`, which must not reach past the capacity.
    pub(crate) fn read(&self, offset: usize, buf: &mut [u8]) {
        let split = I_BLOCK_SIZE.saturating_sub(offset).min(buf.len());
        let (front, back) = buf.split_at_mut(split);
        if !front.is_empty() {
            front.copy_from_slice(&self.head[offset..offset + front.len()]);
        }
        let skip = offset.saturating_sub(I_BLOCK_SIZE);
        back.copy_from_slice(&self.tail[skip..skip + back.len()]);
    }
}

impl Volume {
    /// Where the content of an inode with INLINE_DATA lies.
    ///
    /// Errors: `InlineData` when the size passes what is there or the attribute is misplaced;
    /// what reading attributes gives.
    pub(crate) fn inline_parts<'a>(&self, ino: Ino, body: &'a Body) -> Result<InlineParts<'a>> {
        let at = Site::of_ino(ino);
        let ea_inode = self.has_incompat(Incompat::EA_INODE);
        let area = XattrArea::in_inode(body.xattr_tail(self), ea_inode, at)?;
        let tail = match area.and_then(|area| area.find(NameIndex::SYSTEM, INLINE_NAME)) {
            Some(entry) => match entry.value {
                ValueRef::Here(value) => value,
                ValueRef::InInode { .. } => return Err(at.corrupt(What::InlineData)),
            },
            None => &[],
        };
        let parts = InlineParts { head: &body.disk.i_block, tail };
        if body.disk.size > parts.capacity() as u64 {
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
        for (offset, len) in [(0, 0), (0, 60), (0, 100), (59, 2), (60, 40), (75, 3), (100, 0)] {
            let mut buf = vec![0xFF; len];
            parts.read(offset, &mut buf);
            let expected: Vec<u8> = (offset..offset + len).map(|n| n as u8).collect();
            assert_eq!(buf, expected);
        }
    }
}
