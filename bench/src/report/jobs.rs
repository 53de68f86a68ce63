//! Twelve jobs in one picture for README, those on a mount first. A bar for each shows the ratio to
//! the tool in common use.
//!
//! ```text
//!   Untar    fuse2fs                      job, and the tool it is compared with
//!            │████████████████ 3.7        right of 1 extant is faster
//!   List names    fuse2fs
//!       █████│ 0.55                       left of 1 the other tool is faster
//!   ───┴─────┴────────┴───                logarithmic: 0.5, 1, 2, 5, 10 times
//! ```
//!
//! README shows the SVG as `<img>`, often 330 pixels wide and on a dark page. The type is therefore
//! large, and all colours, including the background, are in the file itself.

use std::fmt::Write;

use serde_json::{Value, json};

use super::digits;
use super::figures::{Row, rows, speed_ratio};
use super::html::escape;
use super::plot::Axis;

/// A job that a user waits for, and the location of its figures.
///
/// Its ratio is the geometric mean over all figures of `cases` and `metric` whose params include
/// `params`.
struct Job {
    name: &'static str,
    bench: &'static str,
    cases: &'static [&'static str],
    metric: &'static str,
    params: &'static [(&'static str, &'static str)],
    own: &'static str,
    /// The subject that it is compared with, and that tool's name in the picture.
    rival: (&'static str, &'static str),
}

/// Jobs of the command and of the library, without a mount.
const NATIVE: [Job; 7] = [
    Job {
        name: "Build an image",
        bench: "build",
        cases: &["tree"],
        metric: "wall_s",
        params: &[],
        own: "extant",
        rival: ("mke2fs", "mke2fs -d"),
    },
    Job {
        name: "Check it",
        bench: "build",
        cases: &["check"],
        metric: "wall_s",
        params: &[],
        own: "extant",
        rival: ("e2fsck", "e2fsck"),
    },
    Job {
        name: "Read it all",
        bench: "build",
        cases: &["walk"],
        metric: "wall_s",
        params: &[],
        own: "extant",
        rival: ("kernel-ext4", "kernel ext4"),
    },
    Job {
        name: "Create, remove files",
        bench: "metadata",
        cases: &["create_unlink"],
        metric: "ops_per_s",
        params: &[],
        own: "extant",
        rival: ("kernel-ext4", "kernel ext4"),
    },
    Job {
        name: "Create, remove, fsync",
        bench: "fsync",
        cases: &["create_unlink_fsync2"],
        metric: "ops_per_s",
        params: &[("store", "tmpfs")],
        own: "extant-fast-commit",
        rival: ("kernel-ext4-fast-commit", "ext4 fast commits"),
    },
    Job {
        name: "Cached 1 KiB writes",
        bench: "overwrite",
        cases: &["write_u1k", "pwrite_u1k"],
        metric: "us_per_call",
        params: &[],
        own: "extant",
        rival: ("kernel-ext4", "kernel ext4"),
    },
    Job {
        name: "Checksummed writes",
        bench: "direct",
        cases: &["randwrite"],
        metric: "mb_per_s",
        params: &[],
        own: "extant-checksummed",
        rival: ("kernel-btrfs-csum", "kernel btrfs"),
    },
];

/// The jobs on a mount.
const MOUNTED: [Job; 5] = [
    mounted("Create, remove files", &["create", "unlink"], "ops_per_s", FUSE2FS),
    mounted("Untar", &["untar"], "ops_per_s", FUSE2FS),
    mounted("Write, read a large file", &["stream_write", "stream_read"], "mb_per_s", FUSE2FS),
    mounted("SQLite commits", &["sqlite_commits"], "ops_per_s", FUSE2FS),
    mounted("List names", &["readdir"], "ops_per_s", FUSE2FS),
];

/// Jobs on a mount against the kernel's, which needs no second process. Text below the bars shows
/// them.
const MOUNTED_KERNEL: [Job; 4] = [
    mounted("SQLite", &["sqlite_commits"], "ops_per_s", KERNEL),
    mounted("untar", &["untar"], "ops_per_s", KERNEL),
    mounted("list", &["readdir"], "ops_per_s", KERNEL),
    mounted("streams", &["stream_write", "stream_read"], "mb_per_s", KERNEL),
];

