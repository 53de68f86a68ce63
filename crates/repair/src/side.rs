//! The side file: the old and the new bytes of a repair, so that it can be completed or undone.
//!
//! ```text
//!   0                     64                64 + 24 n
//!   ┌─────────────────────┬─────────────────┬───────────┬───────────┬─ … ─┐
//!   │ header              │ table, n rows   │ old bytes │ new bytes │     │   all little-endian
//!   └─────────────────────┴─────────────────┴───────────┴───────────┴─────┘
//!   header  magic 8 │ version u32 │ crc u32 │ device bytes u64 │ n u64 │ data bytes u64 │ zeros
//!   row     offset u64 │ length u32 │ crc of old u32 │ crc of new u32 │ crc of the row u32
//! ```
//!
//! The file is complete and durable before the first byte goes to the device. So one that is not
//! complete means that nothing was written. Rows ascend and do not overlap. The row of the
//! superblock is written last.

use crate::plan::{CHANGE_MAX, Change, Plan, is_superblock};
use extant_base::narrow::len_u32;
use extant_base::{ByteOffset, Error, Result};
use extant_blockdev::BlockDevice;
use extant_crc32c::crc32c;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"EXTREPR\x01";
const VERSION: u32 = 1;
const HEADER: usize = 64;
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
}

/// How much of a repair is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
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
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
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

    /// Opens a side file. Nothing in it is used before it is checked.
    ///
    /// # Errors
    /// `InvalidData` for a file that is not a complete side file; those of the file system.
    pub fn open(path: &Path) -> io::Result<SideFile> {
        SideFile::read(File::open(path)?)
    }

    fn read(mut file: File) -> io::Result<SideFile> {
        let file_len = file.metadata()?.len();
        file.seek(SeekFrom::Start(0))?;
        let mut header = [0; HEADER];
        file.read_exact(&mut header).map_err(|_| invalid("too short"))?;
        if header[..8] != *MAGIC || word(&header, 8) != VERSION {
            return Err(invalid("not a side file of a repair"));
        }
        let mut summed = header;
        summed[12..16].fill(0);
        if word(&header, 12) != crc32c(!0, &summed) {
            return Err(invalid("its header is damaged"));
        }
        let (device_len, count, data) = (long(&header, 16), long(&header, 24), long(&header, 32));
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
        Ok(SideFile { file, device_len, rows })
    }

    /// Bytes that the repair changes.
    pub fn changed_bytes(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.len)).sum()
    }

    /// How much of the repair is on `home`.
    ///
    /// # Errors
    /// `Device`; `Invalid` if the file's data is damaged.
    pub fn progress(&self, home: &dyn BlockDevice) -> Result<Progress> {
        if home.len() != self.device_len {
            return Ok(Progress::Foreign { at: home.len().min(self.device_len) });
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
                    return Ok(Progress::Foreign { at: row.at + (n * SECTOR) as u64 });
                }
            }
            (any_old, any_new) = (true, true);
        }
        Ok(match (any_old, any_new) {
            (true, false) => Progress::Nothing,
            (true, true) => Progress::Part,
            (false, _) => Progress::Whole,
        })
    }

    /// Writes the new bytes to `home`; durable on return. The superblock goes last.
    ///
    /// # Errors
    /// `Device`: calling this again continues; `Invalid` if the file's data is damaged: nothing was
    /// written then.
    pub fn apply(&self, home: &dyn BlockDevice) -> Result<()> {
        self.put(home, true)
    }

    /// Writes the old bytes to `home`; durable on return. The superblock goes last.
    ///
    /// # Errors
    /// As [`SideFile::apply`].
    pub fn undo(&self, home: &dyn BlockDevice) -> Result<()> {
        self.put(home, false)
    }

    fn put(&self, home: &dyn BlockDevice, new: bool) -> Result<()> {
        for row in &self.rows {
            self.data(row)?;
        }
        for last in [false, true] {
            for row in self.rows.iter().filter(|row| is_superblock(row.at) == last) {
                let (old, fresh) = self.data(row)?;
                home.write_at(ByteOffset(row.at), if new { &fresh } else { &old })?;
            }
            home.flush()?;
        }
        Ok(())
    }

    /// The old and the new bytes of a row, verified.
    fn data(&self, row: &Row) -> Result<(Vec<u8>, Vec<u8>)> {
        use std::os::unix::fs::FileExt;
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
        Err(error) if error == rustix::io::Errno::NOSPC => return Err(error.into()),
        _ => {}
    }
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&plan.device_len().to_le_bytes());
    header[24..32].copy_from_slice(&count.to_le_bytes());
    header[32..40].copy_from_slice(&data.to_le_bytes());
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
