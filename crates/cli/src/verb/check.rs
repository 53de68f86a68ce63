//! `extant check`: checks a volume.

use crate::bar::Bar;
use crate::failure::{Failure, is_no_volume, print_message};
use crate::image::{Image, image_message};
use crate::out::Out;
use crate::shown::{Shown, encoded};
use crate::{amount, signature};
use extant::check::{Finding, Options, Report, Severity, Stats, check_device};
use extant::raid::Assembled;
use extant::{Error, FileOptions, Site};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const CLEAN: u8 = 0;
const TROUBLE: u8 = 8;

/// Check a volume without changing it.
///
/// Runs the tests of e2fsck's passes 1 to 5 and compares all checksums, on all processors. If the
/// volume was not unmounted, its journal is replayed in memory first. Each finding is one line on
/// standard output: what is wrong, and where. Findings are sorted.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant check disk.img
  extant check --json disk.img | jq -r 'select(.ino) | .ino'
  extant check 'sd.img?offset=1M' && echo clean
  extant check --data backup.img

Exit status: 0 clean, 4 damage was found, 8 the volume could not be checked, 2 wrong usage.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Print one JSON object per finding, then one with totals (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Number of threads; default: the number of processors
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Maximum number of findings to print; the rest are counted
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = amount::number::<usize>)]
    max_findings: usize,
    /// Check the volume as it is on disk, without replaying its journal in memory
    #[arg(long)]
    no_replay: bool,
    /// Also read all data and compare its checksums (data_csum)
    #[arg(long)]
    data: bool,
    /// Print findings only
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct FindingLine<'a> {
    finding: &'static str,
    severity: &'static str,
    message: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ino: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

#[derive(Serialize)]
struct LastLine {
    status: &'static str,
    image: String,
    findings: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(flatten)]
    counts: Option<Counts>,
}

#[derive(Serialize)]
struct Counts {
    errors: u64,
    notes: u64,
    omitted: u64,
    replayed: bool,
    inodes: u64,
    inodes_used: u64,
    files: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    fragmented: u64,
    names: u64,
    blocks: u64,
    blocks_used: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_members: Option<Vec<u16>>,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let report = Image::parse(&self.image).and_then(|image| {
            let report = self.check(&image);
            let report = report.map_err(|error| Failure::of_image(&image.name, &error))?;
            let found = |finding: &Finding| finding.at.corrupt(finding.what);
            if let Some(error) = report.0.findings.iter().map(found).find(is_no_volume)
                && !report.0.ran
            {
                let mut text = image_message(&image.name, &error);
                if matches!(signature::known(&image.path, image.offset), Ok(None)) {
                    text += "; if the superblock is damaged, IMG?backup=1 uses its copy in block \
                             group 1";
                }
                return Err(Failure::Message(text));
            }
            Ok((image, report))
        });
        match report {
            Ok((image, (report, missing))) => self.answer(&image, &report, missing),
            Err(Failure::Message(text)) => {
                print_message(&text);
                if self.json {
                    let mut out = Out::of_report();
                    out.json(&self.last_line("trouble", 0, Some(text), None))?;
                    out.finish()?;
                }
                Ok(TROUBLE)
            }
            Err(other) => Err(other),
        }
    }

    /// The report, and the missing members of a mirror.
    fn check(&self, image: &Image) -> Result<(Report, Option<Vec<u16>>), Error> {
        let assembled = image.options().assemble(&image.path)?;
        let device = assembled.device();
        let mut options = Options {
            findings_limit: self.max_findings,
            recover: !self.no_replay,
            data: self.data,
            ..Options::default()
        };
        if let Some(threads) = self.threads {
            options.threads = threads.into();
        }
        if let Some(journal) = &image.journal {
            options.journal = Some(Arc::new(FileOptions::new().open(journal)?));
        }
        let bar = Bar::new(self.quiet);
        let report = check_device(device, &options, &bar);
        bar.clear();
        let missing = match assembled {
            Assembled::Mirrored(mirror) => Some(mirror.unused()),
            _ => None,
        };
        Ok((report?, missing))
    }

    fn answer(
        &self,
        image: &Image,
        report: &Report,
        missing: Option<Vec<u16>>,
    ) -> Result<u8, Failure> {
        let mut out = Out::of_report();
        for finding in &report.findings {
            match self.json {
                true => out.json(&line(finding))?,
                false => out.text(format_args!("{}\n", text_of(finding)))?,
            }
        }
        let code = u8::try_from(report.exit_code()).unwrap_or(TROUBLE);
        let status = match code {
            CLEAN => "clean",
            TROUBLE => "trouble",
            _ => "errors",
        };
        if self.json {
            let message = (!report.ran).then(|| "the volume could not be checked".to_owned());
            let findings = report.findings.len() as u64;
            let counts = Some(Counts { missing_members: missing, ..counts(report) });
            out.json(&self.last_line(status, findings, message, counts))?;
        } else if !self.quiet {
            let name = Shown(self.image.as_bytes()).to_string();
            for index in image.unreported(missing.as_deref().unwrap_or_default()) {
                out.text(format_args!(
                    "{name}: member {index} is not in use and was not checked\n"
                ))?;
            }
            if report.recovered {
                out.text(format_args!(
                    "{name}: the journal was replayed in memory only: `extant replay` replays it \
                     on disk\n"
                ))?;
            }
            let omitted = match report.omitted {
                0 => String::new(),
                more => format!(" ({more} not shown: --max-findings)"),
            };
            match code {
                CLEAN if self.data => {
                    let holds = holds(&report.stats);
                    let sums = match report.stats.data_blocks {
                        Some(blocks) => format!("{blocks} blocks of data verified"),
                        None => "no checksums of data to verify (data_csum is off)".to_owned(),
                    };
                    out.text(format_args!("{name}: clean, {holds}, {sums}\n"))?;
                }
                CLEAN => out.text(format_args!("{name}: clean, {}\n", holds(&report.stats)))?,
                TROUBLE => out.text(format_args!("{name}: could not be checked\n"))?,
                _ => {
                    let (errors, holds) = (report.errors, holds(&report.stats));
                    let s = if errors == 1 { "" } else { "s" };
                    out.text(format_args!("{name}: {errors} error{s}{omitted}, {holds}\n"))?;
                }
            }
        }
        out.finish()?;
        Ok(code)
    }

    fn last_line(
        &self,
        status: &'static str,
        findings: u64,
        message: Option<String>,
        counts: Option<Counts>,
    ) -> LastLine {
        LastLine { status, image: encoded(self.image.as_bytes()), findings, message, counts }
    }
}

