//! Names and paths of inodes, for the report and for names that have to go.
//!
//! ```text
//!   inode ─► its directory ─► … ─► root       upwards: which directories have to be read
//!   each of them read once ─► names           downwards: paths
//! ```

use super::Names;
use crate::scan::{Table, each_entry};
use crate::volume::Volume;
use extant_base::{Ino, Result};
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;

/// How many directories deep a path is at most.
const DEPTH_MAX: usize = 4096;
const ROOT: u32 = Ino::ROOT.get();

/// The first name of `ino` in a directory.
pub(crate) fn name_in(
    volume: &Volume,
    table: &mut Table,
    dir: u32,
    ino: u32,
) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    each_entry(volume, table, dir, &mut |entry| {
        if entry.ino == ino && !entry.is_dots() && found.is_none() {
            found = Some(entry.name.to_vec());
        }
    })?;
    Ok(found)
}

/// The paths of those of `inos` that have one.
pub(crate) fn paths(
    volume: &Volume,
    table: &mut Table,
    names: &Names,
    inos: &[u32],
) -> Result<HashMap<u32, Vec<u8>>> {
    let mut wanted: BTreeMap<u32, HashSet<u32>> = BTreeMap::new();
    for ino in inos {
        let mut at = *ino;
        while at != ROOT
            && let Some(dir) = names.dir_of(at)
            && wanted.entry(dir).or_default().insert(at)
        {
            at = dir;
        }
    }
    let mut own: HashMap<u32, Vec<u8>> = HashMap::new();
    for (dir, inos) in &wanted {
        each_entry(volume, table, *dir, &mut |entry| {
            if inos.contains(&entry.ino) && !entry.is_dots() {
                own.entry(entry.ino).or_insert_with(|| entry.name.to_vec());
            }
        })?;
    }
    Ok(inos.iter().filter_map(|ino| Some((*ino, path(names, &own, *ino)?))).collect())
}

fn path(names: &Names, own: &HashMap<u32, Vec<u8>>, ino: u32) -> Option<Vec<u8>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut at = ino;
    while at != ROOT {
        parts.push(own.get(&at)?);
        at = names.dir_of(at)?;
        if parts.len() > DEPTH_MAX {
            return None;
        }
    }
    let mut path = Vec::new();
    for part in parts.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part);
    }
    Some(if path.is_empty() { b"/".to_vec() } else { path })
}
