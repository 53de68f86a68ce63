//! Multiple mount protection (MMP): a block that keeps two hosts from using one volume at once.
//!
//! A host that uses the volume increments the sequence number at each interval. A second host reads
//! the block, waits, and reads it again: if the number has changed, the volume is in use.
//!
//! ```text
//!   000   004   008      010          050        070        072               3FC   400
//!   ┌─────┬─────┬────────┬────────────┬──────────┬──────────┬─────────────────┬─────┐
//!   │magic│ seq │ time   │ node name  │ device   │ interval │ zero            │csum │
//!   └─────┴─────┴────────┴────────────┴──────────┴──────────┴─────────────────┴─────┘
//!   seq: FF4D4D50 not in use, E24D4D50 a checker is running, 1 ..= E24D4D4F counter of the holder
//! ```
//!
//! Source: ext4 documentation, "Multiple Mount Protection".

use crate::checksum::Checksums;
use core::mem::{offset_of, size_of};
use extant_base::{Error, Site, What};
use extant_crc32c::crc32c;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `mmp_magic`, "PMM" and a zero.
pub const MMP_MAGIC: u32 = 0x004D_4D50;
/// The sequence number of a volume that is not in use.
pub const SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// The sequence number while a checker is running.
pub const SEQ_CHECKER: u32 = 0xE24D_4D50;
/// The highest sequence number that a holder counts to.
pub const SEQ_MAX: u32 = 0xE24D_4D4F;
/// The shortest check interval, seconds.
pub const CHECK_INTERVAL_MIN: u16 = 5;
/// The longest, seconds.
pub const CHECK_INTERVAL_MAX: u16 = 300;

/// The block's first 1024 bytes; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawMmp {
    /// 004D4D50.
    pub mmp_magic: U32,
    /// Clean, checker, or a counter.
    pub mmp_seq: U32,
    /// Time of the last update, seconds.
    pub mmp_time: U64,
    /// Name of the holder's host.
    pub mmp_nodename: [u8; 64],
    /// Name of the device there.
    pub mmp_bdevname: [u8; 32],
    /// Seconds between checks.
    pub mmp_check_interval: U16,
    /// Zero.
    pub mmp_pad1: U16,
    /// Zero.
    pub mmp_pad2: [U32; 226],
    /// CRC32C of all bytes before it.
    pub mmp_checksum: U32,
}

const _: () = assert!(
    size_of::<RawMmp>() == 1024
        && offset_of!(RawMmp, mmp_nodename) == 0x10
        && offset_of!(RawMmp, mmp_check_interval) == 0x70
        && offset_of!(RawMmp, mmp_checksum) == 0x3FC
);

/// The user of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmpState {
    /// No user.
    Clean,
    /// A checker, which does not update the block: the volume must not be used.
    Checker,
    /// A host, if this number still changes.
    Held(u32),
}

/// The decoded block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmp {
    /// The user of the volume.
    pub state: MmpState,
    /// The last update, seconds since 1970.
    pub time: u64,
    /// The holder's host, NUL-padded.
    pub nodename: [u8; 64],
    /// The device there, NUL-padded.
    pub bdevname: [u8; 32],
    /// Seconds between checks, as stored.
    pub check_interval: u16,
}

impl Mmp {
    /// Checks and decodes an MMP block.
    ///
    /// # Errors
    /// `MmpBlock` (too short, magic, sequence number), `MmpChecksum`.
    pub fn check(bytes: &[u8], checksums: &Checksums, at: Site) -> Result<Mmp, Error> {
        let Ok((raw, _)) = RawMmp::ref_from_prefix(bytes) else {
            return Err(at.corrupt(What::MmpBlock));
        };
        if raw.mmp_magic.get() != MMP_MAGIC {
            return Err(at.offset(0).corrupt(What::MmpBlock));
        }
        if let Some(seed) = checksums.seed()
            && raw.mmp_checksum.get() != raw.compute_checksum(seed)
        {
            return Err(at.offset(0x3FC).corrupt(What::MmpChecksum));
        }
        let state = match raw.mmp_seq.get() {
            SEQ_CLEAN => MmpState::Clean,
            SEQ_CHECKER => MmpState::Checker,
            seq if seq <= SEQ_MAX => MmpState::Held(seq),
            _ => return Err(at.offset(4).corrupt(What::MmpBlock)),
        };
        Ok(Mmp {
            state,
            time: raw.mmp_time.get(),
            nodename: raw.mmp_nodename,
            bdevname: raw.mmp_bdevname,
            check_interval: raw.mmp_check_interval.get(),
        })
    }

