//! What is left of many changes when only the end counts.
//!
//! ```text
//!   notes, in order                          inodes               names, in order
//!   Made 12, Create 2/tmp 12                 12: made here
//!   Range 12 0..=3, Inode 12        ──►          ranges 0..=3
//!   Link 2/new 12, Unlink 2/tmp 12                                new ► 12
//!   Made 13, Create 2/x 13,                  (13: as if never)    (x: as if never)
//!   Unlink 2/x 13, Gone 13
//! ```
//!
//! An inode is *hidden* from its making until a fast commit or a full one tells it: whoever
//! recovers the volume knows nothing of it. Names that such an inode lost again are left out, and
//! without a name it stays hidden, because a crash would take it away anyhow. Of an inode that was
//! told, names are repeated as they came, so that it is never without one unless it goes: then its
//! last UNLINK says all, because whoever recovers frees what has no name.
//!
//! Rule: what does not fit together is not explained but answered with a full commit.

use crate::records::changes::Change;
use crate::records::ineligible::Ineligible;
use crate::records::ranges::Ranges;
use extant_base::Ino;
use extant_ondisk::dirent::name_is_legal;
use hashbrown::{HashMap, HashSet};

/// One inode's share.
pub(crate) struct Touched {
    pub(crate) ino: Ino,
    /// It is hidden so far.
    pub(crate) hidden: bool,
    /// It is no more. If it was hidden to the end, whoever recovers need not hear of it.
    pub(crate) gone: bool,
    pub(crate) ranges: Ranges,
    /// Names it got, less those it lost.
    pub(crate) names: i32,
    /// The least that number ever was, at most 0.
    pub(crate) names_least: i32,
    /// Its names changed; the last of these changes, in [`Fold::names`].
    pub(crate) renamed: Option<usize>,
}

impl Touched {
    /// Whether the last thing that is known of it is that it lost a name.
    fn goes_with_its_name(&self) -> bool {
        !self.gone && self.names < 0 && self.names == self.names_least
    }
}

/// A name that comes or goes.
pub(crate) struct NameOp<'n> {
    pub(crate) parent: Ino,
    /// Its place in [`Fold::inodes`].
    pub(crate) inode: usize,
    pub(crate) name: &'n [u8],
    /// It comes.
    pub(crate) adds: bool,
    /// It went again before anybody heard of it.
    pub(crate) void: bool,
    /// The change of the same inode's names before this one.
    before: Option<usize>,
}

/// Changes folded so far.
pub(crate) struct Fold<'n> {
    /// Inodes that were made since the last full commit and not told: none had a name.
    hidden: &'n HashSet<Ino>,
    /// In the order in which they were first changed. A number that was used again has several.
    pub(crate) inodes: Vec<Touched>,
    index: HashMap<Ino, usize>,
    pub(crate) names: Vec<NameOp<'n>>,
}

impl<'n> Fold<'n> {
    /// No change; `hidden` are inodes that were made since the last full commit and not told.
    pub(crate) fn new(hidden: &'n HashSet<Ino>) -> Fold<'n> {
        Fold { hidden, inodes: Vec::new(), index: HashMap::new(), names: Vec::new() }
    }

    /// Adds one more change. Errors: why it takes a full commit.
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
            Change::Made(ino) => self.made(ino)?,
            Change::Gone(ino) => {
                let at = self.touch(ino);
                let inode = &mut self.inodes[at];
                match inode.hidden {
                    true if inode.names == 0 && !inode.gone => inode.gone = true,
                    true => return Err(Ineligible::Unclear),
                    false if inode.goes_with_its_name() => inode.gone = true,
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
        self.inodes.push(Touched {
            ino,
            hidden,
            gone: false,
            ranges: Ranges::default(),
            names: 0,
            names_least: 0,
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
        inode.names_least = inode.names_least.min(inode.names);
        if !inode.hidden || adds {
            let before = inode.renamed.replace(self.names.len());
            self.names.push(NameOp { parent, inode: at, name, adds, void: false, before });
            return Ok(());
        }
        let mut next = inode.renamed;
        while let Some(op) = next.map(|nr| &mut self.names[nr]) {
            if !op.void && op.parent == parent && op.name == name {
                op.void = true;
                return Ok(());
            }
            next = op.before;
        }
        Err(Ineligible::Unclear)
    }

    /// Brings `hidden`, what [`Fold::new`] was given, up to date: a fast commit told the changes.
    pub(crate) fn settle(inodes: &[Touched], hidden: &mut HashSet<Ino>) {
        for inode in inodes.iter().filter(|inode| inode.hidden) {
            match inode.gone || inode.names > 0 {
                true => hidden.remove(&inode.ino),
                false => hidden.insert(inode.ino),
            };
        }
    }
}
