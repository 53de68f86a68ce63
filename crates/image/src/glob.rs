//! Patterns for paths, as in `.gitignore`, on bytes.
//!
//! ```text
//!   *.o            a name, at any depth             ?       one byte but /
//!   /boot/*.img    from the root of the image       *       any bytes except /
//!   var/cache/     has a slash: from the root too   [a-z]   one of these; [!a-z] none of these
//!   docs/**/*.png  ** any number of directories     \*      the byte itself
//!   cache/         slash at the end: directories only
//! ```
//!
//! Matching reads the path once, and keeps the set of reachable positions in the pattern:
//! no pattern is slow.

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(crate) struct Glob {
    parts: Vec<Part>,
    directories_only: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// `**`: any number of directories; at the end of the pattern, everything below.
    Any,
    Name(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    One,
    Star,
    Class { not: bool, ranges: Vec<(u8, u8)> },
}

impl Glob {
    /// Compiles a pattern. With `anchored` it starts at the root even if it is a single name.
    /// Errors: an empty pattern, `..`, a class without its `]`, a backslash at the end.
    pub(crate) fn new(pattern: &[u8], anchored: bool) -> Result<Glob, String> {
        let trimmed = pattern.strip_suffix(b"/").unwrap_or(pattern);
        if trimmed.is_empty() && !anchored {
            return Err("is empty".into());
        }
        let mut parts = Vec::new();
        if !anchored && !trimmed.contains(&b'/') {
            parts.push(Part::Any);
        }
        for part in trimmed.split(|&b| b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Err("leads out of the tree (..)".into()),
                b"**" if parts.last() == Some(&Part::Any) => {}
                b"**" => parts.push(Part::Any),
                part => parts.push(Part::Name(tokens(part)?)),
            }
        }
        if parts.is_empty() && !anchored {
            return Err("is empty".into());
        }
        let directories_only = pattern.ends_with(b"/") && !parts.is_empty();
        Ok(Glob { parts, directories_only })
    }

    /// The one path that the pattern matches, if it has no wildcards.
    pub(crate) fn literal(&self) -> Option<Vec<u8>> {
        let mut path = Vec::new();
        for part in &self.parts {
            let Part::Name(tokens) = part else { return None };
            if !path.is_empty() {
                path.push(b'/');
            }
            for token in tokens {
                let Token::Byte(byte) = token else { return None };
                path.push(*byte);
            }
        }
        (!self.directories_only).then_some(path)
    }

    /// Matches a path without a leading slash; the root is the empty path.
    pub(crate) fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        let len = self.parts.len();
        let mut here = vec![false; len + 1];
        here[0] = true;
        self.pass_any(&mut here);
        for name in path.split(|&b| b == b'/').filter(|n| !n.is_empty()) {
            let mut next = vec![false; len + 1];
            let mut alive = false;
            for at in (0..len).filter(|&at| here[at]) {
                match &self.parts[at] {
                    Part::Any => {
                        next[at] = true;
                        next[at + 1] |= at + 1 == len;
                        alive = true;
                    }
                    Part::Name(tokens) => {
                        let fits = name_matches(tokens, name);
                        next[at + 1] |= fits;
                        alive |= fits;
                    }
                }
            }
            if !alive {
                return false;
            }
            self.pass_any(&mut next);
            here = next;
        }
        here[len]
    }

    /// `**` may match no directory, unless it ends the pattern.
    fn pass_any(&self, here: &mut [bool]) {
        for at in 0..self.parts.len() - self.parts.len().min(1) {
            if here[at] && self.parts[at] == Part::Any {
                here[at + 1] = true;
            }
        }
    }
}

fn tokens(part: &[u8]) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < part.len() {
        let token = match part[at] {
            b'*' if tokens.last() == Some(&Token::Star) => {
                at += 1;
                continue;
            }
            b'*' => Token::Star,
            b'?' => Token::One,
            b'\\' => {
                at += 1;
                Token::Byte(*part.get(at).ok_or("ends in a backslash")?)
            }
            b'[' => {
                let (class, end) = class(part, at).ok_or("has a [ without ]")?;
                at = end;
                class
            }
            byte => Token::Byte(byte),
        };
        tokens.push(token);
        at += 1;
    }
    Ok(tokens)
}

