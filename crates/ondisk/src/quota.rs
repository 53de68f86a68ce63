//! Quota files.
