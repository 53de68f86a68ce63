//! Any bytes through `parsers::request`, which the hostile tests run, too.
#![no_main]

#[path = "../../crates/fuse/tests/parsers/mod.rs"]
mod parsers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| parsers::request(data));
