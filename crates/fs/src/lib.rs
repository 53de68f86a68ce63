//! ext4 in user space: open, make, read and change real ext4 volumes.

#![forbid(unsafe_code)]
// Parts that nobody calls yet: the writing side stands on them.
#![allow(dead_code)]

mod data;
mod dir;
mod environment;
mod group;
mod inline;
mod inode;
mod map;
mod verified;
mod volume;

pub use environment::{
    Chance, Clock, Environment, FixedClock, SeededChance, SystemChance, SystemClock,
};
