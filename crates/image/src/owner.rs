//! Owners and modes given by options, independent of the user that runs the build.
//!
//! ```text
//!   --owner 0:0            all
//!   --mode D0755,F=u=rw…   clauses, in order
//!   ownership file         PATH UID GID [MODE]     one rule in each line; later lines win
//!                          /etc/shadow  0    42   0640
//!                          /home/*      1000 1000 -
//! ```
//!
//! They apply in this order, so the file takes precedence.

use crate::entry::{Kind, Node};
use crate::error::SourceError;
use crate::glob::Glob;
use crate::tree::Tree;
use hashbrown::HashMap;
use std::path::Path;

/// A change of permission bits: clauses separated by commas, as in `chmod`.
///
/// ```text
///   clause   [DF]  0644                          sets exactly these bits, of directories too
///            [DF]  [ugoa…] action…               u=rwX  go-w  u+rw-x  g=u-x  +-x
///            [DF]  + - =  0644                   adds, removes or sets these bits
///   action   + - =  [rwxXst…]                    or one of u g o: the bits of that class
/// ```
///
/// A clause without `ugoa` applies to all three classes. `X` is `x` for directories, and for files
/// for which the clauses so far leave any `x`. `s` is the set-ID bit of `u` and `g`, `t` the sticky
/// bit of `o`. With `=` and letters, a directory keeps its set-ID bits unless there is an `s`. A
/// `D` or `F` before a clause applies it to directories only, or to everything else only:
/// `D0755,F0644`. Symbolic links keep their mode. Source: chmod(1), "MODES".
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
    /// The bits of the classes that the clause names, special bits included, and what is done to
    /// them.
    Symbolic(u16, Vec<Action>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Action {
    /// `+`, `-` or `=`.
    operator: u8,
    bits: Bits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    /// The given bits in every class, before they are limited to the named classes.
    /// `execute_if_any` is `X`.
    Letters {
        bits: u16,
        execute_if_any: bool,
    },
    /// The bits of the class that is `shift` bits from the right.
    CopyOf {
        shift: u16,
    },
    Octal(u16),
}

const USER: u16 = 0o4700;
const GROUP: u16 = 0o2070;
const OTHERS: u16 = 0o1007;
const ALL: u16 = 0o7777;
const SET_IDS: u16 = 0o6000;

impl ModeChange {
    /// Reads clauses.
    ///
    /// # Errors
    /// `Option`, which says what is wrong.
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
        self.clauses.iter().filter(fits).fold(mode, |mode, clause| match &clause.what {
            Change::Octal(bits) => *bits,
            Change::Symbolic(who, actions) => {
                actions.iter().fold(mode, |mode, action| action.apply(*who, mode, is_directory))
            }
        })
    }
}

impl Action {
    fn apply(self, who: u16, mode: u16, is_directory: bool) -> u16 {
        let spread = |bits: u16| bits << 6 | bits << 3 | bits;
        let bits = who
            & match self.bits {
                Bits::Letters { bits, execute_if_any } => {
                    let execute = execute_if_any && (is_directory || mode & 0o111 != 0);
                    bits | spread(u16::from(execute))
                }
                Bits::CopyOf { shift } => spread(mode >> shift & 7),
                Bits::Octal(bits) => bits,
            };
        match self.operator {
            b'+' => mode | bits,
            b'-' => mode & !bits,
            _ => {
                let given = match self.bits {
                    Bits::Octal(_) => ALL,
                    _ => bits,
                };
                let kept = if is_directory { SET_IDS & !given } else { 0 };
                mode & (!who | kept) | bits
            }
        }
    }
}

fn octal(digits: &str) -> Result<u16, String> {
    let bits = u16::from_str_radix(digits, 8).ok().filter(|bits| *bits <= ALL);
    bits.ok_or_else(|| format!("{digits} is no octal mode up to 7777"))
}

