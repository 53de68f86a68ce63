//! What a step took: time, and the most memory the process had.
//!
//! ```text
//!   peak forgotten ─► step ─► time, peak      one line of JSON on standard output
//! ```

use std::fs;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;

/// Times steps of a part.
pub(crate) struct Meter;

impl Meter {
    /// Does a step of `count` equal units of work and prints what it took.
    pub(crate) fn step<T>(
        &self,
        step: &str,
        count: u64,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        // Refused where the system does not let processes do this: the peak is then that of all steps so far.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let start = Instant::now();
        let done = work()?;
        let seconds = start.elapsed().as_secs_f64();
        let peak = peak_mib();
        println!("{}", json!({"step": step, "count": count, "seconds": seconds, "peak_mib": peak}));
        Ok(done)
    }

    /// States what follows.
    pub(crate) fn finding(&self, text: &str) {
        println!("{}", json!({ "finding": text }));
    }
}

/// Largest resident memory since the peak was forgotten.
pub(crate) fn peak_mib() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}
