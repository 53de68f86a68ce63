//! One run: each writer writes its part of the bytes, then everything is made durable.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use anyhow::{Result, ensure};
use extant_blockdev::AlignedBuf;

use super::subject::{Handle, Volume};

/// Parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Job {
    pub random: bool,
    pub writers: usize,
    pub call_bytes: usize,
    pub shared_file: bool,
    /// Bytes written by all writers.
    pub total: u64,
}

/// Results of a run.
pub(crate) struct Outcome {
    /// From the first call until everything is durable.
    pub seconds: f64,
    /// Duration of each call, in ascending order.
    pub latencies: Vec<f64>,
}

impl Outcome {
    /// Duration in seconds that `share` (0..=1) of the calls did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((share * last as f64).ceil() as usize).copied().unwrap_or(f64::NAN)
    }
}

/// The name of a writer's file.
fn name(job: &Job, writer: usize) -> String {
    format!("file{}", if job.shared_file { 0 } else { writer })
}

/// Creates or opens the files of all writers.
fn handles(volume: &dyn Volume, job: &Job) -> Result<Vec<Arc<dyn Handle>>> {
    let files = if job.shared_file { 1 } else { job.writers };
    let len = job.total / files as u64;
    let mut handles: Vec<Arc<dyn Handle>> = Vec::new();
    for writer in 0..job.writers {
        handles.push(match job.shared_file && writer > 0 {
            true => Arc::clone(&handles[0]),
            false if job.random => volume.open(&name(job, writer))?,
            false => volume.create(&name(job, writer), len)?,
        });
    }
    Ok(handles)
}

/// Offsets of a writer's calls, in order.
fn offsets(job: &Job, writer: usize) -> Vec<u64> {
    let calls = job.total / job.call_bytes as u64;
    let each = calls / job.writers as u64;
    let mut all: Vec<u64> = match (job.shared_file, job.random) {
        // All threads write at random offsets in the same range, none twice.
        (true, true) => (0..calls).collect(),
        (true, false) => (writer as u64 * each..(writer as u64 + 1) * each).collect(),
        (false, _) => (0..each).collect(),
    };
    if job.random {
        shuffle(&mut all);
    }
    if job.shared_file && job.random {
        all = all.into_iter().skip(writer).step_by(job.writers).collect();
    }
    all.into_iter().map(|call| call * job.call_bytes as u64).collect()
}

/// Shuffles in an order that is the same every time.
fn shuffle(calls: &mut [u64]) {
    let mut seed = 0x5eed_u64;
    for n in (1..calls.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        calls.swap(n, (seed >> 33) as usize % (n + 1));
    }
}

/// Runs the writers.
pub(crate) fn write(volume: &dyn Volume, job: &Job) -> Result<Outcome> {
    let handles = handles(volume, job)?;
    let barrier = Barrier::new(job.writers);
    let parts: Vec<_> = (0..job.writers).map(|writer| offsets(job, writer)).collect();
    let mut latencies = Vec::new();
    let mut first: Option<Instant> = None;
    std::thread::scope(|scope| -> Result<()> {
        let run = |(handle, offsets): (&Arc<dyn Handle>, Vec<u64>)| {
            let (handle, barrier) = (Arc::clone(handle), &barrier);
            move || -> Result<(Instant, Vec<f64>)> {
                let mut bytes = AlignedBuf::zeroed(job.call_bytes);
                bytes.fill(5);
                let mut latencies = Vec::with_capacity(offsets.len());
                barrier.wait();
                let start = Instant::now();
                let mut last = start;
                for offset in offsets {
                    handle.write_at(offset, &bytes)?;
                    let now = Instant::now();
                    latencies.push((now - last).as_secs_f64());
                    last = now;
                }
                if !job.shared_file {
                    handle.sync()?;
                }
                Ok((start, latencies))
            }
        };
        let threads: Vec<_> =
            handles.iter().zip(parts).map(|writer| scope.spawn(run(writer))).collect();
        for thread in threads {
            let (start, own) = thread.join().expect("a bench thread panicked")?;
            first = Some(first.map_or(start, |first| first.min(start)));
            latencies.extend(own);
        }
        Ok(())
    })?;
    if job.shared_file {
        handles[0].sync()?;
    }
    let seconds = first.map_or(f64::NAN, |first| first.elapsed().as_secs_f64());
    latencies.sort_by(f64::total_cmp);
    Ok(Outcome { seconds, latencies })
}

/// Reads the first `len` bytes of the first writer's file, from start to end. Returns seconds.
pub(crate) fn read(volume: &dyn Volume, job: &Job) -> Result<f64> {
    let file = volume.reader(&name(job, 0))?;
    let mut buf = AlignedBuf::zeroed(job.call_bytes);
    let start = Instant::now();
    let mut offset = 0;
    while offset < job.total {
        let n = file.read_at(offset, &mut buf)?;
        ensure!(n > 0, "the file ends at {offset}");
        offset += n as u64;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// Name of the file that readers read.
const READ: &str = "read";
const READ_CALL: usize = 64 << 10;

/// Creates the reader's file.
pub(crate) fn prepare_reader(volume: &dyn Volume, len: u64) -> Result<()> {
    let file = volume.create(READ, len)?;
    let bytes = AlignedBuf::zeroed(1 << 20);
    for offset in (0..len).step_by(bytes.len()) {
        file.write_at(offset, &bytes)?;
    }
    file.sync()
}

/// Runs the writers and one ordinary reader of a file that is not in the cache. Returns the
/// writers' result, the reader's result, and the number of bytes that the reader's seconds are for.
pub(crate) fn write_and_read(volume: &dyn Volume, job: &Job) -> Result<(Outcome, Outcome, u64)> {
    let file = volume.reader(READ)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let reader = scope.spawn(move || -> Result<(Outcome, u64)> {
            let mut buf = AlignedBuf::zeroed(READ_CALL);
            let (mut offset, mut latencies) = (0, Vec::new());
            let start = Instant::now();
            let mut last = start;
            while !over.load(Ordering::Relaxed) {
                let n = file.read_at(offset, &mut buf)?;
                let now = Instant::now();
                if n == 0 {
                    break;
                }
                latencies.push((now - last).as_secs_f64());
                last = now;
                offset += n as u64;
            }
            latencies.sort_by(f64::total_cmp);
            Ok((Outcome { seconds: (last - start).as_secs_f64(), latencies }, offset))
        });
        let written = write(volume, job);
        over.store(true, Ordering::Relaxed);
        let (read, bytes) = reader.join().expect("a bench thread panicked")?;
        Ok((written?, read, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_written_once() {
        for (random, shared_file) in [(false, false), (false, true), (true, false), (true, true)] {
            let job = Job { random, writers: 4, call_bytes: 1 << 16, shared_file, total: 1 << 24 };
            let mut all: Vec<u64> = (0..job.writers)
                .flat_map(|writer| {
                    let file = if shared_file { 0 } else { writer as u64 * (job.total / 4) };
                    offsets(&job, writer).into_iter().map(move |offset| file + offset)
                })
                .collect();
            all.sort_unstable();
            let want: Vec<u64> = (0..job.total).step_by(job.call_bytes).collect();
            assert_eq!(all, want, "random {random}, shared {shared_file}");
        }
    }
}
