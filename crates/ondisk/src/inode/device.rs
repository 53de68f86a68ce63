//! Device numbers in `i_block`.
//!
//! ```text
//!   old  word 0:  major << 8 | minor                                    both below 256
//!   new  word 0:  0    word 1:  minor & FF | major << 8 | (minor & ~FF) << 12
//! ```

use super::I_BLOCK_SIZE;

/// A device number as Linux splits it: 12 bits of major, 20 bits of minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Driver, 0..=4095.
    pub major: u32,
    /// Device of that driver, 0..=1048575.
    pub minor: u32,
}

impl DeviceNumber {
    /// Reads the number from `i_block`. The old form is in the first word; the new one is in the
    /// second, and the first is zero.
    pub fn decode(i_block: &[u8; I_BLOCK_SIZE]) -> DeviceNumber {
        let word = |n: usize| {
            let bytes = [i_block[n], i_block[n + 1], i_block[n + 2], i_block[n + 3]];
            u32::from_le_bytes(bytes)
        };
        match word(0) {
            0 => {
                let new = word(4);
                DeviceNumber {
                    major: (new >> 8) & 0xFFF,
                    minor: new & 0xFF | (new >> 12) & 0xFFF00,
                }
            }
            old => DeviceNumber { major: (old >> 8) & 0xFF, minor: old & 0xFF },
        }
    }

    /// The `i_block` of a device, or `None` if the number does not fit.
    pub fn encode(self) -> Option<[u8; I_BLOCK_SIZE]> {
        if self.major > 0xFFF || self.minor > 0xF_FFFF {
            return None;
        }
        let mut i_block = [0; I_BLOCK_SIZE];
        if self.major < 256 && self.minor < 256 {
            i_block[..4].copy_from_slice(&(self.major << 8 | self.minor).to_le_bytes());
        } else {
            let new = self.minor & 0xFF | self.major << 8 | (self.minor & !0xFF) << 12;
            i_block[4..8].copy_from_slice(&new.to_le_bytes());
        }
        Some(i_block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_take_the_old_form_where_they_fit() {
        let table = [
            (1, 3, 0x0103, 0),
            (259, 70000, 0, 0x1111_0370),
            (300, 5, 0, 0x0001_2C05),
            (255, 255, 0xFFFF, 0),
            (4095, 0xF_FFFF, 0, 0xFFFF_FFFF),
        ];
        for (major, minor, first, second) in table {
            let device = DeviceNumber { major, minor };
            let i_block = device.encode().unwrap();
            assert_eq!(i_block[..4], u32::to_le_bytes(first));
            assert_eq!(i_block[4..8], u32::to_le_bytes(second));
            assert_eq!(DeviceNumber::decode(&i_block), device);
        }
        assert_eq!(DeviceNumber { major: 4096, minor: 0 }.encode(), None);
        assert_eq!(DeviceNumber { major: 0, minor: 1 << 20 }.encode(), None);
    }
}
