//! Any bytes through `parsers::journal::byte_log`, which the hostile tests run, too.
#![no_main]

#[path = "../../crates/ondisk/tests/parsers/mod.rs"]
mod parsers;

libfuzzer_sys::fuzz_target!(|data: &[u8]| parsers::journal::byte_log(data));
