//! `extant replay`: recovers a volume after a crash.

use crate::failure::{Failure, explained, print_message};
use crate::image::Image;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use extant::RecoveryReport;
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Recover a volume after a crash: replay its journal, fast commits included.
///
/// Committed blocks are copied to their home locations, files that were deleted while open are
/// freed, and interrupted truncations are finished. A clean volume is not changed. The command may
/// be interrupted and repeated.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant replay crashed.img
  extant replay --json crashed.img
  extant replay 'volume.img?journal=journal.img'      an external journal

Exit status: 0 clean, 1 failed or damage was found (`extant check` lists it).")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Serialize)]
struct Answer {
    image: String,
    was_needed: bool,
    transactions: u32,
    blocks_replayed: u64,
    copies_revoked: u64,
    fast_commits: u32,
    orphans_freed: u64,
    orphans_truncated: u64,
    log_discarded: bool,
    problems: Vec<String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let report = image
            .options()
            .recover_in_place(&image.path)
            .map_err(|error| Failure::of_image(&image.name, &error))?;
        for problem in &report.problems {
            print_message(format_args!("{}: {}", Shown::path(&image.name), explained(problem)));
        }
        if !self.quiet {
            let mut out = Out::of_report();
            match self.json {
                true => out.json(&answer(&image, &report))?,
                false => {
                    out.text(format_args!("{}: {}\n", Shown::path(&image.name), summary(&report)))?;
                }
            }
            out.finish()?;
        }
        Ok(u8::from(!report.problems.is_empty()))
    }
}

fn answer(image: &Image, report: &RecoveryReport) -> Answer {
    Answer {
        image: encoded(image.name.as_os_str().as_bytes()),
        was_needed: report.was_needed,
        transactions: report.transactions,
        blocks_replayed: report.blocks_replayed,
        copies_revoked: report.copies_revoked,
        fast_commits: report.fast_commits,
        orphans_freed: report.orphans_freed,
        orphans_truncated: report.orphans_truncated,
        log_discarded: report.log_discarded,
        problems: report.problems.iter().map(explained).collect(),
    }
}

fn summary(report: &RecoveryReport) -> String {
    if !report.was_needed {
        return "clean, nothing to replay".into();
    }
    let mut parts = Vec::new();
    let mut part = |count: u64, one: &str, many: &str| {
        if count > 0 {
            parts.push(format!("{count} {}", if count == 1 { one } else { many }));
        }
    };
    part(report.transactions.into(), "transaction", "transactions");
    part(report.blocks_replayed, "block written", "blocks written");
    part(report.copies_revoked, "copy revoked", "copies revoked");
    part(report.fast_commits.into(), "fast commit", "fast commits");
    part(report.orphans_freed, "deleted file freed", "deleted files freed");
    part(report.orphans_truncated, "truncation finished", "truncations finished");
    if report.log_discarded {
        parts.push("an outdated log discarded".into());
    }
    match parts.is_empty() {
        true => "replayed: the journal was empty".into(),
        false => format!("replayed: {}", parts.join(", ")),
    }
}