const FUSE2FS: (&str, &str) = ("fuse2fs", "fuse2fs");
const KERNEL: (&str, &str) = ("kernel-ext4", "kernel ext4");

const fn mounted(
    name: &'static str,
    cases: &'static [&'static str],
    metric: &'static str,
    rival: (&'static str, &'static str),
) -> Job {
    Job { name, bench: "fuse", cases, metric, params: &[], own: "extant", rival }
}

impl Job {
    /// Whether a figure belongs to the job, of either subject.
    fn takes(&self, row: &Row<'_>) -> bool {
        self.cases.contains(&row.case)
            && row.metric == self.metric
            && (row.subject == self.own || row.subject == self.rival.0)
            && self.params.iter().all(|(name, value)| row.params[*name] == *value)
    }

    /// How many times as fast extant is. `None` if a subject was not measured.
    fn ratio(&self, benches: &[Value]) -> Option<f64> {
        let bench = benches.iter().find(|bench| bench["bench"] == self.bench)?;
        let rows: Vec<Row<'_>> =
            rows(bench, "rows").into_iter().filter(|row| self.takes(row)).collect();
        let own = rows.iter().filter(|row| row.subject == self.own);
        let logs: Vec<f64> = own
            .filter_map(|own| {
                let other = rows.iter().find(|row| {
                    row.subject == self.rival.0 && (row.case, row.params) == (own.case, own.params)
                })?;
                Some(speed_ratio(self.metric, own.value, other.value).ln())
            })
            .collect();
        (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    }
}

/// A bench's object with only the rows that the picture shows. `None` if it shows none.
pub(crate) fn kept(bench: &Value) -> Option<Value> {
    let jobs = || MOUNTED.iter().chain(&NATIVE).chain(&MOUNTED_KERNEL);
    let jobs: Vec<&Job> = jobs().filter(|job| bench["bench"] == job.bench).collect();
    let list = bench["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let shown = list.iter().filter(|row| {
        let one = json!({ "rows": [row] });
        let found = rows(&one, "rows");
        found.iter().any(|row| jobs.iter().any(|job| job.takes(row)))
    });
    let shown: Vec<Value> = shown.cloned().collect();
    (!shown.is_empty()).then(|| {
        json!({
            "bench": bench["bench"], "host": bench["host"], "rounds": bench["rounds"],
            "conditions": bench["conditions"], "rows": shown, "published": [], "findings": [],
        })
    })
}

/// Width of the picture. Text of 20 units is still legible on a phone, at two thirds of this width.
const WIDTH: f64 = 480.0;
/// Start and end of the axis. Figures are to the right of a bar's end.
const AXIS: (f64, f64) = (18.0, WIDTH - 78.0);
/// Height of a job: its name, then its bar.
const ROW: f64 = 52.0;

