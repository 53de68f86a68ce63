//! How many blocks an image needs, exactly.
//!
//! ```text
//!   content   what the tree takes: estimated, or measured by a load on a device in memory
//!   own       what the volume takes for itself: grows in steps with its size
//!
//!   blocks = content + free + own(blocks)          the least solution, from below
//! ```
//!
//! How many tree nodes a long file needs depends on where groups begin. So each load measures the
//! content again, and the size is adjusted until load and size agree:
//!
//! ```text
//!   too small ───── short ◄── bisected ──► holds ───── no smaller size is expected to do
//! ```

use crate::builder::error::BuildError;
use crate::builder::estimate;
use crate::builder::load::{Job, Loaded};
use crate::builder::output::Output;
use crate::builder::{ImageBuilder, ImageSize, trial_device};
use crate::entry::Kind;
use extant::Error;
use extant::mkfs::{self, InodeCount, MkfsOptions};
use extant_base::BlockSize;
use extant_ondisk::features::Incompat;
use std::cell::Cell;

/// After this many rounds of loading, a size is accepted that may not quite be the least. Bisecting
/// any distance takes fewer rounds.
const ROUNDS: u32 = 40;
/// The largest possible volume, in blocks.
const MOST_BLOCKS: u64 = 1 << 48;

/// Bytes for each of which there is one inode, as in mke2fs.
const BYTES_PER_INODE: u64 = 16_384;
/// Inode numbers that every volume reserves, and some for its hidden files.
const RESERVED_INODES: u64 = 16;

/// Finds the size of one image.
pub(crate) struct Sizing<'a> {
    job: &'a Job<'a>,
    mkfs: MkfsOptions,
    bs: BlockSize,
    requested: ImageSize,
    inodes: Option<u32>,
    /// The number of inodes for attribute values: an upper bound until a load has counted them.
    value_inodes: Cell<u64>,
}

/// A size, and how it was determined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) blocks: u64,
    /// Blocks to leave free, if the size is to be the least possible.
    free: Option<u64>,
}

