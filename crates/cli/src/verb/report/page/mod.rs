//! The report as one self-contained page of HTML, which is also well-formed XML.
//!
//! ```text
//!   name, state                tiles: the most requested figures
//!   space ── one bar           map ── every group
//!   free space   files         journal   checksums
//!   largest files, in most pieces, largest and fullest directories
//!   what could not be read
//! ```

mod lists;

use super::facts::{
    Facts, MetadataChecksums, counted, grouped, kinds, percent, percent_shown, pieces_per_mib,
    span, used,
};
use super::svg::{self, Bar};
use crate::shown::{Shown, uuid};
use crate::{amount, moment};
use extant::survey::Survey;
use lists::{fullest_dirs, largest_dirs, largest_files, most_pieces, problems};
use std::fmt::Write;

/// The first bytes of every page.
pub(super) const START: &str = "<!DOCTYPE html>\n<!-- made by extant report -->\n";

const STYLE: &str = include_str!("page.css");

/// The page.
pub(super) fn page(facts: &Facts) -> String {
    let mut out = String::from(START);
    let title = escape(&facts.name);
    let _ = writeln!(
        out,
        "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/><title>{title}: extant report</title>\
         <style>\n{STYLE}</style></head>\n<body><main>"
    );
    head(facts, &mut out);
    if facts.survey.is_none() {
        problems(facts, &mut out);
    }
    if let Some(survey) = &facts.survey {
        tiles(facts, survey, &mut out);
        space(facts, survey, &mut out);
        map(facts, survey, &mut out);
        out.push_str("<div class=\"pair\">");
        free(facts, survey, &mut out);
        files(facts, survey, &mut out);
        out.push_str("</div>\n");
    }
    journal(facts, &mut out);
    checksums(facts, &mut out);
    if let Some(survey) = &facts.survey {
        out.push_str("<div class=\"pair\">");
        largest_files(facts, survey, &mut out);
        most_pieces(facts, survey, &mut out);
        largest_dirs(facts, survey, &mut out);
        fullest_dirs(survey, &mut out);
        out.push_str("</div>\n");
        problems(facts, &mut out);
    }
    let _ = writeln!(
        out,
        "<footer>Made by extant {}. A piece is a run of adjacent blocks. Sizes count blocks in \
         use, not content.</footer>\n</main></body></html>",
        env!("CARGO_PKG_VERSION")
    );
    out
}

/// Escapes text for HTML and XML, which cannot hold every character.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// As [`percent_shown`], escaped for HTML.
fn share(part: u64, whole: u64) -> String {
    escape(&percent_shown(part, whole))
}

fn section(out: &mut String, title: &str, text: &str) {
    let _ = write!(out, "<section><h2>{title}</h2><p>{text}</p>");
}

fn head(facts: &Facts, out: &mut String) {
    let sb = &facts.sb;
    let label = Shown(sb.label()).to_string();
    let label = if label.is_empty() { String::new() } else { format!("{} · ", escape(&label)) };
    let warn = if facts.state == "clean" { "" } else { " warn" };
    let _ = write!(
        out,
        "<header><h1>{}<span class=\"badge{warn}\">{}</span></h1><p>{label}<code>{}</code> · made \
         {} · written {}",
        escape(&facts.name),
        facts.state,
        uuid(&sb.uuid),
        moment::seconds(sb.mkfs_time),
        moment::seconds(sb.wtime),
    );
    if facts.replayed {
        out.push_str(" · shown with the journal replayed in memory");
    }
    let features = sb.features.to_string();
    let _ = writeln!(out, "</p><p><small>{}</small></p></header>", escape(&features));
}

fn tiles(facts: &Facts, survey: &Survey, out: &mut String) {
    let (parts, files) = (&survey.parts, &survey.files);
    let size = |blocks| amount::shown(facts.bytes(blocks));
    let inodes = u64::from(facts.sb.inodes_count);
    let inodes_used = inodes - u64::from(facts.sb.free_inodes).min(inodes);
    let whole = files.with_blocks - files.fragmented.min(files.with_blocks);
    let groups = counted(survey.groups.count.into(), "group", "groups");
    let block = amount::shown(facts.sb.block_size.bytes() as u64);
    let tiles = [
        ("Size", size(parts.blocks), format!("{groups}, blocks of {block}")),
        (
            "Used",
            share(used(parts), parts.blocks),
            format!("{} free, {} reserved", size(parts.free), size(facts.sb.reserved_blocks)),
        ),
        ("Longest free run", size(survey.free.longest), counted(survey.free.count, "run", "runs")),
        (
            "Files",
            grouped(files.regular),
            format!(
                "{}, {}",
                counted(files.directories, "directory", "directories"),
                counted(files.symlinks, "symlink", "symlinks")
            ),
        ),
        (
            "Inodes used",
            share(inodes_used, inodes),
            format!("{} of {}", grouped(inodes_used), grouped(inodes)),
        ),
        (
            "Files in one piece",
            share(whole, files.with_blocks),
            format!("{} in several", grouped(files.fragmented)),
        ),
    ];
    out.push_str("<dl class=\"tiles\">");
    for (name, value, more) in tiles {
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>");
    }
    out.push_str("</dl>\n");
}

