//! The volumes in a folder: the bytes of each, and a table of their structures.
//!
//! ```text
//!   volumes     name block checksummed dirty members striped journal   a line a volume
//!   NAME        its bytes
//!   NAME.places kind at len                                a line a structure, kind by number
//! ```

use super::volumes::{Volume, all};
use extant_compat_tests::volume::{Kind, Place, Rich};
use std::fmt::Write;
use std::fs;
use std::io::{Error, Result};
use std::path::Path;

pub fn write(dir: &Path) -> Result<()> {
    let mut list = String::new();
    for Volume { rich, dirty, members, striped, journal, .. } in all() {
        let Rich { name, bytes, block, places, checksummed } = rich;
        let _ = writeln!(
            list,
            "{name} {block} {} {} {members} {} {journal}",
            *checksummed as u8, *dirty as u8, *striped as u8
        );
        let mut table = String::new();
        for place in places {
            let kind = Kind::ALL.iter().position(|kind| *kind == place.kind);
            let kind = kind.expect("all of them are listed");
            let _ = writeln!(table, "{kind} {} {}", place.at, place.len);
        }
        fs::write(dir.join(name), bytes)?;
        fs::write(dir.join(format!("{name}.places")), table)?;
    }
    fs::write(dir.join("volumes"), list)
}

pub fn read(dir: &Path) -> Result<Vec<Volume>> {
    let list = fs::read_to_string(dir.join("volumes"))?;
    list.lines().map(|line| read_one(dir, line)).collect()
}

fn read_one(dir: &Path, line: &str) -> Result<Volume> {
    let bad = || Error::other(format!("{line}: not a line of ours"));
    let (name, rest) = line.split_once(' ').ok_or_else(bad)?;
    let [block, checksummed, dirty, members, striped, journal] = numbers(rest).ok_or_else(bad)?;
    let mut places = Vec::new();
    for line in fs::read_to_string(dir.join(format!("{name}.places")))?.lines() {
        let [kind, at, len] = numbers(line).ok_or_else(bad)?;
        places.push(Place { kind: Kind::ALL[kind], at, len });
    }
    // Once in the life of the process.
    let name: &'static str = name.to_owned().leak();
    let bytes = fs::read(dir.join(name))?;
    let rich = Rich { name, bytes, block, places, checksummed: checksummed != 0 };
    Ok(Volume { members, striped: striped != 0, journal, ..Volume::new(rich, dirty != 0) })
}

fn numbers<const N: usize>(line: &str) -> Option<[usize; N]> {
    let words: Option<Vec<usize>> = line.split(' ').map(|word| word.parse().ok()).collect();
    words?.try_into().ok()
}
