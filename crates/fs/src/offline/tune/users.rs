//! The volumes that use an external journal.
//!
//! ```text
//!   old ─► old, new ─► the volume's UUID changes ─► new        listed at every moment
//! ```

use crate::open::exclusive::Devices;
use crate::volume::{Volume, VolumeOptions};
use extant_base::narrow::len_u32;
use extant_base::{ByteOffset, Error, Result, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::jbd2::superblock::{JournalSuperblock, USERS_MAX};
use std::sync::Arc;

/// The journal's superblock on its own device.
pub(super) struct Users {
    device: Arc<dyn BlockDevice>,
    at: ByteOffset,
    block: Vec<u8>,
    superblock: JournalSuperblock,
}

impl Users {
    /// The users of the volume's journal; `None` if the journal is internal, or there is none.
    ///
    /// Errors: `JournalElsewhere` without the journal's device; `Corrupt`, `Device`.
    pub(super) fn of(devices: &Devices) -> Result<Option<Users>> {
        let volume = Volume::open_parts(devices.volume.clone(), &VolumeOptions::default())?;
        if volume.at_open().journal_inum != 0 {
            return Ok(None);
        }
        let Some(place) = volume.journal_file().place(devices.journal.as_ref())? else {
            return Ok(None);
        };
        let (at, _) = place.map.locate(0).ok_or(Error::NotFound)?;
        let size = volume.block_size();
        let mut block = vec![0; size.bytes()];
        place.device.read_at(at, &mut block)?;
        let site = Site::of_block(size.block_at(at));
        let superblock = JournalSuperblock::read(&block, size, place.map.blocks().into(), site)?;
        if superblock.is_v1 {
            return Err(Error::NotSupported("the journal device is too old to name its volumes"));
        }
        Ok(Some(Users { device: place.device, at, block, superblock }))
    }

    /// Adds a volume, durably. Errors: `NotSupported` if the list is full.
    pub(super) fn add(&mut self, uuid: [u8; 16]) -> Result<()> {
        let mut all: Vec<[u8; 16]> = JournalSuperblock::users(&self.block).collect();
        if all.contains(&uuid) {
            return Ok(());
        }
        if all.len() == USERS_MAX as usize {
            return Err(Error::NotSupported("the journal device names 48 volumes already"));
        }
        all.push(uuid);
        self.put(&all)
    }

    /// Removes a volume, durably.
    pub(super) fn remove(&mut self, uuid: [u8; 16]) -> Result<()> {
        let all: Vec<[u8; 16]> = JournalSuperblock::users(&self.block).collect();
        let left: Vec<[u8; 16]> = all.iter().copied().filter(|user| *user != uuid).collect();
        if left.len() == all.len() { Ok(()) } else { self.put(&left) }
    }

    fn put(&mut self, users: &[[u8; 16]]) -> Result<()> {
        for slot in 0..USERS_MAX as usize {
            let uuid = users.get(slot).copied().unwrap_or_default();
            JournalSuperblock::put_user(&mut self.block, slot, uuid);
        }
        self.superblock.nr_users = len_u32(users.len());
        self.superblock.write(&mut self.block);
        self.device.write_fua(self.at, &self.block)
    }
}
