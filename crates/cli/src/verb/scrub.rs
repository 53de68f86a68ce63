//! `extant scrub`: compares the members of a mirror, and finds out which is right where they
//! differ.

use crate::amount;
use crate::bar::Bar;
use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use extant::Error;
use extant::raid::{Assembled, Mirror, PlaceState};
use extant::scrub::{self, Difference, Options, Report};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Compare the members of a mirrored volume, and repair differences.
///
/// Every block of every member is read. Where members differ, the right copy is the one with the
/// right checksum, or the one with which a check of the volume finds fewer errors; it is written
/// over the others. A difference that neither decides, as in data of files without data_csum, is
/// reported and not repaired, unless --trust names a member. The journal is replayed first, and
/// what a crash or an unfinished rebuild left out of date is copied. With --read-only nothing is
/// written, and parts that are out of date are not compared.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant scrub 'a.img?member=b.img'
  extant scrub --read-only 'a.img?member=b.img'     report only
  extant scrub --trust 0 'a.img?member=b.img'       member 0 is right

Exit status: 0 the compared parts of all members are (now) the same, 4 some differ or the volume is
damaged, 1 failed.")]
pub(crate) struct Args {
    /// One member with the others, as IMG?member=IMG2
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Change nothing
    #[arg(short = 'n', long)]
    read_only: bool,
    /// Number of the member that is right where nothing else decides (see `extant info`)
    #[arg(long, value_name = "INDEX", conflicts_with = "read_only")]
    trust: Option<u16>,
    /// Maximum number of remaining differences to print; the rest are counted
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = amount::number::<usize>)]
    max_findings: usize,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print problems only
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Serialize)]
struct Answer {
    image: String,
    bytes: u64,
    members: usize,
    /// Members that are not in use.
    missing_members: Vec<u16>,
    /// Blocks in which members differed.
    differing_blocks: usize,
    mended_blocks: usize,
    /// There were more differing blocks than could be judged.
    more: bool,
    unresolved: Vec<Unresolved>,
    /// Number of others, which are not listed.
    unresolved_omitted: usize,
    /// Members that are partly out of date. Those parts are not compared.
    #[serde(rename = "behind")]
    out_of_date: Vec<OutOfDate>,
    /// Remaining damage, counted on the member with the most.
    errors: u64,
}

/// Adjacent blocks that still differ.
#[derive(Serialize)]
struct Unresolved {
    at: u64,
    bytes: u64,
    known: bool,
}

