//! Names of a volume can hold any bytes. This module formats them for people and for JSON.
//!
//! ```text
//!   for people   control bytes, bytes that are not UTF-8 and \ as \n, \u{1b}, \xff, \\; a path
//!                longer than 200 bytes is shortened to its start and end
//!   in JSON      bytes that are not UTF-8 and % as %XX: exact, see docs/JSON.md
//!   in a pipe    `ls` and `tree` print the bytes unchanged
//! ```

use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Base64 with the standard alphabet. Padding is optional when decoding.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The longest name or path that is shown completely, in bytes. A name of 255 bytes is shortened
/// too.
const SHOWN_MAX: usize = 200;
/// Replaces the middle of a longer one.
const CUT: &str = " [...] ";

/// A name that cannot forge a line, fill the screen or control a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl Shown<'_> {
    /// A path of this system.
    pub(crate) fn path(path: &Path) -> Shown<'_> {
        Shown(path.as_os_str().as_bytes())
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() <= SHOWN_MAX {
            return Whole(self.0).fmt(f);
        }
        let half = (SHOWN_MAX - CUT.len()) / 2;
        let (start, end) = (&self.0[..half], &self.0[self.0.len() - half..]);
        write!(f, "{}{CUT}{}", Whole(start), Whole(end))
    }
}

/// The same without a length limit, for output whose subject is the name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Whole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c.is_control() || c == '\\' || is_bidi_control(c) {
                    true => write!(f, "{}", c.escape_default())?,
                    false => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// Whether `c` changes the direction of the text after it.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A name as JSON contains it.
pub(crate) fn encoded(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for (n, part) in chunk.valid().split('%').enumerate() {
            if n > 0 {
                out.push_str("%25");
            }
            out.push_str(part);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Bytes as lower-case hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// A UUID in groups of 8, 4, 4, 4 and 12 digits.
pub(crate) fn uuid(bytes: &[u8; 16]) -> String {
    let digits = hex(bytes);
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_stays_on_one_line() {
        let name = Shown(b"x\n\x1b[2Jy\xff\\ \xe6\x97\xa5").to_string();
        assert_eq!(name, "x\\n\\u{1b}[2Jy\\xff\\\\ 日");
        assert_eq!(Shown("a\u{202e}b".as_bytes()).to_string(), "a\\u{202e}b");
    }

    #[test]
    fn a_long_path_is_shown_by_its_start_and_end() {
        let path = [&b"/first"[..], &b"/d".repeat(30_000), b"/last"].concat();
        let shown = Shown(&path).to_string();
        assert!(shown.starts_with("/first/d/d") && shown.ends_with("/d/last"), "{shown}");
        assert!(shown.len() <= 200 && shown.contains(" [...] "), "{shown}");
        let whole = "n".repeat(200);
        assert_eq!(Shown(whole.as_bytes()).to_string(), whole);
        assert_eq!(Whole(&path).to_string().len(), path.len());
    }

    #[test]
    fn json_names_keep_every_byte() {
        assert_eq!(encoded(b"100% \xff\x0a\xe6"), "100%25 %FF\n%E6");
    }

    #[test]
    fn a_uuid_is_grouped() {
        let bytes: [u8; 16] = std::array::from_fn(|n| n as u8);
        assert_eq!(uuid(&bytes), "00010203-0405-0607-0809-0a0b0c0d0e0f");
    }
}
