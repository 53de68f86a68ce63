//! Mirrors and stripes over devices in memory.

mod crash;
mod failing_members;
mod mirror;
mod stripes;