fn legend(out: &mut String, items: impl Iterator<Item = (&'static str, String)>) {
    out.push_str("<ul class=\"legend\">");
    for (class, text) in items {
        let _ = write!(out, "<li><i class=\"{class}\"></i>{text}</li>");
    }
    out.push_str("</ul>");
}

fn space(facts: &Facts, survey: &Survey, out: &mut String) {
    let parts = &survey.parts;
    section(out, "Space", "Use of the volume's blocks.");
    out.push_str(&svg::space(facts, survey));
    let free = ("free", "free", parts.free);
    let items = kinds(parts).into_iter().chain([free]).filter(|kind| kind.2 > 0);
    legend(
        out,
        items.map(|(kind, name, blocks)| {
            let (bytes, share) = (amount::shown(facts.bytes(blocks)), share(blocks, parts.blocks));
            (kind, format!("{name} <b>{bytes}</b> {share}"))
        }),
    );
    out.push_str("</section>\n");
}

fn map(facts: &Facts, survey: &Survey, out: &mut String) {
    let each = survey.cells.first().map_or(0, |cell| cell.parts.blocks);
    let groups = &survey.groups;
    let mut text = format!(
        "From the first block to the last, <b>{}</b> a cell, filled from below. The numbers are \
         those of groups",
        amount::shown(facts.bytes(each))
    );
    let notes =
        [(groups.full, "full"), (groups.uninit, "never used"), (groups.damaged, "not to be read")];
    let notes: Vec<String> = notes
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("<b>{}</b> {what}", grouped(count.into())))
        .collect();
    match notes.is_empty() {
        true => text.push('.'),
        false => {
            let _ = write!(text, "; of {}, {}.", grouped(groups.count.into()), notes.join(", "));
        }
    }
    section(out, "Map", &text);
    out.push_str(&svg::map(facts, survey));
    let damaged = (groups.damaged > 0).then_some(("bad", "not to be read".to_owned()));
    let items = kinds(&survey.parts).into_iter().filter(|kind| kind.2 > 0);
    let items = items.map(|(kind, name, _)| (kind, name.to_owned()));
    legend(out, items.chain([("free", "free".to_owned())]).chain(damaged));
    out.push_str("</section>\n");
}

fn free(facts: &Facts, survey: &Survey, out: &mut String) {
    let free = &survey.free;
    let text = format!(
        "<b>{}</b>, the mean {}, the longest {}. Bars: bytes in runs of at least that length.",
        counted(free.count, "run", "runs"),
        amount::shown(facts.bytes(free.blocks) / free.count.max(1)),
        amount::shown(facts.bytes(free.longest)),
    );
    section(out, "Free space by length of runs", &text);
    let bars: Vec<Bar> = filled(&free.by_length)
        .map(|(n, bucket)| Bar {
            label: amount::shown(facts.bytes(1 << n)),
            value: bucket.blocks,
            text: format!(
                "{} in {}",
                amount::shown(facts.bytes(bucket.blocks)),
                counted(bucket.count, "run", "runs")
            ),
        })
        .collect();
    out.push_str(&svg::bars("meta", &bars));
    out.push_str("</section>\n");
}

/// From the first bucket that is not empty to the last.
fn filled(
    buckets: &[extant::survey::Bucket],
) -> impl Iterator<Item = (usize, &extant::survey::Bucket)> {
    let first = buckets.iter().position(|bucket| bucket.count > 0).unwrap_or(0);
    buckets.iter().enumerate().skip(first)
}

