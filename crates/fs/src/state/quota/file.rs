//! A quota file on a volume, block by block.
//!
//! ```text
//!   quota block n, 1 KiB ──► byte n × 1024 of the file ──► mapped block ──► cache of metadata
//!                                                           unmapped: allocate it, the file grows
//! ```

use crate::state::inode::Body;
use crate::state::quota::QuotaHost;
use extant_base::narrow::fits_usize;
use extant_base::{Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::quota::{QUOTA_BLOCK, QuotaBlock, QuotaInfo, QuotaKind, QuotaStore};

/// A quota file. Without a handle it is read-only.
pub(crate) struct QuotaFile<'a> {
    pub(crate) host: &'a dyn QuotaHost,
    pub(crate) ino: Ino,
    pub(crate) body: &'a mut Body,
    pub(crate) handle: Option<&'a Handle<'a>>,
}

impl QuotaFile<'_> {
    /// Reads the file's header.
    ///
    /// Errors: `QuotaFile`; those of the map; `Device`.
    pub(crate) fn info(&mut self, kind: QuotaKind) -> Result<QuotaInfo> {
        if !self.host.has_map(self.body) {
            return Err(self.wrong());
        }
        let blocks = u32::try_from(self.body.size / QUOTA_BLOCK as u64).unwrap_or(u32::MAX);
        QuotaInfo::check(&self.read(0)?, kind, blocks)
    }

    /// The volume's block that holds quota block `block`, and the byte where it starts there.
    /// `None` if the file has no such block yet.
    pub(super) fn block(&self, block: u32) -> Result<Option<(MetaBlock, usize)>> {
        let (logical, at) = self.place(block)?;
        let Some(found) = self.host.content_block(self.body, logical)? else {
            return Ok(None);
        };
        // The engine's own inodes may name metadata at fixed places, but a quota file may not.
        if self.host.is_system(found.nr()) {
            return Err(Site::of_ino(self.ino).block(found.nr()).corrupt(What::QuotaFile));
        }
        Ok(Some((found, at)))
    }

    fn wrong(&self) -> Error {
        Site::of_ino(self.ino).corrupt(What::QuotaFile)
    }

    fn place(&self, block: u32) -> Result<(LogicalBlock, usize)> {
        let byte = u64::from(block) * QUOTA_BLOCK as u64;
        let size = self.host.context().block_size();
        let logical = u32::try_from(byte >> size.log2());
        let logical = logical.map_err(|_| Error::FileTooLarge)?;
        Ok((LogicalBlock(logical), fits_usize(byte) & (size.bytes() - 1)))
    }

    fn grow(&mut self, block: u32, handle: &Handle<'_>) -> Result<(MetaBlock, usize)> {
        let (logical, at) = self.place(block)?;
        let new = self.host.add_block(self.body, handle, logical)?;
        let new = new.ok_or_else(|| self.wrong())?;
        Ok((self.host.context().journal().cache().get_new(new)?, at))
    }
}

impl QuotaStore for QuotaFile<'_> {
    fn read(&mut self, block: u32) -> Result<QuotaBlock> {
        let (found, at) = self.block(block)?.ok_or_else(|| self.wrong())?;
        let bytes = found.read();
        let bytes = bytes[at..].first_chunk::<QUOTA_BLOCK>();
        Ok(*bytes.expect("a block holds whole quota blocks"))
    }

    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<()> {
        let handle = self.handle.ok_or(Error::ReadOnly)?;
        let (place, at) = match self.block(block)? {
            Some(place) => place,
            None => self.grow(block, handle)?,
        };
        place.write(handle)?.bytes_mut()[at..at + QUOTA_BLOCK].copy_from_slice(bytes);
        let end = (u64::from(block) + 1) * QUOTA_BLOCK as u64;
        if self.body.disk.size < end {
            self.body.disk.size = end;
            self.host.store(self.body, handle)?;
        }
        Ok(())
    }
}
