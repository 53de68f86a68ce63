//! Finding all references to inodes that get other numbers, in one walk over the volume.
//!
//! ```text
//!   directory block   inode │ len │ name        "." and ".." included
//!   inline directory  parent, entries
//!   attribute entry   value inode               in the inode, or in its block
//! ```
//!
//! All directory blocks are walked as rows of entries: an index node looks like one unused entry.

use super::shrink::Shrink;
use crate::state::inode::Body;
use extant_base::{BlockNr, GroupNr, Ino, Result, Site, What};
use extant_ondisk::dirent::rec_len_decode;
use extant_ondisk::features::Incompat;
use extant_ondisk::inline_dir::PARENT_LEN;
use extant_ondisk::xattr::{BLOCK_HEADER_LEN, ENTRY_LEN, INODE_HEADER_LEN, MAGIC};
use std::collections::HashMap;
use std::ops::Range;

/// One place that contains an inode number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reference {
    /// In a block of directory `dir`, at this byte.
    DirBlock { dir: Ino, block: BlockNr, offset: usize },
    /// In the slot of inode `holder`, at this byte: an inline directory or an attribute.
    Slot { holder: Ino, offset: usize },
    /// In an attribute block, at this byte.
    AttributeBlock { block: BlockNr, offset: usize },
}

/// All references to each of the inodes whose numbers are removed.
pub(super) type References = HashMap<Ino, Vec<Reference>>;

/// Byte offset of `i_block` in a slot.
const I_BLOCK_AT: usize = 0x28;

impl Shrink<'_> {
    /// Finds every reference to an inode whose number is removed.
    ///
    /// Errors: `Corrupt`, `Device`.
    pub(super) fn references(&self) -> Result<References> {
        let mut found = References::new();
        let mut attribute_blocks = Vec::new();
        for nr in self.volume.geometry().groups() {
            for ino in self.inodes_of(nr)? {
                let Some(body) = self.body(ino)? else { continue };
                self.references_of(&body, &mut found)?;
                if self.volume.has_incompat(Incompat::EA_INODE) {
                    attribute_blocks.extend(body.disk.file_acl);
                }
            }
        }
        attribute_blocks.sort_unstable();
        attribute_blocks.dedup();
        for block in attribute_blocks {
            let bytes = self.volume.journal().cache().get(block)?.read().to_vec();
            for (offset, ino) in values_in(&bytes, BLOCK_HEADER_LEN..bytes.len()) {
                self.note(&mut found, ino, Reference::AttributeBlock { block, offset });
            }
        }
        Ok(found)
    }

    /// Whether an inode's number is removed.
    pub(super) fn is_removed_number(&self, ino: Ino) -> bool {
        ino.get() > self.new.inodes_count()
    }

    fn note(&self, found: &mut References, number: u32, reference: Reference) {
        if let Some(ino) = Ino::new(number).filter(|ino| self.is_removed_number(*ino)) {
            found.entry(ino).or_default().push(reference);
        }
    }

    fn references_of(&self, body: &Body, found: &mut References) -> Result<()> {
        let ino = body.ino();
        let slot = self.slot_bytes(ino)?;
        let tail = body.disk.xattr_area(self.volume.inode_format());
        let magic = slot.get(tail.clone()).and_then(|tail| tail.first_chunk::<4>());
        let has_attributes = magic.is_some_and(|magic| u32::from_le_bytes(*magic) == MAGIC);
        let entries = tail.start + INODE_HEADER_LEN..tail.end;
        if has_attributes && self.volume.has_incompat(Incompat::EA_INODE) {
            for (offset, number) in values_in(&slot, entries.clone()) {
                self.note(found, number, Reference::Slot { holder: ino, offset });
            }
        }
        if !body.disk.is_dir() {
            return Ok(());
        }
        if body.disk.has_inline_data() {
            let at = Reference::Slot { holder: ino, offset: I_BLOCK_AT };
            self.note(found, word(&slot, I_BLOCK_AT), at);
            let parts = self.volume.file(body).inline_parts()?;
            let head = I_BLOCK_AT + PARENT_LEN..I_BLOCK_AT + parts.head.len();
            let value = find_in(&slot[tail.clone()], parts.tail);
            let value = value.map(|at| tail.start + at..tail.start + at + parts.tail.len());
            for area in std::iter::once(head).chain(value) {
                for (offset, number) in names_in(&slot, area, Site::of_ino(ino))? {
                    self.note(found, number, Reference::Slot { holder: ino, offset });
                }
            }
            return Ok(());
        }
        let dir = self.volume.file(body).dir()?;
        for run in self.volume.file(body).runs(0..dir.blocks) {
            let run = run?;
            let Some(first) = run.target.block() else { continue };
            for n in 0..u64::from(run.len) {
                let block = BlockNr(first.0 + n);
                let bytes = self.volume.journal().cache().get(block)?.read().to_vec();
                let at = Site::of_ino(ino).block(block);
                for (offset, number) in names_in(&bytes, 0..bytes.len(), at)? {
                    self.note(found, number, Reference::DirBlock { dir: ino, block, offset });
                }
            }
        }
        Ok(())
    }

    /// The current bytes of an inode's slot.
    pub(super) fn slot_bytes(&self, ino: Ino) -> Result<Vec<u8>> {
        let (block, place) = self.volume.inodes().slot(ino)?;
        Ok(block.read()[place].to_vec())
    }

    /// Inodes in use whose numbers are removed, lowest first.
    pub(super) fn removed_numbers(&self) -> Result<Vec<Ino>> {
        let mut inodes = Vec::new();
        for nr in (self.new.groups_count()..self.volume.geometry().groups_count()).map(GroupNr) {
            inodes.extend(self.inodes_of(nr)?);
        }
        Ok(inodes)
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

/// The offset in `whole` of `part`, which is a copy of some of its bytes.
fn find_in(whole: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return None;
    }
    (0..=whole.len().checked_sub(part.len())?).find(|at| whole[*at..].starts_with(part))
}

/// The entries of `area` that are in use: (byte offset, inode).
fn names_in(bytes: &[u8], area: Range<usize>, at: Site) -> Result<Vec<(usize, u32)>> {
    let mut names = Vec::new();
    let mut offset = area.start;
    while offset + 8 <= area.end {
        let stored = u16::from_le_bytes([bytes[offset + 4], bytes[offset + 5]]);
        let len = rec_len_decode(stored, area.len());
        if len < 8 || offset + len > area.end {
            return Err(at.offset(offset).corrupt(What::DirentLength));
        }
        names.push((offset, word(bytes, offset)));
        offset += len;
    }
    names.retain(|(_, number)| *number != 0);
    Ok(names)
}

/// The attribute entries of `area` with value inodes: (byte offset of the number, inode).
fn values_in(bytes: &[u8], area: Range<usize>) -> Vec<(usize, u32)> {
    let mut values = Vec::new();
    let mut at = area.start;
    while at + ENTRY_LEN <= area.end && word(bytes, at) != 0 {
        let number = word(bytes, at + 4);
        if number != 0 {
            values.push((at + 4, number));
        }
        at += extant_ondisk::xattr::entry_len(usize::from(bytes[at]));
    }
    values
}
