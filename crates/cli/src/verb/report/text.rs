//! The report for a terminal.
//!
//! ```text
//!   Map    one character 256.0 KiB, the higher the fuller
//!       0  ▇▇█▇▃  ▁          ▂▅█ ...      a group begins here, or several groups per character
//! ```

use super::facts::{
    Facts, MetadataChecksums, counted, grouped, kinds, percent_shown, pieces_per_mib, span, used,
};
use crate::amount;
use crate::failure::Failure;
use crate::out::Out;
use crate::shown::{Shown, uuid};
use extant::survey::{Bucket, Cell, Survey};
use std::fmt::Write;

/// Characters in a row of the map and in the bar of space.
const WIDTH: usize = 64;
/// Rows of the map.
const ROWS: usize = 16;
/// Characters in the longest bar of a list.
const BAR: usize = 24;

/// Prints the whole report.
pub(super) fn print(facts: &Facts, out: &mut Out) -> Result<(), Failure> {
    head(facts, out)?;
    if let Some(survey) = &facts.survey {
        space(facts, survey, out)?;
        map(facts, survey, out)?;
        free(facts, survey, out)?;
        pieces(facts, survey, out)?;
    }
    journal(facts, out)?;
    checksums(facts, out)?;
    if let Some(survey) = &facts.survey {
        largest(facts, survey, out)?;
    }
    problems(facts, out)
}

fn title(out: &mut Out, name: &str, rest: &str) -> Result<(), Failure> {
    out.text(format_args!("\n"))?;
    out.styled(name, "1")?;
    let gap = 10usize.saturating_sub(name.len()).max(2);
    let rest = format!("{:gap$}{rest}", "");
    out.text(format_args!("{}\n", rest.trim_end()))
}

fn head(facts: &Facts, out: &mut Out) -> Result<(), Failure> {
    let sb = &facts.sb;
    out.styled(&facts.name, "1")?;
    let label = Shown(sb.label()).to_string();
    let label = if label.is_empty() { String::new() } else { format!("  {label}") };
    out.text(format_args!("{label}  {}  {}\n", uuid(&sb.uuid), facts.state))?;
    let groups =
        sb.groups_count().map_or("?".into(), |count| counted(count.into(), "group", "groups"));
    let size = amount::shown(facts.bytes(sb.blocks_count));
    let block = amount::shown(sb.block_size.bytes() as u64);
    out.text(format_args!("{size} in {groups}, blocks of {block}"))?;
    if let Some(survey) = &facts.survey {
        let files = &survey.files;
        out.text(format_args!(
            "; {}, {}, {}",
            counted(files.regular, "file", "files"),
            counted(files.directories, "directory", "directories"),
            counted(files.symlinks + files.special, "other", "others"),
        ))?;
    }
    out.text(format_args!("\n"))?;
    match facts.replayed {
        true => out.text(format_args!("Shown with the journal replayed in memory.\n")),
        false => Ok(()),
    }
}

fn space(facts: &Facts, survey: &Survey, out: &mut Out) -> Result<(), Failure> {
    let parts = &survey.parts;
    let free = amount::shown(facts.bytes(parts.free));
    let share = percent_shown(used(parts), parts.blocks);
    title(out, "Space", &format!("{share} used, {free} free"))?;
    out.text(format_args!("          "))?;
    let mut left = WIDTH;
    for (kind, _, blocks) in kinds(parts) {
        let wide = (blocks as f64 * WIDTH as f64 / parts.blocks.max(1) as f64).round() as usize;
        let wide = wide.max(usize::from(blocks > 0)).min(left);
        left -= wide;
        out.styled(&glyph(kind).to_string().repeat(wide), style(kind))?;
    }
    out.text(format_args!("{}\n", "·".repeat(left)))?;
    for (kind, name, blocks) in kinds(parts) {
        let (bytes, share) =
            (amount::shown(facts.bytes(blocks)), percent_shown(blocks, parts.blocks));
        out.text(format_args!("          "))?;
        out.styled(&glyph(kind).to_string(), style(kind))?;
        out.text(format_args!(" {name:<12} {bytes:>10}  {share:>7}\n"))?;
    }
    let share = percent_shown(parts.free, parts.blocks);
    out.text(format_args!("          · {:<12} {free:>10}  {share:>7}\n", "free"))
}

/// The character for this kind of use in the bar.
fn glyph(kind: &str) -> char {
    match kind {
        "files" => '█',
        "dirs" => '▓',
        "journal" => '▒',
        "meta" => '▚',
        _ => '░',
    }
}

fn style(kind: &str) -> &'static str {
    match kind {
        "files" => "34",
        "dirs" => "33",
        "journal" => "35",
        "meta" => "36",
        _ => "90",
    }
}

