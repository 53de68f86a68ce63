//! `extant rebuild`: gives a mirror a member that it lost.

use super::mkfs::signature;
use crate::failure::Failure;
use crate::image::{Image, is_same_file};
use crate::members::member_in;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use crate::{amount, bar};
use extant::FileOptions;
use extant::layout::{Assembled, Mirror, Part, PlaceState};
use extant_base::{ByteOffset, Error, MemberProblem};
use extant_blockdev::Slice;
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Make a device a whole member of a mirrored volume: a new one or a stale one.
///
/// NEW takes the place of a member that is missing or was dropped, and gets everything that IMG
/// holds. It may be interrupted: called again it goes on where it was, as does whoever opens
/// IMG?member=NEW to write, a mount included, while the volume is in use.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant rebuild a.img --member b.img               b.img is made if there is none
  extant rebuild 'a.img?member=b.img' --member c.img
  extant info 'a.img?member=b.img'                  members, their generations and states

Exit status: 0 the member is whole, 1 failed, 2 wrong usage.")]
pub(crate) struct Args {
    /// A member that is whole, or IMG?member=IMG2
    #[arg(value_name = "IMG")]
    image: OsString,
    /// The file or block device to become a member
    #[arg(long, value_name = "NEW")]
    member: PathBuf,
    /// Write over whatever NEW holds, changes that IMG lacks included
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing, show no progress
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Serialize)]
struct Answer {
    image: String,
    member: String,
    index: u16,
    bytes: u64,
    copied_bytes: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        if is_same_file(&image.path, &self.member) {
            return Err(Failure::new(format_args!(
                "{}: is IMG itself: name a member that is whole as IMG, the one to be written over as NEW",
                Shown::path(&self.member)
            )));
        }
        let own = member_in(&image.path, image.offset);
        let new = member_in(&self.member, image.offset);
        let same = own.zip(new.clone()).is_some_and(|(own, new)| own.uuid == new.uuid);
        let mut options = image.options();
        options.write(true).degraded(true);
        if same && new.is_some_and(|new| new.rebuilding) {
            options.member(&self.member);
        }
        let failed = |error| Failure::of_image(&image.name, &error);
        let Assembled::Mirrored(mirror) = options.assemble(&image.path).map_err(failed)? else {
            return Err(Failure::new(format_args!(
                "{}: is no mirror: only those can be rebuilt",
                Shown::path(&image.name)
            )));
        };
        let name = self.member.to_string_lossy();
        let taken = mirror.places().into_iter().find(|place| place.active && place.name == name);
        let is_here = |place: &PlaceState| is_same_file(Path::new(&place.name), &self.member);
        let by_another_name =
            mirror.places().into_iter().find(|place| place.active && is_here(place));
        let index = match taken.or(by_another_name) {
            Some(place) if place.name != name => {
                return Err(Failure::new(format_args!(
                    "{}: is member {}, which {} has, by another name",
                    Shown::path(&self.member),
                    place.index,
                    Shown::path(&image.path)
                )));
            }
            Some(place) => place.index,
            None => {
                let is_new = !self.member.exists();
                let part = self.part(&image, &mirror, same)?;
                let added = if self.force { mirror.add_over(part) } else { mirror.add(part) };
                added.map_err(|error| {
                    if is_new {
                        // The error that counts is the first one.
                        let _ = std::fs::remove_file(&self.member);
                    }
                    self.refused(&image, &error)
                })?
            }
        };
        let bar = bar::percent(self.quiet);
        bar.set_message("rebuilding");
        let done = mirror.resync(&mut |done, all| {
            bar.set_length(all);
            bar.set_position(done);
            true
        });
        bar.finish_and_clear();
        done.map_err(failed)?;
        let whole = mirror.places().iter().any(|place| {
            place.index == index && place.active && !place.rebuilding && place.behind_bytes == 0
        });
        if !whole {
            let name = Shown::path(&self.member);
            return Err(Failure::new(format_args!("{name}: failed while it was written")));
        }
        let (stats, bytes) = (mirror.stats(), extant::BlockDevice::len(&*mirror));
        drop(mirror);
        let mut out = Out::of_report();
        if self.json {
            out.json(&Answer {
                image: encoded(image.name.as_os_str().as_bytes()),
                member: encoded(self.member.as_os_str().as_bytes()),
                index,
                bytes,
                copied_bytes: stats.copied_bytes,
            })?;
        } else if !self.quiet {
            let (name, bytes) = (Shown::path(&self.member), amount::shown(stats.copied_bytes));
            out.text(format_args!("{name}: member {index}, whole, {bytes} copied\n"))?;
        }
        out.finish()?;
        Ok(0)
    }

    /// The volume does not take the new member: why, and what to do.
    fn refused(&self, image: &Image, error: &Error) -> Failure {
        let Error::Member(member) = error else { return Failure::of_image(&image.name, error) };
        let (img, new) = (Shown::path(&image.path), Shown::path(&self.member));
        match member.problem {
            MemberProblem::Newer { generation, source } => Failure::new(format_args!(
                "{new}: is newer, generation {generation}, than {img}, generation {source}: swap them, \
                 `extant rebuild {new} --member {img}`; --force loses what only {new} has"
            )),
            MemberProblem::Diverged { generation, source } => Failure::new(format_args!(
                "{new}: generation {generation}, and {img}, generation {source}, may each have changes that \
                 the other lacks: copy what you need from {new}, then use --force; or swap them"
            )),
            MemberProblem::Duplicate { index } => Failure::new(format_args!(
                "{new}: is member {index}, which {img} has: use --force to write over it"
            )),
            MemberProblem::ChangedOutside => Failure::new(format_args!(
                "{new}: was changed by itself, without {img}: use --force to write over it"
            )),
            _ => Failure::of_image(&image.name, error),
        }
    }

    /// Opens the new member, if nothing of worth is there.
    fn part(&self, image: &Image, mirror: &Mirror, is_ours: bool) -> Result<Part, Failure> {
        let path: &Path = &self.member;
        let failed = |error| Failure::of_image(path, &error);
        let len = extant::BlockDevice::len(mirror).saturating_add(image.offset);
        let device = if path.exists() {
            let found = match self.force || is_ours {
                true => None,
                false => signature::find(path, image.offset)
                    .map_err(|error| Failure::of_file("read", path, error))?,
            };
            if let Some(found) = found {
                return Err(Failure::new(format_args!(
                    "{}: holds {found}: use --force to write over it",
                    Shown::path(path)
                )));
            }
            FileOptions::new().write(true).open(path).map_err(failed)?
        } else {
            FileOptions::new().create_new(path, len).map_err(failed)?
        };
        let device = Slice::from_offset(device, ByteOffset(image.offset)).map_err(failed)?;
        Ok(Part::new(Arc::new(device), path.to_string_lossy()))
    }
}
