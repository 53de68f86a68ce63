//! Copies the sources that the explorer runs, and replaces the names of locks, conditions, atomics,
//! threads and the clock.
//!
//! ```text
//!   crates/journal/src      std::sync, std::thread, std::time, parking_lot
//!   crates/pagecache/src  ──────────────────────────────────► OUT_DIR: modules of this crate
//!   base's lock.rs, …                     crate::model::…
//! ```
//!
//! One other change: each of [`wrong_forms`] is added beside the right form, and selected at run
//! time.

#[path = "src/wrong_forms.rs"]
mod wrong_forms;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use wrong_forms::WRONG_FORMS;

/// A module of this crate, and its source: a file, or a crate's folder.
const MODULES: [(&str, &str); 6] = [
    ("lock", "crates/base/src/lock.rs"),
    ("journal", "crates/journal/src"),
    ("pagecache", "crates/pagecache/src"),
    ("transfers", "crates/fs/src/state/inode/transfers.rs"),
    ("in_flight", "crates/fs/src/files/direct/in_flight.rs"),
    ("cache_driver", "crates/pagecache/tests/it/common/mod.rs"),
];

/// Parts of the crates' tests that scenes use, too; other tests are left out.
const HELPERS: [&str; 2] = ["test_journal", "test_log"];

/// Names that are replaced in every file.
const NAMES: [(&str, &str); 8] = [
    ("std::sync", "crate::model::sync"),
    ("std::thread", "crate::model::thread"),
    ("std::time", "crate::model::time"),
    ("parking_lot::", "crate::model::parking_lot::"),
    ("extant_base::lock", "crate::lock"),
    ("extant_pagecache::", "crate::pagecache::"),
    ("thread_local!", "shuttle::thread_local!"),
    ("#[cfg(test)]", "#[cfg(any())]"),
];

/// The zero of the clock must not outlive a run: (file, its text, the text here).
const ZERO: (&str, &str, &str) =
    ("pagecache/writeback/mod.rs", "*BORN.get_or_init(|| time)", "Instant::BORN");

fn main() {
    let root = PathBuf::from(env("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().expect("the workspace is there");
    let out = PathBuf::from(env("OUT_DIR"));
    let mut modules = String::new();
    let mut used = vec![0; WRONG_FORMS.len()];
    for (name, from) in MODULES {
        let from = root.join(from);
        println!("cargo::rerun-if-changed={}", from.display());
        let main = if from.is_dir() { "lib.rs" } else { "mod.rs" };
        // An earlier build may have left files that have moved since.
        match std::fs::remove_dir_all(out.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{name}: {error}"),
            _ => {}
        }
        copy(name, &from, &out.join(name), main, &mut used);
        let path = out.join(name).join(main);
        writeln!(
            modules,
            "#[cfg(test)]\n#[allow(warnings, clippy::all, clippy::undocumented_unsafe_blocks)]"
        )
        .and_then(|()| writeln!(modules, "#[path = {path:?}]\npub(crate) mod {name};"))
        .expect("a string takes text");
    }
    for (form, used) in WRONG_FORMS.iter().zip(used) {
        assert_eq!(
            used, 1,
            "wrong form {:?}: its place is not found once in {}",
            form.name, form.file
        );
    }
    fast_overwrite(&root, &mut modules, &out);
    std::fs::write(out.join("modules.rs"), modules).expect("OUT_DIR takes files");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/wrong_forms.rs");
}

/// The two lines that order memory in the code of an inode's fast overwrites, for a model of the
/// rest.
fn fast_overwrite(root: &Path, modules: &mut String, out: &Path) {
    let read = |path: &str| {
        let path = root.join(path);
        println!("cargo::rerun-if-changed={}", path.display());
        std::fs::read_to_string(path).expect("the sources can be read")
    };
    let part = |text: &str, from: &str, to: &str| {
        let start = text.find(from).unwrap_or_else(|| panic!("{from:?} is not found"));
        let len = text[start..].find(to).unwrap_or_else(|| panic!("{to:?} is not found"));
        text[start..start + len + to.len()].to_owned()
    };
    let disable = read("crates/fs/src/state/inode/mod.rs");
    let disable = part(&disable, "pub(crate) fn disable_fast_overwrite(&self) {", "\n    }\n");
    let enabled = read("crates/pagecache/src/cache.rs");
    let enabled = part(&enabled, "let is_enabled = ||", ";\n");
    let text = format!(
        "use crate::fast_overwrite::Inode;\nuse std::sync::atomic::Ordering::{{self, Acquire}};\n\
         impl Inode {{\n    {disable}}}\n\
         pub(crate) fn is_enabled(inode: &Inode) -> bool {{\n    let enabled = &inode.fast_overwrite_until;\n    {enabled}    is_enabled()\n}}\n"
    );
    let path = out.join("fast_overwrite_code.rs");
    std::fs::write(&path, text).expect("OUT_DIR takes files");
    writeln!(modules, "#[cfg(test)]\n#[path = {path:?}]\npub(crate) mod fast_overwrite_code;")
        .expect("a string takes text");
}

fn env(name: &str) -> String {
    std::env::var(name).expect("cargo sets it")
}

fn copy(module: &str, from: &Path, to: &Path, main: &str, used: &mut [usize]) {
    std::fs::create_dir_all(to).expect("OUT_DIR takes folders");
    if !from.is_dir() {
        return copy_file(module, "mod.rs", from, &to.join(main), used);
    }
    for (path, below) in files(from, PathBuf::new()) {
        let to = to.join(&below);
        std::fs::create_dir_all(to.parent().expect("a file is in a folder"))
            .expect("OUT_DIR takes folders");
        copy_file(module, &below.display().to_string(), &path, &to, used);
    }
}

fn files(folder: &Path, below: PathBuf) -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the sources can be read") {
        let path = entry.expect("the sources can be read").path();
        let below = below.join(path.file_name().expect("an entry has a name"));
        match path.is_dir() {
            true => found.extend(files(&path, below)),
            false => found.push((path, below)),
        }
    }
    found
}

