//! Member record: marks a device as a member of a mirrored or striped volume (extant's own format).
//!
//! ```text
//!   0        8    A  B     C      E      10     20          28        30        38      3C
//!   ┌────────┬────┬──┬─────┬──────┬──────┬──────┬───────────┬─────────┬─────────┬───────┬──────┐
//!   │extantMB│ 1  │kd│rlog2│index │count │ uuid │generation │ bytes   │ data at │stripe │flags │
//!   └────────┴────┴──┴─────┴──────┴──────┴──────┴───────────┴─────────┴─────────┴───────┴──────┘
//!   40      44      48        50                70      80                           1FC   200
//!   ┌───────┬───────┬─────────┬─────────────────┬───────┬────────────────────────────┬─────┐
//!   │active │prints │ rebuilt │ 8 fingerprints  │ zero  │ intent bits, 3040          │csum │
//!   └───────┴───────┴─────────┴─────────────────┴───────┴────────────────────────────┴─────┘
//! ```
//!
//! The record is the sector at byte 512 of each member, before the ext4 superblock, where a boot
//! loader would have its second sector. All numbers are little-endian; the checksum is CRC32C (seed
//! all ones) of the bytes before it. "prints" counts the fingerprints; "rlog2" is the base-2
//! logarithm of the region size. The format relies on devices that never tear a sector: after a
//! crash a member has either the old record or the new one.

use core::mem::{offset_of, size_of};
use extant_base::narrow::len_u32;
use extant_base::{Error, Feature, FeatureSet, Site, What};
use extant_crc32c::crc32c;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte offset of the record on a member.
pub const MEMBER_OFFSET: u64 = 512;
/// Bytes of the record.
pub const MEMBER_SIZE: usize = 512;
/// The first bytes of a record.
pub const MEMBER_MAGIC: [u8; 8] = *b"extantMB";
/// The version that this crate writes and reads.
pub const MEMBER_VERSION: u16 = 1;
/// The most members of a layout.
pub const MEMBERS_MAX: u16 = 32;
/// Bits of the intent bitmap.
pub const INTENT_BITS: usize = INTENT_BYTES * 8;
/// Fingerprints that a record can hold.
pub const PRINTS_MAX: usize = 8;
/// The first byte of the data of a striped member.
pub const STRIPED_DATA_OFFSET: u64 = 1 << 20;
/// Base-2 logarithm of the smallest region of the intent bitmap.
pub const REGION_LOG2_MIN: u8 = 16;

const INTENT_BYTES: usize = 380;
const KIND_STRIPED: u8 = 1;
const KIND_MIRRORED: u8 = 2;
const CONFIRMED: u32 = 1;
const REBUILDING: u32 = 2;

/// The record as stored; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of the format's description")]
pub struct RawMember {
    pub magic: [u8; 8],
    pub version: U16,
    pub kind: u8,
    pub region_log2: u8,
    pub index: U16,
    pub count: U16,
    pub uuid: [u8; 16],
    pub generation: U64,
    pub volume_bytes: U64,
    pub data_offset: U64,
    pub stripe_bytes: U32,
    pub flags: U32,
    pub active: U32,
    pub prints_count: U32,
    pub rebuilt_bytes: U64,
    pub prints: [U32; PRINTS_MAX],
    pub reserved: [u8; 16],
    pub intent: [u8; INTENT_BYTES],
    pub checksum: U32,
}

const _: () = assert!(
    size_of::<RawMember>() == MEMBER_SIZE
        && offset_of!(RawMember, generation) == 0x20
        && offset_of!(RawMember, active) == 0x40
        && offset_of!(RawMember, prints) == 0x50
        && offset_of!(RawMember, intent) == 0x80
        && offset_of!(RawMember, checksum) == 0x1FC
);

/// How the members' bytes form the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// raid0: the volume's stripes go to the members in turn.
    Striped {
        /// Bytes of a stripe on one member: a power of two, at least 4096.
        stripe_bytes: u32,
    },
    /// raid1: every member holds the whole volume.
    Mirrored {
        /// Base-2 logarithm of the size in bytes of a region: one bit of the intent bitmap.
        region_log2: u8,
    },
}

