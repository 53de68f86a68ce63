//! The work of the threads of a setting, and the duration of each sync.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::store::Counts;
use super::subject::{Dir, File, Volume};
use crate::rig::scatter;

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Case {
    /// Create and remove; every n-th file is synced.
    CreateUnlink(usize),
    /// Write 4 KiB anywhere, with a sync after every 16: of everything, or only of the data.
    RandWrite {
        data_only: bool,
    },
    Sqlite,
    Chmod,
}

impl Case {
    /// All cases, in the order of the table.
    pub(crate) fn all() -> impl Iterator<Item = Case> {
        let creates = [2, 4, 8, 16, 32].into_iter().map(Case::CreateUnlink);
        let writes = [false, true].into_iter().map(|data_only| Case::RandWrite { data_only });
        creates.chain(writes).chain([Case::Sqlite, Case::Chmod])
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::CreateUnlink(2) => "create_unlink_fsync2",
            Case::CreateUnlink(4) => "create_unlink_fsync4",
            Case::CreateUnlink(8) => "create_unlink_fsync8",
            Case::CreateUnlink(16) => "create_unlink_fsync16",
            Case::CreateUnlink(_) => "create_unlink_fsync32",
            Case::RandWrite { data_only: false } => "randwrite_fsync16",
            Case::RandWrite { data_only: true } => "randwrite_fdatasync16",
            Case::Sqlite => "sqlite_txn",
            Case::Chmod => "chmod_fsync",
        }
    }
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub ops_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub bytes_per_fsync: Option<f64>,
    pub flushes_per_fsync: Option<f64>,
}

const PAGE: [u8; 4096] = [7; 4096];
/// Size in pages of the file with random writes.
const PAGES: usize = 4096;

/// State of one thread.
struct Worker {
    dir: Box<dyn Dir>,
    /// The file that exists from the start.
    file: Box<dyn File>,
    syncs: Vec<Duration>,
    ops: usize,
}

impl Worker {
    fn new(volume: &dyn Volume, case: Case, n: usize) -> Result<Worker> {
        let dir = volume.dir(&format!("thread{n}"))?;
        let file = dir.create("there")?;
        let pages = if case == Case::Chmod { 0 } else { PAGES };
        for page in 0..pages {
            file.write_at(page as u64 * PAGE.len() as u64, &PAGE)?;
        }
        file.sync()?;
        Ok(Worker { dir, file, syncs: Vec::with_capacity(1 << 16), ops: 0 })
    }

    fn work(&mut self, case: Case, until: Instant) -> Result<()> {
        // One step between two reads of the clock.
        while Instant::now() < until {
            match case {
                Case::CreateUnlink(each) => self.create_unlink(each)?,
                Case::RandWrite { data_only } => self.randwrite(data_only)?,
                Case::Sqlite => self.sqlite()?,
                Case::Chmod => self.chmod()?,
            }
        }
        Ok(())
    }

    fn sync(&mut self, sync: impl FnOnce(&Worker) -> Result<()>) -> Result<()> {
        let start = Instant::now();
        sync(self)?;
        self.syncs.push(start.elapsed());
        Ok(())
    }

    fn create_unlink(&mut self, each: usize) -> Result<()> {
        for n in 0..each {
            let name = format!("file{}", self.ops % 1000);
            let file = self.dir.create(&name)?;
            if n + 1 == each {
                self.sync(|_| file.sync())?;
            }
            drop(file);
            self.dir.unlink(&name)?;
            self.ops += 1;
        }
        Ok(())
    }

    fn randwrite(&mut self, data_only: bool) -> Result<()> {
        for _ in 0..16 {
            let at = scatter(self.ops % PAGES, PAGES) * PAGE.len();
            self.file.write_at(at as u64, &PAGE)?;
            self.ops += 1;
        }
        self.sync(|own| if data_only { own.file.sync_data() } else { own.file.sync() })
    }

    fn sqlite(&mut self) -> Result<()> {
        let log = self.dir.create("there-journal")?;
        log.write_at(0, &PAGE[..512])?;
        log.write_at(512, &PAGE)?;
        log.write_at(512 + PAGE.len() as u64, &PAGE)?;
        self.sync(|_| log.sync_data())?;
        self.sync(|own| own.dir.sync())?;
        for n in [0, 1] {
            let page = scatter((2 * self.ops + n) % PAGES, PAGES);
            self.file.write_at((page * PAGE.len()) as u64, &PAGE)?;
        }
        self.sync(|own| own.file.sync_data())?;
        drop(log);
        self.dir.unlink("there-journal")?;
        self.ops += 1;
        Ok(())
    }

    fn chmod(&mut self) -> Result<()> {
        self.file.chmod(if self.ops.is_multiple_of(2) { 0o600 } else { 0o644 })?;
        self.sync(|own| own.file.sync())?;
        self.ops += 1;
        Ok(())
    }
}

/// Runs `case` in `threads` threads for `millis`.
pub(crate) fn run(volume: &dyn Volume, case: Case, threads: usize, millis: u64) -> Result<Outcome> {
    let workers: Vec<Worker> =
        (0..threads).map(|n| Worker::new(volume, case, n)).collect::<Result<_>>()?;
    let barrier = Barrier::new(threads + 1);
    let time = Duration::from_millis(millis);
    let before = volume.counts();
    let (workers, seconds) = std::thread::scope(|scope| -> Result<_> {
        let run = |mut worker: Worker| {
            let barrier = &barrier;
            move || -> Result<Worker> {
                barrier.wait();
                worker.work(case, Instant::now() + time)?;
                Ok(worker)
            }
        };
        let running: Vec<_> = workers.into_iter().map(|worker| scope.spawn(run(worker))).collect();
        barrier.wait();
        let start = Instant::now();
        let ended = running
            .into_iter()
            .map(|thread| thread.join().expect("a bench thread panicked"))
            .collect::<Result<Vec<_>>>()?;
        Ok((ended, start.elapsed().as_secs_f64()))
    })?;
    let reached = before.zip(volume.counts()).map(|(before, after)| Counts {
        bytes: after.bytes - before.bytes,
        flushes: after.flushes - before.flushes,
    });
    let ops: usize = workers.iter().map(|worker| worker.ops).sum();
    let mut syncs: Vec<Duration> = workers.into_iter().flat_map(|worker| worker.syncs).collect();
    syncs.sort_unstable();
    let at = |share: f64| match syncs.len() {
        0 => f64::NAN,
        len => syncs[((len - 1) as f64 * share) as usize].as_secs_f64() * 1e6,
    };
    let each = |count: u64| count as f64 / syncs.len().max(1) as f64;
    Ok(Outcome {
        ops_per_s: ops as f64 / seconds,
        p50_us: at(0.5),
        p99_us: at(0.99),
        bytes_per_fsync: reached.map(|counts| each(counts.bytes)),
        flushes_per_fsync: reached.map(|counts| each(counts.flushes)),
    })
}
