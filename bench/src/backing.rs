//! Files that benches put volumes on. All their blocks are allocated, so that no measurement
//! includes that.
//!
//! ```text
//!   direct(path)          small transfers through the kernel's cache, as extant opens files
//!   Past(direct(path))    every aligned transfer past that cache, however small
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

/// Creates a file of `len` bytes with all its blocks allocated.
pub(crate) fn file(path: &Path, len: u64) -> Result<()> {
    FileOptions::new().write(true).create(path, len)?;
    fill(&*direct(path)?, len)
}

/// Opens it past the kernel's cache.
pub(crate) fn direct(path: &Path) -> Result<Arc<FileDevice>> {
    Ok(Arc::new(FileOptions::new().write(true).direct(true).open(path)?))
}

/// Writes the whole device once.
pub(crate) fn fill(device: &dyn BlockDevice, len: u64) -> Result<()> {
    let mut bytes = AlignedBuf::zeroed(4 << 20);
    bytes.fill(1);
    for at in (0..len).step_by(bytes.len()) {
        let n = (len - at).min(bytes.len() as u64) as usize;
        device.write_at(ByteOffset(at), &bytes[..n])?;
    }
    Ok(device.flush()?)
}

/// A device that keeps its blocks: discarded or zeroed ranges are not returned to the disk.
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

/// A file whose transfers bypass the kernel's cache if their offset, length and memory permit it.
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
