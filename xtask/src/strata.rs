//! Checks that the modules of a crate use only their own stratum and those below.
//!
//! ```text
//!   use crate::space::Space     in crates/fs/src/map/change.rs     an arrow  map ──► space
//!
//!   strata of a crate, from the lowest:   context │ space │ inode … │ …      arrows point down
//!   modules that reach each other                                            a cycle, a defect
//! ```
//!
//! A module here is a file or folder directly under `src`. Arrows are read from the `crate::` paths
//! of the sources, tests excluded. A name that the crate root re-exports counts for its module.
//! Methods that a module adds to a type of another module are not detected.
//!
//! A crate that still has defects has a limit: the number that it has today. The check fails if a
//! crate has more, and also if it has fewer, so that the limit is lowered with it. Limits only
//! decrease.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A crate and its limits.
struct Crate {
    /// Its directory.
    dir: &'static str,
    /// Its strata from the lowest, each a list of modules. Empty if only cycles count.
    strata: &'static [&'static [&'static str]],
    /// Number of arrows that still point up.
    up: usize,
    /// Number of modules that are still part of a cycle.
    in_cycles: usize,
}

const fn only_cycles(dir: &'static str, in_cycles: usize) -> Crate {
    Crate { dir, strata: &[], up: 0, in_cycles }
}

const FS: &[&[&str]] = &[
    &["context", "parallel"],
    &["space"],
    &["inode", "orphan", "quota", "staged"],
    &[
        "attributes",
        "cached",
        "create",
        "data",
        "dir",
        "direct",
        "fast_commit",
        "file",
        "filesystem",
        "inline",
        "inline_change",
        "journal_map",
        "map",
        "metadata",
        "mount",
        "names",
        "node",
        "open",
        "path",
        "read_dir",
        "recovery",
        "remove_inode",
        "statfs",
        "sums",
        "sync_way",
        "volume",
        "walk",
        "xattr",
    ],
    &["bulk", "exclusive", "mkfs", "resize", "tune"],
    &["check", "scrub", "survey"],
];

const JOURNAL: &[&[&str]] = &[
    &["cache"],
    &["log"],
    &["records"],
    &["fast_commit"],
    &["recovery"],
    &["commit"],
    &["journal"],
    &["handle"],
    &["meta_mut"],
];

const CRATES: &[Crate] = &[
    only_cycles("crates/base", 0),
    only_cycles("crates/crc32c", 0),
    only_cycles("crates/ondisk", 0),
    only_cycles("crates/blockdev", 10),
    only_cycles("crates/raid", 0),
    Crate { dir: "crates/journal", strata: JOURNAL, up: 0, in_cycles: 0 },
    only_cycles("crates/pagecache", 9),
    Crate { dir: "crates/fs", strata: FS, up: 13, in_cycles: 31 },
    only_cycles("crates/image", 0),
    only_cycles("crates/fuse", 0),
    only_cycles("crates/capi", 0),
    only_cycles("crates/cli", 0),
    only_cycles("bench", 0),
];

/// Arrows between modules: from, to, and the files that contain them.
type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Checks every crate against its limit; with `report`, prints each arrow up and each cycle.
pub fn check(report: bool) -> Result<(), String> {
    let mut wrong = Vec::new();
    let (mut all_up, mut all_cyclic) = (0, 0);
    for krate in CRATES {
        let sources = sources(Path::new(krate.dir))?;
        let arrows = arrows(&sources);
        let up = arrows_up(&arrows, krate.strata);
        let cycles = cycles(&arrows);
        let cyclic: usize = cycles.iter().map(Vec::len).sum();
        (all_up, all_cyclic) = (all_up + up.len(), all_cyclic + cyclic);
        if report {
            let count: usize = arrows.values().map(BTreeMap::len).sum();
            let (dir, modules) = (krate.dir, module_names(&sources).len());
            println!(
                "{dir}: {modules} modules, {count} arrows, {} up, {cyclic} in cycles",
                up.len()
            );
            up.iter().for_each(|line| println!("  up: {line}"));
            cycles.iter().for_each(|cycle| println!("  cycle: {}", cycle.join(", ")));
        }
        wrong.extend(unknown_modules(&sources, krate));
        for (what, is, limit) in
            [("arrows up", up.len(), krate.up), ("modules in cycles", cyclic, krate.in_cycles)]
        {
            if is > limit {
                wrong.push(format!("{}: {is} {what}, the limit is {limit}", krate.dir));
            } else if is < limit {
                let dir = krate.dir;
                wrong.push(format!("{dir}: {is} {what}: lower its limit of {limit} in strata.rs"));
            }
        }
    }
    if wrong.is_empty() {
        println!("== strata: ok, {all_up} arrows up and {all_cyclic} modules in cycles are left");
        return Ok(());
    }
    Err(format!("strata (cargo xtask layers --report):\n  {}", wrong.join("\n  ")))
}

/// A source file: its path under `src`, and its text without comments and tests.
struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The file or folder directly under `src`. `None` for the crate root.
    fn module(&self) -> Option<&str> {
        let first = self.path.split('/').next()?.trim_end_matches(".rs");
        (!matches!(first, "lib" | "main")).then_some(first)
    }
}

