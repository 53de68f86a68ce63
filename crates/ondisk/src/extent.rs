//! Extent trees.
