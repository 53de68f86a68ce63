//! Runs the target of `tests/hostile` that has this file's name.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| extant_hostile_tests::run("inode", data));
