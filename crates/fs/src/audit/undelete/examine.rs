//! What is left of one file.

use super::Candidate;
use super::evidence::Evidence;
use super::files::{Content, PastFile, State};
use super::left::{Left, Since};
use super::map::{self, Run};
use super::xattrs;
use crate::inodes::metadata::Metadata;
use extant_base::Result;
use extant_base::narrow::fits_usize;
use extant_ondisk::inode::FileKind;
use rangemap::RangeSet;
use std::ops::Range;

/// What is left of a candidate, and all blocks that its content had; `None` if it is not a file
/// that can be used.
pub(super) fn examine(
    evidence: &Evidence<'_>,
    candidate: &Candidate,
    since: &Since<'_>,
) -> Result<Option<(PastFile, Vec<Range<u64>>)>> {
    let volume = evidence.volume;
    let body = &candidate.body;
    let file = volume.file(body);
    let mut done = PastFile {
        metadata: Metadata::of(file),
        paths: Vec::new(),
        state: State::Whole,
        is_deleted: true,
        is_changed: false,
        is_certain: true,
        size_known: candidate.size_known,
        deleted_at: candidate.deleted_at,
        xattrs: xattrs::find(evidence, candidate)?,
        lost: Vec::new(),
        content: Content::None,
    };
    let mut blocks = Vec::new();
    let in_inode = body.disk.has_inline_data() || body.disk.is_fast_symlink(volume.inode_format());
    match body.file_kind() {
        FileKind::Symlink if in_inode => match file.symlink_target() {
            Ok(target) => done.content = Content::Bytes(target),
            Err(_) => return Ok(None),
        },
        FileKind::Regular if in_inode => {
            let mut bytes = vec![0; fits_usize(body.size.min(u16::MAX.into()))];
            match file.read_raw(0, &mut bytes) {
                Ok(len) => bytes.truncate(len),
                Err(_) => return Ok(None),
            }
            done.content = Content::Bytes(bytes);
        }
        FileKind::Regular | FileKind::Symlink => {
            let map = map::walk(evidence, candidate)?;
            let left = Left::of(evidence, &map, since)?;
            blocks.extend(map.runs.iter().map(Run::blocks));
            done.state = left.state;
            done.lost = in_bytes(&left.lost, evidence, body.size);
            done.content = Content::Runs(left.runs);
        }
        _ => {}
    }
    Ok(Some((done, blocks)))
}

/// Ranges of blocks as bytes, (offset, length), up to the file's end.
fn in_bytes(blocks: &RangeSet<u64>, evidence: &Evidence<'_>, end: u64) -> Vec<(u64, u64)> {
    let log2 = evidence.volume.block_size().log2();
    let bytes = blocks.iter().map(|range| (range.start << log2, (range.end << log2).min(end)));
    bytes.filter(|(start, end)| start < end).map(|(start, end)| (start, end - start)).collect()
}
