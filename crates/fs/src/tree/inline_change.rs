//! Changing inline data: when content may be in the inode, and how its two parts grow and are
//! removed.
//!
//! ```text
//!   inline_begin   no blocks yet: flag set, extents off, "system.data" with no bytes
//!   resize         "system.data" longer or shorter; other attributes in the inode stay
//!   inline_end     flag off, attribute removed, an empty map: the caller has saved the content
//! ```

use crate::inodes::file::FileRef;
use crate::inodes::inline::INLINE_NAME;
use crate::inodes::map::Target;
use crate::state::inode::Body;
use crate::tree::xattr::list::{Attribute, Stored};
use crate::volume::Volume;
use extant_base::narrow::{fits_u32, fits_usize};
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

/// The content that an inode holds itself, to change it.
pub(crate) struct InlineMut<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's content. The caller holds the inode's lock, exclusively.
    pub(crate) body: &'a mut Body,
}

impl Volume {
    /// The inline content of this inode, to change it.
    pub(crate) fn inline_mut<'a>(&'a self, body: &'a mut Body) -> InlineMut<'a> {
        InlineMut { volume: self, body }
    }
}

impl InlineMut<'_> {
    /// The inode's number.
    fn ino(&self) -> Ino {
        self.body.ino()
    }
}

fn is_data(attribute: &Attribute) -> bool {
    attribute.index == NameIndex::SYSTEM && attribute.name == INLINE_NAME
}

impl FileRef<'_> {
    /// The range of the attribute "system.data" in the slot; empty if it has no bytes or does not
    /// exist.
    ///
    /// Errors: those of reading attributes; `InlineData` when the value is elsewhere.
    pub(crate) fn inline_value_range(self) -> Result<Range<usize>> {
        let at = Site::of_ino(self.ino());
        let start = self.body.disk.xattr_area(self.volume.inode_format()).start + INODE_HEADER_LEN;
        let ea_inode = self.volume.has_incompat(Incompat::EA_INODE);
        let area = XattrArea::in_inode(self.body.xattr_tail(self.volume.context()), ea_inode, at)?;
        let Some(entry) = area.and_then(|area| area.find(NameIndex::SYSTEM, INLINE_NAME)) else {
            return Ok(0..0);
        };
        let raw = self.body.raw.get(start + entry.offset..).unwrap_or_default();
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
    pub(crate) fn inline_value_max(self) -> Result<usize> {
        let mut list = self.volume.xattrs(self.body).tail_list()?;
        list.retain(|attribute| !is_data(attribute));
        list.push(data(Vec::new()));
        let needed = in_inode_len(&list.iter().map(Attribute::to_new).collect::<Vec<_>>());
        Ok(self.body.xattr_tail(self.volume.context()).len().saturating_sub(needed) & !3)
    }
}

