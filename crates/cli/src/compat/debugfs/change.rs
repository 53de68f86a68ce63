//! Requests that change the volume.

use super::session::{Done, Session, Wrong, about};
use crate::change::{split_last, without_slashes};
use crate::compat::console::Console;
use crate::compat::getopt::{self, Words};
use crate::compat::tune2fs::options::time;
use crate::compat::words;
use crate::failure::plain;
use extant::{DeviceNumber, Error, FileKind, NewFile, Node, SetAttributes, Timestamp, XattrMode};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

/// Bytes that are copied at a time, a multiple of every block size.
const CHUNK: usize = 1 << 20;

fn said(request: &str, error: &Error, doing: &str) -> Wrong {
    let text = match error {
        Error::Exists => "Ext2 file already exists".to_owned(),
        error => words::of(error).text,
    };
    Wrong::Line(format!("{request}: {text} {doing}"))
}

/// The directory of a new name, and the name.
fn place(session: &mut Session, name: &OsStr, request: &str) -> Done<(Node, OsString)> {
    let path = session.path(name);
    let path = without_slashes(&path).to_vec();
    let (dir, name) = split_last(&path);
    let (dir, name) = (OsStr::from_bytes(dir), OsStr::from_bytes(name).to_owned());
    Ok((session.node_to_change(dir, request)?, name))
}

/// `write`: copies a file of this system to the volume.
pub(super) fn write(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let [source, target] = args else {
        return Err(Wrong::Line("write: Usage: write <native file> <new file>".into()));
    };
    let unread = |error: std::io::Error| {
        let (text, name) = (plain(&error), source.to_string_lossy());
        Wrong::Line(format!(
            "do_write_internal: {text} while opening \"{name}\" to copy\nwrite: {text} "
        ))
    };
    let mut from = File::open(source).map_err(unread)?;
    let meta = from.metadata().map_err(unread)?;
    let (dir, name) = place(session, target, "write")?;
    // As in the original: the rights, but not the owner and the times.
    let mode = (meta.permissions().mode() & 0o777) as u16;
    let new = NewFile { mode, ..NewFile::default() };
    let node = dir.create_file(&name, &new).map_err(|error| said("write", &error, ""))?;
    to.print(format_args!("Allocated inode: {}\n", node.ino().get()))?;
    let failed = |error: Error| said("write", &error, "");
    let file = node.open().map_err(failed)?;
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let got = read_full(&mut from, &mut buffer).map_err(unread)?;
        if got == 0 {
            break;
        }
        // Blocks of zeros stay holes.
        for (n, block) in buffer[..got].chunks(session.raw().block_bytes()).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                let offset = (n * session.raw().block_bytes()) as u64;
                file.write_all_at(block, at + offset).map_err(failed)?;
            }
        }
        at += got as u64;
    }
    file.set_len(at).map_err(failed)
}

/// Fills `buffer` as far as the file has bytes.
fn read_full(from: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..])? {
            0 => break,
            got => len += got,
        }
    }
    Ok(len)
}

/// `mkdir`.
pub(super) fn mkdir(session: &mut Session, target: &OsStr) -> Done {
    let (dir, name) = place(session, target, "mkdir")?;
    let made = dir.create_dir(&name, &NewFile::directory());
    let shown = target.to_string_lossy();
    made.map(drop).map_err(|error| {
        let text = words::of(&error).text;
        Wrong::Line(format!(
            "ext2fs_mkdir: {text} while creating directory \"{shown}\"\nmkdir: {text} "
        ))
    })
}

/// `symlink`.
pub(super) fn symlink(session: &mut Session, args: &[OsString]) -> Done {
    let [target, link] = args else {
        return Err(Wrong::Line("symlink: Usage: symlink <filename> <target>".into()));
    };
    let (dir, name) = place(session, target, "symlink")?;
    let new = NewFile { mode: 0o777, ..NewFile::default() };
    dir.symlink(link, &name, &new).map(drop).map_err(|error| {
        let shown = target.to_string_lossy();
        let text = match error {
            Error::Exists => "Ext2 file already exists".to_owned(),
            error => words::of(&error).text,
        };
        Wrong::Line(format!(
            "ext2fs_symlink: {text} while creating symlink \"{shown}\"\nsymlink: {text} "
        ))
    })
}

/// `mknod`: a pipe or a device.
pub(super) fn mknod(session: &mut Session, args: &[OsString], to: &mut Console) -> Done {
    let usage = || Wrong::Line("mknod: Usage: mknod <name> [p| [c|b] <major> <minor>]".into());
    let number = |word: &OsString, max: u64| {
        let number = getopt::number(&getopt::text(word)).filter(|number| *number <= max);
        number.and_then(|number| u32::try_from(number).ok()).ok_or_else(usage)
    };
    let (target, kind, device) = match args {
        [name, kind] if kind == "p" => (name, FileKind::Fifo, None),
        [name, kind, major, minor] if kind == "c" || kind == "b" => {
            let device =
                DeviceNumber { major: number(major, 65535)?, minor: number(minor, 65535)? };
            let kind = if kind == "c" { FileKind::CharDevice } else { FileKind::BlockDevice };
            (name, kind, Some(device))
        }
        _ => return Err(usage()),
    };
    let (dir, name) = place(session, target, "mknod")?;
    let new = NewFile { mode: 0, device, ..NewFile::default() };
    let node = dir.mknod(&name, kind, &new).map_err(|error| said("mknod", &error, ""))?;
    Ok(to.print(format_args!("Allocated inode: {}\n", node.ino().get()))?)
}

