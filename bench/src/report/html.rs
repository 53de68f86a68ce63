//! The figures as one self-contained page of pictures.
//!
//! ```text
//!   objects of --json ──► head: the machine and the date
//!                         twelve jobs in one picture, which README shows, too
//!                         all in one picture: extant to each rival, least ── middle ── most
//!                         a section a bench: a dot plot for each case and metric, conditions,
//!                         findings, figures
//! ```

use std::fmt::Write;

use serde_json::Value;

use super::digits;
use super::figures::{Row, is_speed, less_is_better, rows, speed_ratio};
use super::jobs;
use super::plot::{Dots, Kind, Line, Spans, legend};
use super::words;

/// The page for these benches, each an object as `--json` writes it. `command` produced them.
pub(crate) fn page(benches: &[Value], command: &str) -> String {
    let mut out = String::from(HEAD);
    let host = benches.first().map(|bench| &bench["host"]);
    let text = |name: &str| host.map_or(String::new(), |host| plain(&host[name]));
    let _ = writeln!(
        out,
        "<h1>extant, measured</h1>\n<p class=sub>{} · {} cores · {} MiB · {} {} · extant {} · {} · made by <code>{}</code></p>",
        escape(&text("cpu")),
        text("cores"),
        text("memory_mib"),
        escape(&text("os")),
        escape(&text("kernel")),
        escape(&text("version")),
        escape(&text("date")),
        escape(command),
    );
    if host.is_some_and(|host| host["optimized"] == false) {
        out.push_str("<p class=warn>Not a release build: the figures mean nothing.</p>\n");
    }
    out.push_str("<nav>");
    for bench in benches {
        let name = escape(&plain(&bench["bench"]));
        let _ = write!(out, "<a href=\"#{name}\">{name}</a> ");
    }
    out.push_str("</nav>\n");
    if let Some(picture) = jobs::picture(benches) {
        let _ = writeln!(out, "<figure class=picture>{picture}</figure>");
    }
    out.push_str(
        "<h2>Each bench in one line</h2>\n<p>extant to each rival, over all cases that both have: the worst, the \
         geometric mean, the best. Right of 1, extant is better.</p>\n",
    );
    let mut spans = Spans::default();
    for bench in benches {
        ratios(bench, &mut spans);
    }
    out.push_str(&spans.svg());
    for bench in benches {
        section(bench, &mut out);
    }
    out.push_str("</main></body></html>\n");
    out
}

/// The variants that represent extant in a bench that has several and none with the bare name.
const OWN: [&str; 5] =
    ["extant-flusher", "extant-byte-log", "extant-zero-copy", "extant-fast-commit", "extant-uring"];

/// Adds a span for each rival of a bench.
fn ratios(bench: &Value, spans: &mut Spans) {
    let rows = rows(bench, "rows");
    let has = |subject: &str| rows.iter().any(|row| row.subject == subject);
    if has("extant") {
        return ratios_of(bench, &rows, "extant", spans);
    }
    for own in OWN.into_iter().filter(|own| has(own)) {
        ratios_of(bench, &rows, own, spans);
    }
}

fn ratios_of(bench: &Value, rows: &[Row<'_>], own: &str, spans: &mut Spans) {
    let mut rivals: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| !row.subject.starts_with("extant")) {
        if !rivals.contains(&row.subject) {
            rivals.push(row.subject);
        }
    }
    for rival in rivals {
        let mut found: Vec<f64> = Vec::new();
        for row in rows.iter().filter(|row| row.subject == own && is_speed(row.metric)) {
            let other = rows.iter().find(|other| {
                other.subject == rival
                    && (other.case, other.metric, other.params)
                        == (row.case, row.metric, row.params)
            });
            if let Some(other) = other {
                found.push(speed_ratio(row.metric, row.value, other.value));
            }
        }
        if found.is_empty() {
            continue;
        }
        let mean = (found.iter().map(|ratio| ratio.ln()).sum::<f64>() / found.len() as f64).exp();
        let least = found.iter().copied().fold(f64::INFINITY, f64::min);
        let most = found.iter().copied().fold(0.0, f64::max);
        let name = format!(
            "{}: {} to {}",
            plain(&bench["bench"]),
            words::subject(own),
            words::subject(rival)
        );
        spans.add(name, found.len(), [least, mean, most]);
    }
}

