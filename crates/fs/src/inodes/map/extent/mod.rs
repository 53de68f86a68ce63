//! Extent trees: finding a run (`tree`), and changing the tree (the other files here).

pub(crate) mod insert;
pub(crate) mod node;
pub(crate) mod path;
pub(crate) mod shift;
pub(crate) mod tree;
pub(crate) mod truncate;
