//! Random operations on the engine and on a plain tree in memory: answers and errno agree at each
//! step.
//!
//! ```text
//!   seed ──► Op, Op, Op … ─┬─► Tree   (this crate, no blocks, no journal)  ─► Outcome ─┐
//!                          └─► Engine (a real volume, reopened now and then) ► Outcome ┴─ equal?
//!   at the end: the trees are equal; extant's check and e2fsck find nothing
//! ```
//!
//! Another kind of operation is a variant of [`Op`], a line in [`Op::random`], and an arm in both
//! [`Tree::apply`](tree::Tree::apply) and [`Engine::apply`](engine::Engine::apply).

pub mod acl;
pub mod engine;
pub mod op;
pub mod run;
pub mod tree;

pub use op::{Op, Place};
pub use run::{Kind, run};
use std::sync::Arc;

/// The answer of an operation: something to compare, or an errno.
pub type Outcome = Result<Answer, i32>;

/// The comparable part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It succeeded.
    Done,
    /// The attributes of a file.
    Stat(Stat),
    /// Names and kinds, sorted.
    List(Vec<(String, char)>),
    /// The content of a file.
    Content(Arc<Vec<u8>>),
    /// Flags, with the values that `lsattr` uses.
    Flags(u32),
    /// The value of an attribute.
    Value(Option<Vec<u8>>),
}

/// The attributes of a file that both sides know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// As `find -type` names it.
    pub kind: char,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; for a directory 2, and one for each directory in it.
    pub links: u32,
    /// The target of a symlink.
    pub target: Option<String>,
}
