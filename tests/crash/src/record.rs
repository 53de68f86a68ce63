//! Runs a workload on a recorded volume.
//!
//! ```text
//!   engine ──► [a device that lies, in self-tests] ──► Recorder ──► memory
//!     │ after each operation: View, and the place in the log
//!     ▼
//!   History
//! ```
//! The clock stops during an operation and advances between two, and the timer does nothing: so the
//! same workload makes the same log, byte by byte.

use crate::apply::Applier;
use crate::buffered;
use crate::history::{History, Step};
use crate::make::{Make, run_time};
use crate::op::Op;
use crate::view::View;
use crate::workload::Workload;
use extant::environment::{Clock, Rng, SeededRng};
use extant::{BlockDevice, Environment, Error, Filesystem, Timestamp};
use extant_blockdev::MemoryDevice;
use extant_testdev::Recorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The interval of the timer where threads run in parallel: so short that its commits overlap
/// theirs.
const SOON: Duration = Duration::from_millis(2);

/// A clock that the run advances.
#[derive(Debug, Default)]
struct StepClock(AtomicUsize);

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        run_time(self.0.load(Ordering::Relaxed))
    }
}

/// Runs a workload on a new volume of the kind `make`, and closes it.
///
/// `Err` if an operation fails with an error that no caller may get (damage, a broken device, no
/// space for a message), or if the volume cannot be read in between.
pub fn record(make: &Make, workload: &Workload) -> Result<History, String> {
    record_over(make, workload, |volume| volume)
}

