//! Whether the state after a recovery is allowed, for bytes that went through the page cache.
//!
//! ```text
//!   names         those of the moment that the marker shows, or of the next operation
//!   size          between the smallest and the largest since its last sync, cut or replacement
//!   each sector   as it was at one moment from then on; zeros only if it had some or was truncated
//! ```

use super::contents::{Contents, Life, Version};
use super::run::MARKER;
use crate::direct::DirectHow;
use crate::history::History;
use crate::op::Op;
use crate::view::{POISON, View};
use std::collections::BTreeMap;

/// The unit that a device does not tear.
const SECTOR: usize = 512;

/// What must be there after a cut.
struct Floor {
    /// The oldest moment that names, and changes that calls make at once, may show.
    view: usize,
    /// The oldest moment that the bytes of each file may show.
    data: Vec<usize>,
}

impl Contents {
    /// Compares a recovered volume with the run, cut after `cut` device operations of which
    /// `completed` had returned. `Err` names what is not allowed.
    pub fn judge(
        &self,
        history: &History,
        found: &View,
        (cut, completed): (usize, usize),
    ) -> Result<(), String> {
        let newest = history.newest(cut);
        let floor = self.floor(history, completed);
        let marker = found.node(MARKER).ok_or("the marker is gone")?;
        let committed = marker.attributes.uid as usize;
        let mut names: BTreeMap<&str, u32> = BTreeMap::new();
        names.extend(found.names.iter().map(|(path, ino)| (path.as_str(), *ino)));
        names.retain(|path, _| !["/", "/lost+found", MARKER].contains(path));
        let mut why = Vec::new();
        for view in [committed, committed + 1] {
            if view > newest.max(committed) {
                continue;
            }
            if view < floor.view {
                why.push(format!("view {view}: {} is synced", floor.view));
                continue;
            }
            let wanted = self.names[view].iter();
            let wanted = wanted.map(|(path, life)| (path.as_str(), self.lives[*life].ino));
            if names != wanted.collect() {
                why.push(format!("view {view}: names {names:?}, wanted {:?}", self.names[view]));
                continue;
            }
            let judge = |(path, life): (&String, &usize)| {
                let bytes = &found.node(path).expect("the names are equal").content;
                self.lives[*life]
                    .judge(bytes, view, floor.data[*life], newest)
                    .map_err(|e| format!("view {view} to {newest}: {path}: {e}"))
            };
            match self.names[view].iter().try_for_each(judge) {
                Ok(()) => return Ok(()),
                Err(error) => why.push(error),
            }
        }
        Err(why.join("; or "))
    }

    fn floor(&self, history: &History, completed: usize) -> Floor {
        let mut floor = Floor { view: 0, data: vec![0; self.lives.len()] };
        for (n, step) in history.steps.iter().enumerate() {
            if step.end > completed || step.refused.is_some() {
                continue;
            }
            match &step.op {
                Op::Sync => {
                    floor.view = n;
                    floor.data.fill(n + 1);
                }
                Op::Fsync { path }
                | Op::Fdatasync { path }
                | Op::DirectWrite { path, how: DirectHow::Synced, .. } => {
                    let Some(id) = self.names[n + 1].get(path) else { continue };
                    floor.data[*id] = n + 1;
                    let calls = self.lives[*id].calls.iter().filter(|view| **view <= n + 1);
                    floor.view = floor.view.max(calls.max().copied().unwrap_or(0));
                }
                _ => {}
            }
        }
        floor
    }
}