/// A static counter outlives a run, and parallel tests share it: it stays `std`'s own, not the
/// model's.
fn counters(text: &str) -> String {
    let line = |line: &str| match line.trim_start().starts_with("static ") {
        true => line.replace(" Atomic", " ::std::sync::atomic::Atomic"),
        false => line.to_owned(),
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

fn copy_file(module: &str, name: &str, from: &Path, to: &Path, used: &mut [usize]) {
    let mut text = std::fs::read_to_string(from).expect("the sources can be read");
    let file = format!("{module}/{name}");
    for (form, used) in WRONG_FORMS.iter().zip(used).filter(|(form, _)| form.file == file) {
        let place = format!("{}{}", form.before, form.right);
        *used += text.matches(&place).count();
        let (right, wrong) = (form.right, form.wrong);
        let both = format!("{{ if WRONG({:?}) {{ {wrong} }} else {{ {right} }} }}", form.name);
        text = text.replace(&place, &format!("{}{both}", form.before));
    }
    // A module of this crate is not its root.
    if matches!(module, "journal" | "pagecache") {
        text = text.replace("crate::", &format!("crate::{module}::"));
    }
    if module == "in_flight" {
        text = text.replace("use crate::files::direct::", "use crate::direct_scenes::");
        text = text.replace("use crate::state::", "use crate::direct_scenes::");
    }
    // The explorer's condition needs to know the size of what is locked.
    if module == "lock" {
        text = text.replace("<T: ?Sized>(&self, guard", "<T>(&self, guard");
        // A waiter that checks again by itself would hide a missing wake-up.
        for (says, here) in [
            ("const CHECKS: u32 = 16;", "const CHECKS: u32 = 1;"),
            ("const SPINS: u32 = 8;", "const SPINS: u32 = 0;"),
        ] {
            assert_eq!(text.matches(says).count(), 1, "{file} has {says:?}");
            text = text.replace(says, here);
        }
    }
    if name == "lib.rs" {
        for helper in HELPERS {
            text = text.replace(&format!("#[cfg(test)]\nmod {helper};"), &format!("mod {helper};"));
        }
        text = text.replace("\nmod ", "\npub(crate) mod ");
    }
    for (name, here) in NAMES {
        text = text.replace(name, here);
    }
    text = counters(&text);
    let (place, says, here) = ZERO;
    if place == file {
        assert_eq!(text.matches(says).count(), 1, "{file} has {says:?}");
        text = text.replace(says, here);
    }
    text = text.replace("WRONG(", "crate::explore::is_wrong(");
    text = text.replace(
        "use super::{Location, Rank};",
        "use super::{Location, Rank};\n    use crate::model::keys::*;",
    );
    text.push_str("\n#[allow(unused_imports)]\nuse crate::model::keys::*;\n");
    if std::fs::read_to_string(to).is_ok_and(|old| old == text) {
        return;
    }
    std::fs::write(to, text).expect("OUT_DIR takes files");
}
