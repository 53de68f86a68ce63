//! What programs find on a mount, beside what they find on the kernel's ext4.
//!
//! ```text
//!   the same script ──► extant mount ──► answers ─┐
//!        └────────────► kernel ext4 ───► answers ─┴─► equal, and both volumes clean
//! ```
//!
//! [`served`] gives programs a volume to work on and judges it afterwards.

pub mod served;
