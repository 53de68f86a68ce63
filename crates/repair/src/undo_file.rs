//! Undo files of e2fsprogs (`e2fsck -z`, `tune2fs -z`, …): the old blocks of a volume.
//!
//! ```text
//!   0        1 block            key block              next key block
//!   ┌────────┬──────────────────┬────────┬───── … ─────┬────────┬── … ┐
//!   │ header │ superblock after │ n keys │ old bytes   │        │     │    all little-endian
//!   └────────┴──────────────────┴────────┴───── … ─────┴────────┴── … ┘
//!   header     "E2UNDO02" │ keys u64 │ place of the superblock u64 │ first key block u64 │
//!              block size u32 │ volume's block size u32 │ crc of the superblock u32 │
//!              state u32 │ compat u32 │ incompat u32 │ ro_compat u32 │ pad u32 │ offset u64 │
//!              zeros │ crc u32
//!   key block  CADECADE u32 │ crc u32 │ 0 u64 │ keys
//!   key        block of the volume u64 │ crc u32 │ bytes u32
//! ```
//!
//! Places are in blocks of the file, those of old bytes in blocks of the volume, from its start:
//! the offset only says where a tool found the volume. The superblock's copy has an inverted magic,
//! so that no tool takes the file for a volume. A volume whose superblock differs from the copy was
//! changed later.
//!
//! The old bytes become a plan like any other: they go to the device by a side file, which
//! completes what is interrupted, and takes the undo back.

use crate::plan::Plan;
use crate::report::Report;
use extant_base::narrow::fits_usize;
use extant_base::{ByteOffset, Error, IoOp, Result, Site};
use extant_blockdev::{BlockDevice, Overlay};
use extant_crc32c::crc32c;
use extant_ondisk::superblock::{
    RawSuperblock, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, VolumeState,
};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"E2UNDO02";
const HEADER: usize = 512;
const KEY_MAGIC: u32 = 0xCADE_CADE;
/// Bytes of a key, and of the head of a key block.
const KEY: usize = 16;
/// The state of a file whose tool has ended.
const FINISHED: u32 = 1;
/// The most old bytes that are put back: they are in memory.
const BYTES_MAX: u64 = 1 << 30;
/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Old bytes: where they were, and where they are in the file.
#[derive(Clone, Copy, Debug)]
struct Key {
    at: u64,
    len: u32,
    data: u64,
}

/// A checked undo file.
#[derive(Debug)]
pub struct UndoFile {
    file: File,
    keys: Vec<Key>,
    /// The superblock as the tool left it.
    superblock: Vec<u8>,
    is_finished: bool,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

impl UndoFile {
    /// Whether a file begins like an undo file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn is_one(path: &Path) -> io::Result<bool> {
        let mut magic = [0; 8];
        match File::open(path)?.read_exact_at(&mut magic, 0) {
            Ok(()) => Ok(magic == *MAGIC),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens an undo file. All checksums are verified before anything in it is used.
    ///
    /// # Errors
    /// `InvalidData` for a file that is not an undo file, that is damaged, or that has more than
    /// 1 GiB of old bytes; those of the file system.
    pub fn open(path: &Path) -> io::Result<UndoFile> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut header = [0; HEADER];
        let cut = |_| invalid("it is not complete");
        file.read_exact_at(&mut header, 0).map_err(cut)?;
        if header[..8] != *MAGIC {
            return Err(invalid("not an undo file"));
        }
        if word(&header, HEADER - 4) != crc32c(!0, &header[..HEADER - 4]) {
            return Err(invalid("its header is damaged"));
        }
        let (block, volume_block) = (word(&header, 32), word(&header, 36));
        let sizes = 1 << 10..=1 << 20;
        let is_size = |size: u32| sizes.contains(&size) && size.is_power_of_two();
        if !is_size(block) || !is_size(volume_block) || word(&header, 52) | word(&header, 56) != 0 {
            return Err(invalid("it has features that are not known"));
        }
        let (count, block) = (long(&header, 8), u64::from(block));
        if count > len / KEY as u64 {
            return Err(invalid("it is not complete"));
        }
        let place = |n: usize| long(&header, n).checked_mul(block).filter(|at| *at < len);
        let (Some(superblock_at), Some(first)) = (place(16), place(24)) else {
            return Err(invalid("it is not complete"));
        };
        let mut superblock = vec![0; SUPERBLOCK_SIZE];
        file.read_exact_at(&mut superblock, superblock_at).map_err(cut)?;
        let magic = !u16::from_le_bytes([superblock[0x38], superblock[0x39]]);
        superblock[0x38..0x3A].copy_from_slice(&magic.to_le_bytes());
        if magic != SUPERBLOCK_MAGIC || crc32c(!0, &superblock) != word(&header, 40) {
            return Err(invalid("its copy of the superblock is damaged"));
        }
        let is_finished = word(&header, 44) == FINISHED;
        let mut undo = UndoFile { file, keys: Vec::new(), superblock, is_finished };
        undo.read_keys(count, first, block, volume_block.into())?;
        Ok(undo)
    }

