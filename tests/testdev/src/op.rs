//! One change of a device, as a recorder logs it.

use extant_base::ByteOffset;
use std::sync::Arc;

/// One change that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Bytes written: durable on return with `fua`, else after the next flush.
    Write {
        /// Position on the device.
        at: ByteOffset,
        /// The bytes.
        data: Arc<[u8]>,
        /// Whether it was a forced write.
        fua: bool,
    },
    /// Bytes set to zero.
    Zero {
        /// Position on the device.
        at: ByteOffset,
        /// Length in bytes.
        len: u64,
    },
    /// Bytes discarded.
    Discard {
        /// Position on the device.
        at: ByteOffset,
        /// Length in bytes.
        len: u64,
    },
    /// Makes all earlier writes durable.
    Flush,
    /// Bytes of one cache line stored through a window ([`Dax`](extant_blockdev::Dax)).
    Store {
        /// Position on the device.
        at: ByteOffset,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// The write-back of the lines of these bytes was started.
    WriteBack {
        /// Position on the device.
        at: ByteOffset,
        /// Length in bytes.
        len: u64,
    },
    /// Makes all stores durable whose write-back was started before.
    Fence,
    /// Makes all earlier writes durable that begin in this range. It is the flush of one device,
    /// where several devices are recorded as one.
    FlushRange {
        /// Where that device begins.
        at: ByteOffset,
        /// The length of that device in bytes.
        len: u64,
    },
}

impl Op {
    /// First byte and length of the range that the operation changes; empty for one that changes
    /// nothing.
    pub fn range(&self) -> (ByteOffset, u64) {
        match self {
            Op::Write { at, data, .. } | Op::Store { at, data } => (*at, data.len() as u64),
            Op::Zero { at, len } | Op::Discard { at, len } => (*at, *len),
            Op::Flush | Op::FlushRange { .. } | Op::WriteBack { .. } | Op::Fence => {
                (ByteOffset(0), 0)
            }
        }
    }

    /// Whether the operation was durable when it returned.
    pub fn is_fua(&self) -> bool {
        matches!(self, Op::Write { fua: true, .. })
    }
}
