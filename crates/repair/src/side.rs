//! The side file: the old and the new bytes of a repair, so that it can be completed or undone.
//!
//! ```text
//!   0                     64                64 + 24 n
//!   ┌─────────────────────┬─────────────────┬───────────┬───────────┬─ … ─┐
//!   │ header              │ table, n rows   │ old bytes │ new bytes │     │   all little-endian
//!   └─────────────────────┴─────────────────┴───────────┴───────────┴─────┘
//!   header  magic 8 │ version u32 │ crc u32 │ device bytes u64 │ n u64 │ data bytes u64 │
//!           stage u32 │ flags u32 (1: the repair empties an external journal) │ zeros
//!   row     offset u64 │ length u32 │ crc of old u32 │ crc of new u32 │ crc of the row u32
//! ```
//!
//! The file is complete and durable before the first byte goes to the device. So one that is not
//! complete, whose header is zeros, means that nothing was written. Rows ascend and do not overlap.
//! The row of the superblock is written last, and its first sector after the second.
//!
//! The stage says in which direction the device is being changed. It is durable before the first
//! write, and again after the last flush. So an interrupted repair is completed, an interrupted
//! undo is completed as an undo, and a flush that failed is not taken for one that succeeded.

use crate::plan::{CHANGE_MAX, Change, Plan, is_superblock};
use extant::Environment;
use extant::device::HeldDevice;
use extant_base::narrow::len_u32;
use extant_base::{ByteOffset, Error, Result, Site};
use extant_blockdev::BlockDevice;
use extant_crc32c::crc32c;
use extant_ondisk::superblock::RawSuperblock;
use rustix::io::Errno;
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"EXTREPR\x01";
const VERSION: u32 = 1;
const HEADER: usize = 64;
/// Where the stage lies in the header.
const STAGE_AT: usize = 40;
/// Where the flags lie in the header.
const FLAGS_AT: usize = 44;
/// The flag of a repair that empties an external journal.
const EMPTIES_JOURNAL: u32 = 1;
const ROW: usize = 24;
/// The most rows that are read.
const ROWS_MAX: u64 = 1 << 26;
/// The unit that devices write whole.
const SECTOR: usize = 512;

/// A row of the table, and where its bytes are in the file.
#[derive(Clone, Copy, Debug)]
struct Row {
    at: u64,
    len: u32,
    old_crc: u32,
    new_crc: u32,
    data: u64,
}

/// A complete side file.
#[derive(Debug)]
pub struct SideFile {
    file: File,
    device_len: u64,
    rows: Vec<Row>,
    header: Cell<[u8; HEADER]>,
    stage: Cell<Stage>,
}

/// How far a side file was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing was written to the device.
    Planned,
    /// The repair was begun.
    Applying,
    /// The repair is durable.
    Applied,
    /// Taking the repair back was begun.
    Undoing,
    /// The device is durably as it was before.
    Undone,
}

impl Stage {
    const ALL: [Stage; 5] =
        [Stage::Planned, Stage::Applying, Stage::Applied, Stage::Undoing, Stage::Undone];

    fn of(number: u32) -> Option<Stage> {
        Stage::ALL.get(usize::try_from(number).ok()?).copied()
    }

    fn number(self) -> u32 {
        (0..).zip(Stage::ALL).find(|(_, stage)| *stage == self).map_or(0, |(number, _)| number)
    }
}

