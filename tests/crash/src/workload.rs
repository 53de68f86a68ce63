//! A workload: operations with a name.

use crate::op::Op;
use std::fmt;

/// Operations in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its origin, like `seq1/37`, `alone/rename_over`, `random/5`.
    pub name: String,
    /// What it does.
    pub ops: Vec<Op>,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, op) in self.ops.iter().enumerate() {
            write!(f, "{}{op}", if n == 0 { "" } else { " ; " })?;
        }
        Ok(())
    }
}
