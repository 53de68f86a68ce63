//! A table that grows while threads read it, and whose entries are made when first used.
//!
//! ```text
//!   first          later: blocks of n, 2n, 4n … entries, each made when first used
//!   ┌─────────┐    ┌─────────┬──────────────────┬─ ─ ─ ─ ─
//!   │ n cells │    │ n cells │ 2n cells         │
//!   └─────────┘    └─────────┴──────────────────┴─ ─ ─ ─ ─
//! ```
//!
//! A cell never moves, so a reference to it stays valid while the table grows. A cell of the first
//! part costs what a cell of a plain array costs.

use extant_base::narrow::fits_usize;
use std::sync::OnceLock;

/// With this many blocks, each twice as long as the one before, no 32-bit number is too large.
const BLOCKS: usize = 33;

/// A table that grows while threads read it. See the module's picture.
pub(crate) struct LazyTable<T> {
    first: Box<[OnceLock<T>]>,
    later: [OnceLock<Box<[OnceLock<T>]>>; BLOCKS],
}

impl<T> LazyTable<T> {
    /// A table whose first part has `len` cells.
    pub(crate) fn new(len: usize) -> LazyTable<T> {
        LazyTable { first: cells(len), later: [const { OnceLock::new() }; BLOCKS] }
    }

    /// Cell `n`. The table grows if it has no such cell.
    pub(crate) fn cell(&self, n: u32) -> &OnceLock<T> {
        let n = fits_usize(n.into());
        match self.first.get(n) {
            Some(cell) => cell,
            None => self.later_cell(n - self.first.len()),
        }
    }

    #[cold]
    fn later_cell(&self, n: usize) -> &OnceLock<T> {
        let unit = self.first.len().max(1);
        let block = (n / unit + 1).ilog2();
        let before = unit * ((1 << block) - 1);
        let cells = self.later[block as usize].get_or_init(|| cells(unit << block));
        &cells[n - before]
    }

    /// All cells of the first part, and those of the other parts that are in memory.
    #[cfg(test)]
    pub(crate) fn cells(&self) -> impl Iterator<Item = &OnceLock<T>> {
        let later =
            self.later.iter().filter_map(|block| block.get()).flat_map(|cells| cells.iter());
        self.first.iter().chain(later)
    }
}

impl<T> Default for LazyTable<T> {
    fn default() -> LazyTable<T> {
        LazyTable::new(0)
    }
}

fn cells<T>(len: usize) -> Box<[OnceLock<T>]> {
    (0..len).map(|_| OnceLock::new()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_cell_of_its_own() {
        for first in [0, 1, 3, 8] {
            let table = LazyTable::new(first);
            for n in 0..200 {
                assert!(table.cell(n).set(n).is_ok(), "{n} with {first} cells at first");
            }
            for n in 0..200 {
                assert_eq!(table.cell(n).get(), Some(&n));
            }
        }
    }

    #[test]
    fn a_table_grows_only_where_it_is_used() {
        let table: LazyTable<u8> = LazyTable::new(4);
        table.cell(50).set(1).unwrap();
        // Cells 4..8, 8..16 and 16..32 are in the blocks before, which are not used.
        assert_eq!(table.cells().count(), 4 + 32);
    }
}
