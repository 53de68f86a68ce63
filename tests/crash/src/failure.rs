//! A failing case, and the line that replays it.
//!
//! ```text
//!   EXTANT_CRASH_REPLAY='4k:7:2,6,1:31:4:creat /foo 0777 ; fsync /foo'
//!                        │  │   │    │ │  └─ workload
//!                        │  │   │    │ └─ state of that cut
//!                        │  │   │    └─ cut: after this number of device operations
//!                        │  │   └─ subsets up to, samples, torn variants
//!                        │  └─ seed
//!                        └─ volume
//! ```

use crate::explorer::Depth;
use crate::make::Make;
use crate::parse;
use crate::workload::Workload;
use std::fmt;
use std::str::FromStr;

/// The variable that contains a [`Replay`].
pub const REPLAY: &str = "EXTANT_CRASH_REPLAY";

/// One state of one run.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The volume.
    pub make: Make,
    /// The seed of the states.
    pub seed: u64,
    /// Which states there are.
    pub depth: Depth,
    /// The cut and the number of the state there; `None` means all of them.
    pub at: Option<(usize, usize)>,
    /// The run.
    pub workload: Workload,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Depth { exhaustive, samples, torn } = self.depth;
        write!(f, "{}:{}:{exhaustive},{samples},{torn}:", self.make.name, self.seed)?;
        match self.at {
            Some((cut, index)) => write!(f, "{cut}:{index}:")?,
            None => f.write_str("::")?,
        }
        write!(f, "{}", self.workload)
    }
}

impl FromStr for Replay {
    type Err = String;

    fn from_str(text: &str) -> Result<Replay, String> {
        let parts: Vec<&str> = text.splitn(6, ':').collect();
        let [make, seed, depth, cut, index, ops] = parts[..] else {
            return Err("six fields with colons between are wanted".to_owned());
        };
        let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
        let depth: Vec<u64> = depth.split(',').map(number).collect::<Result<_, _>>()?;
        let [exhaustive, samples, torn] = depth[..] else {
            return Err("the depth has three numbers".to_owned());
        };
        let at = match cut.is_empty() {
            true => None,
            false => Some((number(cut)? as usize, number(index)? as usize)),
        };
        Ok(Replay {
            make: Make::named(make).ok_or_else(|| format!("no such volume: {make}"))?,
            seed: number(seed)?,
            depth: Depth {
                exhaustive: exhaustive as u32,
                samples: samples as usize,
                torn: torn as usize,
            },
            at,
            workload: Workload { name: "replay".to_owned(), ops: parse::ops(ops)? },
        })
    }
}

/// A failure, and how to reproduce it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// How to reproduce it.
    pub replay: Replay,
    /// The state in words; empty if the run itself failed.
    pub state: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { replay, state, what } = self;
        writeln!(f, "{} on {}: {what}", replay.workload.name, replay.make.name)?;
        if !state.is_empty() {
            writeln!(f, "    state: {state}")?;
        }
        write!(f, "    replay: {REPLAY}='{replay}' cargo test -p extant-crash-tests --test replay")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_read_back_as_it_was_printed() {
        let text = "1k:7:2,6,1:31:4:creat /foo 0777 ; fsync /foo";
        let replay: Replay = text.parse().unwrap();
        assert_eq!((replay.at, replay.workload.ops.len()), (Some((31, 4)), 2));
        assert_eq!(replay.to_string(), text);
        assert!("1k:7:2,6,1:31:creat".parse::<Replay>().is_err());
    }
}
