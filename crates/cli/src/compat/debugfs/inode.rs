//! `stat`: an inode as text.

use super::session::{Done, Session, Wrong, about};
use crate::compat::clock;
use crate::compat::console::Console;
use crate::compat::volume::Piece;
use extant::FileKind;
use extant_base::Ino;
use extant_ondisk::inode::{Inode, InodeFlags};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::PathBuf;

/// Values of attributes below this length are shown.
const SHOWN_MAX: usize = 40;

/// Prints the inode of `name`.
pub(super) fn stat(session: &mut Session, name: &OsStr, to: &mut Console) -> Done {
    let ino = session.ino(name, "stat")?;
    let (attributes, target) = beyond(session, ino);
    let raw = session.raw();
    let bytes = raw.inode_bytes(ino).map_err(|error| about(name, &error))?;
    let inode = raw.inode(ino).map_err(|error| about(name, &error))?;
    let text = Text { session, ino, inode: &inode, bytes: &bytes, attributes, target };
    Ok(to.print(format_args!("{}", text.all().map_err(|error| about(name, &error))?))?)
}

/// The attributes of an inode, and the target of a symlink, as far as they can be read.
fn beyond(session: &mut Session, ino: Ino) -> (Vec<(OsString, Vec<u8>)>, Option<PathBuf>) {
    let Ok(fs) = session.reader("stat") else { return (Vec::new(), None) };
    let Ok(node) = fs.node_of_ino(ino) else { return (Vec::new(), None) };
    (node.xattr_values().unwrap_or_default(), node.read_link().ok())
}

/// An attribute with its value, if that is short.
pub(super) fn attribute(name: &OsStr, value: &[u8]) -> String {
    let mut text = format!("{} ({})", name.to_string_lossy(), value.len());
    if value.len() < SHOWN_MAX {
        let is_text = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        match is_text {
            true => {
                let _ = write!(text, " = \"{}\"", String::from_utf8_lossy(value));
            }
            false => {
                text.push_str(" = ");
                for byte in value {
                    let _ = write!(text, "{byte:02x} ");
                }
            }
        }
    }
    text
}

struct Text<'a> {
    session: &'a Session,
    ino: Ino,
    inode: &'a Inode,
    bytes: &'a [u8],
    attributes: Vec<(OsString, Vec<u8>)>,
    target: Option<PathBuf>,
}

