//! Changing inline data: when content may be in the inode, and how its two parts grow and are
//! removed.
//!
//! ```text
//!   inline_begin   no blocks yet: flag set, extents off, "system.data" with no bytes
//!   resize         "system.data" longer or shorter; other attributes in the inode stay
//!   inline_end     flag off, attribute removed, an empty map: the caller has saved the content
//! ```

use crate::inodes::inline::INLINE_NAME;
use crate::inodes::map::Target;
use crate::state::inode::Body;
use crate::tree::xattr::list::{Attribute, Stored};
use crate::volume::Volume;
use extant_base::{Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::Handle;
use extant_ondisk::data_sums;
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{I_BLOCK_SIZE, InodeFlags};
use extant_ondisk::xattr::{INODE_HEADER_LEN, NameIndex, RawXattrEntry, XattrArea, in_inode_len};
use std::io::IoSlice;
use std::ops::Range;
use zerocopy::FromBytes;

fn is_data(attribute: &Attribute) -> bool {
    attribute.index == NameIndex::SYSTEM && attribute.name == INLINE_NAME
}

impl Volume {
    /// The range of the attribute "system.data" in the slot; empty if it has no bytes or does not
    /// exist.
    ///
    /// Errors: those of reading attributes; `InlineData` when the value is elsewhere.
    pub(crate) fn inline_value_range(&self, ino: Ino, body: &Body) -> Result<Range<usize>> {
        let at = Site::of_ino(ino);
        let start = body.disk.xattr_area(self.inode_format()).start + INODE_HEADER_LEN;
        let ea_inode = self.has_incompat(Incompat::EA_INODE);
        let area = XattrArea::in_inode(body.xattr_tail(self.context()), ea_inode, at)?;
        let Some(entry) = area.and_then(|area| area.find(NameIndex::SYSTEM, INLINE_NAME)) else {
            return Ok(0..0);
        };
        let raw = body.raw.get(start + entry.offset..).unwrap_or_default();
        let (raw, _) =
            RawXattrEntry::ref_from_prefix(raw).map_err(|_| at.corrupt(What::InlineData))?;
        if raw.e_value_inum.get() != 0 {
            return Err(at.corrupt(What::InlineData));
        }
        let from = start + usize::from(raw.e_value_offs.get());
        let len = raw.e_value_size.get() as usize; // inside the tail: the area was checked
        Ok(if len == 0 { 0..0 } else { from..from + len })
    }

    /// The most bytes that "system.data" can have beside the other attributes in the inode.
    pub(crate) fn inline_value_max(&self, ino: Ino, body: &Body) -> Result<usize> {
        let mut list = self.xattr_tail_list(ino, body)?;
        list.retain(|attribute| !is_data(attribute));
        list.push(data(Vec::new()));
        let needed = in_inode_len(&list.iter().map(Attribute::to_new).collect::<Vec<_>>());
        Ok(body.xattr_tail(self.context()).len().saturating_sub(needed) & !3)
    }

    /// Makes "system.data" `len` bytes long. Its content stays, and new bytes are zero. Adds the
    /// attribute if it is missing.
    ///
    /// Errors: `NoSpace` when it does not fit (body unchanged); `Corrupt`.
    pub(crate) fn inline_value_resize(&self, ino: Ino, body: &mut Body, len: usize) -> Result<()> {
        let mut list = self.xattr_tail_list(ino, body)?;
        match list.iter_mut().find(|attribute| is_data(attribute)) {
            Some(attribute) => match &mut attribute.value {
                Stored::Here(value) => value.resize(len, 0),
                Stored::InInode { .. } => return Err(Site::of_ino(ino).corrupt(What::InlineData)),
            },
            // In front, so that every search finds it first.
            None => list.insert(0, data(vec![0; len])),
        }
        self.xattr_store_tail(body, &list)
    }

    /// Turns on inline data for an inode without blocks. `false`, and no change, if the volume or
    /// the inode does not allow it.
    ///
    /// The caller sets content and size. Errors: `Corrupt`.
    pub(crate) fn inline_begin(&self, ino: Ino, body: &mut Body) -> Result<bool> {
        if !self.has_incompat(Incompat::INLINE_DATA)
            || body.disk.flags.contains(InodeFlags::ENCRYPT)
            || body.disk.size != 0
        {
            return Ok(false);
        }
        match self.inline_value_resize(ino, body, 0) {
            Ok(()) => {}
            Err(Error::NoSpace) => return Ok(false),
            Err(error) => return Err(error),
        }
        body.disk.flags.remove(InodeFlags::EXTENTS);
        body.disk.flags |= InodeFlags::INLINE_DATA;
        body.disk.i_block = [0; I_BLOCK_SIZE];
        Ok(true)
    }

    /// Turns off inline data: the inode then has an empty map and size 0. Its content is lost.
    ///
    /// Errors: `Corrupt`.
    pub(crate) fn inline_end(&self, ino: Ino, body: &mut Body) -> Result<()> {
        let mut list = self.xattr_tail_list(ino, body)?;
        list.retain(|attribute| !is_data(attribute));
        self.xattr_store_tail(body, &list)?;
        body.disk.flags.remove(InodeFlags::INLINE_DATA);
        self.init_map(&mut body.disk);
        body.disk.size = 0;
        Ok(())
    }

    /// Stores the whole content of a new file in its inode. `false`, and no change, when it does
    /// not fit or the volume has no inline data.
    ///
    /// The file has no blocks yet. The caller stores the inode. Attributes set before stay, so the
    /// capacity is the space that they leave; those set later come after it. Errors: `Corrupt`.
    pub(crate) fn inline_write(&self, ino: Ino, body: &mut Body, content: &[u8]) -> Result<bool> {
        let capacity = I_BLOCK_SIZE + self.inline_value_max(ino, body)?;
        if content.len() > capacity || !self.inline_begin(ino, body)? {
            return Ok(false);
        }
        let (head, tail) = content.split_at(content.len().min(I_BLOCK_SIZE));
        self.inline_value_resize(ino, body, tail.len())?;
        body.disk.i_block[..head.len()].copy_from_slice(head);
        let range = self.inline_value_range(ino, body)?;
        body.raw[range].copy_from_slice(tail);
        body.disk.size = content.len() as u64;
        Ok(true)
    }

    /// Writes bytes into inline content from byte `from` on. The capacity is large enough.
    pub(crate) fn inline_put(
        &self,
        ino: Ino,
        body: &mut Body,
        from: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let range = self.inline_value_range(ino, body)?;
        let Body { disk, raw, .. } = body;
        let in_head = I_BLOCK_SIZE.saturating_sub(from).min(bytes.len());
        let (head, tail) = bytes.split_at(in_head);
        if !head.is_empty() {
            disk.i_block[from..from + head.len()].copy_from_slice(head);
        }
        if !tail.is_empty() {
            let skip = from.saturating_sub(I_BLOCK_SIZE);
            raw[range][skip..skip + tail.len()].copy_from_slice(tail);
        }
        Ok(())
    }

    /// Zeroes inline content from byte `from` on. The caller sets the size.
    pub(crate) fn inline_truncate(&self, ino: Ino, body: &mut Body, from: u64) -> Result<()> {
        let range = self.inline_value_range(ino, body)?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let Body { disk, raw, .. } = body;
        disk.i_block[from.min(I_BLOCK_SIZE)..].fill(0);
        let value = &mut raw[range];
        let skip = from.saturating_sub(I_BLOCK_SIZE).min(value.len());
        value[skip..].fill(0);
        Ok(())
    }

    /// Moves the content of an inline file into blocks.
    ///
    /// The caller stores the inode. Errors: `NoSpace`, `Device` (body unchanged); `Corrupt`.
    pub(crate) fn inline_to_blocks(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        body: &mut Body,
    ) -> Result<()> {
        let (len, capacity) = {
            let parts = self.inline_parts(ino, body)?;
            (body.disk.size, parts.capacity() as u64)
        };
        let size = self.block_size();
        let blocks = size.blocks_for(len.min(capacity)) as u32; // at most an inode's worth
        let mut content = vec![0; blocks as usize * size.bytes()];
        let kept = len.min(capacity) as usize;
        self.inline_parts(ino, body)?.read(0, &mut content[..kept]);
        let saved = body.clone();
        let flagged = &saved;
        self.inline_end(ino, body)?;
        let has_checksums = self.has_data_checksums(ino, body);
        let filled = self.fill(ino, body, handle, 0..blocks, ExtentState::Written, &mut |run| {
            let Target::Written(first) = run.target else { return Ok(()) };
            let LogicalBlock(at) = run.logical;
            let part = at as usize * size.bytes()..(at + run.len) as usize * size.bytes();
            let path = self.data_path(flagged, handle);
            let content = &content[part];
            if has_checksums {
                let checksums: Vec<u32> =
                    content.chunks(size.bytes()).map(data_sums::sum_of).collect();
                self.store_checksums(handle, first, &checksums)?;
            }
            self.write_data(path, first, 0, &[IoSlice::new(content)])
        });
        if let Err(error) = filled {
            self.unmap(ino, body, handle, 0..crate::inodes::map::LOGICAL_END)?;
            *body = saved;
            return Err(error);
        }
        body.disk.size = len;
        Ok(())
    }
}

fn data(value: Vec<u8>) -> Attribute {
    Attribute {
        index: NameIndex::SYSTEM,
        name: INLINE_NAME.to_vec(),
        value: Stored::Here(value),
        fresh: true,
    }
}