/// Colours and type. No `var()`: some programs that draw SVG do not support it.
const STYLE: &str = "\
.jobs text{font:20px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
.jobs .title{font-weight:700;font-size:23px}.jobs .note{font-size:17px}.jobs .figure{font-weight:700}\
.jobs .page{fill:#fff}.jobs text{fill:#15191d}.jobs .dim{fill:#56616c}.jobs .grid{stroke:#d5dae0}\
.jobs .one{stroke:#15191d;stroke-width:2.5}.jobs .ahead{fill:#0b7a75}.jobs .behind{fill:#c0552d}\
@media(prefers-color-scheme:dark){\
.jobs .page{fill:#0d1117}.jobs text{fill:#e6edf3}.jobs .dim{fill:#a3adb8}.jobs .grid{stroke:#30363d}\
.jobs .one{stroke:#e6edf3}.jobs .ahead{fill:#35c2b5}.jobs .behind{fill:#f08a5d}}";

/// The picture. `None` if none of its jobs was measured.
pub(crate) fn picture(benches: &[Value]) -> Option<String> {
    let measured = |jobs: &'static [Job]| -> Vec<(&'static Job, f64)> {
        jobs.iter().filter_map(|job| Some((job, job.ratio(benches)?))).collect()
    };
    let (native, on_mount) = (measured(&NATIVE), measured(&MOUNTED));
    let all = || on_mount.iter().chain(&native);
    all().next()?;
    let axis = Axis::between(all().map(|(_, ratio)| *ratio).chain([0.5, 2.0]), AXIS);

    let (mut body, mut y) = (String::new(), 70.0);
    for (title, group) in [("On a FUSE mount", &on_mount), ("Command and library", &native)] {
        if group.is_empty() {
            continue;
        }
        text(&mut body, "title", y + 30.0, title);
        y += 44.0;
        for (job, ratio) in group {
            bar(job, *ratio, &axis, y, &mut body);
            y += ROW;
        }
    }
    let bottom = y;
    for mark in axis.marks() {
        let _ = writeln!(
            body,
            "<text class=\"note dim\" x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{mark}×</text>",
            axis.at(mark),
            bottom + 19.0,
        );
    }
    y = bottom + 50.0;
    for line in notes(benches) {
        text(&mut body, "note dim", y, &line);
        y += 23.0;
    }

    let height = y - 8.0;
    let words: Vec<String> = all()
        .map(|(job, ratio)| format!("{}: {} times {}", job.name, digits(*ratio), job.rival.1))
        .collect();
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"jobs\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">\n<title>How many times as fast as the tool used today</title>\n\
         <desc>{}.</desc>\n<style>{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"8\"/>\n\
         <text class=\"title\" x=\"18\" y=\"34\">Times as fast as today’s tool</text>\n\
         <text class=\"note\" x=\"18\" y=\"62\">right of the line extant is faster</text>\n{body}</svg>\n",
        escape(&words.join("; ")),
    ))
}

/// A job's name, the tool it is compared with, the bar from 1, and the figure at the bar's right
/// end.
fn bar(job: &Job, ratio: f64, axis: &Axis, y: f64, out: &mut String) {
    let (one, end) = (axis.at(1.0), axis.at(ratio));
    let class = if ratio >= 1.0 { "ahead" } else { "behind" };
    // The lines pass only behind the bars: a line through a name makes it hard to read.
    for mark in axis.marks() {
        let (x, class) = (axis.at(mark), if mark == 1.0 { "one" } else { "grid" });
        let _ = write!(
            out,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.0}\" y2=\"{:.0}\"/>",
            y + 25.0,
            y + 46.0,
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"18\" y=\"{:.0}\">{} <tspan class=\"note dim\" dx=\"4\">vs {}</tspan></text>\
         <rect class=\"{class}\" x=\"{:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"15\"/>\
         <text class=\"figure\" x=\"{:.1}\" y=\"{:.0}\">{}×</text>",
        y + 20.0,
        escape(job.name),
        escape(job.rival.1),
        one.min(end),
        y + 28.0,
        (end - one).abs().max(1.0),
        one.max(end) + 8.0,
        y + 43.0,
        digits(ratio),
    );
}

fn text(out: &mut String, class: &str, y: f64, words: &str) {
    let words = escape(words);
    let _ = writeln!(out, "<text class=\"{class}\" x=\"18\" y=\"{y:.0}\">{words}</text>");
}

/// Text below the bars: the mount against the kernel's, the machine, and how much was built.
fn notes(benches: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    let ratios: Vec<String> = MOUNTED_KERNEL
        .iter()
        .filter_map(|job| Some(format!("{} {}×", job.name, digits(job.ratio(benches)?))))
        .collect();
    if !ratios.is_empty() {
        lines.push("Mount vs kernel ext4, which needs no FUSE:".to_string());
        lines.extend(ratios.chunks(2).map(|two| two.join(", ")));
    }
    let host = benches.first().map_or(&Value::Null, |bench| &bench["host"]);
    if let (Some(cpu), Some(cores)) = (host["cpu"].as_str(), host["cores"].as_u64()) {
        let date = host["date"].as_str().unwrap_or_default();
        lines.push(format!("{cpu}, {cores} cores, {date}"));
    }
    if host["optimized"] == false {
        lines.push("Not a release build: without meaning".to_string());
    }
    let built = benches.iter().find(|bench| bench["bench"] == "build");
    let rows = built.and_then(|bench| bench["rows"].as_array()).into_iter().flatten();
    let sizes = rows.filter_map(|row| {
        let params = &row["params"];
        Some((params["files"].as_u64()?, params["bytes"].as_u64()?))
    });
    if let Some((files, bytes)) = sizes.max() {
        lines.push(format!("Largest image: {files} files, {} MiB", bytes >> 20));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bench in which extant has 4 and 9 times the rival's speed in one job and 0.5 times in
    /// another.
    fn bench() -> Value {
        let row = |case: &str, subject: &str, threads: u64, value: f64| {
            json!({"case": case, "subject": subject, "metric": "ops_per_s", "value": value,
                   "spread_percent": 5.0, "params": {"threads": threads}})
        };
        json!({
            "bench": "fuse", "host": {"cpu": "X & Y", "cores": 2, "optimized": true}, "rounds": 3,
            "conditions": ["all alike"], "findings": ["faster"], "published": [],
            "rows": [
                row("untar", "extant", 1, 400.0), row("untar", "fuse2fs", 1, 100.0),
                row("untar", "extant", 2, 900.0), row("untar", "fuse2fs", 2, 100.0),
                row("readdir", "extant", 1, 50.0), row("readdir", "fuse2fs", 1, 100.0),
                row("stat", "extant", 1, 50.0), row("stat", "null-fuse", 1, 100.0),
            ],
        })
    }

    #[test]
    fn the_picture_shows_what_is_ahead_and_what_is_behind() {
        let svg = picture(&[bench()]).expect("a picture");
        assert!(svg.starts_with("<svg xmlns=") && svg.trim_end().ends_with("</svg>"), "{svg}");
        for part in ["Untar", ">6.00×<", "List names", ">0.50×<", "fuse2fs", "X &amp; Y", "1×"] {
            assert!(svg.contains(part), "no {part} in {svg}");
        }
        assert!(svg.contains("class=\"ahead\"") && svg.contains("class=\"behind\""), "{svg}");
        // In <img>, the page's colours do not apply.
        assert!(svg.contains("prefers-color-scheme:dark") && !svg.contains("var("), "{svg}");
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn there_are_twelve_jobs_and_no_picture_of_nothing() {
        assert_eq!(NATIVE.len() + MOUNTED.len(), 12);
        assert!(picture(&[]).is_none());
    }

    #[test]
    fn what_is_kept_makes_the_same_picture() {
        let kept = kept(&bench()).expect("rows of the picture");
        assert_eq!(kept["rows"].as_array().map(Vec::len), Some(6));
        assert_eq!(kept["conditions"], json!(["all alike"]));
        assert_eq!(picture(&[kept]), picture(&[bench()]));
        assert!(super::kept(&json!({"bench": "scale", "rows": []})).is_none());
    }

    /// The committed run has all twelve jobs, and its picture matches its figures.
    #[test]
    fn the_committed_picture_is_that_of_the_committed_figures() {
        let dir =
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks/run"));
        let benches = crate::read_run(dir).expect("the committed run");
        let svg = picture(&benches).expect("a picture");
        for job in MOUNTED.iter().chain(&NATIVE).chain(&MOUNTED_KERNEL) {
            assert!(job.ratio(&benches).is_some(), "no figures of {}", job.name);
        }
        let build =
            benches.iter().find(|bench| bench["bench"] == "build").expect("the build bench");
        let rows = build["rows"].as_array().expect("rows");
        let is_large = |row: &Value| row["params"]["bytes"].as_u64() >= Some(1 << 30);
        assert!(!rows.is_empty() && rows.iter().all(is_large), "the tree has 1 GiB or more");
        let committed = std::fs::read_to_string(dir.join("plot.svg")).expect("plot.svg");
        assert!(svg == committed, "run: extant-bench report --from docs/benchmarks/run");
    }
}
