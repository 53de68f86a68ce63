//! The blocks of one inode's map: claimed, counted, and compared with `i_size` and `i_blocks`.
//!
//! ```text
//!   walk ──► Taking (the sink) ──► Claims: in use
//!                 │                Blocks: clusters, last block, runs
//!                 └──────────────► DirBlock notes, in a directory
//! ```

use super::DirBlock;
use super::inode::Role;
use super::tables::Scan;
use crate::audit::check::claim::Claims;
use crate::audit::check::map::{Run, Sink};
use crate::audit::check::view::View;
use extant_base::narrow::{fits_u32, fits_usize};
use extant_base::{BlockNr, Error, Ino, Site, What};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{FileKind, Inode as DiskInode, InodeFlags};

/// The walk of a map ends after this many findings.
const WRONGS_MAX: u32 = 16;

/// What the walk of a map has found.
pub(super) struct Blocks {
    ino: Ino,
    role: Role,
    kind: Option<FileKind>,
    /// Clusters of data and of the map.
    clusters: u64,
    /// The logical block after the last mapped one.
    pub(super) end: u32,
    /// The logical block after the last written one.
    pub(super) written_end: u32,
    /// The first mapped run.
    pub(super) first: Option<Run>,
    /// How many runs do not start where the previous run ends, or after the blocks of pointers
    /// that follow it. Holes are no matter.
    pub(super) fragments: u32,
    /// The last blocks of pointers, if the map has such.
    pointers: Option<[u64; POINTERS]>,
    /// A part was not walked, so counts are not compared.
    pub(super) partial: bool,
    /// Whether there is a hole before the last mapped block.
    pub(super) holes: bool,
    /// Whether the map has blocks of its own.
    has_nodes: bool,
    wrongs: u32,
    last_physical_end: u64,
    /// The last cluster that was counted, and its logical cluster.
    last_cluster: Option<(u64, u32)>,
}

/// How many blocks of pointers may lie between two runs: one of each level.
const POINTERS: usize = 3;

impl Blocks {
    pub(super) fn new(ino: Ino, role: Role, kind: Option<FileKind>) -> Blocks {
        Blocks {
            ino,
            role,
            kind,
            clusters: 0,
            end: 0,
            written_end: 0,
            first: None,
            fragments: 0,
            pointers: None,
            partial: false,
            holes: false,
            has_nodes: false,
            wrongs: 0,
            last_physical_end: 0,
            last_cluster: None,
        }
    }

    /// The sink for the walk of the inode's map.
    pub(super) fn sink<'s, 'u>(
        &'s mut self,
        view: &'s View<'s>,
        claims: &'s mut Claims<'u>,
        dir_blocks: &'s mut Vec<DirBlock>,
    ) -> Taking<'s, 'u> {
        Taking { view, blocks: self, claims, dir_blocks }
    }

    /// The map consists of blocks of pointers, not of extents. They lie between the blocks that
    /// they map, so a file is in one run with them.
    pub(super) fn count_pointers(&mut self) {
        self.pointers = Some([0; POINTERS]);
    }

    /// Whether a run at `physical` continues the previous one.
    fn continues(&self, physical: u64) -> bool {
        let between = self.last_physical_end..physical;
        if between.end == between.start {
            return true;
        }
        let Some(pointers) = &self.pointers else { return false };
        let len = between.end.saturating_sub(between.start);
        self.last_physical_end != 0
            && (1..=POINTERS as u64).contains(&len)
            && between.into_iter().all(|block| pointers.contains(&block))
    }

    /// Claims the block of the file's passive translator, which only volumes of the GNU Hurd have.
    pub(super) fn take_translator(
        &mut self,
        view: &View<'_>,
        claims: &mut Claims<'_>,
        block: BlockNr,
    ) {
        if !view.geometry.holds(block, 1) {
            self.wrongs += 1;
            return view.error_with(
                What::MapBlockRange,
                Site::of_ino(self.ino).block(block),
                "the translator's block",
            );
        }
        self.clusters += 1;
        claims.data(block.0..block.0 + 1, 1);
    }

