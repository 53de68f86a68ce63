//! Listing a directory, one block at a time.
//!
//! ```text
//!   next_batch ──► all names of one block (or inline area) ──► position of the next block
//!                  bad block or entry: an error among the names; the rest follows
//! ```
//!
//! A batch is read under the directory's lock. Between batches the directory may change. A name
//! that stays is listed once, even if it moves to another block: see `state/inode/moves.rs`.

use super::{Dir, Form, linear::Names, nokey::NoKey};
use crate::state::inode::moves::Followed;
use extant_base::{Error, Ino, LogicalBlock, Result, What};
use extant_ondisk::dirent::{DirBlock, Dirent, EntryKind};

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name; in an encrypted directory, the text that encodes it.
    pub(crate) name: Vec<u8>,
    /// The inode of the name.
    pub(crate) ino: Ino,
    /// The kind of file that the entry records.
    pub(crate) kind: EntryKind,
}

/// Where a listing continues.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    next: u32,
    /// Blocks below this one have been prefetched.
    ahead: u32,
    moves: Followed,
}

impl Dir<'_> {
    /// Passes the entries of the next block to `out`, except "." and "..". Returns `false` if there
    /// is no next block.
    ///
    /// Damage of a block or an entry is passed as an error among the entries. The call itself fails
    /// only if the whole directory is affected.
    pub(crate) fn next_batch(
        &self,
        position: &mut Position,
        mut out: impl FnMut(Result<Entry>),
    ) -> Result<bool> {
        position.moves.follow(&self.body.moves, position.next);
        if self.form == Form::Inline {
            if position.next > 0 {
                return Ok(false);
            }
            position.next = 1;
            for entry in self.inline()?.entries() {
                emit(entry, None, &mut out);
            }
            return Ok(true);
        }
        if position.next >= self.blocks {
            return Ok(false);
        }
        let nokey = self.is_encrypted().then(|| NoKey::of(self));
        let at = LogicalBlock(position.next);
        if at.0 >= position.ahead {
            self.prefetch(at, super::linear::SCAN_AHEAD);
            position.ahead = at.0.saturating_add(super::linear::SCAN_AHEAD);
        }
        position.next += 1;
        if position.moves.skips(at) {
            return Ok(true);
        }
        match self.block(at) {
            Ok(Some(block)) => match self.check_block(at, &block) {
                Ok(Names::Node) => {}
                Ok(names) => {
                    let bytes = block.read();
                    let site = self.site_of(&block);
                    for entry in DirBlock::new(&bytes, self.format_of(names), site).entries() {
                        emit(entry, nokey.as_ref(), &mut out);
                    }
                }
                Err(error) => out(Err(error)),
            },
            Ok(None) => {
                out(Err(self.site().corrupt(What::DirectoryHole)));
                position.next = self.after_hole(at)?;
            }
            // If the map is damaged, every later block would fail, too.
            Err(error @ Error::Corrupt { .. }) => {
                position.next = self.blocks;
                out(Err(error));
            }
            Err(error) => out(Err(error)),
        }
        Ok(true)
    }

    /// Whether the directory has no names except "." and "..". Damage is returned as an error.
    pub(crate) fn is_empty(&self) -> Result<bool> {
        let mut position = Position::default();
        let mut found = Ok(true);
        while matches!(found, Ok(true))
            && self.next_batch(&mut position, |entry| match entry {
                Ok(_) => found = Ok(false),
                Err(error) => found = Err(error),
            })?
        {}
        found
    }
}

fn emit(entry: Result<Dirent<'_>>, nokey: Option<&NoKey>, out: &mut impl FnMut(Result<Entry>)) {
    match entry {
        Ok(entry) => {
            if let Some(ino) = entry.ino
                && !entry.is_dot_or_dotdot()
            {
                let name = match nokey {
                    Some(nokey) => nokey.encode(&entry),
                    None => entry.name.to_vec(),
                };
                out(Ok(Entry { name, ino, kind: entry.kind }));
            }
        }
        Err(error) => out(Err(error)),
    }
}
