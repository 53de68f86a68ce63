//! Requests that read files, attributes and bitmaps.

use super::inode::attribute;
use super::session::{Done, Session, Wrong, about};
use crate::compat::console::Console;
use crate::compat::getopt::{self, Words};
use crate::compat::volume::Piece;
use crate::compat::{superblock, words};
use crate::failure::plain;
use extant::{Error, FileKind, Node};
use extant_base::BlockNr;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Bytes that are copied at a time.
const CHUNK: usize = 1 << 20;
/// How deep a directory may be for rdump.
const DEPTH_MAX: usize = 1000;

/// `stats`: the superblock.
pub(super) fn stats(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    session.settle("stats")?;
    let words = Words::read(args, "h");
    let header = words.options.iter().any(|(option, _)| *option == 'h');
    if let Some(why) = &words.wrong {
        let text = format!("stats: {why}\nstats: Usage: show_super_stats [-h]");
        return Err(Wrong::Line(text));
    }
    if !header {
        return Err(Wrong::Line("stats: groups are not printed: dumpe2fs prints them".into()));
    }
    let raw = session.raw();
    superblock::list(&raw.raw, &raw.sb, to)?;
    let mut directories = 0u64;
    for group in raw.geometry.groups() {
        let desc = raw.descriptor(group);
        let desc =
            desc.map_err(|error| Wrong::Line(format!("stats: {}", words::of(&error).text)))?;
        directories += u64::from(desc.used_dirs);
    }
    Ok(to.print(format_args!("Directories:              {directories}\n"))?)
}

/// `features`: the names of the features.
pub(super) fn features(session: &mut Session, to: &mut Console) -> Done {
    session.settle("features")?;
    let text = session.raw().sb.features.to_string();
    Ok(to.print(format_args!("Filesystem features: {text}\n"))?)
}

/// Prints the content of a file.
pub(super) fn cat(session: &mut Session, name: &OsStr, to: &mut Console) -> Done {
    let node = session.node(name, "cat")?;
    let mut failure = None;
    let copied = copy(&node, &mut |_, bytes| match to.bytes(bytes) {
        Ok(()) => true,
        Err(error) => {
            failure = Some(error);
            false
        }
    });
    match failure {
        Some(failure) => Err(Wrong::Output(failure)),
        None => copied.map_err(|error| failed("cat", &error, "while reading ext2 file")),
    }
}

