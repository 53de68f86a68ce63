//! `extant repair --copy-to`: the volume of a failing device, copied to a new file, which is then
//! repaired as any image.

use crate::bar::Bar;
use crate::failure::Failure;
use crate::image::Image;
use crate::new_file::NewFile;
use crate::repaired::device_of;
use crate::shown::Shown;
use crate::walk::{Visit, Visitor, walk};
use extant::{BlockDevice, FileKind, Filesystem, Ino};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

/// A copy, and what is missing in it.
pub(super) struct Copied {
    /// The copy.
    pub(super) image: Image,
    /// Byte ranges of the volume that could not be read, in order.
    pub(super) unreadable: Vec<Range<u64>>,
}

/// Copies the volume to `to`, which must not exist.
pub(super) fn copy(image: &Image, to: &Path) -> Result<Copied, Failure> {
    if !image.members.is_empty() || image.degraded {
        return Err(Failure::new(format_args!(
            "{}: the members of a layout cannot be copied to one file: nothing was changed",
            Shown::path(&image.name)
        )));
    }
    let home = device_of(image, false)?;
    let file = NewFile::create(to, home.len())?;
    let bar = Bar::new(false);
    let copied = extant_repair::copy(&*home, file.device(), &bar);
    bar.clear();
    let unreadable = copied.map_err(|error| Failure::of_image(&image.name, &error))?;
    file.finish()?;
    Ok(Copied { image: image.copied_to(to), unreadable })
}

/// A file with content that could not be read.
pub(super) struct Unread {
    pub(super) ino: Ino,
    pub(super) path: Vec<u8>,
    /// Bytes of the file.
    pub(super) ranges: Vec<Range<u64>>,
}

/// The files with content in `unreadable`. Files that cannot be read at all are left out: the plan
/// of the repair has them.
pub(super) fn unread_files(
    image: &Image,
    fs: &Filesystem,
    unreadable: &[Range<u64>],
) -> Result<Vec<Unread>, Failure> {
    let mut search = Search { fs, unreadable, seen: HashSet::new(), found: Vec::new() };
    if !unreadable.is_empty() {
        walk(image, fs, b"/", usize::MAX, &mut search)?;
    }
    Ok(search.found)
}

struct Search<'a> {
    fs: &'a Filesystem,
    unreadable: &'a [Range<u64>],
    /// Files with several names are listed by their first one.
    seen: HashSet<Ino>,
    found: Vec<Unread>,
}

impl Visitor for Search<'_> {
    fn visit(&mut self, visit: Visit<'_>) -> Result<bool, Failure> {
        if visit.kind == Some(FileKind::Regular) && self.seen.insert(visit.ino) {
            let ranges = self.ranges_of(visit.ino);
            if !ranges.is_empty() {
                self.found.push(Unread { ino: visit.ino, path: visit.path.to_vec(), ranges });
            }
        }
        Ok(true)
    }
}

impl Search<'_> {
    fn ranges_of(&self, ino: Ino) -> Vec<Range<u64>> {
        let node = self.fs.node_of_ino(ino);
        let Ok((size, extents)) = node.and_then(|node| {
            let size = node.metadata().len();
            Ok((size, node.open()?.extents()?))
        }) else {
            return Vec::new();
        };
        let block_bytes = self.fs.superblock().block_size.bytes() as u64;
        let mut ranges = Vec::new();
        for extent in extents.iter().filter(|extent| extent.written) {
            let start = extent.block.0 * block_bytes;
            let first = self.unreadable.partition_point(|range| range.end <= start);
            for range in &self.unreadable[first..] {
                if range.start >= start + extent.len {
                    break;
                }
                let from = extent.offset + range.start.saturating_sub(start);
                let to = extent.offset + range.end.min(start + extent.len) - start;
                if from < size {
                    ranges.push(from..to.min(size));
                }
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::mkfs::{MkfsOptions, format};
    use extant::{Environment, MemoryDevice, OpenOptions};
    use std::sync::Arc;

    #[test]
    fn unread_bytes_belong_to_files() {
        let device = Arc::new(MemoryDevice::new(16 << 20));
        format(device.clone(), &MkfsOptions::new(), &Environment::default()).unwrap();
        let fs = OpenOptions::new().write(true).open_device(device).unwrap();
        for name in ["/hit", "/spared"] {
            fs.write(name, vec![7; 100_000]).unwrap();
        }
        fs.hard_link("/hit", "/other name").unwrap();
        fs.sync().unwrap();
        let extent = fs.open_file("/hit").unwrap().extents().unwrap()[0];
        let block_bytes = fs.superblock().block_size.bytes() as u64;
        let start = extent.block.0 * block_bytes;
        assert!(extent.offset == 0 && extent.len >= 100_000);
        let image = Image::parse("disk.img".as_ref()).unwrap();
        let found = |ranges: &[Range<u64>]| {
            let found = unread_files(&image, &fs, ranges).unwrap();
            found.into_iter().map(|file| (file.path, file.ranges)).collect::<Vec<_>>()
        };
        assert!(found(&[]).is_empty());
        let hit = b"/hit".to_vec();
        let unreadable = [start + 4096..start + 8192, start + 98_304..start + 102_400];
        assert_eq!(found(&unreadable), [(hit, vec![4096..8192, 98_304..100_000])]);
    }
}
