//! Reading the inode tables in large pieces.
//!
//! ```text
//!   group 0: slots 0 .. used ──► pieces of at most 256 KiB ──► threads, each with its own Out
//!   group 1: …                                                                  │
//!                                                              all joined ◄──────┘
//! ```
//!
//! Slots that were never used are not read. If a descriptor's checksum is wrong, all slots of its
//! group are read.

use super::attributes::{ValueUse, XattrUse};
use super::encryption::{Policies, Policy};
use super::quota::Usages;
use super::symlinks::SymlinkBlock;
use super::values::ValueInode;
use super::{Dir, DirBlock};
use crate::audit::check::claim::{Claims, Usage};
use crate::audit::check::inodes::Inodes;
use crate::audit::check::map::Buffers;
use crate::audit::check::report::Stats;
use crate::audit::check::scatter::{TRANSFER, read_run};
use crate::audit::check::view::View;
use crate::parallel;
use crate::progress::Phase;
use extant_base::narrow::len_u32;
use extant_base::{GroupNr, Ino};
use extant_blockdev::AlignedBuf;
use hashbrown::HashSet;

/// The results of one thread.
#[derive(Default)]
pub(super) struct Out {
    pub(super) dirs: Vec<Dir>,
    pub(super) dir_blocks: Vec<DirBlock>,
    pub(super) symlinks: Vec<SymlinkBlock>,
    pub(super) xattr_uses: Vec<XattrUse>,
    pub(super) value_uses: Vec<ValueUse>,
    pub(super) values: Vec<ValueInode>,
    /// Inodes whose values may be in the old style, which charges nothing to the owner.
    pub(super) uncharged: Vec<u32>,
    pub(super) usages: Usages,
    /// Encrypted inodes and their policies.
    pub(super) policies: Vec<(u32, Policy)>,
    pub(super) stats: Stats,
    /// A file is larger than a volume without large_file permits.
    pub(super) large_file: bool,
}

impl Out {
    fn join(&mut self, other: Out) {
        self.dirs.extend(other.dirs);
        self.dir_blocks.extend(other.dir_blocks);
        self.symlinks.extend(other.symlinks);
        self.xattr_uses.extend(other.xattr_uses);
        self.value_uses.extend(other.value_uses);
        self.values.extend(other.values);
        self.uncharged.extend(other.uncharged);
        self.usages.join(other.usages);
        self.policies.extend(other.policies);
        self.large_file |= other.large_file;
        let (sum, more) = (&mut self.stats, other.stats);
        sum.inodes_used += more.inodes_used;
        sum.files += more.files;
        sum.directories += more.directories;
        sum.symlinks += more.symlinks;
        sum.special += more.special;
        sum.fragmented += more.fragmented;
    }
}

/// The state of one thread.
pub(super) struct Scan<'s, 'v> {
    pub(super) view: &'s View<'v>,
    pub(super) inodes: &'s Inodes,
    pub(super) claims: Claims<'s>,
    pub(super) orphans: &'s HashSet<u32>,
    pub(super) policies: &'s Policies,
    pub(super) buffers: Buffers,
    /// Attribute blocks whose charge for values is known, with `ea_inode`.
    pub(super) charges: hashbrown::HashMap<u64, (u64, u64)>,
    pub(super) out: Out,
}

/// A part of one group's table.
struct Piece {
    group: GroupNr,
    first_slot: u32,
    slots: u32,
}

fn pieces(view: &View<'_>) -> Vec<Piece> {
    let geometry = &view.geometry;
    let per_piece = len_u32((TRANSFER / geometry.inode_size()).max(1));
    let mut pieces = Vec::new();
    for group in geometry.groups() {
        let entry = view.group(group);
        if !entry.itable_ok {
            continue;
        }
        let used = match entry.csum_ok {
            true => entry.desc.used_slots(geometry, &view.csum),
            false => geometry.inodes_per_group(),
        };
        let mut slot = 0;
        while slot < used {
            let slots = per_piece.min(used - slot);
            pieces.push(Piece { group, first_slot: slot, slots });
            slot += slots;
        }
    }
    pieces
}

/// Calls `visit` with every slot that may be in use: its number and its bytes.
pub(in crate::audit) fn each_slot<S: Send>(
    view: &View<'_>,
    make: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, Ino, &[u8]) + Sync,
) -> Vec<S> {
    let geometry = &view.geometry;
    let (inode_size, block_bytes) = (geometry.inode_size(), view.block_bytes());
    let pieces = pieces(view);
    view.progress.begin(Phase::CheckInodes, pieces.len() as u64);
    let states = parallel::each(
        view.threads,
        pieces.len(),
        || (make(), AlignedBuf::zeroed(TRANSFER.max(block_bytes))),
        |(state, buf), n| {
            let Piece { group, first_slot, slots } = pieces[n];
            // A piece starts at the start of a block: its size is a multiple of the block size and
            // the inode size.
            let start = first_slot as usize * inode_size;
            let bytes = (slots as usize * inode_size).next_multiple_of(block_bytes);
            let first = view.group(group).desc.inode_table.0 + (start / block_bytes) as u64;
            let buf = &mut buf[..bytes];
            read_run(view, first, buf);
            let first_ino = group.0 * geometry.inodes_per_group() + first_slot + 1;
            for (k, slot) in buf.chunks_exact(inode_size).take(slots as usize).enumerate() {
                if let Some(ino) = Ino::new(first_ino + len_u32(k)) {
                    visit(state, ino, slot);
                }
            }
            view.progress.advance(Phase::CheckInodes, 1);
        },
    );
    states.into_iter().map(|(state, _)| state).collect()
}

/// Checks every inode.
pub(super) fn scan(view: &View<'_>, inodes: &Inodes, usage: &Usage, orphans: &HashSet<u32>) -> Out {
    let policies = Policies::new();
    let make = || Scan {
        view,
        inodes,
        claims: Claims::new(usage),
        orphans,
        policies: &policies,
        buffers: Buffers::default(),
        charges: hashbrown::HashMap::new(),
        out: Out::default(),
    };
    let scans = each_slot(view, make, |scan, ino, bytes| scan.slot(ino, bytes));
    let mut outs = scans.into_iter().map(|scan| scan.out);
    let mut all = outs.next().unwrap_or_default();
    outs.for_each(|out| all.join(out));
    all.policies.sort_unstable();
    all
}
