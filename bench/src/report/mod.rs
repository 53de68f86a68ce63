//! Collects samples and prints medians: as a table for people, as JSON for programs.
//!
//! ```text
//!   sample(Key { case, subject, metric, params }, value)   once a round, rounds interleaved
//!       │
//!       ├─ table   one block a case; a line for each params and metric, a column for each subject
//!       │          cell = median ±half the interquartile range, in percent
//!       ├─ json    {"bench", "host", "rows": [{"case", "subject", "metric", "value", …}], …}
//!       ├─ page    pictures of one or more such objects
//!       └─ picture a bar for each of twelve jobs, as README shows it
//! ```
//!
//! Published figures have their own columns, with headings that say so. They are not rows.

mod figures;
mod html;
mod jobs;
mod plot;
mod words;

pub(crate) use figures::{is_speed, speed_ratio};
pub(crate) use html::page;
pub(crate) use jobs::{kept, picture};

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use serde::Serialize;
use serde_json::{Value, json};

/// The differences between rows of one case: sizes, counts, options.
pub(crate) type Params = BTreeMap<&'static str, Value>;

/// Identifies a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Key {
    /// The operation.
    pub case: &'static str,
    /// The program or variant that is measured.
    pub subject: &'static str,
    /// The measured quantity, with its unit.
    pub metric: &'static str,
    /// See [`Params`].
    pub params: Params,
}

impl Key {
    /// Whether two figures belong to one line of the table.
    pub(crate) fn same_line(&self, other: &Key) -> bool {
        self.case == other.case && self.metric == other.metric && self.params == other.params
    }
}

/// All samples of one figure.
#[derive(Debug)]
struct Series {
    key: Key,
    samples: Vec<f64>,
}

impl Series {
    /// The value at `share` (0..=1) of the sorted samples.
    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let place = share * last as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }

    /// The figure.
    fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Half the interquartile range, in percent of the median. `None` for a single sample.
    fn spread_percent(&self) -> Option<f64> {
        let range = self.quantile(0.75) - self.quantile(0.25);
        (self.samples.len() > 1).then(|| 50.0 * range / self.median())
    }
}

/// The results of one bench.
#[derive(Debug)]
pub(crate) struct Report {
    /// Its verb.
    pub bench: &'static str,
    series: Vec<Series>,
    published: Vec<(Key, f64)>,
    conditions: Vec<String>,
    findings: Vec<String>,
}

