//! The log on its device.
//!
//! ```text
//!   watched      the device that counts writes and flushes, and fails after a lost flush
//!   space        log space: used, reserved, free; limits of a transaction
//!   stream       large writes to the log
//!   open_log     the log's superblock and blocks
//!   map          where the log's blocks lie
//! ```

pub(crate) mod map;
pub(crate) mod open_log;
pub(crate) mod space;
pub(crate) mod stream;
pub(crate) mod watched;
