//! `resize2fs`: changes the size of a volume.
//!
//! ```text
//!   SIZE   1000       blocks of the volume
//!          1000s      sectors of 512 bytes; K, M, G, T: 2^10, 2^20, … bytes
//! ```
//!
//! A volume that is mounted by extant grows while it is in use. The directory of such a mount is
//! accepted, too; the original takes the device only.

use super::console::Console;
use super::getopt::{self, Words};
use super::opened;
use super::volume::{Copy, RawVolume};
use super::{Call, words};
use crate::failure::Failure;
use crate::image::Image;
use crate::mounts::{Mounted, place_of};
use crate::shown::Shown;
use crate::verb::resize::{grow_mount, mount_of};
use extant::resize::{Size, minimum, resize_with};
use extant::superblock::Superblock;
use extant::{Error, FileOptions};
use extant_base::narrow::len_u32;
use extant_blockdev::BlockDevice;
use extant_fuse::NewSize;
use std::path::{Path, PathBuf};

const USAGE: &str = "[-f] [-F] [-M] [-P] [-p] device [new_size]";

/// What was requested.
#[derive(Debug, Default)]
struct Options {
    force: bool,
    to_minimum: bool,
    print_minimum: bool,
}

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    let words = Words::read(call.arguments, "fFMPp");
    console.error(format_args!("{}", Console::banner("resize2fs")));
    let wrong = words.report(console);
    let (name, size) = match &words.operands[..] {
        [name] if !wrong => (name, None),
        [name, size] if !wrong => (name, Some(getopt::text(size))),
        _ => {
            let tool = console.name().to_owned();
            console.error(format_args!("Usage: {tool} {USAGE}\n\n"));
            return Ok(1);
        }
    };
    let mut options = Options::default();
    for (option, _) in &words.options {
        match option {
            'f' => options.force = true,
            'M' => options.to_minimum = true,
            'P' => options.print_minimum = true,
            // p: the original's bars are not parsed by programs. F: a cache that is not used here.
            _ => {}
        }
    }
    let mut image = Image::parse(name)?;
    let mounted = mount_of(&image)?;
    if image.path.is_dir()
        && let Some(found) = Mounted::on(&place_of(&image.path).unwrap_or_default())?
    {
        let shown = std::mem::replace(&mut image, Image::parse(found.image.as_os_str())?);
        image.name = shown.name;
    }
    if image.offset != 0 {
        let why = "a volume inside an image cannot be resized: use a device for the partition";
        console.complain(why);
        return Ok(1);
    }
    if let Err(error) = std::fs::metadata(&image.path) {
        let (why, name) = (crate::failure::plain(&error), Shown::path(&image.name));
        console.error(format_args!("open: {why} while opening {name}\n"));
        return Ok(1);
    }
    let volume = match RawVolume::open(&image, Copy::default()) {
        Ok(volume) => volume,
        Err(error) => return complain(&image, &error, console),
    };
    if !volume.checksum_is_right {
        let error = extant::Site::NOWHERE.corrupt(extant::What::SuperblockChecksum);
        return complain(&image, &error, console);
    }
    Resize { image, options, sb: volume.sb.clone(), mounted }.run(size.as_deref(), console)
}

/// Prints why a volume cannot be opened. Unlike other tools, half of it on standard output.
fn complain(image: &Image, error: &Error, console: &mut Console) -> Result<u8, Failure> {
    let name = Shown::path(&image.name);
    console.complain(&format!("{} while trying to open {name}", words::of(error).text));
    console.print(format_args!("Couldn't find valid filesystem superblock.\n"))?;
    Ok(1)
}

fn no_shrinking(console: &mut Console) -> u8 {
    console.complain("On-line shrinking not supported");
    1
}

struct Resize {
    image: Image,
    options: Options,
    sb: Superblock,
    /// Where the volume is mounted by extant, for writing.
    mounted: Option<PathBuf>,
}

impl Resize {
    fn run(&self, size: Option<&str>, console: &mut Console) -> Result<u8, Failure> {
        let name = Shown::path(&self.image.name);
        let sb = &self.sb;
        let checked = sb.is_clean() && sb.lastcheck >= sb.mtime;
        if !checked && !self.options.force && !self.options.print_minimum && self.mounted.is_none()
        {
            console.error(format_args!("Please run 'e2fsck -f {name}' first.\n\n"));
            return Ok(1);
        }
        if self.options.print_minimum {
            let least = self.minimum()?;
            console.print(format_args!("Estimated minimum size of the filesystem: {least}\n"))?;
            return Ok(0);
        }
        let device_blocks = self.device_blocks()?;
        let blocks = match (self.options.to_minimum, size) {
            (true, _) => None,
            (false, None) => Some(device_blocks),
            (false, Some(text)) => match self.blocks(text) {
                Some(blocks) => Some(blocks),
                None => {
                    console.complain(&format!("Invalid new size: {text}\n"));
                    return Ok(1);
                }
            },
        };
        if let Some(blocks) = blocks {
            if !self.is_file() && blocks > device_blocks {
                let kib = sb.block_size.bytes() / 1024;
                console.error(format_args!(
                    "The containing partition (or device) is only {device_blocks} ({kib}k) \
                     blocks.\nYou requested a new size of {blocks} blocks.\n\n"
                ));
                return Ok(1);
            }
            if blocks == sb.blocks_count {
                return Ok(self.nothing(console));
            }
            if let Some(dir) = &self.mounted {
                return self.grow(dir, blocks, console);
            }
            if blocks < sb.blocks_count && !self.options.force {
                let least = self.minimum()?;
                if blocks < least {
                    let text = format!("New size smaller than minimum ({least})\n");
                    console.complain(&text);
                    return Ok(1);
                }
            }
        }
        match self.mounted {
            Some(_) => Ok(no_shrinking(console)),
            None => self.resize(blocks, console),
        }
    }

