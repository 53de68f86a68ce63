//! How a device that is made of another one passes operations on.
//!
//! ```text
//!   impl BlockDevice for Outer     forward!(self => self.inner; len, read_at, …)
//!                                              │
//!                                              └─► fn len(&self) -> u64 { self.inner.len() }  …
//! ```
//!
//! A method that is neither listed nor written has the default of the trait: for a device with
//! several copies, or one that must see each transfer, that is a decision.

/// Implements methods of [`BlockDevice`](crate::BlockDevice) or [`Dax`](crate::Dax) by a call of
/// the same method of another device or window.
///
/// ```
/// use extant_base::{ByteOffset, Error, Result};
/// use extant_blockdev::{BlockDevice, MemoryDevice, forward};
///
/// /// A device that accepts no discards.
/// struct Keeping(MemoryDevice);
///
/// impl BlockDevice for Keeping {
///     forward!(self => self.0; len, read_at, write_at, flush);
///
///     fn discard(&self, _: ByteOffset, _: u64) -> Result<()> {
///         Err(Error::NotSupported("this device keeps every block"))
///     }
/// }
///
/// let device = Keeping(MemoryDevice::new(4096));
/// device.write_at(ByteOffset(0), b"passed on").unwrap();
/// assert!(device.discard(ByteOffset(0), 4096).is_err());
/// ```
#[macro_export]
macro_rules! forward {
    ($self:ident => $inner:expr; $($method:ident),+ $(,)?) => {
        $($crate::forward!(@ $self, $inner, $method);)+
    };
    (@ $self:ident, $inner:expr, len) => {
        fn len(&$self) -> u64 {
            $inner.len()
        }
    };
    (@ $self:ident, $inner:expr, is_empty) => {
        fn is_empty(&$self) -> bool {
            $inner.is_empty()
        }
    };
    (@ $self:ident, $inner:expr, read_at) => {
        fn read_at(&$self, at: $crate::base::ByteOffset, buf: &mut [u8]) -> $crate::base::Result<()> {
            $inner.read_at(at, buf)
        }
    };
    (@ $self:ident, $inner:expr, read_vectored_at) => {
        fn read_vectored_at(
            &$self,
            at: $crate::base::ByteOffset,
            bufs: &mut [::std::io::IoSliceMut<'_>],
        ) -> $crate::base::Result<()> {
            $inner.read_vectored_at(at, bufs)
        }
    };
    (@ $self:ident, $inner:expr, read_fresh_at) => {
        fn read_fresh_at(
            &$self,
            at: $crate::base::ByteOffset,
            buf: &mut [u8],
        ) -> $crate::base::Result<()> {
            $inner.read_fresh_at(at, buf)
        }
    };
    (@ $self:ident, $inner:expr, read_verified) => {
        fn read_verified(
            &$self,
            at: $crate::base::ByteOffset,
            buf: &mut [u8],
            verify: &dyn Fn(&[u8]) -> bool,
        ) -> $crate::base::Result<bool> {
            $inner.read_verified(at, buf, verify)
        }
    };
    (@ $self:ident, $inner:expr, write_at) => {
        fn write_at(&$self, at: $crate::base::ByteOffset, buf: &[u8]) -> $crate::base::Result<()> {
            $inner.write_at(at, buf)
        }
    };
    (@ $self:ident, $inner:expr, write_vectored_at) => {
        fn write_vectored_at(
            &$self,
            at: $crate::base::ByteOffset,
            bufs: &[::std::io::IoSlice<'_>],
        ) -> $crate::base::Result<()> {
            $inner.write_vectored_at(at, bufs)
        }
    };
    (@ $self:ident, $inner:expr, write_fua) => {
        fn write_fua(&$self, at: $crate::base::ByteOffset, buf: &[u8]) -> $crate::base::Result<()> {
            $inner.write_fua(at, buf)
        }
    };
    (@ $self:ident, $inner:expr, flush) => {
        fn flush(&$self) -> $crate::base::Result<()> {
            $inner.flush()
        }
    };
    (@ $self:ident, $inner:expr, discard) => {
        fn discard(&$self, at: $crate::base::ByteOffset, len: u64) -> $crate::base::Result<()> {
            $inner.discard(at, len)
        }
    };
    (@ $self:ident, $inner:expr, zero) => {
        fn zero(&$self, at: $crate::base::ByteOffset, len: u64) -> $crate::base::Result<()> {
            $inner.zero(at, len)
        }
    };
    (@ $self:ident, $inner:expr, lengthen) => {
        fn lengthen(&$self, len: u64) -> $crate::base::Result<()> {
            $inner.lengthen(len)
        }
    };
    (@ $self:ident, $inner:expr, is_read_only) => {
        fn is_read_only(&$self) -> bool {
            $inner.is_read_only()
        }
    };
    (@ $self:ident, $inner:expr, alignment) => {
        fn alignment(&$self) -> usize {
            $inner.alignment()
        }
    };
    (@ $self:ident, $inner:expr, descriptor) => {
        fn descriptor(&$self) -> Option<$crate::Descriptor<'_>> {
            $inner.descriptor()
        }
    };
    (@ $self:ident, $inner:expr, needs_stable_buffers) => {
        fn needs_stable_buffers(&$self) -> bool {
            $inner.needs_stable_buffers()
        }
    };
    (@ $self:ident, $inner:expr, wrote_past) => {
        fn wrote_past(&$self) {
            $inner.wrote_past();
        }
    };
    (@ $self:ident, $inner:expr, set_idle) => {
        fn set_idle(&$self) {
            $inner.set_idle();
        }
    };
    (@ $self:ident, $inner:expr, dax) => {
        fn dax(
            &$self,
            at: $crate::base::ByteOffset,
            len: u64,
        ) -> Option<::std::sync::Arc<dyn $crate::Dax>> {
            $inner.dax(at, len)
        }
    };
    (@ $self:ident, $inner:expr, store) => {
        fn store(&$self, at: u64, bytes: &[u8]) -> $crate::base::Result<()> {
            $inner.store(at, bytes)
        }
    };
    (@ $self:ident, $inner:expr, load) => {
        fn load(&$self, at: u64, buf: &mut [u8]) -> $crate::base::Result<()> {
            $inner.load(at, buf)
        }
    };
    (@ $self:ident, $inner:expr, write_back) => {
        fn write_back(&$self, at: u64, len: u64) -> $crate::base::Result<()> {
            $inner.write_back(at, len)
        }
    };
    (@ $self:ident, $inner:expr, fence) => {
        fn fence(&$self) -> $crate::base::Result<()> {
            $inner.fence()
        }
    };
    (@ $self:ident, $inner:expr, persistence_domain) => {
        fn persistence_domain(&$self) -> $crate::PersistenceDomain {
            $inner.persistence_domain()
        }
    };
    (@ $self:ident, $inner:expr, way) => {
        fn way(&$self) -> $crate::Way {
            $inner.way()
        }
    };
}
