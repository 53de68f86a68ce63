//! Measurements: `cargo test --release -p extant-pagecache -- --ignored --nocapture`.

use super::*;

fn row(name: &str, policy: DontCachePolicy, how: Use, threads: usize, writers: usize, call: u64) {
    let bandwidth = 1e9;
    let fixture = Fixture::new(Plan {
        policy,
        cap: 64 * MIB,
        dirty_limit: 256 * MIB,
        page: 64 << 10,
        bandwidth,
        threads,
        ..Plan::default()
    });
    // The first second fills the dirty limit and is not measured.
    storm(&fixture, writers, call, how, Duration::from_secs(1));
    let before = fixture.device.written();
    let seen = storm(&fixture, writers, call, how, Duration::from_secs(2));
    let rate = (fixture.device.written() - before) as f64 / seen.time.as_secs_f64();
    let stats = fixture.stats();
    let peak = if how == Use::Keep { stats.dirty_peak } else { stats.drop_behind_dirty_peak };
    let us = |part| seen.quantile(part).as_micros();
    println!(
        "{name:<14} {threads:>2} {writers:>3} {:>5} KiB {:>6.1} % {:>8} {:>8} {:>8} {:>8} {:>6.1}",
        call >> 10,
        rate / bandwidth * 100.0,
        us(0.5),
        us(0.99),
        us(0.999),
        us(1.0),
        peak as f64 / MIB as f64,
    );
}

#[test]
#[ignore = "takes minutes and judges nothing"]
fn policies_beside_each_other() {
    println!("policy     threads writers call   device  p50 µs  p99  p99.9  max  peak MiB");
    for call in [64 << 10, MIB, 4 * MIB] {
        for writers in [1, 4, 32] {
            row("buffered", DontCachePolicy::Flusher, Use::Keep, 2, writers, call);
            for threads in [1, 2, 4] {
                let how = Use::DropBehind;
                row("flusher", DontCachePolicy::Flusher, how, threads, writers, call);
            }
            row("rate-limited", DontCachePolicy::RateLimited, Use::DropBehind, 2, writers, call);
            row("inline", DontCachePolicy::Inline, Use::DropBehind, 2, writers, call);
        }
    }
}
