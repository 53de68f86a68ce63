//! The verbs: each parses its request, asks the engine and prints the answer.

pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod get;
pub(crate) mod info;
pub(crate) mod ls;
pub(crate) mod mkfs;
pub(crate) mod replay;
pub(crate) mod stat;
pub(crate) mod tree;
