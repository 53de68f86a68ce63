//! Types that every crate of extant shares: typed numbers, one error type, the lock order.
//!
//! Every other crate may depend on this one; it depends on none of them. It does no I/O. Without
//! the `std` feature it needs only `core`.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod cache_padded;
#[cfg(feature = "std")]
mod disk;
mod error;
#[cfg(feature = "std")]
pub mod lock;
#[cfg(feature = "std")]
mod member;
pub mod narrow;
mod numbers;
mod site;
mod what;

pub use cache_padded::CachePadded;
#[cfg(feature = "std")]
pub use disk::DiskError;
pub use error::{Error, Feature, FeatureSet, Result};
#[cfg(feature = "std")]
pub use error::{Holder, IoOp};
#[cfg(feature = "std")]
pub use member::{MemberError, MemberProblem};
pub use numbers::{BlockNr, BlockSize, ByteOffset, GroupNr, Ino, LogicalBlock, Tid};
pub use site::Site;
pub use what::What;
