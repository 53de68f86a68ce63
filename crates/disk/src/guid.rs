//! GUIDs as partition tables store them.

use std::fmt;

/// A GUID, in the order of its bytes on disk: the first three fields are little-endian.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// Whether all bytes are zero, as in an entry that is not in use.
    pub(crate) fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }

    /// The GUID whose fields have these values. `last` has the last eight bytes in the order in
    /// which they are written.
    pub(crate) const fn of(a: u32, b: u16, c: u16, last: u64) -> Guid {
        let (a, b, c, d) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes(), last.to_be_bytes());
        Guid([
            a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5],
            d[6], d[7],
        ])
    }
}

/// In the usual form of 36 lower-case characters.
impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
        for (n, at) in ORDER.into_iter().enumerate() {
            if matches!(n, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{:02x}", self.0[at])?;
        }
        Ok(())
    }
}

/// The 16 bytes of a UUID of 32 hexadecimal digits, with hyphens after 8, 12, 16 and 20 of them or
/// without any.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let hyphens: Vec<usize> = text.match_indices('-').map(|(at, _)| at).collect();
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    let is_grouped = hyphens.is_empty() || hyphens == [8, 13, 18, 23];
    let is_hex = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = || u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes);
    (is_grouped && is_hex).then(number)?
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_fields_are_little_endian() {
        let guid = Guid::of(0xC12A_7328, 0xF81F, 0x11D2, 0xBA4B_00A0_C93E_C93B);
        assert_eq!(guid.to_string(), "c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
        assert_eq!(guid.0[..6], [0x28, 0x73, 0x2A, 0xC1, 0x1F, 0xF8]);
    }
}
