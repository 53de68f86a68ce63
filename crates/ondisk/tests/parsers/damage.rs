//! Valid structures with a few bytes changed, the same ones in each run.

/// A small random number generator: one seed replays one run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Runs `parse` on `valid`, then on `rounds` damaged copies of it: flipped bits, edge values of one
/// to eight bytes, cut ends, and sometimes random bytes only.
pub fn damage(name: &str, valid: &[u8], rounds: usize, parse: fn(&[u8])) {
    let mut random = Random(0x5eed_0b5e_55ed);
    parse(valid);
    for round in 0..rounds {
        let mut bytes = valid.to_vec();
        for _ in 0..=random.below(4) {
            // Most fields are near the start.
            let range = if random.below(2) == 0 { bytes.len().min(160) } else { bytes.len() };
            let at = random.below(range);
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                _ => {
                    let value = [0, 1, u64::MAX, 0x7FFF_FFFF, 0x8000, random.next()];
                    let value = value[random.below(6)].to_le_bytes();
                    let len = [1, 2, 4, 8][random.below(4)].min(bytes.len() - at);
                    bytes[at..at + len].copy_from_slice(&value[..len]);
                }
            }
        }
        match random.below(16) {
            0 => bytes.truncate(random.below(bytes.len())),
            1 => bytes.iter_mut().for_each(|byte| *byte = random.next() as u8),
            _ => {}
        }
        let outcome = std::panic::catch_unwind(|| parse(&bytes));
        assert!(outcome.is_ok(), "{name}, round {round}: {bytes:02x?}");
    }
}
