//! How many blocks an image needs, exactly.
//!
//! ```text
//!   content   what the tree takes: known only by loading it (on a trial device in memory)
//!   own       what the volume takes for itself: grows in steps with its size
//!
//!   blocks = content + free + own(blocks)          the least solution, from below
//! ```
//!
//! How many tree nodes a long file needs depends on where groups begin, so the content is taken
//! again from the load that is kept, and the size adjusted until load and size agree.

use crate::build::error::BuildError;
use crate::build::load::{Job, Loaded};
use crate::build::output::Output;
use crate::build::{ImageBuilder, ImageSize, trial_device};
use crate::entry::Kind;
use extant::Error;
use extant::mkfs::{self, InodeCount, MkfsOptions};
use extant_base::BlockSize;
use extant_ondisk::features::Incompat;
use std::cell::Cell;
use std::sync::Arc;

/// Rounds of loading after which a size that is not quite the least is taken.
const ROUNDS: u32 = 8;

/// Room for one inode in so many bytes, as mke2fs reckons.
const BYTES_PER_INODE: u64 = 16_384;
/// The numbers that every volume keeps for itself, and some for its hidden files.
const RESERVED_INODES: u64 = 16;

/// Finds the size of one image.
pub(crate) struct Sizing<'a> {
    job: &'a Job<'a>,
    mkfs: MkfsOptions,
    bs: BlockSize,
    wish: ImageSize,
    inodes: Option<u32>,
    /// Inodes for attributes' values: at most so many, until a load has counted them.
    value_inodes: Cell<u64>,
}

/// A size, and whether it was asked for or found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) blocks: u64,
    /// Blocks to be left free, where the size is to be the least.
    free: Option<u64>,
}

