//! Listing a directory, one block at a time.
//!
//! ```text
//!   next_batch ──► all names of one block (or inline area) ──► position of the next block
//!                  bad block or entry: an error among the names; the rest follows
//! ```
//!
//! A batch is read under the directory's lock; between batches the directory may change. A name
//! that stays is listed once, wherever it went: see [`super::moves`].

use super::moves::Followed;
use super::{Dir, Form, linear::Names, nokey::NoKey};
use extant_base::{Error, Ino, LogicalBlock, Result, What};
use extant_ondisk::dirent::{DirBlock, Dirent, EntryKind};

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name; for an encrypted directory the text that stands for it.
    pub(crate) name: Vec<u8>,
    /// What it names.
    pub(crate) ino: Ino,
    /// The kind of file recorded beside it.
    pub(crate) kind: EntryKind,
}

/// Where a listing goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    next: u32,
    /// Blocks below this one were brought into the cache.
    ahead: u32,
    moves: Followed,
}

impl Dir<'_> {
    /// Appends the entries of the next block to `out`, "." and ".." left out; `false` when there is
    /// no next block.
    ///
    /// What is wrong with a block or an entry stands among the entries; only what concerns the
    /// whole directory is an error of the call.
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
                give(entry, None, &mut out);
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
        if position.moves.passes_over(at) {
            return Ok(true);
        }
        match self.block(at) {
            Ok(Some(block)) => match self.check_block(at, &block) {
                Ok(Names::Node) => {}
                Ok(names) => {
                    let bytes = block.read();
                    let site = self.site_of(&block);
                    for entry in DirBlock::new(&bytes, self.format_of(names), site).entries() {
                        give(entry, nokey.as_ref(), &mut out);
                    }
                }
                Err(error) => out(Err(error)),
            },
            Ok(None) => {
                out(Err(self.site().corrupt(What::DirectoryHole)));
                position.next = self.after_hole(at)?;
            }
            // A damaged map would fail for every block behind, too.
            Err(error @ Error::Corrupt { .. }) => {
                position.next = self.blocks;
                out(Err(error));
            }
            Err(error) => out(Err(error)),
        }
        Ok(true)
    }

    /// Whether nothing but "." and ".." is in the directory. Errors count as something.
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

fn give(entry: Result<Dirent<'_>>, nokey: Option<&NoKey>, out: &mut impl FnMut(Result<Entry>)) {
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
