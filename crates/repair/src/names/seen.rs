//! The names of one directory, to find equal ones.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::ops::Range;

/// Names, and the inodes to which they lead.
#[derive(Default)]
pub(super) struct Seen {
    /// All names, one after the other.
    text: Vec<u8>,
    places: HashTable<Place>,
    hasher: DefaultHashBuilder,
}

struct Place {
    name: Range<usize>,
    ino: u32,
}

impl Seen {
    /// Adds a name that leads to `ino`.
    ///
    /// Errors: the inode to which the name leads already.
    pub(super) fn add(&mut self, name: &[u8], ino: u32) -> Result<(), u32> {
        let Seen { text, places, hasher } = self;
        let hash = hasher.hash_one(name);
        if let Some(place) = places.find(hash, |place| text[place.name.clone()] == *name) {
            return Err(place.ino);
        }
        let start = text.len();
        text.extend_from_slice(name);
        let place = Place { name: start..text.len(), ino };
        places.insert_unique(hash, place, |place| hasher.hash_one(&text[place.name.clone()]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_added_once() {
        let mut seen = Seen::default();
        for n in 0..1000u32 {
            assert_eq!(seen.add(format!("name{n}").as_bytes(), n), Ok(()));
        }
        assert_eq!(seen.add(b"name77", 5), Err(77));
        assert_eq!(seen.add(b"name7", 5), Err(7));
        assert_eq!(seen.add(b"name", 5), Ok(()));
    }
}
