//! Quota usage after recovery: summed over all inodes, and put into the quota files.
//!
//! ```text
//!   inodes in use ──► id: bytes, inodes ──► entry of the id: usage set, limits kept
//! ```
//!
//! Fast commits say nothing of quota, and orphans are freed past it. A whole scan is right whatever
//! happened, and whoever cut an earlier recovery short.

use crate::inode::{Ask, Body};
use crate::recovery::RecoveryReport;
use crate::volume::Volume;
use crate::xattr::list::Stored;
use extant_base::{Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::{Credits, Handle};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::quota::{QUOTA_BLOCK, QuotaBlock, QuotaEntry, QuotaInfo, QuotaKind, QuotaStore};
use std::collections::BTreeMap;

/// Bytes and inodes by id.
type Sums = BTreeMap<u32, (u64, u64)>;

/// Makes the volume's quota files say what is in use. Damaged ones are noted and left.
///
/// Errors: `NoSpace` when a file must grow and cannot; `Device`.
pub(super) fn recount(volume: &Volume, report: &mut RecoveryReport) -> Result<()> {
    if !volume.has_ro_compat(RoCompat::QUOTA) {
        return Ok(());
    }
    let sums = usage(volume)?;
    let at_open = &volume.at_open;
    let files = [
        (at_open.usr_quota_inum, QuotaKind::User),
        (at_open.grp_quota_inum, QuotaKind::Group),
        (at_open.prj_quota_inum, QuotaKind::Project),
    ];
    for ((number, kind), sums) in files.into_iter().zip(sums) {
        let Some(ino) = Ino::new(number) else { continue };
        match update(volume, ino, kind, sums) {
            Err(error @ Error::Corrupt { .. }) => {
                volume.note_error(&error);
                report.problems.push(error);
            }
            done => done?,
        }
    }
    Ok(())
}

/// What is in use by user, group and project.
fn usage(volume: &Volume) -> Result<[Sums; 3]> {
    let mut sums = [Sums::new(), Sums::new(), Sums::new()];
    for nr in volume.layout.groups() {
        let used: Vec<u32> = match volume.inode_bitmap(nr) {
            Ok(bitmap) => bitmap.with(|bytes| {
                let is_used =
                    |slot: &u32| extant_ondisk::bitmap::count_set(bytes, *slot..*slot + 1) > 0;
                (0..volume.layout.inodes_per_group()).filter(is_used).collect()
            }),
            // Damage that a checker sees to.
            Err(Error::Corrupt { .. }) => continue,
            Err(error) => return Err(error),
        };
        for ino in used.into_iter().filter_map(|slot| volume.layout.ino_of_slot(nr, slot)) {
            if volume.is_hidden(ino) {
                continue;
            }
            let body = match volume.peek_inode(ino, Ask::Internal) {
                Ok(body) => body,
                Err(Error::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            if body.flags.contains(InodeFlags::EA_INODE) {
                continue;
            }
            let values = value_inodes(volume, ino, &body).unwrap_or(0);
            for (sums, id) in sums.iter_mut().zip([body.uid, body.gid, body.projid]) {
                let sum = sums.entry(id).or_default();
                sum.0 = sum.0.saturating_add(body.sectors << 9);
                sum.1 += 1 + values;
            }
        }
    }
    Ok(sums)
}

/// Attribute values of the inode that lie in inodes of their own: they are charged to it.
fn value_inodes(volume: &Volume, ino: Ino, body: &Body) -> Result<u64> {
    if !volume.has_incompat(Incompat::EA_INODE) {
        return Ok(0);
    }
    let all = volume.xattr_tail_list(ino, body)?.into_iter();
    let all = all.chain(volume.xattr_block_list(ino, body)?);
    Ok(all.filter(|attribute| matches!(attribute.value, Stored::InInode { .. })).count() as u64)
}

/// Sets usage in one quota file, where it differs.
fn update(volume: &Volume, ino: Ino, kind: QuotaKind, mut sums: Sums) -> Result<()> {
    let inode = volume.inode_internal(ino)?;
    let mut body = inode.write();
    if !volume.has_map(&body) {
        return Err(Site::of_ino(ino).corrupt(What::QuotaFile));
    }
    let handle = volume.journal.start(Credits::blocks(64))?;
    let blocks = u32::try_from(body.size / QUOTA_BLOCK as u64).unwrap_or(u32::MAX);
    let mut file = QuotaFile { volume, ino, body: &mut body, handle: &handle };
    let mut info = QuotaInfo::check(&file.read(0)?, kind, blocks)?;
    let mut changed = Vec::new();
    info.for_each(&mut file, |entry| {
        let (space, inodes) = sums.remove(&entry.id).unwrap_or_default();
        if (entry.space, entry.inodes) != (space, inodes) {
            changed.push(QuotaEntry { space, inodes, ..entry });
        }
        Ok(())
    })?;
    let new = sums.into_iter().map(|(id, (space, inodes))| QuotaEntry {
        id,
        space,
        inodes,
        ..QuotaEntry::default()
    });
    for entry in changed.into_iter().chain(new) {
        info.put(&mut file, &entry)?;
    }
    handle.stop()
}

/// A quota file on the volume.
struct QuotaFile<'a> {
    volume: &'a Volume,
    ino: Ino,
    body: &'a mut Body,
    handle: &'a Handle<'a>,
}

impl QuotaFile<'_> {
    /// The file's block that holds quota block `block`, and the byte where that starts in it.
    fn place(&self, block: u32) -> Result<(LogicalBlock, usize)> {
        let byte = u64::from(block) * QUOTA_BLOCK as u64;
        let size = self.volume.block_size();
        let logical = u32::try_from(byte >> size.log2());
        let logical = logical.map_err(|_| Error::FileTooLarge)?;
        Ok((LogicalBlock(logical), byte as usize & (size.bytes() - 1)))
    }
}

impl QuotaStore for QuotaFile<'_> {
    fn read(&mut self, block: u32) -> Result<QuotaBlock> {
        let (logical, at) = self.place(block)?;
        let found = self.volume.content_block(self.ino, self.body, logical)?;
        let found = found.ok_or(Site::of_ino(self.ino).corrupt(What::QuotaFile))?;
        let bytes = found.read();
        let bytes = bytes[at..].first_chunk::<QUOTA_BLOCK>();
        Ok(*bytes.expect("a block holds whole quota blocks"))
    }

    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<()> {
        let (logical, at) = self.place(block)?;
        let volume = self.volume;
        let place = match volume.content_block(self.ino, self.body, logical)? {
            Some(place) => place,
            None => {
                let range = logical.0..logical.0.saturating_add(1);
                let mut new = None;
                let state = ExtentState::Written;
                volume.fill(self.ino, self.body, self.handle, range, state, &mut |run| {
                    new = run.target.block();
                    Ok(())
                })?;
                let new = new.ok_or(Site::of_ino(self.ino).corrupt(What::QuotaFile))?;
                volume.journal.cache().get_new(new)?
            }
        };
        place.write(self.handle)?.bytes_mut()[at..at + QUOTA_BLOCK].copy_from_slice(bytes);
        let end = (u64::from(block) + 1) * QUOTA_BLOCK as u64;
        if self.body.disk.size < end {
            self.body.disk.size = end;
            self.body.store(volume, self.ino, self.handle)?;
        }
        Ok(())
    }
}
