//! Every operation alone: its setup, made durable, and then the one operation.
//!
//! ```text
//!   setup ; sync ; OPERATION            whole or absent, at whatever moment the power is cut
//!   setup ; sync ; OPERATION ; fsync    present, once the fsync has returned
//! ```

use crate::make::Make;
use crate::op::Op;
use crate::parse;
use crate::prepare::{FULL_INDEX, long_name};
use crate::workload::Workload;
use extant::FileKind;
use std::sync::Arc;

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
    ("chattr_immutable", FILE, "chattr /f +i", "/f"),
    ("map_becomes_pointers", FILE, "chattr /f -e", "/f"),
    (
        "map_becomes_extents",
        "creat /f 0644 ; write /f 0 9000 ; chattr /f -e ; write /f 0 70000 ; write /f 400000 3000",
        "chattr /f +e",
        "/f",
    ),
    (
        "map_becomes_pointers_and_grows",
        FILE,
        "chattr /f -e ; write /f 0 70000 ; chattr /f +e ; append /f 5000",
        "/f",
    ),
    ("journaled_file_begins", FILE, "chattr /f +j", "/f"),
    (
        "journaled_file_ends",
        "creat /f 0644 ; chattr /f +j ; write /f 0 9000 ; fsync /f ; write /f 0 9000",
        "chattr /f -j",
        "/f",
    ),
    ("journaled_file_write", "creat /f 0644 ; chattr /f +j", "write /f 0 20000", "/f"),
    (
        "journaled_file_write_over",
        "creat /f 0644 ; chattr /f +j ; write /f 0 9000",
        "write /f 1000 6000",
        "/f",
    ),
    (
        "journaled_file_truncate",
        "creat /f 0644 ; chattr /f +j ; write /f 0 30000",
        "truncate /f 5000",
        "/f",
    ),
    ("journaled_file_unlink", "creat /f 0644 ; chattr /f +j ; write /f 0 30000", "unlink /f", "/"),
    ("project", FILE, "chproj /f 7", "/f"),
    ("project_inherited", "mkdir /d 0755 ; chproj /d 7 ; chattr /d +P", "creat /d/f 0644", "/d/f"),
    ("setgid_inherited", "mkdir /d 2755 ; chown /d 5 6 ; chmod /d 2775", "mkdir /d/e 0755", "/d/e"),
    ("acl_access", FILE, "setfacl /f access", "/f"),
    ("acl_access_chmod", "creat /f 0644 ; setfacl /f access", "chmod /f 0600", "/f"),
    ("acl_default", "mkdir /d 0755", "setfacl /d default", "/d"),
    ("acl_default_creat", "mkdir /d 0755 ; setfacl /d default", "creat /d/f 0666", "/d/f"),
    ("acl_default_mkdir", "mkdir /d 0755 ; setfacl /d default", "mkdir /d/e 0777", "/d/e"),
    (
        "acl_removed",
        "creat /f 0644 ; setfacl /f access",
        "removexattr /f system.posix_acl_access",
        "/f",
    ),
    ("value_inode", FILE, "fsetxattr /f user.huge 3000", "/f"),
    (
        "value_inode_replaced",
        "creat /f 0644 ; fsetxattr /f user.huge 3000",
        "fsetxattr /f user.huge 2500",
        "/f",
    ),
    (
        "value_inode_removed",
        "creat /f 0644 ; fsetxattr /f user.huge 3000",
        "removexattr /f user.huge",
        "/f",
    ),
    ("value_inode_unlink", "creat /f 0644 ; fsetxattr /f user.huge 3000", "unlink /f", "/"),
    ("attribute_block_unlink", "creat /f 0644 ; fsetxattr /f user.big 700", "unlink /f", "/"),
    ("write_second_indirect", "creat /f 0644 ; write /f 0 90", "write /f 400000 3000", "/f"),
];

/// Each operation alone, once until the volume is closed and once followed by an fsync.
///
/// Panics if the table contains an error.
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

/// Operations that only some kinds of volume support: a second level of an htree, which takes a few
/// hundred names in small blocks, and an encrypted directory.
///
/// Panics when the volume cannot be read.
pub fn workloads_on(make: &Make) -> Vec<Workload> {
    let mut rows = Vec::new();
    if make.block_bytes() == 1024 {
        rows.push(("htree_second_level", second_level("link /f /d/")));
        rows.push(("htree_second_level_creat", second_level("creat /d/")));
    }
    if make.has_vault() {
        rows.extend(vault(make));
    }
    let parsed = |text: &str| parse::ops(text).unwrap_or_else(|e| panic!("wrong table: {e}"));
    let workload = |(name, text): (&str, String)| Workload {
        name: format!("alone/{name}"),
        ops: parsed(&text),
    };
    rows.into_iter().map(workload).collect()
}

