//! `dumpe2fs`: prints superblock, journal and block groups.

mod groups;
mod journal;

use super::console::Console;
use super::getopt::{self, Words};
use super::volume::{Copy, RawVolume};
use super::{Call, superblock, words};
use crate::failure::Failure;
use crate::image::Image;
use extant::{Error, FileOptions, Site, What};
use extant_base::Ino;
use extant_ondisk::features::Incompat;
use std::ffi::OsString;

const USAGE: &str =
    "Usage: dumpe2fs [-bfghimxV] [-o superblock=<num>] [-o blocksize=<num>] device\n";

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    Header,
    BadBlocks,
    Table,
}

pub(super) fn run(call: &Call<'_>, console: &mut Console) -> Result<u8, Failure> {
    console.set_name("dumpe2fs");
    let words = Words::read(call.arguments, "bfghixVo:");
    if words.options.iter().any(|(option, _)| *option == 'V') {
        return Ok(console.version("dumpe2fs"));
    }
    console.error(format_args!("{}", Console::banner("dumpe2fs")));
    if words.report(console) {
        return Ok(usage(console));
    }
    let [name] = &words.operands[..] else { return Ok(usage(console)) };
    let (mut part, mut hexadecimal, mut is_image, mut copy) =
        (Part::All, false, false, Copy::default());
    for (option, value) in &words.options {
        match option {
            'h' => part = Part::Header,
            'b' => part = Part::BadBlocks,
            'g' => part = Part::Table,
            'x' => hexadecimal = true,
            'i' => is_image = true,
            'o' => match copy_of(&getopt::text(value)) {
                Ok(given) => copy = given,
                Err(wrong) => return Ok(bad_option(console, &wrong)),
            },
            // -f: unknown features are shown, too, as far as they can be.
            _ => {}
        }
    }
    if is_image {
        return fail(console, name, "Wrong magic number for Ext2 Image Header", 16);
    }
    let image = Image::parse(name)?;
    match RawVolume::open(&image, copy) {
        Ok(volume) if part == Part::All || part == Part::Header => {
            show(&volume, name, part, hexadecimal, console)
        }
        Ok(volume) if part == Part::Table => groups::table(&volume, console).map(|()| 0),
        Ok(volume) => bad_blocks(&volume, console),
        Err(Error::Unsupported { feature }) if is_journal(&feature) => {
            journal_device(&image, console)
        }
        Err(error) => {
            let said = words::of(&error);
            fail(console, name, &said.text, said.number)
        }
    }
}

fn is_journal(feature: &extant_base::Feature) -> bool {
    feature.set == extant_base::FeatureSet::Incompat
        && feature.bits & Incompat::JOURNAL_DEV.bits() != 0
}

fn show(
    volume: &RawVolume,
    name: &OsString,
    part: Part,
    hexadecimal: bool,
    console: &mut Console,
) -> Result<u8, Failure> {
    superblock::list(&volume.raw, &volume.sb, console)?;
    if let Err(error) = journal::internal(volume, console) {
        match error {
            journal::Wrong::Output(failure) => return Err(failure),
            journal::Wrong::Volume(error) => {
                console
                    .complain(&format!("{} while reading journal inode", words::of(&error).text));
            }
        }
    }
    journal::mmp(volume, console)?;
    if !volume.checksum_is_right {
        let said = words::of(&Site::NOWHERE.corrupt(What::SuperblockChecksum));
        let name = name.to_string_lossy();
        console.complain(&format!("{} while trying to open {name}", said.text));
        console.print(format_args!("\n*** Run e2fsck now!\n\n"))?;
        return Ok(said.number);
    }
    console.print(format_args!("\n"))?;
    match part {
        Part::Header => Ok(0),
        _ => {
            console.print(format_args!("\n"))?;
            groups::list(volume, hexadecimal, console).map(|()| 0)
        }
    }
}

/// The blocks of the list of bad blocks.
fn bad_blocks(volume: &RawVolume, console: &mut Console) -> Result<u8, Failure> {
    let failed = |error: &Error| Failure::new(words::of(error).text);
    let ino = Ino::new(1).expect("1 is the number of an inode");
    let inode = volume.inode(ino).map_err(|error| failed(&error))?;
    let mut runs = Vec::new();
    let walked = volume.walk_map(ino, &inode, &mut |piece| {
        if let super::volume::Piece::Run { block, len, .. } = piece {
            runs.push(block..block + len);
        }
        Ok(())
    });
    walked.map_err(|error| failed(&error))?;
    for block in runs.into_iter().flatten() {
        console.print(format_args!("{block}\n"))?;
    }
    Ok(0)
}

/// The device of an external journal, which has a superblock, too.
fn journal_device(image: &Image, console: &mut Console) -> Result<u8, Failure> {
    let failed = |error: Error| Failure::new(words::of(&error).text);
    let device = FileOptions::new().open(&image.path).map_err(failed)?;
    journal::external(&device, console)
}

fn usage(console: &mut Console) -> u8 {
    console.error(format_args!("{USAGE}"));
    1
}

fn fail(console: &mut Console, name: &OsString, why: &str, code: u8) -> Result<u8, Failure> {
    console.complain(&format!("{why} while trying to open {}", name.to_string_lossy()));
    console.print(format_args!("Couldn't find valid filesystem superblock.\n"))?;
    Ok(code)
}

fn bad_option(console: &mut Console, wrong: &str) -> u8 {
    console.error(format_args!(
        "\nBad extended option(s) specified: {wrong}\n\n\
         Extended options are separated by commas, and may take an argument which\n\
         \tis set off by an equals ('=') sign.\n\n\
         Valid extended options are:\n\
         \tsuperblock=<superblock number>\n\
         \tblocksize=<blocksize>\n"
    ));
    1
}

/// The copy of the superblock that `-o` names.
fn copy_of(text: &str) -> Result<Copy, String> {
    let mut copy = Copy::default();
    for word in text.split(',') {
        let wrong = || word.to_owned();
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        let value = getopt::number(value).ok_or_else(wrong)?;
        match key {
            "superblock" => copy.block = Some(value),
            "blocksize" => copy.block_bytes = Some(u32::try_from(value).map_err(|_| wrong())?),
            _ => return Err(wrong()),
        }
    }
    Ok(copy)
}
