//! What the suites of `tests/` share: nothing yet beside the testkit.
#![forbid(unsafe_code)]
