//! Writing inodes into their tables.

use crate::inodes::lookup::Slot;
use crate::state::inode::Body;
use crate::state::inode::orphans::OrphanPlace;
use crate::state::quota::Holding;
use crate::volume::Volume;
use extant_base::Result;
use extant_journal::Handle;

impl Body {
    /// Writes the inode into its table block under `handle`, checksum included, and the change of
    /// its usage into the quota files.
    ///
    /// Spends one credit and
    /// [`QuotaAccounting::credits`](crate::tree::usage::QuotaAccounting::credits). Errors:
    /// `Device`, `Aborted`; `FileTooLarge` when the sectors do not fit. Locks: the caller holds the
    /// inode's; takes `Leaf`, then `Quota`.
    pub(crate) fn store(&mut self, volume: &Volume, handle: &Handle<'_>) -> Result<()> {
        self.store_in(volume, handle, &volume.inodes().slot(self.ino())?)
    }

    /// As [`Body::store`], into the slot from [`Inodes::slot`](crate::inodes::Inodes::slot).
    pub(crate) fn store_in(
        &mut self,
        volume: &Volume,
        handle: &Handle<'_>,
        slot: &Slot,
    ) -> Result<()> {
        let ino = self.ino();
        let block = slot.0.write(handle)?;
        // An inode on the orphan list takes its successor from the list, which other threads may
        // change.
        let list = (self.orphan == OrphanPlace::List).then(|| volume.orphans().list());
        if let Some(list) = &list {
            self.disk.dtime = list.after(ino);
        }
        let size = self.disk.size;
        self.disk.size = self.size_on_disk.unwrap_or(size);
        let written = self.disk.write(&mut self.raw, ino, volume.inode_format());
        self.disk.size = size;
        written?;
        self.times_changed = false;
        let held = {
            let mut bytes = block.bytes_mut();
            let slot = &mut bytes[slot.1.clone()];
            let held = match volume.quota() {
                Some(_) => Holding::of_slot(slot, ino, volume.inode_format()),
                None => None,
            };
            self.synced.note(handle.commit_point(), slot, &self.raw);
            volume.notes().note_stored(handle, self, slot, &self.raw);
            slot.copy_from_slice(&self.raw);
            held
        };
        drop(list);
        volume.quota_accounting().stored(handle, self, held)
    }
}
