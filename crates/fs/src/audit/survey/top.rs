//! The largest few of any number of rows.

use extant_base::Ino;
use std::cmp::Reverse;

/// The order: larger values first; for equal values, smaller numbers first.
type Rank = (u64, Reverse<Ino>);

/// At most `limit` rows, the largest first.
#[derive(Debug)]
pub(super) struct Top<T> {
    limit: usize,
    rows: Vec<(Rank, T)>,
}

impl<T> Top<T> {
    pub(super) fn new(limit: usize) -> Top<T> {
        Top { limit, rows: Vec::new() }
    }

    /// Adds a row if it is among the largest. `make` is called only then.
    pub(super) fn offer(&mut self, value: u64, ino: Ino, make: impl FnOnce() -> T) {
        let rank = (value, Reverse(ino));
        if self.rows.len() >= self.limit && self.rows.last().is_some_and(|(last, _)| *last >= rank)
        {
            return;
        }
        let at = self.rows.partition_point(|(other, _)| *other > rank);
        self.rows.truncate(self.limit - 1);
        self.rows.insert(at, (rank, make()));
    }

    pub(super) fn merge(&mut self, other: Top<T>) {
        for ((value, Reverse(ino)), row) in other.rows {
            self.offer(value, ino, || row);
        }
    }

    pub(super) fn into_rows(self) -> Vec<T> {
        self.rows.into_iter().map(|(_, row)| row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept_in_order_and_equal_ones_by_number() {
        let mut top = Top::new(3);
        for (value, ino) in [(5, 20), (1, 11), (7, 12), (5, 13), (5, 14), (9, 15)] {
            top.offer(value, Ino::new(ino).unwrap(), || (value, ino));
        }
        let mut other = Top::new(3);
        other.offer(8, Ino::new(99).unwrap(), || (8, 99));
        assert_eq!(top.rows.len(), 3);
        top.merge(other);
        assert_eq!(top.into_rows(), [(9, 15), (8, 99), (7, 12)]);
        let mut equal = Top::new(2);
        for ino in [20, 13, 14] {
            equal.offer(5, Ino::new(ino).unwrap(), || ino);
        }
        assert_eq!(equal.into_rows(), [13, 14]);
    }
}