fn line(finding: &Finding) -> FindingLine<'_> {
    let at = &finding.at;
    FindingLine {
        finding: finding.what.name(),
        severity: finding.severity.name(),
        message: finding.what.text(),
        ino: at.ino.map(|ino| ino.get()),
        group: at.group.map(|group| group.0),
        block: at.block.map(|block| block.0),
        offset: at.offset,
        tid: at.tid.map(|tid| tid.0),
        detail: finding.detail.as_deref(),
    }
}

/// A finding in one line. Text that comes from names on the volume is escaped.
fn text_of(finding: &Finding) -> String {
    let severity = match finding.severity {
        Severity::Note => "note",
        Severity::Error => "error",
    };
    let mut text = format!("{severity}: {}", finding.what.text());
    if finding.at != Site::NOWHERE {
        text += &format!(" ({})", finding.at);
    }
    if let Some(detail) = &finding.detail {
        text += &format!(": {}", Shown(detail.as_bytes()));
    }
    text
}

fn holds(stats: &Stats) -> String {
    let Stats { files, directories, inodes, inodes_used, blocks, blocks_used, .. } = stats;
    format!(
        "{files} files, {directories} directories, {inodes_used} of {inodes} inodes and \
         {blocks_used} of {blocks} blocks used"
    )
}

fn counts(report: &Report) -> Counts {
    let stats = report.stats;
    Counts {
        errors: report.errors,
        notes: report.notes,
        omitted: report.omitted,
        replayed: report.recovered,
        inodes: stats.inodes,
        inodes_used: stats.inodes_used,
        files: stats.files,
        directories: stats.directories,
        symlinks: stats.symlinks,
        special: stats.special,
        fragmented: stats.fragmented,
        names: stats.names,
        blocks: stats.blocks,
        blocks_used: stats.blocks_used,
        data_blocks: stats.data_blocks,
        missing_members: None,
    }
}