/// Reads a class that starts at `at`. Returns it and the position of its `]`.
fn class(part: &[u8], at: usize) -> Option<(Token, usize)> {
    let not = matches!(part.get(at + 1), Some(b'!' | b'^'));
    let first = at + 1 + usize::from(not);
    let mut ranges = Vec::new();
    let mut here = first;
    loop {
        let mut byte = *part.get(here)?;
        if byte == b']' && here > first {
            return Some((Token::Class { not, ranges }, here));
        }
        if byte == b'\\' {
            here += 1;
            byte = *part.get(here)?;
        }
        let is_range = part.get(here + 1) == Some(&b'-') && part.get(here + 2) != Some(&b']');
        if is_range {
            ranges.push((byte, *part.get(here + 2)?));
            here += 3;
        } else {
            ranges.push((byte, byte));
            here += 1;
        }
    }
}

/// Matches one name. After a mismatch only the last star takes one more byte, which is enough.
fn name_matches(tokens: &[Token], name: &[u8]) -> bool {
    let (mut token, mut byte) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while byte < name.len() {
        let fits = match tokens.get(token) {
            Some(Token::Star) => {
                star = Some((token + 1, byte));
                token += 1;
                continue;
            }
            Some(Token::One) => true,
            Some(Token::Byte(want)) => *want == name[byte],
            Some(Token::Class { not, ranges }) => {
                ranges.iter().any(|(a, z)| (*a..=*z).contains(&name[byte])) != *not
            }
            None => false,
        };
        if fits {
            token += 1;
            byte += 1;
        } else if let Some((after, taken)) = &mut star {
            *taken += 1;
            (token, byte) = (*after, *taken);
        } else {
            return false;
        }
    }
    tokens[token..].iter().all(|t| *t == Token::Star)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_gitignore_has_it() {
        // pattern, path, directory?, matches?
        let cases = [
            ("*.o", "a.o", false, true),
            ("*.o", "x/y/a.o", false, true),
            ("*.o", "a.oo", false, false),
            ("/a", "a", false, true),
            ("/a", "x/a", false, false),
            ("x/a", "x/a", false, true),
            ("x/a", "y/x/a", false, false),
            ("cache/", "v/cache", true, true),
            ("cache/", "v/cache", false, false),
            ("a/**/z", "a/z", false, true),
            ("a/**/z", "a/b/c/z", false, true),
            ("a/**/z", "a/b/c/zz", false, false),
            ("a/**", "a/b/c", false, true),
            ("a/**", "a", true, false),
            ("**/b", "b", false, true),
            ("**/b", "x/y/b", false, true),
            ("a*b*c", "axxbyyc", false, true),
            ("a*b*c", "axxbyycz", false, false),
            ("a*", "a/b", false, false),
            ("?[a-c][!x]", "zbq", false, true),
            ("?[a-c][!x]", "zbx", false, false),
            ("[]a]", "]", false, true),
            ("\\*", "*", false, true),
            ("\\*", "a", false, false),
            ("./a/./b/", "a/b", true, true),
        ];
        for (pattern, path, directory, matches) in cases {
            let glob = Glob::new(pattern.as_bytes(), false).unwrap();
            assert_eq!(glob.matches(path.as_bytes(), directory), matches, "{pattern} on {path}");
        }
        for bad in ["", "/", "../x", "[a", "a\\"] {
            assert!(Glob::new(bad.as_bytes(), false).is_err(), "{bad}");
        }
    }

    #[test]
    fn many_stars_are_not_slow() {
        let glob = Glob::new("a*".repeat(200).as_bytes(), false).unwrap();
        assert!(!glob.matches(&[b'b'; 200], false));
        let glob = Glob::new("**/a/".repeat(50).as_bytes(), false).unwrap();
        assert!(!glob.matches("a/".repeat(2000).as_bytes(), false));
    }

    #[test]
    fn a_pattern_without_wildcards_is_one_path() {
        let literal = |p: &str| Glob::new(p.as_bytes(), true).unwrap().literal();
        assert_eq!(literal("/etc/passwd").as_deref(), Some(&b"etc/passwd"[..]));
        assert_eq!(literal("/").as_deref(), Some(&b""[..]));
        assert_eq!(literal("etc\\ x").as_deref(), Some(&b"etc x"[..]));
        assert_eq!(literal("/etc/*"), None);
        assert_eq!(literal("etc/"), None);
    }
}
