//! The help of every verb, compared with `tests/help`. `UPDATE_HELP=1` rewrites those files.

use std::fs;
use std::path::Path;

const VERBS: [&str; 33] = [
    "mkfs",
    "build",
    "ls",
    "tree",
    "cat",
    "stat",
    "get",
    "put",
    "rm",
    "mkdir",
    "mv",
    "ln",
    "chmod",
    "chown",
    "chattr",
    "xattr",
    "apply-tar",
    "resize",
    "tune",
    "quota",
    "info",
    "report",
    "check",
    "repair",
    "replay",
    "undelete",
    "dump",
    "scrub",
    "rebuild",
    "trim",
    "defrag",
    "mount",
    "unmount",
];

#[test]
fn help_is_what_was_agreed() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let mut wrong = Vec::new();
    for verb in VERBS.into_iter().map(Some).chain([None]) {
        let args: Vec<&str> = verb.into_iter().chain(["--help"]).collect();
        let text = crate::common::succeed(&kept, &args);
        let path = kept.join(verb.unwrap_or("extant")).with_extension("txt");
        if std::env::var_os("UPDATE_HELP").is_some() {
            fs::write(&path, &text).unwrap();
        }
        if fs::read_to_string(&path).unwrap_or_default() != text {
            wrong.push(path);
        }
    }
    assert!(
        wrong.is_empty(),
        "changed: {wrong:?}; run the test with UPDATE_HELP=1 if that is meant"
    );
}

#[test]
fn the_list_of_verbs_is_whole() {
    let help = crate::common::succeed(Path::new("."), &["--help"]);
    let start = help.find("Commands:\n").expect("there is a list") + "Commands:\n".len();
    let listed: Vec<&str> = help[start..]
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|&verb| verb != "help")
        .collect();
    assert_eq!(listed, VERBS);
}

#[test]
fn wrong_usage_exits_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let wrong: [&[&str]; 9] = [
        &[],
        &["frobnicate"],
        &["ls"],
        &["mkfs"],
        &["mkfs", "a.img", "--size", "12x"],
        &["mkfs", "a.img", "--size", "1M", "-b", "3000"],
        &["build", "src"],
        &["build", "-o", "a.img"],
        &["tree", "a.img", "--hash"],
    ];
    for args in wrong {
        let (code, out, err) = crate::common::run(dir.path(), args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains("--help") || err.contains("Usage:"), "{args:?}: {err}");
    }
}

#[test]
fn a_wrong_command_line_that_is_found_late_exits_with_2_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let wrong: [(&[&str], &str); 15] = [
        (&["mkfs", "a.img", "--size", "1M", "--layout", "raid1"], "needs a second device"),
        (&["mkfs", "a.img", "--size", "1M", "--layout", "single", "b.img"], "one device"),
        (
            &["mkfs", "a.img", "--size", "1M", "--layout", "raid0", "b.img", "--stripe", "5000"],
            "power of two",
        ),
        (&["mkfs", "a.img", "--size", "1M", "-L", "seventeen letters"], "at most 16 bytes"),
        (&["mkfs", "a.img", "--size", "1M", "-O", "nonsense"], "-O nonsense"),
        (&["mkfs", "a.img?offset=x", "--size", "1M"], "not a size"),
        (&["mkfs", "--compat", "linux"], "name of the image"),
        (&["tune", "a.img", "-L", "seventeen letters"], "at most 16 bytes"),
        (&["build", ".", "-o", "a.img", "--size", "1M", "--free", "1M"], "--free"),
        (&["build", ".", "-o", "a.img", "--compat", "nobody"], "nobody"),
        (&["build", ".", "-o", "a.img?member=b.img"], "use mkfs"),
        (&["report", "a.img", "-o", "-", "--json"], "give -o a file"),
        (&["check", "a.img?backup=x"], "number of a block group"),
        (&["put", "a.img", "", "/"], "empty path"),
        (&["mv", "a.img", "--exchange", "/a", "/b", "/c"], "two names"),
    ];
    for (args, why) in wrong {
        let (code, out, err) = crate::common::run(dir.path(), args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
    assert!(!dir.path().join("a.img").exists());
}
