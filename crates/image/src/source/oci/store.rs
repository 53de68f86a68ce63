//! The place of an image's blobs, and reading them with verification of their digests.
//!
//! ```text
//!   blobs/sha256/9f86d0…  in a directory ───┐
//!                         in a tar's tree ──┴─► Region ──► read + SHA-256 ──► equal to the name?
//! ```
//!
//! A digest is parsed before it becomes part of a path: hexadecimal digits cannot leave the
//! directory.

use crate::entry::{Content, Kind, MapId, NodeId};
use crate::error::SourceError;
use crate::source::tar::Region;
use crate::tree::Tree;
use extant_base::narrow::fits_usize;
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256, Sha512};
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A layout in a directory, or in a tar that was listed.
pub(crate) enum Store<'s> {
    Directory(&'s Path),
    Tree { tree: &'s Tree, name: &'s Path },
}

impl Store<'_> {
    /// The store's name, for error messages.
    pub(crate) fn name(&self) -> &Path {
        match self {
            Store::Directory(path) => path,
            Store::Tree { name, .. } => name,
        }
    }

    /// The name of a file in the store, for error messages.
    pub(crate) fn path_of(&self, file: &str) -> PathBuf {
        self.name().join(file)
    }

    /// True if the store contains a file of this name.
    pub(crate) fn has(&self, file: &str) -> bool {
        match self {
            Store::Directory(path) => path.join(file).is_file(),
            Store::Tree { tree, .. } => {
                follow(tree, file).is_some_and(|id| matches!(tree.node(id).kind, Kind::File { .. }))
            }
        }
    }

    /// Opens a file of the store. `file` contains no `..`: it was checked or is a constant.
    pub(crate) fn open(&self, file: &str) -> Result<Region, SourceError> {
        let missing = |fault: &str| SourceError::source(self.path_of(file), fault);
        match self {
            Store::Directory(path) => {
                let path = path.join(file);
                let broken = |e| SourceError::io("open", &path, e);
                // A FIFO of that name must not block the build.
                let waiting = OFlags::NONBLOCK.bits().cast_signed();
                let opened = OpenOptions::new()
                    .read(true)
                    .custom_flags(waiting)
                    .open(&path)
                    .map_err(broken)?;
                if !opened.metadata().map_err(broken)?.is_file() {
                    return Err(missing("is not a file"));
                }
                Region::rest_of(opened).map_err(broken)
            }
            Store::Tree { tree, .. } => {
                let id = follow(tree, file).ok_or_else(|| missing("is not in the archive"))?;
                match tree.node(id).kind {
                    Kind::File { size, content: Content::Archive { archive, offset }, map } => {
                        if map != MapId::DENSE {
                            return Err(missing("is a sparse file: make the archive without -S"));
                        }
                        let file = tree.archives[archive.0 as usize].file.clone();
                        Ok(Region { file, start: offset, len: size })
                    }
                    _ => Err(missing("is empty or not a file")),
                }
            }
        }
    }

    /// Reads a whole small file. Errors: more than `limit` bytes.
    pub(crate) fn read(&self, file: &str, limit: u64) -> Result<Vec<u8>, SourceError> {
        let region = self.open(file)?;
        if region.len > limit {
            let fault = format!("has {} bytes, more than {limit} are not taken", region.len);
            return Err(SourceError::source(self.path_of(file), fault));
        }
        let mut bytes = vec![0; fits_usize(region.len)];
        let len = region
            .read_at(0, &mut bytes)
            .map_err(|e| SourceError::io("read", self.path_of(file), e))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// The path of a blob: `blobs/sha256/HEX` in a layout, `HEX` or `HEX.manifest.json` in the
    /// output of `skopeo copy … dir:`.
    pub(crate) fn blob_path(&self, digest: &Digest) -> String {
        let path = digest.path();
        let hex = path.rsplit('/').next().unwrap_or(&path);
        let flat = [hex.to_owned(), format!("{hex}.manifest.json")];
        let found = flat.into_iter().find(|file| !self.has(&path) && self.has(file));
        found.unwrap_or(path)
    }

    /// Reads a whole blob and verifies its digest.
    pub(crate) fn read_blob(&self, digest: &Digest, limit: u64) -> Result<Vec<u8>, SourceError> {
        let path = self.blob_path(digest);
        let bytes = self.read(&path, limit)?;
        digest.verify(digest.hasher().update(&bytes), self.path_of(&path))?;
        Ok(bytes)
    }
}

