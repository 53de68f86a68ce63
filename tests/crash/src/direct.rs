//! Direct writes of a workload: past the page cache, one after the other or through a queue.
//!
//! ```text
//!   direct-write /f 4096 70000     File::write_direct_at
//!   direct-sync  /f 4096 70000     the same with O_DSYNC: durable when it returns
//!   direct-queue /f 4096 70000     in pieces, all submitted before the first wait
//! ```
//! The parts of a range that are no multiple of the device's unit go through the cache, as for
//! programs.

use crate::op::Op;
use extant::direct::{AlignedBuf, Bounce, DirectOptions, OwnedMemory};
use extant::{Error, File, Filesystem, Result};
use extant_testkit::rng::Rng;

/// How the bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectHow {
    /// By one call.
    Blocking,
    /// By one call, durable when it returns.
    Synced,
    /// In pieces, through a queue.
    Queued,
}

impl DirectHow {
    /// All of them, with their words in a workload.
    pub const ALL: [(DirectHow, &str); 3] = [
        (DirectHow::Blocking, "direct-write"),
        (DirectHow::Synced, "direct-sync"),
        (DirectHow::Queued, "direct-queue"),
    ];

    /// Its word in a workload.
    pub fn word(self) -> &'static str {
        let found = DirectHow::ALL.iter().find(|(how, _)| *how == self);
        found.expect("the table holds every way").1
    }
}

/// Transfers that a queue has in flight.
const DEPTH: usize = 4;
/// Most random direct writes are multiples of this.
const UNIT: u64 = 4096;

/// Writes all of `bytes`; `n` is the number of the operation.
pub fn write(
    fs: &Filesystem,
    file: &File,
    n: usize,
    how: DirectHow,
    at: u64,
    bytes: &[u8],
) -> Result<()> {
    let bounce = [Bounce::Auto, Bounce::Always, Bounce::Checksummed, Bounce::Never][n % 4];
    let options = DirectOptions { bounce, sync: how == DirectHow::Synced, no_wait: false };
    if how != DirectHow::Queued {
        return write_all(file, at, bytes, &options);
    }
    // Pieces meet between blocks; otherwise one sector would be written in two steps.
    let piece = (bytes.len() as u64).div_ceil(DEPTH as u64).next_multiple_of(UNIT);
    let end = at + bytes.len() as u64;
    let mut queue = fs.direct_queue(DEPTH);
    let mut from = at;
    while from < end {
        let to = end.min((from / UNIT * UNIT) + piece);
        let part = &bytes[(from - at) as usize..(to - at) as usize];
        let mut memory = AlignedBuf::zeroed(part.len());
        memory.copy_from_slice(part);
        queue.write(from, file, OwnedMemory::new(memory), from, &options);
        from = to;
    }
    let mut result = Ok(());
    while let Some(done) = queue.wait() {
        let from = done.tag;
        let to = end.min((from / UNIT * UNIT) + piece);
        let part = &bytes[(from - at) as usize..(to - at) as usize];
        let rest = done.result.and_then(|n| write_all(file, from + n as u64, &part[n..], &options));
        result = result.and(rest);
    }
    result
}

fn write_all(file: &File, at: u64, bytes: &[u8], options: &DirectOptions) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_direct_at(&bytes[done..], at + done as u64, options)? {
            0 => return Err(Error::NoSpace),
            n => done += n,
        }
    }
    Ok(())
}

/// A direct write near this place: nearly always of whole blocks.
pub fn draw(rng: &mut Rng, path: String, (mut at, mut len): (u64, u64)) -> Op {
    if rng.below(8) > 0 {
        (at, len) = (at / UNIT * UNIT, len.next_multiple_of(UNIT));
    }
    let how = DirectHow::ALL[rng.below(DirectHow::ALL.len())].0;
    Op::DirectWrite { path, at, len, how }
}
