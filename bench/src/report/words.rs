//! Words for the ids in figures. JSON keeps the ids; tables and pages show the words.

use serde_json::Value;

const SUBJECTS: [(&str, &str); 29] = [
    ("extant-without", "extant (mechanism off)"),
    ("extant-portable", "extant (no special instructions)"),
    ("extant-bounce", "extant (stable copies)"),
    ("extant-buffered", "extant (page cache)"),
    ("extant-byte-log", "extant (byte log)"),
    ("extant-checksummed", "extant (data checksums)"),
    ("extant-fast-commit", "extant (fast commits)"),
    ("extant-flusher", "extant (don't-cache by flusher)"),
    ("extant-full-commit", "extant (full commits)"),
    ("extant-inline", "extant (don't-cache inline)"),
    ("extant-rate-limited", "extant (don't-cache rate-limited)"),
    ("extant-zero-copy", "extant (zero copy)"),
    ("extant-uring", "extant (FUSE over io_uring)"),
    ("kernel-ext4", "kernel ext4"),
    ("kernel-ext4-fast-commit", "kernel ext4 (fast commits)"),
    ("kernel-xfs", "kernel XFS"),
    ("kernel-btrfs-csum", "kernel btrfs (checksums)"),
    ("kernel-btrfs-nocsum", "kernel btrfs (no checksums)"),
    ("kernel-buffered", "kernel ext4 (page cache)"),
    ("kernel-dontcache", "kernel ext4 (RWF_DONTCACHE)"),
    ("null-fuse", "FUSE, files in memory"),
    ("plain-file", "plain file"),
    ("published-method", "published method, rebuilt"),
    ("crc-fast", "crate crc-fast"),
    ("crc32c", "crate crc32c"),
    ("copy", "copy in memory alone"),
    ("device", "device alone"),
    ("mke2fs", "mke2fs -d"),
    ("cp-kernel-ext4", "cp -a, kernel ext4"),
];

const CASES: [(&str, &str); 49] = [
    ("flip", "one bit flipped"),
    ("splice_12", "12 bytes replaced"),
    ("splice_264", "264 bytes replaced"),
    ("combine", "two checksums combined"),
    ("full", "all bytes"),
    ("tree", "from a directory tree"),
    ("archive", "from a tar"),
    ("oci", "from an OCI layout"),
    ("check", "check"),
    ("walk", "read all files"),
    ("fallocate_64k", "allocate 64 KiB"),
    ("create_unlink", "create and remove"),
    ("lookup", "look up"),
    ("big_dir", "one large directory"),
    ("write_u1k", "write, 1 KiB"),
    ("write_u10k", "write, 10 KiB"),
    ("pwrite_u1k", "pwrite, 1 KiB"),
    ("pwrite_u10k", "pwrite, 10 KiB"),
    ("writev_u1k", "writev, 10 × 1 KiB"),
    ("writev_u10k", "writev, 10 × 10 KiB"),
    ("different_files", "each thread its own file"),
    ("one_file", "all threads in one file"),
    ("seq_write", "sequential writes"),
    ("rand_write", "random writes"),
    ("reader_beside_writer", "a reader beside a writer"),
    ("plain_copy", "a plain file, copied"),
    ("create_unlink_fsync2", "create, remove; fsync after 2"),
    ("create_unlink_fsync4", "create, remove; fsync after 4"),
    ("create_unlink_fsync8", "create, remove; fsync after 8"),
    ("create_unlink_fsync16", "create, remove; fsync after 16"),
    ("create_unlink_fsync32", "create, remove; fsync after 32"),
    ("randwrite_fsync16", "random writes; fsync after 16"),
    ("randwrite_fdatasync16", "random writes; fdatasync after 16"),
    ("sqlite_txn", "writes of an SQLite transaction"),
    ("chmod_fsync", "chmod, fsync"),
    ("randwrite", "random writes"),
    ("seqwrite", "sequential writes"),
    ("randread", "random reads"),
    ("seqread", "sequential reads"),
    ("stat", "stat"),
    ("readdir", "list names"),
    ("git_status", "git status"),
    ("rm_r", "rm -r"),
    ("stream_read", "1 MiB sequential reads"),
    ("stream_write", "1 MiB sequential writes"),
    ("rand_read_4k", "4 KiB random reads"),
    ("rand_write_4k", "4 KiB random writes"),
    ("sqlite_commits", "SQLite commits"),
    ("sqlite_wal", "SQLite commits, write-ahead log"),
];

/// For programs on a mount, in addition to [`CASES`].
const PROGRAMS: [(&str, &str); 18] = [
    ("oltp_write_only", "MariaDB, sysbench write-only"),
    ("randwrite_4k_fdatasync", "fio 4 KiB random writes; fdatasync after each"),
    ("randwrite_4k_d64_fsync16", "fio 4 KiB random writes, 64 in flight; fsync after 16"),
    ("randwrite_4k_d64_fdatasync16", "fio 4 KiB random writes, 64 in flight; fdatasync after 16"),
    ("randwrite_4k_fsync", "fio 4 KiB random writes; fsync after each"),
    ("randread_4k", "fio 4 KiB random reads"),
    ("randread_4k_d16", "fio 4 KiB random reads, 16 in flight"),
    ("randwrite_4k_d16", "fio 4 KiB random writes, 16 in flight"),
    ("read_1m", "fio 1 MiB sequential reads"),
    ("write_1m", "fio 1 MiB sequential writes"),
    ("mail", "mail delivered, read, deleted"),
    ("mail_fsync", "mail delivered, read, deleted; fsync after each delivery"),
    ("untar_source", "tar -x of a program's source"),
    ("build_source", "build of a C program"),
    ("git_clone", "git clone"),
    ("sysbench_fileio", "sysbench fileio"),
    ("pgbench", "PostgreSQL, pgbench"),
    ("rm", "remove"),
];

