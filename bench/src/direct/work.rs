//! The work of a setting, and its speed.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::lane::Lane;
use crate::rig::scatter;

/// The access pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Case {
    RandWrite,
    SeqWrite,
    RandRead,
    SeqRead,
}

impl Case {
    pub(crate) const ALL: [Case; 4] =
        [Case::RandWrite, Case::SeqWrite, Case::RandRead, Case::SeqRead];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::RandWrite => "randwrite",
            Case::SeqWrite => "seqwrite",
            Case::RandRead => "randread",
            Case::SeqRead => "seqread",
        }
    }

    pub(crate) fn writes(self) -> bool {
        matches!(self, Case::RandWrite | Case::SeqWrite)
    }

    fn is_random(self) -> bool {
        matches!(self, Case::RandWrite | Case::RandRead)
    }
}

/// A case, the size of a transfer, and the number in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub case: Case,
    pub call_bytes: usize,
    pub depth: usize,
    /// Whether the caller uses its memory between transfers.
    pub touched: bool,
}

/// The result: 10^6 bytes and transfers per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub mb_per_s: f64,
    pub iops: f64,
    /// The next transfer to continue with.
    pub reached: usize,
}

/// Makes transfers in a file of `len` bytes for `millis`, starting with the `first`-th, and waits
/// until they have ended.
pub(crate) fn run(
    mut lane: Box<dyn Lane + '_>,
    setting: Setting,
    len: u64,
    first: usize,
    millis: u64,
) -> Result<Outcome> {
    let pieces = len as usize / setting.call_bytes;
    let start = Instant::now();
    let until = start + Duration::from_millis(millis);
    let (mut begun, mut over) = (0, 0);
    loop {
        let go_on = Instant::now() < until;
        if go_on && begun - over < setting.depth {
            let nr = (first + begun) % pieces;
            let nr = if setting.case.is_random() { scatter(nr, pieces) } else { nr };
            lane.start((nr * setting.call_bytes) as u64)?;
            begun += 1;
        } else if over < begun {
            lane.wait()?;
            over += 1;
        } else {
            break;
        }
    }
    if setting.case.writes() {
        lane.sync()?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let bytes = (over * setting.call_bytes) as f64;
    let reached = (first + begun) % pieces;
    Ok(Outcome { mb_per_s: bytes / 1e6 / seconds, iops: over as f64 / seconds, reached })
}
