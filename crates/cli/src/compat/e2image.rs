//! `e2image`: copies the metadata of a volume into a sparse file.
//!
//! ```text
//!   -r     metadata, as `extant dump` copies it
//!   -rs    with other names
//!   -ra    all blocks in use
//! ```
//!
//! The original's own format, qcow2, and changes of an existing copy are refused.

use super::Call;
use super::console::Console;
use super::getopt::Words;
use super::opened;
use super::volume::{Copy, RawVolume};
use super::words;
use crate::failure::{Failure, plain};
use crate::image::Image;
use crate::shown::Shown;
use extant::dump::{self, dump_device};
use extant::{BlockDevice, Environment, Error, FileDevice, FileOptions};
use extant_base::{BlockNr, ByteOffset};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const USAGE: &str = "Usage: e2image [ -r|-Q ] [ -f ] [ -b superblock ] [ -B blocksize ] device \
                     image-file\n       e2image -I device image-file\n       e2image -ra \
                     [ -cfnp ] [ -o src_offset ] [ -O dest_offset ] src_fs [ dest_fs ]\n";
/// Bytes of one transfer of content.
const TRANSFER: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Options {
    raw: bool,
    all: bool,
    scramble: bool,
    progress: bool,
}

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    console.set_name("e2image");
    let words = Words::read(call.arguments, "rasfp");
    console.error(format_args!("{}", Console::banner("e2image")));
    let wrong = words.report(console);
    let mut options = Options::default();
    for (option, _) in &words.options {
        match option {
            'r' => options.raw = true,
            'a' => options.all = true,
            's' => options.scramble = true,
            'p' => options.progress = true,
            // f: a volume that is mounted for writing is copied without it, too.
            _ => {}
        }
    }
    let (from, to) = match &words.operands[..] {
        [from, to] if !wrong => (from, to),
        _ => {
            console.error(format_args!("{USAGE}"));
            return Ok(1);
        }
    };
    if options.all && !options.raw {
        console.complain("-a option can only be used with raw or QCOW2 images.");
        return Ok(1);
    }
    if !options.raw {
        console.complain("only raw images (-r) can be made");
        return Ok(1);
    }
    if options.all && options.scramble {
        console.complain("-s and -a exclude each other: content has names, too");
        return Ok(1);
    }
    copy(from, Path::new(to), options, console)
}

fn copy(from: &OsStr, to: &Path, options: Options, console: &mut Console) -> Result<u8, Failure> {
    let image = Image::parse(from)?;
    let name = Shown::path(to);
    let missing = |error: &Error, console: &mut Console| {
        let name = Shown::path(&image.name);
        console.complain(&format!("{} while trying to open {name}", words::of(error).text));
        console.print(format_args!("Couldn't find valid filesystem superblock.\n")).map(|()| 1)
    };
    let Some(volume) = (match RawVolume::open(&image, Copy::default()) {
        Ok(volume) => Some(volume),
        Err(error) => return missing(&error, console),
    }) else {
        return Ok(1);
    };
    if crate::image::is_same_file(&image.path, to) {
        console.complain(&format!("{name} is the volume itself: name another file"));
        return Ok(1);
    }
    let output = match create(to, size_of(&volume)) {
        Ok(output) => output,
        Err(text) => {
            console.complain(&format!("{text} while trying to open {name}"));
            return Ok(1);
        }
    };
    if options.progress {
        console.error(format_args!("Scanning inodes...\n"));
    }
    let done = match options.all {
        true => all(&volume, &output),
        false => metadata(&image, &output, options.scramble),
    };
    match done {
        Ok(blocks) => {
            if options.progress {
                console.error(format_args!(
                    "Copied {blocks} / {blocks} blocks (100%) in 00:00:00        \n"
                ));
            }
            Ok(0)
        }
        Err(error) => {
            // A part of a copy is no copy.
            drop(output);
            let _ = fs::remove_file(to);
            opened::complain(&image, &error, console);
            Ok(1)
        }
    }
}

fn size_of(volume: &RawVolume) -> u64 {
    volume.sb.blocks_count << volume.sb.block_size.log2()
}

/// An empty sparse file of `bytes`. What the file held is dropped, as by the original.
fn create(path: &Path, bytes: u64) -> Result<FileDevice, String> {
    let plain_file = fs::symlink_metadata(path).map_or(true, |meta| meta.is_file());
    if !plain_file {
        return Err("only a file can be the target of a copy".into());
    }
    match FileOptions::new().create(path, bytes) {
        Ok(device) => Ok(device),
        Err(Error::Device { source, .. }) => Err(plain(&source)),
        Err(error) => Err(words::of(&error).text),
    }
}

/// Copies the metadata. Returns the number of blocks.
fn metadata(image: &Image, output: &FileDevice, scramble: bool) -> Result<u64, Error> {
    let device = image.options().lock(false).assemble(&image.path)?.device();
    let seed = scramble.then(|| Environment::default().rng.next_u64());
    let options = dump::Options { scramble: seed, ..dump::Options::default() };
    dump_device(device, output, &options, &()).map(|report| report.blocks)
}

/// Copies every block in use, by the bitmaps as they are on disk. Returns their number. The
/// superblock is written last.
fn all(volume: &RawVolume, output: &FileDevice) -> Result<u64, Error> {
    let size = volume.sb.block_size;
    let geometry = &volume.geometry;
    let most = (TRANSFER >> size.log2()).max(1);
    let first = 1024 >> size.log2();
    let mut copied = 0;
    let mut run = |start: u64, len: u64| -> Result<(), Error> {
        let (mut at, end) = (start, start + len);
        while at < end {
            let blocks = most.min(end - at);
            let bytes = volume.blocks(BlockNr(at), blocks)?;
            for (nr, block) in (at..).zip(bytes.chunks(size.bytes())) {
                if nr != first && block.iter().any(|byte| *byte != 0) {
                    output.write_at(size.start_of(BlockNr(nr)), block)?;
                }
            }
            at += blocks;
            copied += blocks;
        }
        Ok(())
    };
    // With blocks of 1 KiB, the boot block is in front of the first group.
    run(0, geometry.first_data_block().0)?;
    for group in geometry.groups() {
        let desc = volume.descriptor(group)?;
        let bitmap = volume.block_bitmap(group, &desc)?;
        let Some(blocks) = geometry.blocks_of_group(group) else { continue };
        let ratio = geometry.log_cluster_ratio();
        let is_used = |nr: u64| {
            let bit = ((nr - blocks.start) >> ratio) as usize;
            bitmap.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
        };
        let mut at = blocks.start;
        while at < blocks.end {
            let used = is_used(at);
            let len = (at..blocks.end).take_while(|nr| is_used(*nr) == used).count() as u64;
            if used {
                run(at, len)?;
            }
            at += len;
        }
    }
    output.flush()?;
    let block = volume.block(BlockNr(first))?;
    output.write_at(ByteOffset(first << size.log2()), &block)?;
    output.flush()?;
    Ok(copied)
}
