//! Mirrors and stripes over devices in memory.

mod crash;
mod mirror;
mod stripes;
mod told;
