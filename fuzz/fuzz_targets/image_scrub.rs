//! The target of this name of `tests/hostile`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| extant_hostile_tests::run("image_scrub", data));
