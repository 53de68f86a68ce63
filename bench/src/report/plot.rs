//! Dots and spans on a logarithmic axis, as SVG.

use std::fmt::Write;

use super::digits;
use super::html::escape;
use super::words;

/// The kind of a figure's subject, which decides how it is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Own,
    Rival,
    Published,
}

impl Kind {
    pub(super) fn of(subject: &str) -> Kind {
        if subject.starts_with("extant") { Kind::Own } else { Kind::Rival }
    }
}

/// One line of a plot: its label and, for each dot, the subject, the value, and the spread in
/// percent.
pub(super) struct Line {
    pub label: String,
    pub dots: Vec<(usize, f64, f64)>,
}

/// A plot of dots.
pub(super) struct Dots<'a> {
    pub subjects: &'a [(&'a str, Kind)],
    pub lines: &'a [Line],
}

/// Total width, and the start and end of the axis.
const WIDTH: f64 = 560.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = WIDTH - 20.0;
const STEP: f64 = 20.0;

/// A logarithmic axis over some values.
pub(super) struct Axis {
    low: f64,
    high: f64,
    /// Where it begins and ends in the picture.
    ends: (f64, f64),
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>) -> Axis {
        Axis::between(values, (LEFT, RIGHT))
    }

    /// An axis that begins and ends at other positions.
    pub(super) fn between(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if high <= 0.0 {
            (low, high) = (1.0, 10.0);
        }
        Axis { low: low / 1.25, high: high * 1.25, ends }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let share =
            (value.clamp(self.low, self.high) / self.low).ln() / (self.high / self.low).ln();
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// Round values between its ends: 1, 2 and 5 times powers of ten; fewer if there are many.
    pub(super) fn marks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let steps: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let all =
            (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
        all.filter(|mark| (self.low..=self.high).contains(mark)).collect()
    }

    fn draw(&self, bottom: f64, out: &mut String) {
        for mark in self.marks() {
            let x = self.at(mark);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"4\" y2=\"{bottom:.0}\" /><text class=\"dim\" x=\"{x:.1}\" y=\"{:.0}\" \
                 text-anchor=\"middle\">{}</text>",
                bottom + 13.0,
                short(mark),
            );
        }
    }
}

/// A round number with k and M.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{}", (v * 1e6).round() / 1e6),
    }
}

/// The colour of the `n`-th subject of its kind.
fn colour(kind: Kind, n: usize) -> &'static str {
    const OWN: [&str; 5] = ["--own", "--own4", "--own5", "--own2", "--own3"];
    const RIVAL: [&str; 4] = ["--rival", "--rival2", "--rival3", "--rival4"];
    match kind {
        Kind::Own => OWN[n % OWN.len()],
        Kind::Rival => RIVAL[n % RIVAL.len()],
        Kind::Published => "--pub",
    }
}

fn colour_of(subjects: &[(&str, Kind)], series: usize) -> &'static str {
    let kind = subjects[series].1;
    colour(kind, subjects[..series].iter().filter(|(_, other)| *other == kind).count())
}

/// A mark at a position: a disc, a square for rivals, an open diamond for published figures.
fn mark(kind: Kind, colour: &str, x: f64, y: f64, title: &str) -> String {
    let title = format!("<title>{}</title>", escape(title));
    match kind {
        Kind::Own => {
            format!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" style=\"fill:var({colour})\">{title}</circle>"
            )
        }
        Kind::Rival => format!(
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" style=\"fill:var({colour})\">{title}</rect>",
            x - 3.5,
            y - 3.5
        ),
        Kind::Published => format!(
            "<path d=\"M{x:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\" style=\"fill:none;stroke:var({colour});stroke-width:1.3\">\
             {title}</path>",
            y - 4.5
        ),
    }
}

