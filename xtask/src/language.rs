//! Checks the language of the sources: words, the length of comment lines, `# Errors` sections.
//!
//! ```text
//!   /// Wakes whoever waits.     a comment: the word "whoever" is refused
//!   fn wake_whoever(&self)      an identifier: refused, too
//!   "whoever"                   a string: not examined
//! ```
//!
//! A directory that still has defects has a limit: the number that it has today. The check fails if
//! there are more, and also if there are fewer, so that the limit is lowered with them. Limits only
//! decrease.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that the field does not use.
const WORDS: [&str; 9] =
    ["told", "untold", "teller", "anew", "nobody", "somebody", "someone", "whoever", "loudly"];

/// Length of a comment line, in characters.
const WIDTH: usize = 100;

/// A directory and its limits.
struct Dir {
    path: &'static str,
    /// Uses of [`WORDS`] in comments and identifiers.
    words: usize,
    /// Comment lines that are longer than [`WIDTH`].
    long_lines: usize,
    /// Public functions that return `Result` without an `# Errors` section. `None`: not checked.
    without_errors: Option<usize>,
}

const fn library(path: &'static str, without_errors: usize) -> Dir {
    Dir { path, words: 0, long_lines: 0, without_errors: Some(without_errors) }
}

const fn program(path: &'static str) -> Dir {
    Dir { path, words: 0, long_lines: 0, without_errors: None }
}

const DIRS: &[Dir] = &[
    library("crates/base", 0),
    library("crates/crc32c", 0),
    library("crates/ondisk", 0),
    library("crates/blockdev", 0),
    library("crates/raid", 0),
    library("crates/disk", 0),
    library("crates/journal", 0),
    library("crates/pagecache", 0),
    library("crates/fs", 0),
    library("crates/image", 0),
    library("crates/fuse", 0),
    library("crates/repair", 0),
    library("crates/capi", 0),
    program("crates/cli"),
    program("bench"),
    program("tests"),
    program("fuzz"),
    program("xtask"),
];

/// Checks every directory against its limits; with `report`, prints each defect.
pub fn check(report: bool) -> Result<(), String> {
    let mut wrong = Vec::new();
    let mut left = 0;
    for dir in DIRS {
        let mut found = Found::default();
        for file in sources(Path::new(dir.path))? {
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            found.add(&file.display().to_string(), &text);
        }
        let kinds = [
            ("refused words", found.words, Some(dir.words)),
            ("comment lines over 100 columns", found.long_lines, Some(dir.long_lines)),
            ("public functions without # Errors", found.without_errors, dir.without_errors),
        ];
        for (what, places, limit) in kinds {
            let Some(limit) = limit else { continue };
            left += places.len();
            if report {
                places.iter().for_each(|place| println!("{what}: {place}"));
            }
            let (path, is) = (dir.path, places.len());
            if is > limit {
                wrong.push(format!("{path}: {is} {what}, the limit is {limit}"));
            } else if is < limit {
                wrong.push(format!(
                    "{path}: {is} {what}: lower its limit of {limit} in language.rs"
                ));
            }
        }
    }
    if wrong.is_empty() {
        println!("== language: ok, {left} defects are left");
        return Ok(());
    }
    Err(format!("language (cargo xtask language --report):\n  {}", wrong.join("\n  ")))
}

/// All Rust sources below `root`, sorted. This file, which lists the refused words, is not one.
fn sources(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|e| e.to_string())?.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !path.ends_with("xtask/src/language.rs")
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Defects, each as its file, line and text.
#[derive(Default)]
struct Found {
    words: Vec<String>,
    long_lines: Vec<String>,
    without_errors: Vec<String>,
}

impl Found {
    fn add(&mut self, file: &str, text: &str) {
        let place = |n: usize, what: &str| format!("{file}:{}: {what}", n + 1);
        for (n, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > WIDTH {
                self.long_lines.push(place(n, line.trim()));
            }
        }
        for (n, line) in without_strings(text).lines().enumerate() {
            let refused = words(line).filter(|word| WORDS.contains(&word.as_str()));
            self.words.extend(refused.map(|word| place(n, &word)));
        }
        // Functions of tests are not an API.
        let names = if file.contains("/src/") { without_errors(text) } else { Vec::new() };
        self.without_errors.extend(names.iter().map(|(n, name)| place(*n, name)));
    }
}

