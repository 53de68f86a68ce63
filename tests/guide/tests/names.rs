//! The files, functions, types and variables that the documents name exist.
//!
//! ```text
//!   `files/file/write.rs`          a path that ends so
//!   `EXTANT_SOAK=8`                the word before the `=` is in a source, or the name of a file
//!   `MetaCache::writer`            all words are; one source has the type and the last word
//!   `tests/it/{names,tune}.rs`     each of them
//!   GroupIndex, space.rs           in diagrams: types, paths of sources, names with `_`
//! ```

use extant_testkit::scratch::workspace_dir;
use std::collections::{BTreeSet, HashSet};
use std::fs;

/// The documents whose names are checked.
const DOCUMENTS: [&str; 6] =
    ["ARCHITECTURE", "GLOSSARY", "LOCKS", "DURABILITY", "FORMAT", "TESTING"];

/// Names of others, which no source of ours contains.
const EXTERNAL: [&str; 15] = [
    "AddressSanitizer",
    "EXT4_IOC_GETFSUUID",
    "EXT4_IOC_MOVE_EXT",
    "EXT4_IOC_SETVERSION",
    "FICLONE",
    "FIDEDUPERANGE",
    "FIFREEZE",
    "FITHAW",
    "FS_IOC_FIEMAP",
    "FS_IOC_GETFSSYSFSPATH",
    "FS_IOC_GETFSUUID",
    "MOUNT_ATTR_IDMAP",
    "STATX_DIOALIGN",
    "UNSHARE_RANGE",
    "mount_setattr",
];

/// What the project contains.
#[derive(Default)]
struct Known {
    paths: BTreeSet<String>,
    /// Words of sources, and of names of files.
    words: HashSet<String>,
    /// The words of each source.
    sources: Vec<HashSet<String>>,
}

impl Known {
    fn read() -> Known {
        let mut known = Known::default();
        let mut dirs = vec![workspace_dir()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let name = name.to_string_lossy();
                if ["target", "corpus"].contains(&&*name) || name.starts_with('.') {
                    continue;
                }
                known.paths.insert(path.display().to_string());
                known.words.extend(words(&name).map(str::to_owned));
                // Programs without an extension are scripts.
                let is_source = match name.rsplit_once('.') {
                    Some((_, extension)) => ["rs", "toml", "sh", "c", "py"].contains(&extension),
                    None => true,
                };
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(path);
                } else if is_source {
                    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                    let found: HashSet<String> = words(&text).map(str::to_owned).collect();
                    known.words.extend(found.iter().cloned());
                    known.sources.push(found);
                }
            }
        }
        known
    }

    fn has(&self, name: &str) -> bool {
        if name.contains('/') || name.ends_with(".rs") {
            let end = format!("/{}", name.trim_end_matches('/'));
            return self.paths.iter().any(|path| path.ends_with(&end));
        }
        let name = name.split('=').next().unwrap_or_default();
        let of_type: Vec<&str> =
            words(name).skip_while(|word| !word.starts_with(char::is_uppercase)).collect();
        let together = |source: &HashSet<String>| of_type.iter().all(|word| source.contains(*word));
        words(name).all(|word| self.words.contains(word) || EXTERNAL.contains(&word))
            && (of_type.len() < 2 || self.sources.iter().any(together))
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// `a{b,c}d` is `abd` and `acd`.
fn alternatives(name: &str) -> Vec<String> {
    match name.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?))) {
        Some((start, (list, end))) => {
            list.split(',').map(|part| format!("{start}{part}{end}")).collect()
        }
        None => vec![name.to_owned()],
    }
}

/// The names between backticks of a line. What is a command, an option, a pattern, a value or a
/// file that a run makes is no name.
fn marked(line: &str) -> Vec<String> {
    let is_name = |name: &&str| {
        let begins_elsewhere = ["/dev", "-", ".", "target/", "data/"];
        !name.is_empty()
            && !name.contains([' ', '*', '(', '&', '…'])
            && !name.contains("NAME")
            && !begins_elsewhere.iter().any(|start| name.starts_with(start))
    };
    line.split('`').skip(1).step_by(2).filter(is_name).flat_map(alternatives).collect()
}

/// The names in a line of a diagram: types of several words, paths of sources, names with `_`.
fn drawn(line: &str) -> Vec<String> {
    let tokens = line.split(|c: char| !c.is_alphanumeric() && !"_/.:".contains(c));
    let tokens = tokens.map(|token| token.trim_matches(['.', ':', '/']));
    let is_type = |token: &str| {
        let chars: Vec<char> = token.chars().collect();
        chars.windows(2).any(|pair| pair[0].is_lowercase() && pair[1].is_uppercase())
    };
    let is_name = |token: &&str| token.ends_with(".rs") || token.contains(['_']) || is_type(token);
    tokens.filter(is_name).map(str::to_owned).collect()
}

#[test]
fn what_the_documents_name_is_there() {
    let known = Known::read();
    let (mut count, mut missing) = (0, BTreeSet::new());
    for document in DOCUMENTS {
        let path = workspace_dir().join(format!("docs/{document}.md"));
        let text = fs::read_to_string(path).unwrap();
        let mut in_diagram = false;
        for line in text.lines() {
            if line.starts_with("```") {
                in_diagram = !in_diagram;
                continue;
            }
            for name in if in_diagram { drawn(line) } else { marked(line) } {
                count += 1;
                if !known.has(&name) {
                    missing.insert(format!("{document}: {name}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(count > 900, "{count} names");
}

#[test]
fn a_name_that_is_gone_is_found() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let known = Known {
        paths: BTreeSet::from(["/w/space/group.rs".to_owned()]),
        words: set(&["Group", "Space", "find", "mark", "space"]),
        sources: vec![set(&["Group", "find"]), set(&["Space", "mark"])],
    };
    for name in ["Group::find", "space::Space::mark", "mark=1", "space/group.rs", "find"] {
        assert!(known.has(name), "{name}");
    }
    for name in ["Group::mark", "Group::lose", "space/groups.rs", "lose"] {
        assert!(!known.has(name), "{name}");
    }
    assert_eq!(drawn("Space ──► group_index.rs, MetaCache"), ["group_index.rs", "MetaCache"]);
    assert_eq!(marked("`a/{b,c}.rs`, `cargo test`, `-o x`"), ["a/b.rs", "a/c.rs"]);
}
