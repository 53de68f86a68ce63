//! One line of a manifest: the fields of `docs/JSON.md`, and how names become text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Char,
    Block,
    Fifo,
    Socket,
}

/// Seconds and nanoseconds since 1970; seconds may be negative, nanoseconds count upward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
}

/// What is known about one path. Optional fields are those that not every side knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Absolute within the tree, encoded by [`encode_name`].
    pub path: String,
    /// File, directory, ….
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Permission bits as four octal digits.
    pub mode: String,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count, as stat shows it.
    pub nlink: u64,
    /// Size in bytes, as stat shows it.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Major and minor number of a device node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rdev: Option<(u32, u32)>,
    /// A symlink's target, encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Extended attributes: from the encoded name to the value in base64.
    #[serde(default)]
    pub xattrs: BTreeMap<String, String>,
    /// SHA-256 of the content, hexadecimal; for files up to 256 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// SHA-256 over the blocks that are not all zero; for larger files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256_nonzero: Option<String>,
    /// Inode number.
    pub ino: u64,
    /// Last access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub atime: Option<Time>,
    /// Last change of the inode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctime: Option<Time>,
    /// Birth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crtime: Option<Time>,
    /// Space taken, in 512-byte units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// `FS_IOC_GETFLAGS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<u32>,
    /// Project id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<u32>,
    /// What could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `name` as text: bytes that are not UTF-8, and `%`, become `%XX`.
pub fn encode_name(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for (at, part) in chunk.valid().split('%').enumerate() {
            if at > 0 {
                out.push_str("%25");
            }
            out.push_str(part);
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Base64 with the standard alphabet and padding.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word =
            three.iter().fold(0u32, |w, &b| w << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_every_byte() {
        assert_eq!(encode_name("a%b/日本".as_bytes()), "a%25b/日本");
        assert_eq!(encode_name(b"\xff\xfe\x80raw\n"), "%FF%FE%80raw\n");
        assert_eq!(encode_name(b"cut \xe6\x97"), "cut %E6%97");
    }

    #[test]
    fn base64_pads_each_length() {
        let known =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, coded) in known {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
