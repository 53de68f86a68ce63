//! Devices, tested by what they offer to other crates.

mod conformance;
mod file;
mod queue;
