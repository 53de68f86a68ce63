//! Which checksums a volume uses for its metadata, and their seeds.
//!
//! ```text
//!   csum_seed = field 270 (metadata_csum_seed)  or  crc32c(~0, uuid[16])
//!       │
//!       ├─ ino ─ generation ──► inode seed ──► inode, extent nodes, directory and orphan blocks
//!       ├─ group ─────────────► descriptor (low 16 bits)
//!       └─────────────────────► bitmaps, attribute blocks, MMP
//! ```
//!
//! All of these are CRC32C (Castagnoli, reflected) of the raw register: without the usual inversion
//! at the end.

use crate::features::{Features, Incompat, RoCompat};
use extant_base::Ino;
use extant_base::narrow::len_u16;
use extant_crc32c::crc32c;

/// How a volume checks its metadata. Code that reads or writes a structure takes a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// No checksums at all.
    None,
    /// Only group descriptors, with CRC16 over the UUID (`uninit_bg`).
    GdtCsum {
        /// `s_uuid`, always the UUID itself.
        uuid: [u8; 16],
    },
    /// Every structure, with CRC32C (`metadata_csum`).
    MetadataCsum {
        /// The filesystem seed.
        seed: u32,
    },
}

impl Checksums {
    /// The checksums that `features` select. If both `metadata_csum` and `uninit_bg` are set,
    /// `metadata_csum` applies.
    pub fn of(features: &Features, uuid: &[u8; 16], checksum_seed: u32) -> Checksums {
        if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
            Checksums::MetadataCsum { seed: filesystem_seed(features, uuid, checksum_seed) }
        } else if features.ro_compat.contains(RoCompat::GDT_CSUM) {
            Checksums::GdtCsum { uuid: *uuid }
        } else {
            Checksums::None
        }
    }

    /// The filesystem seed where every structure carries a CRC32C, else `None`.
    pub const fn seed(&self) -> Option<u32> {
        match self {
            Checksums::MetadataCsum { seed } => Some(*seed),
            _ => None,
        }
    }

    /// The seed of an inode and of all blocks that belong to it, or `None` without
    /// `metadata_csum`. Changing the generation changes the seed.
    pub fn inode_seed(&self, ino: Ino, generation: u32) -> Option<u32> {
        self.seed().map(|seed| inode_seed(seed, ino, generation))
    }

    /// Whether the UNINIT flags of group descriptors are valid.
    pub const fn groups_may_be_uninit(&self) -> bool {
        !matches!(self, Checksums::None)
    }
}

/// The filesystem seed, whether or not `metadata_csum` is on: `ea_inode` needs it too.
pub fn filesystem_seed(features: &Features, uuid: &[u8; 16], checksum_seed: u32) -> u32 {
    if features.incompat.contains(Incompat::CSUM_SEED) { checksum_seed } else { crc32c(!0, uuid) }
}

/// The seed of an inode: the filesystem seed with its number and generation mixed in.
pub fn inode_seed(seed: u32, ino: Ino, generation: u32) -> u32 {
    let both = u64::from(generation) << 32 | u64::from(ino.get());
    crc32c(seed, &both.to_le_bytes())
}

/// Continues a CRC16 (polynomial A001, reflected) from `crc` over `bytes`, as `uninit_bg`
/// descriptors use it.
pub fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| {
        let index = (crc ^ u16::from(*byte)) & 0xFF;
        (crc >> 8) ^ CRC16_TABLE[usize::from(index)]
    })
}

const CRC16_TABLE: [u16; 256] = {
    let mut table = [0u16; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = len_u16(n);
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { (crc >> 1) ^ 0xA001 } else { crc >> 1 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc16_has_the_published_check_value() {
        // CRC-16/MODBUS of "123456789", the same polynomial and start value.
        assert_eq!(crc16(0xFFFF, b"123456789"), 0x4B37);
    }

    #[test]
    fn metadata_csum_wins_over_uninit_bg() {
        let features = Features {
            ro_compat: RoCompat::METADATA_CSUM | RoCompat::GDT_CSUM,
            incompat: Incompat::CSUM_SEED,
            ..Features::default()
        };
        let checksums = Checksums::of(&features, &[7; 16], 0x1234);
        assert_eq!(checksums, Checksums::MetadataCsum { seed: 0x1234 });
    }
}
