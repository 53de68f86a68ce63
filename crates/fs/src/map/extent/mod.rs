//! Extent trees: finding a run (`tree`), and changing the tree (the other files here).

pub(crate) mod tree;
