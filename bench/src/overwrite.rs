//! `extant-bench overwrite`: small writes over bytes of a file that is in the cache.
//!
//! ```text
//!   a file of 10 MiB, made by writes of folio_bytes, so that its folios have that size
//!   write_*    at the cursor, which returns to the start at the end   writev_*  10 pieces a call
//!   pwrite_*   always at the same offset; offsets=random: anywhere
//! ```
//!
//! The cases are those of libMicro, and so is the figure: the median of batches of calls. Further
//! cases use two threads on two files, or on the halves of one. The time includes no sync, and each
//! subject's own write-back runs at the same time. The kernel is measured through system calls;
//! extant runs in the process and needs none.

mod target;

use std::fs::File;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use extant::mkfs::{MkfsOptions, format};
use extant::{Environment, FileDevice, NewFile, OpenOptions};
use serde_json::json;

use self::target::{Plain, Target};
use crate::report::{Key, Params, Report};
use crate::rig::{Mount, Scratch, is_root, load, pin, run};

/// Where, how often and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the volumes
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every case and subject once
    #[arg(long, default_value_t = 9)]
    pub(crate) rounds: usize,
    /// Milliseconds for one sample
    #[arg(long, default_value_t = 60)]
    millis: u64,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { rounds: 3, millis: 15, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan { scratch: ".".into(), rounds: 9, millis: 60 }
    }
}

const FILE_BYTES: u64 = 10 << 20;
const VOLUME_BYTES: u64 = 512 << 20;
/// Calls between two reads of the clock.
const BATCH: usize = 100;
const FOLIOS: [u64; 4] = [4 << 10, 64 << 10, 1 << 20, 2 << 20];
const PIECES: usize = 10;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Cursor,
    Fixed,
    Random,
    Vectored,
}

/// Name, access pattern, and bytes of a call or of its pieces.
const CASES: [(&str, Way, usize); 8] = [
    ("write_u1k", Way::Cursor, 1 << 10),
    ("write_u10k", Way::Cursor, 10 << 10),
    ("pwrite_u1k", Way::Fixed, 1 << 10),
    ("pwrite_u1k", Way::Random, 1 << 10),
    ("pwrite_u10k", Way::Fixed, 10 << 10),
    ("pwrite_u10k", Way::Random, 10 << 10),
    ("writev_u1k", Way::Vectored, 1 << 10),
    ("writev_u10k", Way::Vectored, 10 << 10),
];

/// libMicro, µs per call: the machine of the series before and after it, then 6.12, 6.18, 6.18 with
/// it.
const PUBLISHED: [(&str, [Option<f64>; 5]); 6] = [
    ("write_u1k", [Some(1.418), Some(0.3405), Some(0.609), Some(4.659), Some(0.528)]),
    ("write_u10k", [Some(1.887), Some(0.4175), Some(1.408), Some(4.869), Some(0.809)]),
    ("pwrite_u1k", [Some(1.6775), Some(0.3390), Some(0.609), Some(4.659), Some(0.538)]),
    ("pwrite_u10k", [Some(1.9035), Some(0.4130), Some(1.399), Some(4.889), Some(0.819)]),
    ("writev_u1k", [None, None, Some(2.238), Some(5.277), Some(1.179)]),
    ("writev_u10k", [None, None, Some(11.057), Some(8.029), Some(4.219)]),
];
const PUBLISHED_SUBJECTS: [&str; 5] =
    ["before the series", "after it", "Linux 6.12", "6.18", "6.18 with it"];

/// A volume that is open or mounted.
struct Subject {
    name: &'static str,
    place: Place,
}

enum Place {
    Extant(extant::Filesystem),
    Kernel(Mount),
    /// No volume: only copies.
    Memory,
}