    /// Reads `count` keys from byte `at` on; `unit` is what their places are counted in.
    fn read_keys(&mut self, count: u64, mut at: u64, block: u64, unit: u64) -> io::Result<()> {
        let damaged = || invalid("its keys are damaged");
        let mut bytes = vec![0; fits_usize(block)];
        let (mut left, mut total) = (count, 0u64);
        while left > 0 {
            self.file.read_exact_at(&mut bytes, at).map_err(|_| damaged())?;
            let stored = word(&bytes, 4);
            bytes[4..8].fill(0);
            if word(&bytes, 0) != KEY_MAGIC || crc32c(!0, &bytes) != stored {
                return Err(damaged());
            }
            at += block;
            for key in bytes[KEY..].chunks_exact(KEY) {
                if left == 0 {
                    break;
                }
                let (len, crc) = (word(key, 12), word(key, 8));
                let place = long(key, 0).checked_mul(unit);
                let place = place.filter(|at| at.checked_add(len.into()).is_some());
                let place = place.ok_or_else(damaged)?;
                total += u64::from(len);
                if total > BYTES_MAX {
                    return Err(invalid("it has more than 1 GiB of old bytes"));
                }
                let key = Key { at: place, len, data: at };
                if self.crc_of(key)? != crc {
                    return Err(damaged());
                }
                self.keys.push(key);
                at += u64::from(len).next_multiple_of(block);
                left -= 1;
            }
        }
        Ok(())
    }

    fn crc_of(&self, key: Key) -> io::Result<u32> {
        let mut crc = !0;
        self.each_piece(key, &mut |_, bytes| {
            crc = crc32c(crc, bytes);
            Ok(())
        })?;
        Ok(crc)
    }

    /// Calls `each` with the old bytes of a key, and their place on the device.
    fn each_piece(
        &self,
        key: Key,
        each: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let len = fits_usize(key.len.into());
        let mut bytes = vec![0; len.min(PIECE)];
        let mut done = 0;
        while done < len {
            let part = &mut bytes[..(len - done).min(PIECE)];
            self.file
                .read_exact_at(part, key.data + done as u64)
                .map_err(|_| invalid("it is not complete"))?;
            each(key.at + done as u64, part)?;
            done += part.len();
        }
        Ok(())
    }

    /// Whether the tool that wrote the file had ended. If not, what it did is taken back as far as
    /// the file has it, and the volume is marked as not clean.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// The volume as it was before the tool changed it; empty if it already is. `None` if the
    /// volume was changed later, or is another one.
    ///
    /// # Errors
    /// `Device`, also for the file.
    pub fn plan(&self, device: &Arc<dyn BlockDevice>) -> Result<Option<Plan>> {
        let overlay = Arc::new(Overlay::new(Arc::clone(device)));
        // Of two keys for one place, the first is the older one.
        for key in self.keys.iter().rev() {
            let mut failed = None;
            let read = self.each_piece(*key, &mut |at, bytes| {
                failed = overlay.write_at(ByteOffset(at), bytes).err();
                match failed {
                    None => Ok(()),
                    Some(_) => Err(invalid("")),
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            read.map_err(|source| Error::Device {
                op: IoOp::Read,
                at: ByteOffset(key.data),
                len: fits_usize(key.len.into()),
                source,
            })?;
        }
        if !self.is_finished {
            mark_unclean(&overlay)?;
        }
        let plan = Plan::new(overlay, Report::default(), true, Vec::new());
        let mut now = vec![0; SUPERBLOCK_SIZE];
        device.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut now)?;
        let is_other = now != self.superblock && !plan.is_empty()?;
        Ok((!is_other).then_some(plan))
    }
}

/// Marks a volume that was only taken back in part.
fn mark_unclean(overlay: &Overlay<Arc<dyn BlockDevice>>) -> Result<()> {
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    overlay.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes)?;
    let Some(mut raw) = RawSuperblock::from_prefix(&bytes).cloned() else { return Ok(()) };
    let Ok(mut sb) = raw.parse(Site::NOWHERE) else { return Ok(()) };
    sb.state.remove(VolumeState::VALID);
    sb.update_raw(&mut raw);
    overlay.write_at(ByteOffset(SUPERBLOCK_OFFSET), &raw.to_bytes())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}
