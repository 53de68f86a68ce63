//! The types of partitions.

use crate::guid::Guid;
use std::fmt;

/// What a partition table says a partition is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionType {
    /// The type in a GPT.
    Gpt(Guid),
    /// The type in an MBR.
    Mbr(u8),
}

/// GPT types by the UEFI specification, the discoverable partitions specification and their
/// makers.
const GPT: &[(Guid, &str)] = &[
    (Guid::of(0xC12A7328, 0xF81F, 0x11D2, 0xBA4B_00A0_C93E_C93B), "EFI system"),
    (Guid::of(0x21686148, 0x6449, 0x6E6F, 0x744E_6565_6445_4649), "BIOS boot"),
    (Guid::of(0xBC13C2FF, 0x59E6, 0x4262, 0xA352_B275_FD6F_7172), "extended boot loader"),
    (Guid::of(0x0FC63DAF, 0x8483, 0x4772, 0x8E79_3D69_D847_7DE4), "Linux data"),
    (Guid::of(0x0657FD6D, 0xA4AB, 0x43C4, 0x84E5_0933_C84B_4F4F), "Linux swap"),
    (Guid::of(0x933AC7E1, 0x2EB4, 0x4F13, 0xB844_0E14_E2AE_F915), "Linux home"),
    (Guid::of(0x3B8F8425, 0x20E0, 0x4F3B, 0x907F_1A25_A76F_98E8), "Linux server data"),
    (Guid::of(0xE6D6D379, 0xF507, 0x44C2, 0xA23C_238F_2A3D_F928), "Linux LVM"),
    (Guid::of(0xA19D880F, 0x05FC, 0x4D3B, 0xA006_743F_0F84_911E), "Linux RAID"),
    (Guid::of(0xCA7D7CCB, 0x63ED, 0x4C53, 0x861C_1742_5360_59CC), "LUKS"),
    (Guid::of(0x4F68BCE3, 0xE8CD, 0x4DB1, 0x96E7_FBCA_F984_B709), "Linux root (x86-64)"),
    (Guid::of(0xB921B045, 0x1DF0, 0x41C3, 0xAF44_4C6F_280D_3FAE), "Linux root (arm64)"),
    (Guid::of(0x72EC70A6, 0xCF74, 0x40E6, 0xBD49_4BDA_08E8_F224), "Linux root (riscv64)"),
    (Guid::of(0x8484680C, 0x9521, 0x48C6, 0x9C11_B072_0656_F69E), "Linux /usr (x86-64)"),
    (Guid::of(0xB0E01050, 0xEE5F, 0x4390, 0x949A_9101_B171_04E9), "Linux /usr (arm64)"),
    (Guid::of(0x2C7357ED, 0xEBD2, 0x46D9, 0xAEC1_23D4_37EC_2BF5), "root verity (x86-64)"),
    (Guid::of(0xDF3300CE, 0xD69F, 0x4C92, 0x978C_9BFB_0F38_D820), "root verity (arm64)"),
    (Guid::of(0x77FF5F63, 0xE7B6, 0x4633, 0xACF4_1565_B864_C0E6), "/usr verity (x86-64)"),
    (Guid::of(0x6E11A4E7, 0xFBCA, 0x4DED, 0xB9E9_E1A5_12BB_664E), "/usr verity (arm64)"),
    (Guid::of(0xEBD0A0A2, 0xB9E5, 0x4433, 0x87C0_68B6_B726_99C7), "Microsoft basic data"),
    (Guid::of(0xE3C9E316, 0x0B5C, 0x4DB8, 0x817D_F92D_F002_15AE), "Microsoft reserved"),
    (Guid::of(0xDE94BBA4, 0x06D1, 0x4D40, 0xA16A_BFD5_0179_D6AC), "Windows recovery"),
    (Guid::of(0x7C3457EF, 0x0000, 0x11AA, 0xAA11_0030_6543_ECAC), "Apple APFS"),
    (Guid::of(0x48465300, 0x0000, 0x11AA, 0xAA11_0030_6543_ECAC), "Apple HFS+"),
];

/// MBR types.
const MBR: &[(u8, &str)] = &[
    (0x01, "FAT12"),
    (0x04, "FAT16"),
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0B, "FAT32"),
    (0x0C, "FAT32"),
    (0x0E, "FAT16"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x8E, "Linux LVM"),
    (0xA5, "FreeBSD"),
    (0xAF, "Apple HFS+"),
    (0xEF, "EFI system"),
    (0xFD, "Linux RAID"),
];

impl PartitionType {
    /// Its name in English; `None` for a type that is not known here.
    pub fn name(&self) -> Option<&'static str> {
        match self {
            PartitionType::Gpt(guid) => {
                GPT.iter().find(|(known, _)| known == guid).map(|row| row.1)
            }
            PartitionType::Mbr(byte) => {
                MBR.iter().find(|(known, _)| known == byte).map(|row| row.1)
            }
        }
    }
}

/// The type as tables have it: a GUID, or a byte in hexadecimal.
impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartitionType::Gpt(guid) => guid.fmt(f),
            PartitionType::Mbr(byte) => write!(f, "{byte:02x}"),
        }
    }
}
