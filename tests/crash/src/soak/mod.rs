//! A volume that goes through many cuts, with threads at work in each session.
//!
//! ```text
//!   mkfs ─► open ─► threads ─► cut or close ─► recovery, cut too ─► check, e2fsck, synced bytes ─┐
//!             └─────────────────────────── the same volume, the next session ◄───────────────────┘
//! ```
//!
//! Another thread watches memory: the page cache stays within its limit, and the process within the
//! total of all limits. The interleaving of the threads is random, so a seed gives the same calls
//! and cuts, but not the same run.

mod keeper;
mod power;

pub use keeper::Keeper;
pub use power::{PENDING_BYTES, Power, PowerCut};

use extant::dax::ByteLogMode;
use extant::mkfs::{JournalSize, MkfsOptions, format};
use extant::raid::{self, Assembled, Opening, Part, Wanted};
use extant::{
    BlockDevice, BlockSize, Environment, Error, FileDevice, Filesystem, NewFile, OpenOptions, check,
};
use extant_blockdev::FileOptions;
use extant_testkit::e2fsprogs;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Threads at work.
const THREADS: usize = 6;
/// Memory for metadata.
const CACHE_BYTES: usize = 8 << 20;
/// Memory for files' bytes.
const PAGE_CACHE_BYTES: u64 = 8 << 20;
/// Memory of the process besides the two caches and what devices keep pending: the program, stacks,
/// the threads' own notes, open transactions, the checker.
const BESIDES_BYTES: u64 = 120 << 20;

/// A kind of volume.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in messages.
    pub name: &'static str,
    mib: u64,
    block_bytes: u32,
    features: &'static str,
    mirrors: usize,
    byte_log: bool,
}

const PLAIN: Kind =
    Kind { name: "4k", mib: 48, block_bytes: 4096, features: "", mirrors: 1, byte_log: false };

/// The kinds of which volumes run, in rotation.
pub const KINDS: &[Kind] = &[
    PLAIN,
    Kind { name: "sums", features: "data_csum", ..PLAIN },
    Kind { name: "mirrors", mirrors: 2, ..PLAIN },
    Kind { name: "fast commits", features: "fast_commit", ..PLAIN },
    Kind { name: "byte log", features: "fast_commit", byte_log: true, ..PLAIN },
    Kind { name: "1k", mib: 32, block_bytes: 1024, ..PLAIN },
    Kind { name: "mirrors with sums", features: "data_csum", mirrors: 2, ..PLAIN },
    Kind { name: "64k", mib: 320, block_bytes: 65536, ..PLAIN },
    Kind {
        name: "1k, fast commits",
        mib: 32,
        block_bytes: 1024,
        features: "fast_commit,orphan_file",
        ..PLAIN
    },
    Kind { name: "quota, inline data", features: "quota,project,inline_data", ..PLAIN },
    Kind {
        name: "16k, sums, fast commits",
        mib: 96,
        block_bytes: 16384,
        features: "data_csum,fast_commit",
        ..PLAIN
    },
    Kind { name: "bigalloc", mib: 64, features: "bigalloc", ..PLAIN },
    Kind {
        name: "no extents",
        mib: 32,
        block_bytes: 1024,
        features: "^extent,^64bit,^metadata_csum",
        ..PLAIN
    },
];

/// Counts of all sessions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Sessions.
    pub lives: u64,
    /// Sessions that ended in a cut; the others were closed.
    pub cuts: u64,
    /// Recoveries that were cut and repeated.
    pub recoveries_cut: u64,
    /// Sessions with a full volume.
    pub full: u64,
    /// Calls, and those that found no space.
    pub calls: u64,
    /// See [`Tally::calls`].
    pub refused: u64,
    /// The most memory that the process used, in MiB.
    pub peak_mib: u64,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { lives, cuts, recoveries_cut, full, calls, refused, peak_mib } = self;
        write!(
            f,
            "{lives} lives, {cuts} cut, {recoveries_cut} recoveries cut, {full} on a full volume, \
             {calls} calls, {refused} without room, {peak_mib} MiB at most"
        )
    }
}

/// A volume from one session to the next.
pub struct Volume {
    kind: Kind,
    scratch: Scratch,
    rng: Rng,
}

impl Volume {
    /// A new one; `seed` determines all its choices.
    pub fn new(kind: Kind, seed: u64) -> Result<Volume, String> {
        let volume = Volume { kind, scratch: Scratch::new(), rng: Rng::new(seed) };
        let bytes = kind.mib << 20;
        let text = |error: Error| format!("mkfs: {error}");
        let wanted = Wanted::Mirrored { alike: true };
        for n in 0..kind.mirrors {
            let len =
                if kind.mirrors > 1 { wanted.member_bytes(kind.mirrors, bytes) } else { bytes };
            FileDevice::create(volume.image(n), len).map_err(text)?;
        }
        let members = volume.files()?;
        if kind.mirrors > 1 {
            raid::create(&parts(&members), wanted, [7; 16], bytes).map_err(text)?;
        }
        let options = MkfsOptions::new()
            .block_size(BlockSize::from_bytes(kind.block_bytes).expect("the table is right"))
            .journal(JournalSize::Blocks(1024))
            .features(kind.features)
            .map_err(text)?;
        let device = assembled(&members).map_err(text)?.device();
        format(Arc::clone(&device), &options, &Environment::default()).map_err(text)?;
        let fs = OpenOptions::new().write(true).open_device(device).map_err(text)?;
        for dir in (0..THREADS).map(keeper::dir_of).chain(["/shared".to_owned()]) {
            fs.create_dir(dir, &NewFile::directory()).map_err(text)?;
        }
        fs.close().map_err(text)?;
        Ok(volume)
    }