    /// How many 512-byte sectors the map and a translator take.
    pub(super) fn sectors(&self, view: &View<'_>) -> u64 {
        self.clusters * view.cluster_sectors()
    }
}

/// Claims the blocks that a walk finds.
pub(super) struct Taking<'s, 'u> {
    view: &'s View<'s>,
    blocks: &'s mut Blocks,
    claims: &'s mut Claims<'u>,
    dir_blocks: &'s mut Vec<DirBlock>,
}

impl Taking<'_, '_> {
    /// Claims `blocks` blocks from `start` on, in `clusters` clusters. False if the budget is used
    /// up.
    fn claim(&mut self, start: u64, blocks: u64, clusters: u64) -> bool {
        let claimed = self.claims.data(start..start + blocks, clusters);
        self.blocks.partial |= !claimed;
        claimed
    }
}

impl Sink for Taking<'_, '_> {
    fn data(&mut self, run: Run) -> bool {
        let view = self.view;
        let ratio = u64::from(view.geometry.cluster_ratio());
        let at = Site::of_ino(self.blocks.ino).block(BlockNr(run.physical));
        let is_dir =
            self.blocks.kind == Some(FileKind::Directory) && self.blocks.role == Role::Ordinary;
        if !run.written && (is_dir || self.blocks.kind == Some(FileKind::Symlink)) {
            view.error(What::ExtentUnwritten, at);
        }
        if run.logical != self.blocks.end {
            self.blocks.holes = true;
        }
        if self.blocks.first.is_none() {
            self.blocks.first = Some(run);
        }
        if !self.blocks.continues(run.physical) {
            self.blocks.fragments += 1;
        }
        let end = run.logical.saturating_add(run.len);
        let physical_end = run.physical + u64::from(run.len);
        self.blocks.end = end;
        self.blocks.last_physical_end = physical_end;
        if run.written {
            self.blocks.written_end = end;
        }
        if is_dir {
            let blocks = (0..run.len).map(|n| DirBlock {
                ino: self.blocks.ino.get(),
                logical: run.logical + n,
                physical: run.physical + u64::from(n),
            });
            self.dir_blocks.extend(blocks);
        }
        // Blocks that the resize inode maps are in the fixed part of groups: they are claimed there
        // and only counted here.
        if self.blocks.role == Role::Resize {
            self.blocks.clusters += u64::from(run.len);
            return true;
        }
        if ratio == 1 {
            self.blocks.clusters += u64::from(run.len);
            return self.claim(run.physical, u64::from(run.len), u64::from(run.len));
        }
        if run.physical % ratio != u64::from(run.logical) % ratio {
            view.error(What::ExtentCluster, at);
            self.blocks.partial = true;
        }
        let mut first = run.physical / ratio;
        let last = (physical_end - 1) / ratio;
        let logical_cluster = run.logical / view.geometry.cluster_ratio();
        // Two runs in one logical cluster share the cluster, which is counted once.
        if self.blocks.last_cluster == Some((first, logical_cluster)) {
            first += 1;
        }
        let logical_last = (end - 1) / view.geometry.cluster_ratio();
        self.blocks.last_cluster = Some((last, logical_last));
        if first > last {
            return true;
        }
        self.blocks.clusters += last + 1 - first;
        let start = (first * ratio).max(run.physical);
        self.claim(start, physical_end - start, last + 1 - first)
    }

    fn node(&mut self, block: u64, level: u32) -> bool {
        self.blocks.clusters += 1;
        self.blocks.has_nodes = true;
        if let Some(pointers) = &mut self.blocks.pointers {
            pointers.rotate_right(1);
            pointers[0] = block;
        }
        // Pointer blocks of the resize inode are the reserved descriptor blocks themselves.
        if self.blocks.role == Role::Resize && level == 1 {
            return true;
        }
        if !self.claims.node(block) {
            // Another map has claimed it; its content is not walked twice.
            self.blocks.partial = true;
            return false;
        }
        true
    }

