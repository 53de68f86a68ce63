//! The files that are removed: each has a content of its own, which follows from its number.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use extant::Filesystem;

/// The directory of the tree.
pub(crate) const TOP: &str = "old";
/// Bytes of the largest file.
pub(crate) const LARGEST: usize = 90_000;
pub(crate) const FILES_OF_A_DIRECTORY: usize = 100;
/// Bytes of the smallest file: its number.
const SMALLEST: usize = 16;

pub(crate) struct Tree {
    count: usize,
}

/// Where the content of each file was: (offset in the image, offset in the file, length) in bytes.
pub(crate) type Places = Vec<Vec<(u64, usize, usize)>>;

impl Tree {
    pub(crate) fn of(count: usize) -> Tree {
        Tree { count }
    }

    /// Path and content of each file.
    pub(crate) fn files(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        (0..self.count).map(|n| (path_of(n), content_of(n)))
    }

    /// The number of files.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Where the content of the files is on the volume.
    pub(crate) fn places(&self, image: &Path) -> Result<Places> {
        let fs = Filesystem::open(image)?;
        let block = fs.superblock().block_size.bytes() as u64;
        let mut places = Places::new();
        for n in 0..self.count {
            let file = fs.open_file(format!("/{}", path_of(n)))?;
            let len = content_of(n).len();
            let mut pieces = Vec::new();
            for extent in file.extents()?.iter().filter(|extent| extent.written) {
                let at = usize::try_from(extent.offset)?;
                let end = len.min(at + usize::try_from(extent.len)?);
                pieces.push((extent.block.0 * block, at, end.saturating_sub(at)));
            }
            places.push(pieces);
        }
        Ok(places)
    }

    /// How many files still have their content at these places.
    pub(crate) fn left(&self, image: &Path, places: &Places) -> Result<usize> {
        let file = File::open(image)?;
        let mut count = 0;
        for (n, pieces) in places.iter().enumerate() {
            let content = content_of(n);
            let mut is_left = true;
            for (place, at, len) in pieces {
                let mut bytes = vec![0; *len];
                file.read_exact_at(&mut bytes, *place)?;
                is_left &= bytes == content[*at..at + len];
            }
            count += usize::from(is_left);
        }
        Ok(count)
    }
}

pub(super) fn path_of(n: usize) -> String {
    format!("{TOP}/dir {}/file {n}", n / FILES_OF_A_DIRECTORY)
}

/// One in ten is large, one in ten tiny.
pub(super) fn content_of(n: usize) -> Vec<u8> {
    let len = match n % 10 {
        0 => n * 7919 % LARGEST,
        1 => n % 40,
        _ => n * 37 % 6000,
    };
    let len = len.max(SMALLEST);
    let mut state = n as u64 + 0x9E37_79B9_7F4A_7C15;
    let mut content = format!("{n:<SMALLEST$}").into_bytes();
    while content.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(len);
    content
}

/// The path of file `n` below `dir`.
pub(super) fn below(dir: &Path, n: usize) -> PathBuf {
    dir.join(path_of(n))
}
