//! All visible properties of a directory tree, comparable and as JSON lines.
//!
//! ```text
//!   host directory ──walk──┐
//!                          ├──► Manifest ──diff(Look)──► the first differences, in words
//!   extant tree --json ────┘
//! ```
//! `docs/JSON.md` describes the lines.

mod diff;
mod entry;
mod walk;

use std::collections::BTreeMap;

pub use diff::{Diff, Look};
pub use entry::{Entry, Kind, Time, base64, encode_name};
pub use walk::hash_file;

/// Every entry of a tree by its encoded path; `/` is the root.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifest {
    /// The entries.
    pub entries: BTreeMap<String, Entry>,
}

impl Manifest {
    /// Reads the lines that `extant tree --json --hash` prints. `Err` names the line.
    pub fn from_json_lines(text: &str) -> Result<Self, String> {
        let mut manifest = Self::default();
        for (at, line) in text.lines().enumerate() {
            let entry: Entry = serde_json::from_str(line).map_err(|e| {
                format!("line {}: {e}: {}", at + 1, line.chars().take(200).collect::<String>())
            })?;
            if let Some(old) = manifest.entries.insert(entry.path.clone(), entry) {
                return Err(format!("line {}: {} for the second time", at + 1, old.path));
            }
        }
        Ok(manifest)
    }

    /// The same lines.
    pub fn to_json_lines(&self) -> String {
        let line = |e| serde_json::to_string(e).expect("an entry has only strings as keys") + "\n";
        self.entries.values().map(line).collect()
    }

    /// Removes every entry at or below `path`.
    pub fn without(self, path: &str) -> Self {
        let mut left = self.without_below(path);
        left.entries.remove(path);
        left
    }

    /// Removes every entry below `path`.
    pub fn without_below(mut self, path: &str) -> Self {
        let below = format!("{path}/");
        self.entries.retain(|p, _| !p.starts_with(&below));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_as_they_went() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a%b"), "text").unwrap();
        std::os::unix::fs::symlink("a%b", dir.path().join("link")).unwrap();
        let manifest = Manifest::walk(dir.path()).unwrap();
        assert_eq!(manifest.entries.keys().collect::<Vec<_>>(), ["/", "/a%25b", "/link"]);
        assert_eq!(Manifest::from_json_lines(&manifest.to_json_lines()).unwrap(), manifest);
        let hash = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1";
        assert_eq!(manifest.entries["/a%25b"].sha256.as_deref(), Some(hash));
    }

    #[test]
    fn differences_are_named_with_both_sides() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "text").unwrap();
        let mine = Manifest::walk(dir.path()).unwrap();
        let mut theirs = mine.clone();
        theirs.entries.get_mut("/a").unwrap().uid += 1;
        theirs.entries.insert("/b".into(), mine.entries["/a"].clone());
        let diff = mine.diff(&theirs, Look::all());
        assert_eq!(diff.len(), 2);
        let text = diff.to_string();
        assert!(text.contains("/a: uid"), "{text}");
        assert!(text.contains("/b: only on the right"), "{text}");
        assert!(mine.diff(&mine, Look::all()).is_empty());
    }
}
