//! The page's tables: the largest files, the fullest directories, and what could not be read.

use super::{escape, section};
use crate::amount;
use crate::shown::Shown;
use crate::verb::report::facts::{Facts, grouped, percent, pieces_per_mib};
use extant::survey::{DirRow, FileRow, Survey};
use std::fmt::Write;
use std::path::Path;

/// A table of paths: the column headings, then for each row the length of its bar, the path and the
/// cells.
fn table(
    out: &mut String,
    class: &str,
    heads: &[&str],
    rows: impl Iterator<Item = (f64, String, Vec<String>)>,
) {
    out.push_str("<table><thead><tr><th>path</th>");
    heads.iter().for_each(|head| {
        let _ = write!(out, "<th class=\"n\">{head}</th>");
    });
    out.push_str("</tr></thead><tbody>");
    for (share, path, cells) in rows {
        let _ = write!(
            out,
            "<tr><td class=\"path\">{path}<i class=\"{class}\" style=\"width:{:.1}%\"></i></td>",
            share.max(0.2)
        );
        for cell in cells {
            let _ = write!(out, "<td class=\"n\">{cell}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></section>\n");
}

fn path(path: &Path) -> String {
    escape(&Shown::path(path).to_string())
}

pub(super) fn largest_files(facts: &Facts, survey: &Survey, out: &mut String) {
    let rows = &survey.largest_files;
    let Some(most) = rows.first().map(|row| row.blocks) else { return };
    section(out, "Largest files", "By the blocks in use.");
    let row = |row: &FileRow| {
        let size = amount::shown(facts.bytes(row.blocks));
        (percent(row.blocks, most), path(&row.path), vec![size, grouped(row.pieces)])
    };
    table(out, "files", &["size", "pieces"], rows.iter().map(row));
}

pub(super) fn most_pieces(facts: &Facts, survey: &Survey, out: &mut String) {
    let rows = &survey.most_pieces;
    let Some(most) = rows.first().map(|row| row.pieces) else { return };
    section(out, "Files in most pieces", "Each piece after the first costs a reader a seek.");
    let row = |row: &FileRow| {
        let bytes = facts.bytes(row.blocks);
        let rate = format!("{:.2}", pieces_per_mib(row.pieces, bytes));
        let cells = vec![grouped(row.pieces), rate, amount::shown(bytes)];
        (percent(row.pieces, most), path(&row.path), cells)
    };
    table(out, "bad", &["pieces", "a MiB", "size"], rows.iter().map(row));
}

pub(super) fn largest_dirs(facts: &Facts, survey: &Survey, out: &mut String) {
    let rows = &survey.largest_dirs;
    let Some(most) = rows.first().map(|row| row.blocks) else { return };
    section(out, "Largest directories", "By the blocks of everything below them.");
    let row = |row: &DirRow| {
        let size = amount::shown(facts.bytes(row.blocks));
        (percent(row.blocks, most), path(&row.path), vec![size, grouped(row.below)])
    };
    table(out, "dirs", &["size", "below"], rows.iter().map(row));
}

pub(super) fn fullest_dirs(survey: &Survey, out: &mut String) {
    let rows = &survey.fullest_dirs;
    let Some(most) = rows.first().map(|row| row.names) else { return };
    section(out, "Fullest directories", "By the names in them.");
    let row = |row: &DirRow| (percent(row.names, most), path(&row.path), vec![grouped(row.names)]);
    table(out, "dirs", &["names"], rows.iter().map(row));
}

pub(super) fn problems(facts: &Facts, out: &mut String) {
    if facts.problems.is_empty() {
        return;
    }
    let more = facts.problems_count.saturating_sub(facts.problems.len() as u64);
    out.push_str("<section class=\"problems\"><h2>Could not be read</h2><ul>");
    for problem in &facts.problems {
        let _ = write!(out, "<li>{}</li>", escape(problem));
    }
    if more > 0 {
        let _ = write!(out, "<li>and {} more</li>", grouped(more));
    }
    out.push_str("</ul></section>\n");
}
