//! Runs the target of `tests/hostile` that the variable `EXTANT_TARGET` names.
#![no_main]

use extant_hostile_tests::{Target, target};
use std::sync::LazyLock;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("EXTANT_TARGET").expect("EXTANT_TARGET names a target");
    target(&name)
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
