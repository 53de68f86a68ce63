//! Operations, in numbers so small that they meet each other often.
//!
//! ```text
//!   Place { dir: 5, name: 12 }     the fifth existing directory, modulo their number,
//!                                  and the twelfth name of the pool
//! ```

use extant_testkit::rng::Rng;

/// A directory, as a number modulo their count, and a name of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which directory.
    pub dir: usize,
    /// Which name.
    pub name: usize,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Create {
        at: Place,
        mode: u16,
        gid: u32,
    },
    Mkdir {
        at: Place,
        mode: u16,
        gid: u32,
    },
    Symlink {
        at: Place,
        target: usize,
    },
    Mknod {
        at: Place,
        kind: usize,
    },
    Link {
        from: Place,
        to: Place,
    },
    Unlink {
        at: Place,
    },
    Rmdir {
        at: Place,
    },
    Rename {
        from: Place,
        to: Place,
        way: Way,
    },
    Stat {
        at: Place,
    },
    List {
        dir: usize,
    },
    /// Opens what a name refers to and holds it in a slot, in place of what the slot held.
    Hold {
        slot: usize,
        at: Place,
    },
    /// Holds a new file without a name.
    Tmpfile {
        slot: usize,
    },
    /// Gives the file that is held a name.
    LinkHeld {
        slot: usize,
        to: Place,
    },
    /// Creates a file in the directory that is held, whether that still has a name or not.
    CreateInHeld {
        slot: usize,
        name: usize,
    },
    StatHeld {
        slot: usize,
    },
    /// Writes to the file that is held.
    WriteHeld {
        slot: usize,
        offset: u32,
        len: u32,
    },
    /// Appends to the file that is held.
    AppendHeld {
        slot: usize,
        len: u32,
    },
    /// Truncates or extends the file that is held.
    ResizeHeld {
        slot: usize,
        size: u32,
    },
    /// Makes bytes of the file that is held read as zeros.
    PunchHeld {
        slot: usize,
        offset: u32,
        len: u32,
    },
    /// Reads the file that is held.
    ReadHeld {
        slot: usize,
    },
    /// Sets the mode of what is held, except of a symlink.
    ChmodHeld {
        slot: usize,
        mode: u16,
    },
    /// Sets a user attribute of what is held to this many bytes, or removes it.
    XattrHeld {
        slot: usize,
        len: Option<u8>,
    },
    /// Gives the directory that is held a default list of the pool, or removes it.
    DefaultAclHeld {
        slot: usize,
        list: Option<usize>,
    },
    /// Reads the own access control list of what is held, except of a symlink.
    ReadAclHeld {
        slot: usize,
    },
    /// Sets or clears a flag of [`FLAGS`] of the file or directory that is held.
    FlagHeld {
        slot: usize,
        flag: usize,
        on: bool,
    },
    /// Reads the flags of [`FLAGS`] that what is held has.
    ReadFlagsHeld {
        slot: usize,
    },
    /// Converts the map of the file that is held to extents, or to a block map; its bytes stay.
    ExtentsHeld {
        slot: usize,
        on: bool,
    },
    /// Assigns what is held to a project, if the volume has projects.
    ProjectHeld {
        slot: usize,
        project: u32,
    },
    LetGo {
        slot: usize,
    },
    /// Closes the volume and opens it again; all slots are emptied first.
    Reopen,
}

/// The mode of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Way {
    Replace,
    NoReplace,
    Exchange,
    Whiteout,
}

/// Flags that new files inherit from their directory, with the values that `lsattr` uses: no dump,
/// no access times.
pub const FLAGS: [u32; 2] = [0x40, 0x80];

/// The number of slots.
pub const SLOTS: usize = 4;

/// The choices of a run.
#[derive(Clone, Copy, Debug)]
pub struct Pools {
    /// Names in the pool.
    pub names: usize,
    /// Percentage of names that are long; 0..=100.
    pub long_percent: usize,
}

