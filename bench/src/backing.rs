//! Files that benches put volumes on: all their blocks there, so that nobody waits for them.
//!
//! ```text
//!   direct(path)          small transfers by the kernel's cache, as extant opens files
//!   Past(direct(path))    each transfer that lies well past it, however small
//!   Kept(device)          without discards, for mkfs
//! ```

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use extant::{BlockDevice, FileOptions};
use extant_base::ByteOffset;
use extant_blockdev::{
    Access, AlignedBuf, Descriptor, FileDevice, Memory, Request, Span, transfer,
};

/// Makes a file of `len` bytes that has all its blocks.
pub(crate) fn file(path: &Path, len: u64) -> Result<()> {
    FileOptions::new().write(true).create(path, len)?;
    fill(&*direct(path)?, len)
}

/// Opens it, around the kernel's cache.
pub(crate) fn direct(path: &Path) -> Result<Arc<FileDevice>> {
    Ok(Arc::new(FileOptions::new().write(true).direct(true).open(path)?))
}

/// Writes everything once.
pub(crate) fn fill(device: &dyn BlockDevice, len: u64) -> Result<()> {
    let mut bytes = AlignedBuf::zeroed(4 << 20);
    bytes.fill(1);
    for at in (0..len).step_by(bytes.len()) {
        let n = (len - at).min(bytes.len() as u64) as usize;
        device.write_at(ByteOffset(at), &bytes[..n])?;
    }
    Ok(device.flush()?)
}

/// A device that keeps its blocks: what is discarded or zeroed is not given back to the disk.
pub(crate) struct Kept(pub Arc<dyn BlockDevice>);

impl BlockDevice for Kept {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant::Result<()> {
        self.0.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.0.write_at(at, buf)
    }

    fn flush(&self) -> extant::Result<()> {
        self.0.flush()
    }
}

/// A file that no transfer reaches by the kernel's cache, if its place, length and memory allow it.
pub(crate) struct Past(pub Arc<FileDevice>);

impl Past {
    fn transfer(&self, access: Access, at: ByteOffset, span: Span<'_>) -> extant::Result<()> {
        let memory = Memory::Lent(vec![span]);
        transfer(&*self.0, &mut Request { tag: 0, access, at, memory })
    }
}

impl BlockDevice for Past {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant::Result<()> {
        self.transfer(Access::Write, at, Span::of_mut(buf))
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.transfer(Access::Read, at, Span::of(buf))
    }

    fn flush(&self) -> extant::Result<()> {
        self.0.flush()
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        self.0.descriptor()
    }

    fn alignment(&self) -> usize {
        self.0.alignment()
    }
}
