//! Owners and modes as told, whoever runs the build.
//!
//! ```text
//!   --owner 0:0            all
//!   --mode D0755,F=u=rw…   clauses, in order
//!   ownership file         PATH UID GID [MODE]     a line a rule; later lines win
//!                          /etc/shadow  0    42   0640
//!                          /home/*      1000 1000 -
//! ```
//!
//! They apply in this order, so that the file has the last word.

use crate::entry::{Kind, Node};
use crate::error::SourceError;
use crate::glob::Glob;
use crate::tree::Tree;
use hashbrown::HashMap;
use std::path::Path;

/// A change of permission bits: clauses joined by commas, as `chmod` has them.
///
/// A clause is octal (`0644`) or symbolic (`u=rwX`, `go-w`, `+x`, `u+s`, `+t`; without `ugoa` all
/// three are meant). `X` is `x` for directories and for files that some may execute. A `D` or `F`
/// before a clause applies it to directories only, or to everything else only: `D0755,F0644`.
/// Symbolic links keep their mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange {
    clauses: Vec<Clause>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    directories: bool,
    others: bool,
    what: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Octal(u16),
    /// Bits of `who`, operator, permission bits of one class (0..=7), `X`, and special bits.
    Symbolic {
        who: u16,
        operator: u8,
        bits: u16,
        execute_if_any: bool,
        special: u16,
    },
}

impl ModeChange {
    /// Reads clauses. The error says what is wrong.
    pub fn parse(text: &str) -> Result<ModeChange, SourceError> {
        let clauses = text.split(',').map(clause).collect::<Result<_, _>>();
        clauses.map(|clauses| ModeChange { clauses }).map_err(|fault| SourceError::Option {
            option: "--mode",
            value: text.to_owned(),
            fault,
        })
    }

    /// The permission bits after the change.
    pub fn apply(&self, mode: u16, is_directory: bool) -> u16 {
        let fits = |c: &&Clause| if is_directory { c.directories } else { c.others };
        self.clauses.iter().filter(fits).fold(mode, |mode, clause| match clause.what {
            Change::Octal(bits) => bits,
            Change::Symbolic { who, operator, bits, execute_if_any, special } => {
                let execute = execute_if_any && (is_directory || mode & 0o111 != 0);
                let bits = bits | u16::from(execute);
                let spread = (bits << 6 | bits << 3 | bits) & who | special;
                match operator {
                    b'+' => mode | spread,
                    b'-' => mode & !spread,
                    _ => {
                        let set_id = (who & 0o100) << 5 | (who & 0o010) << 7;
                        let sticky = if who == 0o777 { 0o1000 } else { 0 };
                        mode & !(who | set_id | sticky) | spread
                    }
                }
            }
        })
    }
}

fn clause(text: &str) -> Result<Clause, String> {
    let (directories, others, rest) = match text.as_bytes().first() {
        Some(b'D') => (true, false, &text[1..]),
        Some(b'F') => (false, true, &text[1..]),
        _ => (true, true, text),
    };
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = u16::from_str_radix(rest, 8).ok().filter(|bits| *bits <= 0o7777);
        let bits = bits.ok_or_else(|| format!("{rest} is no octal mode up to 7777"))?;
        return Ok(Clause { directories, others, what: Change::Octal(bits) });
    }
    let at = rest.find(['+', '-', '=']);
    let at = at.ok_or("a clause is octal or has one of + - =, as in u=rwX,go=rX or D0755,F0644")?;
    let mut who = 0;
    for c in rest[..at].chars() {
        who |= match c {
            'u' => 0o700,
            'g' => 0o070,
            'o' => 0o007,
            'a' => 0o777,
            c => return Err(format!("{c:?} is not one of u g o a")),
        };
    }
    let who = if who == 0 { 0o777 } else { who };
    let (mut bits, mut special, mut execute_if_any) = (0, 0, false);
    for c in rest[at + 1..].chars() {
        match c {
            'r' => bits |= 4,
            'w' => bits |= 2,
            'x' => bits |= 1,
            'X' => execute_if_any = true,
            's' => special |= (who & 0o100) << 5 | (who & 0o010) << 7,
            't' => special |= 0o1000,
            c => return Err(format!("{c:?} is not one of r w x X s t")),
        }
    }
    let operator = rest.as_bytes()[at];
    let what = Change::Symbolic { who, operator, bits, execute_if_any, special };
    Ok(Clause { directories, others, what })
}

/// Owners and modes by path, read from a file.
///
/// A line is `PATH UID GID [MODE]`, apart by spaces or tabs. PATH starts at the root of the image
/// and may hold `*`, `?`, `[a-z]` and `**`; a slash at its end matches directories only; a space
/// in it is written `\ `. `-` keeps a value. MODE is as in [`ModeChange`]. Empty lines and lines
/// that start with `#` are remarks. Lines apply from first to last, so later ones win. A file
/// with several names follows the lines of all of them.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    rules: Vec<Rule>,
    /// Rules for one path each: they cost nothing however many there are.
    exact: HashMap<Vec<u8>, Vec<u32>>,
    globs: Vec<(Glob, u32)>,
}

#[derive(Clone, Debug)]
struct Rule {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<ModeChange>,
}

impl Ownership {
    /// Reads an ownership file. Errors name the line.
    pub fn read(path: &Path) -> Result<Ownership, SourceError> {
        let text = std::fs::read(path).map_err(|e| SourceError::io("read", path, e))?;
        Ownership::parse(&text, path)
    }