impl Report {
    /// An empty report of the bench with this name.
    pub(crate) fn new(bench: &'static str) -> Self {
        Report {
            bench,
            series: Vec::new(),
            published: Vec::new(),
            conditions: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// Adds a sample.
    pub(crate) fn sample(&mut self, key: &Key, value: f64) {
        match self.series.iter_mut().find(|series| series.key == *key) {
            Some(series) => series.samples.push(value),
            None => self.series.push(Series { key: key.clone(), samples: vec![value] }),
        }
    }

    /// Adds a figure that others published. Its subject names the source.
    pub(crate) fn publish(&mut self, key: Key, value: f64) {
        self.published.push((key, value));
    }

    /// Records a condition of the figures: sizes, threads, cache state, durability.
    pub(crate) fn condition(&mut self, text: impl Into<String>) {
        self.conditions.push(text.into());
    }

    /// Records a conclusion from the figures.
    pub(crate) fn finding(&mut self, text: impl Into<String>) {
        self.findings.push(text.into());
    }

    /// Records that a subject or a case was left out, and prints that at once: the report comes
    /// only at the end.
    pub(crate) fn left_out(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.findings.contains(&text) {
            eprintln!("extant-bench: {text}");
            self.findings.push(text);
        }
    }

    /// The keys of all measured figures.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.series.iter().map(|series| series.key.clone()).collect()
    }

    /// The median of a figure, if it was measured.
    pub(crate) fn median(&self, key: &Key) -> Option<f64> {
        self.series.iter().find(|series| series.key == *key).map(Series::median)
    }

    /// The object that `--json` writes.
    pub(crate) fn json(&self, host: &Host) -> Value {
        let rows: Vec<Value> = self
            .series
            .iter()
            .map(|series| {
                let Key { case, subject, metric, params } = &series.key;
                let value = series.median();
                json!({
                    "case": case, "subject": subject, "metric": metric,
                    "value": value, "params": params, "spread_percent": series.spread_percent(),
                })
            })
            .collect();
        let published: Vec<Value> = self
            .published
            .iter()
            .map(|(Key { case, subject, metric, params }, value)| {
                json!({
                    "case": case, "subject": subject, "metric": metric,
                    "value": value, "params": params,
                })
            })
            .collect();
        json!({
            "bench": self.bench, "host": host, "rows": rows, "published": published,
            "rounds": self.rounds(), "conditions": self.conditions, "findings": self.findings,
        })
    }

    fn rounds(&self) -> usize {
        self.series.iter().map(|series| series.samples.len()).max().unwrap_or(0)
    }

    /// The table for people.
    pub(crate) fn table(&self, host: &Host) -> String {
        let rounds = self.rounds();
        let mut out = format!("{} on {}\n", self.bench, host.line());
        let _ = match rounds {
            1 => writeln!(out, "one round: how far figures spread is not known"),
            _ => writeln!(
                out,
                "median of {rounds} interleaved rounds, ± half the interquartile range"
            ),
        };
        for condition in &self.conditions {
            let _ = writeln!(out, "{}", words::prose(condition));
        }
        let mut cases: Vec<&str> = Vec::new();
        for series in &self.series {
            if !cases.contains(&series.key.case) {
                cases.push(series.key.case);
            }
        }
        for case in cases {
            out.push('\n');
            out.push_str(&self.case_table(case));
        }
        if !self.findings.is_empty() {
            out.push('\n');
        }
        for finding in &self.findings {
            let _ = writeln!(out, "{}", words::prose(finding));
        }
        out
    }

    /// The block of one case.
    fn case_table(&self, case: &str) -> String {
        let of_case: Vec<&Series> =
            self.series.iter().filter(|series| series.key.case == case).collect();
        let published: Vec<&(Key, f64)> =
            self.published.iter().filter(|(key, _)| key.case == case).collect();
        let mut lines: Vec<&Key> = Vec::new();
        let (mut subjects, mut others): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for Series { key, .. } in &of_case {
            if !lines.iter().any(|line| line.same_line(key)) {
                lines.push(key);
            }
            if !subjects.contains(&key.subject) {
                subjects.push(key.subject);
            }
        }
        for (key, _) in &published {
            if !others.contains(&key.subject) {
                others.push(key.subject);
            }
        }

        let mut cells = vec![vec![words::case(case), "counted".to_string()]];
        cells[0].extend(subjects.iter().map(|subject| words::subject(subject)));
        cells[0].extend(others.iter().map(|subject| format!("[published] {subject}")));
        for line in lines {
            let mut row = vec![params_text(&line.params), words::metric(line.metric)];
            for subject in &subjects {
                let found = of_case
                    .iter()
                    .find(|series| series.key.subject == *subject && series.key.same_line(line));
                row.push(found.map_or("-".to_string(), |series| {
                    let spread = series.spread_percent().map(|spread| format!(" ±{spread:.0}%"));
                    digits(series.median()) + &spread.unwrap_or_default()
                }));
            }
            for subject in &others {
                let found = published
                    .iter()
                    .find(|(key, _)| key.subject == *subject && key.same_line(line));
                row.push(found.map_or("-".to_string(), |(_, value)| digits(*value)));
            }
            cells.push(row);
        }
        aligned(&cells)
    }
}

/// Aligns columns: names to the left, figures to the right.
fn aligned(cells: &[Vec<String>]) -> String {
    let mut widths = vec![0; cells.iter().map(Vec::len).max().unwrap_or(0)];
    for row in cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in cells {
        let mut line = String::new();
        for (column, (width, cell)) in widths.iter().zip(row).enumerate() {
            let _ = if column < 2 {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// `4 KiB, 2 threads`.
pub(crate) fn params_text(params: &Params) -> String {
    params_words(params.iter().map(|(name, value)| (*name, value)))
}

fn params_words<'a>(params: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    params.map(|(name, value)| words::param(name, value)).collect::<Vec<_>>().join(", ")
}

/// Three significant digits, or all digits before the decimal point.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The machine of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Host {
    /// The day of the run, in UTC.
    date: String,
    /// Version of this program, and so of extant.
    version: &'static str,
    cpu: String,
    cores: usize,
    memory_mib: u64,
    arch: &'static str,
    os: &'static str,
    kernel: String,
    /// Whether the program was compiled with optimisation. Without it the figures mean nothing.
    optimized: bool,
}

impl Host {
    /// Reads the system's data. Unknown fields stay empty or zero.
    pub(crate) fn of_this_machine() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim());
            value.unwrap_or_default().to_string()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let memory_kib: u64 =
            memory.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or_default();
        let date = crate::rig::run(Command::new("date").args(["-u", "+%F"]));
        Host {
            date: date.unwrap_or_default().trim().to_string(),
            version: env!("CARGO_PKG_VERSION"),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_kib / 1024,
            arch: std::env::consts::ARCH,
            os: std::env::consts::OS,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            optimized: !cfg!(debug_assertions),
        }
    }

    /// Formats it as one line.
    fn line(&self) -> String {
        let Host { date, version, cpu, cores, memory_mib, arch, os, kernel, optimized } = self;
        let build = if *optimized { "" } else { "; NOT A RELEASE BUILD: the figures mean nothing" };
        format!(
            "{cpu}, {cores} cores, {memory_mib} MiB, {os} {kernel} {arch}; extant {version}, {date}{build}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(subject: &'static str, bytes: u64) -> Key {
        let params = Params::from([("bytes", json!(bytes))]);
        Key { case: "flip", subject, metric: "ns_latency", params }
    }

    #[test]
    fn a_row_is_the_median_of_its_samples() {
        let mut report = Report::new("crc");
        for value in [9.0, 1.0, 2.0, 3.0, 2.0] {
            report.sample(&key("extant", 1024), value);
        }
        let host = Host::of_this_machine();
        let json = report.json(&host);
        assert_eq!(json["bench"], "crc");
        assert!(json["host"]["cores"].as_u64().is_some_and(|cores| cores >= 1));
        let row = json!({
            "case": "flip", "subject": "extant", "metric": "ns_latency", "value": 2.0,
            "params": {"bytes": 1024}, "spread_percent": 25.0,
        });
        assert_eq!(json["rows"], json!([row]));
    }

    #[test]
    fn published_figures_are_labelled_and_are_no_rows() {
        let mut report = Report::new("crc");
        report.sample(&key("extant", 1024), 2.0);
        report.publish(key("full", 1024), 46.0);
        let host = Host::of_this_machine();
        let table = report.table(&host);
        let lines: Vec<&str> = table.lines().collect();
        let head =
            lines.iter().position(|line| line.starts_with("one bit flipped")).expect("a head");
        assert!(lines[head].ends_with("[published] full"), "{table}");
        assert!(lines[head + 1].starts_with("1 KiB"), "{table}");
        assert!(lines[head + 1].ends_with("46.0"), "{table}");
        assert_eq!(report.json(&host)["rows"].as_array().map(Vec::len), Some(1));
    }
}
