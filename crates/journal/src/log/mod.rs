//! The log on its device.

pub(crate) mod map;
pub(crate) mod open_log;
pub(crate) mod space;
pub(crate) mod stream;
pub(crate) mod watched;
