//! Reads a tar archive, entry by entry, into an [`Overlay`].
//!
//! ```text
//!   ┌─────────┬────────┬─────────┬────────┬───┬─────────┬─────────┐
//!   │ x: PAX  │records │ header  │ data   │ … │ zeros   │ zeros   │
//!   └─────────┴────────┴─────────┴────────┴───┴─────────┴─────────┘
//!    g: for all later ones  '0' '1' … 'S'       end: two blocks
//!    L, K: GNU long name, long link target
//! ```
//!
//! Every violation of the format is an error with the entry's name and the offset of its first
//! header. Nothing is unpacked to files: names go to the tree, contents stay in the archive or go
//! to a spool.

mod acl;
mod ahead;
mod entry;
mod header;
mod input;
mod pax;
mod sparse;

use extant_base::narrow::fits_usize;
pub(crate) use input::{Region, Spool};
use input::{Short, TarInput};

use crate::entry::ArchiveId;
use crate::error::SourceError;
use crate::overlay::{Fault, Overlay};
use crate::tree::Archive;
use acl::{Names, Wrong};
use extant::{Phase, Progress};
use hashbrown::HashMap;
use header::Header;
use pax::Pax;
use std::io::Read;
use std::path::Path;

/// The most bytes of an extended header: enough for attributes and maps of sparse files, and a
/// limit for memory.
const EXTENDED_MAX: u64 = 16 << 20;
/// The most bytes that all global extended headers may add.
const GLOBAL_MAX: usize = 64 << 10;
/// Whether whiteouts have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A tar: they have none.
    Plain,
    /// A layer: `.wh.NAME` removes NAME of lower layers, `.wh..wh..opq` all of a directory.
    Layer,
}

impl Meaning {
    /// Whether the archive may lack its end mark and the padding before it. A layer's digest shows
    /// that nothing was cut off, and `umoci insert` writes layers without both.
    fn may_lack_end(self) -> bool {
        self == Meaning::Layer
    }
}

/// Reads a plain tar from a file, in place. Messages call it `name`.
pub(crate) fn read_in_place(
    region: Region,
    name: &Path,
    meaning: Meaning,
    overlay: &mut Overlay,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    read(TarInput::in_place(region, overlay.unpacked_left()), name, meaning, overlay, progress)
}

/// Reads a tar while another thread unpacks it; its file contents go to `spool`. The
/// stream must not block for long: after an error, this waits for the thread that reads it.
pub(crate) fn read_ahead<'a>(
    reader: Box<dyn Read + Send + 'a>,
    spool: &mut Spool,
    name: &Path,
    meaning: Meaning,
    overlay: &mut Overlay,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    ahead::read_ahead(reader, |stream| read_stream(stream, spool, name, meaning, overlay, progress))
}

/// Reads an unpacked tar once, front to end; its file contents go to `spool`.
pub(crate) fn read_stream<'a>(
    reader: Box<dyn Read + 'a>,
    spool: &'a mut Spool,
    name: &Path,
    meaning: Meaning,
    overlay: &mut Overlay,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    read(TarInput::stream(reader, spool, overlay.unpacked_left()), name, meaning, overlay, progress)
}

fn read(
    input: TarInput<'_>,
    name: &Path,
    meaning: Meaning,
    overlay: &mut Overlay,
    progress: &dyn Progress,
) -> Result<(), SourceError> {
    let archive = overlay.add_archive(Archive { path: name.to_owned(), file: input.kept_in() });
    let mut reader = Reader {
        input,
        name,
        meaning,
        overlay,
        archive,
        global: Pax::default(),
        start: 0,
        entry: Vec::new(),
        names: Names::default(),
        unresolved: HashMap::new(),
    };
    loop {
        let position = reader.input.position();
        let names = reader.overlay.name_count();
        match reader.next() {
            Ok(true) => {
                let names = reader.overlay.name_count() - names;
                progress.advance(Phase::BuildList, names as u64);
                progress.advance(Phase::BuildRead, reader.input.position() - position);
            }
            Ok(false) => return reader.finish(),
            Err(stop) => return Err(reader.error(stop)),
        }
    }
}

/// The most bytes of an archive without entries. By default tar writes records of 10 KiB; another
/// size is possible.
const EMPTY_MAX: u64 = 64 << 10;

const NO_ARCHIVE: &str = "no tar archive: it starts with zeros, as disk images do";

/// Why reading stops.
enum Stop {
    Short(Short),
    Fault(Fault),
}

