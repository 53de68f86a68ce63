//! Readers of whole volumes: what is inconsistent, which copy of a mirror is right, what lies
//! where, what was deleted.

pub mod check;
pub mod scrub;
pub mod survey;
pub mod undelete;