    /// Writes the fields and the checksum into the block; other bytes stay.
    ///
    /// # Panics
    /// If `bytes` is shorter than 1024.
    pub fn write(&self, bytes: &mut [u8], checksums: &Checksums) {
        let (raw, _) = RawMmp::mut_from_prefix(bytes).expect("a block has at least 1024 bytes");
        raw.mmp_magic = MMP_MAGIC.into();
        raw.mmp_seq = match self.state {
            MmpState::Clean => SEQ_CLEAN,
            MmpState::Checker => SEQ_CHECKER,
            MmpState::Held(seq) => seq.min(SEQ_MAX),
        }
        .into();
        raw.mmp_time = self.time.into();
        raw.mmp_nodename = self.nodename;
        raw.mmp_bdevname = self.bdevname;
        raw.mmp_check_interval = self.check_interval.into();
        if let Some(seed) = checksums.seed() {
            raw.mmp_checksum = raw.compute_checksum(seed).into();
        }
    }

    /// The sequence number after `seq`, in 1..=[`SEQ_MAX`].
    pub fn next_seq(seq: u32) -> u32 {
        if seq >= SEQ_MAX { 1 } else { seq + 1 }
    }

    /// How many seconds a host must wait, without a change of the sequence number, before it may
    /// take the volume: `min(2i + 1, i + 60)`. The interval i is the longer one of the block's and
    /// `update_interval`, the superblock's.
    pub fn wait_seconds(&self, update_interval: u16) -> u32 {
        let interval =
            self.check_interval.max(update_interval).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX);
        let interval = u32::from(interval);
        (2 * interval + 1).min(interval + 60)
    }
}

impl RawMmp {
    fn compute_checksum(&self, seed: u32) -> u32 {
        crc32c(seed, &self.as_bytes()[..offset_of!(RawMmp, mmp_checksum)])
    }
}

impl Default for RawMmp {
    fn default() -> Self {
        RawMmp::new_zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Checksums = Checksums::MetadataCsum { seed: 5 };

    #[test]
    fn a_written_block_reads_back_the_same() {
        for state in [MmpState::Clean, MmpState::Checker, MmpState::Held(7)] {
            let mmp = Mmp {
                state,
                time: 1 << 33,
                nodename: [b'n'; 64],
                bdevname: [b'd'; 32],
                check_interval: 10,
            };
            let mut bytes = [0x11; 4096];
            mmp.write(&mut bytes, &SEED);
            assert_eq!(Mmp::check(&bytes, &SEED, Site::NOWHERE).unwrap(), mmp);
            bytes[0x80] ^= 1;
            assert!(Mmp::check(&bytes, &SEED, Site::NOWHERE).is_err());
        }
    }

    #[test]
    fn the_wait_grows_with_the_interval_up_to_a_minute_more() {
        let mmp = |check_interval| Mmp {
            state: MmpState::Clean,
            time: 0,
            nodename: [0; 64],
            bdevname: [0; 32],
            check_interval,
        };
        assert_eq!(mmp(0).wait_seconds(0), 11);
        assert_eq!(mmp(10).wait_seconds(5), 21);
        assert_eq!(mmp(10).wait_seconds(100), 160);
        assert_eq!(mmp(u16::MAX).wait_seconds(0), 360);
        assert_eq!(Mmp::next_seq(SEQ_MAX), 1);
    }
}
