//! The shared words of extant: numbers that do not mix, one error type, the lock order.
//!
//! This is the lowest room of the house. It does no I/O and, without the `std` feature, needs
//! only `core`.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod apart;
mod error;
#[cfg(feature = "std")]
pub mod lock;
#[cfg(feature = "std")]
mod member;
mod site;
mod what;
mod words;

pub use apart::CachePadded;
pub use error::{Error, Feature, FeatureSet, Result};
#[cfg(feature = "std")]
pub use error::{Holder, IoOp};
#[cfg(feature = "std")]
pub use member::{MemberError, MemberProblem};
pub use site::Site;
pub use what::What;
pub use words::{BlockNr, BlockSize, ByteOffset, GroupNr, Ino, LogicalBlock, Tid};
