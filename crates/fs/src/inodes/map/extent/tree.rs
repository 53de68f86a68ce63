//! Walking an extent tree from the root to one logical block.
//!
//! ```text
//!   i_block     root, depth d      checked at every walk: 4 entries
//!      │ last key <= block
//!      ▼
//!   block       node, depth d-1    checked whole when it enters the cache; every walk checks that
//!      │                           its depth, first key and end fit the parent
//!      ▼
//!   block       leaf, depth 0 ──► the extent that holds the block, or the hole up to the next
//! ```
//!
//! Source: ext4 documentation, "Extent Tree".

use crate::context::role::Role;
use crate::inodes::file::FileRef;
use crate::inodes::map::{Run, Target};
use crate::volume::Volume;
use extant_base::{BlockNr, Ino, LogicalBlock, Result, Site, What};
use extant_journal::MetaBlock;
use extant_ondisk::extent::{Extent, ExtentNode, NodeRules};

/// The answer of a node for one logical block.
enum Answer {
    /// The run is known.
    Run(Run),
    /// The child at this entry has the answer.
    Below(BlockNr, NodeRules),
}

/// See [`FileRef::map`].
pub(in crate::inodes::map) fn map(file: FileRef<'_>, at: LogicalBlock, limit: u32) -> Result<Run> {
    let site = Site::of_ino(file.ino());
    let rules = NodeRules::root(file.volume.geometry());
    let root = ExtentNode::check(&file.body.disk.i_block, &rules, site)?;
    let mut answer = lookup(&root, &rules, at, limit);
    if let Answer::Run(run) = &answer {
        // Extents of the root were not checked against metadata before.
        if let Some(block) = run.target.block() {
            file.volume.check_extent_place(file.ino(), run.logical, block, run.len, site)?;
        }
    }
    loop {
        match answer {
            Answer::Run(run) => return Ok(run),
            // The depth falls with every step, so this ends.
            Answer::Below(nr, rules) => {
                let block = file.extent_node(nr, &rules)?;
                let bytes = block.read();
                let node = ExtentNode::trusted(&bytes, site.block(nr))?;
                answer = lookup(&node, &rules, at, limit);
            }
        }
    }
}

fn lookup(node: &ExtentNode<'_>, rules: &NodeRules, at: LogicalBlock, limit: u32) -> Answer {
    let hole_to = |end: u32| {
        let len = end.saturating_sub(at.0).clamp(1, limit);
        Answer::Run(Run { logical: at, len, target: Target::Hole })
    };
    let n = match node.search(at) {
        None if node.is_empty() => return hole_to(rules.end),
        None => return hole_to(node.key(0).0),
        Some(n) => n,
    };
    if !node.is_leaf() {
        return Answer::Below(node.index(n).child, rules.child(node, n, None));
    }
    let extent = node.extent(n);
    match extent.physical_of(at) {
        Some(block) => Answer::Run(Run {
            logical: at,
            len: (extent.end() - at.0).min(limit),
            target: Target::of(block, extent.state),
        }),
        None if n + 1 < node.len() => hole_to(node.key(n + 1).0),
        None => hole_to(rules.end),
    }
}

impl FileRef<'_> {
    /// The node of the inode's tree in block `nr`. It is checked whole when it enters the cache,
    /// and against its parent (`rules`, which need no seed) each time.
    ///
    /// Errors: those of `ExtentNode::check`; `ExtentRange` for an extent on metadata;
    /// `ExtentCluster`; `Device`.
    pub(crate) fn extent_node(self, nr: BlockNr, rules: &NodeRules) -> Result<MetaBlock> {
        let site = Site::of_ino(self.ino()).block(nr);
        let block = self.volume.journal().cache().get(nr)?;
        let kind = Role::ExtentNode(self.ino()).kind();
        if block.is_verified_as(kind) {
            let bytes = block.read();
            let node = ExtentNode::trusted(&bytes, site)?;
            if rules.depth != Some(node.depth()) {
                return Err(site.offset(6).corrupt(What::ExtentDepth));
            }
            if !node.is_empty() && rules.first_key != Some(node.key(0)) {
                return Err(site.offset(12).corrupt(What::ExtentKey));
            }
            if !node.is_empty() && node.key(node.len() - 1).0 >= rules.end {
                return Err(site.corrupt(What::ExtentOrder));
            }
            drop(bytes);
            return Ok(block);
        }
        let rules = &NodeRules { seed: self.body.seed(self.volume.context()), ..rules.clone() };
        let extents: Vec<Extent> = self.volume.journal().cache().checked(&block, |bytes| {
            Ok(ExtentNode::check(bytes, rules, site)?.extents().collect())
        })?;
        if self.volume.context().guards_system(self.ino()) && self.volume.space().is_system(nr, 1) {
            return Err(site.corrupt(What::ExtentRange));
        }
        for extent in extents {
            self.volume.check_extent_place(
                self.ino(),
                extent.logical,
                extent.physical,
                extent.len,
                site,
            )?;
        }
        block.set_verified_as(kind);
        Ok(block)
    }
}

impl Volume {
    /// Checks that an extent overlaps no metadata and, with bigalloc, has the same offset in its
    /// cluster as its logical block.
    pub(super) fn check_extent_place(
        &self,
        ino: Ino,
        logical: LogicalBlock,
        physical: BlockNr,
        len: u32,
        at: Site,
    ) -> Result<()> {
        let ratio = u64::from(self.geometry().cluster_ratio());
        if physical.0 % ratio != u64::from(logical.0) % ratio {
            return Err(at.corrupt(What::ExtentCluster));
        }
        if self.context().guards_system(ino) && self.space().is_system(physical, u64::from(len)) {
            return Err(at.block(physical).corrupt(What::ExtentRange));
        }
        Ok(())
    }
}
