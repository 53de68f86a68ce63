//! CRC32C of whole messages, and updates after a change: `full`, `flip`, `splice_12`, `splice_264`,
//! `combine`.
//!
//! ```text
//!   ns_throughput   call(input 0)   call(input 1)   call(input 2) …     independent calls
//!   ns_latency      call(input 0) ─► call(input 1) ─► call(input 2) …   each input waits for the
//!                                                                       last result
//! ```
//!
//! The dependent input is the one that a chain of such calls passes on:
//!
//! | case | waits for the last result |
//! |---|---|
//! | `full` | the seed and the location of the message: a checksum waits for the change it covers |
//! | `flip` | the range |
//! | `splice` | the range and both regions |
//! | `combine` | the first checksum |
//!
//! Inputs are random ranges of a buffer of `bytes`. There is one thread, and code, tables and
//! buffer are warm in the caches. The calls are those that a user makes, with the choice of backend
//! and the bounds checks. Before any clock runs, all subjects of a case must give the same result.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use crc_fast::{CrcAlgorithm, Digest};
use extant_crc32c::portable;
use serde_json::json;

use crate::published;
use crate::report::{Key, Params, Report, digits};

const THROUGHPUT: &str = "ns_throughput";
const LATENCY: &str = "ns_latency";

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    rounds: usize,
    /// Duration of one sample.
    sample_ns: f64,
    sizes: &'static [usize],
}

impl Plan {
    /// The whole bench, or one that ends within 60 s.
    pub(crate) fn new(quick: bool) -> Self {
        const SIZES: [usize; 9] = [8, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 524_288];
        if quick {
            Plan { rounds: 5, sample_ns: 2e5, sizes: &SIZES }
        } else {
            Plan { rounds: 21, sample_ns: 2e6, sizes: &SIZES }
        }
    }
}

/// One figure to measure: `run(n)` makes n calls and returns the xor of their results.
struct Subject {
    key: Key,
    run: Box<dyn Fn(usize) -> u32>,
    calls: usize,
}

/// Number of inputs that a sample cycles through: too many for a branch predictor to learn.
const INPUTS: usize = 4096;

/// Size of the window that contains the regions of a splice.
const WINDOW_BYTES: usize = 4096;

/// Data that the subjects of all cases read.
#[derive(Clone)]
struct Setting {
    bytes: usize,
    old: &'static [u8],
    new: &'static [u8],
    ranges: &'static [Range; INPUTS],
}

/// A random input.
#[derive(Clone, Copy)]
struct Range {
    bit_offset: u32,
    bit_count: u32,
    /// Bytes after it, for `splice` and `combine`.
    trailing: u32,
    crcs: [u32; 2],
}

/// A random region that changed.
struct Region {
    offset: u32,
    crc: u32,
    old: &'static [u8],
    new: &'static [u8],
}

/// splitmix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Setting {
    fn new(bytes: usize) -> Self {
        let mut state = bytes as u64;
        let bits = 8 * bytes as u64;
        let range = |_: usize| {
            let bit_offset = random(&mut state) % bits;
            let trailing = (random(&mut state) % bytes as u64) as u32;
            Range {
                bit_offset: bit_offset as u32,
                bit_count: (1 + random(&mut state) % (bits - bit_offset)) as u32,
                trailing,
                // The raw CRC of no bytes is 0, and some subjects rely on it.
                crcs: [
                    random(&mut state) as u32,
                    (random(&mut state) as u32) * u32::from(trailing != 0),
                ],
            }
        };
        let ranges = Box::new(std::array::from_fn(range));
        let mut buffer = || -> &'static [u8] {
            // Extra bytes after the buffer, for regions that start anywhere in it. The few buffers
            // of a run are never freed.
            (0..bytes.max(WINDOW_BYTES) + 512)
                .map(|_| random(&mut state) as u8)
                .collect::<Vec<_>>()
                .leak()
        };
        Setting { bytes, old: buffer(), new: buffer(), ranges: Box::leak(ranges) }
    }
}