fn map(facts: &Facts, survey: &Survey, out: &mut Out) -> Result<(), Failure> {
    let cells = &survey.cells;
    // Number of cells per character with which a row begins at a group, if that is possible.
    let joined = cells.len().div_ceil(WIDTH * ROWS).next_power_of_two();
    let each = cells.chunks(joined).next().map_or(0, blocks_of);
    let groups = &survey.groups;
    let mut rest = format!("one character {}", amount::shown(facts.bytes(each)));
    for (count, what) in
        [(groups.full, "full"), (groups.uninit, "never used"), (groups.damaged, "damaged")]
    {
        if count > 0 {
            rest += &format!(", {} {what}", counted(count.into(), "group", "groups"));
        }
    }
    title(out, "Map", &rest)?;
    for row in cells.chunks(joined * WIDTH) {
        out.text(format_args!("{:>8}  ", row[0].groups.start))?;
        for some in row.chunks(joined) {
            let (character, kind) = drawn(some);
            out.styled(&character.to_string(), style(kind))?;
        }
        out.text(format_args!("\n"))?;
    }
    Ok(())
}

fn blocks_of(cells: &[Cell]) -> u64 {
    cells.iter().map(|cell| cell.parts.blocks).sum()
}

/// How full some cells are, and the most common kind in them.
fn drawn(cells: &[Cell]) -> (char, &'static str) {
    let mut most = [("files", 0), ("dirs", 0), ("journal", 0), ("meta", 0), ("other", 0)];
    for cell in cells {
        for (sum, (_, _, blocks)) in most.iter_mut().zip(kinds(&cell.parts)) {
            sum.1 += blocks;
        }
    }
    if cells.iter().any(|cell| cell.unknown > 0) {
        return ('?', "other");
    }
    let used: u64 = most.iter().map(|(_, blocks)| blocks).sum();
    let kind = most.iter().max_by_key(|(_, blocks)| *blocks).map_or("other", |(kind, _)| kind);
    let all = blocks_of(cells).max(1);
    // Only a full cell is drawn as full.
    let eighth = if used >= all { 8 } else { (used * 8).div_ceil(all).min(7) };
    (['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][eighth as usize], kind)
}

/// A bar of at most [`BAR`] characters, in eighths of a character.
fn bar(value: u64, most: u64) -> String {
    let eighths = (value as f64 * BAR as f64 * 8.0 / most.max(1) as f64).round() as usize;
    let eighths = eighths.max(usize::from(value > 0)).min(BAR * 8);
    let mut text = "█".repeat(eighths / 8);
    text.extend(['\0', '▏', '▎', '▍', '▌', '▋', '▊', '▉'].get(eighths % 8).filter(|c| **c != '\0'));
    text
}

fn free(facts: &Facts, survey: &Survey, out: &mut Out) -> Result<(), Failure> {
    let free = &survey.free;
    let mean = amount::shown(facts.bytes(free.blocks) / free.count.max(1));
    let rest = format!(
        "{}, the longest {}, the mean {mean}",
        counted(free.count, "run", "runs"),
        amount::shown(facts.bytes(free.longest)),
    );
    title(out, "Free", &rest)?;
    let most = free.by_length.iter().map(|bucket| bucket.blocks).max().unwrap_or(0);
    for (n, bucket) in filled(&free.by_length) {
        let (from, runs) =
            (amount::shown(facts.bytes(1 << n)), counted(bucket.count, "run", "runs"));
        let (bytes, bar) = (amount::shown(facts.bytes(bucket.blocks)), bar(bucket.blocks, most));
        out.text(format_args!("{:>9} {from:>10} +  {bar:<BAR$}  {bytes:>10} in {runs}\n", ""))?;
    }
    Ok(())
}

/// Buckets that are not empty.
fn filled(buckets: &[Bucket]) -> impl Iterator<Item = (usize, &Bucket)> {
    buckets.iter().enumerate().filter(|(_, bucket)| bucket.count > 0)
}

fn pieces(facts: &Facts, survey: &Survey, out: &mut Out) -> Result<(), Failure> {
    let files = &survey.files;
    let whole = files.with_blocks - files.fragmented.min(files.with_blocks);
    let mut rest = format!(
        "{} of {} in one piece",
        percent_shown(whole, files.with_blocks),
        counted(files.with_blocks, "file", "files"),
    );
    let bytes = facts.bytes(files.data_blocks);
    // For small files alone, the figure would only show how small they are.
    if bytes >= 1 << 20 {
        let _ = write!(rest, ", {:.2} pieces a MiB", pieces_per_mib(files.pieces, bytes));
    }
    title(out, "Files", &rest)?;
    let most = files.by_pieces.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    for (n, bucket) in filled(&files.by_pieces) {
        let (span, count) = (span(n), counted(bucket.count, "file", "files"));
        let (bytes, bar) = (amount::shown(facts.bytes(bucket.blocks)), bar(bucket.count, most));
        let name = if n == 0 { "piece" } else { "pieces" };
        out.text(format_args!("{span:>15} {name:<6} {bar:<BAR$}  {bytes:>10} in {count}\n"))?;
    }
    Ok(())
}

fn journal(facts: &Facts, out: &mut Out) -> Result<(), Failure> {
    let Some(journal) = &facts.journal else { return Ok(()) };
    let state = journal.info.state.unwrap_or("");
    let Some((superblock, usage)) = &journal.log else {
        let place = journal.info.place;
        return title(out, "Journal", format!("{place}  {state}").trim_end());
    };
    let size = amount::shown(facts.bytes(superblock.maxlen.into()));
    title(out, "Journal", &format!("{size}, {state}, next transaction {}", superblock.sequence.0))?;
    let (first, end) = (superblock.first, superblock.log_end().unwrap_or(superblock.maxlen));
    let share = percent_shown(usage.blocks.into(), u64::from(end - first));
    let transactions = counted(usage.transactions.into(), "transaction", "transactions");
    out.text(format_args!(
        "          log blocks {first}–{}, tail {}, head {}: {share} in {transactions} to replay\n",
        end - 1,
        usage.tail,
        usage.head,
    ))?;
    let area = superblock.fast_commit_area();
    if !area.is_empty() {
        let state = journal.info.fast_commits.unwrap_or("off");
        out.text(format_args!(
            "          fast commits {state}, in blocks {}–{}\n",
            area.start,
            area.end - 1
        ))?;
    }
    Ok(())
}

fn checksums(facts: &Facts, out: &mut Out) -> Result<(), Failure> {
    let metadata = match facts.metadata_checksums() {
        MetadataChecksums::All => "all metadata (CRC32C)",
        MetadataChecksums::Descriptors => "group descriptors only (CRC16)",
        MetadataChecksums::None => "none of metadata",
    };
    let data = match (&facts.survey, facts.has_data_csum()) {
        (_, false) => "none of data".into(),
        (None, true) => "data".into(),
        (Some(survey), true) => {
            let (covered, all) = (survey.files.covered.blocks, survey.files.data_blocks);
            format!("{} of data (CRC32C)", percent_shown(covered, all))
        }
    };
    title(out, "Checksums", &format!("{metadata}, {data}"))?;
    match facts.sb.error_count {
        0 => Ok(()),
        count => out.text(format_args!("          {count} errors recorded by mounts\n")),
    }
}

fn largest(facts: &Facts, survey: &Survey, out: &mut Out) -> Result<(), Failure> {
    let shown = |blocks| amount::shown(facts.bytes(blocks));
    if !survey.largest_files.is_empty() {
        title(out, "Largest files", "")?;
    }
    for row in &survey.largest_files {
        let pieces = counted(row.pieces, "piece", "pieces");
        out.text(format_args!("{:>10}  {pieces:>12}  ", shown(row.blocks)))?;
        path(&row.path, out)?;
    }
    if !survey.most_pieces.is_empty() {
        title(out, "In most pieces", "")?;
    }
    for row in &survey.most_pieces {
        let rate = pieces_per_mib(row.pieces, facts.bytes(row.blocks));
        let pieces = counted(row.pieces, "piece", "pieces");
        out.text(format_args!("{:>10}  {pieces:>12}  {rate:>8.2} a MiB  ", shown(row.blocks)))?;
        path(&row.path, out)?;
    }
    title(out, "Largest directories", "")?;
    for row in &survey.largest_dirs {
        let below = grouped(row.below);
        out.text(format_args!("{:>10}  {below:>12} below  ", shown(row.blocks)))?;
        path(&row.path, out)?;
    }
    title(out, "Fullest directories", "")?;
    for row in &survey.fullest_dirs {
        let names = counted(row.names, "name", "names");
        out.text(format_args!("{names:>24}        "))?;
        path(&row.path, out)?;
    }
    Ok(())
}

fn path(path: &std::path::Path, out: &mut Out) -> Result<(), Failure> {
    out.text(format_args!("{}\n", Shown::path(path)))
}

fn problems(facts: &Facts, out: &mut Out) -> Result<(), Failure> {
    if facts.problems.is_empty() {
        return Ok(());
    }
    let more = facts.problems_count.saturating_sub(facts.problems.len() as u64);
    title(out, "Could not be read", "")?;
    for problem in &facts.problems {
        out.text(format_args!("          {problem}\n"))?;
    }
    match more {
        0 => Ok(()),
        more => out.text(format_args!("          and {} more\n", grouped(more))),
    }
}
