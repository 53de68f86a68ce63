//! Usage summed over inodes, and whole quota files made from it.
//!
//! ```text
//!   inode ──► charge ──► by user, group, project: id → inodes, bytes ──► new file │ repair a file
//! ```
//!
//! For a bulk load, which counts usage at its end, and for recovery, which counts it again.

use crate::inodes::file::FileRef;
use crate::inodes::map::Target;
use crate::state::inode::Body;
use crate::state::quota::quota_inodes;
use crate::tree::usage::QuotaAccounting;
use crate::tree::xattr::list::Stored;
use extant_base::{BlockNr, Error, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::quota::{QuotaEntry, QuotaInfo, QuotaKind};
use std::collections::BTreeMap;

/// Inodes and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    pub(crate) inodes: u64,
    pub(crate) bytes: u64,
}

/// Usage by user, group and project.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    by_user: BTreeMap<u32, Total>,
    by_group: BTreeMap<u32, Total>,
    by_project: BTreeMap<u32, Total>,
}

impl Usage {
    /// Counts an inode whose body is final. Malformed attributes do not count. Errors: `Device`.
    pub(crate) fn charge(&mut self, file: FileRef<'_>) -> Result<()> {
        let inodes = 1 + file.volume.quota_accounting().count_value_inodes(file.body)?;
        let bytes = file.body.disk.sectors.saturating_mul(512);
        for (totals, id) in [
            (&mut self.by_user, file.body.disk.uid),
            (&mut self.by_group, file.body.disk.gid),
            (&mut self.by_project, file.body.disk.projid),
        ] {
            let total = totals.entry(id).or_default();
            total.inodes = total.inodes.saturating_add(inodes);
            total.bytes = total.bytes.saturating_add(bytes);
        }
        Ok(())
    }

    /// The usage by id.
    pub(crate) fn totals(&self, kind: QuotaKind) -> &BTreeMap<u32, Total> {
        match kind {
            QuotaKind::User => &self.by_user,
            QuotaKind::Group => &self.by_group,
            QuotaKind::Project => &self.by_project,
        }
    }

    /// The content of the quota file of one kind, without limits.
    pub(crate) fn file(&self, kind: QuotaKind) -> Vec<u8> {
        let entries = self.totals(kind).iter().map(|(&id, total)| QuotaEntry {
            id,
            inodes: total.inodes,
            space: total.bytes,
            ..QuotaEntry::default()
        });
        QuotaInfo::build(kind, entries)
    }
}

impl QuotaAccounting<'_> {
    /// Whether the volume has quota files.
    pub(crate) fn has_quota(self) -> bool {
        self.volume.has_ro_compat(RoCompat::QUOTA)
    }

    /// Rewrites all quota files, for a volume without limits.
    ///
    /// Errors: `NoSpace`, `Corrupt`, `Device`.
    pub(crate) fn write_quota_files(self, usage: &Usage) -> Result<()> {
        let superblock = self.volume.context().superblock().read().clone();
        for (kind, ino) in quota_inodes(&superblock) {
            let content = usage.file(kind);
            let blocks = self.volume.block_size().blocks_for(content.len() as u64);
            let blocks = u32::try_from(blocks).map_err(|_| Error::FileTooLarge)?;
            let handle = self.volume.journal().start(Credits::blocks(64 + blocks))?;
            let mut body = self.volume.inodes().read(ino)?;
            self.rewrite(&handle, &mut body, &content, blocks)?;
            body.disk.size = body.disk.size.max(content.len() as u64);
            body.store(self.volume, &handle)?;
            handle.stop()?;
        }
        Ok(())
    }

    /// Puts `content` into the first `blocks` blocks of an inode whose data is metadata.
    fn rewrite(
        self,
        handle: &Handle<'_>,
        body: &mut Body,
        content: &[u8],
        blocks: u32,
    ) -> Result<()> {
        let bs = self.volume.block_size().bytes();
        let put = |run: crate::inodes::map::Run| {
            let Target::Written(first) = run.target else { return Ok(()) };
            for n in 0..run.len {
                let bytes = content.chunks(bs).nth((run.logical.0 + n) as usize);
                let bytes = bytes.unwrap_or_default();
                let block =
                    self.volume.journal().cache().get_new(BlockNr(first.0 + u64::from(n)))?;
                block.write(handle)?.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
            }
            Ok(())
        };
        self.volume.file_mut(body).fill(handle, 0..blocks, ExtentState::Written, &mut { put })
    }

    /// Attributes of an inode whose values live in inodes of their own; 0 where they are malformed.
    pub(super) fn count_value_inodes(self, body: &Body) -> Result<u64> {
        if !self.volume.has_incompat(Incompat::EA_INODE) {
            return Ok(0);
        }
        let lists = self
            .volume
            .xattrs(body)
            .tail_list()
            .and_then(|tail| Ok((tail, self.volume.xattrs(body).block_list()?)));
        match lists {
            Ok((tail, block)) => {
                let all = tail.iter().chain(&block);
                Ok(all.filter(|a| matches!(a.value, Stored::InInode { .. })).count() as u64)
            }
            Err(error @ Error::Corrupt { .. }) => {
                self.volume.context().note_error(&error);
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }
}
