//! `extant quota`: shows usage and limits of users, groups and projects, and sets limits.

use crate::amount;
use crate::change::{Change, Steps};
use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::Shown;
use extant::{QuotaKind, QuotaLimits, QuotaUsage};
use serde::Serialize;
use std::ffi::OsString;

/// Show what users, groups and projects use of a volume, and set limits.
///
/// A volume counts usage if it has the feature quota (`extant tune -O quota,project`). Without
/// --space and --inodes, usage and limits are shown: of one id, or of all. Limits bind where they
/// are enforced: by Linux with the mount options usrquota, grpquota, prjquota, by `extant mount -o
/// quota`. Commands that change an image do not obey them. `extant chattr -R -p` gives a tree to a
/// project.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant quota disk.img
  extant quota disk.img --project 7 --space 1G:2G --inodes 10000
  extant quota disk.img --user 1000 --space 0          no limit

Exit status: 0 done, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Only this user
    #[arg(short, long, value_name = "ID")]
    user: Option<u32>,
    /// Only this group
    #[arg(short, long, value_name = "ID", conflicts_with = "user")]
    group: Option<u32>,
    /// Only this project
    #[arg(short, long, value_name = "ID", conflicts_with_all = ["user", "group"])]
    project: Option<u32>,
    /// Set how much may be used at most and, before a colon, for the grace period only; 0 for no
    /// limit
    #[arg(short, long, value_name = "[SOFT:]HARD", value_parser = space)]
    space: Option<Limit>,
    /// The same for the number of files
    #[arg(short, long, value_name = "[SOFT:]HARD", value_parser = inodes)]
    inodes: Option<Limit>,
    /// Print one JSON object for each id (docs/JSON.md)
    #[arg(long)]
    json: bool,
}

/// A soft and a hard limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    soft: u64,
    hard: u64,
}

fn space(text: &str) -> Result<Limit, String> {
    limit(text, amount::bytes)
}

fn inodes(text: &str) -> Result<Limit, String> {
    limit(text, amount::number)
}

fn limit(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Limit, String> {
    let (soft, hard) = text.split_once(':').unwrap_or(("0", text));
    let (soft, hard) = (parse(soft)?, parse(hard)?);
    match hard == 0 || soft <= hard {
        true => Ok(Limit { soft, hard }),
        false => Err("the soft limit, before the colon, is above the hard one".to_owned()),
    }
}

#[derive(Serialize)]
struct Record {
    kind: &'static str,
    id: u32,
    bytes: u64,
    inodes: u64,
    bytes_soft: u64,
    bytes_hard: u64,
    inodes_soft: u64,
    inodes_hard: u64,
}

const KINDS: [(QuotaKind, &str); 3] =
    [(QuotaKind::User, "user"), (QuotaKind::Group, "group"), (QuotaKind::Project, "project")];

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let ids = [self.user, self.group, self.project];
        let one = KINDS.into_iter().zip(ids).find_map(|((kind, _), id)| Some((kind, id?)));
        if self.space.is_none() && self.inodes.is_none() {
            let image = Image::parse(&self.image)?;
            return show(&image, one, self.json);
        }
        let Some((kind, id)) = one else {
            return Err(Failure::usage("limits need --user, --group or --project"));
        };
        let change = Change::begin(&self.image, Steps { in_steps: false })?;
        change.at(b"/", |fs| {
            let all = fs.quota(kind)?.unwrap_or_default();
            let old = all.iter().find(|usage| usage.id == id).map(|usage| usage.limits);
            let mut limits = old.unwrap_or_default();
            if let Some(Limit { soft, hard }) = self.space {
                (limits.bytes_soft, limits.bytes_hard) = (soft, hard);
            }
            if let Some(Limit { soft, hard }) = self.inodes {
                (limits.inodes_soft, limits.inodes_hard) = (soft, hard);
            }
            fs.set_quota_limits(kind, id, &limits)
        })?;
        change.finish()?;
        Ok(0)
    }
}

fn show(image: &Image, one: Option<(QuotaKind, u32)>, json: bool) -> Result<u8, Failure> {
    let fs = image.open()?;
    let mut out = Out::new();
    let mut has_any = false;
    for (kind, name) in KINDS {
        if one.is_some_and(|(wanted, _)| wanted != kind) {
            continue;
        }
        let all = fs.quota(kind).map_err(|error| Failure::of_image(&image.name, &error))?;
        has_any |= all.is_some();
        for usage in all.unwrap_or_default() {
            if one.is_some_and(|(_, id)| id != usage.id) {
                continue;
            }
            match json {
                true => out.json(&record(name, &usage))?,
                false => out.text(format_args!("{}\n", line(name, &usage)))?,
            }
        }
    }
    if !has_any {
        return Err(Failure::new(format_args!(
            "{}: the volume does not count usage: extant tune -O quota,project adds it",
            Shown::path(&image.name)
        )));
    }
    out.finish()?;
    Ok(0)
}

fn record(kind: &'static str, usage: &QuotaUsage) -> Record {
    let QuotaLimits { bytes_soft, bytes_hard, inodes_soft, inodes_hard } = usage.limits;
    let QuotaUsage { id, bytes, inodes, .. } = *usage;
    Record { kind, id, bytes, inodes, bytes_soft, bytes_hard, inodes_soft, inodes_hard }
}

/// One id for people: limits that do not exist are left out.
fn line(kind: &str, usage: &QuotaUsage) -> String {
    let limits = usage.limits;
    let size = amount::shown;
    let of = |soft: u64, hard: u64, shown: &dyn Fn(u64) -> String| match (soft, hard) {
        (0, 0) => String::new(),
        (0, hard) => format!(" of {}", shown(hard)),
        (soft, 0) => format!(" (soft limit {})", shown(soft)),
        (soft, hard) => format!(" of {} (soft limit {})", shown(hard), shown(soft)),
    };
    format!(
        "{kind} {}: {}{}, {} files{}",
        usage.id,
        size(usage.bytes),
        of(limits.bytes_soft, limits.bytes_hard, &size),
        usage.inodes,
        of(limits.inodes_soft, limits.inodes_hard, &|count| count.to_string())
    )
}