impl Subject {
    fn make(&self, name: &str) -> Result<()> {
        match &self.place {
            Place::Extant(fs) => {
                fs.create_file(format!("/{name}"), &NewFile::default())?;
            }
            Place::Kernel(mount) => {
                File::create(mount.join(name))?;
            }
            Place::Memory => {}
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Result<Box<dyn Target>> {
        Ok(match &self.place {
            Place::Extant(fs) => Box::new(fs.open_file(format!("/{name}"))?),
            Place::Kernel(mount) => Box::new(File::options().write(true).open(mount.join(name))?),
            Place::Memory => Box::new(Plain::new(FILE_BYTES as usize)),
        })
    }

    /// Makes a file by writes of `folio_bytes`, before anything is measured.
    fn fill(&self, name: &str, folio_bytes: u64) -> Result<()> {
        self.make(name)?;
        let mut file = self.open(name)?;
        let bytes = vec![7; folio_bytes as usize];
        for _ in 0..FILE_BYTES / folio_bytes {
            ensure!(file.write(&bytes)? == bytes.len(), "{}: a short write", self.name);
        }
        Ok(())
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "overwrite")?;
    let mut report = Report::new("overwrite");
    report.condition(format!(
        "files of {} MiB in the cache, folios as large as the writes that made them; a figure is the median of \
         batches of {BATCH} calls, of two threads half their mean; threads pinned; nothing synced inside the time; {}",
        FILE_BYTES >> 20,
        load()
    ));
    report.condition(
        "writev: 10 pieces of 1 KiB or 10 KiB; pwrite: one place, or offsets=random; tmpfs: huge=always; \
         copy: the bytes into memory and nothing else",
    );
    report.condition("published: libMicro on other machines, folios of what size it does not say");
    let subjects = subjects(&scratch, &mut report)?;
    for subject in &subjects {
        for folio_bytes in FOLIOS {
            for file in ["a", "b"] {
                subject.fill(&format!("{file}{folio_bytes}"), folio_bytes)?;
            }
        }
    }
    for _ in 0..plan.rounds {
        for folio_bytes in FOLIOS {
            for (case, way, bytes) in CASES {
                for subject in &subjects {
                    let file = subject.open(&format!("a{folio_bytes}"))?;
                    let time = one_thread(file, way, bytes, Duration::from_millis(plan.millis))?;
                    report.sample(&key(case, subject.name, way, folio_bytes), time * 1e6);
                }
            }
        }
        for (case, one_file) in THREADS {
            for bytes in [1 << 10, 10 << 10] {
                for threads in [1, 2] {
                    for subject in &subjects {
                        let rate = together(subject, threads, one_file, bytes, plan.millis)?;
                        report.sample(&threads_key(case, subject.name, threads, bytes), 1e6 / rate);
                    }
                }
            }
        }
    }
    let (checked, volumes) = (Command::new("e2fsck").arg("--").output().is_ok(), subjects);
    for subject in volumes {
        if let Place::Extant(fs) = subject.place {
            fs.close()?;
        }
    }
    if checked {
        run(Command::new("e2fsck").arg("-fn").arg(scratch.join("extant.img")))?;
    }
    publish(&mut report);
    conclude(&mut report);
    Ok(report)
}

/// All subjects that can take part. The others are reported.
fn subjects(scratch: &Scratch, report: &mut Report) -> Result<Vec<Subject>> {
    let image = scratch.join("extant.img");
    volume(&image)?;
    let fs = OpenOptions::new().write(true).page_cache_bytes(1 << 30).open(&image)?;
    let mut subjects = vec![Subject { name: "extant", place: Place::Extant(fs) }];
    type Make<'a> = Box<dyn Fn(&Path) -> Result<Mount> + 'a>;
    let kernels: [(&'static str, Make<'_>); 3] = [
        (
            "kernel-ext4",
            Box::new(|dir| {
                let image = scratch.join("ext4.img");
                volume(&image)?;
                Mount::image(&image, dir, "ext4", true)
            }),
        ),
        (
            "kernel-xfs",
            Box::new(|dir| {
                let image = scratch.join("xfs.img");
                File::create(&image)?.set_len(VOLUME_BYTES)?;
                run(Command::new("mkfs.xfs").arg("-q").arg(&image))?;
                Mount::image(&image, dir, "xfs", true)
            }),
        ),
        ("tmpfs", Box::new(|dir| Mount::tmpfs(dir, VOLUME_BYTES))),
    ];
    for (name, make) in kernels {
        if !is_root() {
            report.condition(format!("{name} left out: only root may mount"));
            continue;
        }
        match make(&scratch.join(name)) {
            Ok(mount) => subjects.push(Subject { name, place: Place::Kernel(mount) }),
            Err(error) => report.condition(format!("{name} left out: {error:#}")),
        }
    }
    subjects.push(Subject { name: "copy", place: Place::Memory });
    Ok(subjects)
}

fn volume(image: &Path) -> Result<()> {
    let device = Arc::new(FileDevice::create(image, VOLUME_BYTES)?);
    format(device, &MkfsOptions::new(), &Environment::default())?;
    Ok(())
}

/// One kind of call, repeated within a part of a file.
struct Calls {
    file: Box<dyn Target>,
    way: Way,
    bytes: Vec<u8>,
    part: std::ops::Range<u64>,
    cursor: u64,
    seed: u64,
}

impl Calls {
    fn new(file: Box<dyn Target>, way: Way, bytes: usize, part: std::ops::Range<u64>) -> Calls {
        Calls { file, way, bytes: vec![9; bytes], cursor: part.start, part, seed: 0x5eed }
    }

    fn batch(&mut self) -> Result<()> {
        match self.way {
            Way::Cursor => self.at_cursor(false),
            Way::Vectored => self.at_cursor(true),
            Way::Fixed => {
                // Within a folio of any size, not at the start of a block.
                let at = (self.part.start + self.part.end) / 2 + 1024;
                (0..BATCH).try_for_each(|_| self.at(at))
            }
            Way::Random => (0..BATCH).try_for_each(|_| {
                self.seed = self
                    .seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let places = (self.part.end - self.part.start - self.bytes.len() as u64) >> 10;
                self.at(self.part.start + (((self.seed >> 33) % places) << 10))
            }),
        }
    }

    /// Seconds per call: the median of batches.
    fn median(&mut self, time: Duration) -> Result<f64> {
        let (begin, mut batches) = (Instant::now(), Vec::new());
        while begin.elapsed() < time || batches.len() < 3 {
            let start = Instant::now();
            self.batch()?;
            batches.push(start.elapsed().as_secs_f64());
        }
        batches.sort_by(f64::total_cmp);
        Ok(batches[batches.len() / 2] / BATCH as f64)
    }

    fn at(&mut self, offset: u64) -> Result<()> {
        ensure!(self.file.pwrite(offset, &self.bytes)? == self.bytes.len(), "a short write");
        Ok(())
    }

    fn at_cursor(&mut self, vectored: bool) -> Result<()> {
        let pieces = [IoSlice::new(&self.bytes); PIECES];
        let len = self.bytes.len() * if vectored { PIECES } else { 1 };
        for _ in 0..BATCH {
            if self.cursor + len as u64 > self.part.end {
                self.file.rewind()?;
                self.cursor = 0;
            }
            let done = match vectored {
                true => self.file.writev(&pieces)?,
                false => self.file.write(&self.bytes)?,
            };
            ensure!(done == len, "a short write");
            self.cursor += len as u64;
        }
        Ok(())
    }
}

/// Seconds per call.
fn one_thread(file: Box<dyn Target>, way: Way, bytes: usize, time: Duration) -> Result<f64> {
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            pin(0);
            let mut calls = Calls::new(file, way, bytes, 0..FILE_BYTES);
            calls.batch()?;
            calls.median(time)
        });
        work.join().expect("a bench thread panicked")
    })
}

