//! `ls`, and the searches for names and owners.

use super::inode::has_map;
use super::session::{Done, Session, Wrong, about};
use crate::compat::clock;
use crate::compat::console::Console;
use crate::compat::getopt::{self, Words};
use crate::compat::volume::Piece;
use extant::{Error, Site};
use extant_base::{BlockNr, Ino};
use extant_ondisk::dirent::{DirBlock, DirFormat};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::inode::InodeFlags;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The width of a line of names.
const COLUMNS: usize = 80;

/// An entry of a directory.
struct Entry {
    ino: Ino,
    rec_len: usize,
    kind: u8,
    name: Vec<u8>,
}

/// Lists a directory.
pub(super) fn ls(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let words = Words::read(args, "lp");
    let usage = || Wrong::Line("ls: Usage: ls [-l] [-p] file".into());
    if words.wrong.is_some() || words.operands.len() > 1 {
        return Err(usage());
    }
    let has = |option: char| words.options.iter().any(|(known, _)| *known == option);
    let (long, parsed) = (has('l'), has('p'));
    let here = OsString::from(".");
    let name = words.operands.first().unwrap_or(&here);
    let ino = session.ino(name, "ls")?;
    let entries = match entries(session, ino, name) {
        Ok(entries) => entries,
        Err(wrong) => {
            to.print(format_args!("\n"))?;
            return Err(wrong);
        }
    };
    let mut column = 0;
    for entry in &entries {
        if parsed {
            line_for_programs(session, entry, to)?;
        } else if long {
            long_line(session, entry, to)?;
        } else {
            let number = entry.ino.get();
            let head = format!(" {number}  ({}) ", entry.rec_len);
            let len = head.len() + entry.name.len() + 3;
            if column + len > COLUMNS {
                to.print(format_args!("\n"))?;
                column = 0;
            }
            column += len;
            to.print(format_args!("{head}"))?;
            to.bytes(&entry.name)?;
            to.print(format_args!("   "))?;
        }
    }
    Ok(to.print(format_args!("\n"))?)
}

fn line_for_programs(session: &Session, entry: &Entry, to: &mut Console) -> Done {
    let inode = session.raw().inode(entry.ino);
    let (mode, uid, gid, size) = match &inode {
        Ok(inode) => (inode.mode, inode.uid, inode.gid, inode.size),
        Err(_) => (0, 0, 0, 0),
    };
    to.print(format_args!("/{}/{mode:06o}/{uid}/{gid}/", entry.ino.get()))?;
    to.bytes(&entry.name)?;
    match inode.is_ok_and(|inode| inode.is_dir()) {
        true => to.print(format_args!("//\n"))?,
        false => to.print(format_args!("/{size}/\n"))?,
    }
    Ok(())
}

fn long_line(session: &Session, entry: &Entry, to: &mut Console) -> Done {
    let number = entry.ino.get();
    match session.raw().inode(entry.ino) {
        Ok(inode) => {
            let (mode, kind, uid, gid) = (inode.mode, entry.kind, inode.uid, inode.gid);
            let (size, time) = (inode.size, clock::short(inode.mtime.sec));
            to.print(format_args!(
                " {number:6}  {mode:6o} ({kind})  {uid:5}  {gid:5}   {size:5} {time} "
            ))?;
        }
        Err(_) => to.print(format_args!(" {number:6} (unreadable) "))?,
    }
    to.bytes(&entry.name)?;
    Ok(to.bytes(b"\n")?)
}

