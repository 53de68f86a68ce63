//! Quota: the usage summed over all inodes, compared with the quota files.
//!
//! ```text
//!   inodes ──► id: bytes, inodes ──┐
//!   quota file ──tree──► entries ──┴─► equal for every id that appears in either
//! ```

use super::own;
use crate::audit::check::map::Gather;
use crate::audit::check::view::View;
use extant_base::narrow::fits_u32;
use extant_base::{Error, Ino, Site, What};
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::Inode as DiskInode;
use extant_ondisk::quota::{QUOTA_BLOCK, QuotaBlock, QuotaInfo, QuotaKind, QuotaStore};
use hashbrown::HashMap;

/// Bytes and inodes of each id.
type Totals = HashMap<u32, (u64, u64)>;

/// Usage by user, group and project.
#[derive(Default)]
pub(in crate::audit::check) struct Usages([Totals; 3]);

impl Usages {
    pub(super) fn add(&mut self, inode: &DiskInode, space: u64, inodes: u64) {
        for (totals, id) in self.0.iter_mut().zip([inode.uid, inode.gid, inode.projid]) {
            let total = totals.entry(id).or_default();
            total.0 += space;
            total.1 += inodes;
        }
    }

    pub(super) fn join(&mut self, other: Usages) {
        for (totals, more) in self.0.iter_mut().zip(other.0) {
            for (id, (space, inodes)) in more {
                let total = totals.entry(id).or_default();
                total.0 += space;
                total.1 += inodes;
            }
        }
    }
}

/// Compares the usage with every quota file of the volume.
pub(super) fn check(view: &View<'_>, usages: &Usages) {
    if !view.has_ro_compat(RoCompat::QUOTA) {
        return;
    }
    let files = [
        (view.sb.usr_quota_inum, QuotaKind::User),
        (view.sb.grp_quota_inum, QuotaKind::Group),
        (view.sb.prj_quota_inum, QuotaKind::Project),
    ];
    for ((number, kind), totals) in files.into_iter().zip(&usages.0) {
        if let Some(ino) = Ino::new(number) {
            check_file(view, ino, kind, totals);
        }
    }
}

/// The largest quota file that e2fsprogs accepts, in bytes.
const MOST_BYTES: u64 = 1 << 31;

fn check_file(view: &View<'_>, ino: Ino, kind: QuotaKind, totals: &Totals) {
    let at = Site::of_ino(ino);
    let Some((inode, runs)) = own::open(view, ino) else {
        return view.error(What::QuotaFile, at);
    };
    if inode.size > MOST_BYTES {
        return view.error_with(What::QuotaFile, at, format!("{} bytes", inode.size));
    }
    let blocks = fits_u32(inode.size / QUOTA_BLOCK as u64);
    let mut file = QuotaFile { view, runs: &runs, ino };
    let mut seen = HashMap::new();
    let read =
        file.read(0).and_then(|head| QuotaInfo::check(&head, kind, blocks)).and_then(|info| {
            info.for_each(&mut file, |entry| {
                seen.insert(entry.id, (entry.space, entry.inodes));
                Ok(())
            })?;
            info.stray(&mut file)
        });
    match read {
        Err(_) => return view.error(What::QuotaFile, at),
        Ok(Some(leaf)) => {
            let detail = format!("its block {leaf} has entries that its tree does not lead to");
            view.error_with(What::QuotaFile, at, detail);
        }
        Ok(None) => {}
    }
    let none = (0, 0);
    let ids = totals.keys().chain(seen.keys().filter(|id| !totals.contains_key(*id)));
    for id in ids {
        let (there, right) = (seen.get(id).unwrap_or(&none), totals.get(id).unwrap_or(&none));
        if there != right {
            let detail = format!(
                "id {id}: says {} bytes in {} inodes, has {} in {}",
                there.0, there.1, right.0, right.1
            );
            view.error_with(What::QuotaUsage, at, detail);
        }
    }
}

/// A quota file on the volume, for reading.
struct QuotaFile<'q, 'v> {
    view: &'q View<'v>,
    runs: &'q Gather,
    ino: Ino,
}

impl QuotaStore for QuotaFile<'_, '_> {
    fn read(&mut self, block: u32) -> Result<QuotaBlock, Error> {
        let wrong = || Site::of_ino(self.ino).corrupt(What::QuotaFile);
        let size = self.view.geometry.block_size();
        let byte = u64::from(block) * QUOTA_BLOCK as u64;
        let logical = u32::try_from(byte >> size.log2()).map_err(|_| wrong())?;
        let place = self.runs.locate(logical).ok_or_else(wrong)?;
        let start = size.start_of(place).0 + (byte & (size.bytes() as u64 - 1));
        let mut bytes = [0; QUOTA_BLOCK];
        self.view.device.read_at(extant_base::ByteOffset(start), &mut bytes)?;
        Ok(bytes)
    }

    fn write(&mut self, _block: u32, _bytes: &QuotaBlock) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }
}