    fn image(&self, n: usize) -> PathBuf {
        self.scratch.file(&format!("{n}.img"))
    }

    /// The members as they are on their devices.
    fn files(&self) -> Result<Vec<Arc<dyn BlockDevice>>, String> {
        let open = |n| {
            let opened = FileOptions::new().write(true).open(self.image(n));
            opened.map(|file| Arc::new(file) as Arc<dyn BlockDevice>).map_err(|e| e.to_string())
        };
        (0..self.kind.mirrors).map(open).collect()
    }

    /// The members, on devices whose power fails.
    fn powered(&self, power: &Arc<Power>) -> Result<Vec<Arc<PowerCut>>, String> {
        let one = |n| {
            PowerCut::new(
                power,
                &self.image(n),
                &self.scratch.file("seen").with_extension(n.to_string()),
            )
            .map(Arc::new)
        };
        (0..self.kind.mirrors).map(one).collect()
    }

    /// Copies the files to the folder that `EXTANT_KEEP` names, to examine a failure.
    fn keep(&self, what: &str) {
        if let Some(dir) = std::env::var_os("EXTANT_KEEP") {
            for n in 0..self.kind.mirrors {
                let to = Path::new(&dir).join(format!("{what}-{n}.img"));
                let _ = extant_testkit::scratch::copy_sparse(&self.image(n), &to);
            }
        }
    }

    /// One session, for at most this long.
    ///
    /// Errors: what is wrong, in words.
    pub fn live(&mut self, time: Duration, tally: &mut Tally) -> Result<(), String> {
        let (closes, full) = (self.rng.below(5) == 0, self.rng.below(3) == 0);
        let most = 64 << self.rng.below(10);
        let lasts = if closes { i64::MAX } else { 50 + self.rng.below(most) as i64 };
        let power = Power::lasting(lasts);
        let devices = self.powered(&power)?;
        let members: Vec<_> =
            devices.iter().map(|d| Arc::clone(d) as Arc<dyn BlockDevice>).collect();
        let mut options = OpenOptions::new();
        options.write(true).cache_bytes(CACHE_BYTES).page_cache_bytes(PAGE_CACHE_BYTES);
        options.commit_interval(
            [Duration::from_millis(20), Duration::from_secs(5)][self.rng.below(2)],
        );
        if self.kind.byte_log {
            options.byte_log(ByteLogMode::Force);
        }
        let device = assembled(&members).map_err(|e| format!("assemble: {e}"))?.device();
        let fs = options.open_device(device).map_err(|e| format!("open: {e}"))?;
        let keepers = self.work(&fs, &power, time, full, tally)?;
        tally.lives += 1;
        tally.full += u64::from(full);
        if closes {
            fs.close().map_err(|e| format!("close: {e}"))?;
            power.cut();
        } else {
            power.cut();
            drop(fs);
        }
        drop(members);
        for device in devices {
            let last = Arc::into_inner(device).ok_or("a member is still in use")?;
            last.lose(&mut self.rng).map_err(|e| format!("the cut: {e}"))?;
        }
        if closes {
            return self.judge(|fs| keepers.iter().try_for_each(|keeper| keeper.closed(fs)));
        }
        tally.cuts += 1;
        self.keep("cut");
        self.recover(tally)?;
        self.judge(|fs| keepers.iter().try_for_each(|keeper| keeper.cut(fs)))
    }

