//! Block devices that test the code which writes to them.
//!
//! ```text
//!   Recorder   change log (Op) ──► CrashPlan ──► CrashState, one for each possible power cut
//!   Faulty     fails on demand
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod crash;
mod faulty;
mod op;
mod recorder;

pub use crash::{CrashPlan, CrashState, CrashStates};
pub use faulty::Faulty;
pub use op::Op;
pub use recorder::{OpCounts, Recorder};