impl From<Short> for Stop {
    fn from(short: Short) -> Stop {
        Stop::Short(short)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

impl From<&str> for Stop {
    fn from(fault: &str) -> Stop {
        Stop::Fault(fault.into())
    }
}

struct Reader<'r, 'a> {
    input: TarInput<'a>,
    name: &'r Path,
    meaning: Meaning,
    overlay: &'r mut Overlay,
    archive: ArchiveId,
    global: Pax,
    /// Offset of the entry's first header.
    start: u64,
    /// The entry's name, for messages.
    entry: Vec<u8>,
    names: Names,
    /// Nodes with access control lists that name a user or group that no entry so far has.
    unresolved: HashMap<u32, Unresolved>,
}

/// Access control lists that wait for the owners of all entries.
struct Unresolved {
    start: u64,
    entry: Vec<u8>,
    acls: Vec<(&'static [u8], Vec<u8>)>,
}

impl Reader<'_, '_> {
    fn error(&self, stop: Stop) -> SourceError {
        let fault = match stop {
            Stop::Fault(fault) => fault,
            Stop::Short(Short::End) if self.start == 0 && self.entry.is_empty() => {
                "truncated within its first header, or no tar archive".to_owned()
            }
            Stop::Short(Short::End) => {
                format!(
                    "truncated: more is announced at byte {} than the archive holds",
                    self.input.position()
                )
            }
            Stop::Short(Short::Limit) => {
                let limit = self.overlay.unpacked_max();
                return SourceError::TooLarge { archive: self.name.to_owned(), limit };
            }
            Stop::Short(Short::Io(e)) => format!("cannot be read: {e}"),
        };
        SourceError::Archive {
            archive: self.name.to_owned(),
            offset: self.start,
            entry: self.entry.clone(),
            fault,
        }
    }

    /// Reads the next entry with all headers that belong to it. False at the archive's end.
    fn next(&mut self) -> Result<bool, Stop> {
        self.entry.clear();
        self.start = self.input.position();
        let mut pax: Option<Pax> = None;
        let (mut long_name, mut long_link) = (None, None);
        let mut extended = 0;
        loop {
            let Some(block) = self.input.block()? else {
                if self.input.position() == 0 {
                    return Err("empty: no tar archive".into());
                }
                let has_headers = pax.is_some() || long_name.is_some() || long_link.is_some();
                if self.meaning.may_lack_end() && !has_headers {
                    return Ok(false);
                }
                return Err("truncated: the archive ends without its end mark".into());
            };
            if block.iter().all(|&b| b == 0) {
                if pax.is_some() || long_name.is_some() || long_link.is_some() {
                    return Err("truncated: an extended header describes no entry".into());
                }
                return self.end();
            }
            let header = Header::check(&block).map_err(|fault| match self.start {
                0 if pax.is_none() && !header::checksum_is_right(&block) => {
                    "no tar archive, or damaged at its start: header checksum is wrong".into()
                }
                _ => fault,
            })?;
            match header.kind {
                b'x' | b'X' | b'g' | b'L' | b'K' => {
                    // Limits the headers of one entry, so that a chain of headers ends.
                    extended += header.size.max(1);
                    if header.size > EXTENDED_MAX || extended > 2 * EXTENDED_MAX {
                        return Err(format!(
                            "extended header of {} bytes: more than {EXTENDED_MAX} are not taken",
                            header.size
                        )
                        .into());
                    }
                    let bytes = self.input.bytes(fits_usize(header.size))?;
                    match header.kind {
                        b'g' => {
                            self.global.read(&bytes)?;
                            // Each later entry gets a copy of these, so they must be small.
                            if self.global.weight() > GLOBAL_MAX {
                                return Err("global headers hold more than 64 KiB".into());
                            }
                        }
                        b'L' => long_name = Some(until_nul(bytes)),
                        b'K' => long_link = Some(until_nul(bytes)),
                        _ => {
                            let global = &self.global;
                            pax.get_or_insert_with(|| global.clone()).read(&bytes)?;
                        }
                    }
                }
                _ => {
                    let pax = pax.unwrap_or_else(|| self.global.clone());
                    self.take(header, pax, long_name, long_link)?;
                    return Ok(true);
                }
            }
        }
    }

    /// Called after one zero block: another one, or the end of the file, must follow.
    fn end(&mut self) -> Result<bool, Stop> {
        match self.input.block()? {
            None => Ok(false),
            Some(block) if block.iter().all(|&b| b == 0) && self.start == 0 => self.empty(),
            Some(block) if block.iter().all(|&b| b == 0) => Ok(false),
            Some(_) if self.start == 0 => Err(NO_ARCHIVE.into()),
            Some(_) => Err("a single block of zeros stands between entries: damaged".into()),
        }
    }

    /// Called when the first two blocks are zeros. It is an archive without entries, unless data
    /// follows, or more zeros than the padding of an archive. Disk images start with zeros, too.
    fn empty(&mut self) -> Result<bool, Stop> {
        while let Some(block) = self.input.block()? {
            if self.input.position() > EMPTY_MAX || block.iter().any(|&b| b != 0) {
                return Err(NO_ARCHIVE.into());
            }
        }
        Ok(false)
    }

    fn finish(mut self) -> Result<(), SourceError> {
        self.entry.clear();
        if let Err(e) = self.input.drain() {
            self.start = self.input.position();
            return Err(self.error(Stop::Short(e)));
        }
        self.overlay.count_unpacked(self.input.position());
        for (node, waiting) in std::mem::take(&mut self.unresolved) {
            (self.start, self.entry) = (waiting.start, waiting.entry);
            for (name, text) in waiting.acls {
                let value = acl::from_text(&text, &self.names);
                let done = value.map_err(Wrong::into_fault);
                let done = done.and_then(|value| self.overlay.add_xattr(node, name, &value));
                done.map_err(|fault| self.error(Stop::Fault(fault)))?;
            }
        }
        Ok(())
    }
}

fn until_nul(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    bytes.truncate(end);
    bytes
}

#[cfg(test)]
pub(crate) mod tests;