    /// Lets the threads work until the power fails or the time is over.
    fn work(
        &mut self,
        fs: &Filesystem,
        power: &Power,
        time: Duration,
        full: bool,
        tally: &mut Tally,
    ) -> Result<Vec<Keeper>, String> {
        let end = Instant::now() + time;
        let over = AtomicBool::new(false);
        let seeds: Vec<u64> = (0..THREADS).map(|_| self.rng.next_u64()).collect();
        let keepers: Vec<Keeper> =
            (0..THREADS).map(|thread| Keeper::adopt(fs, thread)).collect::<Result<_, _>>()?;
        let mirrors = self.kind.mirrors as u64;
        std::thread::scope(|scope| {
            let one = |(mut keeper, seed): (Keeper, u64)| {
                let over = &over;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    let done = catch_unwind(AssertUnwindSafe(|| {
                        while !power.is_off() && !over.load(Ordering::Relaxed) {
                            keeper.step(fs, &mut rng, power, full)?;
                        }
                        keeper.end();
                        Ok(())
                    }));
                    over.store(true, Ordering::Relaxed);
                    match done {
                        Ok(done) => done.map(|()| keeper),
                        Err(panic) => Err(words(&*panic)),
                    }
                })
            };
            let threads: Vec<_> = keepers.into_iter().zip(seeds).map(one).collect();
            let mut within = Ok(());
            while !power.is_off() && !over.load(Ordering::Relaxed) && Instant::now() < end {
                within = within.and(look_at_memory(fs, mirrors, tally));
                std::thread::sleep(Duration::from_millis(10));
            }
            over.store(true, Ordering::Relaxed);
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().map_err(|panic| words(&*panic))?
            };
            let keepers = threads.into_iter().map(join).collect::<Result<Vec<Keeper>, String>>();
            let keepers = keepers.and_then(|keepers| within.map(|()| keepers))?;
            tally.calls += keepers.iter().map(|keeper| keeper.calls).sum::<u64>();
            tally.refused += keepers.iter().map(|keeper| keeper.refused).sum::<u64>();
            Ok(keepers)
        })
    }

    /// Recovers what the cut left, sometimes with another cut first.
    fn recover(&mut self, tally: &mut Tally) -> Result<(), String> {
        for _ in 0..self.rng.below(3) {
            let power = Power::lasting(1 + self.rng.below(60) as i64);
            let devices = self.powered(&power)?;
            let members: Vec<_> =
                devices.iter().map(|d| Arc::clone(d) as Arc<dyn BlockDevice>).collect();
            let done = assembled(&members)
                .and_then(|made| OpenOptions::new().recover_device_in_place(made.device()));
            done.map_err(|e| format!("recovery that is cut: {e}"))?;
            power.cut();
            drop(members);
            for device in devices {
                let last = Arc::into_inner(device).ok_or("a member is still in use")?;
                last.lose(&mut self.rng).map_err(|e| format!("the recovery's cut: {e}"))?;
            }
            tally.recoveries_cut += 1;
        }
        let made = assembled(&self.files()?).map_err(|e| format!("assemble: {e}"))?;
        if let Assembled::Mirrored(mirror) = &made {
            crate::layouts::bring_in_line(mirror)?;
        }
        let report = OpenOptions::new().recover_device_in_place(made.device());
        match report.map_err(|e| format!("recovery: {e}"))?.problems.first() {
            Some(problem) => Err(format!("recovery passed over: {problem}")),
            None => Ok(()),
        }
    }

    /// A volume that needs no recovery: no check finds an error, and `look` agrees with what it
    /// shows.
    fn judge(&self, look: impl FnOnce(&Filesystem) -> Result<(), String>) -> Result<(), String> {
        self.keep("judged");
        let members = self.files()?;
        let device = assembled(&members).map_err(|e| format!("assemble: {e}"))?.device();
        let options = check::Options { data: true, ..check::Options::default() };
        let report = check::check_device(Arc::clone(&device), &options, &());
        let report = report.map_err(|e| format!("check: {e}"))?;
        if !report.clean {
            return Err(format!("check: {:?}", report.findings));
        }
        let fs = OpenOptions::new().recover(false).page_cache_bytes(0).open_device(device);
        look(&fs.map_err(|e| format!("open after all: {e}"))?)?;
        drop(members);
        (0..self.kind.mirrors)
            .try_for_each(|n| e2fsprogs::e2fsck(&self.image(n), None).expect_clean())
    }
}

/// Members in the form that a layout takes.
fn parts(members: &[Arc<dyn BlockDevice>]) -> Vec<Part> {
    let part =
        |(n, member): (usize, &Arc<dyn BlockDevice>)| Part::new(Arc::clone(member), format!("{n}"));
    members.iter().enumerate().map(part).collect()
}

fn assembled(members: &[Arc<dyn BlockDevice>]) -> extant::Result<Assembled> {
    raid::assemble(parts(members), Opening::write())
}

/// The message of a panic.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without words")
        .to_owned()
}

/// Whether memory is within its limits now.
fn look_at_memory(fs: &Filesystem, mirrors: u64, tally: &mut Tally) -> Result<(), String> {
    let cached = fs.cache_stats().map_or(0, |stats| stats.cached);
    if cached > PAGE_CACHE_BYTES {
        return Err(format!("{cached} bytes in the page cache, limit {PAGE_CACHE_BYTES}"));
    }
    let Some(resident) = resident_bytes() else { return Ok(()) };
    tally.peak_mib = tally.peak_mib.max(resident >> 20);
    let most = CACHE_BYTES as u64 + PAGE_CACHE_BYTES + mirrors * 2 * PENDING_BYTES + BESIDES_BYTES;
    match resident > most {
        true => Err(format!("{resident} bytes of memory, limit {most}")),
        false => Ok(()),
    }
}

/// Memory of this process, in bytes.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}
