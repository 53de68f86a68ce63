//! Checks that the modules of a crate use only their own stratum and those below.
//!
//! ```text
//!   use crate::space::Space     in crates/fs/src/inodes/map/change.rs     an arrow  map ──► space
//!
//!   strata of a crate, from the lowest:   context │ space │ inode … │ …      arrows point down
//!   modules that reach each other                                            a cycle, a defect
//! ```
//!
//! A module here is a file or folder directly under `src`, or directly under a folder of `src` that
//! is a stratum of several modules. Arrows are read from the `crate::` paths
//! of the sources, tests excluded. A name that the crate root re-exports counts for its module.
//! Methods that a module adds to a type of another module are not detected.
//!
//! A crate that still has defects has a limit: the number that it has today. The check fails if a
//! crate has more, and also if it has fewer, so that the limit is lowered with it. Limits only
//! decrease.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::methods;

/// A crate and its limits.
struct Crate {
    /// Its directory.
    dir: &'static str,
    /// Its strata from the lowest, each a list of files and folders under `src`. Empty if only
    /// cycles count.
    strata: &'static [&'static [&'static str]],
    /// Strata that are folders of several modules.
    folders: &'static [&'static str],
    /// Number of arrows that still point up.
    up: usize,
    /// Number of modules that are still part of a cycle.
    in_cycles: usize,
}

const fn only_cycles(dir: &'static str, in_cycles: usize) -> Crate {
    Crate { dir, strata: &[], folders: &[], up: 0, in_cycles }
}

const FS: &[&[&str]] = &[
    &["context", "parallel", "progress"],
    &["space"],
    &["state"],
    &["volume"],
    &["inodes"],
    &["tree"],
    &["files"],
    &["recovery"],
    &["api"],
    &["audit"],
    &["open"],
    &["offline"],
];
const FS_FOLDERS: &[&str] = &["state", "inodes", "tree", "files", "audit", "offline"];

const BLOCKDEV: &[&[&str]] = &[
    &["aligned", "forward", "range", "shared_words"],
    &["caller", "dax", "pool"],
    &["device"],
    &["fenced", "file", "memory", "overlay", "read_only", "slice"],
    &["queue"],
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

const PAGECACHE: &[&[&str]] = &[
    &["bits", "config", "frames", "content", "interface", "memory", "stats", "visits"],
    &["folio"],
    &["slots"],
    &["index", "readahead", "reclaim", "writeback"],
    &["shared"],
    &["file"],
    &["owner"],
    &["cache"],
];

const CRATES: &[Crate] = &[
    only_cycles("crates/base", 0),
    only_cycles("crates/crc32c", 0),
    only_cycles("crates/ondisk", 0),
    Crate { dir: "crates/blockdev", strata: BLOCKDEV, folders: &[], up: 0, in_cycles: 0 },
    only_cycles("crates/raid", 0),
    only_cycles("crates/disk", 0),
    Crate { dir: "crates/journal", strata: JOURNAL, folders: &[], up: 0, in_cycles: 0 },
    Crate { dir: "crates/pagecache", strata: PAGECACHE, folders: &[], up: 0, in_cycles: 0 },
    Crate { dir: "crates/fs", strata: FS, folders: FS_FOLDERS, up: 0, in_cycles: 0 },
    only_cycles("crates/image", 0),
    only_cycles("crates/fuse", 0),
    only_cycles("crates/repair", 0),
    only_cycles("crates/capi", 0),
    only_cycles("crates/cli", 0),
    only_cycles("bench", 0),
    only_cycles("bench/nullfs", 0),
    only_cycles("tests/testdev", 0),
];

/// Arrows between modules: from, to, and the files that contain them.
type Arrows = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Checks every crate against its limit; with `report`, prints each arrow up and each cycle.
pub fn check(report: bool) -> Result<(), String> {
    let mut wrong = Vec::new();
    let (mut all_up, mut all_cyclic) = (0, 0);
    let mut methods = methods::Counts::new();
    for krate in CRATES {
        let sources = sources(krate)?;
        let texts: Vec<(&str, &str)> =
            sources.iter().map(|source| (&*source.path, &*source.whole_text)).collect();
        methods::count(krate.dir, &texts, &mut methods);
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
    let counted = methods::check(&methods, report);
    if wrong.is_empty() {
        println!("== strata: ok, {all_up} arrows up and {all_cyclic} modules in cycles are left");
        return counted;
    }
    Err(format!("strata (cargo xtask layers --report):\n  {}", wrong.join("\n  ")))
}

/// A source file: its path under `src`, its module, and its text, whole and without comments and
/// tests.
struct Source {
    path: String,
    /// `None` for the crate root, and for a stratum's list of modules.
    module: Option<String>,
    text: String,
    whole_text: String,
}

impl Source {
    fn new(path: &str, text: &str, folders: &[&str]) -> Source {
        let mut parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
        let module = match (parts.next().unwrap_or_default(), parts.next()) {
            ("lib" | "main", _) => None,
            (folder, Some("mod")) if folders.contains(&folder) => None,
            (folder, Some(inner)) if folders.contains(&folder) => Some(format!("{folder}/{inner}")),
            (first, _) => Some(first.to_owned()),
        };
        let whole_text = text.to_owned();
        Source { path: path.to_owned(), module, text: code_of(text), whole_text }
    }

    fn module(&self) -> Option<&str> {
        self.module.as_deref()
    }
}

fn sources(krate: &Crate) -> Result<Vec<Source>, String> {
    let root = Path::new(krate.dir).join("src");
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
                found.push(Source::new(&inside, &text, krate.folders));
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

/// A source without comments, and without the test module at its end. The paths of a macro
/// (`$crate::`) are omitted: they count where the macro is used.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_test = line.trim() == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if is_test {
            break;
        }
        let code_part = line.split("//").next().unwrap_or_default();
        code.push_str(&code_part.replace("$crate::", ""));
        code.push('\n');
    }
    code
}