impl InlineMut<'_> {
    /// Makes "system.data" `len` bytes long. Its content stays, and new bytes are zero. Adds the
    /// attribute if it is missing.
    ///
    /// Errors: `NoSpace` when it does not fit (body unchanged); `Corrupt`.
    pub(crate) fn resize_value(&mut self, len: usize) -> Result<()> {
        let mut list = self.volume.xattrs(self.body).tail_list()?;
        match list.iter_mut().find(|attribute| is_data(attribute)) {
            Some(attribute) => match &mut attribute.value {
                Stored::Here(value) => value.resize(len, 0),
                Stored::InInode { .. } => {
                    return Err(Site::of_ino(self.ino()).corrupt(What::InlineData));
                }
            },
            // In front, so that every search finds it first.
            None => list.insert(0, data(vec![0; len])),
        }
        self.volume.xattrs_mut(self.body).store_tail(&list)
    }

    /// Turns on inline data for an inode without blocks. `false`, and no change, if the volume or
    /// the inode does not allow it.
    ///
    /// The caller sets content and size. Errors: `Corrupt`.
    pub(crate) fn begin(&mut self) -> Result<bool> {
        if !self.volume.has_incompat(Incompat::INLINE_DATA)
            || self.body.disk.flags.contains(InodeFlags::ENCRYPT)
            || self.body.disk.size != 0
        {
            return Ok(false);
        }
        match self.resize_value(0) {
            Ok(()) => {}
            Err(Error::NoSpace) => return Ok(false),
            Err(error) => return Err(error),
        }
        self.body.disk.flags.remove(InodeFlags::EXTENTS);
        self.body.disk.flags |= InodeFlags::INLINE_DATA;
        self.body.disk.i_block = [0; I_BLOCK_SIZE];
        Ok(true)
    }

    /// Turns off inline data: the inode then has an empty map and size 0. Its content is lost.
    ///
    /// Errors: `Corrupt`.
    pub(crate) fn end(&mut self) -> Result<()> {
        let mut list = self.volume.xattrs(self.body).tail_list()?;
        list.retain(|attribute| !is_data(attribute));
        self.volume.xattrs_mut(self.body).store_tail(&list)?;
        self.body.disk.flags.remove(InodeFlags::INLINE_DATA);
        self.volume.inodes().init_map(&mut self.body.disk);
        self.body.disk.size = 0;
        Ok(())
    }

    /// Stores the whole content of a new file in its inode. `false`, and no change, when it does
    /// not fit or the volume has no inline data.
    ///
    /// The file has no blocks yet. The caller stores the inode. Attributes set before stay, so the
    /// capacity is the space that they leave; those set later come after it. Errors: `Corrupt`.
    pub(crate) fn write(&mut self, content: &[u8]) -> Result<bool> {
        let capacity = I_BLOCK_SIZE + self.volume.file(self.body).inline_value_max()?;
        if content.len() > capacity || !self.begin()? {
            return Ok(false);
        }
        let (head, tail) = content.split_at(content.len().min(I_BLOCK_SIZE));
        self.resize_value(tail.len())?;
        self.body.disk.i_block[..head.len()].copy_from_slice(head);
        let range = self.volume.file(self.body).inline_value_range()?;
        self.body.raw[range].copy_from_slice(tail);
        self.body.disk.size = content.len() as u64;
        Ok(true)
    }

    /// Writes bytes into inline content from byte `from` on. The capacity is large enough.
    pub(crate) fn put(&mut self, from: usize, bytes: &[u8]) -> Result<()> {
        let range = self.volume.file(self.body).inline_value_range()?;
        let Body { disk, raw, .. } = self.body;
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
    pub(crate) fn truncate(&mut self, from: u64) -> Result<()> {
        let range = self.volume.file(self.body).inline_value_range()?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let Body { disk, raw, .. } = self.body;
        disk.i_block[from.min(I_BLOCK_SIZE)..].fill(0);
        let value = &mut raw[range];
        let skip = from.saturating_sub(I_BLOCK_SIZE).min(value.len());
        value[skip..].fill(0);
        Ok(())
    }

    /// Moves the content of an inline file into blocks.
    ///
    /// The caller stores the inode. Errors: `NoSpace`, `Device` (body unchanged); `Corrupt`.
    pub(crate) fn move_to_blocks(&mut self, handle: &Handle<'_>) -> Result<()> {
        let (len, capacity) = {
            let parts = self.volume.file(self.body).inline_parts()?;
            (self.body.disk.size, parts.capacity() as u64)
        };
        let size = self.volume.block_size();
        let blocks = fits_u32(size.blocks_for(len.min(capacity))); // at most an inode's worth
        let mut content = vec![0; blocks as usize * size.bytes()];
        let kept = fits_usize(len.min(capacity));
        self.volume.file(self.body).inline_parts()?.read(0, &mut content[..kept]);
        let saved = self.body.clone();
        let flagged = &saved;
        self.end()?;
        let has_checksums = self.volume.file(self.body).has_data_checksums();
        let filled = self.volume.file_mut(self.body).fill(
            handle,
            0..blocks,
            ExtentState::Written,
            &mut |run| {
                let Target::Written(first) = run.target else { return Ok(()) };
                let LogicalBlock(at) = run.logical;
                let part = at as usize * size.bytes()..(at + run.len) as usize * size.bytes();
                let path = self.volume.file(flagged).data_path(handle);
                let content = &content[part];
                if has_checksums {
                    let checksums: Vec<u32> =
                        content.chunks(size.bytes()).map(data_sums::sum_of).collect();
                    self.volume.data_checksums().store_checksums(handle, first, &checksums)?;
                }
                self.volume.data_io().write_data(path, first, 0, &[IoSlice::new(content)])
            },
        );
        if let Err(error) = filled {
            self.volume.file_mut(self.body).unmap(handle, 0..crate::inodes::map::LOGICAL_END)?;
            *self.body = saved;
            return Err(error);
        }
        self.body.disk.size = len;
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