/// As [`record()`], with the engine on a device that the caller puts over the recorder.
pub fn record_over(
    make: &Make,
    workload: &Workload,
    over: impl FnOnce(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
) -> Result<History, String> {
    if make.is_cached() {
        let interval = make.commits_by_time().then_some(SOON);
        let run = Run::open(make, with_marker(make)?, interval, over)?;
        return run.buffered(make, workload);
    }
    let run = Run::open(make, make.base(), None, over)?;
    run.alone(make, workload)
}

/// As [`record()`], on what an earlier run left, after a crash or not.
pub fn record_on(make: &Make, base: MemoryDevice, workload: &Workload) -> Result<History, String> {
    Run::open(make, base, None, |volume| volume)?.alone(make, workload)
}

/// Runs workloads in parallel on one volume, a thread each. The `n`th runs in the directory `/tN`,
/// which is made first: all its paths are below that. The timer commits, too. Afterwards the volume
/// is closed.
///
/// `Err` as for [`record()`]. The log differs from run to run.
pub fn record_parallel(make: &Make, workloads: &[Workload]) -> Result<Vec<History>, String> {
    let roots: Vec<String> = (0..workloads.len()).map(|n| format!("/t{n}")).collect();
    let run = Run::open(make, with_directories(make, &roots)?, Some(SOON), |volume| volume)?;
    let tracks = std::thread::scope(|scope| {
        let one = |(workload, root): (&Workload, &String)| {
            let (run, root, ops) = (&run, root.clone(), workload.ops.clone());
            scope.spawn(move || -> Result<_, String> {
                let mut track = Track::begin(run, &root)?;
                for (n, op) in ops.iter().enumerate() {
                    run.clock.0.fetch_add(1, Ordering::Relaxed);
                    track.step(n, op)?;
                }
                Ok(track.end())
            })
        };
        let threads: Vec<_> = workloads.iter().zip(&roots).map(one).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().map_err(|_| "a thread of the run panicked".to_owned())?
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, String>>()
    })?;
    run.close(make, tracks)
}

/// A volume with these directories.
fn with_directories(make: &Make, paths: &[String]) -> Result<MemoryDevice, String> {
    let run = Run::open(make, make.base(), None, |volume| volume)?;
    let mut setup = Applier::new(run.fs.clone());
    for path in paths {
        let made = setup.apply(0, &Op::Mkdir { path: path.clone(), mode: 0o755 });
        made.map_err(|e| format!("mkdir {path}: {e}"))?;
    }
    drop(setup);
    run.fs.close().map_err(|e| format!("close: {e}"))?;
    Ok(run.recorder.inner().clone())
}

/// A volume with the marker of runs through the page cache.
fn with_marker(make: &Make) -> Result<MemoryDevice, String> {
    let run = Run::open(make, make.base(), None, |volume| volume)?;
    buffered::Run::prepare(&run.fs).map_err(|e| format!("the marker: {e}"))?;
    run.fs.close().map_err(|e| format!("close: {e}"))?;
    Ok(run.recorder.inner().clone())
}

/// A volume that is open on a recorder.
struct Run {
    base: MemoryDevice,
    recorder: Arc<Recorder<MemoryDevice>>,
    clock: Arc<StepClock>,
    fs: Filesystem,
}

impl Run {
    fn open(
        make: &Make,
        base: MemoryDevice,
        interval: Option<Duration>,
        over: impl FnOnce(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
    ) -> Result<Run, String> {
        let recorder = Arc::new(Recorder::new(base.clone()));
        let clock = Arc::new(StepClock::default());
        let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(3));
        let parts = make.parts(&recorder).map_err(|e| format!("assemble: {e}"))?;
        let mut options = make.open_options(&parts);
        options.environment(Environment { clock: clock.clone(), rng });
        options.write(true).one_transaction(make.one_transaction).commit_interval(interval);
        let fs = options.open_device(over(parts.volume)).map_err(|e| format!("open: {e}"))?;
        Ok(Run { base, recorder, clock, fs })
    }

    /// Runs the workload and closes the volume.
    fn alone(self, make: &Make, workload: &Workload) -> Result<History, String> {
        let mut track = Track::begin(&self, "/")?;
        for (n, op) in workload.ops.iter().enumerate() {
            self.clock.0.store(n + 1, Ordering::Relaxed);
            track.step(n, op)?;
        }
        self.clock.0.store(workload.ops.len() + 1, Ordering::Relaxed);
        let recorded = track.end();
        Ok(self.close(make, vec![recorded])?.remove(0))
    }

    /// Runs a workload through the page cache and closes the volume.
    fn buffered(self, make: &Make, workload: &Workload) -> Result<History, String> {
        let mut run = buffered::Run::new(self.fs.clone());
        let mut steps = Vec::new();
        for (n, op) in workload.ops.iter().enumerate() {
            self.clock.0.store(n + 1, Ordering::Relaxed);
            let begin = self.recorder.position();
            let refused = run.step(n, op, |error| {
                // The volume has space for all of them.
                is_answer(error) && !matches!(error, Error::NoSpace)
            })?;
            let end = self.recorder.position();
            steps.push(Step { op: op.clone(), begin, end, refused });
            run.mark(n).map_err(|e| format!("the marker: {e}"))?;
        }
        run.compare().map_err(|e| format!("before closing: {e}"))?;
        let contents = run.end();
        let views = Vec::new();
        let recorded = Recorded { root: "/".to_owned(), steps, views };
        let mut history = self.close(make, vec![recorded])?.remove(0);
        history.contents = Some(contents);
        Ok(history)
    }

    /// Closes the volume; the closing is the last step of every track.
    fn close(self, make: &Make, tracks: Vec<Recorded>) -> Result<Vec<History>, String> {
        let begin = self.recorder.position();
        self.fs.close().map_err(|e| format!("close: {e}"))?;
        let end = self.recorder.position();
        let log: Arc<[_]> = self.recorder.log().into();
        let history = |recorded: Recorded| {
            let Recorded { root, mut steps, mut views } = recorded;
            steps.push(Step { op: Op::Sync, begin, end, refused: None });
            views.extend(views.last().cloned());
            History {
                base: self.base.clone(),
                log: Arc::clone(&log),
                steps,
                views,
                root,
                block_bytes: make.block_bytes(),
                whole_writes: make.journals_data(),
                one_transaction: make.one_transaction,
                contents: None,
            }
        };
        Ok(tracks.into_iter().map(history).collect())
    }
}

/// What one thread did and read.
struct Recorded {
    root: String,
    steps: Vec<Step>,
    views: Vec<Arc<View>>,
}

/// One thread of a run.
struct Track<'a> {
    run: &'a Run,
    applier: Applier,
    recorded: Recorded,
}

impl Track<'_> {
    fn begin<'a>(run: &'a Run, root: &str) -> Result<Track<'a>, String> {
        let views = vec![Arc::new(View::of_tree(&run.fs, root)?)];
        let recorded = Recorded { root: root.to_owned(), steps: Vec::new(), views };
        Ok(Track { run, applier: Applier::new(run.fs.clone()), recorded })
    }

    fn step(&mut self, n: usize, op: &Op) -> Result<(), String> {
        let (run, recorded) = (self.run, &mut self.recorded);
        let begin = run.recorder.position();
        let refused = match self.applier.apply(n, op) {
            Ok(()) => None,
            Err(error) if is_answer(&error) => Some(error.errno()),
            Err(error) => return Err(format!("step {n}, `{op}`: {error}")),
        };
        let end = run.recorder.position();
        recorded.steps.push(Step { op: op.clone(), begin, end, refused });
        let view = View::of_tree(&run.fs, &recorded.root);
        let view = view.map_err(|e| format!("after step {n}, `{op}`: {e}"))?;
        recorded.views.push(Arc::new(view));
        Ok(())
    }

    /// Closes the files that it holds open.
    fn end(self) -> Recorded {
        self.recorded
    }
}

/// Whether an error is one that a program may get from a consistent volume.
fn is_answer(error: &Error) -> bool {
    !matches!(error, Error::Corrupt { .. } | Error::Device { .. } | Error::Aborted { .. })
}
