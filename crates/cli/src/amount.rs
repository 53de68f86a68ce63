//! Sizes on the command line: `4096`, `4k`, `10G`. Suffixes are powers of two, as for mke2fs.
//!
//! ```text
//!   10 G iB
//!   │  │ └── optional
//!   │  └──── s sectors of 512, k, m, g, t, p: 2^10, 2^20, … ; nothing: bytes
//!   └─────── a whole number
//! ```

use std::str::FromStr;

/// Reads a size in bytes.
///
/// Errors: a message for the user.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1)
}

/// Reads a whole number.
///
/// Errors: a message for the user.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "not a whole number".to_owned())
}

/// Reads a size. A number without a suffix counts `unit` bytes.
pub(crate) fn scaled(text: &str, unit: u64) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let wrong = || format!("'{text}' is not a size: write 4096, 64K, 10M, 2G or 1T");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let lower = suffix.to_ascii_lowercase();
    let letter = lower.strip_suffix("ib").unwrap_or(&lower);
    let factor = match letter {
        "" if suffix.is_empty() => unit,
        "b" => 1,
        "s" => 512,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        "p" => 1 << 50,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).ok_or_else(|| format!("'{text}' does not fit in 64 bits"))
}

/// A size for people: `512 B`, `1.5 GiB`.
pub(crate) fn shown(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_two() {
        let known = [
            ("0", 0),
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("3s", 1536),
            ("10M", 10 << 20),
            ("2G", 2 << 30),
            ("1T", 1 << 40),
            ("7b", 7),
        ];
        for (text, size) in known {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        assert_eq!(scaled("64", 1 << 20), Ok(64 << 20));
        assert_eq!(scaled("64k", 1 << 20), Ok(64 << 10));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "k", "-1", "1.5G", "4x", "99999999999999999999", "16777216T", "4 k", "1ib"]
        {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        let known = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB")];
        for (size, text) in known {
            assert_eq!(shown(size), text);
        }
        assert_eq!(shown((1 << 20) - 1), "1.0 MiB");
        assert_eq!(shown(u64::MAX), "16.0 EiB");
    }
}
