//! Every operation alone: what must stand before it, durable, and then the one operation.
//!
//! ```text
//!   setup ; sync ; OPERATION            whole or absent, whenever the power goes
//!   setup ; sync ; OPERATION ; fsync    there, once the fsync has returned
//! ```

use crate::op::Op;
use crate::parse;
use crate::workload::Workload;

/// Name, setup, the operation, and what to fsync after it (empty: sync).
type Row = (&'static str, &'static str, &'static str, &'static str);

const FILE: &str = "creat /f 0644 ; write /f 0 9000";
const DIRS: &str = "mkdir /d 0755 ; creat /d/f 0644 ; write /d/f 0 5000 ; mkdir /e 0755";
const TWO: &str =
    "mkdir /d 0755 ; creat /f 0644 ; write /f 0 9000 ; creat /d/g 0600 ; write /d/g 0 70000";
const LONG: &str = "creat /f 0644 ; write /f 0 200000 ; creat /g 0644 ; write /g 0 3000";

const ROWS: &[Row] = &[
    ("creat", "mkdir /d 0755", "creat /d/f 0644", "/d/f"),
    ("mkdir", "mkdir /d 0755", "mkdir /d/e 0755", "/d/e"),
    ("symlink_short", "mkdir /d 0755", "symlink target /d/s", "/d"),
    (
        "symlink_long",
        "mkdir /d 0755",
        "symlink aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa /d/s",
        "/d",
    ),
    ("mknod_fifo", "", "mknod /p fifo", "/"),
    ("mknod_socket", "", "mknod /p socket", "/"),
    ("mknod_char", "", "mknod /p char", "/"),
    ("mknod_block", "", "mknod /p block", "/"),
    ("tmpfile_linked", "mkdir /d 0755", "tmpfile /d /d/t 9000", "/d/t"),
    ("tmpfile_dropped", "mkdir /d 0755", "tmpfile /d - 9000", "/d"),
    ("link", TWO, "link /f /d/h", "/f"),
    ("unlink", TWO, "unlink /d/g", "/d"),
    ("unlink_one_of_two", "creat /f 0644 ; write /f 0 9000 ; link /f /g", "unlink /f", "/g"),
    ("unlink_held", "creat /f 0644 ; write /f 0 90000 ; hold /f", "unlink /f", "/"),
    (
        "release_unlinked",
        "creat /f 0644 ; write /f 0 90000 ; hold /f ; unlink /f",
        "release /f",
        "/",
    ),
    ("rmdir", DIRS, "rmdir /e", "/"),
    ("rename", TWO, "rename /f /h", "/h"),
    ("rename_across", TWO, "rename /f /d/h", "/d/h"),
    ("rename_over", TWO, "rename /f /d/g", "/d/g"),
    (
        "rename_over_held",
        "creat /f 0644 ; write /f 0 5000 ; creat /g 0644 ; write /g 0 70000 ; hold /g",
        "rename /f /g",
        "/g",
    ),
    ("rename_dir", DIRS, "rename /d /h", "/h"),
    ("rename_dir_across", DIRS, "rename /d /e/h", "/e"),
    ("rename_dir_over_empty", DIRS, "rename /d /e", "/e"),
    ("rename_noreplace", TWO, "rename-noreplace /f /h", "/h"),
    ("exchange_files", TWO, "exchange /f /d/g", "/f"),
    ("exchange_dir_and_file", TWO, "exchange /f /d", "/f"),
    (
        "exchange_dirs",
        "mkdir /a 0755 ; mkdir /a/d 0755 ; mkdir /b 0755 ; mkdir /b/e 0755",
        "exchange /a/d /b/e",
        "/a/d",
    ),
    ("whiteout", TWO, "whiteout /f /d/h", "/d/h"),
    ("write_new", "creat /f 0644", "write /f 0 20000", "/f"),
    ("write_sparse", "creat /f 0644", "write /f 100000 3000", "/f"),
    ("write_over", FILE, "write /f 1000 6000", "/f"),
    ("write_tiny", "creat /f 0644", "write /f 0 40", "/f"),
    ("write_into_hole", "creat /f 0644 ; write /f 60000 4000", "write /f 20000 9000", "/f"),
    ("append", FILE, "append /f 10000", "/f"),
    ("append_in_block", FILE, "append /f 100", "/f"),
    ("append_to_tiny", "creat /f 0644 ; write /f 0 60", "append /f 500", "/f"),
    ("truncate_to_zero", LONG, "truncate /f 0", "/f"),
    ("truncate_down", LONG, "truncate /f 50001", "/f"),
    ("truncate_up", LONG, "truncate /g 300000", "/g"),
    ("falloc", FILE, "falloc /f 0 4096 80000", "/f"),
    ("falloc_keep_size", FILE, "falloc /f FALLOC_FL_KEEP_SIZE 4096 80000", "/f"),
    ("falloc_then_write", "creat /f 0644 ; falloc /f 0 0 90000", "write /f 30000 20000", "/f"),
    ("zero_range", LONG, "falloc /f FALLOC_FL_ZERO_RANGE 5000 80000", "/f"),
    (
        "zero_range_keep_size",
        LONG,
        "falloc /f FALLOC_FL_ZERO_RANGE|FALLOC_FL_KEEP_SIZE 150000 90000",
        "/f",
    ),
    ("punch_hole", LONG, "falloc /f FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE 5000 80000", "/f"),
    ("collapse", LONG, "falloc /f FALLOC_FL_COLLAPSE_RANGE 65536 65536", "/f"),
    ("insert", LONG, "falloc /f FALLOC_FL_INSERT_RANGE 65536 65536", "/f"),
    ("setxattr", FILE, "fsetxattr /f user.a 20", "/f"),
    ("setxattr_block", FILE, "fsetxattr /f user.big 700", "/f"),
    (
        "setxattr_replace",
        "creat /f 0644 ; fsetxattr /f user.a 600",
        "fsetxattr /f user.a 650",
        "/f",
    ),
    ("setxattr_dir", "mkdir /d 0755", "fsetxattr /d user.a 500", "/d"),
    ("removexattr", "creat /f 0644 ; fsetxattr /f user.a 20", "removexattr /f user.a", "/f"),
    (
        "removexattr_block",
        "creat /f 0644 ; fsetxattr /f user.big 700",
        "removexattr /f user.big",
        "/f",
    ),
    ("chmod", FILE, "chmod /f 0600", "/f"),
    ("chown", FILE, "chown /f 100 200", "/f"),
    ("utimes", FILE, "utimes /f", "/f"),
    ("chattr", FILE, "chattr /f +A", "/f"),
];

