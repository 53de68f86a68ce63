//! `extant rebuild`: gives a mirror a member that it lost.

use super::mkfs::signature;
use crate::failure::Failure;
use crate::image::Image;
use crate::members::member_in;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use crate::{amount, bar};
use extant::FileOptions;
use extant::layout::{Assembled, Mirror, Part};
use extant_base::ByteOffset;
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
    /// Write over whatever NEW holds
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
        let index = match taken {
            Some(place) => place.index,
            None => {
                let is_new = !self.member.exists();
                let part = self.part(&image, &mirror, same)?;
                mirror.add(part).map_err(|error| {
                    if is_new {
                        // The error that counts is the first one.
                        let _ = std::fs::remove_file(&self.member);
                    }
                    failed(error)
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
        let mut out = Out::new();
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
