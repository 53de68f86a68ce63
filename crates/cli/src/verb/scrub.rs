//! `extant scrub`: are the members of a mirror the same, and if not, which is right?
//!
//! ```text
//!   compare ─► blocks that differ ─► check each member by itself ─► one is damaged there, another
//!                    ▲                                              is not: the good one is copied
//!                    └──────────── until nothing more is mended ◄───┘
//! ```

use crate::bar;
use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use extant::check::{Options, Severity, check_device};
use extant::layout::{Assembled, Comparison, Mirror};
use extant_base::ByteOffset;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use serde::Serialize;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Compare the members of a mirrored volume, and mend what differs.
///
/// Every block of every member is read. Where members differ the volume's own checksums say which is
/// right, and that copy is written over the others. What no checksum covers, as the bytes of files
/// without data_csum, is reported and left, unless --trust names the member to believe. A journal is replayed
/// first, and what a crash left to be brought in line is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant scrub 'a.img?member=b.img'
  extant scrub --read-only 'a.img?member=b.img'     report only
  extant scrub --trust 0 'a.img?member=b.img'       member 0 where no checksum decides

Exit status: 0 all members are the same (now), 4 some differ or the volume is damaged, 1 failed.")]
pub(crate) struct Args {
    /// A member and the others, as IMG?member=IMG2
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Change nothing
    #[arg(short = 'n', long)]
    read_only: bool,
    /// Believe this member where no checksum decides (`extant info` shows the numbers)
    #[arg(long, value_name = "INDEX", conflicts_with = "read_only")]
    trust: Option<u16>,
    /// Print one JSON object (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing but what is wrong
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

#[derive(Serialize, Default)]
struct Answer {
    image: String,
    bytes: u64,
    members: usize,
    /// Blocks in which members differed.
    differing_blocks: usize,
    mended_blocks: usize,
    /// Blocks that still differ: first byte of each.
    unresolved: Vec<u64>,
    /// Those of them of which a checksum says which copy is right: nothing was to be changed.
    #[serde(skip)]
    decided: HashSet<u64>,
    /// Damage that all members have.
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
        let answer = self.scrub(&image, &mirror).map_err(failed)?;
        drop(mirror);
        let wrong = !answer.unresolved.is_empty() || answer.errors > 0;
        self.print(&image, &answer)?;
        Ok(if wrong { 4 } else { 0 })
    }

    fn scrub(&self, image: &Image, mirror: &Arc<Mirror>) -> extant::Result<Answer> {
        let bar = bar::percent(self.quiet);
        let mut progress = |done: u64, all: u64| {
            bar.set_length(all);
            bar.set_position(done);
            true
        };
        if !self.read_only {
            bar.set_message("bringing in line");
            mirror.resync(&mut progress)?;
        }
        bar.set_message("comparing");
        let unit = block_bytes(mirror);
        let mut rest = mirror.compare(unit, &mut progress)?;
        bar.finish_and_clear();
        let members: Vec<_> = mirror.places().into_iter().filter(|place| place.active).collect();
        let mut answer = Answer {
            image: encoded(image.name.as_os_str().as_bytes()),
            bytes: extant::BlockDevice::len(&**mirror),
            members: members.len(),
            differing_blocks: rest.len(),
            ..Answer::default()
        };
        while !rest.is_empty() {
            let bad = damaged_blocks(mirror, members.len(), unit);
            let before = rest.len();
            let mut kept = Vec::new();
            for block in rest {
                match good_copy(&block, &bad, unit) {
                    Some(good) if !self.read_only => mirror.copy_from(good, block.range)?,
                    good => {
                        if good.is_some() {
                            answer.decided.insert(block.range.start);
                        }
                        kept.push(block);
                    }
                }
            }
            rest = kept;
            if rest.len() == before {
                break;
            }
        }
        let trusted = members.iter().position(|member| Some(member.index) == self.trust);
        if let Some(trusted) = trusted {
            for block in std::mem::take(&mut rest) {
                mirror.copy_from(trusted, block.range)?;
            }
        }
        answer.mended_blocks = answer.differing_blocks - rest.len();
        answer.unresolved = rest.iter().map(|block| block.range.start).collect();
        let report = check_device(mirror.view_of(0), &Options::default(), &())?;
        answer.errors = report.errors;
        if !self.read_only {
            extant::BlockDevice::flush(&**mirror)?;
        }
        Ok(answer)
    }