/// Resolves a path in a tree. Symbolic links are followed within the tree: old versions of `docker
/// save` stored a layer once and linked to it.
fn follow(tree: &Tree, path: &str) -> Option<NodeId> {
    let mut todo: Vec<Vec<u8>> = Vec::new();
    let push = |todo: &mut Vec<Vec<u8>>, path: &[u8]| {
        let parts = path.split(|&b| b == b'/').filter(|p| !p.is_empty() && *p != b".");
        todo.extend(parts.rev().map(<[u8]>::to_vec));
    };
    push(&mut todo, path.as_bytes());
    let (mut trail, mut hops) = (vec![NodeId::ROOT], 0);
    while let Some(part) = todo.pop() {
        if part == b".." {
            if trail.len() > 1 {
                trail.pop();
            }
            continue;
        }
        let here = tree.child(*trail.last()?, &part)?;
        if let Kind::Symlink(_) = tree.node(here).kind {
            hops += 1;
            if hops > 40 || todo.len() > 1000 {
                return None;
            }
            if tree.target(here).starts_with(b"/") {
                trail.truncate(1);
            }
            push(&mut todo, tree.target(here));
            continue;
        }
        trail.push(here);
    }
    trail.pop()
}

/// The name of a blob: an algorithm and a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    Sha256([u8; 32]),
    Sha512([u8; 64]),
}

impl Digest {
    /// Reads `sha256:HEX` or `sha512:HEX`.
    pub(crate) fn parse(text: &str) -> Option<Digest> {
        match text.split_once(':')? {
            ("sha256", hex) => Some(Digest::Sha256(unhex(hex)?)),
            ("sha512", hex) => Some(Digest::Sha512(unhex(hex)?)),
            _ => None,
        }
    }

    /// The path of the blob in a layout.
    pub(crate) fn path(&self) -> String {
        let text = self.to_string();
        format!("blobs/{}", text.replace(':', "/"))
    }

    pub(crate) fn hasher(&self) -> Hasher {
        match self {
            Digest::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Digest::Sha512(_) => Hasher::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn verify(&self, hasher: Hasher, path: PathBuf) -> Result<(), SourceError> {
        let found = match hasher {
            Hasher::Sha256(hash) => Digest::Sha256(hash.finalize().into()),
            Hasher::Sha512(hash) => Digest::Sha512(hash.finalize().into()),
        };
        if found != *self {
            let fault = format!("its content has the digest {found}, not {self}: damaged");
            return Err(SourceError::source(path, fault));
        }
        Ok(())
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, bytes): (_, &[u8]) = match self {
            Digest::Sha256(bytes) => ("sha256", bytes),
            Digest::Sha512(bytes) => ("sha512", bytes),
        };
        write!(f, "{name}:")?;
        bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

fn unhex<const N: usize>(hex: &str) -> Option<[u8; N]> {
    let hex = hex.as_bytes();
    if hex.len() != 2 * N || !hex.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

/// A digest being computed.
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn update(mut self, bytes: &[u8]) -> Hasher {
        self.add(bytes);
        self
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(hash) => hash.update(bytes),
            Hasher::Sha512(hash) => hash.update(bytes),
        }
    }
}

/// A stream that is hashed as it is read.
pub(crate) struct Hashed<R> {
    reader: R,
    hasher: Hasher,
}

impl<R: Read> Hashed<R> {
    pub(crate) fn new(reader: R, digest: &Digest) -> Hashed<R> {
        Hashed { reader, hasher: digest.hasher() }
    }

    /// Reads the rest of the stream, and returns the hash of all of it.
    pub(crate) fn finish(mut self) -> io::Result<Hasher> {
        let mut chunk = vec![0; 256 << 10];
        while self.read(&mut chunk)? > 0 {}
        Ok(self.hasher)
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.reader.read(buf)?;
        self.hasher.add(&buf[..len]);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_leads_to_its_blob_and_nowhere_else() {
        let hex = "ab".repeat(32);
        let digest = Digest::parse(&format!("sha256:{hex}")).unwrap();
        assert_eq!(digest.path(), format!("blobs/sha256/{hex}"));
        for bad in [
            "sha256:../../etc/passwd".to_owned(),
            format!("sha256:{}", "AB".repeat(32)),
            format!("sha256:{}", "ab".repeat(31)),
            format!("md5:{}", "ab".repeat(16)),
            format!("sha256:{}/", "ab".repeat(31)),
            "sha256".to_owned(),
        ] {
            assert!(Digest::parse(&bad).is_none(), "{bad}");
        }
    }
}
