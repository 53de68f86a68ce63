//! Creation of layouts.

use crate::part::{Part, refusal};
use extant_base::{ByteOffset, Error, MemberProblem, Result};
use extant_ondisk::member::{
    Intent, Kind, MEMBER_OFFSET, MEMBERS_MAX, Member, Prints, STRIPED_DATA_OFFSET, print_of,
};

/// The kind of a new layout.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    /// raid0 with stripes of `stripe_bytes`, a power of two of at least 4096.
    Striped {
        /// Bytes of one stripe on one member.
        stripe_bytes: u32,
    },
    /// raid1.
    Mirrored {
        /// All members hold the same bytes already, as new files do. Otherwise the next opening for
        /// writing starts to copy the first member to the others.
        alike: bool,
    },
}

impl Wanted {
    /// Volume size in bytes that `members` of `member_bytes` each provide.
    pub fn volume_bytes(self, members: usize, member_bytes: u64) -> u64 {
        match self {
            Wanted::Mirrored { .. } => member_bytes,
            Wanted::Striped { stripe_bytes } => {
                let stripes =
                    member_bytes.saturating_sub(STRIPED_DATA_OFFSET) / u64::from(stripe_bytes);
                stripes.saturating_mul(u64::from(stripe_bytes)).saturating_mul(members as u64)
            }
        }
    }

    /// Bytes that each member needs for a volume of `volume_bytes`.
    pub fn member_bytes(self, members: usize, volume_bytes: u64) -> u64 {
        match self {
            Wanted::Mirrored { .. } => volume_bytes,
            Wanted::Striped { stripe_bytes } => {
                let row = u64::from(stripe_bytes).saturating_mul(members as u64).max(1);
                let stripes = volume_bytes.div_ceil(row);
                stripes.saturating_mul(stripe_bytes.into()).saturating_add(STRIPED_DATA_OFFSET)
            }
        }
    }
}

/// Writes records durably that make `parts`, in this order, the members of a new layout of
/// `volume_bytes`. The other bytes of the parts do not change.
///
/// # Errors
/// `Invalid` for an unsupported number of members or stripe size; `Member` for a device that is too
/// short; `Device`.
pub fn create(parts: &[Part], wanted: Wanted, uuid: [u8; 16], volume_bytes: u64) -> Result<()> {
    let count = u16::try_from(parts.len()).ok().filter(|count| (2..=MEMBERS_MAX).contains(count));
    let count = count.ok_or(Error::Invalid("a layout has 2 to 32 members"))?;
    let mut intent = Intent::none();
    let kind = match wanted {
        Wanted::Striped { stripe_bytes } => {
            if !stripe_bytes.is_power_of_two() || stripe_bytes < 4096 {
                return Err(Error::Invalid("a stripe is a power of two from 4096 bytes on"));
            }
            Kind::Striped { stripe_bytes }
        }
        Wanted::Mirrored { alike } => {
            let kind = Kind::mirrored(volume_bytes);
            if let (false, Kind::Mirrored { region_log2 }) = (alike, kind) {
                let regions = volume_bytes.div_ceil(1 << region_log2);
                (0..regions as usize).for_each(|region| intent.set(region, true));
            }
            kind
        }
    };
    let mut records = Vec::with_capacity(parts.len());
    for (index, part) in (0..count).zip(parts) {
        let mut sector = [0; 512];
        if matches!(kind, Kind::Mirrored { .. }) && part.device.len() >= 1536 {
            part.device.read_at(ByteOffset(1024), &mut sector)?;
        }
        let record = Member {
            kind,
            index,
            count,
            uuid,
            generation: 1,
            volume_bytes,
            confirmed: true,
            rebuilding: false,
            rebuilt_bytes: 0,
            active: u32::MAX >> (32 - u32::from(count)),
            prints: Prints::one(print_of(&sector)),
            intent: intent.clone(),
        };
        let needed = record.needed_bytes().max(4096);
        if part.device.len() < needed {
            return Err(refusal(&part.name, MemberProblem::TooShort { needed }));
        }
        records.push(record);
    }
    for (part, record) in parts.iter().zip(&records) {
        part.device.write_fua(ByteOffset(MEMBER_OFFSET), &record.to_bytes())?;
    }
    Ok(())
}
