//! A volume on several members, all recorded as one device.
//!
//! ```text
//!   ├──── member 0 ────┼──── member 1 ────┤   one log of device operations; each flushes alone:
//!       flush here ───►│ no effect here     a cut leaves each with other writes lost or torn
//! ```

use crate::external::{FlushPart, Part};
use extant::raid::{self, Assembled, Mirror, Opening, Wanted, assemble};
use extant::{BlockDevice, Error, MemoryDevice, Result};
use extant_base::ByteOffset;
use std::sync::Arc;

/// The sector of the member record, which differs between members.
const RECORD: std::ops::Range<usize> = 512..1024;

/// How a volume is distributed over its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// raid0: the number of members, and the bytes of a stripe.
    Striped(u64, u32),
    /// raid1: the number of members.
    Mirrored(u64),
}

impl Layout {
    fn wanted(self) -> Wanted {
        match self {
            Layout::Striped(_, stripe_bytes) => Wanted::Striped { stripe_bytes },
            Layout::Mirrored(_) => Wanted::Mirrored { alike: true },
        }
    }

    fn count(self) -> u64 {
        match self {
            Layout::Striped(count, _) | Layout::Mirrored(count) => count,
        }
    }

    /// Bytes of each member of a volume of `volume_bytes`.
    pub fn member_bytes(self, volume_bytes: u64) -> u64 {
        self.wanted().member_bytes(self.count() as usize, volume_bytes)
    }

    /// Bytes of all members.
    pub fn device_bytes(self, volume_bytes: u64) -> u64 {
        self.count() * self.member_bytes(volume_bytes)
    }

    fn members<D: FlushPart + 'static>(
        self,
        device: &Arc<D>,
        volume_bytes: u64,
    ) -> Vec<raid::Part> {
        let len = self.member_bytes(volume_bytes);
        let member = |n: u64| {
            let part = Part::new(Arc::clone(device), n * len, len);
            raid::Part::new(Arc::new(part), format!("member {n}"))
        };
        (0..self.count()).map(member).collect()
    }

    /// Makes the parts of `device` members.
    pub fn create(self, device: &Arc<MemoryDevice>, volume_bytes: u64) -> Result<()> {
        let members = self.members(device, volume_bytes);
        raid::create(&members, self.wanted(), *b"the layout's id.", volume_bytes)
    }

    /// The volume on `device`. Every member must be in use, because none failed.
    pub fn assemble<D: FlushPart + 'static>(
        self,
        device: &Arc<D>,
        volume_bytes: u64,
    ) -> Result<Assembled> {
        // One member after the other, so that the log of a run is the same each time.
        let opening = Opening { together: false, ..Opening::write() };
        let made = assemble(self.members(device, volume_bytes), opening)?;
        match &made {
            Assembled::Mirrored(mirror) if !mirror.left_out().is_empty() => {
                Err(Error::Member(Box::new(mirror.left_out()[0].clone())))
            }
            _ => Ok(made),
        }
    }

    /// Each mirror as it is on the device; empty for stripes.
    pub fn mirrors(self, device: &MemoryDevice, volume_bytes: u64) -> Result<Vec<MemoryDevice>> {
        let Layout::Mirrored(count) = self else { return Ok(Vec::new()) };
        let len = self.member_bytes(volume_bytes);
        let mirror = |n: u64| {
            let member = MemoryDevice::new(len);
            let mut piece = vec![0; 1 << 20];
            for at in (0..len).step_by(piece.len()) {
                let piece = &mut piece[..(len - at).min(1 << 20) as usize];
                device.read_at(ByteOffset(n * len + at), piece)?;
                member.write_at(ByteOffset(at), piece)?;
            }
            Ok(member)
        };
        (0..count).map(mirror).collect()
    }
}

/// Brings the members in line and compares every byte. `Err` names the first block that differs.
pub fn bring_in_line(mirror: &Mirror) -> std::result::Result<(), String> {
    mirror.resync(&mut |_, _| true).map_err(|e| format!("resync: {e}"))?;
    mirror.flush().map_err(|e| format!("flush behind the resync: {e}"))?;
    let found = mirror.compare(1024, 1, &mut |_, _| true).map_err(|e| format!("compare: {e}"))?;
    match found.ranges.first() {
        Some(block) => Err(format!("members differ in {:?} after a resync", block.range)),
        None => Ok(()),
    }
}

/// Whether members hold the same bytes except for their records, read without the layout.
pub fn same_but_records(members: &[MemoryDevice]) -> std::result::Result<(), String> {
    let Some((first, others)) = members.split_first() else { return Ok(()) };
    let (mut a, mut b) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    for (n, other) in (1..).zip(others) {
        for at in (0..first.len()).step_by(a.len()) {
            let len = (first.len() - at).min(1 << 16) as usize;
            let read = |device: &MemoryDevice, to: &mut [u8]| {
                device.read_at(ByteOffset(at), to).map_err(|e| e.to_string())
            };
            read(first, &mut a[..len])?;
            read(other, &mut b[..len])?;
            if at == 0 {
                a[RECORD].fill(0);
                b[RECORD].fill(0);
            }
            if let Some(byte) = (0..len).find(|byte| a[*byte] != b[*byte]) {
                return Err(format!("members 0 and {n} differ at byte {}", at + byte as u64));
            }
        }
    }
    Ok(())
}
