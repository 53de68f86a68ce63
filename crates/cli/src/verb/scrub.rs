//! `extant scrub`: are the members of a mirror the same, and if not, which is right?

use crate::bar;
use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use extant::Error;
use extant::layout::{Assembled, Mirror};
use extant::scrub::{self, Difference, Options, Report, Step};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Compare the members of a mirrored volume, and mend what differs.
///
/// Every block of every member is read. Where members differ the volume itself says which is right: by
/// its checksums, or because a check finds less wrong with one copy than with the other; that copy is
/// written over the others. What nobody can tell, as the bytes of files without data_csum, is reported
/// and left, unless --trust names the member to believe. A journal is replayed first, and what a crash
/// left to be brought in line is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant scrub 'a.img?member=b.img'
  extant scrub --read-only 'a.img?member=b.img'     report only
  extant scrub --trust 0 'a.img?member=b.img'       member 0 where nothing decides

Exit status: 0 all members are the same (now), 4 some differ or the volume is damaged, 1 failed.")]
pub(crate) struct Args {
    /// A member and the others, as IMG?member=IMG2
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Change nothing
    #[arg(short = 'n', long)]
    read_only: bool,
    /// Believe this member where nothing decides (`extant info` shows the numbers)
    #[arg(long, value_name = "INDEX", conflicts_with = "read_only")]
    trust: Option<u16>,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing but what is wrong
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
    /// Blocks that still differ: first byte of each.
    unresolved: Vec<u64>,
    /// Damage that is left, of the member with the most.
    errors: u64,
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
                "{}: is no mirror: `extant check` tests a volume that has no copies",
                Shown::path(&image.name)
            )));
        };
        let report = self.scrub(&mirror).map_err(failed)?;
        let indexes = mirror.places().into_iter().filter(|place| place.active);
        let indexes: Vec<u16> = indexes.map(|place| place.index).collect();
        let missing = mirror.unused();
        drop(mirror);
        let errors = report.errors.iter().copied().max().unwrap_or(0);
        self.print(&image, &report, (&indexes, missing), errors)?;
        Ok(if !report.unresolved.is_empty() || errors > 0 { 4 } else { 0 })
    }

    fn scrub(&self, mirror: &Arc<Mirror>) -> Result<Report, Error> {
        let bar = bar::percent(self.quiet);
        let members = mirror.places().into_iter().filter(|place| place.active);
        let trust =
            self.trust.map(|index| members.clone().position(|member| member.index == index));
        if let Some(None) = trust {
            return Err(Error::Invalid("no member in use has the index of --trust"));
        }
        let options = Options { write: !self.read_only, trust: trust.flatten() };
        let report = scrub::scrub(mirror, &options, &mut |step, done, all| {
            bar.set_message(match step {
                Step::BringingInLine => "bringing in line",
                Step::Comparing => "comparing",
                Step::Judging => "checking",
            });
            bar.set_length(all);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        report
    }

    fn print(
        &self,
        image: &Image,
        report: &Report,
        (indexes, missing): (&[u16], Vec<u16>),
        errors: u64,
    ) -> Result<(), Failure> {
        let mut out = Out::of_report();
        if self.json {
            out.json(&Answer {
                image: encoded(image.name.as_os_str().as_bytes()),
                bytes: report.bytes,
                members: report.members,
                missing_members: missing,
                differing_blocks: report.differing_blocks,
                mended_blocks: report.mended_blocks,
                unresolved: report.unresolved.iter().map(|block| block.at).collect(),
                errors,
            })?;
            return out.finish();
        }
        let name = Shown::path(&image.name);
        for index in image.untold(&missing) {
            out.text(format_args!("{name}: member {index} is not in use and was not compared\n"))?;
        }
        for Difference { at, is_known } in &report.unresolved {
            let which = match is_known {
                true => "it is known which is right",
                false => "and nothing says which is right",
            };
            out.text(format_args!("{name}: members differ at byte {at}, {which}\n"))?;
        }
        if report.trust_refused {
            let index = self.trust.unwrap_or_default();
            out.text(format_args!(
                "{name}: member {index} is not believed: with its copies the volume has more errors\n"
            ))?;
        }
        if errors > 0 && report.errors.iter().all(|count| *count == errors) {
            out.text(format_args!("{name}: {errors} errors in all members: see `extant check`\n"))?;
        } else {
            for (index, count) in
                indexes.iter().zip(&report.errors).filter(|(_, count)| **count > 0)
            {
                out.text(format_args!(
                    "{name}: {count} errors in member {index}: see `extant check`\n"
                ))?;
            }
        }
        if !self.quiet {
            let Report { members, differing_blocks, mended_blocks, .. } = report;
            match differing_blocks {
                0 => out.text(format_args!("{name}: {members} members, all the same\n"))?,
                _ => out.text(format_args!(
                    "{name}: {members} members, {differing_blocks} blocks differed, {mended_blocks} mended\n"
                ))?,
            }
        }
        out.finish()
    }
}
