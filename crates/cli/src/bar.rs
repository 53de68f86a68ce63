//! Progress bars: on a terminal only, on standard error.
//!
//! ```text
//!   reading   ⠹ 52,311 entries, 2.1 GiB
//!   copying   ████████████░░░░░░░░  1.2 GiB of 2.1 GiB  1.4 GiB/s  1 s left
//! ```

use crate::amount;
use extant_image::{BuildProgress, Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("the template is well formed");
    style.progress_chars("██░")
}

fn hidden_or(quiet: bool, bar: ProgressBar) -> ProgressBar {
    // indicatif draws nothing if standard error is not a terminal.
    bar.set_draw_target(match quiet {
        true => ProgressDrawTarget::hidden(),
        false => ProgressDrawTarget::stderr_with_hz(10),
    });
    bar
}

/// A bar that counts steps and shows the remaining time.
pub(crate) fn percent(quiet: bool) -> ProgressBar {
    let bar = hidden_or(quiet, ProgressBar::new(0));
    bar.set_style(style("{msg:22} {bar:30} {percent:>3}%  {eta} left"));
    bar
}

/// A bar that counts bytes up to about `total`.
pub(crate) fn copying(total: u64) -> ProgressBar {
    let bar = hidden_or(false, ProgressBar::new(total));
    bar.set_style(style(
        "copying {bar:30} {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} \
         left",
    ));
    bar
}

/// The bar of a build. Its phases draw one after the other in the same line.
pub(crate) struct BuildBar {
    bar: ProgressBar,
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl BuildBar {
    pub(crate) fn new(quiet: bool) -> BuildBar {
        let bar = hidden_or(quiet, ProgressBar::new_spinner());
        bar.set_style(style("{msg}"));
        bar.set_message("reading");
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        BuildBar { bar, entries: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Clears the line.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn show_reading(&self) {
        if self.bar.is_hidden() {
            return;
        }
        let entries = self.entries.load(Ordering::Relaxed);
        let bytes = amount::shown(self.bytes.load(Ordering::Relaxed));
        self.bar.set_message(format!("reading   {entries} entries, {bytes}"));
    }
}

impl Progress for BuildBar {
    fn entries(&self, count: u64) {
        let before = self.entries.fetch_add(count, Ordering::Relaxed);
        // A message costs more than an entry, so it is updated once for each 256 entries.
        if before / 256 != (before + count) / 256 {
            self.show_reading();
        }
    }

    fn bytes(&self, count: u64) {
        let before = self.bytes.fetch_add(count, Ordering::Relaxed);
        if before >> 24 != (before + count) >> 24 {
            self.show_reading();
        }
    }
}

impl BuildProgress for BuildBar {
    fn phase(&self, phase: Phase, total: u64) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.reset();
        self.bar.set_length(total);
        match phase {
            Phase::Layout => {
                self.bar.set_style(style("laying out {bar:30} {human_pos} of {human_len} entries"));
            }
            Phase::Copy => self.bar.set_style(style(
                "copying    {bar:30} {binary_bytes} of {binary_total_bytes}  \
                 {binary_bytes_per_sec}  {eta} left",
            )),
            Phase::Flush => {
                self.bar.set_style(style("{msg}"));
                self.bar.set_message("flushing to disk");
            }
        }
    }

    fn laid_out(&self, count: u64) {
        self.bar.inc(count);
    }

    fn written(&self, count: u64) {
        self.bar.inc(count);
    }
}