/// `text` with empty string and character literals. Lines keep their numbers.
fn without_strings(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '/' if rest.starts_with("//") => {
                let len = rest.find('\n').unwrap_or(rest.len());
                out.push_str(&rest[..len]);
                len
            }
            'r' if is_raw_string(rest) => {
                let hashes = rest[1..].bytes().take_while(|&byte| byte == b'#').count();
                let end = format!("\"{}", "#".repeat(hashes));
                let start = hashes + 2;
                let len = rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len());
                out.extend(rest[..len].chars().filter(|&c| c == '\n'));
                len
            }
            '"' => {
                let len = end_of_string(rest);
                out.extend(rest[..len].chars().filter(|&c| c == '\n'));
                len
            }
            '\'' if rest.starts_with("'\"'") => 3,
            '\'' if rest.starts_with("'\\") => rest[2..].find('\'').map_or(rest.len(), |at| at + 3),
            c => {
                // The rest of a word, so that its "r" does not begin a raw string.
                let word =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let len = word.max(c.len_utf8());
                out.push_str(&rest[..len]);
                len
            }
        };
        rest = &rest[len..];
    }
    out
}

fn is_raw_string(rest: &str) -> bool {
    rest[1..].trim_start_matches('#').starts_with('"')
}

/// Length of the string literal at the start of `rest`.
fn end_of_string(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The words of a line in lower case; `wait_here` and `WaitHere` are two each.
fn words(line: &str) -> impl Iterator<Item = String> {
    let parts = line.split(|c: char| !c.is_alphabetic());
    parts.flat_map(|part| {
        let mut words = vec![String::new()];
        let mut was_lower = false;
        for c in part.chars() {
            if c.is_uppercase() && was_lower {
                words.push(String::new());
            }
            was_lower = c.is_lowercase();
            words.last_mut().expect("never empty").extend(c.to_lowercase());
        }
        words
    })
}

/// Line and name of each `pub fn` that returns `Result` and whose documentation has no `# Errors`.
/// The test module at the end of a file does not count.
fn without_errors(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut has_errors = false;
    let mut lines = text.lines().enumerate();
    while let Some((n, line)) = lines.next() {
        let line = line.trim();
        if line.starts_with("mod tests") {
            break;
        }
        if line.starts_with("///") {
            has_errors |= line == "/// # Errors";
            continue;
        }
        if line.starts_with("#[") || line.starts_with("//") {
            continue;
        }
        let had_errors = std::mem::take(&mut has_errors);
        let Some(name) = name_of_public_fn(line) else { continue };
        let mut signature = line.to_owned();
        while !signature.contains(['{', ';']) {
            let Some((_, next)) = lines.next() else { break };
            signature.push_str(next.trim());
        }
        let result = signature.rsplit_once("->").map_or("", |(_, result)| result);
        if !had_errors && result.contains("Result<") && !result.contains("Iterator<") {
            found.push((n, name.to_owned()));
        }
    }
    found
}

fn name_of_public_fn(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("pub ")?;
    for qualifier in ["const ", "unsafe ", "async "] {
        rest = rest.strip_prefix(qualifier).unwrap_or(rest);
    }
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Found {
        let mut found = Found::default();
        found.add("c/src/a.rs", text);
        found
    }

    #[test]
    fn words_are_found_in_comments_and_identifiers_but_not_in_strings() {
        let text = concat!(
            "// Someone waits.\n",
            "let is_whoever = IsLoudly(r#\"whoever \" whoever\"#, \"whoever\n\\\"whoever\", '\"');\n",
            "for x in y {} // whoever",
        );
        let places = [
            "c/src/a.rs:1: someone",
            "c/src/a.rs:2: whoever",
            "c/src/a.rs:2: loudly",
            "c/src/a.rs:4: whoever",
        ];
        assert_eq!(found(text).words, places);
    }

    #[test]
    fn long_lines_of_comments_are_found() {
        let long = "é".repeat(98);
        let text = format!("/// {long}\n// {long}\n//{long}\nlet x = \"{long}\";\n");
        assert_eq!(found(&text).long_lines.len(), 2);
    }

    #[test]
    fn public_functions_that_can_fail_need_a_section() {
        let text = "\
/// Opens.
///
/// # Errors
/// All.
#[must_use]
pub fn open() -> Result<(), Error> {}
/// Reads.
pub fn read(
    &self,
) -> Result<(), Error>;
pub const unsafe fn len() -> u64 {}
pub(crate) fn own() -> Result<(), Error> {}
mod tests {
pub fn test() -> Result<(), Error> {}
";
        assert_eq!(found(text).without_errors, ["c/src/a.rs:8: read"]);
    }
}
