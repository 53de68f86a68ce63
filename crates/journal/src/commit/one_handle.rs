//! A thread has at most one handle at a time.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static HAS_HANDLE: Cell<bool> = const { Cell::new(false) };
}

/// Prevents a thread from starting a handle inside another.
pub(crate) struct HeldByThread(PhantomData<*const ()>);

impl HeldByThread {
    #[track_caller]
    pub(crate) fn enter() -> HeldByThread {
        assert!(!HAS_HANDLE.replace(true), "a handle is started inside another one");
        HeldByThread(PhantomData)
    }
}

impl Drop for HeldByThread {
    fn drop(&mut self) {
        HAS_HANDLE.set(false);
    }
}

/// Panics when this thread has a handle, because the caller is about to wait for handles to stop.
#[track_caller]
pub(crate) fn assert_no_handle() {
    assert!(
        !HAS_HANDLE.get(),
        "a thread with a handle waits for a commit, which waits for the handle"
    );
}