fn sources(dir: &Path) -> Result<Vec<Source>, String> {
    let root = dir.join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path: PathBuf = entry.map_err(|e| e.to_string())?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let inside = path.strip_prefix(&root).map_err(|e| e.to_string())?;
            let inside = inside.to_string_lossy().into_owned();
            if inside.ends_with(".rs") && !is_test(&inside) {
                let text = fs::read_to_string(&path).map_err(|e| format!("{inside}: {e}"))?;
                found.push(Source { path: inside, text: code_of(&text) });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn is_test(path: &str) -> bool {
    let stem = |part: &str| part.trim_end_matches(".rs").to_owned();
    path.split('/').map(stem).any(|part| {
        matches!(part.as_str(), "test" | "tests")
            || part.starts_with("test_")
            || part.ends_with("_test")
            || part.ends_with("_tests")
    })
}

/// A source without comments, and without the test module at its end.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_test = line.trim() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if is_test {
            break;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}

fn module_names(sources: &[Source]) -> BTreeSet<&str> {
    sources.iter().filter_map(Source::module).collect()
}

/// The names that the crate root re-exports, with the module of each.
fn re_exports(sources: &[Source]) -> BTreeMap<String, String> {
    let root = sources.iter().find(|source| source.path == "lib.rs");
    let text = root.map(|source| source.text.as_str()).unwrap_or_default();
    let mut names = BTreeMap::new();
    for part in text.split("pub use ").skip(1) {
        let path = part.split(';').next().unwrap_or_default();
        let Some((module, rest)) = path.trim_start_matches("crate::").split_once("::") else {
            continue;
        };
        for name in words(rest) {
            names.insert(name.to_owned(), module.trim().to_owned());
        }
    }
    names
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn arrows(sources: &[Source]) -> Arrows {
    let modules = module_names(sources);
    let re_exports = re_exports(sources);
    let mut arrows = Arrows::new();
    for source in sources {
        let Some(from) = source.module() else { continue };
        for name in source.text.split("crate::").skip(1).flat_map(heads) {
            let to = match modules.contains(name) {
                true => Some(name),
                false => re_exports.get(name).map(String::as_str).filter(|to| modules.contains(to)),
            };
            if let Some(to) = to.filter(|to| *to != from) {
                let files = arrows.entry(from.to_owned()).or_default().entry(to.to_owned());
                files.or_default().insert(source.path.clone());
            }
        }
    }
    arrows
}

/// The first names of the paths after a `crate::`: one, or each of a list in braces.
fn heads(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else {
        return words(rest).take(1).collect();
    };
    let (mut depth, mut at, mut found) = (0, 0, Vec::new());
    for (n, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.extend(words(&list[at..n]).take(1));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(words(&list[at..n]).take(1));
                at = n + 1;
            }
            _ => {}
        }
    }
    found
}

fn arrows_up(arrows: &Arrows, strata: &[&[&str]]) -> Vec<String> {
    let level = |module: &str| strata.iter().position(|stratum| stratum.contains(&module));
    let mut up = Vec::new();
    for (from, targets) in arrows {
        for (to, files) in targets {
            if let (Some(a), Some(b)) = (level(from), level(to))
                && a < b
            {
                let files: Vec<&str> = files.iter().map(String::as_str).collect();
                up.push(format!("{from} uses {to} ({})", files.join(", ")));
            }
        }
    }
    up
}

fn unknown_modules(sources: &[Source], krate: &Crate) -> Vec<String> {
    if krate.strata.is_empty() {
        return Vec::new();
    }
    let known = |module: &&str| krate.strata.iter().any(|stratum| stratum.contains(module));
    let unknown = module_names(sources).into_iter().filter(|module| !known(module));
    unknown.map(|module| format!("{}: {module} has no stratum in strata.rs", krate.dir)).collect()
}

/// Groups of modules that reach each other.
fn cycles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|module| (module.as_str(), reachable(arrows, module))).collect();
    let mut cycles: Vec<Vec<String>> = Vec::new();
    for (module, reached) in &reach {
        if !reached.contains(module) || cycles.iter().flatten().any(|known| known == module) {
            continue;
        }
        let back = |other: &&&str| reach.get(**other).is_some_and(|back| back.contains(module));
        cycles.push(reached.iter().filter(back).map(|other| (*other).to_owned()).collect());
    }
    cycles
}

fn reachable<'a>(arrows: &'a Arrows, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for to in arrows.get(module).into_iter().flat_map(BTreeMap::keys) {
            if found.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<Source> {
        let source =
            |(path, text): &(&str, &str)| Source { path: (*path).to_owned(), text: code_of(text) };
        files.iter().map(source).collect()
    }

    #[test]
    fn an_arrow_up_is_named_with_its_file() {
        let sources = crate_of(&[
            ("lib.rs", "mod low; mod high; pub use high::Thing;"),
            ("low.rs", "use crate::{Thing, other::X};"),
            ("high/mod.rs", "use crate::low::Low;"),
        ]);
        let arrows = arrows(&sources);
        assert_eq!(arrows_up(&arrows, &[&["low"], &["high"]]), ["low uses high (low.rs)"]);
        assert_eq!(cycles(&arrows), [["high", "low"]]);
    }

    #[test]
    fn tests_and_comments_make_no_arrows() {
        let text =
            "// use crate::b\nfn a() {}\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n";
        let sources = crate_of(&[("lib.rs", ""), ("a.rs", text), ("b.rs", "use crate::a::A;")]);
        assert!(cycles(&arrows(&sources)).is_empty());
    }

    #[test]
    fn a_module_without_a_stratum_is_named() {
        let sources = crate_of(&[("a.rs", ""), ("b.rs", "")]);
        let krate = Crate { dir: "c", strata: &[&["a"]], up: 0, in_cycles: 0 };
        assert_eq!(unknown_modules(&sources, &krate), ["c: b has no stratum in strata.rs"]);
    }
}
