//! `extant resize`: changes the size of a volume, of an image or of a mount.

mod mounted;
pub(crate) use mounted::{grow_mount, mount_of};

use crate::amount;
use crate::bar::Bar;
use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use extant::resize::{Resized, Size, minimum, resize_with};
use extant_fuse::NewSize;
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Grow or shrink a volume with its content.
///
/// A volume that is mounted by extant grows while it is in use: name the image or a directory of
/// its mount, as root or as the user who mounted it. It cannot shrink then.
///
/// An image file is extended before the volume grows, and cut after the volume shrinks; on a block
/// device, the volume takes all of the device by default. Before the volume shrinks, everything
/// beyond its new end is moved. Every step is a transaction of the volume's own journal: after an
/// interruption the volume is consistent, and has the old or the new size. A shrink in several
/// rounds, as with `min`, may also leave a size between the two: run it again.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant resize root.img 20G
  extant resize root.img +512M
  extant resize root.img min            as small as its content allows
  extant resize /dev/vg/root            as large as the device
  extant resize /mnt +1G                a mounted volume, while programs use it
  extant resize --print-minimum root.img

Exit status: 0 done, 1 failed: the volume is consistent and has its old size.")]
pub(crate) struct Args {
    /// Image file or block device, or a directory where a volume is mounted; IMG?journal=DEVICE if
    /// its journal is on another device
    #[arg(value_name = "IMG|DIR")]
    image: OsString,
    /// New size: 10G, a change as +1G or -1G, or `min`; default: the size of IMG
    #[arg(value_name = "SIZE", value_parser = target, allow_hyphen_values = true)]
    size: Option<Target>,
    /// Only print the bytes that `min` needs at most. It can do with less, as removed groups free
    /// the space of their tables
    #[arg(long, conflicts_with = "size")]
    print_minimum: bool,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing and show no progress
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Bytes(u64),
    More(u64),
    Less(u64),
    Minimum,
}

fn target(text: &str) -> Result<Target, String> {
    match text.as_bytes().first() {
        _ if text == "min" => Ok(Target::Minimum),
        Some(b'+') => amount::bytes(&text[1..]).map(Target::More),
        Some(b'-') => amount::bytes(&text[1..]).map(Target::Less),
        _ => amount::bytes(text).map(Target::Bytes),
    }
}

#[derive(Serialize)]
struct Answer {
    image: String,
    from_bytes: u64,
    bytes: u64,
    block_bytes: usize,
    moved_blocks: u64,
    moved_inodes: u64,
    now_meta_bg: bool,
}

#[derive(Serialize)]
struct Least {
    image: String,
    minimum_bytes: u64,
    block_bytes: usize,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        if image.offset != 0 || image.len.is_some() {
            let name = Shown::path(&image.name);
            return Err(Failure::new(format_args!(
                "{name}: a volume inside an image cannot be resized: use a device for the partition"
            )));
        }
        if self.print_minimum {
            return self.minimum(&image);
        }
        if let Some(dir) = mount_of(&image)? {
            let size = match self.size {
                None => NewSize::Device,
                Some(Target::Bytes(bytes)) => NewSize::Bytes(bytes),
                Some(Target::More(bytes)) => NewSize::More(bytes),
                Some(Target::Less(_) | Target::Minimum) => {
                    let name = Shown::path(&image.name);
                    return Err(Failure::new(format_args!(
                        "{name}: a volume in use cannot become smaller: unmount it first"
                    )));
                }
            };
            let done = grow_mount(&dir, size).map_err(|error| error.of(&image.name))?;
            self.answer(&image, &done)?;
            return Ok(0);
        }
        let size = match self.size {
            None => Size::Device,
            Some(Target::Minimum) => Size::Minimum,
            Some(Target::Bytes(bytes)) => Size::Bytes(bytes),
            Some(Target::More(bytes)) => Size::Bytes(now(&image)?.saturating_add(bytes)),
            Some(Target::Less(bytes)) => Size::Bytes(now(&image)?.saturating_sub(bytes)),
        };
        let bar = Bar::new(self.quiet);
        let done = resize_with(&image.options(), &image.path, size, &bar);
        bar.clear();
        let done = done.map_err(|error| failure(&image, size, &error))?;
        self.answer(&image, &done)?;
        Ok(0)
    }

    fn minimum(&self, image: &Image) -> Result<u8, Failure> {
        let fs = image.open()?;
        let blocks = minimum(&fs).map_err(|error| Failure::of_image(&image.name, &error))?;
        let size = fs.superblock().block_size;
        let minimum_bytes = blocks << size.log2();
        let mut out = Out::of_report();
        match self.json {
            true => out.json(&Least {
                image: encoded(image.name.as_os_str().as_bytes()),
                minimum_bytes,
                block_bytes: size.bytes(),
            })?,
            false => out.text(format_args!("{minimum_bytes}\n"))?,
        }
        out.finish()?;
        Ok(0)
    }

    fn answer(&self, image: &Image, done: &Resized) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let bytes = |blocks: u64| blocks * done.block_bytes as u64;
        let mut out = Out::of_report();
        if self.json {
            out.json(&Answer {
                image: encoded(image.name.as_os_str().as_bytes()),
                from_bytes: bytes(done.from_blocks),
                bytes: bytes(done.to_blocks),
                block_bytes: done.block_bytes,
                moved_blocks: done.moved_blocks,
                moved_inodes: done.moved_inodes,
                now_meta_bg: done.now_meta_bg,
            })?;
            return out.finish();
        }
        let (name, size) = (Shown::path(&image.name), amount::shown(bytes(done.to_blocks)));
        if done.from_blocks == done.to_blocks {
            out.text(format_args!("{name}: {size}, as before\n"))?;
            return out.finish();
        }
        let before = amount::shown(bytes(done.from_blocks));
        out.text(format_args!("{name}: {size} ({} blocks), was {before}", done.to_blocks))?;
        if done.moved_blocks + done.moved_inodes > 0 {
            let (blocks, inodes) = (done.moved_blocks, done.moved_inodes);
            out.text(format_args!("; {blocks} blocks and {inodes} inodes moved"))?;
        }
        if done.now_meta_bg {
            out.text(format_args!("; meta_bg is on now"))?;
        }
        out.text(format_args!("\n"))?;
        out.finish()
    }
}

/// Size of the volume in bytes.
fn now(image: &Image) -> Result<u64, Failure> {
    let fs = image.open()?;
    Ok(fs.superblock().blocks_count << fs.superblock().block_size.log2())
}

fn failure(image: &Image, size: Size, error: &extant::Error) -> Failure {
    use extant::Error;
    let name = Shown::path(&image.name);
    let small = match (size, error) {
        (Size::Bytes(bytes), Error::NoSpace | Error::Invalid(_)) => {
            least(image).filter(|least| bytes < *least)
        }
        _ => None,
    };
    match (small, error) {
        (Some(least), _) => Failure::new(format_args!(
            "{name}: too small for its content: {least} bytes ({}) are sufficient, and `extant \
             resize IMG min` finds the smallest size",
            amount::shown(least)
        )),
        (None, Error::NoSpace) if size != Size::Minimum => Failure::new(format_args!(
            "{name}: the content does not fit: `extant resize IMG min` finds the smallest size"
        )),
        (None, error) => Failure::of_image(&image.name, error),
    }
}

/// Size in bytes that is sufficient for the volume's content.
fn least(image: &Image) -> Option<u64> {
    let fs = image.open().ok()?;
    Some(minimum(&fs).ok()? << fs.superblock().block_size.log2())
}