impl Kind {
    /// Byte offset of a member's data on its device.
    pub const fn data_offset(self) -> u64 {
        match self {
            Kind::Striped { .. } => STRIPED_DATA_OFFSET,
            Kind::Mirrored { .. } => 0,
        }
    }

    /// A mirror of `volume_bytes` bytes, with the smallest regions that the intent bitmap allows.
    pub const fn mirrored(volume_bytes: u64) -> Kind {
        let mut region_log2 = REGION_LOG2_MIN;
        while volume_bytes >> region_log2 >= INTENT_BITS as u64 {
            region_log2 += 1;
        }
        Kind::Mirrored { region_log2 }
    }
}

/// The intent bitmap: one bit for each region that writes may be in flight to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent([u8; INTENT_BYTES]);

impl Intent {
    /// The empty bitmap.
    pub const fn none() -> Intent {
        Intent([0; INTENT_BYTES])
    }

    /// Whether the bit of `region` is set.
    pub fn get(&self, region: usize) -> bool {
        self.0.get(region / 8).is_some_and(|byte| byte & (1 << (region % 8)) != 0)
    }

    /// Sets or clears the bit of `region`. A region past the end of the bitmap is ignored.
    pub fn set(&mut self, region: usize, value: bool) {
        if let Some(byte) = self.0.get_mut(region / 8) {
            let bit = 1 << (region % 8);
            *byte = if value { *byte | bit } else { *byte & !bit };
        }
    }

    /// Sets every bit that is set in `other`.
    pub fn add(&mut self, other: &Intent) {
        for (byte, other) in self.0.iter_mut().zip(other.0) {
            *byte |= other;
        }
    }

    /// How many bits are set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; INTENT_BYTES]
    }
}

/// The decoded record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// How the members form the volume.
    pub kind: Kind,
    /// The member's index, from 0.
    pub index: u16,
    /// Members of the volume, 1 to 32.
    pub count: u16,
    /// The UUID of the layout.
    pub uuid: [u8; 16],
    /// Increases whenever the set of active members changes, and before the first write after the
    /// volume is opened.
    pub generation: u64,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Whether all active members have this generation.
    pub confirmed: bool,
    /// Whether the member is being rebuilt: it holds only the first `rebuilt_bytes` bytes, and what
    /// has been written since the rebuild began.
    pub rebuilding: bool,
    /// See `rebuilding`.
    pub rebuilt_bytes: u64,
    /// The active members, which receive writes: bit i is member i.
    pub active: u32,
    /// Fingerprints that the first sector of the superblock may have; empty if not mirrored.
    pub prints: Prints,
    /// Regions that may differ between members.
    pub intent: Intent,
}

/// Up to [`PRINTS_MAX`] fingerprints of a superblock's first sector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prints {
    prints: [u32; PRINTS_MAX],
    count: usize,
}

impl Prints {
    /// A set of one fingerprint.
    pub fn one(print: u32) -> Prints {
        let mut prints = Prints::default();
        prints.add(print);
        prints
    }

    /// The fingerprints in the set.
    pub fn all(&self) -> &[u32] {
        &self.prints[..self.count]
    }

    /// Whether `print` is one of them.
    pub fn has(&self, print: u32) -> bool {
        self.all().contains(&print)
    }

    /// Adds a fingerprint. Returns `false` if the set is full.
    pub fn add(&mut self, print: u32) -> bool {
        if self.has(print) {
            return true;
        }
        match self.prints.get_mut(self.count) {
            Some(place) => {
                *place = print;
                self.count += 1;
                true
            }
            None => false,
        }
    }
}

/// The fingerprint of the first sector of a superblock.
pub fn print_of(sector: &[u8]) -> u32 {
    crc32c(!0, sector)
}