impl Life {
    /// Judges its bytes, if the calls up to `view` are committed.
    fn judge(&self, bytes: &[u8], view: usize, synced: usize, newest: usize) -> Result<(), String> {
        let kept = self.kept.iter().filter(|kept| **kept <= view).max();
        let lower = kept.copied().unwrap_or(0).max(synced);
        self.judge_size(bytes.len(), view, lower, newest)?;

        let is_moving = |change: &&super::contents::Change| {
            change.moves && change.view > view && change.view <= newest
        };
        let moving = self.changes.iter().filter(is_moving).map(|change| change.range.start).min();
        let mut borders: Vec<usize> = (0..bytes.len()).step_by(SECTOR).collect();
        borders.extend(self.changes.iter().flat_map(|c| [c.range.start, c.range.end]));
        borders.push(bytes.len());
        borders.retain(|border| *border <= bytes.len());
        borders.sort_unstable();
        borders.dedup();
        for piece in borders.windows(2) {
            let (from, to) = (piece[0], piece[1]);
            let covers = |change: &&super::contents::Change| {
                change.view <= view && change.range.start <= from && to <= change.range.end
            };
            let change = self.changes.iter().filter(covers).map(|change| change.view).max();
            let lower = change.unwrap_or(0).max(lower);
            let found = &bytes[from..to];
            let versions = self.between(lower, newest);
            if versions.iter().rev().any(|version| holds(versions, version, from, found)) {
                continue;
            }
            if moving.is_some_and(|moving| from >= moving) && self.has_somewhere(found, newest) {
                continue;
            }
            return Err(format!(
                "inode {}: bytes {from}..{to} of {} are of no moment since view {lower} (synced {synced}): {}",
                self.ino,
                bytes.len(),
                self.whose(from, found)
            ));
        }
        Ok(())
    }

    fn judge_size(
        &self,
        size: usize,
        view: usize,
        lower: usize,
        newest: usize,
    ) -> Result<(), String> {
        let cuts = self.changes.iter().filter(|c| c.is_shorter && c.view <= view);
        let cut = cuts.map(|change| change.view).max().unwrap_or(0);
        let sizes = |first| self.between(first, newest).iter().map(|v| v.bytes.len());
        // The zeros of a truncation may be missing.
        let least = sizes(lower).min().unwrap_or(0);
        let most = sizes(lower.max(cut)).max().unwrap_or(0);
        match (least..=most).contains(&size) {
            true => Ok(()),
            false => Err(format!(
                "inode {}: {size} bytes, wanted {least}..={most} (since view {lower}, cut at {cut})",
                self.ino
            )),
        }
    }

    /// Whether a moment had these bytes at any sector: a range is being moved.
    fn has_somewhere(&self, found: &[u8], newest: usize) -> bool {
        let all_zero = found.iter().all(|byte| *byte == 0);
        all_zero
            || self.between(0, newest).iter().any(|version| {
                version.bytes.chunks(SECTOR).any(|chunk| {
                    let n = chunk.len().min(found.len());
                    chunk[..n] == found[..n] && found[n..].iter().all(|byte| *byte == 0)
                })
            })
    }

    fn whose(&self, from: usize, found: &[u8]) -> String {
        if found.iter().all(|byte| *byte == POISON) {
            return "stale: what the free block held before the run".to_owned();
        }
        if found.iter().all(|byte| *byte == 0) {
            return "zeros".to_owned();
        }
        let had = |version: &&Version| version.bytes.get(from..from + found.len()) == Some(found);
        match self.versions.iter().find(had) {
            Some(version) => format!("those of view {}", version.view),
            None => format!("{:02x?}…", &found[..found.len().min(16)]),
        }
    }
}

/// Whether `found` at `from` is what a version has there. Beyond its end this means zeros, if one
/// of the versions before it had bytes there that it truncated.
fn holds(versions: &[Version], version: &Version, from: usize, found: &[u8]) -> bool {
    let (bytes, to) = (&version.bytes, from + found.len());
    let inside = bytes.len().clamp(from, to);
    if bytes.get(from..inside).unwrap_or_default() != &found[..inside - from] {
        return false;
    }
    let was_cut =
        || versions.iter().any(|before| before.view < version.view && before.bytes.len() >= to);
    inside == to || (found[inside - from..].iter().all(|byte| *byte == 0) && was_cut())
}