    fn wrong(&mut self, error: Error) -> bool {
        self.blocks.partial = true;
        self.blocks.wrongs += 1;
        let detail = match &error {
            Error::Corrupt { at, .. } if at.ino.is_none() => format!("inode {}", self.blocks.ino),
            _ => String::new(),
        };
        self.view.corrupt(&error, &detail);
        self.blocks.wrongs < WRONGS_MAX
    }
}

impl Scan<'_, '_> {
    /// Compares what is mapped with `i_size`, depending on the kind of file.
    #[expect(clippy::too_many_arguments, reason = "the arguments describe one inode")]
    pub(super) fn check_content(
        &mut self,
        ino: Ino,
        role: Role,
        inode: &DiskInode,
        bytes: &[u8],
        fast_link: bool,
        blocks: &Blocks,
        attributes: &super::attributes::Found,
    ) {
        let view = self.view;
        let at = Site::of_ino(ino);
        let size_at = at.offset(0x04);
        let block_size = view.geometry.block_size();
        let kind = inode.kind();
        if inode.has_inline_data() {
            return self.check_inline(ino, inode, attributes);
        }
        match kind {
            Some(FileKind::Directory) if role == Role::Ordinary => {
                let covered = inode.size >> block_size.log2();
                if inode.size & (block_size.bytes() as u64 - 1) != 0 {
                    view.error(What::DirectorySize, size_at);
                } else if blocks.end == 0 && !blocks.partial {
                    view.error(What::DirectoryEmpty, at);
                } else if covered != u64::from(blocks.end) && !blocks.partial {
                    let detail = format!("covers {covered} blocks, {} are mapped", blocks.end);
                    view.error_with(What::InodeSize, size_at, detail);
                }
                if blocks.holes {
                    view.error(What::DirectoryHole, at);
                }
                let limit = 1u64 << (31 - block_size.log2());
                if !view.has_incompat(Incompat::LARGEDIR) && u64::from(blocks.end) > limit {
                    view.error_with(What::InodeSize, size_at, "directory is too large");
                }
            }
            Some(FileKind::Symlink) => {
                self.check_symlink(ino, inode, bytes, fast_link, blocks, attributes);
            }
            Some(
                FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket,
            ) => {
                if inode.size != 0 {
                    view.error_with(What::InodeSize, size_at, "a special file has no content");
                }
            }
            // The resize inode's size covers all that it could map; the bad-blocks inode has no
            // size.
            _ if matches!(role, Role::Resize | Role::BadBlocks) => {
                self.out.large_file |= role == Role::Resize && inode.size > 0x7FFF_FFFF;
            }
            _ => {
                if inode.size > inode.max_size(&view.format) {
                    view.error_with(What::InodeSize, size_at, "larger than its map can be");
                }
                let ratio = view.geometry.cluster_ratio();
                // The first block of the last written cluster must lie within the size.
                let last = blocks.written_end.saturating_sub(1) & !(ratio - 1);
                let start = u64::from(last) << block_size.log2();
                // e2fsck takes the end of the size for the end of the last leaf.
                let past_leaf = inode.has_extents()
                    && blocks.has_nodes
                    && inode.size > 0
                    && u64::from(blocks.written_end) > block_size.blocks_for(inode.size);
                if blocks.written_end > 0
                    && (inode.size < start || past_leaf)
                    && !inode.flags.contains(InodeFlags::VERITY)
                {
                    let detail =
                        format!("size {}, blocks up to {}", inode.size, blocks.written_end);
                    view.error_with(What::SizeBelowBlocks, size_at, detail);
                }
                if kind == Some(FileKind::Regular) && inode.size > 0x7FFF_FFFF {
                    self.out.large_file = true;
                }
            }
        }
    }