impl Op {
    /// An operation of a run that is `done` percent over: the tree first grows and then shrinks.
    pub fn random(rng: &mut Rng, pools: Pools, done: usize) -> Op {
        let place = |rng: &mut Rng| {
            // Few directories are met often, all of them sometimes.
            let dir = if rng.below(3) == 0 { rng.below(64) } else { rng.below(6) };
            Place { dir, name: rng.below(pools.names) }
        };
        let at = place(rng);
        let slot = rng.below(SLOTS);
        let shrinks = done > 60;
        if rng.below(4) == 0 {
            return Op::of_content(rng, slot);
        }
        match rng.below(if shrinks { 130 } else { 100 }) {
            0..=21 => Op::Create { at, mode: mode(rng), gid: rng.below(3) as u32 },
            22..=31 => Op::Mkdir { at, mode: mode(rng), gid: rng.below(3) as u32 },
            32..=36 => Op::Symlink { at, target: rng.below(7) },
            37..=39 => Op::Mknod { at, kind: rng.below(4) },
            40..=46 => Op::Link { from: at, to: place(rng) },
            47..=57 => Op::Unlink { at },
            58..=61 => Op::Rmdir { at },
            62..=76 => {
                let way =
                    [Way::Replace, Way::Replace, Way::NoReplace, Way::Exchange, Way::Whiteout];
                Op::Rename { from: at, to: place(rng), way: way[rng.below(5)] }
            }
            77..=80 => Op::Stat { at },
            81..=82 => Op::List { dir: at.dir },
            83..=87 => Op::Hold { slot, at },
            88..=89 => Op::Tmpfile { slot },
            90..=91 => Op::LinkHeld { slot, to: at },
            92..=93 => Op::CreateInHeld { slot, name: at.name },
            94..=95 => Op::StatHeld { slot },
            96..=98 => Op::LetGo { slot },
            99 if rng.below(4) == 0 => Op::Reopen,
            99 => Op::List { dir: at.dir },
            100..=120 => Op::Unlink { at },
            _ => Op::Rmdir { at },
        }
    }
}

impl Op {
    /// An operation on what a slot holds.
    fn of_content(rng: &mut Rng, slot: usize) -> Op {
        let reach = [100, 5_000, 60_000][rng.below(3)];
        let (offset, len) = (rng.below(reach) as u32, 1 + rng.below(reach) as u32);
        match rng.below(17) {
            0..=3 => Op::WriteHeld { slot, offset, len },
            4 => Op::AppendHeld { slot, len },
            5 => Op::ResizeHeld { slot, size: offset },
            6 => Op::PunchHeld { slot, offset, len },
            7 => Op::ReadHeld { slot },
            8 => Op::ChmodHeld { slot, mode: mode(rng) },
            9..=10 => {
                let list = (rng.below(4) > 0).then(|| rng.below(3));
                Op::DefaultAclHeld { slot, list }
            }
            11 => Op::ReadAclHeld { slot },
            12 => Op::FlagHeld { slot, flag: rng.below(FLAGS.len()), on: rng.below(3) > 0 },
            13 => Op::ReadFlagsHeld { slot },
            14 => Op::ExtentsHeld { slot, on: rng.below(2) == 0 },
            15 => Op::ProjectHeld { slot, project: rng.below(4) as u32 },
            _ => Op::XattrHeld { slot, len: (rng.below(3) > 0).then(|| rng.below(200) as u8) },
        }
    }
}

/// The bytes that an operation of `len` bytes at `offset` writes.
pub fn content(offset: u32, len: u32) -> Vec<u8> {
    (0..len).map(|n| (offset.wrapping_mul(31) + n * 7 + n / 251) as u8 | 1).collect()
}

fn mode(rng: &mut Rng) -> u16 {
    [0o644, 0o600, 0o755, 0o2755, 0o4711, 0o1777][rng.below(6)]
}

/// The `n`-th name of the pool. Some are dots, some too long, some equal if case is ignored.
pub fn name(n: usize, pools: Pools) -> String {
    match n {
        0 => ".".into(),
        1 => "..".into(),
        2 => "x".repeat(256),
        3 => "y".repeat(255),
        4 => "Straße".into(),
        5 => "STRASSE".into(),
        6 => "name-7".into(),
        7 => "NAME-7".into(),
        _ => {
            let mut name = format!("name-{n}");
            if n * 37 % 100 < pools.long_percent {
                name.push_str(&"-".repeat(100 + n % 130));
            }
            name
        }
    }
}

/// The `n`-th target of a symlink: short, on both sides of what fits an inode, long.
pub fn target(n: usize) -> String {
    let lengths = [1, 20, 59, 60, 61, 500, 1023];
    "t/".repeat(600)[..lengths[n % lengths.len()]].to_string()
}
