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
//! again from each load, and the size adjusted until load and size agree:
//!
//! ```text
//!   too small ───── short ◄── halved ──► holds ───── no smaller one is asked for
//! ```

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

/// Rounds of loading after which a size that is not quite the least is taken: more than halving any
/// distance takes.
const ROUNDS: u32 = 40;
/// The largest volume there is, in blocks.
const MOST_BLOCKS: u64 = 1 << 48;

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
    /// Errors: `TooSmall` with the least larger size that would do.
    pub(crate) fn settle(&self) -> Result<Size, BuildError> {
        match self.wish {
            ImageSize::Auto { free } => {
                let free = self.bs.blocks_for(free);
                Ok(Size { blocks: self.least(self.content()?, free, 0)?, free: Some(free) })
            }
            ImageSize::Bytes(bytes) => {
                let blocks = bytes >> self.bs.log2();
                if self.value_inodes.get() > 0 {
                    self.content()?;
                }
                match self.try_load(blocks) {
                    Ok(_) => Ok(Size { blocks, free: None }),
                    Err(error) if is_too_small(&error) => {
                        // Sizes a little larger may hold less: from some on there is a journal.
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

    /// Loads into the output, changing the size until content and size agree.
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
        // A last group too small to use is not part of the volume.
        output.cut(loaded.blocks << self.bs.log2())?;
        Ok((output, loaded))
    }

    /// The least size over `short`, looked for around `start`, at which `load` succeeds and leaves
    /// `free` blocks; what was loaded last is what comes back.
    fn search(
        &self,
        mut short: u64,
        start: u64,
        free: u64,
        load: &mut dyn FnMut(u64) -> Result<Loaded, BuildError>,
    ) -> Result<(u64, Loaded), BuildError> {
        let mut blocks = start;
        // The least size known to hold everything; those up to `short` do not.
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
                        (None, None) => short + (1 << round.min(16)),
                        // Seldom far away.
                        (Some(holds), _) => short + (holds - short).div_ceil(2),
                    }
                }
            };
            // Where nothing lies between any more, the size that holds is loaded once more.
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

    /// A size that most likely holds the tree.
    fn roomy(&self) -> u64 {
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

    /// The least number of blocks, `from` or more, that leaves `content + free` to use.
    fn least(&self, content: u64, free: u64, from: u64) -> Result<u64, BuildError> {
        let want = content.saturating_add(free);
        let mut blocks = from.max(want.saturating_add(1));
        // Not enough: known, or taken for granted.
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
        // What there is to use grows by leaps where a group begins: something may lie between.
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

    /// Blocks that an empty volume of so many blocks leaves to use.
    fn left_free(&self, blocks: u64) -> Result<u64, Error> {
        if blocks > MOST_BLOCKS {
            return Err(Error::FileTooLarge);
        }
        mkfs::free_blocks(&self.sized(blocks), blocks << self.bs.log2())
    }
}

/// Whether a larger volume may do. An option that no size helps ends the search later.
fn is_too_small(error: &BuildError) -> bool {
    matches!(error, BuildError::Engine(Error::NoSpace | Error::Invalid(_)))
}
