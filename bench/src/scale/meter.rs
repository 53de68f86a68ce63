//! The cost of a step: time, and the peak memory of the process.
//!
//! ```text
//!   peak reset ─► step ─► time, peak      one line of JSON on standard output
//! ```

use std::cell::Cell;
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::process::peak_kib;

/// Measures the steps of a part.
#[derive(Default)]
pub(crate) struct Meter {
    /// The largest peak so far, in MiB.
    peak: Cell<f64>,
}

impl Meter {
    /// Runs a step of `count` equal units of work, each a `per`, and prints its cost.
    pub(crate) fn step<T>(
        &self,
        step: &str,
        (count, per): (u64, &str),
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        // If the system does not permit this, the peak is that of all steps so far.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let start = Instant::now();
        let done = work()?;
        let seconds = start.elapsed().as_secs_f64();
        let peak =
            peak_kib("self").context("cannot read the largest resident memory")? as f64 / 1024.0;
        self.peak.set(self.peak.get().max(peak));
        println!(
            "{}",
            json!({"step": step, "count": count, "per": per, "seconds": seconds, "peak_mib": peak})
        );
        Ok(done)
    }

    /// Compares the largest peak with the memory for the caches plus `besides`.
    ///
    /// Errors: it was larger.
    pub(crate) fn verdict(&self, caches: u64, besides: u64) -> Result<()> {
        let (peak, caches, besides) = (self.peak.get(), caches >> 20, besides >> 20);
        let text = format!("the caches' {caches} MiB and {besides} MiB besides");
        ensure!(peak <= (caches + besides) as f64, "peak {peak:.0} MiB, above {text}");
        self.finding(&format!("peak {peak:.0} MiB, within {text}"));
        Ok(())
    }

    /// Prints a conclusion.
    pub(crate) fn finding(&self, text: &str) {
        println!("{}", json!({ "finding": text }));
    }
}