fn module_names(sources: &[Source]) -> BTreeSet<&str> {
    sources.iter().filter_map(Source::module).collect()
}

/// The names that the crate root re-exports, with the module of each.
fn re_exports(sources: &[Source]) -> BTreeMap<String, String> {
    let modules = module_names(sources);
    let root = sources.iter().find(|source| source.path == "lib.rs");
    let text = root.map(|source| source.text.as_str()).unwrap_or_default();
    let mut names = BTreeMap::new();
    for part in text.split("pub use ").skip(1) {
        let path = part.split(';').next().unwrap_or_default().trim_start_matches("crate::");
        let Some(module) = module_of(path, &modules) else { continue };
        for name in words(path).skip(module.split('/').count()) {
            names.insert(name.to_owned(), module.clone());
        }
    }
    names
}

/// The module that a path starts with.
fn module_of(path: &str, modules: &BTreeSet<&str>) -> Option<String> {
    let mut parts = words(path);
    let first = parts.next()?;
    if modules.contains(first) {
        return Some(first.to_owned());
    }
    let inner = format!("{first}/{}", parts.next()?);
    modules.contains(inner.as_str()).then_some(inner)
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
        for path in source.text.split("crate::").skip(1).flat_map(paths) {
            let re_exported = || re_exports.get(words(path).next()?).cloned();
            let to = module_of(path, &modules).or_else(re_exported);
            if let Some(to) = to.filter(|to| to != from) {
                let files = arrows.entry(from.to_owned()).or_default().entry(to);
                files.or_default().insert(source.path.clone());
            }
        }
    }
    arrows
}

/// The paths after a `crate::`: one, or each of a list in braces.
fn paths(rest: &str) -> Vec<&str> {
    let Some(list) = rest.strip_prefix('{') else {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        return vec![rest.split(|c| !is_path(c)).next().unwrap_or_default()];
    };
    let (mut depth, mut at, mut found) = (0, 0, Vec::new());
    for (n, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&list[at..n]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&list[at..n]);
                at = n + 1;
            }
            _ => {}
        }
    }
    found
}

/// The file or folder directly under `src` to which a module belongs.
fn top(module: &str) -> &str {
    module.split('/').next().unwrap_or(module)
}

fn arrows_up(arrows: &Arrows, strata: &[&[&str]]) -> Vec<String> {
    let level = |module: &str| strata.iter().position(|stratum| stratum.contains(&top(module)));
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
    let known = |module: &&str| krate.strata.iter().any(|stratum| stratum.contains(&top(module)));
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
        let source = |(path, text): &(&str, &str)| Source::new(path, text, &["folder"]);
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
    fn modules_of_a_folder_count_one_by_one() {
        let sources = crate_of(&[
            ("lib.rs", "mod folder; pub use folder::b::Thing;"),
            ("folder/mod.rs", "pub(crate) mod a; pub(crate) mod b;"),
            ("folder/a.rs", "use crate::Thing;"),
            ("folder/b.rs", "fn f() { crate::folder::a::g(); }"),
        ]);
        assert_eq!(cycles(&arrows(&sources)), [["folder/a", "folder/b"]]);
    }

    #[test]
    fn a_module_without_a_stratum_is_named() {
        let sources = crate_of(&[("a.rs", ""), ("b.rs", "")]);
        let krate = Crate { dir: "c", strata: &[&["a"]], folders: &[], up: 0, in_cycles: 0 };
        assert_eq!(unknown_modules(&sources, &krate), ["c: b has no stratum in strata.rs"]);
    }
}
