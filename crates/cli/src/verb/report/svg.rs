//! The pictures of a report, as SVG in its page.
//!
//! ```text
//!   space   one bar of the whole volume            map     a grid of cells, each filled from below
//!   bars    one bar a line: free runs, pieces      strip   the journal from block 0 to its end
//! ```
//!
//! The page's style sheet sets the colours by class. A mark's title describes it in words.

use super::facts::{Facts, Journal, counted, grouped, kinds, percent_shown, used};
use super::page::escape;
use crate::amount;
use extant::survey::{Cell, Survey};
use std::fmt::Write;

/// Width of every picture, in its own units.
const WIDTH: f64 = 1040.0;

fn open(height: f64, text: &str) -> String {
    let text = escape(text);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         role=\"img\" aria-label=\"{text}\">"
    )
}

/// A rectangle, with its title.
fn rect(class: &str, [x, y, width, height]: [f64; 4], round: f64, title: &str) -> String {
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\" rx=\"{round}\"><title>{}</title></rect>",
        escape(title)
    )
}

/// All blocks of the volume in one bar.
pub(super) fn space(facts: &Facts, survey: &Survey) -> String {
    let parts = &survey.parts;
    let mut out = open(44.0, "use of the space");
    let free = ("free", "free", parts.free);
    let mut x = 0.0;
    let all: Vec<_> = kinds(parts).into_iter().chain([free]).filter(|kind| kind.2 > 0).collect();
    // Everything that exists is visible: at least 2 units wide, taken proportionally from the rest.
    let space = WIDTH - 4.0 * all.len() as f64;
    let sum: u64 = all.iter().map(|kind| kind.2).sum();
    for (kind, name, blocks) in all {
        let wide = 2.0 + blocks as f64 / sum.max(1) as f64 * space;
        let title = format!(
            "{name}: {}, {}",
            amount::shown(facts.bytes(blocks)),
            percent_shown(blocks, parts.blocks)
        );
        out.push_str(&rect(kind, [x, 0.0, wide, 44.0], 3.0, &title));
        x += wide + 2.0;
    }
    out.push_str("</svg>");
    out
}

/// Number of cells in a row of the map.
const COLUMNS: usize = 64;
const LABEL: f64 = 64.0;
const CELL: f64 = (WIDTH - LABEL) / COLUMNS as f64;
/// Size of the visible part of a cell.
const BODY: f64 = CELL - 2.25;

/// Distance between groups that take whole rows.
const GAP: f64 = 5.0;

/// The volume from its first block to its last. Each cell is filled from the bottom with what it
/// holds.
pub(super) fn map(facts: &Facts, survey: &Survey) -> String {
    let (mut tracks, mut damaged, mut labels, mut hover) =
        (String::new(), String::new(), String::new(), String::new());
    let mut fills: Vec<(&str, String)> = Vec::new();
    let (mut y, mut before): (f64, Option<u32>) = (0.0, None);
    for row in survey.cells.chunks(COLUMNS) {
        let group = row[0].groups.start;
        if before != Some(group) {
            // A group takes several rows: leave a gap before the next group.
            let apart =
                before.is_some() && row.last().is_some_and(|cell| cell.groups.start == group);
            y += if apart { GAP } else { 0.0 };
            let (x, y) = (LABEL - 10.0, y + BODY - 3.0);
            let _ = write!(
                labels,
                "<text class=\"dim\" x=\"{x:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{group}</text>"
            );
            before = Some(group);
        }
        for (column, cell) in row.iter().enumerate() {
            let x = LABEL + column as f64 * CELL;
            square(&mut tracks, x, y, BODY);
            match cell.unknown {
                0 => fill(cell, x, y, &mut fills),
                _ => square(&mut damaged, x, y, BODY),
            }
            let text = escape(&text(facts, cell));
            let _ = write!(
                hover,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{BODY:.1}\" \
                 height=\"{BODY:.1}\"><title>{text}</title></rect>"
            );
        }
        y += CELL;
    }
    let mut out = open(y, "map of the volume") + &labels;
    let _ = write!(out, "<path class=\"free\" d=\"{tracks}\"/>");
    for (kind, path) in fills {
        let _ = write!(out, "<path class=\"{kind}\" d=\"{path}\"/>");
    }
    if !damaged.is_empty() {
        let _ = write!(out, "<path class=\"bad\" d=\"{damaged}\"/>");
    }
    let _ = write!(out, "<g class=\"hover\">{hover}</g></svg>");
    out
}

fn square(path: &mut String, x: f64, y: f64, size: f64) {
    let _ = write!(path, "M{x:.1} {y:.1}h{size:.1}v{size:.1}h-{size:.1}z");
}

