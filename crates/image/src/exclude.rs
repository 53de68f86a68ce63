//! Names to leave out: a list of patterns of which the last match decides.
//!
//! ```text
//!   *.o          leave out every name that ends in .o
//!   !keep.o      but not this one
//!   # comment    ignored, like empty lines
//! ```
//!
//! A directory is left out with everything below it: no pattern can bring back a name in it. For
//! the patterns see [`crate::glob`].

use crate::error::SourceError;
use crate::glob::Glob;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Patterns of names to leave out; see
/// [`SourceOptions::excludes`](crate::SourceOptions::excludes).
///
/// As in `.gitignore`: `*.o` matches at any depth. A pattern with a slash before its end starts at
/// the root of the image. A slash at the end matches directories only. `*`, `?`, `[a-z]` and
/// `[!a-z]` match within a name; `**` matches any number of directories. `!` at the start includes
/// the name again. The last pattern that matches decides. Everything below an excluded directory
/// stays out.
#[derive(Clone, Debug, Default)]
pub struct Excludes {
    rules: Vec<(Glob, bool)>,
}

impl Excludes {
    /// A list that leaves out nothing.
    pub fn new() -> Excludes {
        Excludes::default()
    }

    /// Adds a pattern.
    ///
    /// # Errors
    /// `Option` when the pattern is invalid.
    pub fn add(&mut self, pattern: impl AsRef<[u8]>) -> Result<(), SourceError> {
        let pattern = pattern.as_ref();
        self.rule(pattern).map_err(|fault| SourceError::Option {
            option: "--exclude",
            value: String::from_utf8_lossy(pattern).into_owned(),
            fault,
        })
    }

    /// Adds the patterns of a file, one in each line. Empty lines and lines that start with `#` are
    /// ignored.
    ///
    /// # Errors
    /// `Io`; `Line` with the number of an invalid line.
    pub fn add_file(&mut self, path: &Path) -> Result<(), SourceError> {
        let text = std::fs::read(path).map_err(|e| SourceError::io("read", path, e))?;
        for (number, line) in text.split(|&b| b == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            self.rule(line).map_err(|fault| SourceError::Line {
                path: path.to_owned(),
                line: number + 1,
                fault: format!("pattern {fault}"),
            })?;
        }
        Ok(())
    }

    fn rule(&mut self, pattern: &[u8]) -> Result<(), String> {
        let (pattern, leave_out) = match pattern.strip_prefix(b"!") {
            Some(pattern) => (pattern, false),
            None => (pattern, true),
        };
        self.rules.push((Glob::new(pattern, false)?, leave_out));
        Ok(())
    }

    /// True if there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// True if `path`, relative to the root of the image, is left out. Its parents are not
    /// considered.
    pub fn leave_out(&self, path: &Path, is_directory: bool) -> bool {
        self.match_bytes(path.as_os_str().as_bytes(), is_directory)
    }

    pub(crate) fn match_bytes(&self, path: &[u8], is_directory: bool) -> bool {
        let last = self.rules.iter().rev().find(|(glob, _)| glob.matches(path, is_directory));
        last.is_some_and(|(_, leave_out)| *leave_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_pattern_that_matches_decides() {
        let mut excludes = Excludes::new();
        for pattern in ["*.o", "!keep.o", "/build/"] {
            excludes.add(pattern).unwrap();
        }
        let out = |path: &str, directory| excludes.leave_out(path.as_ref(), directory);
        assert!(out("x/a.o", false) && !out("x/keep.o", false));
        assert!(out("build", true) && !out("build", false) && !out("x/build", true));
        let error = excludes.add("[").unwrap_err().to_string();
        assert_eq!(error, "--exclude [: has a [ without ]");
    }

    #[test]
    fn a_bad_line_of_a_file_is_named_by_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("excludes");
        std::fs::write(&path, "# remark\n\n*.o\r\n../x\n").unwrap();
        let error = Excludes::new().add_file(&path).unwrap_err().to_string();
        assert!(error.ends_with("excludes line 4: pattern leads out of the tree (..)"), "{error}");
    }
}