fn clause(text: &str) -> Result<Clause, String> {
    let (directories, others, rest) = match text.as_bytes().first() {
        Some(b'D') => (true, false, &text[1..]),
        Some(b'F') => (false, true, &text[1..]),
        _ => (true, true, text),
    };
    let made = |what| Ok(Clause { directories, others, what });
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        return made(Change::Octal(octal(rest)?));
    }
    let is_operator = |c| matches!(c, '+' | '-' | '=');
    let at = rest.find(is_operator);
    let at = at.ok_or("a clause is octal or has one of + - =, as in u=rwX,go=rX or D0755,F0644")?;
    let mut who = 0;
    for c in rest[..at].chars() {
        who |= match c {
            'u' => USER,
            'g' => GROUP,
            'o' => OTHERS,
            'a' => ALL,
            c => return Err(format!("{c:?} is not one of u g o a")),
        };
    }
    let is_all = who == 0;
    let who = if is_all { ALL } else { who };
    let mut actions = Vec::new();
    let mut rest = &rest[at..];
    while let Some(&operator) = rest.as_bytes().first() {
        let end = rest[1..].find(is_operator).map_or(rest.len(), |end| end + 1);
        let text = &rest[1..end];
        rest = &rest[end..];
        let bits = match text {
            "u" => Bits::CopyOf { shift: 6 },
            "g" => Bits::CopyOf { shift: 3 },
            "o" => Bits::CopyOf { shift: 0 },
            text if text.starts_with(|c: char| c.is_ascii_digit()) => {
                if !is_all || !rest.is_empty() || !actions.is_empty() {
                    return Err("octal digits stand alone behind + - =, as in +111".into());
                }
                Bits::Octal(octal(text)?)
            }
            text => letters(text)?,
        };
        actions.push(Action { operator, bits });
    }
    made(Change::Symbolic(who, actions))
}

/// The bits of the letters `rwxXst`.
fn letters(text: &str) -> Result<Bits, String> {
    let (mut bits, mut execute_if_any) = (0, false);
    for c in text.chars() {
        match c {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            'X' => execute_if_any = true,
            's' => bits |= SET_IDS,
            't' => bits |= 0o1000,
            'u' | 'g' | 'o' => return Err(format!("{c:?} copies a class and stands alone")),
            c => return Err(format!("{c:?} is not one of r w x X s t, nor of u g o alone")),
        }
    }
    Ok(Bits::Letters { bits, execute_if_any })
}

/// Owners and modes by path, read from a file.
///
/// A line is `PATH UID GID [MODE]`, separated by spaces or tabs. PATH starts at the root of the
/// image and may contain `*`, `?`, `[a-z]` and `**`. A slash at its end matches directories only. A
/// space in it is written `\ `. `-` keeps a value. MODE is as in [`ModeChange`]. Empty lines and
/// lines that start with `#` are ignored. Lines apply from first to last, so later ones win. A file
/// with several names follows the lines of all of them.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    rules: Vec<Rule>,
    /// Rules for one path each. Their lookup takes constant time, however many there are.
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
    /// Reads an ownership file.
    ///
    /// # Errors
    /// `Io`; `Line` with the number of an invalid line.
    pub fn read(path: &Path) -> Result<Ownership, SourceError> {
        let text = std::fs::read(path).map_err(|e| SourceError::io("read", path, e))?;
        Ownership::parse(&text, path)
    }

    /// Reads the text of an ownership file.
    ///
    /// # Errors
    /// `Line` with the number of an invalid line, and `path` as the name of the file.
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

    /// Applies the rules to the tree.
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

/// Applies a change of mode to a node. A symbolic link keeps its mode.
pub(crate) fn change_mode(node: &mut Node, change: &ModeChange) {
    if !matches!(node.kind, Kind::Symlink(_)) {
        node.meta.mode = change.apply(node.meta.mode, node.kind.is_directory());
    }
}

/// Splits a line at spaces and tabs that do not follow a backslash. Backslashes stay, because the
/// glob reads them.
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
            ("a=rx", 0o7777, true, 0o6555),
            ("a=rx", 0o7777, false, 0o555),
            ("u=rw", 0o4755, false, 0o655),
            ("u=g", 0o750, false, 0o550),
            ("o=u", 0o750, false, 0o757),
            ("g=u-x", 0o700, false, 0o760),
            ("u+rw-x", 0o111, false, 0o611),
            ("+-x", 0o755, false, 0o644),
            ("u=", 0o755, false, 0o055),
            ("a-x+X", 0o755, false, 0o644),
            ("a-x+X", 0o755, true, 0o755),
            ("u-s", 0o6755, false, 0o2755),
            ("g=s", 0o4775, false, 0o6705),
            ("u=rwxs,g=u", 0o000, false, 0o4770),
            ("u=rwx", 0o6755, true, 0o6755),
            ("u=rwxs", 0o2755, true, 0o6755),
            ("ug-s", 0o6755, true, 0o755),
            ("u+t", 0o755, true, 0o755),
            ("o+t,o=rx", 0o755, true, 0o755),
            ("=644", 0o4755, false, 0o644),
            ("+111,-4", 0o644, false, 0o751),
            ("=", 0o777, false, 0),
        ];
        for (text, mode, directory, result) in cases {
            let change = ModeChange::parse(text).unwrap();
            let got = change.apply(mode, directory);
            assert_eq!(got, result, "{text} on {mode:o}: {got:o}");
        }
        for bad in
            ["", "D", "89", "10000", "u=q", "x+r", "rwx", "u=ug", "u=gx", "u+7", "+7-x", "u=ü"]
        {
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
