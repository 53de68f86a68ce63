//! A filesystem under Linux's FUSE: what the kernel asks, who carries it, and who answers.
//!
//! ```text
//!   Mount ──► Session ──► transport: /dev/fuse | io_uring        bytes in, bytes out
//!                            │
//!                         request ──► dispatch ──► Operations    one call, one answer
//!                                                     ▲
//!                                         Volume ─────┘          the engine's answers
//! ```

#![warn(missing_debug_implementations)]

pub mod abi;
mod connection;
pub mod dispatch;
mod mount;
mod mount_as;
pub mod negotiate;
pub mod null;
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
    Answer, Attributes, Caller, Entry, HandleId, Handles, Listing, NewNode, NodeId, Opened,
    Operations, SetAttr, SetTime, Settings, Statistics, Timestamp, WriteFlags,
};
pub use session::{Session, Unmounter};
pub use statistics::Requests;
pub use volume::{AccessTimes, IdMap, IdRange, Volume, VolumeOptions};
