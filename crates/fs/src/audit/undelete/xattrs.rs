//! The extended attributes of a file as it was.
//!
//! ```text
//!   tail of the inode ────────────────────────────────────────────► names and values
//!   attribute block ─┬─ the log's newest copy up to the deletion ─┐      ▲
//!                    └─ the block itself, if no copy is later ────┴──────┘ checksum, hashes
//! ```
//!
//! An attribute block names no inode: its checksum proves the place only. So a block is taken only
//! if nothing shows that it was written after the file had it. The hash of an attribute must fit
//! its name and value.

use super::Candidate;
use super::evidence::Evidence;
use super::left;
use super::map::Run;
use crate::inodes::inline::INLINE_NAME;
use extant_base::{BlockNr, Result, Site};
use extant_ondisk::acl::Acl;
use extant_ondisk::features::Incompat;
use extant_ondisk::xattr::{BlockHeader, NameIndex, ValueRef, XattrArea, XattrEntry};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// The attributes of `candidate`: full names and values. What cannot be proven is left out.
pub(super) fn find(
    evidence: &Evidence<'_>,
    candidate: &Candidate,
) -> Result<Vec<(OsString, Vec<u8>)>> {
    let volume = evidence.volume;
    let at = Site::of_ino(candidate.ino());
    let ea_inode = volume.has_incompat(Incompat::EA_INODE);
    let mut found = Vec::new();
    let tail = candidate.body.xattr_tail(volume.context());
    if let Ok(Some(area)) = XattrArea::in_inode(tail, ea_inode, at) {
        // The checksum of the inode covers its tail, and its attributes may have no hashes.
        found.extend(area.entries().filter_map(|entry| attribute(evidence, candidate, &entry)));
    }
    if let Some(nr) = candidate.body.disk.file_acl
        && let Some(block) = block(evidence, candidate, nr)?
        && let Ok((_, area)) = XattrArea::in_block(&block, ea_inode, at.block(nr))
    {
        let proven = |entry: &XattrEntry<'_>| match entry.value {
            ValueRef::Here(_) => entry.hash_matches(|| 0),
            ValueRef::InInode { .. } => true,
        };
        let entries = area.entries().filter(proven);
        found.extend(entries.filter_map(|entry| attribute(evidence, candidate, &entry)));
    }
    Ok(found)
}

/// Name and value of one attribute; `None` if it is internal or cannot be read.
fn attribute(
    evidence: &Evidence<'_>,
    candidate: &Candidate,
    entry: &XattrEntry<'_>,
) -> Option<(OsString, Vec<u8>)> {
    let at = Site::of_ino(candidate.ino());
    let is_internal = entry.index == NameIndex::SYSTEM && entry.name == INLINE_NAME;
    let prefix = entry.index.prefix().filter(|_| !is_internal)?;
    let value = match entry.value {
        ValueRef::Here(value) => value.to_vec(),
        ValueRef::InInode { ino, size } => {
            let store = evidence.volume.xattr_store();
            store.inode_value(at, ino, size, entry.name, entry.hash).ok()?
        }
    };
    let value = match entry.index {
        NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT => {
            Acl::from_disk(&value, at).ok()?.to_call()
        }
        _ => value,
    };
    Some((OsString::from_vec([prefix.as_bytes(), entry.name].concat()), value))
}

/// The attribute block as the file had it; `None` if that is not known.
fn block(evidence: &Evidence<'_>, candidate: &Candidate, nr: BlockNr) -> Result<Option<Vec<u8>>> {
    let at = Site::of_ino(candidate.ino()).block(nr);
    let is_right = |bytes: &[u8]| match evidence.volume.checksums().seed() {
        Some(seed) => BlockHeader::verify_checksum(bytes, seed, nr, at).is_ok(),
        None => BlockHeader::read(bytes, at).is_ok(),
    };
    // The deletion itself changes only how many inodes share the block.
    let last = candidate.gone.or(candidate.seen);
    let is_later = |tid| match last {
        Some(last) => tid > evidence.history.place(last),
        // Found in the inode table, with the time of its deletion.
        None => true,
    };
    let copies = evidence.history.copies_of(nr);
    let mut bytes = evidence.block_buffer();
    for copy in copies.iter().filter(|copy| !is_later(evidence.history.place(copy.tid))) {
        if evidence.read_old(copy, &mut bytes)? && is_right(&bytes) {
            return Ok(Some(bytes));
        }
    }
    if copies.iter().any(|copy| is_later(evidence.history.place(copy.tid))) {
        return Ok(None);
    }
    let is_kept = last.is_some() || is_free(evidence, nr)?;
    let is_found = is_kept && evidence.read_now(nr, &mut bytes) && is_right(&bytes);
    Ok(is_found.then_some(bytes))
}

fn is_free(evidence: &Evidence<'_>, nr: BlockNr) -> Result<bool> {
    let mut free = Vec::new();
    let run = Run { logical: 0, physical: nr.0, len: 1, written: true };
    left::add_free(evidence, &run, &mut free)?;
    Ok(!free.is_empty())
}
