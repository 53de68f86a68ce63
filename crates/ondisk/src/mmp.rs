//! Multi-mount protection.
