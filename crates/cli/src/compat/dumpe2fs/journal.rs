//! The journal's superblock, and the block of multiple mount protection.

use crate::compat::console::Console;
use crate::compat::superblock;
use crate::compat::volume::{Piece, RawVolume};
use crate::compat::{clock, words};
use crate::failure::Failure;
use extant::{BlockDevice, BlockSize, Error, Site, What};
use extant_base::{BlockNr, ByteOffset, Ino};
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::jbd2::JournalSuperblock;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::fmt::Display;

/// Why the lines could not be printed.
pub(super) enum Wrong {
    Volume(Error),
    Output(Failure),
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Wrong {
        Wrong::Volume(error)
    }
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Wrong {
        Wrong::Output(failure)
    }
}

/// Prints the journal of a volume that has it in an inode.
pub(super) fn internal(volume: &RawVolume, to: &mut Console) -> Result<(), Wrong> {
    let sb = &volume.sb;
    let (true, Some(ino)) = (sb.has_journal(), Ino::new(sb.journal_inum)) else { return Ok(()) };
    let inode = volume.inode(ino)?;
    let mut first = None;
    let mut blocks = 0u64;
    volume.walk_map(ino, &inode, &mut |piece| {
        if let Piece::Run { logical, block, len, .. } = piece {
            first = first.or((logical == 0).then_some(block));
            blocks = blocks.saturating_add(len);
        }
        Ok(())
    })?;
    let missing = || Site::of_ino(ino).corrupt(What::JournalSuperblock);
    let bytes = volume.block(BlockNr(first.ok_or_else(missing)?))?;
    let log = JournalSuperblock::read(&bytes, sb.block_size, blocks, Site::of_ino(ino))?;
    let has_fast = sb.features.compat.contains(Compat::FAST_COMMIT);
    let lines =
        Lines { log: &log, bytes: &bytes, size: sb.block_size, has_fast, is_external: false };
    Ok(lines.print(to)?)
}

/// Prints the two superblocks of an external journal's device.
pub(super) fn external(device: &dyn BlockDevice, to: &mut Console) -> Result<u8, Failure> {
    let failed = |error: Error| Failure::new(words::of(&error).text);
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes).map_err(failed)?;
    let raw = RawSuperblock::from_prefix(&bytes).expect("the buffer is as long as a superblock");
    let sb = raw.parse(Site::NOWHERE).map_err(failed)?;
    superblock::list(raw, &sb, to)?;
    let size = sb.block_size;
    // With blocks of 1 KiB, the volume's superblock is in block 1.
    let block = BlockNr(1 + u64::from(size.bytes() == SUPERBLOCK_SIZE));
    let mut bytes = vec![0; size.bytes()];
    device.read_at(size.start_of(block), &mut bytes).map_err(failed)?;
    let log = JournalSuperblock::read(&bytes, size, u64::MAX, Site::of_block(block));
    let log = log.map_err(failed)?;
    let lines = Lines { log: &log, bytes: &bytes, size, has_fast: false, is_external: true };
    lines.print(to)?;
    Ok(0)
}

/// A journal's superblock as lines of text.
struct Lines<'a> {
    log: &'a JournalSuperblock,
    bytes: &'a [u8],
    size: BlockSize,
    /// The volume has fast commits.
    has_fast: bool,
    is_external: bool,
}

impl Lines<'_> {
    fn print(&self, to: &mut Console) -> Result<(), Failure> {
        let log = self.log;
        let names: Vec<String> = log.features.names().map(|(name, _)| name.to_owned()).collect();
        let names = if names.is_empty() { "(none)".to_owned() } else { names.join(" ") };
        line(to, "Journal features", names)?;
        let kib = u64::from(log.maxlen) << self.size.log2() >> 10;
        let size = match kib {
            0..8192 => format!("{kib}k"),
            _ => format!("{}M", kib >> 10),
        };
        line(to, "Total journal size", size)?;
        line(to, "Total journal blocks", log.maxlen)?;
        let fast = if self.has_fast { log.fast_commit_blocks } else { 0 };
        line(to, "Max transaction length", log.maxlen.saturating_sub(fast))?;
        line(to, "Fast commit length", fast)?;
        if log.first != 1 {
            line(to, "Journal first block", log.first)?;
        }
        line(to, "Journal sequence", format_args!("{:#010x}", log.sequence.0))?;
        line(to, "Journal start", log.start.unwrap_or(0))?;
        if self.is_external {
            self.users(to)?;
        }
        self.checksum(to)?;
        if log.errno != 0 {
            line(to, "Journal errno", log.errno)?;
        }
        Ok(())
    }

    fn users(&self, to: &mut Console) -> Result<(), Failure> {
        line(to, "Journal number of users", self.log.nr_users)?;
        let users = JournalSuperblock::users(self.bytes);
        for (at, user) in users.enumerate() {
            let key = if at == 0 { "Journal users:" } else { "" };
            to.print(format_args!("{key:<26}{}\n", crate::shown::uuid(&user)))?;
        }
        Ok(())
    }

    fn checksum(&self, to: &mut Console) -> Result<(), Failure> {
        if !self.log.features.names().any(|(name, _)| name.contains("checksum_v")) {
            return Ok(());
        }
        // Read with the rest; 0xFC of 1024 bytes.
        let stored: [u8; 4] = self.bytes[0xFC..0x100].try_into().expect("4 bytes");
        line(to, "Journal checksum type", "crc32c")?;
        line(to, "Journal checksum", format_args!("{:#010x}", u32::from_be_bytes(stored)))
    }
}

fn line(to: &mut Console, key: &str, value: impl Display) -> Result<(), Failure> {
    to.print(format_args!("{:<26}{value}\n", format!("{key}:")))
}

/// Prints the block of multiple mount protection, if the volume has one.
pub(super) fn mmp(volume: &RawVolume, to: &mut Console) -> Result<(), Failure> {
    let sb = &volume.sb;
    if !sb.features.incompat.contains(Incompat::MMP) {
        return Ok(());
    }
    let bytes = match volume.block(sb.mmp_block) {
        Ok(bytes) => bytes,
        Err(error) => {
            to.complain(&format!("{} while reading MMP block", words::of(&error).text));
            return Ok(());
        }
    };
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let time = u64::from(word(8)) | u64::from(word(12)) << 32;
    let interval = u16::from_le_bytes([bytes[0x70], bytes[0x71]]);
    let date = clock::ctime(i64::try_from(time).unwrap_or(i64::MAX));
    to.print(format_args!(
        "MMP_block:\n    mmp_magic: {:#x}\n    mmp_check_interval: {interval}\n    \
         mmp_sequence: {:#010x}\n    mmp_update_date: {date}\n    mmp_update_time: {time}\n    \
         mmp_node_name: ",
        word(0),
        word(4)
    ))?;
    to.bytes(superblock::up_to_nul(&bytes[0x10..0x50]))?;
    to.bytes(b"\n    mmp_device_name: ")?;
    to.bytes(superblock::up_to_nul(&bytes[0x50..0x70]))?;
    to.bytes(b"\n")
}