/// The entries in use, in the order on disk.
fn entries(session: &mut Session, ino: Ino, name: &OsStr) -> Done<Vec<Entry>> {
    let raw = session.raw();
    let inode = raw.inode(ino).map_err(|error| about(name, &error))?;
    if !inode.is_dir() {
        return Err(about(name, &Error::NotADirectory));
    }
    if inode.has_inline_data() {
        let text = format!("{}: directories in inodes are not listed ", name.to_string_lossy());
        return Err(Wrong::Line(text));
    }
    let encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
    let format = DirFormat {
        filetype: raw.sb.features.incompat.contains(Incompat::FILETYPE),
        checksums: raw.sb.features.ro_compat.contains(RoCompat::METADATA_CSUM),
        hash_words: encrypted && inode.flags.contains(InodeFlags::CASEFOLD),
        opaque_names: encrypted,
        inodes_count: raw.sb.inodes_count,
    };
    let mut found = Vec::new();
    let walked = raw.walk_map(ino, &inode, &mut |piece| {
        let Piece::Run { block, len, .. } = piece else { return Ok(()) };
        for block in block..block + len {
            let bytes = raw.block(BlockNr(block))?;
            let at = Site::of_ino(ino).block(BlockNr(block));
            let of_block = DirBlock::new(&bytes, format, at).entries();
            for entry in of_block.filter_map(Result::ok) {
                let Some(number) = entry.ino else { continue };
                found.push(Entry {
                    ino: number,
                    rec_len: entry.rec_len,
                    kind: entry.kind.code(),
                    name: entry.name.to_vec(),
                });
            }
        }
        Ok(())
    });
    walked.map_err(|error| about(name, &error))?;
    Ok(found)
}

/// Prints the inode of each block.
pub(super) fn icheck(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let numbers = numbers(args, "icheck", "icheck: Usage: icheck <block number> ...")?;
    session.settle("icheck")?;
    let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
    let raw = session.raw();
    for number in 1..=raw.sb.inodes_count {
        let Some(ino) = Ino::new(number) else { continue };
        // A group that was never used has no inodes, and its table may hold anything.
        if !raw.inode_in_use(ino).unwrap_or(false) {
            continue;
        }
        let Ok(inode) = raw.inode(ino) else { continue };
        let mut take = |start: u64, len: u64| {
            for block in numbers.iter().filter(|block| (start..start + len).contains(*block)) {
                owners.entry(*block).or_insert(number);
            }
        };
        if let Some(block) = inode.file_acl {
            take(block.0, 1);
        }
        if !has_map(&inode, session) {
            continue;
        }
        // A damaged map ends the search in this inode only.
        let _ = raw.walk_map(ino, &inode, &mut |piece| {
            match piece {
                Piece::Run { block, len, .. } => take(block, len),
                Piece::Node { block, .. } | Piece::Indirect { block, .. } => take(block, 1),
            }
            Ok(())
        });
    }
    to.print(format_args!("Block\tInode number\n"))?;
    for block in &numbers {
        match owners.get(block) {
            Some(ino) => to.print(format_args!("{block}\t{ino}\n"))?,
            None => to.print(format_args!("{block}\t<block not found>\n"))?,
        }
    }
    Ok(())
}

/// Prints the names of each inode.
pub(super) fn ncheck(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let numbers = numbers(args, "ncheck", "ncheck: Usage: ncheck [-c] <inode number> ...")?;
    let fs = session.reader("ncheck")?;
    to.print(format_args!("Inode\tPathname\n"))?;
    for entry in fs.walk("/") {
        let Ok(entry) = entry else { continue };
        let number = entry.ino().get();
        if numbers.contains(&u64::from(number)) {
            let path = entry.path();
            let path = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
            let path = path.strip_prefix(b"/").unwrap_or(path);
            if path.is_empty() {
                continue;
            }
            // The original joins the name of the root, "/", and a name in it with a slash.
            let join: &[u8] = if path.contains(&b'/') { b"/" } else { b"//" };
            to.print(format_args!("{number}\t"))?;
            to.bytes(join)?;
            to.bytes(path)?;
            to.bytes(b"\n")?;
        }
    }
    Ok(())
}

fn numbers(args: &[OsString], request: &str, usage: &str) -> Done<Vec<u64>> {
    if args.is_empty() {
        return Err(Wrong::Line(usage.into()));
    }
    let number = |word: &OsString| {
        let text = getopt::text(word);
        let bad = || Wrong::Line(format!("{request}: Bad block - {text}"));
        getopt::number(&text).ok_or_else(bad)
    };
    args.iter().map(number).collect()
}
