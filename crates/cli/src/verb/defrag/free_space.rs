//! `extant defrag --free-space`: the free space in fewer runs, with its runs before and after.
//!
//! ```text
//!   disk.img: 92 runs of free blocks, now 7; 105 moves of 1.2 MiB
//!   disk.img: longest run 3.1 MiB, now 11.0 MiB; average 124.0 KiB, now 1.6 MiB
//!     from   4.0 KiB:       20   80.0 KiB  now        2    8.0 KiB     runs, their blocks
//! ```

use super::{Args, open};
use crate::amount::shown;
use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::Shown;
use extant::{FreeRuns, FreeSpaceDefragmented};
use serde::Serialize;

/// What was done, as JSON.
#[derive(Serialize)]
struct Record {
    block_bytes: u64,
    before: Runs,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Runs>,
    moves: u64,
    moved_blocks: u64,
    files_left: u64,
}

/// Runs of free blocks, as JSON. All lengths are in blocks.
#[derive(Serialize)]
struct Runs {
    runs: u64,
    blocks: u64,
    shortest: u64,
    longest: u64,
    /// Entry `n`: number and blocks of the runs of `2^n` to `2^(n+1) - 1` blocks.
    by_length: Vec<(u64, u64)>,
}

impl From<&FreeRuns> for Runs {
    fn from(of: &FreeRuns) -> Runs {
        let FreeRuns { runs, blocks, shortest, longest, by_length } = of;
        let by_length = by_length.clone();
        Runs { runs: *runs, blocks: *blocks, shortest: *shortest, longest: *longest, by_length }
    }
}

pub(super) fn run(args: &Args, image: &Image) -> Result<u8, Failure> {
    let failure = |error: extant::Error| Failure::of_image(&image.name, &error);
    let fs = open(image, args.dry_run)?;
    let block_bytes = fs.superblock().block_size.bytes() as u64;
    let done = match args.dry_run {
        true => FreeSpaceDefragmented {
            before: fs.free_runs().map_err(failure)?,
            ..FreeSpaceDefragmented::default()
        },
        false => fs.defragment_free_space().map_err(failure)?,
    };
    fs.close().map_err(failure)?;
    let after = (!args.dry_run).then_some(&done.after);
    let mut out = Out::of_report();
    if args.json {
        out.json(&Record {
            block_bytes,
            before: Runs::from(&done.before),
            after: after.map(Runs::from),
            moves: done.moves,
            moved_blocks: done.moved_blocks,
            files_left: done.files_left,
        })?;
    } else if !args.quiet {
        let name = Shown::path(&image.name);
        head(&mut out, &name, &done, after, block_bytes)?;
        table(&mut out, &done.before, after, block_bytes)?;
        if done.files_left > 0 {
            out.text(format_args!("{name}: {} files cannot move\n", done.files_left))?;
        }
    }
    out.finish()?;
    Ok(0)
}

fn head(
    out: &mut Out,
    name: &Shown<'_>,
    done: &FreeSpaceDefragmented,
    after: Option<&FreeRuns>,
    block_bytes: u64,
) -> Result<(), Failure> {
    let size = |blocks: u64| shown(blocks * block_bytes);
    let average = |of: &FreeRuns| size(of.blocks.checked_div(of.runs).unwrap_or(0));
    let before = &done.before;
    let Some(now) = after else {
        return out.text(format_args!(
            "{name}: {} runs of free blocks; longest {}, average {}\n",
            before.runs,
            size(before.longest),
            average(before)
        ));
    };
    out.text(format_args!(
        "{name}: {} runs of free blocks, now {}; {} moves of {}\n",
        before.runs,
        now.runs,
        done.moves,
        size(done.moved_blocks)
    ))?;
    out.text(format_args!(
        "{name}: longest run {}, now {}; average {}, now {}\n",
        size(before.longest),
        size(now.longest),
        average(before),
        average(now)
    ))
}

/// A line for each power of two of blocks.
fn table(
    out: &mut Out,
    before: &FreeRuns,
    after: Option<&FreeRuns>,
    block_bytes: u64,
) -> Result<(), Failure> {
    let rows = before.by_length.len().max(after.map_or(0, |after| after.by_length.len()));
    let entry = |of: &FreeRuns, n: usize| of.by_length.get(n).copied().unwrap_or((0, 0));
    for n in 0..rows {
        let (old, new) = (entry(before, n), after.map(|after| entry(after, n)));
        if old.0 == 0 && new.is_none_or(|new| new.0 == 0) {
            continue;
        }
        let from = shown(block_bytes << n);
        let cell =
            |(runs, blocks): (u64, u64)| format!("{runs:>8} {:>10}", shown(blocks * block_bytes));
        let now = new.map_or(String::new(), |new| format!("  now {}", cell(new)));
        out.text(format_args!("  from {from:>9}: {}{now}\n", cell(old)))?;
    }
    Ok(())
}