    /// Makes the volume larger that is mounted on `dir`.
    fn grow(&self, dir: &Path, blocks: u64, console: &mut Console) -> Result<u8, Failure> {
        let (name, sb) = (Shown::path(&self.image.name), &self.sb);
        console.print(format_args!(
            "Filesystem at {name} is mounted on {}; on-line resizing required\n",
            Shown::path(dir)
        ))?;
        if blocks < sb.blocks_count {
            return Ok(no_shrinking(console));
        }
        let per_block = len_u32(sb.block_size.bytes()) / u32::from(sb.desc_size).max(1);
        let table = |blocks: u64| {
            let groups =
                (blocks - u64::from(sb.first_data_block)).div_ceil(sb.blocks_per_group.into());
            groups.div_ceil(per_block.into())
        };
        console.print(format_args!(
            "old_desc_blocks = {}, new_desc_blocks = {}\n",
            table(sb.blocks_count),
            table(blocks)
        ))?;
        console.flush()?;
        let bytes = NewSize::Bytes(blocks.saturating_mul(sb.block_size.bytes() as u64));
        match grow_mount(dir, bytes) {
            Ok(done) => {
                let (blocks, kib) = (done.to_blocks, done.block_bytes / 1024);
                console.print(format_args!(
                    "The filesystem on {name} is now {blocks} ({kib}k) blocks long.\n\n"
                ))?;
                Ok(0)
            }
            Err(refusal) => {
                console.complain(&refusal.message);
                Ok(1)
            }
        }
    }

    /// Makes the change. `None` is the smallest size.
    fn resize(&self, blocks: Option<u64>, console: &mut Console) -> Result<u8, Failure> {
        let name = Shown::path(&self.image.name);
        let kib = self.sb.block_size.bytes() / 1024;
        let size = blocks.map_or(Size::Minimum, Size::Blocks);
        if let Some(blocks) = blocks {
            console.print(format_args!(
                "Resizing the filesystem on {name} to {blocks} ({kib}k) blocks.\n"
            ))?;
            console.flush()?;
        }
        match resize_with(&self.image.options(), &self.image.path, size, &()) {
            Ok(done) => {
                if blocks.is_none() && done.to_blocks == done.from_blocks {
                    return Ok(self.nothing(console));
                }
                let blocks = done.to_blocks;
                if size == Size::Minimum {
                    console.print(format_args!(
                        "Resizing the filesystem on {name} to {blocks} ({kib}k) blocks.\n"
                    ))?;
                }
                console.print(format_args!(
                    "The filesystem on {name} is now {blocks} ({kib}k) blocks long.\n\n"
                ))?;
                Ok(0)
            }
            Err(Error::Busy) => {
                opened::complain(&self.image, &Error::Busy, console);
                Ok(1)
            }
            Err(error) => {
                let why = words::of(&error).text;
                console.complain(&format!("{why} while trying to resize {name}"));
                Ok(1)
            }
        }
    }

    fn nothing(&self, console: &mut Console) -> u8 {
        let (blocks, kib) = (self.sb.blocks_count, self.sb.block_size.bytes() / 1024);
        console.error(format_args!(
            "The filesystem is already {blocks} ({kib}k) blocks long.  Nothing to do!\n\n"
        ));
        0
    }

    /// Blocks that are sufficient for the content.
    fn minimum(&self) -> Result<u64, Failure> {
        let failed = |error: Error| Failure::new(words::of(&error).text);
        let fs = self.image.options().open(&self.image.path).map_err(failed)?;
        minimum(&fs).map_err(failed)
    }

    fn is_file(&self) -> bool {
        std::fs::metadata(&self.image.path).is_ok_and(|file| file.is_file())
    }

    /// Whole blocks of the device or file.
    fn device_blocks(&self) -> Result<u64, Failure> {
        let opened = FileOptions::new().lock(false).open(&self.image.path);
        let device = opened.map_err(|error| Failure::new(words::of(&error).text))?;
        Ok(device.len() >> self.sb.block_size.log2())
    }

    /// A size in blocks. A size in another unit is rounded down.
    fn blocks(&self, text: &str) -> Option<u64> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number = getopt::number(digits)?;
        let bytes = match &text[digits.len()..] {
            "" => return Some(number),
            unit => number.checked_mul(1 << getopt::unit_log(unit)?)?,
        };
        Some(bytes >> self.sb.block_size.log2())
    }
}
