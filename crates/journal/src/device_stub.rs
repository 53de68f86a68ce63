//! The device trait, until the block device crate brings it.
use extant_base::{ByteOffset, Result};
#[allow(missing_docs, clippy::len_without_is_empty)]
pub trait BlockDevice: Send + Sync {
    fn len(&self) -> u64;
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()>;
    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()>;
    fn flush(&self) -> Result<()>;
    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()>;
}
