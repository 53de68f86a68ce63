//! What is printed of a file: a line for people, or JSON.

use super::name_of;
use crate::amount;
use crate::failure::Failure;
use crate::moment;
use crate::out::{Out, style};
use crate::record::kind_name;
use crate::shown::encoded;
use extant::FileKind;
use extant::undelete::{PastFile, State};
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Lost ranges that a line names.
const RANGES_SHOWN: usize = 3;

/// A file as JSON.
#[derive(Serialize)]
struct Record {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Further paths, of hard links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    links: Vec<String>,
    ino: u32,
    generation: u32,
    r#type: &'static str,
    size: u64,
    size_known: bool,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_deleted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certain: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    free_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reused_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    map_damaged: Option<bool>,
    /// Bytes that are lost: offset and length.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<u64>,
    /// Where the file was copied, below the output directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    copied: Option<String>,
    /// Its hard links there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    copied_links: Vec<String>,
}

pub(super) fn state_name(state: State) -> &'static str {
    match state {
        State::Whole => "whole",
        State::Partial { .. } => "partial",
        _ => "gone",
    }
}

/// What became of a file of a tree at a time.
fn fate(file: &PastFile) -> &'static str {
    match (file.is_deleted(), file.is_changed()) {
        (true, _) => "deleted",
        (false, true) => "changed",
        (false, false) => "same",
    }
}

/// Prints one file as JSON. `as_of`: the file is one of a tree at a time.
pub(super) fn json(
    out: &mut Out,
    file: &PastFile,
    copied: &[Vec<u8>],
    as_of: bool,
) -> Result<(), Failure> {
    let metadata = file.metadata();
    let (free_blocks, reused_blocks, map_damaged) = match file.state() {
        State::Partial { free_blocks, reused_blocks, map_damaged } => {
            (Some(free_blocks), Some(reused_blocks), Some(map_damaged))
        }
        _ => (None, None, None),
    };
    let text = |path: &PathBuf| encoded(path.as_os_str().as_bytes());
    out.json(&Record {
        path: file.paths().first().map(text),
        links: file.paths().iter().skip(1).map(text).collect(),
        ino: metadata.ino().get(),
        generation: metadata.generation(),
        r#type: kind_name(metadata.file_type()),
        size: metadata.len(),
        size_known: file.size_is_known(),
        state: state_name(file.state()),
        is_deleted: as_of.then(|| file.is_deleted()),
        changed: as_of.then(|| file.is_changed()),
        certain: as_of.then(|| file.is_certain()),
        free_blocks,
        reused_blocks,
        map_damaged,
        lost: file.lost_ranges().to_vec(),
        deleted: file.deleted_at(),
        copied: copied.first().map(|path| encoded(path)),
        copied_links: copied.iter().skip(1).map(|path| encoded(path)).collect(),
    })
}

/// Prints one file for people. `as_of`: the file is one of a tree at a time.
pub(super) fn line(out: &mut Out, file: &PastFile, as_of: bool) -> Result<(), Failure> {
    let metadata = file.metadata();
    let when = match file.deleted_at() {
        Some(sec) => moment::seconds(sec),
        None if file.is_deleted() => "unknown time".into(),
        None => String::new(),
    };
    let about = if file.size_is_known() { "" } else { "~" };
    let size = match metadata.file_type() {
        FileKind::Regular => format!("{about}{}", amount::shown(metadata.len())),
        kind => kind_name(kind).into(),
    };
    let state = state_name(file.state());
    out.text(format_args!("{state:7}  "))?;
    if as_of {
        out.text(format_args!("{:7}  ", fate(file)))?;
    }
    out.text(format_args!("{when:23}  {size:>10}  "))?;
    let style = style(Some(metadata.file_type()), metadata.mode());
    out.name(&name_of(file), style)?;
    for path in file.paths().iter().skip(1) {
        out.text(format_args!(" = "))?;
        out.name(path.as_os_str().as_bytes(), style)?;
    }
    if file.is_deleted() && file.is_changed() {
        out.text(format_args!("  (changed before)"))?;
    }
    if !file.is_certain() {
        out.text(format_args!("  (not certain)"))?;
    }
    if let State::Partial { free_blocks, reused_blocks, map_damaged } = file.state() {
        let all = free_blocks + reused_blocks;
        let lost = lost(file, map_damaged);
        out.text(format_args!("  ({free_blocks} of {all} blocks{lost})"))?;
    }
    out.text(format_args!("\n"))
}

/// Which parts are lost.
fn lost(file: &PastFile, map_damaged: bool) -> String {
    let ranges = file.lost_ranges();
    let shown = ranges.iter().take(RANGES_SHOWN);
    let shown: Vec<_> = shown.map(|(at, len)| format!("{at}..{}", at + len)).collect();
    let mut text = match shown.is_empty() {
        true => String::new(),
        false => format!(", without bytes {}", shown.join(", ")),
    };
    match ranges.len().saturating_sub(RANGES_SHOWN) {
        0 => {}
        more => text += &format!(" and {more} more ranges"),
    }
    if map_damaged {
        text += ", and parts whose place is lost";
    }
    text
}