/// The two subjects, throughput and latency, of a call that takes an input, a checksum and a zero.
/// For latency, the checksum is the last result, and the zero is known only after the last call.
fn subjects<T>(
    case: &'static str,
    subject: &'static str,
    bytes: usize,
    inputs: &'static [T; INPUTS],
    call: impl Fn(&T, u32, u32) -> u32 + Copy + 'static,
) -> [Subject; 2] {
    let params = Params::from([("bytes", json!(bytes))]);
    let key = |metric| Key { case, subject, metric, params: params.clone() };
    let throughput = move |calls: usize| {
        let zero = black_box(0);
        let mut sum = 0;
        for index in 0..calls {
            sum ^= call(&inputs[index % INPUTS], index as u32, zero);
        }
        sum
    };
    let latency = move |calls: usize| {
        let zero = black_box(0);
        let (mut sum, mut last) = (0, 0);
        for index in 0..calls {
            last = call(&inputs[index % INPUTS], last, last & zero);
            sum ^= last;
        }
        sum
    };
    [
        Subject { key: key(THROUGHPUT), run: Box::new(throughput), calls: 64 },
        Subject { key: key(LATENCY), run: Box::new(latency), calls: 64 },
    ]
}

/// Every case at one size.
fn all_subjects(setting: &Setting) -> Vec<Subject> {
    let mut all = Vec::new();
    full(setting, &mut all);
    flip(setting, &mut all);
    splice(setting, "splice_12", 12, &mut all);
    splice(setting, "splice_264", 264, &mut all);
    combine(setting, &mut all);
    all
}

fn full(setting: &Setting, all: &mut Vec<Subject>) {
    let &Setting { bytes, old, ranges, .. } = setting;
    let message = move |zero: u32| &old[zero as usize..][..bytes];
    let add = |all: &mut Vec<Subject>, pair: [Subject; 2]| all.extend(pair);
    add(
        all,
        subjects("full", "extant", bytes, ranges, move |_, sum, zero| {
            extant_crc32c::crc32c(sum, message(zero))
        }),
    );
    add(
        all,
        subjects("full", "extant-portable", bytes, ranges, move |_, sum, zero| {
            portable::crc32c(sum, message(zero))
        }),
    );
    add(
        all,
        subjects("full", "crc-fast", bytes, ranges, move |_, sum, zero| {
            let seed = u64::from(sum);
            let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, seed);
            digest.update(message(zero));
            digest.get_state() as u32
        }),
    );
    add(
        all,
        subjects("full", "crc32c", bytes, ranges, move |_, sum, zero| {
            // This crate uses inverted registers.
            !crc32c::crc32c_append(!(sum), message(zero))
        }),
    );
}

fn flip(setting: &Setting, all: &mut Vec<Subject>) {
    let &Setting { bytes, ranges, .. } = setting;
    let bits = 8 * bytes as u64;
    all.extend(subjects("flip", "extant", bytes, ranges, move |range, _, zero| {
        let offset = u64::from(range.bit_offset + zero);
        extant_crc32c::flip_range(range.crcs[0], bits, offset, range.bit_count.into())
    }));
    all.extend(subjects("flip", "extant-portable", bytes, ranges, move |range, _, zero| {
        let offset = u64::from(range.bit_offset + zero);
        range.crcs[0] ^ portable::flip_delta(bits, offset, range.bit_count.into())
    }));
    if bits <= u64::from(published::MOST_BITS) {
        all.extend(subjects("flip", "published-method", bytes, ranges, move |range, _, zero| {
            let offset = range.bit_offset + zero;
            published::flip_range(range.crcs[0], bits as u32, offset, range.bit_count)
        }));
    }
}