    /// Reads the text of an ownership file; `path` is what errors call it.
    pub fn parse(text: &[u8], path: &Path) -> Result<Ownership, SourceError> {
        let mut ownership = Ownership::default();
        for (number, line) in text.split(|&b| b == b'\n').enumerate() {
            let line = line.trim_ascii();
            if !line.is_empty() && !line.starts_with(b"#") {
                ownership.add(line).map_err(|fault| SourceError::Line {
                    path: path.to_owned(),
                    line: number + 1,
                    fault,
                })?;
            }
        }
        Ok(ownership)
    }

    fn add(&mut self, line: &[u8]) -> Result<(), String> {
        let fields = fields(line);
        let (path, uid, gid, mode) = match &fields[..] {
            [path, uid, gid] => (path, uid, gid, None),
            [path, uid, gid, mode] => (path, uid, gid, Some(mode)),
            _ => return Err("a line is PATH UID GID [MODE]".into()),
        };
        let id = |field: &[u8], what| match field {
            b"-" => Ok(None),
            field => std::str::from_utf8(field)
                .ok()
                .and_then(|text| text.parse().ok())
                .map(Some)
                .ok_or_else(|| {
                    let shown = crate::error::Shown::bytes(field);
                    format!("{what} {shown} is neither a number below 2^32 nor -")
                }),
        };
        let mode = match mode.map(|mode| std::str::from_utf8(mode)) {
            None | Some(Ok("-")) => None,
            Some(Ok(text)) => Some(ModeChange::parse(text).map_err(|e| match e {
                SourceError::Option { fault, .. } => format!("mode: {fault}"),
                other => other.to_string(),
            })?),
            Some(Err(_)) => return Err("mode is no text".into()),
        };
        let rule = Rule { uid: id(uid, "owner")?, gid: id(gid, "group")?, mode };
        let glob = Glob::new(path, true).map_err(|fault| format!("path {fault}"))?;
        let number = u32::try_from(self.rules.len()).map_err(|_| "too many lines")?;
        match glob.literal() {
            Some(path) => self.exact.entry(path).or_default().push(number),
            None => self.globs.push((glob, number)),
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Changes the tree as the rules say.
    pub(crate) fn apply(&self, tree: &mut Tree) {
        let mut hits: Vec<(u32, u32)> = Vec::new();
        let mut look = |path: &[u8], is_directory, node| {
            let exact = self.exact.get(path).into_iter().flatten().copied();
            let globs = self.globs.iter().filter(|(glob, _)| glob.matches(path, is_directory));
            hits.extend(exact.chain(globs.map(|(_, rule)| *rule)).map(|rule| (node, rule)));
        };
        look(b"", true, 0);
        tree.each_name(&mut |path, _, id| {
            look(path, tree.node(id).kind.is_directory(), id.0);
            true
        });
        hits.sort_unstable();
        hits.dedup();
        for (node, rule) in hits {
            let (node, rule) = (&mut tree.nodes[node as usize], &self.rules[rule as usize]);
            node.meta.uid = rule.uid.unwrap_or(node.meta.uid);
            node.meta.gid = rule.gid.unwrap_or(node.meta.gid);
            if let Some(mode) = &rule.mode {
                change_mode(node, mode);
            }
        }
    }
}

/// Applies a change of mode to a node; symbolic links keep theirs.
pub(crate) fn change_mode(node: &mut Node, change: &ModeChange) {
    if !matches!(node.kind, Kind::Symlink(_)) {
        node.meta.mode = change.apply(node.meta.mode, node.kind.is_directory());
    }
}

/// Splits a line at spaces and tabs that no backslash stands before. Backslashes stay: the glob
/// reads them.
fn fields(line: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = vec![Vec::new()];
    let mut escaped = false;
    for &byte in line {
        if matches!(byte, b' ' | b'\t') && !escaped {
            if fields.last().is_some_and(|f| !f.is_empty()) {
                fields.push(Vec::new());
            }
            continue;
        }
        escaped = byte == b'\\' && !escaped;
        if let Some(field) = fields.last_mut() {
            field.push(byte);
        }
    }
    fields.retain(|f| !f.is_empty());
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_change_as_chmod_would() {
        // clauses, mode, directory?, result
        let cases = [
            ("0644", 0o755, false, 0o644),
            ("D0755,F0644", 0o700, true, 0o755),
            ("D0755,F0644", 0o700, false, 0o644),
            ("u=rwX,go=rX", 0o600, false, 0o644),
            ("u=rwX,go=rX", 0o700, false, 0o755),
            ("u=rwX,go=rX", 0o700, true, 0o755),
            ("go-w", 0o777, false, 0o755),
            ("+x", 0o644, false, 0o755),
            ("u+s,g+s", 0o755, false, 0o6755),
            ("+t", 0o777, true, 0o1777),
            ("a=rx", 0o7777, true, 0o555),
            ("u=rw", 0o4755, false, 0o655),
        ];
        for (text, mode, directory, result) in cases {
            let change = ModeChange::parse(text).unwrap();
            let got = change.apply(mode, directory);
            assert_eq!(got, result, "{text} on {mode:o}: {got:o}");
        }
        for bad in ["", "D", "89", "10000", "u=q", "x+r", "rwx"] {
            assert!(ModeChange::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_line_is_named_by_number() {
        let path = Path::new("owners");
        let error = |text: &str| Ownership::parse(text.as_bytes(), path).unwrap_err().to_string();
        assert_eq!(error("# x\n/a 0\n"), "owners line 2: a line is PATH UID GID [MODE]");
        assert_eq!(
            error("/a root 0"),
            "owners line 1: owner root is neither a number below 2^32 nor -"
        );
        assert!(error("/a 0 0 9").starts_with("owners line 1: mode: "));
        assert!(error("/../a 0 0").contains("leads out of the tree"));
    }

    #[test]
    fn a_space_in_a_path_is_escaped() {
        assert_eq!(fields(b"/a\\ b  1\t2"), [&b"/a\\ b"[..], b"1", b"2"]);
    }
}
