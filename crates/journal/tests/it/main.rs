//! The journal through its public API.

mod e2fsprogs_judges;