impl<'a> Sizing<'a> {
    pub(crate) fn new(builder: &ImageBuilder, job: &'a Job<'a>, mkfs: MkfsOptions) -> Sizing<'a> {
        let ea_inode = mkfs.wished().incompat.contains(Incompat::EA_INODE);
        let values = || job.tree.iter().map(|(id, _)| job.tree.xattrs(id).len() as u64).sum();
        Sizing {
            value_inodes: Cell::new(if ea_inode { values() } else { 0 }),
            job,
            mkfs: job.suit(mkfs),
            bs: builder.block_size,
            wish: builder.size,
            inodes: builder.inodes,
        }
    }

    /// The size to try: asked for and known to be enough, or computed.
    ///
    /// Errors: `TooSmall` with the size that would do.
    pub(crate) fn settle(&self) -> Result<Size, BuildError> {
        match self.wish {
            ImageSize::Auto { free } => {
                let free = self.bs.blocks_for(free);
                Ok(Size { blocks: self.least(self.content()?, free)?, free: Some(free) })
            }
            ImageSize::Bytes(bytes) => {
                let blocks = bytes >> self.bs.log2();
                if self.value_inodes.get() > 0 {
                    self.content()?;
                }
                match self.job.load(trial_device(bytes), &self.sized(blocks)) {
                    Ok(_) => Ok(Size { blocks, free: None }),
                    Err(BuildError::Engine(Error::NoSpace | Error::Invalid(_))) => {
                        let need = self.smallest()? << self.bs.log2();
                        if need <= bytes {
                            return Err(BuildError::Engine(Error::NoSpace));
                        }
                        Err(BuildError::TooSmall { need, given: bytes })
                    }
                    Err(other) => Err(other),
                }
            }
        }
    }

    /// Blocks of the smallest image, with nothing left free.
    fn smallest(&self) -> Result<u64, BuildError> {
        let mut blocks = self.least(self.content()?, 0)?;
        let mut holds = None;
        for _ in 0..ROUNDS {
            match self.job.load(trial_device(blocks << self.bs.log2()), &self.sized(blocks)) {
                Ok(loaded) => {
                    holds = Some(blocks);
                    let better = self.least(loaded.content_blocks, 0)?;
                    blocks = better.min(blocks - 1);
                }
                Err(BuildError::Engine(Error::NoSpace | Error::Invalid(_))) => {
                    if let Some(holds) = holds {
                        return Ok(holds);
                    }
                    blocks += 1;
                }
                Err(other) => return Err(other),
            }
        }
        Ok(holds.unwrap_or(blocks))
    }

    /// Loads into the output, changing the size until content and size agree.
    pub(crate) fn load_into(
        &self,
        output: Output,
        size: Size,
    ) -> Result<(Output, Loaded), BuildError> {
        let mut blocks = size.blocks;
        // The largest size that did not hold the content.
        let mut short = 0;
        for round in 0.. {
            let mkfs = self.sized(blocks).zeroed(output.is_fresh());
            match self.job.load(output.device(), &mkfs) {
                Ok(loaded) => {
                    let Some(free) = size.free else { return Ok((output, loaded)) };
                    let better = self.least(loaded.content_blocks, free)?;
                    if loaded.free_blocks >= free
                        && (better >= blocks || better <= short || round >= ROUNDS)
                    {
                        // A last group too small to use is not part of the volume.
                        output.cut(loaded.blocks << self.bs.log2())?;
                        return Ok((output, loaded));
                    }
                    blocks = better.max(short + 1);
                }
                Err(BuildError::Engine(Error::NoSpace)) if size.free.is_some() && round < 64 => {
                    short = blocks;
                    blocks += 1 << round.min(16);
                }
                Err(other) => return Err(other),
            }
            output.restart(blocks << self.bs.log2())?;
        }
        unreachable!("the rounds end by returning")
    }

    /// Options for a volume of so many blocks: inodes for the tree, and one for every 16 KiB of
    /// what is to be left free, or of a size given by hand.
    fn sized(&self, blocks: u64) -> MkfsOptions {
        let nodes = self.job.tree.node_count() as u64 + self.value_inodes.get();
        let needed = nodes + RESERVED_INODES;
        let count = match (self.inodes, self.wish) {
            (Some(count), _) => needed.max(count.into()),
            (None, ImageSize::Auto { free }) => needed + free / BYTES_PER_INODE,
            (None, ImageSize::Bytes(_)) => needed.max((blocks << self.bs.log2()) / BYTES_PER_INODE),
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX / 2);
        self.mkfs.clone().blocks(blocks).inodes(InodeCount::AtLeast(count))
    }

    /// Blocks that the tree takes, from loading it where there is room enough.
    fn content(&self) -> Result<u64, BuildError> {
        let mut blocks = self.roomy();
        loop {
            let device = trial_device(blocks << self.bs.log2());
            match self.job.load(Arc::clone(&device), &self.sized(blocks)) {
                Ok(loaded) => {
                    self.value_inodes.set(loaded.value_inodes);
                    return Ok(loaded.content_blocks);
                }
                Err(BuildError::Engine(Error::NoSpace)) if blocks < 1 << 44 => blocks *= 2,
                Err(other) => return Err(other),
            }
        }
    }

    /// A size that surely holds the tree.
    fn roomy(&self) -> u64 {
        let tree = self.job.tree;
        let blocks: u64 = tree
            .iter()
            .map(|(id, node)| match node.kind {
                Kind::File { .. } => {
                    tree.data_map(id).ranges().map(|(_, len)| self.bs.blocks_for(len) + 1).sum()
                }
                Kind::Symlink(_) => 1,
                _ => 1u64,
            })
            .sum();
        let names = tree.name_count() as u64 * 64;
        let inodes = tree.node_count() as u64 * 512;
        (blocks + self.bs.blocks_for(names + inodes)) * 5 / 4 + 65_536
    }

    /// The least number of blocks that leaves `content + free` to use.
    fn least(&self, content: u64, free: u64) -> Result<u64, BuildError> {
        let want = content + free;
        let mut blocks = want + 8;
        loop {
            let bytes = blocks << self.bs.log2();
            let options = self.sized(blocks).zeroed(true);
            match mkfs::free_blocks(&options, bytes) {
                Ok(have) if have >= want => return Ok(blocks),
                Ok(have) => blocks += want - have,
                Err(Error::Invalid(_) | Error::NoSpace) if blocks < want + (1 << 24) => {
                    blocks += 1 + blocks / 64;
                }
                Err(error) => return Err(BuildError::Engine(error)),
            }
        }
    }
}
