//! The files, functions and types that ARCHITECTURE names exist.

use extant_testkit::scratch::workspace_dir;
use std::collections::{BTreeSet, HashSet};
use std::fs;

/// Rust sources: their paths, each folder's, and every word in them.
fn sources() -> (BTreeSet<String>, HashSet<String>) {
    let (mut paths, mut words) = (BTreeSet::new(), HashSet::new());
    let mut dirs = vec![workspace_dir()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            let is_dir = entry.file_type().unwrap().is_dir();
            if name == "target" || name.starts_with('.') {
                continue;
            }
            let is_source = name.ends_with(".rs") || name == "Cargo.toml";
            paths.insert(path.display().to_string());
            if is_dir {
                dirs.push(path);
            } else if is_source {
                let text = fs::read_to_string(&path).unwrap();
                let is_word = |c: char| c.is_alphanumeric() || c == '_';
                words.extend(text.split(|c| !is_word(c)).map(str::to_owned));
            }
        }
    }
    (paths, words)
}

#[test]
fn what_architecture_names_is_there() {
    let text = fs::read_to_string(workspace_dir().join("docs/ARCHITECTURE.md")).unwrap();
    let (paths, words) = sources();
    let (mut count, mut missing) = (0, BTreeSet::new());
    for line in text.lines() {
        for name in line.split('`').skip(1).step_by(2) {
            if name.is_empty() || name.contains([' ', '*', '(', '&']) || name.starts_with("/dev") {
                continue;
            }
            count += 1;
            let there = match name.contains('/') || name.ends_with(".rs") {
                true => {
                    let end = format!("/{}", name.trim_end_matches('/'));
                    paths.iter().any(|path| path.ends_with(&end))
                }
                false => name.split("::").all(|word| words.contains(word) || word.contains('.')),
            };
            if !there {
                missing.insert(name.to_owned());
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
    assert!(count > 150, "{count} names");
}
