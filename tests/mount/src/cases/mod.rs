//! The script, with one file for each family of cases.

mod access_lists;
mod content;
mod copies;
mod flags;
mod full;
mod limits;
mod links;
mod listings;
mod locks;
mod memory;
mod names;
mod opening;
mod ownership;
mod permissions;
mod read_only;
mod renames;
mod space;
mod special;
mod syncs;
mod threads;
mod times;
mod xattrs;

use crate::script::Script;

/// A family's name and its script.
pub type Family = (&'static str, fn(&mut Script));

/// Families that work on any new volume of about 64 MiB.
pub const GENERAL: &[Family] = &[
    ("permissions", permissions::run),
    ("ownership", ownership::run),
    ("access-lists", access_lists::run),
    ("times", times::run),
    ("time-changes", times::changes),
    ("names", names::run),
    ("links", links::run),
    ("renames", renames::run),
    ("opening", opening::run),
    ("content", content::run),
    ("space", space::run),
    ("copies", copies::run),
    ("memory", memory::run),
    ("xattrs", xattrs::run),
    ("flags", flags::run),
    ("listings", listings::run),
    ("special", special::run),
    ("locks", locks::run),
    ("syncs", syncs::run),
    ("threads", threads::run),
    ("limits", limits::run),
];

/// Families that need a volume made for them; they work in its root.
pub const OWN: &[Family] = &[
    ("full", full::run),
    ("read-only-prepare", read_only::prepare),
    ("read-only", read_only::run),
    ("many-links-prepare", links::prepare_many),
    ("many-links", links::run_many),
    ("statfs", limits::statfs),
];

/// Runs a family by its name.
///
/// # Panics
/// If there is none of that name.
pub fn run(name: &str, script: &mut Script) {
    if let Some((family, act)) = GENERAL.iter().find(|(family, _)| *family == name) {
        script.family(family, act);
        return;
    }
    let (family, act) = OWN.iter().find(|(family, _)| *family == name).expect("a family's name");
    script.named(family);
    act(script);
}

/// The other process of the family of locks.
pub fn hold_lock(kind: &str, path: &str) {
    locks::hold(kind, path);
}
