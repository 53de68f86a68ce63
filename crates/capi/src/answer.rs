//! Results in the form of C: a number, and a message that is kept for each thread.

use extant::Error;
use extant_image::{BuildError, SourceError};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const EINTR: i32 = 4;
const ENOSPC: i32 = 28;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Why a call failed.
pub(crate) struct Fault {
    errno: i32,
    message: String,
}

impl Fault {
    pub(crate) fn invalid(message: &str) -> Fault {
        Fault { errno: EINVAL, message: message.to_owned() }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault { errno: error.errno(), message: error.to_string() }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        Fault { errno: error.raw_os_error().unwrap_or(EIO), message: error.to_string() }
    }
}

impl From<SourceError> for Fault {
    fn from(error: SourceError) -> Fault {
        let errno = match &error {
            SourceError::Io { source, .. } => source.raw_os_error().unwrap_or(EIO),
            _ => EINVAL,
        };
        Fault { errno, message: error.to_string() }
    }
}

impl From<BuildError> for Fault {
    fn from(error: BuildError) -> Fault {
        let message = error.to_string();
        let errno = match error {
            BuildError::Source(error) => return error.into(),
            BuildError::Engine(error) | BuildError::Entry { error, .. } => error.errno(),
            BuildError::Output { source, .. } => source.raw_os_error().unwrap_or(EIO),
            BuildError::TooSmall { .. } | BuildError::DeviceTooSmall { .. } => ENOSPC,
            BuildError::Stopped => EINTR,
            _ => EINVAL,
        };
        Fault { errno, message }
    }
}

/// Runs a call. Returns its number, or a negative errno.
pub(crate) fn answer_long(call: impl FnOnce() -> Result<i64, Fault>) -> i64 {
    // After a panic, later calls reach state only through the engine, which keeps its own
    // consistent.
    let done = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(Fault { errno: EIO, message: "a bug: the library panicked".to_owned() })
    });
    done.unwrap_or_else(|fault| {
        let message = CString::new(fault.message.replace('\0', "\\0")).unwrap_or_default();
        MESSAGE.with_borrow_mut(|kept| *kept = message);
        -i64::from(fault.errno)
    })
}

/// As [`answer_long`], for calls that return 0 or a small number.
pub(crate) fn answer(call: impl FnOnce() -> Result<i32, Fault>) -> i32 {
    let number = answer_long(|| call().map(i64::from));
    i32::try_from(number).expect("an int went in, or an errno")
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn extant_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The message of the last failed call of this thread.
#[unsafe(no_mangle)]
pub extern "C" fn extant_message() -> *const c_char {
    MESSAGE.with_borrow(|kept| kept.as_ptr())
}
