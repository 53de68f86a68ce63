//! What a program recovered, compared with the tree.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::tree::{LARGEST, Tree, below, content_of};

/// How many files a program recovered.
pub(crate) struct Recovered {
    /// With their content, under any name.
    pub(crate) contents: usize,
    /// With their content, at their path.
    pub(crate) named: usize,
}

impl Tree {
    /// Compares the files in a directory with the tree.
    pub(crate) fn compare(&self, dir: &Path) -> Result<Recovered> {
        let mut found = HashSet::new();
        let mut dirs = vec![dir.to_path_buf()];
        while let Some(dir) = dirs.pop() {
            let Ok(entries) = fs::read_dir(&dir) else { continue };
            for entry in entries {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    dirs.push(entry.path());
                } else if kind.is_file() && entry.metadata()?.len() <= LARGEST as u64 {
                    found.extend(self.number_of(&fs::read(entry.path())?));
                }
            }
        }
        let is_named =
            |n: &usize| fs::read(below(dir, *n)).is_ok_and(|bytes| bytes == content_of(*n));
        let named = (0..self.count()).filter(is_named).count();
        Ok(Recovered { contents: found.len(), named })
    }

    /// The number of the file with this content.
    fn number_of(&self, content: &[u8]) -> Option<usize> {
        let digits = content.get(..16)?;
        let n: usize = std::str::from_utf8(digits).ok()?.trim_end().parse().ok()?;
        (n < self.count() && content_of(n) == content).then_some(n)
    }
}