/// Case, and whether the threads share a file.
const THREADS: [(&str, bool); 2] = [("different_files", false), ("one_file", true)];
/// Folio size of the files that threads write to.
const THREADS_FOLIO: u64 = 1 << 20;

/// Calls per second of all threads together, from the median of each thread. Each writes at random
/// offsets within its own half.
fn together(
    subject: &Subject,
    threads: usize,
    one_file: bool,
    bytes: usize,
    millis: u64,
) -> Result<f64> {
    let barrier = Barrier::new(threads);
    let half = FILE_BYTES / 2;
    let mut all = Vec::new();
    for n in 0..threads {
        let name = if one_file || n == 0 { "a" } else { "b" };
        let file = subject.open(&format!("{name}{THREADS_FOLIO}"))?;
        let part = n as u64 * half..(n as u64 + 1) * half;
        all.push(Calls::new(file, Way::Random, bytes, part));
    }
    std::thread::scope(|scope| {
        let run = |(n, mut calls): (usize, Calls)| {
            let barrier = &barrier;
            move || -> Result<f64> {
                pin(n);
                let warm = calls.batch();
                barrier.wait();
                warm?;
                Ok(calls.median(Duration::from_millis(millis))?.recip())
            }
        };
        let running: Vec<_> =
            all.into_iter().enumerate().map(|calls| scope.spawn(run(calls))).collect();
        let rates =
            running.into_iter().map(|thread| thread.join().expect("a bench thread panicked"));
        rates.sum()
    })
}

