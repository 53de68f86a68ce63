//! Links of the documents lead to files, and the guide's contents name each chapter once.

use extant_testkit::scratch::workspace_dir;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The project's own Markdown.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![workspace_dir()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().unwrap().is_dir() && name != "target" && !name.starts_with('.') {
                dirs.push(path);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found
}

/// The targets of a text's links, without the part after `#`.
fn links(text: &str) -> Vec<String> {
    let ends = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    ends.map(|(target, _)| target.split('#').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn every_link_leads_to_a_file() {
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            if link.is_empty() || link.contains("://") || link.starts_with("crate") {
                continue;
            }
            count += 1;
            let to = document.parent().unwrap().join(&link);
            assert!(to.exists(), "{}: {link} leads nowhere", document.display());
        }
    }
    assert!(count > 40, "{count} links");
}

#[test]
fn the_contents_name_each_chapter_once() {
    let guide = workspace_dir().join("docs/guide");
    let named = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(guide.join(file)).unwrap();
        links(&text).into_iter().filter(|link| !link.contains('/')).collect()
    };
    let is_chapter = |path: &Path| {
        let name = path.file_name()?.to_str()?.to_owned();
        (name.ends_with(".md") && !["SUMMARY.md", "README.md"].contains(&&*name)).then_some(name)
    };
    let entries = fs::read_dir(&guide).unwrap().flatten();
    let there: BTreeSet<String> = entries.filter_map(|entry| is_chapter(&entry.path())).collect();
    for contents in ["SUMMARY.md", "README.md"] {
        let chapters: Vec<String> =
            named(contents).into_iter().filter(|name| name != "README.md").collect();
        assert_eq!(chapters.iter().cloned().collect::<BTreeSet<_>>(), there, "{contents}");
        assert_eq!(chapters.len(), there.len(), "{contents} names a chapter twice");
    }
}
