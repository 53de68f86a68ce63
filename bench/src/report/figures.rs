//! Reads figures from the objects that `--json` writes.

use serde_json::Value;

/// A figure of a bench.
pub(super) struct Row<'a> {
    pub(super) case: &'a str,
    pub(super) subject: &'a str,
    pub(super) metric: &'a str,
    pub(super) params: &'a Value,
    pub(super) value: f64,
    /// `None` for a single round.
    pub(super) spread: Option<f64>,
}

/// The figures of a bench's list `rows` or `published` that can be drawn.
pub(super) fn rows<'a>(bench: &'a Value, list: &str) -> Vec<Row<'a>> {
    let each = bench[list].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    each.filter_map(|row| {
        Some(Row {
            case: row["case"].as_str()?,
            subject: row["subject"].as_str()?,
            metric: row["metric"].as_str()?,
            params: &row["params"],
            value: row["value"].as_f64().filter(|value| *value > 0.0)?,
            spread: row["spread_percent"].as_f64(),
        })
    })
    .collect()
}

/// Whether a smaller figure is better.
pub(super) fn less_is_better(metric: &str) -> bool {
    ["_us", "_s", "_mib", "per_call"].iter().any(|end| metric.ends_with(end))
        && !metric.contains("per_s")
        || metric.starts_with("ns_")
        || metric.starts_with("us_per_")
        || metric.contains("per_fsync")
}

/// Whether a metric is a measure of speed.
pub(crate) fn is_speed(metric: &str) -> bool {
    matches!(
        metric,
        "ops_per_s"
            | "mb_per_s"
            | "us_per_call"
            | "gb_per_s"
            | "wall_s"
            | "ns_throughput"
            | "ns_latency"
    )
}

/// How many times as fast the first figure is as the second.
pub(crate) fn speed_ratio(metric: &str, own: f64, other: f64) -> f64 {
    if less_is_better(metric) { other / own } else { own / other }
}
