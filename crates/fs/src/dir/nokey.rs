//! Names of an encrypted directory without its key: text that stands for the ciphertext.
//!
//! ```text
//!   hash u32 │ minor u32 │ ciphertext ──base64url, no padding──► a name without slash and NUL
//! ```
//!
//! Hash and minor are those stored beside the name (casefolded directories), else zero, as Linux
//! lists a directory it has no key for. Simplification: Linux cuts ciphertext above 149 bytes and
//! adds a SHA-256; here the whole of it is encoded.

use extant_ondisk::dirent::Dirent;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The name to show for an entry of an encrypted directory; "." and ".." as they are.
pub(crate) fn encode(entry: &Dirent<'_>) -> Vec<u8> {
    if entry.is_dot_or_dotdot() {
        return entry.name.to_vec();
    }
    let (hash, minor) = entry.stored_hash.unwrap_or((0, 0));
    let mut bytes = Vec::with_capacity(8 + entry.name.len());
    bytes.extend_from_slice(&hash.to_le_bytes());
    bytes.extend_from_slice(&minor.to_le_bytes());
    bytes.extend_from_slice(entry.name);
    base64url(&bytes)
}

fn base64url(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let mut word = [0; 4];
        word[1..1 + part.len()].copy_from_slice(part);
        let word = u32::from_be_bytes(word);
        for n in 0..=part.len() {
            text.push(ALPHABET[(word >> (18 - 6 * n)) as usize & 63]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_has_the_published_test_vectors() {
        let table: [(&[u8], &[u8]); 6] = [
            (b"", b""),
            (b"f", b"Zg"),
            (b"fo", b"Zm8"),
            (b"foo", b"Zm9v"),
            (b"foob", b"Zm9vYg"),
            (b"\xFB\xFF", b"-_8"),
        ];
        for (bytes, text) in table {
            assert_eq!(base64url(bytes), text);
        }
    }
}