fn key(case: &'static str, subject: &'static str, way: Way, folio_bytes: u64) -> Key {
    let mut params = Params::from([("folio_bytes", json!(folio_bytes))]);
    if way == Way::Random {
        params.insert("offsets", json!("random"));
    }
    Key { case, subject, metric: "us_per_call", params }
}

fn threads_key(case: &'static str, subject: &'static str, threads: usize, bytes: usize) -> Key {
    let params = Params::from([
        ("folio_bytes", json!(THREADS_FOLIO)),
        ("threads", json!(threads)),
        ("call_bytes", json!(bytes)),
    ]);
    Key { case, subject, metric: "us_per_call", params }
}

fn publish(report: &mut Report) {
    for (case, figures) in PUBLISHED {
        for (subject, figure) in PUBLISHED_SUBJECTS.into_iter().zip(figures) {
            if let Some(figure) = figure {
                report.publish(key(case, subject, Way::Cursor, 1 << 20), figure);
            }
        }
    }
}

fn conclude(report: &mut Report) {
    let mut findings = Vec::new();
    for (case, way, _) in CASES {
        let case_name =
            if way == Way::Random { format!("{case} at random") } else { case.to_string() };
        let of = |subject, folio_bytes| report.median(&key(case, subject, way, folio_bytes));
        let own: Vec<f64> = FOLIOS.into_iter().filter_map(|bytes| of("extant", bytes)).collect();
        let least = own.iter().copied().fold(f64::INFINITY, f64::min);
        let most = own.iter().copied().fold(0.0, f64::max);
        let mut line =
            format!("{case_name}: all folio sizes within {:.0} %", 100.0 * (most / least - 1.0));
        for other in ["kernel-ext4", "kernel-xfs", "tmpfs", "copy"] {
            if let (Some(own), Some(theirs)) = (of("extant", 1 << 20), of(other, 1 << 20)) {
                line += &format!("; at 1 MiB {:.2} times as fast as {other}", theirs / own);
            }
        }
        findings.push(line);
    }
    for (case, _) in THREADS {
        for bytes in [1 << 10, 10 << 10] {
            let mut line = format!("two threads, {}, {} KiB:", case.replace('_', " "), bytes >> 10);
            for subject in ["extant", "kernel-ext4", "kernel-xfs", "tmpfs"] {
                let of = |threads| report.median(&threads_key(case, subject, threads, bytes));
                if let (Some(one), Some(two)) = (of(1), of(2)) {
                    line += &format!(" {subject} {:.2} times one;", one / two);
                }
            }
            findings.push(line.trim_end_matches(';').to_string());
        }
    }
    for finding in findings {
        report.finding(finding);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_gives_every_figure_of_extant() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan { scratch: dir.path().into(), rounds: 1, millis: 1 };
        let report = measure(&plan).unwrap();
        for (case, way, _) in CASES {
            for folio_bytes in FOLIOS {
                assert!(report.median(&key(case, "extant", way, folio_bytes)).is_some());
            }
        }
        drop(report);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
