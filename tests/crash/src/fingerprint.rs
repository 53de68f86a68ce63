//! Distinguishes the images of one run.
//!
//! ```text
//!   base    ······················      what the log never wrote is the same in every state:
//!   log       ▄▄   ▄     ▄▄▄▄           only these sectors are hashed
//! ```

use extant_base::ByteOffset;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testdev::Op;
use std::hash::{DefaultHasher, Hasher};

/// A hash of all that a run could have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The fingerprint of a state of the run that made `log`.
    pub fn of(log: &[Op], image: &MemoryDevice) -> Fingerprint {
        let mut ranges: Vec<(u64, u64)> =
            log.iter().map(|op| (op.range().0.0, op.range().0.0 + op.range().1)).collect();
        ranges.sort_unstable();
        let mut hasher = DefaultHasher::new();
        let mut done = 0;
        let mut bytes = Vec::new();
        for (start, end) in ranges {
            let start = start.max(done);
            if start < end {
                bytes.resize((end - start) as usize, 0);
                let read = image.read_at(ByteOffset(start), &mut bytes);
                read.expect("the log was made on a device as long as the image");
                hasher.write(&bytes);
                done = end;
            }
        }
        Fingerprint(hasher.finish())
    }
}
