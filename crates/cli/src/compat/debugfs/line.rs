//! A request as a list of words: separated by blanks, `"…"` around a word with blanks, `""` in it
//! for a quote.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The words of a line. `None` if a quote is not closed.
pub(super) fn words(line: &std::ffi::OsStr) -> Option<Vec<OsString>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut bytes = line.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                word.get_or_insert_default().push(b'"');
            }
            b'"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            b' ' | b'\t' | b'\n' | b'\r' if !quoted => words.extend(word.take()),
            byte => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    (!quoted).then(|| words.into_iter().map(OsString::from_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn quotes_keep_blanks() {
        for (line, want) in [
            ("stat  a\tb ", &["stat", "a", "b"][..]),
            ("ls \"a b\" c", &["ls", "a b", "c"]),
            ("ls \"a \"\"b\"", &["ls", "a \"b"]),
            ("ea_set f user.a \"\"", &["ea_set", "f", "user.a", ""]),
            ("", &[]),
        ] {
            let found = words(line.as_ref()).unwrap();
            assert_eq!(found, want.iter().map(std::ffi::OsString::from).collect::<Vec<_>>());
        }
        assert_eq!(words("ls \"a".as_ref()), None);
    }
}
