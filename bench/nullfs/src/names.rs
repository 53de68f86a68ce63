//! The names of a directory: looked up by name, listed in order of creation.

use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Place of the first name, after "." (1) and ".." (2).
const FIRST: u64 = 3;

/// The names of one directory.
pub(super) struct Names {
    pub(super) parent: u64,
    by_name: HashMap<Arc<[u8]>, (u64, u64)>,
    /// By place. No later name gets the same place, so a listing can continue where it was.
    by_place: BTreeMap<u64, (Arc<[u8]>, u64)>,
    next: u64,
}

impl Names {
    /// No names yet.
    pub(super) fn new(parent: u64) -> Names {
        Names { parent, by_name: HashMap::new(), by_place: BTreeMap::new(), next: FIRST }
    }

    /// The node of a name.
    pub(super) fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|&(_, number)| number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The names after place `offset`: the place, the name and the node of each.
    pub(super) fn after(&self, offset: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        let names = self.by_place.range(offset.max(FIRST - 1) + 1..);
        names.map(|(place, (name, number))| (*place, &**name, *number))
    }

    /// Adds a name that is not in the directory yet.
    pub(super) fn insert(&mut self, name: &[u8], number: u64) {
        let name: Arc<[u8]> = name.into();
        self.by_name.insert(Arc::clone(&name), (self.next, number));
        self.by_place.insert(self.next, (name, number));
        self.next += 1;
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some((place, _)) = self.by_name.remove(name) {
            self.by_place.remove(&place);
        }
    }

    /// Gives an existing name another node.
    pub(super) fn set(&mut self, name: &[u8], number: u64) {
        if let Some((place, old)) = self.by_name.get_mut(name) {
            *old = number;
            if let Some((_, old)) = self.by_place.get_mut(place) {
                *old = number;
            }
        }
    }
}