fn files(facts: &Facts, survey: &Survey, out: &mut String) {
    let files = &survey.files;
    let text = format!(
        "<b>{:.2}</b> pieces for each MiB of data, {} of {} in more than one. Bars: files.",
        pieces_per_mib(files.pieces, facts.bytes(files.data_blocks)),
        grouped(files.fragmented),
        counted(files.with_blocks, "file with blocks", "files with blocks"),
    );
    section(out, "Files by number of pieces", &text);
    let bars: Vec<Bar> = filled(&files.by_pieces)
        .map(|(n, bucket)| Bar {
            label: span(n),
            value: bucket.count,
            text: format!(
                "{}, {}",
                counted(bucket.count, "file", "files"),
                amount::shown(facts.bytes(bucket.blocks))
            ),
        })
        .collect();
    out.push_str(&svg::bars("files", &bars));
    out.push_str("</section>\n");
}

fn journal(facts: &Facts, out: &mut String) {
    let Some(journal) = &facts.journal else { return };
    let info = &journal.info;
    let mut text = match journal.log.as_ref() {
        Some((superblock, _)) => {
            format!("<b>{}</b>", amount::shown(facts.bytes(superblock.maxlen.into())))
        }
        None => format!("<b>{}</b>", info.place),
    };
    if let Some(state) = info.state {
        let _ = write!(text, ", {state}");
    }
    if let Some((superblock, usage)) = &journal.log {
        let _ = write!(
            text,
            ", next transaction {}, {} to replay in {}",
            superblock.sequence.0,
            counted(usage.transactions.into(), "transaction", "transactions"),
            counted(usage.blocks.into(), "block", "blocks"),
        );
    }
    if let Some(fast_commits) = info.fast_commits {
        let _ = write!(text, ", fast commits {fast_commits}");
    }
    if let Some(byte_log) = info.byte_log {
        let _ = write!(text, ", byte log {byte_log}");
    }
    if let Some(uuid) = &info.uuid {
        let _ = write!(text, ", on the device <code>{}</code>", escape(uuid));
    }
    if let Some(features) = info.features.as_ref().filter(|features| !features.is_empty()) {
        let _ = write!(text, "<br/><small>{}</small>", escape(&features.join(" ")));
    }
    section(out, "Journal", &text);
    if let Some(strip) = svg::strip(facts, journal) {
        out.push_str(&strip);
        let mut items = vec![("meta", "superblock".to_owned()), ("free", "log".to_owned())];
        if journal.log.as_ref().is_some_and(|(_, usage)| usage.blocks > 0) {
            items.push(("journal", "transactions to replay".to_owned()));
        }
        if info.fast_commits.is_some_and(|state| state != "off") {
            items.push(("fast", "area for fast commits".to_owned()));
        }
        legend(out, items.into_iter());
    }
    out.push_str("</section>\n");
}

fn checksums(facts: &Facts, out: &mut String) {
    let (metadata, text) = match facts.metadata_checksums() {
        MetadataChecksums::All => (100.0, "all of it, CRC32C (<code>metadata_csum</code>)"),
        MetadataChecksums::Descriptors => {
            (4.0, "group descriptors only, CRC16 (<code>gdt_csum</code>)")
        }
        MetadataChecksums::None => (0.0, "none"),
    };
    let errors = match facts.sb.error_count {
        0 => "No mount recorded an error.".to_owned(),
        count => format!("<b>{}</b> recorded by mounts.", counted(count.into(), "error", "errors")),
    };
    section(out, "Checksums", &errors);
    let _ = write!(out, "Metadata: {text}");
    cover(out, metadata);
    let (share, text) = match (&facts.survey, facts.has_data_csum()) {
        (_, false) => (0.0, "none".to_owned()),
        (None, true) => (0.0, "<code>data_csum</code>".to_owned()),
        (Some(survey), true) => {
            let (files, covered) = (&survey.files, &survey.files.covered);
            let text = format!(
                "{} of {} in {} of {}, CRC32C (<code>data_csum</code>)",
                share(covered.blocks, files.data_blocks),
                amount::shown(facts.bytes(files.data_blocks)),
                grouped(covered.count),
                counted(files.with_blocks, "file", "files"),
            );
            (percent(covered.blocks, files.data_blocks), text)
        }
    };
    let _ = write!(out, "Data: {text}");
    cover(out, share);
    out.push_str("</section>\n");
}

fn cover(out: &mut String, share: f64) {
    let _ = write!(
        out,
        "<div class=\"cover free\"><i class=\"meta\" style=\"width:{share:.1}%\"></i></div>"
    );
}