/// `ln`: another name.
pub(super) fn link(session: &mut Session, args: &[OsString]) -> Done {
    let [source, target] = args else {
        return Err(Wrong::Line("ln: Usage: link <source_file> <dest_name>".into()));
    };
    let node = session.node_to_change(source, "ln")?;
    let (dir, name) = place(session, target, "ln")?;
    dir.hard_link(&node, &name).map_err(|error| said("ln", &error, ""))
}

/// `rm` and `unlink`: removes a name, and the file with its last name. The original's `unlink`
/// leaves the count of links, which a check would report.
pub(super) fn remove(session: &mut Session, target: &OsStr) -> Done {
    let missing = |_| {
        let text = "rm: File not found by ext2_lookup while trying to resolve filename";
        Wrong::Line(text.into())
    };
    if super::session::number_of(target).is_some() {
        return Err(missing(()));
    }
    let node = session.node_to_change(target, "rm").map_err(|wrong| match wrong {
        Wrong::Line(line) if line.ends_with("ext2_lookup ") => missing(()),
        other => other,
    })?;
    if node.metadata().is_dir() {
        return Err(Wrong::Line("rm: file is a directory".into()));
    }
    drop(node);
    let (dir, name) = place(session, target, "rm")?;
    dir.remove_file(&name).map_err(|error| said("rm", &error, ""))
}

/// `rmdir`.
pub(super) fn rmdir(session: &mut Session, target: &OsStr, to: &mut Console) -> Done {
    let node = session.node_to_change(target, "rmdir").map_err(|wrong| match wrong {
        Wrong::Line(line) if line.ends_with("ext2_lookup ") => Wrong::Line(
            "rmdir: File not found by ext2_lookup while trying to resolve filename".into(),
        ),
        other => other,
    })?;
    if !node.metadata().is_dir() {
        return Err(Wrong::Line("rmdir: file is not a directory".into()));
    }
    drop(node);
    let (dir, name) = place(session, target, "rmdir")?;
    dir.remove_dir(&name).map_err(|error| match error {
        Error::NotEmpty => Wrong::Line("rmdir: directory not empty".into()),
        error => said("rmdir", &error, ""),
    })?;
    Ok(to.print(format_args!("\n"))?)
}

/// `ea_set`.
pub(super) fn ea_set(session: &mut Session, args: &[OsString]) -> Done {
    let usage = || {
        let text = "ea_set: Usage: ea_set [-f infile] <file> <attr_name> [attr_value]";
        Wrong::Line(text.into())
    };
    let words = Words::read(args, "f:");
    if words.wrong.is_some() {
        return Err(usage());
    }
    let (name, key, value) = match (&words.operands[..], words.options.last()) {
        ([name, key], Some((_, path))) => {
            let read = std::fs::read(path);
            let unread =
                |error| Wrong::Line(format!("{}: {}", path.to_string_lossy(), plain(&error)));
            (name, key, read.map_err(unread)?)
        }
        ([name, key, value], None) => (name, key, value.as_bytes().to_vec()),
        _ => return Err(usage()),
    };
    let node = session.node_to_change(name, "ea_set")?;
    let set = node.set_xattr(key, &value, XattrMode::Any);
    set.map_err(|error| said("ea_set", &error, "while setting extended attribute"))
}

/// `ea_rm`. An attribute that is not there is no error.
pub(super) fn ea_rm(session: &mut Session, args: &[OsString]) -> Done {
    let [name, keys @ ..] = args else {
        return Err(Wrong::Line("ea_rm: Usage: ea_rm <file> <attrs>...".into()));
    };
    let node = session.node_to_change(name, "ea_rm")?;
    for key in keys {
        match node.remove_xattr(key) {
            Ok(()) | Err(Error::NoAttribute) => {}
            Err(error) => {
                return Err(said("ea_rm", &error, "while removing extended attribute"));
            }
        }
    }
    Ok(())
}

/// `set_inode_field`: the fields that the engine can set.
pub(super) fn set_inode_field(session: &mut Session, request: &str, args: &[OsString]) -> Done {
    let [name, field, value] = args else {
        return Err(Wrong::Line(format!("{request}: Usage: set_inode <inode> <field> <value>")));
    };
    let (field, text) = (getopt::text(field), getopt::text(value));
    let bad = || Wrong::Line(format!("{request}: Couldn't parse '{text}' for field {field}."));
    let node = session.node_to_change(name, request)?;
    let mut changes = SetAttributes::default();
    let word = || getopt::number(&text).and_then(|number| u32::try_from(number).ok());
    let moment = || {
        let sec = time(&text).or_else(|| getopt::number(&text));
        sec.and_then(|sec| i64::try_from(sec).ok()).map(Timestamp::from_secs)
    };
    match field.as_str() {
        "uid" => changes.uid = Some(word().ok_or_else(bad)?),
        "gid" => changes.gid = Some(word().ok_or_else(bad)?),
        "projid" => changes.project = Some(word().ok_or_else(bad)?),
        "atime" => changes.accessed = Some(moment().ok_or_else(bad)?),
        "mtime" => changes.modified = Some(moment().ok_or_else(bad)?),
        "ctime" => changes.changed = Some(moment().ok_or_else(bad)?),
        "mode" => {
            let mode = word().and_then(|mode| u16::try_from(mode).ok()).ok_or_else(bad)?;
            let kind = node.metadata().mode() & 0o170_000;
            if u32::from(mode & 0o170_000) != kind {
                let why = "the type of a file cannot be changed";
                return Err(Wrong::Line(format!("{request}: {why}")));
            }
            changes.mode = Some(mode & 0o7777);
        }
        _ => return Err(Wrong::Line(format!("{request}: invalid field specifier: {field}"))),
    }
    if changes.changed.is_none() {
        // The original changes nothing else.
        changes.changed = Some(node.metadata().changed());
    }
    node.set_attributes(&changes).map_err(|error| about(name, &error))
}
