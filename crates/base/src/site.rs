//! The place of an error on a volume, as far as it is known.

use crate::numbers::{BlockNr, GroupNr, Ino, Tid};
use core::fmt;

/// A place on a volume, as far as it is known.
///
/// The caller starts with one coordinate and adds the others that it knows:
/// `Site::of_ino(ino).block(nr).offset(24)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// The inode.
    pub ino: Option<Ino>,
    /// The block group.
    pub group: Option<GroupNr>,
    /// The filesystem block; inside the journal, the log block.
    pub block: Option<BlockNr>,
    /// Bytes from the start of the block, inode or structure.
    pub offset: Option<u32>,
    /// The journal transaction.
    pub tid: Option<Tid>,
}

impl Site {
    /// The place with no known coordinate.
    pub const NOWHERE: Site = Site { ino: None, group: None, block: None, offset: None, tid: None };

    /// A place inside `ino`.
    pub fn of_ino(ino: Ino) -> Site {
        Site { ino: Some(ino), ..Site::NOWHERE }
    }

    /// A place inside `group`.
    pub fn of_group(group: GroupNr) -> Site {
        Site { group: Some(group), ..Site::NOWHERE }
    }

    /// A place inside `block`.
    pub fn of_block(block: BlockNr) -> Site {
        Site { block: Some(block), ..Site::NOWHERE }
    }

    /// The same place, in `ino`.
    pub fn ino(self, ino: Ino) -> Site {
        Site { ino: Some(ino), ..self }
    }

    /// The same place, in `group`.
    pub fn group(self, group: GroupNr) -> Site {
        Site { group: Some(group), ..self }
    }

    /// The same place, in `block`.
    pub fn block(self, block: BlockNr) -> Site {
        Site { block: Some(block), ..self }
    }

    /// The same place, `offset` bytes from the start of the block, inode or structure. An offset
    /// that does not fit 32 bits is left out.
    pub fn offset(self, offset: usize) -> Site {
        Site { offset: u32::try_from(offset).ok(), ..self }
    }

    /// The same place, in transaction `tid`.
    pub fn tid(self, tid: Tid) -> Site {
        Site { tid: Some(tid), ..self }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        macro_rules! part {
            ($name:literal, $value:expr) => {
                if let Some(value) = $value {
                    write!(f, "{before}{} {value}", $name)?;
                    before = ", ";
                }
            };
        }
        part!("group", self.group);
        part!("ino", self.ino);
        part!("block", self.block);
        part!("offset", self.offset);
        part!("tid", self.tid);
        if before.is_empty() { f.write_str("place unknown") } else { Ok(()) }
    }
}
