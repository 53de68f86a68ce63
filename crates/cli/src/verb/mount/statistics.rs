//! Logs statistics of a mount on SIGUSR1.
//!
//! ```text
//!   kill -USR1 PID ──► "disk.img: 120 commits, 4031 fast commits (2118 KiB), …; 3 full commits: …"
//! ```

use super::log::Log;
use extant::{Filesystem, Stats};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Logs statistics of the volume `name` for each byte from `requested`.
pub(super) fn note_on_signal(
    mut requested: UnixStream,
    fs: Filesystem,
    log: Arc<Log>,
    name: String,
) {
    std::thread::spawn(move || {
        let mut byte = [0];
        while requested.read_exact(&mut byte).is_ok() {
            log.note(&format!("{name}: {}", text(&fs.stats())));
        }
    });
}

/// The statistics in one line.
fn text(stats: &Stats) -> String {
    let mut parts = Vec::new();
    if let Some(journal) = &stats.journal {
        parts.push(format!("{} commits", journal.commits));
        parts.push(match journal.fast_commits_on {
            true => {
                let kib = journal.fast_commit_bytes.div_ceil(1024);
                format!("{} fast commits ({kib} KiB)", journal.fast_commits)
            }
            false => "fast commits off".to_owned(),
        });
        if let Some(byte_log) = journal.byte_log {
            let kib = byte_log.bytes.div_ceil(1024);
            parts.push(format!("{} records in the byte log ({kib} KiB)", byte_log.records));
        }
        for (why, count) in &journal.full_because {
            let commits = if *count == 1 { "commit" } else { "commits" };
            parts.push(format!("{count} full {commits}: {}", why.words()));
        }
    }
    if let Some(cache) = &stats.cache {
        parts.push(format!(
            "{} KiB of file data cached, {} KiB of it dirty",
            cache.cached >> 10,
            cache.dirty >> 10
        ));
    }
    parts.join(", ")
}
