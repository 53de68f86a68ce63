//! A filesystem for Linux's FUSE: the requests of the kernel, the transports that carry them, and
//! the filesystem that answers them.
//!
//! ```text
//!   Mount ──► Session ──► transport: /dev/fuse | io_uring        bytes in, bytes out
//!                            │
//!                         request ──► dispatch ──► Operations    one request, one reply
//!                                                     ▲
//!                                         Volume ─────┘          the engine's replies
//! ```

#![warn(missing_debug_implementations)]

pub mod abi;
mod connection;
pub mod dispatch;
mod mount;
mod mount_as;
pub mod negotiate;
mod operations;
mod reply;
pub mod request;
mod session;
mod statistics;
mod transport;
mod volume;

pub use connection::{Idle, Log};
pub use mount::unmount;
pub use mount::{MountError, MountOptions, Transport};
pub use operations::{
    Answer, Attributes, Caller, DirCache, Entry, HandleId, Handles, Listing, NewNode, NodeId,
    Opened, OpenedDir, Operations, SetAttr, SetTime, Settings, Statistics, Timestamp, WriteFlags,
};
pub use session::{Session, Unmounter};
pub use statistics::Requests;
pub use volume::{AccessTimes, IdMap, IdRange, Volume, VolumeOptions};
pub use volume::{NewSize, RESIZE, RESIZE_BYTES, ResizeAnswer};
