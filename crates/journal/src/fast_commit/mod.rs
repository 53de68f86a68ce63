//! How fast commits lie on the device: written, and read back by recovery.
//!
//! ```text
//!   sink                     the trait of both places, and the state of the thread that writes
//!   area                     written as blocks after the log
//!   byte_log                 stored in memory that keeps its content: its writer and its reader
//!   area_reader              reads the area; leads to the byte log where that is in use
//!   fast_commit_log          the fast commits that a reader found
//! ```

pub(crate) mod area;
pub(crate) mod area_reader;
#[cfg(test)]
mod area_test;
pub(crate) mod byte_log;
pub(crate) mod fast_commit_log;
pub(crate) mod sink;
