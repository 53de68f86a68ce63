//! Fills folios with the file's bytes from the device.

use crate::inodes::map::{LOGICAL_END, Target};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::Result;
use extant_base::narrow::fits_usize;
use extant_pagecache::Fill;
use std::ops::Range;

/// Reads whole blocks of one file. The inode lock is held while it exists.
pub(super) struct FromDevice<'a> {
    pub(super) volume: &'a Volume,
    pub(super) body: &'a Body,
}

impl Fill for FromDevice<'_> {
    fn fill(&self, offset: u64, buf: &mut [u8], backed: &mut dyn FnMut(Range<u64>)) -> Result<()> {
        let log2 = self.volume.block_size().log2();
        let end = offset + buf.len() as u64;
        // A folio can reach past the largest possible file.
        let at = |byte: u64| u32::try_from(byte >> log2).unwrap_or(LOGICAL_END);
        let (first, last) = (at(offset), at(end));
        for run in self.volume.file(self.body).runs(first..last) {
            let run = run?;
            let bytes = u64::from(run.logical.0) << log2..u64::from(run.end().0) << log2;
            let part = &mut buf[fits_usize(bytes.start - offset)..fits_usize(bytes.end - offset)];
            match run.target {
                Target::Written(block) => {
                    self.volume.file(self.body).read_data(block, 0, part)?;
                    backed(bytes);
                }
                Target::Unwritten(_) | Target::Hole => {
                    part.fill(0);
                    self.report_reserved(run.target, run.logical.0..run.end().0, backed);
                }
            }
        }
        let mapped = fits_usize((u64::from(last) << log2).saturating_sub(offset));
        // Bytes past the file's end read as zeros, whatever the block holds.
        let inside = usize::try_from(self.body.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        if let Some(after) = buf.get_mut(inside.min(mapped)..) {
            after.fill(0);
        }
        Ok(())
    }
}

impl FromDevice<'_> {
    /// Reports the bytes that may become dirty without a further reservation.
    fn report_reserved(
        &self,
        target: Target,
        blocks: Range<u32>,
        backed: &mut dyn FnMut(Range<u64>),
    ) {
        let log2 = self.volume.block_size().log2();
        let mut at = blocks.start;
        while at < blocks.end {
            let (reserved, len) = match target {
                Target::Hole => self.body.reserved_run(at, blocks.end - at),
                _ => self.body.split_run(at, blocks.end - at),
            };
            if reserved {
                backed(u64::from(at) << log2..u64::from(at + len) << log2);
            }
            at += len.max(1);
        }
    }
}
