//! Bytes in and out: every device that can hold a volume, behind one trait.
//!
//! ```text
//!                        BlockDevice
//!        ┌───────────────────┼───────────────────────────┐
//!   FileDevice         MemoryDevice          made of another device
//!   file or block      sparse, in memory
//!   device, direct
//! ```

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod aligned;
mod device;
mod direct;
mod file;
mod memory;
mod open;
mod pool;

pub use aligned::AlignedBuf;
pub use device::BlockDevice;
pub use file::FileDevice;
pub use memory::MemoryDevice;
pub use open::FileOptions;
pub use pool::{BufPool, PooledBuf};
