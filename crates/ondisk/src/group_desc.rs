//! Group descriptors.