/// How much of a repair is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideState {
    /// Nothing: all bytes are the old ones.
    Nothing,
    /// Some: it was interrupted.
    Part,
    /// All of it.
    Whole,
    /// The device has bytes that are neither: it was changed afterwards, or is another one.
    Foreign {
        /// The first such place, bytes.
        at: u64,
    },
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl SideFile {
    /// Writes the changes of a plan to a new file at `path`, durable on return.
    ///
    /// # Errors
    /// Those of the file system, `AlreadyExists` and `StorageFull` among them; errors of the
    /// device. The file is removed again.
    pub fn create(path: &Path, plan: &Plan) -> io::Result<SideFile> {
        // It has names and content of the volume, which others may not be allowed to read.
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path)?;
        let written = write(&file, plan).and_then(|()| {
            if let Some(dir) = path.parent() {
                let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
                File::open(dir)?.sync_all()?;
            }
            SideFile::read(file)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(path);
        }
        written
    }

    /// Opens a side file. Nothing in it is used before it is checked. A symbolic link is not
    /// followed.
    ///
    /// # Errors
    /// `InvalidData` for a file that is not a side file; `UnexpectedEof` for one whose writing was
    /// interrupted, so that nothing was written to the device; those of the file system.
    pub fn open(path: &Path) -> io::Result<SideFile> {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags.bits().cast_signed());
        let file = options.open(path)?;
        if !file.metadata()?.is_file() {
            return Err(invalid("not a regular file"));
        }
        SideFile::read(file)
    }

    /// How far the file was used.
    pub fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Whether the repair can be taken back. It cannot once it emptied an external journal: the
    /// volume would need what that journal no longer holds.
    pub fn can_undo(&self) -> bool {
        let empties = word(&self.header.get(), FLAGS_AT) & EMPTIES_JOURNAL != 0;
        // The journal is emptied after the last write to the volume.
        !(empties && self.stage() == Stage::Applied)
    }

    /// The places that the repair changes: start and length in bytes, ascending.
    pub fn places(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.rows.iter().map(|row| (row.at, u64::from(row.len)))
    }

    fn read(mut file: File) -> io::Result<SideFile> {
        let file_len = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        let mut header = [0; HEADER];
        let incomplete = || io::Error::new(io::ErrorKind::UnexpectedEof, "it is not complete");
        file.read_exact(&mut header).map_err(|_| incomplete())?;
        if header == [0; HEADER] {
            return Err(incomplete());
        }
        if header[..8] != *MAGIC || word(&header, 8) != VERSION {
            return Err(invalid("not a side file of a repair"));
        }
        let mut summed = header;
        summed[12..16].fill(0);
        if word(&header, 12) != crc32c(!0, &summed) {
            return Err(invalid("its header is damaged"));
        }
        let (device_len, count, data) = (long(&header, 16), long(&header, 24), long(&header, 32));
        let Some(stage) = Stage::of(word(&header, STAGE_AT)) else {
            return Err(invalid("its stage is unknown"));
        };
        let table = count.checked_mul(ROW as u64).filter(|_| count <= ROWS_MAX);
        let total = table.and_then(|table| (HEADER as u64 + table).checked_add(data));
        if total != Some(file_len) {
            return Err(invalid("it is not complete"));
        }
        let mut rows = Vec::new();
        let mut at_data = HEADER as u64 + count * ROW as u64;
        let mut reader = io::BufReader::new(&mut file);
        let mut end = 0;
        for _ in 0..count {
            let mut bytes = [0; ROW];
            reader.read_exact(&mut bytes)?;
            let row = Row {
                at: long(&bytes, 0),
                len: word(&bytes, 8),
                old_crc: word(&bytes, 12),
                new_crc: word(&bytes, 16),
                data: at_data,
            };
            let next = row.at.checked_add(u64::from(row.len));
            let legal = row.len > 0 && row.len as usize <= CHANGE_MAX && row.at >= end;
            if word(&bytes, 20) != crc32c(!0, &bytes[..20])
                || !legal
                || next.is_none_or(|next| next > device_len)
            {
                return Err(invalid("its table is damaged"));
            }
            end = next.unwrap_or(u64::MAX);
            at_data += 2 * u64::from(row.len);
            rows.push(row);
        }
        drop(reader);
        if at_data != file_len {
            return Err(invalid("its table does not fit its data"));
        }
        Ok(SideFile { file, device_len, rows, header: Cell::new(header), stage: Cell::new(stage) })
    }

    /// Bytes that the repair changes.
    pub fn changed_bytes(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.len)).sum()
    }

    /// How much of the repair is on `home`.
    ///
    /// # Errors
    /// `Device`; `Invalid` if the file's data is damaged.
    pub fn progress(&self, home: &dyn BlockDevice) -> Result<SideState> {
        if home.len() != self.device_len {
            return Ok(SideState::Foreign { at: home.len().min(self.device_len) });
        }
        let (mut any_old, mut any_new) = (false, false);
        for row in &self.rows {
            let (old, new) = self.data(row)?;
            let mut now = vec![0; old.len()];
            home.read_at(ByteOffset(row.at), &mut now)?;
            if now == new {
                any_new = true;
                continue;
            }
            if now == old {
                any_old = true;
                continue;
            }
            // A power cut may have left some sectors old and others new.
            for (n, now) in now.chunks(SECTOR).enumerate() {
                let part = n * SECTOR..n * SECTOR + now.len();
                if now != &old[part.clone()] && now != &new[part] {
                    return Ok(SideState::Foreign { at: row.at + (n * SECTOR) as u64 });
                }
            }
            (any_old, any_new) = (true, true);
        }
        Ok(match (any_old, any_new) {
            (true, false) => SideState::Nothing,
            (true, true) => SideState::Part,
            (false, _) => SideState::Whole,
        })
    }

    /// Writes the new bytes to `home`; durable on return. The superblock goes last. A volume with
    /// multiple mount protection is held meanwhile; if its last holder did not release it, this
    /// waits 42 seconds and more.
    ///
    /// # Errors
    /// `Held` if another host has the volume; `Device`: calling this again continues; `Invalid` if
    /// the file's data is damaged, the stage cannot be stored, or the device has another length or
    /// other bytes than those of the repair: nothing was written then.
    pub fn apply(&self, home: &Arc<dyn BlockDevice>) -> Result<()> {
        self.put(home, true)
    }

    /// Writes the old bytes to `home`; durable on return. The superblock goes last.
    ///
    /// # Errors
    /// As [`SideFile::apply`]; `Invalid` also if [`SideFile::can_undo`] says no.
    pub fn undo(&self, home: &Arc<dyn BlockDevice>) -> Result<()> {
        if !self.can_undo() {
            return Err(Error::Invalid(
                "the repair replayed the journal on another device and emptied it: it cannot be \
                 taken back",
            ));
        }
        self.put(home, false)
    }

    fn put(&self, home: &Arc<dyn BlockDevice>, new: bool) -> Result<()> {
        if let SideState::Foreign { .. } = self.progress(home)? {
            return Err(Error::Invalid(
                "the device was changed after the repair, or is another one",
            ));
        }
        match self.hold(home)? {
            Some(held) => {
                self.put_held(&**held.device(), new)?;
                held.release()
            }
            None => self.put_held(&**home, new),
        }
    }

    /// Holds the volume against other hosts, if it has multiple mount protection. A repair of the
    /// block of that protection holds nothing: a damaged block refuses every other host.
    fn hold(&self, home: &Arc<dyn BlockDevice>) -> Result<Option<HeldDevice>> {
        let Some(row) = self.rows.iter().find(|row| is_superblock(row.at)) else { return Ok(None) };
        // The superblock of the repaired volume: the one on the device may be damaged.
        let (_, fresh) = self.data(row)?;
        let sb = RawSuperblock::from_prefix(&fresh).and_then(|raw| raw.parse(Site::NOWHERE).ok());
        let Some(sb) = sb else { return Ok(None) };
        let block = sb.block_size.start_of(sb.mmp_block).0;
        let end = block + sb.block_size.bytes() as u64;
        let writes = |row: &Row| row.at < end && row.at + u64::from(row.len) > block;
        match self.rows.iter().any(writes) {
            true => Ok(None),
            false => HeldDevice::take(home, &sb, &Environment::default()),
        }
    }

    fn put_held(&self, home: &dyn BlockDevice, new: bool) -> Result<()> {
        let (begun, ended) = match new {
            true => (Stage::Applying, Stage::Applied),
            false => (Stage::Undoing, Stage::Undone),
        };
        self.set_stage(begun)?;
        // All rows, also those that read as written: what a failed flush lost may read so, too.
        for last in [false, true] {
            for row in self.rows.iter().filter(|row| is_superblock(row.at) == last) {
                let (old, fresh) = self.data(row)?;
                let bytes = if new { fresh } else { old };
                if last {
                    let (first, second) = bytes.split_at(bytes.len().min(SECTOR));
                    home.write_at(ByteOffset(row.at + first.len() as u64), second)?;
                    home.flush()?;
                    home.write_at(ByteOffset(row.at), first)?;
                } else {
                    home.write_at(ByteOffset(row.at), &bytes)?;
                }
            }
            home.flush()?;
        }
        self.set_stage(ended)
    }

    /// Stores the stage, durably.
    fn set_stage(&self, stage: Stage) -> Result<()> {
        let mut header = self.header.get();
        header[STAGE_AT..STAGE_AT + 4].copy_from_slice(&stage.number().to_le_bytes());
        header[12..16].fill(0);
        let crc = crc32c(!0, &header);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        let stored = self.file.write_all_at(&header, 0).and_then(|()| self.file.sync_all());
        stored.map_err(|_| Error::Invalid("the side file cannot be written"))?;
        self.header.set(header);
        self.stage.set(stage);
        Ok(())
    }

    /// The old and the new bytes of a row, verified.
    fn data(&self, row: &Row) -> Result<(Vec<u8>, Vec<u8>)> {
        let len = row.len as usize;
        let mut bytes = vec![0; 2 * len];
        let damaged = Error::Invalid("the side file is damaged");
        if self.file.read_exact_at(&mut bytes, row.data).is_err() {
            return Err(damaged);
        }
        let new = bytes.split_off(len);
        if crc32c(!0, &bytes) != row.old_crc || crc32c(!0, &new) != row.new_crc {
            return Err(damaged);
        }
        Ok((bytes, new))
    }
}

