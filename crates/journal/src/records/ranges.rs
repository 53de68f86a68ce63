//! Ranges of a file's blocks that changed. No two of them touch.

/// First and last block of each range, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<(u32, u32)>);

impl Ranges {
    /// Adds the blocks from `first` to `last`.
    pub(crate) fn insert(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        let start = self.0.partition_point(|(_, end)| end.saturating_add(1) < first);
        let joined = self.0[start..].partition_point(|(begin, _)| *begin <= last.saturating_add(1));
        match &mut self.0[start..start + joined] {
            [] => self.0.insert(start, (first, last)),
            [old, rest @ ..] => {
                let end = rest.last().map_or(old.1, |range| range.1);
                *old = (old.0.min(first), end.max(last));
                self.0.drain(start + 1..start + joined);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::cut_test::Random;

    #[test]
    fn any_order_gives_the_blocks_that_were_put_in() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let mut ranges = Ranges::default();
            let mut blocks = [false; 64];
            for _ in 0..random.below(20) {
                let first = random.below(64) as u32;
                let last = (first + random.below(9) as u32).min(63);
                ranges.insert(first, last);
                blocks[first as usize..=last as usize].fill(true);
                let mut found = [false; 64];
                let mut before = None;
                for (first, last) in ranges.iter() {
                    assert!(
                        first <= last && before.is_none_or(|end| end + 1 < first),
                        "{ranges:?}"
                    );
                    found[first as usize..=last as usize].fill(true);
                    before = Some(last);
                }
                assert_eq!(found, blocks, "seed {seed}");
            }
        }
    }

    #[test]
    fn the_ends_of_a_file_are_in_reach() {
        let mut ranges = Ranges::default();
        ranges.insert(u32::MAX, u32::MAX);
        ranges.insert(0, 0);
        ranges.insert(5, 4);
        assert!(ranges.iter().eq([(0, 0), (u32::MAX, u32::MAX)]));
        ranges.insert(1, u32::MAX);
        assert!(ranges.iter().eq([(0, u32::MAX)]));
        ranges.insert(3, u32::MAX);
        assert!(ranges.iter().eq([(0, u32::MAX)]));
    }
}