/// Stacks the contents of a cell, with metadata at the bottom.
fn fill(cell: &Cell, x: f64, y: f64, fills: &mut Vec<(&'static str, String)>) {
    let all = cell.parts.blocks.max(1) as f64;
    let mut bottom = y + BODY;
    let kinds = kinds(&cell.parts);
    for (kind, _, blocks) in kinds.into_iter().rev() {
        let high = (blocks as f64 / all * BODY).min(bottom - y);
        if high < 0.05 {
            continue;
        }
        bottom -= high;
        let n = fills.iter().position(|(other, _)| *other == kind).unwrap_or_else(|| {
            fills.push((kind, String::new()));
            fills.len() - 1
        });
        let _ = write!(fills[n].1, "M{x:.1} {bottom:.2}h{BODY:.1}v{high:.2}h-{BODY:.1}z");
    }
}

fn text(facts: &Facts, cell: &Cell) -> String {
    let (first, last) = (cell.groups.start, cell.groups.end.saturating_sub(1));
    let groups = match first == last {
        true => format!("Group {first}"),
        false => format!("Groups {first}–{last}"),
    };
    let end = cell.first_block + cell.parts.blocks.saturating_sub(1);
    let mut text = format!("{groups}, blocks {}–{end}", cell.first_block);
    if cell.unknown > 0 {
        return text + "\nnot to be read";
    }
    let _ = write!(text, "\n{} used", percent_shown(used(&cell.parts), cell.parts.blocks));
    for (_, name, blocks) in kinds(&cell.parts).into_iter().filter(|kind| kind.2 > 0) {
        let _ = write!(text, "\n{name} {}", amount::shown(facts.bytes(blocks)));
    }
    if cell.free_runs > 0 {
        let _ = write!(
            text,
            "\n{}, the longest {}",
            counted(cell.free_runs, "free run", "free runs"),
            amount::shown(facts.bytes(cell.longest_free))
        );
    }
    text
}

/// A line of a list of bars.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: u64,
    pub(super) text: String,
}

/// One bar in each line, the longest as wide as the space allows.
pub(super) fn bars(class: &str, bars: &[Bar]) -> String {
    const STEP: f64 = 24.0;
    // Half the page wide. Otherwise the text would shrink with the picture.
    const WIDE: f64 = 520.0;
    const FROM: f64 = 108.0;
    const BAR_WIDTH: f64 = 230.0;
    let height = STEP * bars.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDE} {height:.0}\" role=\"img\">"
    );
    let most = bars.iter().map(|bar| bar.value).max().unwrap_or(0).max(1);
    for (n, bar) in bars.iter().enumerate() {
        let y = STEP * n as f64;
        let wide =
            (bar.value as f64 / most as f64 * BAR_WIDTH).max(if bar.value > 0 { 1.5 } else { 0.0 });
        let title = format!("{}: {}", bar.label, bar.text);
        let _ = write!(
            out,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>{}{}<text class=\"dim\" \
             x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            FROM - 8.0,
            y + 16.0,
            escape(&bar.label),
            rect("free", [FROM, y + 4.0, BAR_WIDTH, 16.0], 2.0, &title),
            rect(class, [FROM, y + 4.0, wide, 16.0], 2.0, &title),
            FROM + BAR_WIDTH + 8.0,
            y + 16.0,
            escape(&bar.text),
        );
    }
    out.push_str("</svg>");
    out
}

/// The journal's blocks: the live part of the log, and the fast-commit area.
pub(super) fn strip(facts: &Facts, journal: &Journal) -> Option<String> {
    let (superblock, usage) = journal.log.as_ref()?;
    let all = f64::from(superblock.maxlen.max(1));
    let at = |block: u32| f64::from(block) / all * WIDTH;
    let (first, end) = (superblock.first, superblock.log_end().unwrap_or(superblock.maxlen));
    let mut out = open(74.0, "the journal");
    let mut part = |class: &str, from: u32, to: u32, text: &str| {
        if from < to {
            let wide = (at(to) - at(from)).max(2.0);
            let x = at(from).min(WIDTH - wide);
            let bytes = amount::shown(facts.bytes(u64::from(to - from)));
            let title = format!("{text}: blocks {from}–{}, {bytes}", to - 1);
            out.push_str(&rect(class, [x, 22.0, wide, 30.0], 2.0, &title));
        }
    };
    part("free", first, end, "log");
    let area = superblock.fast_commit_area();
    part("fast", area.start, area.end, "fast commits");
    part("meta", 0, first, "journal superblock");
    let live = "transactions to replay";
    match usage.blocks {
        0 => {}
        _ if usage.tail < usage.head => part("journal", usage.tail, usage.head, live),
        _ => {
            part("journal", usage.tail, end, live);
            part("journal", first, usage.head, live);
        }
    }
    let mut mark = |block: u32, y: f64, text: String| {
        let x = at(block);
        // Keeps text inside the picture.
        let anchor = match x {
            x if x < 90.0 => "start",
            x if x > WIDTH - 90.0 => "end",
            _ => "middle",
        };
        let _ = write!(
            out,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"18\" y2=\"56\"/><text \
             x=\"{x:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
            escape(&text)
        );
    };
    if usage.blocks > 0 {
        mark(usage.tail, 12.0, format!("tail {}", grouped(usage.tail.into())));
    }
    mark(usage.head, 70.0, format!("head {}", grouped(usage.head.into())));
    out.push_str("</svg>");
    Some(out)
}
