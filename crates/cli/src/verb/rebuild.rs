//! `extant rebuild`: replaces a lost member of a mirror.

use crate::failure::{Failure, ignored_lock_message, plain, print_message};
use crate::image::{Image, is_same_file};
use crate::members::member_in;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use crate::{amount, bar, disk, signature};
use extant::disk::Partition;
use extant::raid::{Assembled, Mirror, Part, PlaceState};
use extant::{FileOptions, OpenOptions};
use extant_base::{ByteOffset, Error, MemberError, MemberProblem};
use extant_blockdev::Slice;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Make a device a complete member of a mirrored volume.
///
/// NEW replaces a member that is missing or was dropped, and receives a copy of everything on IMG.
/// An interrupted rebuild continues when the command is repeated, or while a program has
/// IMG?member=NEW open for writing, such as a mount.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant rebuild a.img --member b.img               b.img is created if it does not exist
  extant rebuild 'a.img?member=b.img' --member c.img
  extant info 'a.img?member=b.img'                  members, their generations and states

Exit status: 0 the member is complete, 1 failed, 2 wrong usage.")]
pub(crate) struct Args {
    /// A complete member, or IMG?member=IMG2
    #[arg(value_name = "IMG")]
    image: OsString,
    /// File or block device that becomes a member
    #[arg(long, value_name = "NEW")]
    member: PathBuf,
    /// Overwrite the content of NEW, even changes that IMG does not have
    #[arg(short, long)]
    force: bool,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing and show no progress
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
        let mut image = Image::parse(&self.image)?;
        if is_same_file(&image.path, &self.member) {
            return Err(Failure::new(format_args!(
                "{}: NEW is the same file as IMG: name a complete member as IMG, and the device \
                 to overwrite as NEW",
                Shown::path(&self.member)
            )));
        }
        // If IMG also names it as a member, it is still the new one.
        image.members.retain(|m| *m != self.member && !is_same_file(m, &self.member));
        let cause = Arc::new(AtomicI32::new(5));
        let (mirror, index) = match self.taken(&image, &cause) {
            Some(found) => found,
            None => self.added(&image, &cause)?,
        };
        let failed = |error| Failure::of_image(&image.name, &error);
        let is_whole = |mirror: &Mirror| {
            mirror.places().iter().any(|place| {
                place.index == index
                    && place.active
                    && !place.rebuilding
                    && place.out_of_sync_bytes == 0
            })
        };
        let was_whole = is_whole(&mirror);
        let bar = bar::percent(self.quiet);
        bar.set_message("rebuilding");
        let done = mirror.resync(&mut |done, all| {
            bar.set_length(all);
            bar.set_position(done);
            true
        });
        bar.finish_and_clear();
        done.map_err(failed)?;
        if !is_whole(&mirror) {
            let name = Shown::path(&self.member);
            let why = std::io::Error::from_raw_os_error(cause.load(Ordering::Relaxed));
            return Err(Failure::new(format_args!(
                "{name}: a write failed: {}: repair the device, then rebuild it again",
                plain(&why)
            )));
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
        } else if was_whole && !self.quiet {
            let name = Shown::path(&self.member);
            out.text(format_args!(
                "{name}: member {index} is complete already: nothing was copied (--force copies \
                 all)\n"
            ))?;
        } else if !self.quiet {
            let (name, bytes) = (Shown::path(&self.member), amount::shown(stats.copied_bytes));
            out.text(format_args!("{name}: member {index} is complete, {bytes} copied\n"))?;
        }
        out.finish()?;
        Ok(0)
    }

    /// Options to open the volume with members missing, one of which is being made. `cause`
    /// receives the errno of a failure on the new member.
    fn options(&self, image: &Image, cause: &Arc<AtomicI32>, is_reported: bool) -> OpenOptions {
        let mut options = image.options();
        options.write(true).degraded(true);
        let (name, image) = (self.member.to_string_lossy().into_owned(), image.clone());
        let cause = Arc::clone(cause);
        options.on_error(Arc::new(move |error| match error {
            Error::Member(member) if member.member == name => {
                cause.store(error.errno(), Ordering::Relaxed);
            }
            Error::Member(member) if is_reported => image.report_member(member),
            _ => {}
        }));
        options
    }

    /// The volume with the new member, if every opening would accept that member: it is complete,
    /// or partly rebuilt.
    fn taken(&self, image: &Image, cause: &Arc<AtomicI32>) -> Option<(Arc<Mirror>, u16)> {
        let own = member_in(&image.path, image.offset)?;
        let new = member_in(&self.member, image.offset)?;
        if own.uuid != new.uuid || self.force && !new.rebuilding {
            return None;
        }
        let mut options = self.options(image, cause, false);
        options.member(&self.member);
        let Ok(Assembled::Mirrored(mirror)) = options.assemble(&image.path) else { return None };
        let places = mirror.places();
        let index = |path: &Path| {
            let is_it = |place: &&PlaceState| place.active && place.name == path.to_string_lossy();
            places.iter().find(is_it).map(|place| place.index)
        };
        // A member newer than IMG is in use without IMG.
        index(&image.path)?;
        let index = index(&self.member)?;
        // After a crash, the new member may be the source from which the others would be copied.
        (new.rebuilding || mirror.out_of_sync_bytes() == 0).then_some((mirror, index))
    }

    /// The volume, in which the new member takes the place of a lost one.
    fn added(&self, image: &Image, cause: &Arc<AtomicI32>) -> Result<(Arc<Mirror>, u16), Failure> {
        let failed = |error| Failure::of_image(&image.name, &error);
        for member in image.members.iter().filter(|_| !image.degraded) {
            // A member whose name was misspelt must not lose its place.
            if let Err(error) = File::open(member) {
                let problem =
                    MemberProblem::CannotOpen { errno: error.raw_os_error().unwrap_or(5) };
                let member = member.to_string_lossy().into_owned();
                return Err(failed(Error::Member(Box::new(MemberError { member, problem }))));
            }
        }
        let options = self.options(image, cause, true);
        let Assembled::Mirrored(mirror) = options.assemble(&image.path).map_err(failed)? else {
            return Err(Failure::new(format_args!(
                "{}: not a mirror: only a member of a mirror can be rebuilt",
                Shown::path(&image.name)
            )));
        };
        let new = member_in(&self.member, image.offset);
        let is_ours = new.is_some_and(|new| new.uuid == mirror.uuid());
        let is_new = !self.member.exists();
        let part = self.part(image, &mirror, is_ours)?;
        let added = if self.force { mirror.add_over(part) } else { mirror.add(part) };
        match added {
            Ok(index) => Ok((mirror, index)),
            Err(error) => {
                if is_new {
                    // The first error is the one to report.
                    let _ = std::fs::remove_file(&self.member);
                }
                Err(self.refused(image, &error))
            }
        }
    }

    /// The error for a new member that the volume does not accept, with what to do next.
    fn refused(&self, image: &Image, error: &Error) -> Failure {
        let Error::Member(member) = error else { return Failure::of_image(&image.name, error) };
        let (img, new) = (Shown::path(&image.path), Shown::path(&self.member));
        match member.problem {
            MemberProblem::Newer { generation, source } => Failure::new(format_args!(
                "{new}: generation {generation}, newer than {img}, generation {source}: exchange \
                 them, `extant rebuild {new} --member {img}`; --force loses the changes that only \
                 {new} has"
            )),
            MemberProblem::Diverged { generation, source } => Failure::new(format_args!(
                "{new}: generation {generation}, and {img}, generation {source}, may each have changes that \
                 the other lacks: copy what you need from {new}, then use --force; or exchange them"
            )),
            MemberProblem::Duplicate { index } if self.force => Failure::new(format_args!(
                "{new}: the device that {img} uses as member {index}: name another device"
            )),
            MemberProblem::Duplicate { index } => Failure::new(format_args!(
                "{new}: member {index}, which is in use by {img}: use --force to overwrite it"
            )),
            MemberProblem::ChangedOutside => Failure::new(format_args!(
                "{new}: was changed without {img}: use --force to overwrite it"
            )),
            _ => Failure::of_image(&image.name, error),
        }
    }

    /// Refuses a new member with data of value where it is to be written, up to byte `end`: a
    /// partition there must hold all of it.
    fn refuse_content(&self, image: &Image, end: u64) -> Result<(), Failure> {
        let path: &Path = &self.member;
        let unreadable = |error| Failure::of_file("read", path, error);
        if let Ok(Some(disk)) = disk::table(path) {
            let fits = |part: &&Partition| part.start == image.offset && part.end() >= end;
            if !self.force && disk.partitions.iter().find(fits).is_none() {
                return Err(Failure::new(format_args!(
                    "{}: has no partition at byte {} for {} bytes: use --force to overwrite it",
                    Shown::path(path),
                    image.offset,
                    end - image.offset
                )));
            }
        } else if let (false, Some(found)) =
            (self.force, signature::find(path, 0).map_err(unreadable)?)
        {
            return Err(self.contains(found));
        }
        match signature::find(path, image.offset).map_err(unreadable)? {
            Some(found) if !self.force => Err(self.contains(found)),
            _ => Ok(()),
        }
    }

    fn contains(&self, found: &str) -> Failure {
        let name = Shown::path(&self.member);
        Failure::new(format_args!("{name}: contains {found}: use --force to overwrite it"))
    }

    /// Opens the new member after checking that it holds no data of value.
    fn part(&self, image: &Image, mirror: &Mirror, is_ours: bool) -> Result<Part, Failure> {
        let path: &Path = &self.member;
        let failed = |error| Failure::of_image(path, &error);
        let len = extant::BlockDevice::len(mirror).saturating_add(image.offset);
        let is_empty = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() == 0);
        let device = if is_empty {
            FileOptions::new().create(path, len).map_err(failed)?
        } else if path.exists() {
            if !is_ours {
                self.refuse_content(image, len)?;
            }
            FileOptions::new().write(true).open(path).map_err(failed)?
        } else {
            FileOptions::new().create_new(path, len).map_err(failed)?
        };
        device
            .passed_locks()
            .iter()
            .for_each(|&pid| print_message(ignored_lock_message(path, pid)));
        let device = Slice::from_offset(device, ByteOffset(image.offset)).map_err(failed)?;
        Ok(Part::new(Arc::new(device), path.to_string_lossy()))
    }
}
