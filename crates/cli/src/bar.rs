//! Progress bars: on a terminal only, on standard error.
//!
//! ```text
//!   reading   ⠹ 52,311 entries, 2.1 GiB
//!   copying   ████████████░░░░░░░░  1.2 GiB of 2.1 GiB  1.4 GiB/s  1 s left
//! ```

use crate::amount;
use extant::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);
/// Shows the share that is done and the remaining time.
const PERCENT: &str = "{msg:22} {bar:30} {percent:>3}%  {eta} left";

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
    bar.set_style(style(PERCENT));
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

/// The bar of long work. Its phases draw one after the other in the same line.
pub(crate) struct Bar {
    bar: ProgressBar,
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl Bar {
    pub(crate) fn new(quiet: bool) -> Bar {
        let bar = hidden_or(quiet, ProgressBar::new_spinner());
        Bar { bar, entries: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// A bar of work that begins with reading sources.
    pub(crate) fn of_build(quiet: bool) -> Bar {
        let bar = Bar::new(quiet);
        bar.bar.set_style(style("{msg}"));
        bar.bar.set_message("reading");
        if !bar.bar.is_hidden() {
            bar.bar.enable_steady_tick(TICK);
        }
        bar
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

impl Progress for Bar {
    fn begin(&self, phase: Phase, total: u64) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.reset();
        let name = match phase {
            Phase::BuildList | Phase::BuildRead => return self.show_reading(),
            Phase::BuildLayout => {
                self.bar.set_length(total);
                self.bar.set_style(style("laying out {bar:30} {human_pos} of {human_len} entries"));
                return;
            }
            Phase::BuildCopy | Phase::RepairCopy => {
                self.bar.set_length(total);
                self.bar.set_style(style(
                    "copying    {bar:30} {binary_bytes} of {binary_total_bytes}  \
                     {binary_bytes_per_sec}  {eta} left",
                ));
                return;
            }
            Phase::BuildFlush => {
                self.bar.set_style(style("{msg}"));
                self.bar.set_message("flushing to disk");
                return;
            }
            Phase::CheckGroups => "pass 0: groups",
            Phase::CheckInodes => "pass 1: inodes",
            Phase::CheckDirectories => "pass 2: directories",
            Phase::CheckConnectivity => "pass 3: reachability",
            Phase::CheckCounts => "pass 4: counts",
            Phase::CheckBitmaps => "pass 5: bitmaps",
            Phase::CheckData => "pass 6: data",
            Phase::SurveyGroups => "groups",
            Phase::SurveyNames => "files",
            Phase::UndeleteLog => "journal",
            Phase::UndeleteTables => "inodes",
            Phase::Dump => "copying",
            Phase::RepairSearch => "superblocks",
            Phase::ScrubResync => "resync",
            Phase::ScrubCompare => "comparing",
            Phase::ScrubJudge => "checking",
            Phase::ResizeMove | Phase::ResizeGrow => "resizing",
            _ => "",
        };
        self.bar.set_length(total);
        self.bar.set_style(style(PERCENT));
        self.bar.set_message(name);
    }

    fn advance(&self, phase: Phase, amount: u64) {
        // A message costs more than an entry or a byte, so it is updated now and then.
        match phase {
            Phase::BuildList => {
                let before = self.entries.fetch_add(amount, Ordering::Relaxed);
                if before / 256 != (before + amount) / 256 {
                    self.show_reading();
                }
            }
            Phase::BuildRead => {
                let before = self.bytes.fetch_add(amount, Ordering::Relaxed);
                if before >> 24 != (before + amount) >> 24 {
                    self.show_reading();
                }
            }
            _ => self.bar.inc(amount),
        }
    }
}
