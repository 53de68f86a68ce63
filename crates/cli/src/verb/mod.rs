//! The verbs: each parses its request, asks the engine and prints the answer.

pub(crate) mod apply_tar;
pub(crate) mod build;
pub(crate) mod cat;
pub(crate) mod check;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod get;
pub(crate) mod info;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod put;
pub(crate) mod rebuild;
pub(crate) mod replay;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod scrub;
pub(crate) mod stat;
pub(crate) mod tree;
pub(crate) mod tune;
pub(crate) mod unmount;
pub(crate) mod xattr;