/// Writes header, table and data, and makes them durable. Space is reserved first.
fn write(mut file: &File, plan: &Plan) -> io::Result<()> {
    let mut table: Vec<u8> = Vec::new();
    let mut data = 0u64;
    let mut count = 0u64;
    plan.each(&mut |change: Change| {
        let mut row = [0; ROW];
        row[..8].copy_from_slice(&change.at.to_le_bytes());
        row[8..12].copy_from_slice(&len_u32(change.new.len()).to_le_bytes());
        row[12..16].copy_from_slice(&crc32c(!0, &change.old).to_le_bytes());
        row[16..20].copy_from_slice(&crc32c(!0, &change.new).to_le_bytes());
        let crc = crc32c(!0, &row[..20]);
        row[20..].copy_from_slice(&crc.to_le_bytes());
        table.extend_from_slice(&row);
        data += 2 * change.new.len() as u64;
        count += 1;
        true
    })?;
    let total = (HEADER + table.len()) as u64 + data;
    let reserved = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, total);
    match reserved {
        // Not every file system can reserve space.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&plan.device_len().to_le_bytes());
    header[24..32].copy_from_slice(&count.to_le_bytes());
    header[32..40].copy_from_slice(&data.to_le_bytes());
    let flags = if plan.changes_journal() { EMPTIES_JOURNAL } else { 0 };
    header[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&flags.to_le_bytes());
    let crc = crc32c(!0, &header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    let mut out = io::BufWriter::with_capacity(1 << 20, &mut file);
    // The header is written last, so that an interrupted write leaves no complete file.
    out.seek(SeekFrom::Start(HEADER as u64))?;
    out.write_all(&table)?;
    let mut wrote = Ok(());
    plan.each(&mut |change| {
        wrote = out.write_all(&change.old).and_then(|()| out.write_all(&change.new));
        wrote.is_ok()
    })?;
    wrote?;
    out.flush()?;
    drop(out);
    file.sync_all()?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header)?;
    file.sync_all()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