impl Text<'_> {
    /// The 32-bit word at a place of the slot.
    fn word(&self, at: usize) -> u32 {
        let word = self.bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_le_bytes(word.unwrap_or_default())
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Whether the part after 128 bytes holds a word that ends at `end`.
    fn has(&self, end: u16) -> bool {
        self.bytes.len() > 128 && self.inode.extra_isize >= end
    }

    fn all(&self) -> extant::Result<String> {
        let inode = self.inode;
        let kind = match inode.kind() {
            Some(FileKind::Regular) => "regular",
            Some(FileKind::Directory) => "directory",
            Some(FileKind::Symlink) => "symlink",
            Some(FileKind::CharDevice) => "character special",
            Some(FileKind::BlockDevice) => "block special",
            Some(FileKind::Fifo) => "FIFO",
            Some(FileKind::Socket) => "socket",
            None => "bad type",
        };
        let mut text = format!(
            "Inode: {}   Type: {kind}    Mode:  {:04o}   Flags: {:#x}\n",
            self.ino.get(),
            inode.mode & 0o7777,
            self.word(0x20)
        );
        let _ = write!(text, "Generation: {}    Version: 0x", inode.generation);
        let has_high = self.has(28);
        if has_high {
            let _ = write!(text, "{:08x}:", self.word(128 + 0x18));
        }
        let _ = writeln!(text, "{:08x}", self.word(0x24));
        let _ = write!(text, "User: {:5}   Group: {:5}", inode.uid, inode.gid);
        if self.has(32) {
            let _ = write!(text, "   Project: {:5}", self.word(128 + 0x1C));
        }
        let _ = writeln!(text, "   Size: {}", inode.size);
        let acl = u64::from(self.word(0x68)) | u64::from(self.half(0x76)) << 32;
        let _ = writeln!(text, "File ACL: {acl}");
        let blocks = u64::from(self.word(0x1C)) | u64::from(self.half(0x74)) << 32;
        let _ = writeln!(text, "Links: {}   Blockcount: {blocks}", inode.links);
        // Linux has other fields in the place of fragments.
        text.push_str("Fragment:  Address: 0    Number: 0    Size: 0\n");
        self.times(&mut text);
        if self.bytes.len() > 128 {
            let _ = writeln!(text, "Size of extra inode fields: {}", inode.extra_isize);
        }
        self.attributes(&mut text);
        self.checksum(&mut text);
        self.content(&mut text)?;
        Ok(text)
    }

    fn times(&self, text: &mut String) {
        let has_extra = self.has(24);
        let mut line = |name: &str, at: usize, extra: Option<usize>| {
            let word = self.word(at);
            let mut sec = i64::from(word.cast_signed());
            let _ = write!(text, "{name}: {word:#010x}");
            if let Some(extra) = extra.map(|extra| self.word(extra)) {
                sec += i64::from(extra & 3) << 32;
                let _ = write!(text, ":{extra:08x}");
            }
            let _ = writeln!(text, " -- {}", clock::ctime(sec));
        };
        match has_extra {
            true => {
                line(" ctime", 0x0C, Some(128 + 4));
                line(" atime", 0x08, Some(128 + 12));
                line(" mtime", 0x10, Some(128 + 8));
                line("crtime", 128 + 16, Some(128 + 20));
            }
            false => {
                line("ctime", 0x0C, None);
                line("atime", 0x08, None);
                line("mtime", 0x10, None);
            }
        }
        if self.inode.dtime != 0 {
            let name = if has_extra { " dtime" } else { "dtime" };
            let time = clock::ctime(i64::from(self.inode.dtime));
            let _ = writeln!(text, "{name}: {:#010x} -- {time}", self.inode.dtime);
        }
    }

    fn attributes(&self, text: &mut String) {
        let inline = self.inline_beyond();
        if self.attributes.is_empty() && inline.is_none() {
            return;
        }
        text.push_str("Extended attributes:\n");
        if let Some(beyond) = inline {
            let _ = writeln!(text, "  system.data ({beyond})");
        }
        for (name, value) in &self.attributes {
            let _ = writeln!(text, "  {}", attribute(name, value));
        }
    }

    /// Bytes of inline content after the first 60.
    fn inline_beyond(&self) -> Option<u64> {
        self.inode.has_inline_data().then(|| self.inode.size.saturating_sub(60))
    }

    fn checksum(&self, text: &mut String) {
        if self.session.raw().checksums.seed().is_none() {
            return;
        }
        let high = if self.has(4) { self.half(128 + 2) } else { 0 };
        let stored = u32::from(self.half(0x7C)) | u32::from(high) << 16;
        let _ = writeln!(text, "Inode checksum: {stored:#010x}");
    }

    fn content(&self, text: &mut String) -> extant::Result<()> {
        let inode = self.inode;
        let raw = self.session.raw();
        let is_inside = inode.is_fast_symlink(&raw.format) || inode.has_inline_data();
        if let (true, Some(target)) = (inode.is_symlink() && is_inside, &self.target) {
            let _ = writeln!(text, "Fast link dest: \"{}\"", target.to_string_lossy());
        } else if let Some(device) = inode.device() {
            let (major, minor) = (device.major, device.minor);
            let _ = writeln!(
                text,
                "Device major/minor number: {major:02}:{minor:02} (hex {major:02x}:{minor:02x})"
            );
        } else if let Some(beyond) = self.inline_beyond() {
            let _ = writeln!(text, "Size of inline data: {}", 60 + beyond);
        } else if inode.flags.contains(InodeFlags::EXTENTS) {
            text.push_str("EXTENTS:\n");
            self.pieces(text)?;
            text.push('\n');
        } else {
            text.push_str("BLOCKS:\n");
            let total = self.pieces(text)?;
            if total > 0 {
                let _ = write!(text, "\nTOTAL: {total}\n");
            }
            text.push('\n');
        }
        Ok(())
    }

    /// The map in one line. Returns the number of blocks.
    fn pieces(&self, text: &mut String) -> extant::Result<u64> {
        let (mut total, mut before) = (0, "");
        let mut depth = 0;
        self.session.raw().walk_map(self.ino, self.inode, &mut |piece| {
            text.push_str(before);
            before = ", ";
            let _ = match piece {
                Piece::Run { logical, block, len, written } => {
                    total += len;
                    let mark = if written { "" } else { "[u]" };
                    match len {
                        1 => write!(text, "({logical}{mark}):{block}"),
                        _ => {
                            let (last, end) = (logical + len - 1, block + len - 1);
                            write!(text, "({logical}{mark}-{last}):{block}-{end}")
                        }
                    }
                }
                Piece::Node { block, level, .. } => {
                    total += 1;
                    depth = level;
                    write!(text, "(ETB{depth}):{block}")
                }
                Piece::Indirect { level, block } => {
                    total += 1;
                    let name = ["IND", "DIND", "TIND"][usize::from(level - 1)];
                    write!(text, "({name}):{block}")
                }
            };
            Ok(())
        })?;
        Ok(total)
    }
}

/// The blocks of an inode's content and map, in order.
pub(super) fn blocks(session: &mut Session, name: &OsStr, to: &mut Console) -> Done {
    let ino = session.ino(name, "blocks")?;
    let raw = session.raw();
    let inode = raw.inode(ino).map_err(|error| about(name, &error))?;
    let mut wrong = None;
    let walked = match has_map(&inode, session) {
        false => Ok(()),
        true => raw.walk_map(ino, &inode, &mut |piece| {
            let (block, len) = match piece {
                Piece::Run { block, len, .. } => (block, len),
                Piece::Node { block, .. } | Piece::Indirect { block, .. } => (block, 1),
            };
            for block in block..block + len {
                if wrong.is_none() {
                    wrong = to.print(format_args!("{block} ")).err();
                }
            }
            Ok(())
        }),
    };
    if let Some(failure) = wrong {
        return Err(Wrong::Output(failure));
    }
    walked.map_err(|error| about(name, &error))?;
    Ok(to.print(format_args!("\n"))?)
}

/// Whether the inode maps blocks.
pub(super) fn has_map(inode: &Inode, session: &Session) -> bool {
    let is_short = inode.is_symlink() && inode.is_fast_symlink(&session.raw().format);
    !is_short && inode.device().is_none() && !inode.has_inline_data()
}