impl Member {
    /// Checks and decodes the sector at [`MEMBER_OFFSET`]; `None` if it does not hold a record.
    ///
    /// # Errors
    /// `MemberChecksum`; `MemberRecord` for values out of range; `Unsupported` for an unknown
    /// version.
    pub fn check(bytes: &[u8]) -> Result<Option<Member>, Error> {
        let wrong = |offset: usize| Site::NOWHERE.offset(offset).corrupt(What::MemberRecord);
        let Ok((raw, _)) = RawMember::ref_from_prefix(bytes) else { return Ok(None) };
        if raw.magic != MEMBER_MAGIC {
            return Ok(None);
        }
        if raw.checksum.get() != raw.compute_checksum() {
            return Err(Site::NOWHERE.offset(0x1FC).corrupt(What::MemberChecksum));
        }
        let version = raw.version.get();
        if version != MEMBER_VERSION {
            let bits = u32::from(version);
            let feature = Feature { set: FeatureSet::Option, bits, name: "member record version" };
            return Err(Error::Unsupported { feature });
        }
        let (index, count) = (raw.index.get(), raw.count.get());
        if count == 0 || count > MEMBERS_MAX || index >= count {
            return Err(wrong(offset_of!(RawMember, index)));
        }
        let stripe_bytes = raw.stripe_bytes.get();
        let kind = match raw.kind {
            KIND_STRIPED if stripe_bytes.is_power_of_two() && stripe_bytes >= 4096 => {
                Kind::Striped { stripe_bytes }
            }
            KIND_MIRRORED if (REGION_LOG2_MIN..64).contains(&raw.region_log2) => {
                Kind::Mirrored { region_log2: raw.region_log2 }
            }
            _ => return Err(wrong(offset_of!(RawMember, kind))),
        };
        let volume_bytes = raw.volume_bytes.get();
        let too_many = match kind {
            Kind::Mirrored { region_log2 } => volume_bytes >> region_log2 >= INTENT_BITS as u64,
            Kind::Striped { .. } => false,
        };
        if volume_bytes > i64::MAX as u64 || too_many {
            return Err(wrong(offset_of!(RawMember, volume_bytes)));
        }
        if raw.data_offset.get() != kind.data_offset() {
            return Err(wrong(offset_of!(RawMember, data_offset)));
        }
        let active = raw.active.get();
        let all = u32::MAX >> (32 - u32::from(count));
        if active & !all != 0 || active & (1 << index) == 0 {
            return Err(wrong(offset_of!(RawMember, active)));
        }
        let flags = raw.flags.get();
        if flags & !(CONFIRMED | REBUILDING) != 0 {
            return Err(wrong(offset_of!(RawMember, flags)));
        }
        let rebuilt_bytes = raw.rebuilt_bytes.get();
        if rebuilt_bytes > volume_bytes {
            return Err(wrong(offset_of!(RawMember, rebuilt_bytes)));
        }
        let mut prints = Prints::default();
        let stored = raw.prints.get(..raw.prints_count.get() as usize);
        for print in stored.ok_or_else(|| wrong(offset_of!(RawMember, prints_count)))? {
            prints.add(print.get());
        }
        Ok(Some(Member {
            kind,
            index,
            count,
            uuid: raw.uuid,
            generation: raw.generation.get(),
            volume_bytes,
            confirmed: flags & CONFIRMED != 0,
            rebuilding: flags & REBUILDING != 0,
            rebuilt_bytes,
            active,
            prints,
            intent: Intent(raw.intent),
        }))
    }

