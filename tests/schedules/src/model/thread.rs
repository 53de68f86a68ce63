//! `std::thread`.

use super::time;
use std::time::Duration;

pub(crate) use shuttle::thread::{Builder, JoinHandle, current, scope, yield_now};
// The one thread of the system panics or does not.
pub(crate) use std::thread::panicking;

pub(crate) fn sleep(time: Duration) {
    time::pass(time);
    yield_now();
}
