//! What programs find on a mount, compared with what they find on the kernel's ext4.
//!
//! ```text
//!   the same script ──► extant mount ──► answers ─┐
//!        └────────────► kernel ext4 ───► answers ─┴─► equal, and both volumes clean
//! ```
//!
//! A script is a process of its own (`posix-script`), whose working directory is the mount. So it
//! may act as other users, and a mount that hangs blocks only the script. [`served`] gives programs
//! a volume to work on and judges it afterwards.

pub mod answer;
pub mod calls;
pub mod cases;
pub mod known;
pub mod raw;
pub mod script;
pub mod served;
pub mod writers;
