//! Bytes that nothing uses: any copy of them is right.

use super::composite::Piece;
use super::roles::Role;
use crate::volume::{Volume, VolumeOptions};
use extant_base::{BlockNr, ByteOffset, Ino};
use extant_blockdev::BlockDevice;
use extant_ondisk::bitmap;
use std::ops::Range;
use std::sync::Arc;

/// What a volume without errors uses.
pub(super) struct Idle {
    volume: Volume,
    /// The blocks after the superblock of an empty log.
    log: Vec<Range<u64>>,
    /// Blocks of bitmaps that are uninitialized and therefore not read.
    unread: Vec<u64>,
}

impl Idle {
    /// `None` if the volume cannot be read.
    pub(super) fn of(device: Arc<dyn BlockDevice>) -> Option<Idle> {
        let volume = Volume::open_parts(device, &VolumeOptions::default()).ok()?;
        let mut log = Vec::new();
        if !volume.at_open().needs_recovery() && volume.at_open().journal_inum != 0 {
            let place = volume.journal_file().place(None).ok()??;
            for run in place.map.runs() {
                let first = volume.block_size().block_at(run.at).0;
                let end = first + u64::from(run.count);
                log.push(first + u64::from(run.first == 0)..end);
            }
        }
        let mut unread = Vec::new();
        for nr in volume.geometry().groups() {
            let desc = volume.space().descriptor(nr).ok()?;
            if desc.block_uninit(volume.checksums()) {
                unread.push(desc.block_bitmap.0);
            }
            if desc.inode_uninit(volume.checksums()) {
                unread.push(desc.inode_bitmap.0);
            }
        }
        unread.sort_unstable();
        Some(Idle { volume, log, unread })
    }

    /// Whether nothing uses the bytes of `piece`.
    pub(super) fn holds(&self, piece: &Piece) -> bool {
        let block = self.volume.block_size().block_at(ByteOffset(piece.range.start));
        match piece.role {
            Role::Idle => true,
            Role::Inode(ino) => self.is_free_slot(ino).unwrap_or(false),
            Role::Descriptor(_) | Role::Superblock(_) | Role::Checksums(_) => false,
            Role::Other => {
                self.unread.binary_search(&block.0).is_ok()
                    || self.log.iter().any(|range| range.contains(&block.0))
                    || self.is_free_block(block).unwrap_or(false)
            }
        }
    }

    fn is_free_slot(&self, ino: Ino) -> Option<bool> {
        let place = self.volume.geometry().inode_place(ino)?;
        let map = self.volume.space().inode_bitmap(place.group).ok()?;
        Some(map.with(|bytes| !bitmap::test(bytes, place.slot)))
    }

    fn is_free_block(&self, block: BlockNr) -> Option<bool> {
        let (group, bit) = self.volume.geometry().bit_of_block(block)?;
        let map = self.volume.space().block_bitmap(group).ok()?;
        Some(map.with(|bytes| !bitmap::test(bytes, bit)))
    }
}
