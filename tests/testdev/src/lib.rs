//! Block devices that test the code which writes to them.
//!
//! ```text
//!   Recorder    change log (Op) ──► CrashPlan ──► CrashState, one for each possible power cut
//!   Faulty      fails on demand
//!   TestDevice  memory that lists its requests, reads included
//!   Hook        runs an action before a forced write
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod crash;
mod faulty;
mod hook;
mod op;
mod recorder;
mod requests;

pub use crash::{CrashPlan, CrashState, CrashStates};
pub use faulty::Faulty;
pub use hook::Hook;
pub use op::Op;
pub use recorder::{OpCounts, Recorder};
pub use requests::{Request, TestDevice};
