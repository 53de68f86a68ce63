//! Block maps.
