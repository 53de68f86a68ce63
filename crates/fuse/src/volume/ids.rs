//! Mapping between owners on the volume and owners on this system.
//!
//! ```text
//!   volume  0 ──────► 1000  here        "0:1000:1"; ids outside all ranges stay the same
//! ```

use std::fmt;
use std::str::FromStr;

/// A range of ids on the volume and the range that it maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id on the volume.
    pub volume: u32,
    /// First id on this system.
    pub here: u32,
    /// Number of ids.
    pub count: u32,
}

/// Maps owners of the volume to owners of this system. Ranges do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    ranges: Vec<IdRange>,
}

/// Why a map is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadIdMap(&'static str);

impl fmt::Display for BadIdMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for BadIdMap {}

impl IdMap {
    /// The map of these ranges.
    ///
    /// # Errors
    /// If two ranges overlap on one side, or one is empty or extends past the largest id.
    pub fn new(ranges: Vec<IdRange>) -> Result<IdMap, BadIdMap> {
        for (n, range) in ranges.iter().enumerate() {
            let fits = |first: u32| first.checked_add(range.count.saturating_sub(1)).is_some();
            if range.count == 0 || !fits(range.volume) || !fits(range.here) {
                return Err(BadIdMap("a range of owners is empty or reaches past 4294967295"));
            }
            for other in &ranges[..n] {
                let apart = |a: u32, b: u32| {
                    u64::from(a) + u64::from(range.count) <= u64::from(b)
                        || u64::from(b) + u64::from(other.count) <= u64::from(a)
                };
                if !apart(range.volume, other.volume) || !apart(range.here, other.here) {
                    return Err(BadIdMap("two ranges of owners overlap"));
                }
            }
        }
        Ok(IdMap { ranges })
    }

    /// Maps only `volume` of the volume, to `here`.
    pub fn one(volume: u32, here: u32) -> IdMap {
        IdMap { ranges: vec![IdRange { volume, here, count: 1 }] }
    }

    /// The id on this system for owner `id` of the volume.
    pub fn shown(&self, id: u32) -> u32 {
        let within = |range: &&IdRange| id.wrapping_sub(range.volume) < range.count;
        match self.ranges.iter().find(within) {
            Some(range) => range.here + (id - range.volume),
            None => id,
        }
    }

    /// The id on the volume for owner `id` of this system.
    pub fn stored(&self, id: u32) -> u32 {
        let within = |range: &&IdRange| id.wrapping_sub(range.here) < range.count;
        match self.ranges.iter().find(within) {
            Some(range) => range.volume + (id - range.here),
            None => id,
        }
    }
}

impl FromStr for IdRange {
    type Err = BadIdMap;

    /// `VOLUME:HERE[:COUNT]`, decimal.
    fn from_str(text: &str) -> Result<IdRange, BadIdMap> {
        let mut parts = text.split(':').map(|part| part.parse::<u32>());
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Ok(volume)), Some(Ok(here)), count, None) => match count.unwrap_or(Ok(1)) {
                Ok(count) => Ok(IdRange { volume, here, count }),
                Err(_) => Err(BadIdMap("a range of owners is VOLUME:HERE:COUNT, in decimal")),
            },
            _ => Err(BadIdMap("a range of owners is VOLUME:HERE:COUNT, in decimal")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_go_both_ways() {
        let map =
            IdMap::new(vec!["0:1000".parse().unwrap(), "1:100000:65535".parse().unwrap()]).unwrap();
        for (volume, here) in [(0, 1000), (1, 100_000), (65_535, 165_534), (70_000, 70_000)] {
            assert_eq!(map.shown(volume), here);
            assert_eq!(map.stored(here), volume);
        }
        assert_eq!(map.shown(u32::MAX), u32::MAX);
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        let range = |text: &str| text.parse::<IdRange>().unwrap();
        for (a, b) in [("0:10:5", "4:100:1"), ("0:10:5", "9:14:1"), ("0:0:1", "0:5:1")] {
            assert!(IdMap::new(vec![range(a), range(b)]).is_err(), "{a} {b}");
        }
        assert!(IdMap::new(vec![range("4294967295:0:2")]).is_err());
        for text in ["", "1", "a:b", "1:2:3:4", "-1:2"] {
            assert!(text.parse::<IdRange>().is_err(), "{text}");
        }
    }
}