#[derive(Serialize)]
struct OutOfDate {
    index: u16,
    rebuilding: bool,
    bytes: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let failed = |error: extant::Error| Failure::of_image(&image.name, &error);
        let mut options = image.options();
        if !self.read_only {
            options.recover_in_place(&image.path).map_err(failed)?;
            options.write(true);
        }
        let Assembled::Mirrored(mirror) = options.assemble(&image.path).map_err(failed)? else {
            return Err(Failure::new(format_args!(
                "{}: not a mirror: use `extant check`",
                Shown::path(&image.name)
            )));
        };
        let report = self.scrub(&mirror).map_err(failed)?;
        let members: Vec<_> = mirror.places().into_iter().filter(|place| place.active).collect();
        let missing = mirror.unused();
        drop(mirror);
        let errors = report.errors.iter().copied().max().unwrap_or(0);
        self.print(&image, &report, (&members, missing), errors)?;
        Ok(if !report.unresolved.is_empty() || errors > 0 { 4 } else { 0 })
    }

    fn scrub(&self, mirror: &Arc<Mirror>) -> Result<Report, Error> {
        let bar = Bar::new(self.quiet);
        let members = mirror.places().into_iter().filter(|place| place.active);
        let trust =
            self.trust.map(|index| members.clone().position(|member| member.index == index));
        if let Some(None) = trust {
            return Err(Error::Invalid("no member in use has the number given with --trust"));
        }
        let options =
            Options { write: !self.read_only, trust: trust.flatten(), ..Options::default() };
        let report = scrub::scrub(mirror, &options, &bar);
        bar.clear();
        report
    }

    fn print(
        &self,
        image: &Image,
        report: &Report,
        (members, missing): (&[PlaceState], Vec<u16>),
        errors: u64,
    ) -> Result<(), Failure> {
        let mut out = Out::of_report();
        let shown = report.unresolved.len().min(self.max_findings);
        let omitted = report.unresolved.len() - shown;
        let out_of_date = members.iter().filter(|member| member.out_of_sync_bytes > 0);
        if self.json {
            let unresolved = report.unresolved[..shown].iter().map(|found| Unresolved {
                at: found.range.start,
                bytes: found.range.end - found.range.start,
                known: found.is_known,
            });
            out.json(&Answer {
                image: encoded(image.name.as_os_str().as_bytes()),
                bytes: report.bytes,
                members: report.members,
                missing_members: missing,
                differing_blocks: report.differing_blocks,
                mended_blocks: report.repaired_blocks,
                more: report.more,
                unresolved: unresolved.collect(),
                unresolved_omitted: omitted,
                out_of_date: out_of_date
                    .map(|member| OutOfDate {
                        index: member.index,
                        rebuilding: member.rebuilding,
                        bytes: member.out_of_sync_bytes,
                    })
                    .collect(),
                errors,
            })?;
            return out.finish();
        }
        let name = Shown::path(&image.name);
        for index in image.unreported(&missing) {
            out.text(format_args!("{name}: member {index} is not in use and was not compared\n"))?;
        }
        if report.more {
            out.text(format_args!(
                "{name}: members differ in more than {} blocks: nothing was repaired; if you know \
                 which member is right, copy it to the other: `extant rebuild --force RIGHT \
                 --member OTHER`\n",
                report.differing_blocks
            ))?;
        } else {
            for Difference { range, blocks, is_known } in &report.unresolved[..shown] {
                let which = match is_known {
                    true => "it is known which is right",
                    false => "and it is not known which is right",
                };
                match blocks {
                    1 => out.text(format_args!(
                        "{name}: members differ at byte {}, {which}\n",
                        range.start
                    ))?,
                    _ => out.text(format_args!(
                        "{name}: members differ in {blocks} blocks from byte {} on, {which}\n",
                        range.start
                    ))?,
                }
            }
            if omitted > 0 {
                out.text(format_args!("{name}: members differ in {omitted} more places\n"))?;
            }
        }
        if report.trust_refused {
            let index = self.trust.unwrap_or_default();
            out.text(format_args!(
                "{name}: member {index} is not trusted: with its copies the volume has more \
                 errors\n"
            ))?;
        }
        if errors > 0 && report.errors.iter().all(|count| *count == errors) && !report.more {
            out.text(format_args!("{name}: {errors} errors in all members: see `extant check`\n"))?;
        } else {
            for (member, count) in
                members.iter().zip(&report.errors).filter(|(_, count)| **count > 0)
            {
                out.text(format_args!(
                    "{name}: {count} errors in member {}: see `extant check`\n",
                    member.index
                ))?;
            }
        }
        if !self.quiet {
            let mut exception = "";
            for member in out_of_date {
                exception = " except where they are out of date";
                let (index, bytes) = (member.index, amount::shown(member.out_of_sync_bytes));
                match member.rebuilding {
                    true => out.text(format_args!(
                        "{name}: member {index} is being rebuilt, {bytes} to copy\n"
                    ))?,
                    false => out.text(format_args!(
                        "{name}: member {index} is out of date since a crash, {bytes} to resync\n"
                    ))?,
                }
            }
            let Report { members, differing_blocks, repaired_blocks, .. } = report;
            match differing_blocks {
                _ if report.more => {}
                0 => {
                    out.text(format_args!("{name}: {members} members, all the same{exception}\n"))?
                }
                _ => out.text(format_args!(
                    "{name}: {members} members, {differing_blocks} blocks differed, \
                     {repaired_blocks} repaired\n"
                ))?,
            }
        }
        out.finish()
    }
}
