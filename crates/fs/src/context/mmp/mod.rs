//! Multiple mount protection: who may write a volume that several hosts can reach.
//!
//! ```text
//!   the block says     wait                      then
//!   clean              none                      write a number, read it back ──► held
//!   a number           2i + 1 s, at most i + 60  it moved: Held; else as clean, with the wait again
//!   checker            none                      Held: a checker never moves its number
//!
//!   held:   every update interval: is the number ours? ── yes ──► count it up
//!                                       └─ no, or not known for the check interval ──► fence
//!   closed: clean
//! ```
//!
//! `i` is the longer one of the superblock's update interval and the block's check interval, 5 s at
//! least. Linux looks whether the number is still its own only after a beat that came late; here
//! every beat looks first. The block is read past this machine's page cache, never goes through the
//! journal, and is the first thing written and the last.
//!
//! Source: ext4 documentation, "Multiple Mount Protection".

mod claim;
mod hold;
#[cfg(test)]
mod tests;

pub(crate) use hold::{Hold, clear};