    fn check_symlink(
        &mut self,
        ino: Ino,
        inode: &DiskInode,
        bytes: &[u8],
        fast_link: bool,
        blocks: &Blocks,
        attributes: &super::attributes::Found,
    ) {
        let view = self.view;
        let at = Site::of_ino(ino);
        let wrong = |detail: &str| view.error_with(What::SymlinkTarget, at, detail);
        let encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
        if bytes[0x6C..0x70] != [0; 4] || inode.size == 0 {
            return wrong("size");
        }
        if inode.flags.contains(InodeFlags::INDEX) {
            return;
        }
        if fast_link {
            if inode.has_extents() {
                view.error_with(What::InodeFlags, at.offset(0x20), "extents on a fast symlink");
            }
            if attributes.charged_sectors != 0 && inode.file_acl.is_none() {
                // Linux decides by the size. Without an attribute block, e2fsprogs up to 1.47.0
                // decides by the block count.
                wrong("values are charged to it: e2fsprogs reads the target as block numbers");
            }
            if !encrypted {
                let len = inode.i_block.iter().position(|byte| *byte == 0);
                if len.map(|len| len as u64) != Some(inode.size) {
                    wrong("length");
                }
            } else if inode.size > inode.i_block.len() as u64 {
                wrong("length");
            }
            return;
        }
        if inode.size >= view.block_bytes() as u64 {
            return wrong("too long");
        }
        if blocks.partial {
            return;
        }
        match blocks.first {
            // e2fsprogs takes a symlink with two blocks for damaged.
            Some(_) if blocks.has_nodes => wrong("its map has a block of its own"),
            Some(run) if run.logical == 0 && blocks.end == 1 => {
                self.out.symlinks.push(super::symlinks::SymlinkBlock {
                    ino: ino.get(),
                    size: fits_u32(inode.size),
                    block: run.physical,
                    encrypted,
                });
            }
            _ => wrong("is not in one block"),
        }
    }

    fn check_inline(&mut self, ino: Ino, inode: &DiskInode, attributes: &super::attributes::Found) {
        let at = Site::of_ino(ino);
        let wrong = |detail: &str| self.view.error_with(What::InlineData, at, detail);
        if !self.view.has_incompat(Incompat::INLINE_DATA) {
            return;
        }
        let Some(value) = &attributes.inline_value else {
            return wrong("the attribute that holds the rest is missing");
        };
        let capacity = (inode.i_block.len() + value.len()) as u64;
        match inode.kind() {
            Some(FileKind::Directory) => {
                if inode.size != capacity {
                    wrong("size");
                }
            }
            Some(FileKind::Symlink) => {
                let mut target = inode.i_block.to_vec();
                target.extend_from_slice(value);
                target.truncate(fits_usize(inode.size.min(capacity)));
                if inode.size != capacity {
                    wrong("size");
                } else if target.contains(&0) && !inode.flags.contains(InodeFlags::ENCRYPT) {
                    self.view.error_with(What::SymlinkTarget, at, "length");
                }
            }
            _ => {
                if inode.size > capacity {
                    // mke2fs makes such files from files with holes. e2fsck accepts them; recent
                    // Linux does not.
                    self.view.note(What::InlineData, at, "larger than its content");
                }
            }
        }
    }

    /// Compares `i_blocks` with the count of the walk.
    pub(super) fn check_blocks(
        &mut self,
        ino: Ino,
        inode: &DiskInode,
        blocks: &Blocks,
        attributes: &super::attributes::Found,
    ) {
        if blocks.partial || attributes.partial {
            return;
        }
        let own = blocks.sectors(self.view) + attributes.block_sectors(self.view);
        let all = own + attributes.charged_sectors;
        if inode.sectors == all {
            return;
        }
        if inode.sectors == own {
            return self.out.uncharged.push(ino.get());
        }
        let detail = format!("counts {} sectors, has {all}", inode.sectors);
        self.view.error_with(What::InodeBlocks, Site::of_ino(ino).offset(0x1C), detail);
    }
}