/// Each operation alone, once up to the volume's closing and once followed by a fsync.
///
/// Panics when the table is not right.
pub fn workloads() -> Vec<Workload> {
    let ops = |text: &str| parse::ops(text).unwrap_or_else(|e| panic!("the table is wrong: {e}"));
    let mut all = Vec::new();
    for (name, setup, op, fsync) in ROWS {
        let begin = ops(&format!("{setup} ; sync ; {op}"));
        let mut synced = begin.clone();
        synced.push(Op::Fsync { path: (*fsync).to_owned() });
        all.push(Workload { name: format!("alone/{name}"), ops: begin });
        all.push(Workload { name: format!("alone/{name}_fsync"), ops: synced });
    }
    all.extend(
        large()
            .into_iter()
            .map(|(name, text)| Workload { name: format!("alone/{name}"), ops: ops(&text) }),
    );
    all
}

/// A file of `n` pieces of 100 bytes with holes between them: its map has nodes of its own.
fn pieces(n: usize) -> String {
    (0..n).map(|n| format!("write /f {} 100 ; ", n * 16384)).collect::<String>() + "sync ; "
}

/// What needs more setup than fits a line: directories that split and grow, large maps, a full
/// volume, reused blocks.
fn large() -> Vec<(&'static str, String)> {
    let names = |n: usize| -> String {
        (0..n).map(|n| format!("creat /d/name_that_takes_its_room_{n:04} 0644 ; ")).collect()
    };
    vec![
        ("dir_block_splits", format!("mkdir /d 0755 ; {} sync ; creat /d/one_more 0644", names(85))),
        ("dir_becomes_htree", format!("mkdir /d 0755 ; sync ; {} fsync /d", names(100))),
        ("map_node_truncate", format!("creat /f 0644 ; {} truncate /f 700000", pieces(120))),
        ("map_node_unlink", format!("creat /f 0644 ; {} unlink /f ; fsync /", pieces(120))),
        (
            "map_node_punch",
            format!(
                "creat /f 0644 ; {} falloc /f FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE 30000 1500000",
                pieces(120)
            ),
        ),
        (
            "map_node_collapse",
            format!("creat /f 0644 ; {} falloc /f FALLOC_FL_COLLAPSE_RANGE 65536 1048576", pieces(120)),
        ),
        (
            "map_node_insert",
            format!("creat /f 0644 ; {} falloc /f FALLOC_FL_INSERT_RANGE 65536 65536", pieces(120)),
        ),
        (
            "volume_full",
            "creat /big 0644 ; falloc /big FALLOC_FL_KEEP_SIZE 0 4000000 ; sync ; creat /f 0644 ; \
             falloc /big FALLOC_FL_KEEP_SIZE 4000000 90000000 ; write /f 0 70000 ; \
             falloc /big FALLOC_FL_KEEP_SIZE 4000000 2000000 ; write /f 70000 70000 ; \
             falloc /big FALLOC_FL_KEEP_SIZE 6000000 800000 ; mkdir /d 0755 ; \
             append /f 60000 ; unlink /big ; append /f 70000 ; fsync /f"
                .to_owned(),
        ),
        (
            "freed_dir_block_becomes_data",
            "mkdir /d 0755 ; mkdir /d/e 0755 ; sync ; rmdir /d/e ; sync ; creat /f 0644 ; \
             write /f 0 60000 ; fsync /f ; write /f 0 60000 ; fsync /f"
                .to_owned(),
        ),
        (
            "freed_data_becomes_anothers",
            "creat /f 0644 ; write /f 0 60000 ; sync ; unlink /f ; creat /g 0644 ; \
             write /g 0 60000 ; fsync /g"
                .to_owned(),
        ),
        (
            "replace_by_rename",
            "creat /f 0644 ; write /f 0 9000 ; sync ; creat /t 0644 ; write /t 0 12000 ; fsync /t ; \
             rename /t /f ; fsync /"
                .to_owned(),
        ),
    ]
}