fn splice(setting: &Setting, case: &'static str, len: usize, all: &mut Vec<Subject>) {
    let &Setting { bytes, old, new, ranges } = setting;
    if bytes < len {
        return;
    }
    // The regions are in a window of 4 KiB, whatever the range: their bytes were just written and
    // would be in the first-level cache.
    let region = |range: &Range| {
        let place = range.bit_count as usize % WINDOW_BYTES;
        Region {
            offset: range.trailing.min((bytes - len) as u32),
            crc: range.crcs[0],
            old: &old[place..][..len],
            new: &new[place..][..len],
        }
    };
    let regions: &'static [Region; INPUTS] = Box::leak(Box::new(ranges.each_ref().map(region)));
    all.extend(subjects(case, "extant", bytes, regions, move |region, _, zero| {
        let &Region { offset, crc, old, new } = region;
        let zero = zero as usize;
        extant_crc32c::splice(crc, bytes, offset as usize + zero, &old[zero..], &new[zero..])
    }));
    all.extend(subjects(case, "extant-portable", bytes, regions, move |region, _, zero| {
        let &Region { offset, crc, old, new } = region;
        let zero = zero as usize;
        let trailing = bytes - (offset as usize + zero) - old.len();
        crc ^ portable::splice_delta(trailing as u64, &old[zero..], &new[zero..])
    }));
    if 8 * bytes <= published::MOST_BITS as usize {
        all.extend(subjects(case, "published-method", bytes, regions, move |region, _, zero| {
            let &Region { offset, crc, old, new } = region;
            let zero = zero as usize;
            let trailing = bytes - (offset as usize + zero) - old.len();
            published::splice(crc, trailing as u32, &old[zero..], &new[zero..])
        }));
    }
}

fn combine(setting: &Setting, all: &mut Vec<Subject>) {
    let &Setting { bytes, ranges, .. } = setting;
    all.extend(subjects("combine", "extant", bytes, ranges, move |range, sum, _| {
        extant_crc32c::combine(sum, range.crcs[1], range.trailing.into())
    }));
    all.extend(subjects("combine", "extant-portable", bytes, ranges, move |range, sum, _| {
        portable::combine(sum, range.crcs[1], range.trailing.into())
    }));
    all.extend(subjects("combine", "crc-fast", bytes, ranges, move |range, sum, _| {
        let crcs = [sum, range.crcs[1]].map(u64::from);
        let algorithm = CrcAlgorithm::Crc32Iscsi;
        crc_fast::checksum_combine(algorithm, crcs[0], crcs[1], range.trailing.into()) as u32
    }));
    all.extend(subjects("combine", "crc32c", bytes, ranges, move |range, sum, _| {
        let crcs = [sum, range.crcs[1]];
        crc32c::crc32c_combine(crcs[0], crcs[1], range.trailing as usize)
    }));
    if 8 * bytes <= published::MOST_BITS as usize {
        all.extend(subjects("combine", "published-method", bytes, ranges, move |range, sum, _| {
            published::combine(sum, range.crcs[1], range.trailing)
        }));
    }
}

/// Runs the bench.
///
/// Errors: two subjects of one case give different results.
pub(crate) fn run(plan: Plan) -> Result<Report> {
    let settings: Vec<Setting> = plan.sizes.iter().map(|bytes| Setting::new(*bytes)).collect();
    let mut subjects: Vec<Subject> = settings.iter().flat_map(all_subjects).collect();
    let hash = agreed_hash(&subjects)?;
    for subject in &mut subjects {
        subject.calls = calls_for(subject, plan.sample_ns);
    }

    let mut report = Report::new("crc");
    report.condition("one thread; code, tables and buffer warm in the caches; random ranges; nothing is made durable");
    report.condition(format!("the subjects agree; hash of their results {hash:08x}"));
    for _ in 0..plan.rounds {
        for subject in &subjects {
            report.sample(&subject.key, timed(subject, subject.calls) / subject.calls as f64);
        }
    }
    publish(&mut report, plan);
    compare(&mut report, plan);
    Ok(report)
}

/// Nanoseconds for `calls` calls.
fn timed(subject: &Subject, calls: usize) -> f64 {
    let start = Instant::now();
    black_box((subject.run)(black_box(calls)));
    start.elapsed().as_nanos() as f64
}

