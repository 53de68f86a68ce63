//! What a log left by a crash holds, brought home.

pub(crate) mod append;
#[cfg(test)]
pub(crate) mod cut_test;
#[cfg(test)]
mod hostile_test;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod revoke;
pub(crate) mod scan;
pub(crate) mod superblock_last;
pub(crate) mod volume_end;
