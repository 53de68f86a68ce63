//! Pass 1b: the owners of blocks that were claimed more than once.
//!
//! ```text
//!   all tables again ──► maps ──► runs that contain shared blocks ──► (block, owner), sorted
//! ```
//!
//! This pass runs only on volumes that are damaged (or share blocks intentionally).

use super::attributes::XattrUse;
use super::tables::each_slot;
use crate::audit::check::claim::Usage;
use crate::audit::check::map::{Buffers, Map, Run, Sink, walk};
use crate::audit::check::view::View;
use extant_base::{BlockNr, Error, Ino, Site, What};
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::Inode as DiskInode;
use hashbrown::HashSet;

/// How many owners are reported at most.
const OWNERS_MAX: usize = 20_000;

/// Reports every shared run with its owner.
pub(super) fn name_owners(view: &View<'_>, usage: &Usage, xattr_uses: &[XattrUse]) {
    if view.has_ro_compat(RoCompat::SHARED_BLOCKS) {
        return;
    }
    let total = usage.shared_clusters();
    let found = each_slot(view, Vec::new, |owners: &mut Vec<(u64, u64, u32)>, ino, bytes| {
        if owners.len() >= OWNERS_MAX {
            return;
        }
        let Ok(inode) = DiskInode::parse_unverified(bytes, ino, &view.format) else { return };
        let hidden = view.is_reserved(ino.get()) && ino != Ino::ROOT;
        let mapped = inode.is_file() || inode.is_dir() || inode.is_symlink() || hidden;
        let fast = inode.is_fast_symlink(&view.format);
        if (inode.links == 0 && !hidden) || !mapped || fast || inode.has_inline_data() {
            return;
        }
        if ino == Ino::RESIZE {
            return;
        }
        let map = Map {
            ino,
            extents: inode.has_extents(),
            i_block: &inode.i_block,
            seed: inode.seed(ino, &view.format),
        };
        let mut sink = Owners { usage, ino, owners, nodes: HashSet::new() };
        walk(view, &map, &mut Buffers::default(), &mut sink);
    });
    let mut owners: Vec<(u64, u64, u32)> = found.into_iter().flatten().collect();
    for one in xattr_uses {
        if !usage.shared_in(one.block..one.block + 1).is_empty() {
            owners.push((one.block, one.block + 1, one.ino));
        }
    }
    owners.sort_unstable();
    owners.dedup();
    for (n, (start, end, ino)) in owners.iter().enumerate() {
        // Compare with neighbours in disk order only. Not all owners of a run can be listed anyway.
        let near = &owners[n.saturating_sub(32)..(n + 32).min(owners.len())];
        let at = Site { ino: Ino::new(*ino), ..Site::of_block(BlockNr(*start)) };
        let others: Vec<String> = near
            .iter()
            .filter(|(s, e, i)| i != ino && s < end && start < e)
            .take(4)
            .map(|(_, _, i)| format!("inode {i}"))
            .collect();
        let others = match others.is_empty() {
            true => "metadata or the same inode".to_owned(),
            false => others.join(", "),
        };
        view.error_with(What::BlockShared, at, format!("{} blocks, with {others}", end - start));
    }
    if owners.is_empty() {
        view.error_with(What::BlockShared, Site::NOWHERE, format!("{total} clusters"));
    }
}

struct Owners<'o> {
    usage: &'o Usage,
    ino: Ino,
    owners: &'o mut Vec<(u64, u64, u32)>,
    nodes: HashSet<u64>,
}

impl Owners<'_> {
    fn add_shared(&mut self, start: u64, len: u64) -> bool {
        let limit = OWNERS_MAX.saturating_sub(self.owners.len());
        let runs = self.usage.shared_in(start..start.saturating_add(len));
        let named = runs.into_iter().take(limit);
        self.owners.extend(named.map(|run| (run.start, run.end, self.ino.get())));
        self.owners.len() < OWNERS_MAX
    }
}

impl Sink for Owners<'_> {
    fn data(&mut self, run: Run) -> bool {
        self.add_shared(run.physical, u64::from(run.len))
    }

    fn node(&mut self, block: u64, _level: u32) -> bool {
        self.add_shared(block, 1);
        // Limits how many nodes of other inodes' maps one inode can make this walk read.
        self.nodes.len() < 4096 && self.nodes.insert(block)
    }

    fn wrong(&mut self, _error: Error) -> bool {
        true
    }
}