    fn print(&self, image: &Image, answer: &Answer) -> Result<(), Failure> {
        let mut out = Out::new();
        if self.json {
            out.json(answer)?;
            return out.finish();
        }
        let name = Shown::path(&image.name);
        for at in &answer.unresolved {
            let which = match answer.decided.contains(at) {
                true => "a checksum says which is right",
                false => "and no checksum says which is right",
            };
            out.text(format_args!("{name}: members differ at byte {at}, {which}\n"))?;
        }
        if answer.errors > 0 {
            let errors = answer.errors;
            out.text(format_args!("{name}: {errors} errors in all members: see `extant check`\n"))?;
        }
        if !self.quiet {
            let (members, differ, mended) =
                (answer.members, answer.differing_blocks, answer.mended_blocks);
            match differ {
                0 => out.text(format_args!("{name}: {members} members, all the same\n"))?,
                _ => out.text(format_args!(
                    "{name}: {members} members, {differ} blocks differed, {mended} mended\n"
                ))?,
            }
        }
        out.finish()
    }
}

/// The volume's block size, as far as a member can tell it.
fn block_bytes(mirror: &Arc<Mirror>) -> u64 {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let count = mirror.places().len();
    let sizes = (0..count).filter_map(|place| {
        mirror.read_of(place, SUPERBLOCK_OFFSET, &mut bytes).ok()?;
        let superblock = RawSuperblock::from_prefix(&bytes)?;
        superblock.check(extant::Site::NOWHERE).ok().map(|sb| sb.block_size.bytes() as u64)
    });
    sizes.max().unwrap_or(4096)
}

/// For each member, the blocks that its own content says are damaged.
fn damaged_blocks(mirror: &Arc<Mirror>, members: usize, unit: u64) -> Vec<HashSet<u64>> {
    let options = Options { findings_limit: 1 << 20, data: true, ..Options::default() };
    let view = |place| mirror.view_of(place);
    (0..members)
        .map(|place| {
            let Ok(report) = check_device(view(place), &options, &()) else {
                return HashSet::new();
            };
            let errors = report.findings.iter().filter(|found| found.severity == Severity::Error);
            let sums = errors.filter(|found| found.what.name().contains("Checksum"));
            let mut blocks = HashSet::new();
            for found in sums {
                match found.at.block {
                    Some(block) => {
                        blocks.insert(block.0);
                    }
                    None if found.what.name().starts_with("Superblock") => {
                        blocks.insert(SUPERBLOCK_OFFSET / unit);
                    }
                    None => blocks.extend(places_of(&*view(place), found.at, unit)),
                }
            }
            blocks
        })
        .collect()
}

/// Where the metadata lies that a finding names by inode or group.
fn places_of(device: &dyn extant::BlockDevice, at: extant::Site, unit: u64) -> Option<u64> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes).ok()?;
    let sb = RawSuperblock::from_prefix(&bytes)?.check(extant::Site::NOWHERE).ok()?;
    let size = u64::from(sb.desc_size.max(32));
    let first = u64::from(sb.first_data_block) + 1;
    let descriptor = |group: u64| (first * unit).checked_add(group * size);
    match (at.ino, at.group) {
        (Some(ino), _) => {
            let number = u64::from(ino.get()) - 1;
            let per_group = u64::from(sb.inodes_per_group);
            let mut table = [0; 64];
            let place = descriptor(number / per_group)?;
            device.read_at(ByteOffset(place), &mut table[..size.min(64) as usize]).ok()?;
            let word = |at: usize| u32::from_le_bytes(table[at..at + 4].try_into().expect("four"));
            let high = if size >= 64 { u64::from(word(0x28)) } else { 0 };
            let table = high << 32 | u64::from(word(8));
            let within = number % per_group * u64::from(sb.inode_size);
            table.checked_add(within / unit)
        }
        (None, Some(group)) => descriptor(group.0.into()).map(|place| place / unit),
        _ => None,
    }
}

/// The place of a member whose copy of a block is right: it is not damaged there, another one is,
/// and all that are not hold the same.
fn good_copy(block: &Comparison, bad: &[HashSet<u64>], unit: u64) -> Option<usize> {
    let nr = block.range.start / unit;
    let is_bad = |place: &usize| block.contents[*place].is_none() || bad[*place].contains(&nr);
    let (bad, good): (Vec<_>, Vec<_>) = (0..block.contents.len()).partition(is_bad);
    let first = *good.first()?;
    let agree = good.iter().all(|place| block.contents[*place] == block.contents[first]);
    (!bad.is_empty() && agree).then_some(first)
}