fn section(bench: &Value, out: &mut String) {
    let name = escape(&plain(&bench["bench"]));
    let _ = writeln!(out, "<section id=\"{name}\"><h2>{name}</h2>");
    list(&bench["findings"], "findings", out);
    let (rows, published) = (rows(bench, "rows"), rows(bench, "published"));
    let mut charts: Vec<(&str, &str)> = Vec::new();
    let mut subjects: Vec<(&str, Kind)> = Vec::new();
    for (row, kind) in rows
        .iter()
        .map(|row| (row, Kind::of(row.subject)))
        .chain(published.iter().map(|row| (row, Kind::Published)))
    {
        if !charts.contains(&(row.case, row.metric)) {
            charts.push((row.case, row.metric));
        }
        if !subjects.iter().any(|(subject, _)| *subject == row.subject) {
            subjects.push((row.subject, kind));
        }
    }
    out.push_str(&legend(&subjects));
    out.push_str("<div class=charts>");
    for (case, metric) in charts {
        let mut lines: Vec<Line> = Vec::new();
        let of_chart = |row: &&Row<'_>| row.case == case && row.metric == metric;
        let all = rows.iter().filter(of_chart).chain(published.iter().filter(of_chart));
        for row in all {
            let label = params(row.params);
            let series =
                subjects.iter().position(|(subject, _)| *subject == row.subject).unwrap_or(0);
            let dot = (series, row.value, row.spread.unwrap_or(0.0));
            match lines.iter_mut().find(|line| line.label == label) {
                Some(line) => line.dots.push(dot),
                None => lines.push(Line { label, dots: vec![dot] }),
            }
        }
        let better = if less_is_better(metric) { "less is better" } else { "more is better" };
        let _ = writeln!(
            out,
            "<figure><figcaption>{} · {} <span>({better})</span></figcaption>{}</figure>",
            escape(&words::case(case)),
            escape(&words::metric(metric)),
            Dots { subjects: &subjects, lines: &lines }.svg(),
        );
    }
    out.push_str("</div>\n<details><summary>How it was measured, and all figures</summary>\n");
    let rounds = match bench["rounds"].as_u64() {
        Some(1) => "One round: how far figures spread is not known.".into(),
        rounds => format!(
            "Medians of {} interleaved rounds; whiskers are the interquartile range.",
            rounds.unwrap_or(0)
        ),
    };
    let _ = writeln!(out, "<p>{rounds}</p>");
    list(&bench["conditions"], "conditions", out);
    out.push_str("<table><tr><th>job<th>with<th>counted<th>of<th>value<th>± %</tr>\n");
    for row in &rows {
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escape(&words::case(row.case)),
            escape(&params(row.params)),
            escape(&words::metric(row.metric)),
            escape(&words::subject(row.subject)),
            digits(row.value),
            row.spread.map_or("–".into(), |spread| format!("{spread:.0}")),
        );
    }
    out.push_str("</table></details></section>\n");
}

fn list(items: &Value, class: &str, out: &mut String) {
    let items = items.as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return;
    }
    let _ = write!(out, "<ul class={class}>");
    for item in items {
        let _ = write!(out, "<li>{}", escape(&words::prose(&plain(item))));
    }
    out.push_str("</ul>\n");
}

/// Parameters in the form of the table.
fn params(params: &Value) -> String {
    let pairs = params.as_object().into_iter().flatten();
    super::params_words(pairs.map(|(name, value)| (name.as_str(), value)))
}

/// A value without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// Escapes text for HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport \
content=\"width=device-width,initial-scale=1\"><title>extant, measured</title><style>
:root{--ink:#1a1d21;--dim:#667;--line:#dde1e6;--page:#fff;--own:#0b7a75;--own2:#3aa89f;--own3:#7cc9b8;--own4:#b5862b;--own5:#5b6fb5;
--rival:#c0552d;--rival2:#8a5a9e;--rival3:#777f88;--rival4:#b0455f;--pub:#2f3a45}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--dim:#9aa4ae;--line:#333a42;--page:#14171a;--own:#35c2b5;--own2:#7fdccb;
--own3:#a9e8d6;--own4:#e0b458;--own5:#9aaaf0;--rival:#f08a5d;--rival2:#c79bdb;--rival3:#a8b0b8;--rival4:#f0859d;--pub:#cfd6dd}}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}main{max-width:1100px;margin:auto;padding:1.5rem}
h1{margin:0}h2{margin:2.5rem 0 .5rem;border-bottom:1px solid var(--line)}.sub,figcaption span,.legend{color:var(--dim)}
.warn{color:var(--rival);font-weight:600}nav a{margin-right:.8rem;color:var(--own)}.charts{display:flex;flex-wrap:wrap;gap:1rem 2rem}
figure{margin:0;flex:1 1 30rem;min-width:0}figcaption{font-weight:600}figcaption span{font-weight:400}svg{width:100%;height:auto;display:block}
svg text{fill:var(--ink);font:11px system-ui,sans-serif}svg .dim{fill:var(--dim)}svg .grid{stroke:var(--line)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;list-style:none}.legend svg{width:12px;display:inline;vertical-align:-1px}
table{border-collapse:collapse;font-size:13px}td,th{padding:.1rem .7rem .1rem 0;text-align:left;border-bottom:1px solid var(--line)}
.picture{max-width:480px;margin:1.5rem 0}ul{padding-left:1.2rem}summary{cursor:pointer;color:var(--dim);margin:.8rem 0}</style></head><body><main>\n";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bench() -> Value {
        let row = |subject: &str, threads: u64, value: f64| {
            json!({"case": "a<b", "subject": subject, "metric": "ops_per_s", "value": value,
                   "spread_percent": 5.0, "params": {"threads": threads}})
        };
        json!({
            "bench": "fsync", "host": {"cpu": "X & Y", "cores": 2, "optimized": true}, "rounds": 3,
            "conditions": ["all alike"], "findings": ["faster"],
            "rows": [row("extant", 1, 400.0), row("kernel-ext4", 1, 100.0), row("extant", 4, 100.0), row("kernel-ext4", 4, 100.0)],
            "published": [row("series v7", 1, 50.0)],
        })
    }

    #[test]
    fn a_page_is_self_contained_and_shows_every_measurement() {
        let page = page(&[bench()], "extant-bench fsync");
        for part in [
            "a&lt;b",
            "X &amp; Y",
            "all alike",
            "faster",
            "series v7",
            "extant to kernel ext4",
            "operations/s",
            "4 threads",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("kernel-ext4") && !page.contains("ops_per_s"), "ids, not words");
        assert!(!page.contains("http") && !page.contains("<script") && !page.contains("NaN"));
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }

    #[test]
    fn a_line_has_worst_mean_and_best() {
        let mut spans = Spans::default();
        ratios(&bench(), &mut spans);
        let svg = spans.svg();
        assert!(svg.contains("1.00 · 2.00 · 4.00"), "{svg}");
    }

    #[test]
    fn a_page_of_nothing_is_a_page() {
        assert!(page(&[], "").contains("</html>"));
    }
}