/// Number of calls that fill `sample_ns`. Warms up at the same time.
fn calls_for(subject: &Subject, sample_ns: f64) -> usize {
    let mut calls = 64;
    loop {
        let elapsed = timed(subject, calls);
        if elapsed >= sample_ns / 4.0 || calls >= 1 << 24 {
            let wanted = calls as f64 * sample_ns / elapsed.max(1.0);
            return (wanted as usize).clamp(16, 1 << 24);
        }
        calls *= 2;
    }
}

/// Compares every subject of a case with the first one. Returns a hash of the common results.
fn agreed_hash(subjects: &[Subject]) -> Result<u32> {
    const CALLS: usize = 100;
    let mut hash = !0;
    let mut firsts: Vec<(&Key, u32)> = Vec::new();
    for Subject { key, run, .. } in subjects {
        let result = run(CALLS);
        match firsts.iter().find(|(first, _)| first.same_line(key)) {
            Some((first, want)) => ensure!(
                result == *want,
                "{} and {} disagree on {} of {:?}: {want:08x}, {result:08x}",
                first.subject,
                key.subject,
                key.case,
                key.params
            ),
            None => {
                firsts.push((key, result));
                hash = extant_crc32c::crc32c(hash, &result.to_le_bytes());
            }
        }
    }
    Ok(hash)
}

fn key(case: &'static str, subject: &'static str, metric: &'static str, bytes: usize) -> Key {
    Key { case, subject, metric, params: Params::from([("bytes", json!(bytes))]) }
}

/// The figures of the published series, measured by its author on an Ice Lake Xeon.
fn publish(report: &mut Report, plan: Plan) {
    const FLIPS: [(usize, f64, f64); 4] =
        [(1024, 46.0, 48.0), (4096, 181.0, 58.0), (16_384, 707.0, 68.0), (65_536, 2846.0, 79.0)];
    for (bytes, full, flip) in FLIPS.into_iter().filter(|(bytes, ..)| plan.sizes.contains(bytes)) {
        report.publish(key("full", "kernel, Ice Lake", THROUGHPUT, bytes), full);
        report.publish(key("flip", "kernel series, Ice Lake", THROUGHPUT, bytes), flip);
        report.publish(key("splice_12", "kernel series, Ice Lake", THROUGHPUT, bytes), 9.0);
        report.publish(key("splice_264", "kernel series, Ice Lake", THROUGHPUT, bytes), 53.0);
    }
}

/// Compares the figures with each other.
fn compare(report: &mut Report, plan: Plan) {
    for metric in [THROUGHPUT, LATENCY] {
        for bytes in plan.sizes.iter().copied().filter(|bytes| *bytes >= 1024) {
            let of = |case, subject| report.median(&key(case, subject, metric, bytes));
            let Some(flip) = of("flip", "extant") else { continue };
            let full = ["extant", "crc-fast", "crc32c"]
                .into_iter()
                .filter_map(|subject| Some((of("full", subject)?, subject)))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            let mut text = format!("{metric}, {} KiB: extant's flip is", bytes / 1024);
            if let Some((full, subject)) = full {
                let times = digits(full / flip);
                text += &format!(" {times} times as fast as the fastest full sum ({subject})");
            }
            if let Some(published) = of("flip", "published-method") {
                text += &format!(
                    ", {} times as fast as the published method",
                    digits(published / flip)
                );
            }
            report.finding(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bench_runs_and_its_subjects_agree() {
        let plan = Plan { rounds: 1, sample_ns: 1e3, sizes: &[8, 64, 1024, 131_072] };
        let settings: Vec<Setting> = plan.sizes.iter().map(|bytes| Setting::new(*bytes)).collect();
        let subjects: Vec<Subject> = settings.iter().flat_map(all_subjects).collect();
        let hash = agreed_hash(&subjects).expect("the subjects agree");
        println!("hash of the results: {hash:08x}");
        let report = run(plan).expect("the bench runs");
        let flip = report.median(&key("flip", "extant", LATENCY, 1024));
        assert!(flip.is_some_and(|ns| ns > 0.0));
        assert!(report.median(&key("flip", "published-method", LATENCY, 131_072)).is_none());
    }
}
