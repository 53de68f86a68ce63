//! Readers of whole volumes: what is inconsistent, which copy of a mirror is right, what lies
//! where, what was deleted; a copy of the metadata.

pub mod check;
pub mod dump;
pub mod scrub;
pub mod survey;
pub mod undelete;