impl<'a> Sizing<'a> {
    pub(crate) fn new(builder: &ImageBuilder, job: &'a Job<'a>, mkfs: MkfsOptions) -> Sizing<'a> {
        let ea_inode = mkfs.requested_features().incompat.contains(Incompat::EA_INODE);
        let values = || job.tree.iter().map(|(id, _)| job.tree.xattrs(id).len() as u64).sum();
        Sizing {
            value_inodes: Cell::new(if ea_inode { values() } else { 0 }),
            job,
            mkfs: job.suit(mkfs),
            bs: builder.block_size,
            requested: builder.size,
            inodes: builder.inodes,
        }
    }

    /// The size to try: the requested one if it is known to be enough, or a computed one.
    ///
    /// Errors: `TooSmall` with the least larger size that is enough.
    pub(crate) fn choose(&self) -> Result<Size, BuildError> {
        match self.requested {
            ImageSize::Auto { free } => {
                let free = self.bs.blocks_for(free);
                let content = match estimate::content(self.job, &self.mkfs, self.bs) {
                    Some(content) => content,
                    None => self.content()?,
                };
                Ok(Size { blocks: self.least(content, free, 0)?, free: Some(free) })
            }
            ImageSize::Bytes(bytes) => {
                let blocks = bytes >> self.bs.log2();
                if self.value_inodes.get() > 0 {
                    self.content()?;
                }
                match self.try_load(blocks) {
                    Ok(_) => Ok(Size { blocks, free: None }),
                    Err(error) if is_too_small(&error) => {
                        // Sizes a little larger may hold less, because from some size on there is a
                        // journal.
                        let start = self.least(self.content()?, 0, blocks + 1)?;
                        let load = &mut |blocks| self.try_load(blocks);
                        let (need, _) = self.search(blocks, start, 0, load)?;
                        Err(BuildError::TooSmall { need: need << self.bs.log2(), given: bytes })
                    }
                    Err(other) => Err(other),
                }
            }
        }
    }

    /// Loads the tree into the output, and changes the size until content and size agree.
    pub(crate) fn load_into(
        &self,
        output: Output,
        size: Size,
    ) -> Result<(Output, Loaded), BuildError> {
        let mut load = |blocks: u64| {
            output.restart(blocks << self.bs.log2())?;
            self.job.load(output.device(), &self.sized(blocks).zeroed(output.is_fresh()))
        };
        let Some(free) = size.free else {
            let loaded = load(size.blocks)?;
            return Ok((output, loaded));
        };
        let (_, loaded) = self.search(0, size.blocks, free, &mut load)?;
        // A last group that is too small to be used is not part of the volume.
        output.cut(loaded.blocks << self.bs.log2())?;
        Ok((output, loaded))
    }

    /// Finds, starting at `start`, the least size above `short` at which `load` succeeds and leaves
    /// `free` blocks. Returns that size and the last load, which had it.
    fn search(
        &self,
        mut short: u64,
        start: u64,
        free: u64,
        load: &mut dyn FnMut(u64) -> Result<Loaded, BuildError>,
    ) -> Result<(u64, Loaded), BuildError> {
        let mut blocks = start;
        // The least size known to hold everything. Sizes up to `short` do not.
        let mut holds: Option<u64> = None;
        for round in 0.. {
            let enough = match load(blocks) {
                Ok(loaded) if loaded.free_blocks >= free => Ok(loaded),
                Ok(loaded) => {
                    Err((BuildError::Engine(Error::NoSpace), Some(loaded.content_blocks)))
                }
                Err(error) if is_too_small(&error) => Err((error, None)),
                Err(error) => return Err(error),
            };
            let guess = match enough {
                Ok(loaded) if blocks <= short + 1 || round >= ROUNDS => {
                    return Ok((blocks, loaded));
                }
                Ok(loaded) => {
                    let better = self.least(loaded.content_blocks, free, short + 1)?;
                    if better >= blocks {
                        return Ok((blocks, loaded));
                    }
                    holds = Some(blocks);
                    better
                }
                Err((error, content)) => {
                    short = short.max(blocks);
                    match (holds, content) {
                        (None, _) if round >= 64 => return Err(error),
                        (None, Some(content)) => self.least(content, free, short + 1)?,
                        // The size was an estimate.
                        (None, None) if round == 0 => {
                            self.least(self.content()?, free, short + 1)?
                        }
                        (None, None) => short + (1 << round.min(16)),
                        // The least size is seldom far away.
                        (Some(holds), _) => short + (holds - short).div_ceil(2),
                    }
                }
            };
            // Where no smaller size is left to try, the size that holds everything is loaded once
            // more.
            blocks = match holds {
                Some(holds) if round >= ROUNDS => holds,
                Some(holds) => guess.clamp(short + 1, holds),
                None => guess,
            };
        }
        unreachable!("the rounds end by returning")
    }

    fn try_load(&self, blocks: u64) -> Result<Loaded, BuildError> {
        self.job.load(trial_device(blocks << self.bs.log2()), &self.sized(blocks))
    }

    /// Options for a volume of `blocks`: inodes for the tree, and one for every 16 KiB of the space
    /// to leave free, or of a requested size.
    fn sized(&self, blocks: u64) -> MkfsOptions {
        let nodes = self.job.tree.node_count() as u64 + self.value_inodes.get();
        let needed = nodes + RESERVED_INODES;
        let count = match (self.inodes, self.requested) {
            (Some(count), _) => needed.max(count.into()),
            (None, ImageSize::Auto { free }) => needed + free / BYTES_PER_INODE,
            (None, ImageSize::Bytes(_)) => needed.max((blocks << self.bs.log2()) / BYTES_PER_INODE),
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX / 2);
        self.mkfs.clone().blocks(blocks).inodes(InodeCount::AtLeast(count))
    }

    /// Blocks that the tree takes, measured by loading it into a volume with ample space.
    fn content(&self) -> Result<u64, BuildError> {
        let mut blocks = self.first_size();
        loop {
            match self.try_load(blocks) {
                Ok(loaded) => {
                    self.value_inodes.set(loaded.value_inodes);
                    return Ok(loaded.content_blocks);
                }
                Err(error) if is_too_small(&error) && blocks < 1 << 40 => blocks *= 2,
                Err(other) => return Err(other),
            }
        }
    }

    /// A size in blocks that most likely holds the tree.
    fn first_size(&self) -> u64 {
        let tree = self.job.tree;
        let blocks: u64 = tree
            .iter()
            .map(|(id, node)| match node.kind {
                Kind::File { .. } => {
                    tree.data_map(id).ranges().map(|(_, len)| self.bs.blocks_for(len) + 1).sum()
                }
                _ => 1u64,
            })
            .sum();
        let names = tree.name_count() as u64 * 64;
        let inodes = tree.node_count() as u64 * 512;
        (blocks + self.bs.blocks_for(names + inodes)) * 5 / 4 + 65_536
    }

    /// The least number of blocks, at least `from`, of which an empty volume leaves `content +
    /// free` free.
    fn least(&self, content: u64, free: u64, from: u64) -> Result<u64, BuildError> {
        let want = content.saturating_add(free);
        let mut blocks = from.max(want.saturating_add(1));
        // `low` is known, or assumed, not to be enough.
        let (mut low, mut step) = (blocks - 1, 1);
        loop {
            match self.left_free(blocks) {
                Ok(have) if have >= want => break,
                Ok(have) => (low, blocks) = (blocks, blocks + (want - have)),
                // Too small for its own metadata.
                Err(Error::Invalid(_) | Error::NoSpace) if step < 1 << 32 => {
                    (low, blocks) = (blocks, blocks.saturating_add(step));
                    step *= 2;
                }
                Err(error) => return Err(BuildError::Engine(error)),
            }
        }
        // The free space jumps where a group begins, so a smaller size may be enough: bisect.
        let mut middle = blocks - 1;
        while blocks - low > 1 {
            match self.left_free(middle) {
                Ok(have) if have >= want => blocks = middle,
                _ => low = middle,
            }
            middle = low + (blocks - low) / 2;
        }
        Ok(blocks)
    }

    /// Free blocks of an empty volume of `blocks`.
    fn left_free(&self, blocks: u64) -> Result<u64, Error> {
        if blocks > MOST_BLOCKS {
            return Err(Error::FileTooLarge);
        }
        mkfs::free_blocks(&self.sized(blocks), blocks << self.bs.log2())
    }
}

/// Whether a larger volume may succeed. If no size helps with an option, the search ends later.
fn is_too_small(error: &BuildError) -> bool {
    matches!(error, BuildError::Engine(Error::NoSpace | Error::Invalid(_)))
}
