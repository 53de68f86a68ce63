//! Names of an encrypted directory without its key: text that encodes the ciphertext.
//!
//! ```text
//!   0      4       8                     157          189
//!   ┌──────┬───────┬─────────────────────┬────────────┐
//!   │ hash │ minor │ ciphertext, 1..=149 │ SHA-256 of │ ──base64url, no padding──► a name
//!   │      │       │ bytes of it         │ the rest   │    without slash and NUL, <= 252 bytes
//!   └──────┴───────┴─────────────────────┴────────────┘
//! ```
//!
//! In casefolded directories, hash and minor hash are those stored with the name. In others they
//! are the htree hash of the ciphertext, or zero in a directory of several blocks without an index.
//! The text is the same as in Linux. Source: Linux kernel documentation, "fscrypt", no-key names.

use super::Dir;
use extant_base::LogicalBlock;
use extant_ondisk::dirent::Dirent;
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::hash::{HashVersion, NameHash, NameHasher};
use extant_ondisk::htree::{Index, levels_max};
use sha2::{Digest, Sha256};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// How many bytes of ciphertext the text contains unchanged.
const PLAIN_MAX: usize = 149;

/// What the text of a directory's names depends on, besides the names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoKey {
    hasher: Option<NameHasher>,
}

impl NoKey {
    /// The encoding of names in `dir`. Locks: takes `Leaf`.
    pub(crate) fn of(dir: &Dir<'_>) -> NoKey {
        let indexed = dir.form == super::Form::Indexed;
        let hashed = dir.volume.has_compat(Compat::DIR_INDEX) && (indexed || dir.blocks <= 1);
        let default = HashVersion::from_code(dir.volume.at_open().def_hash_version);
        let version = if indexed { root_version(dir).or(default) } else { default };
        NoKey { hasher: version.filter(|_| hashed).map(|version| dir.hasher(version)) }
    }

    /// The text for an entry. "." and ".." are returned unchanged.
    pub(crate) fn encode(&self, entry: &Dirent<'_>) -> Vec<u8> {
        if entry.is_dot_or_dotdot() {
            return entry.name.to_vec();
        }
        let computed = || self.hasher.map(|hasher| hasher.hash(entry.name)).unwrap_or_default();
        let hash = match entry.stored_hash {
            Some((hash, minor)) => NameHash { hash, minor },
            None => computed(),
        };
        encode(hash, entry.name)
    }
}

fn root_version(dir: &Dir<'_>) -> Option<HashVersion> {
    let block = dir.block(LogicalBlock(0)).ok().flatten()?;
    let bytes = block.read();
    let levels = levels_max(dir.volume.has_incompat(Incompat::LARGEDIR));
    let (info, _) = Index::root(&bytes, &dir.format, levels, dir.site()).ok()?;
    Some(info.hash_version).filter(|version| *version != HashVersion::SipHash)
}

fn encode(hash: NameHash, name: &[u8]) -> Vec<u8> {
    let (plain, rest) = name.split_at(name.len().min(PLAIN_MAX));
    let mut bytes = Vec::with_capacity(8 + PLAIN_MAX + 32);
    bytes.extend_from_slice(&hash.hash.to_le_bytes());
    bytes.extend_from_slice(&hash.minor.to_le_bytes());
    bytes.extend_from_slice(plain);
    if !rest.is_empty() {
        bytes.extend_from_slice(&Sha256::digest(rest));
    }
    base64url(&bytes)
}

/// The text for the target of an encrypted symlink, which is stored as a length (u16) and
/// ciphertext. `None` if the length does not fit.
pub(crate) fn encode_target(stored: &[u8]) -> Option<Vec<u8>> {
    let (len, rest) = stored.split_first_chunk()?;
    let name = rest.get(..usize::from(u16::from_le_bytes(*len)))?;
    (!name.is_empty()).then(|| encode(NameHash::default(), name))
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

    #[test]
    fn the_text_is_a_name_however_long_the_ciphertext() {
        for len in [16, 149, 150, 255] {
            let text = encode(NameHash { hash: 2, minor: 3 }, &vec![0; len]);
            assert!(text.len() <= 252 && extant_ondisk::dirent::name_is_legal(&text));
        }
    }
}
