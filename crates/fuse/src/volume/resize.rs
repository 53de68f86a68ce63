//! The request to make a mounted volume larger, by `ioctl` on any file or directory of the mount.
//!
//! ```text
//!   EXT4_IOC_RESIZE_FS   'f' 16      8 bytes      blocks; what resize2fs calls
//!   RESIZE               0xEF 0x53   256 bytes    extant's own, with sizes and a message
//!
//!     request   0 kind  4 zero   8 value                            little-endian
//!     answer    0 errno 4 flags  8 from blocks  16 to blocks  24 block bytes  32 message, NUL
//! ```

use extant::Error;
use extant::resize::{Resized, Size};

/// The number of extant's own `ioctl`: 256 bytes in both directions.
pub const RESIZE: u32 = 3 << 30 | 256 << 16 | 0xEF53;
/// Bytes of a request and of its answer.
pub const RESIZE_BYTES: usize = 256;
/// Where the message starts in an answer.
const MESSAGE: usize = 32;

/// The size that a mounted volume is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This many bytes.
    Bytes(u64),
    /// This many bytes more than now.
    More(u64),
    /// As large as its file or block device is now.
    Device,
}

impl NewSize {
    /// The request as the kernel carries it.
    pub fn to_bytes(self) -> [u8; RESIZE_BYTES] {
        let (kind, value) = match self {
            NewSize::Bytes(bytes) => (0u32, bytes),
            NewSize::More(bytes) => (1, bytes),
            NewSize::Device => (2, 0),
        };
        let mut bytes = [0; RESIZE_BYTES];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&value.to_le_bytes());
        bytes
    }

    /// The request in `bytes`, or `None` if it is not one.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<NewSize> {
        let value = number(bytes, 8)?;
        match word(bytes, 0)? {
            0 => Some(NewSize::Bytes(value)),
            1 => Some(NewSize::More(value)),
            2 => Some(NewSize::Device),
            _ => None,
        }
    }

    /// The size for a volume that has `now` bytes.
    pub(super) fn of(self, now: u64) -> Size {
        match self {
            NewSize::Bytes(bytes) => Size::Bytes(bytes),
            NewSize::More(bytes) => Size::Bytes(now.saturating_add(bytes)),
            NewSize::Device => Size::Device,
        }
    }
}

/// The answer of the mount's server to [`RESIZE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeAnswer {
    /// The volume has its new size.
    Done {
        /// Blocks before.
        from_blocks: u64,
        /// Blocks now.
        to_blocks: u64,
        /// Bytes of a block.
        block_bytes: u64,
        /// The volume changed to `meta_bg`.
        now_meta_bg: bool,
    },
    /// The volume has not its new size. It may have a part of it: a growth has several steps.
    Refused {
        /// The errno.
        errno: i32,
        /// Why, for people, and how large the volume is now if it has grown.
        message: String,
    },
}

impl ResizeAnswer {
    /// The answer for a result. After an error, `grown_to` is the size of the volume in blocks if
    /// that is more than before.
    pub(super) fn of(done: &extant::Result<Resized>, grown_to: Option<u64>) -> ResizeAnswer {
        match done {
            Ok(done) => ResizeAnswer::Done {
                from_blocks: done.from_blocks,
                to_blocks: done.to_blocks,
                block_bytes: done.block_bytes as u64,
                now_meta_bg: done.now_meta_bg,
            },
            Err(error) => {
                let mut message = match error {
                    Error::Invalid(why) | Error::NotSupported(why) => (*why).into(),
                    Error::Busy => "another program resizes it".into(),
                    error => error.to_string(),
                };
                if let Some(blocks) = grown_to {
                    message = format!("the volume has grown to {blocks} blocks only: {message}");
                }
                ResizeAnswer::Refused { errno: error.errno(), message }
            }
        }
    }

    pub(super) fn to_bytes(&self) -> [u8; RESIZE_BYTES] {
        let mut bytes = [0; RESIZE_BYTES];
        match self {
            ResizeAnswer::Done { from_blocks, to_blocks, block_bytes, now_meta_bg } => {
                bytes[4..8].copy_from_slice(&u32::from(*now_meta_bg).to_le_bytes());
                bytes[8..16].copy_from_slice(&from_blocks.to_le_bytes());
                bytes[16..24].copy_from_slice(&to_blocks.to_le_bytes());
                bytes[24..32].copy_from_slice(&block_bytes.to_le_bytes());
            }
            ResizeAnswer::Refused { errno, message } => {
                bytes[..4].copy_from_slice(&errno.to_le_bytes());
                // The last byte stays NUL.
                let len = message.len().min(RESIZE_BYTES - MESSAGE - 1);
                bytes[MESSAGE..MESSAGE + len].copy_from_slice(&message.as_bytes()[..len]);
            }
        }
        bytes
    }

    /// The answer in `bytes`, which the kernel filled.
    pub fn from_bytes(bytes: &[u8; RESIZE_BYTES]) -> ResizeAnswer {
        let number = |at| number(bytes, at).unwrap_or(0);
        match word(bytes, 0).unwrap_or(0).cast_signed() {
            0 => ResizeAnswer::Done {
                from_blocks: number(8),
                to_blocks: number(16),
                block_bytes: number(24),
                now_meta_bg: word(bytes, 4) == Some(1),
            },
            errno => {
                let text = bytes[MESSAGE..].split(|byte| *byte == 0).next().unwrap_or_default();
                let message = String::from_utf8_lossy(text).into_owned();
                ResizeAnswer::Refused { errno, message }
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_how_far_the_volume_has_grown() {
        let message = |error, grown_to| match ResizeAnswer::of(&Err(error), grown_to) {
            ResizeAnswer::Refused { message, .. } => message,
            done => panic!("{done:?}"),
        };
        assert_eq!(message(Error::Invalid("why"), None), "why");
        let grown = message(Error::Invalid("why"), Some(700));
        assert_eq!(grown, "the volume has grown to 700 blocks only: why");
        let busy = message(Error::Busy, None);
        assert_eq!(busy, "another program resizes it");
    }

    #[test]
    fn requests_and_answers_arrive_as_they_were_sent() {
        for size in [NewSize::Bytes(u64::MAX), NewSize::More(7 << 40), NewSize::Device] {
            assert_eq!(NewSize::from_bytes(&size.to_bytes()), Some(size));
        }
        assert_eq!(NewSize::from_bytes(&[9; RESIZE_BYTES]), None);
        assert_eq!(NewSize::from_bytes(&[0; 8]), None);
        let (from_blocks, to_blocks) = (1 << 33, 1 << 40);
        let done =
            ResizeAnswer::Done { from_blocks, to_blocks, block_bytes: 4096, now_meta_bg: true };
        let refused = |message: &str| ResizeAnswer::Refused { errno: 22, message: message.into() };
        for answer in [done, refused("too small"), refused("")] {
            assert_eq!(ResizeAnswer::from_bytes(&answer.to_bytes()), answer);
        }
        let long = ResizeAnswer::from_bytes(&refused(&"x".repeat(999)).to_bytes());
        assert_eq!(long, refused(&"x".repeat(RESIZE_BYTES - MESSAGE - 1)));
    }
}