/// The root of an index is nearly full. The names that follow add a level to the tree, and then
/// some are removed.
fn second_level(verb: &str) -> String {
    let mode = if verb.starts_with("creat") { " 0644" } else { "" };
    let mut text =
        format!("mkdir /d 0755 ; creat /f 0644 ; fill /f /d {SECOND_LEVEL_BEGINS} ; sync");
    for n in SECOND_LEVEL_BEGINS..SECOND_LEVEL_ENDS {
        text += &format!(" ; {verb}{}{mode}", long_name(n));
    }
    text += " ; fsync /d";
    for n in [0, 7, SECOND_LEVEL_BEGINS, SECOND_LEVEL_ENDS - 1] {
        text += &format!(" ; unlink /d/{}", long_name(n));
    }
    text
}

/// One name more than an index of two levels holds, and one that is removed: for
/// [`DEEP`](crate::make::DEEP).
///
/// Panics if the table contains an error.
pub fn third_level() -> Workload {
    let (new, old) = (long_name(FULL_INDEX), long_name(7));
    let text = format!("sync ; link /f /d/{new} ; fsync /d ; unlink /d/{old} ; fsync /d");
    let ops = parse::ops(&text).unwrap_or_else(|e| panic!("the table is wrong: {e}"));
    Workload { name: "alone/htree_third_level".to_owned(), ops }
}

/// The number of names of 250 bytes, in blocks of 1 KiB, that fit a tree of one level, and the
/// number that needs a second level.
pub const SECOND_LEVEL_BEGINS: u64 = 230;
/// See [`SECOND_LEVEL_BEGINS`].
pub const SECOND_LEVEL_ENDS: u64 = 276;

/// What is allowed without the key: names are removed, and known attributes of a file change.
/// Everything else is refused and changes nothing.
fn vault(make: &Make) -> Vec<(&'static str, String)> {
    let view = crate::recovered::look(make, &Arc::new(make.base()));
    let view = view.unwrap_or_else(|e| panic!("{}: {e}", make.name));
    let names = |kind| {
        let inside = |path: &&String| path.starts_with("/vault/");
        let of_kind = |path: &&String| view.node(path).is_some_and(|n| n.attributes.kind == kind);
        view.names.keys().filter(inside).filter(of_kind).cloned().collect::<Vec<_>>()
    };
    let (files, dirs) = (names(FileKind::Regular), names(FileKind::Directory));
    let (a, b, dir) = (&files[0], &files[1], &dirs[0]);
    let all: String = files.iter().map(|path| format!("unlink {path} ; ")).collect();
    vec![
        ("vault_unlink", format!("sync ; unlink {a}")),
        ("vault_unlink_fsync", format!("sync ; unlink {a} ; fsync /vault")),
        ("vault_unlink_held", format!("hold {a} ; sync ; unlink {a} ; fsync /vault")),
        ("vault_rmdir", format!("sync ; rmdir {dir} ; fsync /vault")),
        ("vault_emptied", format!("sync ; {all} rmdir {dir} ; fsync /vault ; rmdir /vault ; sync")),
        ("vault_moved", "mkdir /d 0755 ; sync ; rename /vault /d/vault ; fsync /d".to_owned()),
        ("vault_linked_out", format!("mkdir /d 0755 ; sync ; link {a} /d/f ; fsync /d")),
        (
            "vault_attributes",
            format!(
                "sync ; chmod {a} 0600 ; chown {a} 1 2 ; fsetxattr {a} user.a 20 ; \
                 fsetxattr {b} user.b 700 ; chattr {a} +A ; utimes {dir} ; fsync {a}"
            ),
        ),
        (
            "vault_refuses",
            format!(
                "mkdir /d 0755 ; creat /f 0644 ; sync ; creat /vault/new 0644 ; mkdir /vault/d 0755 ; \
                 symlink t /vault/s ; mknod /vault/p fifo ; tmpfile /vault - 9 ; link /f /vault/f ; \
                 rename /f /vault/f ; rename {a} /vault/other ; rename {a} {b} ; rename {a} /d/f ; \
                 exchange {a} {b} ; exchange {a} /f ; write {a} 0 9 ; append {a} 9 ; \
                 truncate {a} 9 ; falloc {a} 0 0 9000 ; sync"
            ),
        ),
    ]
}

/// A file of `n` pieces of 100 bytes with holes between them, so that its map has tree nodes.
fn pieces(n: usize) -> String {
    (0..n).map(|n| format!("write /f {} 100 ; ", n * 16384)).collect::<String>() + "sync ; "
}

/// Operations whose setup does not fit a line: directories that split and grow, large maps, a full
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
