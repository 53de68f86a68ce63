//! Pass 1: every inode table, every inode, every map.
//!
//! ```text
//!   metadata claimed ──► orphans known ──► tables, 256 KiB at a time, all threads ──► merged
//!                                             │ each used inode: fields, attributes, map
//!                                             ▼
//!                          owners of shared blocks ──► attribute blocks, values, symlinks
//!                                                  ──► journal, resize inode, orphan file
//! ```

mod attributes;
mod blocks;
mod encryption;
pub(in crate::audit) mod inode;
mod journal;
mod orphans;
pub(in crate::audit) mod own;
mod quota;
mod shared;
mod symlinks;
pub(in crate::audit) mod tables;
mod values;

use super::claim::Usage;
use super::inodes::Inodes;
use super::report::Stats;
use super::view::View;
pub(super) use encryption::Policy;
use extant_base::{BlockNr, Site, What};
use extant_ondisk::features::{Incompat, RoCompat};
use std::sync::atomic::AtomicU32;

/// What pass 1 passes on to the later passes.
pub(super) struct Tables {
    pub(super) inodes: Inodes,
    pub(super) usage: Usage,
    /// All directories, in order of inode numbers.
    pub(super) dirs: Vec<Dir>,
    /// Their blocks, by directory and logical block.
    pub(super) dir_blocks: Vec<DirBlock>,
    /// The parent of each of `dirs`; 0 while it is unknown.
    pub(super) parents: Vec<AtomicU32>,
    /// The inode in the ".." entry of each of `dirs`.
    pub(super) dotdots: Vec<AtomicU32>,
    /// Encrypted inodes and their policies, in order of inode numbers.
    policies: Vec<(u32, Policy)>,
    pub(super) stats: Stats,
}

/// A directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Dir {
    pub(super) ino: u32,
    /// The seed of its blocks' checksums.
    pub(super) seed: u32,
    pub(super) indexed: bool,
    pub(super) casefold: bool,
    pub(super) encrypted: bool,
    /// Both areas of an inline directory, one after the other.
    pub(super) inline: Option<Box<[u8]>>,
    /// The directory's part of `dir_blocks`.
    pub(super) first: usize,
    pub(super) count: usize,
}

/// A block of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirBlock {
    pub(super) ino: u32,
    pub(super) logical: u32,
    pub(super) physical: u64,
}

impl Tables {
    /// The encryption policy of inode `ino`, if it has one.
    pub(super) fn policy(&self, ino: u32) -> Option<Policy> {
        let at = self.policies.binary_search_by_key(&ino, |(ino, _)| *ino).ok()?;
        Some(self.policies[at].1)
    }

    /// The index of directory `ino` in `dirs`.
    pub(super) fn dir(&self, ino: u32) -> Option<usize> {
        self.dirs.binary_search_by_key(&ino, |dir| dir.ino).ok()
    }
}

/// Runs the pass.
pub(super) fn run(view: &View<'_>) -> Tables {
    let usage = Usage::new(view.geometry);
    claim_metadata(view, &usage);
    let inodes = Inodes::new(view.geometry.inodes_count());
    let orphans = orphans::find(view);
    let mut out = tables::scan(view, &inodes, &usage, &orphans);
    if out.large_file && !view.has_ro_compat(RoCompat::LARGE_FILE) {
        let at = Site::NOWHERE.offset(0x64);
        view.error_with(What::SuperblockFeatures, at, "a large file without large_file");
    }
    attributes::claim_blocks(&usage, &mut out);
    if usage.shared_clusters() > 0 {
        shared::name_owners(view, &usage, &out.xattr_uses);
    }
    attributes::check_blocks(view, &mut out);
    values::check(view, &inodes, &mut out);
    symlinks::check(view, &mut out.symlinks);
    own::check(view);
    quota::check(view, &out.usages);
    let mut stats = out.stats;
    stats.inodes = u64::from(view.geometry.inodes_count());
    stats.blocks = view.geometry.blocks_count();
    sort_dirs(&mut out.dirs, &mut out.dir_blocks);
    let atomics = || out.dirs.iter().map(|_| AtomicU32::new(0)).collect();
    Tables {
        inodes,
        usage,
        parents: atomics(),
        dotdots: atomics(),
        dirs: out.dirs,
        dir_blocks: out.dir_blocks,
        policies: out.policies,
        stats,
    }
}

/// Sorts directories by number, and the blocks of each directory together.
fn sort_dirs(dirs: &mut Vec<Dir>, blocks: &mut [DirBlock]) {
    dirs.sort_unstable_by_key(|dir| dir.ino);
    dirs.dedup_by_key(|dir| dir.ino);
    blocks.sort_unstable();
    let mut at = 0;
    for dir in dirs {
        while blocks.get(at).is_some_and(|block| block.ino < dir.ino) {
            at += 1;
        }
        dir.first = at;
        while blocks.get(at).is_some_and(|block| block.ino == dir.ino) {
            at += 1;
        }
        dir.count = at - dir.first;
    }
}

/// Marks superblocks, descriptors, bitmaps, tables and the MMP block.
fn claim_metadata(view: &View<'_>, usage: &Usage) {
    let geometry = &view.geometry;
    let itable = u64::from(geometry.itable_blocks());
    for group in geometry.groups() {
        if let Some(base) = geometry.base_blocks(group) {
            usage.mark(base);
        }
        let desc = &view.group(group).desc;
        let places = [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, itable)];
        for (BlockNr(start), len) in places {
            if geometry.holds(BlockNr(start), len) {
                usage.mark(start..start + len);
            }
        }
    }
    let mmp = view.sb.mmp_block;
    if view.has_incompat(Incompat::MMP) && geometry.holds(mmp, 1) {
        usage.mark(mmp.0..mmp.0 + 1);
    }
}
