//! What pass 0 has established about the volume, for the other passes.

use super::Options;
use super::report::Findings;
use crate::progress::Progress;
use extant_base::{BlockNr, ByteOffset, GroupNr, Ino, Site, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::InodeFormat;
use extant_ondisk::superblock::Superblock;
use std::ops::Deref;
use std::sync::Arc;

/// How many groups a check can hold in memory: a petabyte of 128 MiB groups.
const GROUPS_MAX: u32 = 1 << 22;

/// A group as its descriptor describes it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::audit) struct Group {
    /// The descriptor's fields, on which the other passes rely.
    pub(in crate::audit) desc: GroupDesc,
    /// Whether the descriptor's checksum is right.
    pub(in crate::audit) csum_ok: bool,
    /// Whether the block bitmap is on the volume and does not overlap other metadata.
    pub(in crate::audit) block_bitmap_ok: bool,
    /// The same for the inode bitmap.
    pub(in crate::audit) inode_bitmap_ok: bool,
    /// The same for the inode table.
    pub(in crate::audit) itable_ok: bool,
}

/// The volume under check.
pub(in crate::audit) struct View<'a> {
    pub(in crate::audit) device: Arc<dyn BlockDevice>,
    pub(in crate::audit) sb: Superblock,
    pub(in crate::audit) geometry: Geometry,
    pub(in crate::audit) csum: Checksums,
    pub(in crate::audit) format: InodeFormat,
    /// The filesystem seed, which `ea_inode` needs even without `metadata_csum`.
    pub(in crate::audit) csum_seed: u32,
    pub(in crate::audit) groups: Vec<Group>,
    pub(in crate::audit) findings: &'a Findings,
    pub(in crate::audit) progress: &'a dyn Progress,
    pub(in crate::audit) threads: usize,
    pub(in crate::audit) backups: bool,
    /// The journal was just replayed, so the superblock's counters may be out of date.
    pub(in crate::audit) recovered: bool,
    /// The device of an external journal.
    pub(in crate::audit) journal: Option<Arc<dyn BlockDevice>>,
}

impl Deref for View<'_> {
    type Target = Findings;
    fn deref(&self) -> &Findings {
        self.findings
    }
}

impl<'a> View<'a> {
    /// A view without groups. `None`, with a finding, if the volume has more groups than memory can
    /// hold.
    pub(in crate::audit) fn new(
        device: Arc<dyn BlockDevice>,
        sb: Superblock,
        findings: &'a Findings,
        options: &Options,
        progress: &'a dyn Progress,
        recovered: bool,
    ) -> Option<View<'a>> {
        let geometry = match Geometry::new(&sb) {
            Ok(geometry) => geometry,
            Err(error) => {
                findings.corrupt(&error, "");
                return None;
            }
        };
        if geometry.groups_count() > GROUPS_MAX {
            findings.error(What::ResourceLimit, Site::NOWHERE);
            return None;
        }
        Some(View {
            device,
            csum: sb.checksums(),
            csum_seed: sb.csum_seed(),
            format: InodeFormat::new(&sb),
            geometry,
            sb,
            groups: Vec::new(),
            findings,
            progress,
            threads: options.threads.clamp(1, 64),
            backups: options.backups,
            recovered,
            journal: options.journal.clone(),
        })
    }

    pub(in crate::audit) fn has_compat(&self, feature: Compat) -> bool {
        self.sb.features.compat.contains(feature)
    }

    pub(in crate::audit) fn has_incompat(&self, feature: Incompat) -> bool {
        self.sb.features.incompat.contains(feature)
    }

    pub(in crate::audit) fn has_ro_compat(&self, feature: RoCompat) -> bool {
        self.sb.features.ro_compat.contains(feature)
    }

    /// Bytes of a block.
    pub(in crate::audit) fn block_bytes(&self) -> usize {
        self.geometry.block_size().bytes()
    }

    /// 512-byte sectors of a cluster.
    pub(in crate::audit) fn cluster_sectors(&self) -> u64 {
        1 << (self.geometry.block_size().log2() + self.geometry.log_cluster_ratio() - 9)
    }

    pub(in crate::audit) fn group(&self, group: GroupNr) -> &Group {
        &self.groups[group.0 as usize]
    }

    /// Whether `ino` is a number that the volume gives to no ordinary file.
    pub(in crate::audit) fn is_reserved(&self, ino: u32) -> bool {
        ino < self.sb.first_ino
    }

    /// Whether `ino` must not have a name: a reserved number except the root's, a quota file, or
    /// the orphan file.
    pub(in crate::audit) fn is_hidden(&self, ino: u32) -> bool {
        if self.is_reserved(ino) {
            return ino != Ino::ROOT.get();
        }
        let quota = self.has_ro_compat(RoCompat::QUOTA) && ino == self.sb.prj_quota_inum;
        let orphans = self.has_compat(Compat::ORPHAN_FILE) && ino == self.sb.orphan_file_inum;
        quota || orphans
    }

    /// Reads whole blocks from `first` on. Blocks that cannot be read are reported and zeroed.
    pub(in crate::audit) fn read_blocks(&self, first: BlockNr, buf: &mut [u8], at: Site) -> bool {
        let start = self.geometry.block_size().start_of(first);
        self.read_bytes(start, buf, at.block(first))
    }

    /// Reads bytes. Bytes that cannot be read are reported and zeroed.
    pub(in crate::audit) fn read_bytes(&self, at: ByteOffset, buf: &mut [u8], site: Site) -> bool {
        match self.device.read_at(at, buf) {
            Ok(()) => true,
            Err(error) => {
                buf.fill(0);
                self.error_with(What::Unreadable, site, error.to_string());
                false
            }
        }
    }
}