const METRICS: [(&str, &str); 20] = [
    ("wall_s", "seconds"),
    ("peak_mib", "peak memory, MiB"),
    ("us_per_call", "µs per call"),
    ("us_per_unit", "µs per unit"),
    ("gb_per_s", "GB/s"),
    ("mb_per_s", "MB/s"),
    ("ops_per_s", "operations/s"),
    ("iops", "requests/s"),
    ("p50_us", "median, µs"),
    ("p99_us", "99th percentile, µs"),
    ("p999_us", "99.9th percentile, µs"),
    ("longest_us", "longest, µs"),
    ("sync_p99_us", "99th percentile of syncs, µs"),
    ("bytes_per_fsync", "bytes written per fsync"),
    ("flushes_per_fsync", "device flushes per fsync"),
    ("ns_throughput", "ns each, many in flight"),
    ("ns_latency", "ns each, one after another"),
    ("peak_cache_mib", "peak page cache, MiB"),
    ("peak_dirty_mib", "peak dirty pages, MiB"),
    ("percent", "percent"),
];

/// The words for an id from the lists. For an unknown id, the id with spaces in place of
/// underscores.
fn words_in(lists: &[&[(&str, &'static str)]], id: &str) -> String {
    let found = lists.iter().flat_map(|list| list.iter()).find(|(known, _)| *known == id);
    found.map_or_else(|| id.replace('_', " "), |(_, words)| (*words).to_string())
}

/// The words for a subject.
pub(super) fn subject(id: &str) -> String {
    words_in(&[&SUBJECTS], id)
}

/// The words for a case.
pub(super) fn case(id: &str) -> String {
    words_in(&[&CASES, &PROGRAMS], id)
}

/// The words for a metric, with its unit.
pub(super) fn metric(id: &str) -> String {
    words_in(&[&METRICS], id)
}

/// The words for a parameter and its value.
pub(super) fn param(name: &str, value: &Value) -> String {
    let number = value.as_u64();
    let amount = match number {
        Some(n) if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        Some(n) if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        Some(n) => format!("{n} bytes"),
        None => String::new(),
    };
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let many = |one: &str| format!("{text} {one}{}", if number == Some(1) { "" } else { "s" });
    match (name, text.as_str()) {
        ("bytes", _) if number.is_some() => amount,
        ("call_bytes", _) if number.is_some() => format!("{amount} a call"),
        ("folio_bytes", _) if number.is_some() => format!("{amount} folios"),
        ("block_bytes", _) if number.is_some() => format!("{amount} blocks"),
        ("blocks_per_group", _) => format!("{text} in a group"),
        ("full_percent", _) => format!("{text} % full"),
        ("threads", _) => many("thread"),
        ("writers", _) => many("writer"),
        ("files", _) => many("file"),
        ("names", _) => many("name"),
        ("blocks", _) => many("block"),
        ("extents", _) => many("extent"),
        ("mib", _) => format!("{text} MiB"),
        ("tib", _) => format!("{text} TiB"),
        ("depth", _) => format!("{text} in flight"),
        ("direct", "true") => "direct".into(),
        ("direct", "false") => "through the cache".into(),
        ("shared_file", "true") => "one file".into(),
        ("shared_file", "false") => "a file each".into(),
        ("offsets", "random") => "random places".into(),
        ("store", "simulated") => "simulated device".into(),
        ("store" | "step" | "role" | "direction", _) => text,
        ("journal", _) => format!("journal {text}"),
        ("per", _) => format!("per {text}"),
        _ => format!("{} {text}", name.replace('_', " ")),
    }
}

/// Replaces the ids in a sentence by their words, if they have several parts.
pub(super) fn prose(text: &str) -> String {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let (mut out, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let end = match part(first) {
            true => rest.find(|c| !part(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        let lists: [&[(&str, &str)]; 4] = [&SUBJECTS, &CASES, &PROGRAMS, &METRICS];
        let several = word.contains(['-', '_']);
        match lists.iter().flat_map(|list| list.iter()).find(|(id, _)| several && *id == word) {
            Some((_, words)) => out.push_str(words),
            None => out.push_str(word),
        }
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ids_are_words_and_other_text_stays() {
        assert_eq!(subject("kernel-ext4-fast-commit"), "kernel ext4 (fast commits)");
        assert_eq!(case("an_unknown_one"), "an unknown one");
        assert_eq!(metric("us_per_call"), "µs per call");
        assert_eq!(
            prose("walk: 2.27 of kernel-ext4's mb_per_s, a copy – end"),
            "walk: 2.27 of kernel ext4's MB/s, a copy – end"
        );
        for (name, value, words) in [
            ("threads", json!(1), "1 thread"),
            ("threads", json!(4), "4 threads"),
            ("call_bytes", json!(65536), "64 KiB a call"),
            ("direct", json!(false), "through the cache"),
            ("step", json!("first open"), "first open"),
        ] {
            assert_eq!(param(name, &value), words);
        }
    }
}
