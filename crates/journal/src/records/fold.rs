//! Reduces many changes to their net effect.
//!
//! ```text
//!   notes, in order                                inodes               names, in order
//!   InodeAllocated 12, Create 2/tmp 12             12: allocated here
//!   Range 12 0..=3, Inode 12              ──►          ranges 0..=3
//!   Link 2/new 12, Unlink 2/tmp 12                                      new ► 12
//!   InodeAllocated 13, Create 2/x 13,              (13: as if never)    (x: as if never)
//!   Unlink 2/x 13, InodeFreed 13
//! ```
//!
//! An inode is *hidden* from its allocation until a fast or full commit records it: recovery knows
//! nothing of it. Names that a hidden inode got and lost again are not recorded. A hidden inode
//! without a name stays hidden, because recovery would free it anyway. Names of a recorded inode
//! are recorded in their order, so that the inode has a name at every moment, unless it is freed.
//! In that case its last UNLINK is enough, because recovery frees an inode without names.
//!
//! Rule: changes that contradict each other lead to a full commit.

use crate::records::changes::Change;
use crate::records::ineligible::Ineligible;
use crate::records::ranges::Ranges;
use extant_base::Ino;
use extant_ondisk::dirent::name_is_legal;
use hashbrown::{HashMap, HashSet};

/// The net changes of one inode.
pub(crate) struct FoldedInode {
    pub(crate) ino: Ino,
    /// It was hidden when its first change came.
    pub(crate) hidden: bool,
    /// It was freed. If it was hidden until then, it is not recorded.
    pub(crate) gone: bool,
    pub(crate) ranges: Ranges,
    /// Names that it got, less those that it lost.
    pub(crate) names: i32,
    /// The least value of `names` so far, at most 0.
    pub(crate) names_min: i32,
    /// The last change of its names, an index into [`Fold::names`]; `None` if there was none.
    pub(crate) renamed: Option<usize>,
}

impl FoldedInode {
    /// Whether its last known change is the loss of a name.
    fn lost_its_last_name(&self) -> bool {
        !self.gone && self.names < 0 && self.names == self.names_min
    }
}

/// A name that was added or removed.
pub(crate) struct NameOp<'n> {
    pub(crate) parent: Ino,
    /// Index into [`Fold::inodes`].
    pub(crate) inode: usize,
    pub(crate) name: &'n [u8],
    /// The name was added.
    pub(crate) adds: bool,
    /// The name was removed again before a fast commit recorded it.
    pub(crate) cancelled: bool,
    /// The previous change of the same inode's names.
    previous: Option<usize>,
}

/// Changes folded so far.
pub(crate) struct Fold<'n> {
    /// Inodes that were allocated since the last full commit and not recorded: none of them had a
    /// name.
    hidden: &'n HashSet<Ino>,
    /// In the order of their first change. A number that was used again has several entries.
    pub(crate) inodes: Vec<FoldedInode>,
    index: HashMap<Ino, usize>,
    pub(crate) names: Vec<NameOp<'n>>,
}

impl<'n> Fold<'n> {
    /// No change. `hidden` are the inodes that were allocated since the last full commit and not
    /// recorded.
    pub(crate) fn new(hidden: &'n HashSet<Ino>) -> Fold<'n> {
        Fold { hidden, inodes: Vec::new(), index: HashMap::new(), names: Vec::new() }
    }

    /// Adds one change. Errors: why a full commit is needed.
    pub(crate) fn add(&mut self, change: Change<'n>) -> Result<(), Ineligible> {
        match change {
            Change::Nothing => {}
            Change::Full(why) => return Err(why),
            Change::Inode(ino) => {
                self.touch(ino);
            }
            Change::Range { ino, first, last } => {
                let at = self.touch(ino);
                self.inodes[at].ranges.insert(first, last);
            }
            Change::Create { parent, ino, name } => {
                let at = self.touch(ino);
                if !self.inodes[at].hidden || self.inodes[at].gone {
                    return Err(Ineligible::Unclear);
                }
                self.name(parent, at, name, true)?;
            }
            Change::Link { parent, ino, name } => {
                let at = self.touch(ino);
                self.name(parent, at, name, true)?;
            }
            Change::Unlink { parent, ino, name } => {
                let at = self.touch(ino);
                self.name(parent, at, name, false)?;
            }
            Change::InodeAllocated(ino) => self.made(ino)?,
            Change::InodeFreed(ino) => {
                let at = self.touch(ino);
                let inode = &mut self.inodes[at];
                match inode.hidden {
                    true if inode.names == 0 && !inode.gone => inode.gone = true,
                    true => return Err(Ineligible::Unclear),
                    false if inode.lost_its_last_name() => inode.gone = true,
                    false => return Err(Ineligible::LastLink),
                }
            }
        }
        Ok(())
    }

    /// The inode that has the number now.
    fn touch(&mut self, ino: Ino) -> usize {
        match self.index.get(&ino) {
            Some(at) => *at,
            None => self.begin(ino, self.hidden.contains(&ino)),
        }
    }

    fn begin(&mut self, ino: Ino, hidden: bool) -> usize {
        self.inodes.push(FoldedInode {
            ino,
            hidden,
            gone: false,
            ranges: Ranges::default(),
            names: 0,
            names_min: 0,
            renamed: None,
        });
        self.index.insert(ino, self.inodes.len() - 1);
        self.inodes.len() - 1
    }

    fn made(&mut self, ino: Ino) -> Result<(), Ineligible> {
        let is_free = match self.index.get(&ino) {
            Some(at) => self.inodes[*at].gone,
            None => !self.hidden.contains(&ino),
        };
        if !is_free {
            return Err(Ineligible::InodeReused);
        }
        self.begin(ino, true);
        Ok(())
    }

    fn name(
        &mut self,
        parent: Ino,
        at: usize,
        name: &'n [u8],
        adds: bool,
    ) -> Result<(), Ineligible> {
        let inode = &mut self.inodes[at];
        if inode.gone || !name_is_legal(name) {
            return Err(Ineligible::Unclear);
        }
        inode.names += if adds { 1 } else { -1 };
        inode.names_min = inode.names_min.min(inode.names);
        if !inode.hidden || adds {
            let previous = inode.renamed.replace(self.names.len());
            self.names.push(NameOp { parent, inode: at, name, adds, cancelled: false, previous });
            return Ok(());
        }
        let mut next = inode.renamed;
        while let Some(op) = next.map(|nr| &mut self.names[nr]) {
            if !op.cancelled && op.parent == parent && op.name == name {
                op.cancelled = true;
                return Ok(());
            }
            next = op.previous;
        }
        Err(Ineligible::Unclear)
    }

    /// Updates `hidden`, the set that [`Fold::new`] took, after a fast commit recorded the changes.
    pub(crate) fn update_hidden(inodes: &[FoldedInode], hidden: &mut HashSet<Ino>) {
        for inode in inodes.iter().filter(|inode| inode.hidden) {
            match inode.gone || inode.names > 0 {
                true => hidden.remove(&inode.ino),
                false => hidden.insert(inode.ino),
            };
        }
    }
}