/// The legend: the mark of each subject.
pub(super) fn legend(subjects: &[(&str, Kind)]) -> String {
    let mut out = String::from("<ul class=legend>");
    for (n, (subject, kind)) in subjects.iter().enumerate() {
        let mark = mark(*kind, colour_of(subjects, n), 6.0, 6.0, &words::subject(subject));
        let published = if *kind == Kind::Published { " (published)" } else { "" };
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 12 12\">{mark}</svg> {}{published}",
            escape(&words::subject(subject))
        );
    }
    out.push_str("</ul>\n");
    out
}

impl Dots<'_> {
    pub(super) fn svg(&self) -> String {
        let values = self.lines.iter().flat_map(|line| &line.dots).map(|dot| dot.1);
        let axis = Axis::over(values);
        // A label longer than the margin gets its own line above the dots.
        let long = self.lines.iter().any(|line| line.label.chars().count() > 30);
        let (step, above) = if long { (2.0 * STEP, STEP * 0.75) } else { (STEP, 0.0) };
        let bottom = 8.0 + step * self.lines.len() as f64;
        let mut out = open(bottom + 18.0);
        axis.draw(bottom, &mut out);
        for (n, line) in self.lines.iter().enumerate() {
            let y = 8.0 + step * n as f64 + STEP * 0.5 + above;
            let label = escape(&line.label);
            let _ = write!(out, "<text x=\"0\" y=\"{:.1}\">{label}</text>", y + 4.0 - above);
            for (series, value, spread) in &line.dots {
                let (subject, kind) = self.subjects[*series];
                let colour = colour_of(self.subjects, *series);
                let (from, to) = (
                    axis.at(value * (1.0 - spread / 100.0)),
                    axis.at(value * (1.0 + spread / 100.0)),
                );
                if to - from > 9.0 {
                    let _ = write!(
                        out,
                        "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" style=\"stroke:var({colour});opacity:.5\" />"
                    );
                }
                out.push_str(&mark(
                    kind,
                    colour,
                    axis.at(*value),
                    y,
                    &format!("{}: {}", words::subject(subject), digits(*value)),
                ));
            }
        }
        out.push_str("</svg>");
        out
    }
}

/// Ratios with their minimum, mean and maximum.
#[derive(Default)]
pub(super) struct Spans(Vec<(String, usize, [f64; 3])>);

impl Spans {
    pub(super) fn add(&mut self, name: String, count: usize, ratios: [f64; 3]) {
        self.0.push((name, count, ratios));
    }

    pub(super) fn svg(&self) -> String {
        let axis = Axis::over(self.0.iter().flat_map(|(_, _, ratios)| *ratios).chain([0.5, 2.0]));
        let row = 2.0 * STEP;
        let bottom = 4.0 + row * self.0.len() as f64;
        let mut out = open(bottom + 18.0);
        axis.draw(bottom, &mut out);
        let one = axis.at(1.0);
        let _ = write!(
            out,
            "<line x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"4\" y2=\"{bottom:.0}\" style=\"stroke:var(--ink)\" />"
        );
        for (n, (name, count, [least, mean, most])) in self.0.iter().enumerate() {
            let y = 4.0 + row * (n as f64 + 0.68);
            let [from, at, to] = [*least, *mean, *most].map(|ratio| axis.at(ratio));
            let colour = if *mean >= 1.0 { "--own" } else { "--rival" };
            let _ = write!(
                out,
                "<text x=\"0\" y=\"{:.1}\">{} <tspan class=\"dim\">({count})</tspan></text><text class=\"dim\" x=\"0\" y=\"{:.1}\">{} · {} · {}</text>\
                 <line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" style=\"stroke:var({colour});stroke-width:5;opacity:.45\" />",
                y - 9.0,
                escape(name),
                y + 6.0,
                digits(*least),
                digits(*mean),
                digits(*most),
            );
            out.push_str(&mark(Kind::Own, colour, at, y, &format!("{name}: {}", digits(*mean))));
        }
        out.push_str("</svg>\n");
        out
    }
}

fn open(height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">")
}
