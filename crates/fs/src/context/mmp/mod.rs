//! Multiple mount protection: one host at a time may write a volume that several hosts can reach.
//!
//! ```text
//!   the block says     wait                      then
//!   clean              none                      write a number, read it back ──► held
//!   a number           2i + 1 s, at most i + 60  it changed: Held; else as clean, then wait again
//!   checker            none                      Held: a checker never changes its number
//!
//!   held:   every update interval: is the number ours? ── yes ──► increment it
//!                                       └─ no, or unknown for the check interval ──► fence
//!   closed: clean
//! ```
//!
//! `i` is the larger of the superblock's update interval and the block's check interval, at least 5
//! s. Linux checks that the number is still its own only after a late heartbeat; here every
//! heartbeat checks it first. The block is read past this machine's page cache and never goes
//! through the journal. It is the first block written after opening and the last one before
//! closing.
//!
//! Source: ext4 documentation, "Multiple Mount Protection".

mod claim;
mod hold;
#[cfg(test)]
mod tests;

pub(crate) use hold::{Hold, clear};
