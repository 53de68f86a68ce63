//! How many blocks a tree will take, without loading it.
//!
//! The result is exact for most trees, so that one load is enough: the content of small files and
//! directories does not depend on where it is. If it is wrong, the load shows that, and the size is
//! adjusted.

use crate::builder::load::Job;
use crate::builder::trial_device;
use crate::entry::{Kind, NodeId};
use extant::bulk::Loader;
use extant::mkfs::{InodeCount, MkfsOptions};
use extant_base::{BlockSize, Ino};
use extant_ondisk::features::{Incompat, RoCompat};

/// Blocks of the volume whose format the estimate asks for. It has no journal.
const BLOCKS: u64 = 1024;
/// A file with more extents than this has a tree of extents.
const ROOT_EXTENTS: u64 = 4;
/// Blocks that are one extent if no group's metadata lies between them.
const EXTENT_BLOCKS: u64 = 16_384;
/// A longer target has a block.
const INLINE_TARGET: usize = 59;

/// Blocks that the tree most likely takes. `None` if it or the options contain what only a load
/// shows: attributes, long or sparse files, inline data, clusters, quota, checksums of data.
pub(crate) fn content(job: &Job<'_>, mkfs: &MkfsOptions, bs: BlockSize) -> Option<u64> {
    let features = mkfs.requested_features();
    let unknown = RoCompat::BIGALLOC | RoCompat::QUOTA | RoCompat::PROJECT | RoCompat::DATA_CSUM;
    if features.incompat.contains(Incompat::INLINE_DATA)
        || !features.incompat.contains(Incompat::EXTENTS)
        || features.ro_compat.intersects(unknown)
    {
        return None;
    }
    let tree = job.tree;
    let options = mkfs.clone().blocks(BLOCKS).inodes(InodeCount::AtLeast(16));
    let device = trial_device(BLOCKS << bs.log2());
    let loader = Loader::format(device, &options, job.environment).ok()?;
    let mut entries = Vec::new();
    let mut blocks = 0;
    for (id, node) in tree.iter() {
        if !tree.xattrs(id).is_empty() {
            return None;
        }
        blocks += match node.kind {
            Kind::Directory(_) => {
                // Only the root is not like others.
                let ino = if id == NodeId::ROOT { Ino::ROOT } else { Ino::new(11)? };
                job.entries(id, &mut entries, |_| ino);
                loader.directory_blocks(ino, &entries).ok()?
            }
            Kind::File { .. } => data_blocks(tree.data_map(id).ranges(), bs)?,
            Kind::Symlink(_) => u64::from(tree.target(id).len() > INLINE_TARGET),
            _ => 0,
        };
    }
    Some(blocks)
}

/// Blocks of a file with data in `ranges` of bytes, (offset, length), ascending. `None` if it may
/// need a tree of extents.
fn data_blocks(ranges: impl Iterator<Item = (u64, u64)>, bs: BlockSize) -> Option<u64> {
    let (mut blocks, mut extents, mut done) = (0, 0, 0);
    for (offset, len) in ranges {
        // Two ranges may share a block.
        let first = done.max(offset >> bs.log2());
        done = first.max(bs.blocks_for(offset.saturating_add(len)));
        blocks += done - first;
        extents += 1 + (done - first) / EXTENT_BLOCKS;
    }
    (extents <= ROOT_EXTENTS).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_ranges_that_share_a_block_count_once() {
        let bs = BlockSize::from_bytes(4096).unwrap();
        let blocks = |ranges: &[(u64, u64)]| data_blocks(ranges.iter().copied(), bs);
        assert_eq!(blocks(&[]), Some(0));
        assert_eq!(blocks(&[(0, 1), (4000, 97), (12_288, 4096)]), Some(3));
        assert_eq!(blocks(&[(0, 1 << 30)]), None);
        assert_eq!(blocks(&[(0, 1), (8192, 1), (16_384, 1), (32_768, 1), (65_536, 1)]), None);
    }
}