/// Calls `each` with the parts of a file's content and where they begin, until it returns false.
fn copy(node: &Node, each: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<(), Error> {
    let file = node.open()?;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < file.metadata().len() {
        let got = file.read_at(&mut buffer, at)?;
        if got == 0 || !each(at, &buffer[..got]) {
            break;
        }
        at += got as u64;
    }
    Ok(())
}

fn failed(request: &str, error: &Error, doing: &str) -> Wrong {
    Wrong::Line(format!("{request}: {} {doing}", words::of(error).text))
}

/// `dump`: copies a file of the volume to a file of this system.
pub(super) fn dump(session: &mut Session, args: &[OsString]) -> Done {
    let words = Words::read(args, "p");
    let [name, target] = &words.operands[..] else {
        return Err(Wrong::Line("dump: Usage: dump_inode [-p] <file> <output_file>".into()));
    };
    if words.wrong.is_some() {
        return Err(Wrong::Line("dump: Usage: dump_inode [-p] <file> <output_file>".into()));
    }
    let node = session.node(name, "dump")?;
    write_file(&node, Path::new(target), !words.options.is_empty(), "dump", "dump_inode")
}

/// Writes the content of a file to `target`.
fn write_file(node: &Node, target: &Path, keep: bool, request: &str, what: &str) -> Done {
    let shown = target.display();
    let opened = File::options().write(true).create(true).truncate(true).open(target);
    let mut file = opened.map_err(|error| {
        Wrong::Line(format!("{request}: {} while opening {shown} for {what}", plain(&error)))
    })?;
    let mut wrong: Option<io::Error> = None;
    let copied = copy(node, &mut |_, bytes| match file.write_all(bytes) {
        Ok(()) => true,
        Err(error) => {
            wrong = Some(error);
            false
        }
    });
    if let Some(error) = wrong {
        return Err(Wrong::Line(format!("{request}: {} while writing file", plain(&error))));
    }
    copied.map_err(|error| failed(request, &error, "while reading ext2 file"))?;
    if keep {
        fix(node, target, request)?;
    }
    Ok(())
}

/// Gives a copy the rights, owner and times of the file.
fn fix(node: &Node, target: &Path, request: &str) -> Done {
    let meta = node.metadata();
    let wrong = |what: &str, error: io::Error| {
        let shown = target.display();
        Wrong::Line(format!("{request}: {} while {what} of {shown}", plain(&error)))
    };
    std::os::unix::fs::lchown(target, Some(meta.uid()), Some(meta.gid()))
        .map_err(|error| wrong("changing ownership", error))?;
    if meta.is_symlink() {
        return Ok(());
    }
    let mode = fs::Permissions::from_mode(u32::from(meta.permissions()));
    fs::set_permissions(target, mode).map_err(|error| wrong("setting permissions", error))?;
    let times = fs::FileTimes::new()
        .set_accessed(extant::system_time(meta.accessed()))
        .set_modified(extant::system_time(meta.modified()));
    let set = File::open(target).and_then(|file| file.set_times(times));
    set.map_err(|error| wrong("setting times", error))
}

/// `rdump`: copies files and directories of the volume into a directory of this system.
pub(super) fn rdump(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let [sources @ .., target] = args else {
        return Err(Wrong::Line("rdump: Usage: rdump <directory>... <native directory>".into()));
    };
    if sources.is_empty() {
        return Err(Wrong::Line("rdump: Usage: rdump <directory>... <native directory>".into()));
    }
    let shown = target.to_string_lossy();
    match fs::metadata(target) {
        Err(error) => {
            let text = format!("rdump: {} while statting {shown}", plain(&error));
            return Err(Wrong::Line(text));
        }
        Ok(meta) if !meta.is_dir() => {
            return Err(Wrong::Line(format!("rdump: {shown} is not a directory")));
        }
        Ok(_) => {}
    }
    for source in sources {
        let node = session.node(source, "rdump")?;
        let path = session.path(source);
        let path = crate::change::without_slashes(&path);
        let target = match crate::change::split_last(path).1 {
            b"" | b"." | b".." => Path::new(target).to_path_buf(),
            name => Path::new(target).join(OsStr::from_bytes(name)),
        };
        tree(&node, &target, 0, to);
    }
    Ok(())
}

/// Copies one file or directory. Errors are printed, and the rest is copied.
fn tree(node: &Node, target: &Path, depth: usize, to: &mut Console) {
    if let Err(Wrong::Line(text)) = one(node, target, depth, to) {
        to.error(format_args!("{text}\n"));
    }
}

fn one(node: &Node, target: &Path, depth: usize, to: &mut Console) -> Done {
    let shown = target.display();
    match node.metadata().file_type() {
        FileKind::Regular => write_file(node, target, true, "rdump", "rdump"),
        FileKind::Symlink => {
            let read = node.read_link();
            let link = read.map_err(|e| failed("rdump", &e, "while reading symlink"))?;
            std::os::unix::fs::symlink(link, target).map_err(|error| {
                let text = plain(&error);
                Wrong::Line(format!("rdump: {text} while creating symlink {shown}"))
            })?;
            fix(node, target, "rdump")
        }
        FileKind::Directory if depth < DEPTH_MAX => {
            if depth > 0 || !target.is_dir() {
                fs::create_dir(target).map_err(|error| {
                    let text = plain(&error);
                    Wrong::Line(format!("rdump: {text} while making directory {shown}"))
                })?;
            }
            let entries = node.read_dir().map_err(|e| failed("rdump", &e, "while dumping"))?;
            for entry in entries.filter_map(Result::ok) {
                let name = entry.file_name();
                // A forged name must not lead out of the target.
                let is_plain = !name.as_bytes().contains(&b'/') && name != "." && name != "..";
                if let (true, Ok(child)) = (is_plain, node.lookup(name)) {
                    tree(&child, &target.join(name), depth + 1, to);
                }
            }
            fix(node, target, "rdump")
        }
        // The original leaves devices, pipes and sockets out, too.
        _ => Ok(()),
    }
}

/// `bmap`: the block of one block of content.
pub(super) fn bmap(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let [name, block] = args else {
        let text = "Usage: bmap [-a] <file> logical_blk [physical_blk]";
        return Err(Wrong::Line(text.into()));
    };
    let wanted = number(block, "bmap")?;
    let ino = session.ino(name, "bmap")?;
    let raw = session.raw();
    let inode = raw.inode(ino).map_err(|error| about(name, &error))?;
    let mut found = 0;
    if super::inode::has_map(&inode, session) {
        let walked = raw.walk_map(ino, &inode, &mut |piece| {
            if let Piece::Run { logical, block, len, .. } = piece
                && (logical..logical + len).contains(&wanted)
            {
                found = block + (wanted - logical);
            }
            Ok(())
        });
        walked.map_err(|error| about(name, &error))?;
    }
    Ok(to.print(format_args!("{found}\n"))?)
}

/// `imap`: where an inode lies.
pub(super) fn imap(session: &mut Session, name: &OsStr, to: &mut Console) -> Done {
    let ino = session.ino(name, "imap")?;
    let place = session.raw().place_of(ino);
    let (group, block, offset) = place.map_err(|error| about(name, &error))?;
    Ok(to.print(format_args!(
        "Inode {} is part of block group {}\n\tlocated at block {}, offset {offset:#06x}\n",
        ino.get(),
        group.0,
        block.0
    ))?)
}

/// `testi`: whether an inode is in use.
pub(super) fn testi(session: &mut Session, name: &OsStr, to: &mut Console) -> Done {
    let ino = session.ino(name, "testi")?;
    let used = session.raw().inode_in_use(ino).map_err(|error| about(name, &error))?;
    let text = if used { "marked in use" } else { "not in use" };
    Ok(to.print(format_args!("Inode {} is {text}\n", ino.get()))?)
}

/// `testb`: whether blocks are in use.
pub(super) fn testb(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let (block, count) = match args {
        [block] => (number(block, "testb")?, 1),
        [block, count] => (number(block, "testb")?, number(count, "testb")?),
        _ => return Err(Wrong::Line("testb: Usage: testb <block> [count]".into())),
    };
    session.settle("testb")?;
    let end = block.saturating_add(count).min(session.raw().sb.blocks_count);
    for block in block..end {
        let used = session.raw().block_in_use(BlockNr(block));
        let used = used.map_err(|error| Wrong::Line(words::of(&error).text))?;
        let text = if used == Some(true) { "marked in use" } else { "not in use" };
        to.print(format_args!("Block {block} {text}\n"))?;
    }
    Ok(())
}

fn number(word: &OsStr, request: &str) -> Done<u64> {
    let text = getopt::text(word);
    let bad = || Wrong::Line(format!("{request}: Bad block number - {text}"));
    getopt::number(&text).ok_or_else(bad)
}

/// `ea_list`: the attributes of a file.
pub(super) fn ea_list(session: &mut Session, name: &OsStr, to: &mut Console) -> Done {
    let node = session.node(name, "ea_list")?;
    let values = node.xattr_values().map_err(|error| about(name, &error))?;
    if values.is_empty() {
        return Ok(());
    }
    to.print(format_args!("Extended attributes:\n"))?;
    for (name, value) in values {
        to.print(format_args!("  {}\n", attribute(&name, &value)))?;
    }
    Ok(())
}

/// `ea_get`: one attribute of a file.
pub(super) fn ea_get(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let words = Words::read(args, "Vx");
    let [name, key] = &words.operands[..] else {
        return Err(Wrong::Line("ea_get: Usage: ea_get [-f <outfile>] <file> <attr_name>".into()));
    };
    let node = session.node(name, "ea_get")?;
    let value = node.xattr(key).map_err(|error| match error {
        Error::NoAttribute => Wrong::Line(
            "ea_get: Extended attribute key not found while getting extended attribute".into(),
        ),
        error => failed("ea_get", &error, "while getting extended attribute"),
    })?;
    match words.options.iter().any(|(option, _)| *option == 'V') {
        true => {
            to.bytes(&value)?;
            Ok(to.bytes(b"\n")?)
        }
        false => Ok(to.print(format_args!("{}\n\n", attribute(key, &value)))?),
    }
}
