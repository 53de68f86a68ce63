//! Arguments as getopt(3) reads them: options in any place, several in a word, `--` ends them.
//!
//! ```text
//!   "fL:"     -f is a flag, -L has a value:    -fL name, -Lname, IMG -L name
//! ```

use super::console::Console;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The options and operands of a call.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// Options in their order. The value of a flag is empty.
    pub(super) options: Vec<(char, OsString)>,
    /// The other words.
    pub(super) operands: Vec<OsString>,
    /// Why the rest was not read, after the last option.
    pub(super) wrong: Option<String>,
}

impl Words {
    /// Reads `arguments` by the `known` options, in getopt's notation.
    pub(super) fn read(arguments: &[OsString], known: &str) -> Words {
        let mut words = Words::default();
        let mut rest = arguments.iter();
        while let Some(word) = rest.next() {
            match word.as_bytes() {
                b"--" => {
                    words.operands.extend(rest.by_ref().cloned());
                }
                [b'-', letters @ ..] if !letters.is_empty() => {
                    let next = || rest.next().cloned();
                    if let Err(why) = words.options_of(letters, known, next) {
                        words.wrong = Some(why);
                        return words;
                    }
                }
                _ => words.operands.push(word.clone()),
            }
        }
        words
    }

    /// Reads one word of options. `next` takes the next word, for a value.
    fn options_of(
        &mut self,
        letters: &[u8],
        known: &str,
        mut next: impl FnMut() -> Option<OsString>,
    ) -> Result<(), String> {
        for (at, &letter) in letters.iter().enumerate() {
            let shown = char::from(letter);
            match kind(known, letter) {
                None => return Err(format!("invalid option -- '{shown}'")),
                Some(false) => self.options.push((shown, OsString::new())),
                Some(true) => {
                    let after = &letters[at + 1..];
                    let value = match after.is_empty() {
                        true => next(),
                        false => Some(OsString::from_vec(after.to_vec())),
                    };
                    let missing = || format!("option requires an argument -- '{shown}'");
                    self.options.push((shown, value.ok_or_else(missing)?));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Prints why an option was refused. Returns whether one was.
    pub(super) fn report(&self, console: &mut Console) -> bool {
        if let Some(why) = &self.wrong {
            console.complain(why);
        }
        self.wrong.is_some()
    }
}

/// Whether a known option has a value.
fn kind(known: &str, letter: u8) -> Option<bool> {
    let at = known.bytes().position(|byte| byte == letter && byte != b':')?;
    Some(known.as_bytes().get(at + 1) == Some(&b':'))
}

/// The value of an option as text. Bytes that are not UTF-8 become U+FFFD, which no number and no
/// keyword contains.
pub(super) fn text(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

/// The base-2 logarithm of a unit of sizes, in bytes: `s` for sectors, then `k`, `m`, `g`, `t`.
pub(super) fn unit_log(unit: &str) -> Option<u32> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "s" => 9,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    })
}

/// A whole number as strtoul(3) reads it with base 0: decimal, `0x` and `0`.
pub(super) fn number(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    match lower.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if lower.len() > 1 && lower.starts_with('0') => u64::from_str_radix(&lower, 8).ok(),
        None if !lower.bytes().all(|byte| byte.is_ascii_digit()) => None,
        None => lower.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, known: &str) -> Words {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Words::read(&words, known)
    }

    #[test]
    fn options_stand_anywhere_and_together() {
        for line in ["-fL name IMG", "IMG -f -Lname", "-f IMG -L name", "-fL name -- IMG"] {
            let words = read(line, "fL:");
            let want = vec![('f', OsString::new()), ('L', OsString::from("name"))];
            assert_eq!((words.options, words.wrong), (want, None), "{line}");
            assert_eq!(words.operands, [OsString::from("IMG")], "{line}");
        }
        assert_eq!(read("-f -- -x", "f").operands, [OsString::from("-x")]);
        assert_eq!(read("-", "f").operands, [OsString::from("-")]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (line, why) in [
            ("-x", "invalid option -- 'x'"),
            ("-f:", "invalid option -- ':'"),
            ("--force", "invalid option -- '-'"),
            ("-fL", "option requires an argument -- 'L'"),
        ] {
            assert_eq!(read(line, "fL:").wrong.as_deref(), Some(why), "{line}");
        }
    }

    #[test]
    fn numbers_are_those_of_strtoul() {
        for (text, value) in [
            ("10", Some(10)),
            ("0x1F", Some(31)),
            ("010", Some(8)),
            ("0", Some(0)),
            ("", None),
            ("9x", None),
            ("-1", None),
            ("0x", None),
            ("08", None),
        ] {
            assert_eq!(number(text), value, "{text}");
        }
    }
}