    /// The sector to write.
    pub fn to_bytes(&self) -> [u8; MEMBER_SIZE] {
        let mut raw = RawMember::new_zeroed();
        raw.magic = MEMBER_MAGIC;
        raw.version = MEMBER_VERSION.into();
        match self.kind {
            Kind::Striped { stripe_bytes } => {
                raw.kind = KIND_STRIPED;
                raw.stripe_bytes = stripe_bytes.into();
            }
            Kind::Mirrored { region_log2 } => {
                raw.kind = KIND_MIRRORED;
                raw.region_log2 = region_log2;
            }
        }
        raw.index = self.index.into();
        raw.count = self.count.into();
        raw.uuid = self.uuid;
        raw.generation = self.generation.into();
        raw.volume_bytes = self.volume_bytes.into();
        raw.data_offset = self.kind.data_offset().into();
        let flag = |is: bool, bit: u32| if is { bit } else { 0 };
        raw.flags = (flag(self.confirmed, CONFIRMED) | flag(self.rebuilding, REBUILDING)).into();
        raw.active = self.active.into();
        raw.rebuilt_bytes = self.rebuilt_bytes.into();
        raw.prints_count = len_u32(self.prints.count).into();
        raw.prints = self.prints.prints.map(U32::new);
        raw.intent = self.intent.0;
        raw.checksum = raw.compute_checksum().into();
        let mut bytes = [0; MEMBER_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The fewest bytes that a device must have to be this member.
    pub fn needed_bytes(&self) -> u64 {
        match self.kind {
            Kind::Mirrored { .. } => self.volume_bytes,
            Kind::Striped { stripe_bytes } => {
                let row = u64::from(stripe_bytes) * u64::from(self.count);
                let rows = self.volume_bytes.div_ceil(row);
                rows.saturating_mul(stripe_bytes.into()).saturating_add(STRIPED_DATA_OFFSET)
            }
        }
    }
}

impl RawMember {
    fn compute_checksum(&self) -> u32 {
        crc32c(!0, &self.as_bytes()[..offset_of!(RawMember, checksum)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member() -> Member {
        let mut intent = Intent::none();
        intent.set(0, true);
        intent.set(INTENT_BITS - 1, true);
        intent.set(INTENT_BITS, true);
        Member {
            kind: Kind::mirrored(1 << 30),
            index: 1,
            count: 3,
            uuid: *b"0123456789abcdef",
            generation: 7 << 40,
            volume_bytes: 1 << 30,
            confirmed: true,
            rebuilding: true,
            rebuilt_bytes: 1 << 20,
            active: 0b110,
            prints: Prints::one(77),
            intent,
        }
    }

    fn patched(offset: usize, bytes: &[u8]) -> Result<Option<Member>, Error> {
        let mut raw = member().to_bytes();
        raw[offset..offset + bytes.len()].copy_from_slice(bytes);
        let sum = crc32c(!0, &raw[..508]);
        raw[508..].copy_from_slice(&sum.to_le_bytes());
        Member::check(&raw)
    }

    #[test]
    fn a_record_reads_back_the_same() {
        let member = member();
        assert_eq!(member.intent.count(), 2);
        assert_eq!(Member::check(&member.to_bytes()).unwrap().unwrap(), member);
        let striped = Member { kind: Kind::Striped { stripe_bytes: 65536 }, ..member };
        assert_eq!(Member::check(&striped.to_bytes()).unwrap().unwrap(), striped);
        assert_eq!(striped.needed_bytes(), (1 << 20) + 65536 * 5462);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let good = member().to_bytes();
        for bit in 0..MEMBER_SIZE * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Member::check(&bytes), Ok(Some(_))), "bit {bit}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_even_if_the_checksum_is_right() {
        let table: &[(usize, &[u8])] = &[
            (0x08, &[2, 0]),
            (0x0A, &[0]),
            (0x0A, &[3]),
            (0x0A, &[1]),
            (0x0B, &[15]),
            (0x0B, &[64]),
            (0x0C, &[3, 0]),
            (0x0E, &[0, 0]),
            (0x0E, &[33, 0]),
            (0x28, &[0xFF; 8]),
            (0x28, &[0, 0, 0, 0, 0, 1, 0, 0]),
            (0x30, &[1]),
            (0x3C, &[7]),
            (0x40, &[0xFF]),
            (0x40, &[0b101]),
            (0x44, &[9]),
            (0x48, &[0xFF; 8]),
        ];
        for (offset, bytes) in table {
            assert!(patched(*offset, bytes).is_err(), "{bytes:?} at {offset:#x}");
        }
        assert!(patched(0, b"nothing!").unwrap().is_none());
        assert!(Member::check(&[0; 100]).unwrap().is_none());
    }

    #[test]
    fn regions_are_as_small_as_the_bitmap_allows() {
        for bytes in [0, 1, 1 << 20, 198 << 20, 199 << 20, 10 << 30, 1 << 50, i64::MAX as u64] {
            let Kind::Mirrored { region_log2 } = Kind::mirrored(bytes) else { unreachable!() };
            let regions = |log2: u8| bytes.div_ceil(1 << log2);
            assert!(regions(region_log2) <= INTENT_BITS as u64, "{bytes}");
            assert!(
                region_log2 == REGION_LOG2_MIN || regions(region_log2 - 1) >= INTENT_BITS as u64
            );
        }
    }
}
