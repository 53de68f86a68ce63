//! Where fast commits lie on the device.

pub(crate) mod area;
pub(crate) mod area_reader;
#[cfg(test)]
mod area_test;
pub(crate) mod byte_log;
pub(crate) mod fast_commit_log;
pub(crate) mod sink;
