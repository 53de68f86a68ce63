//! The protection block on its device, and the steps by which this host takes it.
//!
//! ```text
//!   Claim::read ──► take ──► beat, beat, … ──► release
//!                    │         └ another host's number: lost
//!                    └ another host's heartbeat: Held
//! ```

use crate::context::environment::Environment;
use extant_base::{ByteOffset, Error, Holder, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::mmp::{CHECK_INTERVAL_MAX, CHECK_INTERVAL_MIN, Mmp, MmpState, SEQ_MAX};
use extant_ondisk::superblock::Superblock;
use std::sync::Arc;
use std::time::Duration;

/// Seconds between heartbeats if the superblock gives no interval.
const UPDATE_INTERVAL: u16 = 5;

/// The block's location and what this host writes into it.
pub(super) struct Claim {
    device: Arc<dyn BlockDevice>,
    at: ByteOffset,
    block_bytes: usize,
    site: Site,
    checksums: Checksums,
    /// Seconds between heartbeats.
    pub(super) update_interval: u16,
    environment: Environment,
    /// The content that this host wrote last; before [`Claim::take`], without a number.
    written: Mmp,
}

impl Claim {
    /// The claim on the block that `superblock` names, for a host `node` that knows the volume as
    /// `name`.
    ///
    /// Errors: `MmpBlock` when that is no block of the volume.
    pub(super) fn new(
        device: Arc<dyn BlockDevice>,
        superblock: &Superblock,
        (node, name): (&[u8], &[u8]),
        environment: Environment,
    ) -> Result<Claim> {
        let block = superblock.mmp_block;
        let site = Site::of_block(block);
        let inside = block.0 > u64::from(superblock.first_data_block)
            && block.0 < superblock.blocks_count
            && superblock.block_size.start_of(block).0 < device.len();
        if !inside {
            return Err(site.corrupt(What::MmpBlock));
        }
        let update_interval = match superblock.mmp_update_interval {
            0 => UPDATE_INTERVAL,
            seconds => seconds.min(CHECK_INTERVAL_MAX),
        };
        Ok(Claim {
            device,
            at: superblock.block_size.start_of(block),
            block_bytes: superblock.block_size.bytes(),
            site,
            checksums: superblock.checksums(),
            update_interval,
            environment,
            written: Mmp {
                state: MmpState::Clean,
                time: 0,
                nodename: padded(node),
                bdevname: padded(name),
                check_interval: (2 * update_interval).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX),
            },
        })
    }

    /// Takes the block for this host. Waits with `pause` if another host may be using the volume.
    ///
    /// Errors: `Held`, naming the holder; `MmpBlock`, `MmpChecksum`; `Device`.
    pub(super) fn take(&mut self, pause: &mut dyn FnMut(Duration)) -> Result<()> {
        let found = self.read()?;
        let wait = match found.state {
            MmpState::Clean => 0,
            MmpState::Checker => return Err(held(&found)),
            MmpState::Held(_) => found.wait_seconds(self.update_interval),
        };
        self.wait_still(&found, wait, pause)?;
        let seq = 1 + self.environment.next_u32() % SEQ_MAX;
        self.write(MmpState::Held(seq))?;
        let written = self.written;
        self.wait_still(&written, wait, pause)
    }

    /// Waits `seconds` seconds. Checks every second, and once more at the end, that the block still
    /// contains `said`.
    fn wait_still(&self, said: &Mmp, seconds: u32, pause: &mut dyn FnMut(Duration)) -> Result<()> {
        for second in 0..=seconds {
            let now = self.read()?;
            if (now.state, now.nodename) != (said.state, said.nodename) {
                return Err(held(&now));
            }
            if second < seconds {
                pause(Duration::from_secs(1));
            }
        }
        Ok(())
    }

    /// Increments our number. `false`: the number in the block is not ours, and nothing was
    /// written.
    pub(super) fn beat(&mut self) -> Result<bool> {
        let MmpState::Held(seq) = self.written.state else { return Ok(false) };
        let next = MmpState::Held(Mmp::next_seq(seq));
        if !self.is_held_here()? {
            return Ok(false);
        }
        self.write(next)?;
        Ok(true)
    }

    /// Marks the block clean, if it is still ours.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.is_held_here()? { self.write(MmpState::Clean) } else { Ok(()) }
    }

    /// Marks the block clean whatever it contains, even if it is damaged.
    pub(super) fn clear(&mut self) -> Result<()> {
        let mut bytes = vec![0; self.block_bytes];
        Mmp { state: MmpState::Clean, ..self.written }.write(&mut bytes, &self.checksums);
        self.device.write_fua(self.at, &bytes)
    }

    /// Whether the block contains the number that this host wrote last or tried to write last: a
    /// failed write may have reached the device.
    fn is_held_here(&self) -> Result<bool> {
        let MmpState::Held(seq) = self.written.state else { return Ok(false) };
        let found = self.read()?;
        let held_states = [MmpState::Held(seq), MmpState::Held(Mmp::next_seq(seq))];
        Ok(held_states.contains(&found.state) && found.nodename == self.written.nodename)
    }

    fn read(&self) -> Result<Mmp> {
        let mut bytes = vec![0; self.block_bytes];
        self.device.read_fresh_at(self.at, &mut bytes)?;
        Mmp::check(&bytes, &self.checksums, self.site)
    }

    fn write(&mut self, state: MmpState) -> Result<()> {
        let time = u64::try_from(self.environment.now().sec).unwrap_or(0);
        let mmp = Mmp { state, time, ..self.written };
        let mut bytes = vec![0; self.block_bytes];
        self.device.read_fresh_at(self.at, &mut bytes)?;
        mmp.write(&mut bytes, &self.checksums);
        self.device.write_fua(self.at, &bytes)?;
        self.written = mmp;
        Ok(())
    }
}

/// The error for a host that finds the volume held.
fn held(by: &Mmp) -> Error {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        // The text comes from the disk and goes to a terminal.
        String::from_utf8_lossy(&bytes[..end]).chars().filter(|c| !c.is_control()).collect()
    };
    let (node, device) = (text(&by.nodename), text(&by.bdevname));
    let is_checker = by.state == MmpState::Checker;
    Error::Held { holder: Box::new(Holder { node, device, seen: by.time, is_checker }) }
}

/// As much of `name` as fits, followed by a zero.
fn padded<const N: usize>(name: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    let len = name.len().min(N - 1);
    field[..len].copy_from_slice(&name[..len]);
    field
}
