//! Bytes in and out: every device that can hold a volume, with one trait.
//!
//! ```text
//!                        BlockDevice
//!        ┌───────────────────┼───────────────────────────┐
//!   FileDevice         MemoryDevice          made of another device:
//!   file or block      sparse, in memory       ReadOnly   refuses writes
//!   device, direct                             Slice      a part, as a device
//!                                              Overlay    changes stay in memory
//!                                              Fenced     refuses writes after a fence is closed
//!
//!   Queue     many transfers of one device at a time: io_uring, threads, or one after the other
//!   caller    memory that is lent for a transfer
//! ```

#![deny(unsafe_code)]
#![warn(missing_debug_implementations)]

#[allow(unsafe_code)]
mod aligned;
mod caller;
#[allow(unsafe_code)]
mod dax;
mod device;
mod fenced;
mod file;
mod forward;
mod memory;
mod overlay;
mod pool;
#[allow(unsafe_code)]
mod queue;
mod range;
mod read_only;
mod shared_words;
mod slice;

/// For the expansion of [`forward!`].
#[doc(hidden)]
pub use extant_base as base;

pub use aligned::AlignedBuf;
pub use caller::{
    Access, CallerMemory, Faults, OwnedMemory, SharedCursor, SharedMemory, Source, Span, Target,
};
pub use dax::{Dax, DaxMode, LINE_BYTES, PersistenceDomain, Way};
pub use device::{BlockDevice, Descriptor};
pub use fenced::{Fence, Fenced};
pub use file::{FileDevice, FileOptions};
pub use memory::MemoryDevice;
pub use overlay::Overlay;
pub use pool::{BufPool, PooledBuf};
pub use queue::{
    Completion, DriveQueue, Memory, Queue, QueueScope, QueueWay, Request, scope, transfer,
    transfer_all,
};
pub use read_only::ReadOnly;
pub use slice::Slice;
