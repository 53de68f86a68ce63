//! A change that is killed, or whose disk is full, happened completely or not at all: each verb, at
//! any moment.
//!
//! ```text
//!   old.img ──copy──► cut.img ──verb── SIGKILL ──► replay ──► e2fsck -fn ──► content is old or new
//!                                 ▲
//!                                 └ after a random part of the time that a whole run takes
//! ```
//!
//! `EXTANT_SOAK=N` kills N times as often.

use crate::common::{assert_clean, pattern, run, source_tree, succeed};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of kills for each verb.
const KILLS: u32 = 6;
const SOAK: u32 = 20;

fn kills() -> u32 {
    let Ok(text) = std::env::var("EXTANT_SOAK") else { return KILLS };
    KILLS * text.parse().ok().filter(|effort| *effort > 1).unwrap_or(SOAK)
}

/// The content of a volume without what differs between runs: times from the clock, and the
/// location of new inodes.
fn content(dir: &Path, image: &str) -> Vec<serde_json::Value> {
    let text = succeed(dir, &["tree", "--json", "--hash", image]);
    let read = |line| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        let fields = record.as_object_mut().unwrap();
        for name in ["atime", "ctime", "crtime", "generation", "ino"] {
            fields.remove(name);
        }
        if fields.get("type").or(fields.get("kind")).is_some_and(|kind| kind != "file") {
            fields.remove("mtime");
        }
        record
    };
    text.lines().map(read).collect()
}

/// A volume to change, and the input files of the verbs.
fn ready() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    source_tree(&dir);
    let many = |name: &str, salt: usize| {
        for n in 0..120 {
            let sub = at.join(name).join(format!("{}", n % 5));
            fs::create_dir_all(&sub).unwrap();
            fs::write(sub.join(format!("{n}")), pattern(1500 * (n % 4) + n + salt)).unwrap();
        }
    };
    many("src/tree", 0);
    many("more", 7);
    fs::write(at.join("one"), pattern(900_000)).unwrap();
    let mut builder = tar::Builder::new(fs::File::create(at.join("more.tar")).unwrap());
    builder.append_dir_all("tree", at.join("more")).unwrap();
    builder.append_dir_all("new", at.join("more")).unwrap();
    builder.finish().unwrap();
    let args = ["build", "src", "-q", "-o", "old.img", "--size", "16M", "--owner", "7:8"];
    succeed(at, &args);
    succeed(at, &["ln", "old.img", "/big", "/etc/other"]);
    dir
}

/// A pseudo-random sequence that is the same in each run.
fn chance(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Runs `args` on `cut.img`, a copy of the old volume, and kills it after `moment`. Returns whether
/// the kill came before its end.
fn cut(at: &Path, args: &[&str], moment: Duration) -> bool {
    fs::copy(at.join("old.img"), at.join("cut.img")).unwrap();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("extant"))
        .current_dir(at)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(moment);
    // It may have ended already.
    let _ = child.kill();
    child.wait().unwrap().signal().is_some()
}

/// Kills the verb at moments spread over its run. The verb leaves the old or the new volume or,
/// with --in-steps, a state between the two.
fn is_whole_or_absent(args: &[&str]) {
    let dir = ready();
    let at = dir.path();
    let steps = args.contains(&"--in-steps");
    fs::copy(at.join("old.img"), at.join("cut.img")).unwrap();
    let started = Instant::now();
    succeed(at, args);
    let took = started.elapsed();
    assert_clean(&at.join("cut.img"));
    let (old, new) = (content(at, "old.img"), content(at, "cut.img"));
    assert_ne!(old, new, "{args:?} changes nothing");
    let (mut absent, mut whole, mut between) = (0, 0, 0);
    let mut seed = args
        .iter()
        .flat_map(|arg| arg.bytes())
        .fold(0x9E37_79B9, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let kills = kills();
    for n in 0..kills {
        // One moment in each part of the run, so that every part is covered.
        let part = took.as_micros() as u64 / u64::from(kills) + 1;
        let moment = Duration::from_micros(part * u64::from(n) + chance(&mut seed) % part);
        cut(at, args, moment);
        // A reader sees the same content before and after the replay.
        let seen = content(at, "cut.img");
        succeed(at, &["replay", "-q", "cut.img"]);
        assert_clean(&at.join("cut.img"));
        let now = content(at, "cut.img");
        assert_eq!(seen, now, "{args:?} killed after {moment:?}");
        match () {
            () if now == old => absent += 1,
            () if now == new => whole += 1,
            () if steps => between += 1,
            () => {
                let odd = now.iter().find(|line| !old.contains(line) && !new.contains(line));
                panic!("{args:?} killed after {moment:?} left a part: {odd:?}");
            }
        }
    }
    println!("{args:?}: {absent} absent, {whole} whole, {between} between");
}

macro_rules! verbs {
    ($($name:ident: [$($arg:expr),*];)*) => {
        $(#[test]
        fn $name() {
            is_whole_or_absent(&[$($arg),*]);
        })*
    };
}

verbs! {
    put: ["put", "cut.img", "one", "/etc/hostname"];
    put_directories: ["put", "-r", "cut.img", "more", "/more"];
    put_over_what_is_there: ["put", "-r", "cut.img", "more/.", "/tree"];
    put_in_steps: ["put", "-r", "--in-steps", "cut.img", "more", "/more"];
    rm: ["rm", "-r", "cut.img", "/tree", "/big"];
    mkdir: ["mkdir", "-p", "cut.img", "/a/b/c/d", "/a/e", "/tree/f/g"];
    mv: ["mv", "cut.img", "/tree", "/big", "/etc"];
    mv_exchange: ["mv", "--exchange", "cut.img", "/tree/1", "/etc"];
    mv_of_one_file: ["mv", "cut.img", "/big", "/etc/other"];
    ln: ["ln", "-f", "cut.img", "/tree/0/0", "/etc/hostname"];
    ln_symbolic: ["ln", "-sf", "cut.img", "elsewhere", "/link"];
    chmod: ["chmod", "-R", "cut.img", "u=rwX,go=", "/tree"];
    chown: ["chown", "-R", "cut.img", "100:200", "/tree"];
    chattr: ["chattr", "-R", "cut.img", "+dA", "/tree"];
    xattr: ["xattr", "-n", "user.a", "-v", "value", "cut.img", "/big", "/etc", "/tree/1/1"];
    apply_tar: ["apply-tar", "cut.img", "more.tar"];
}

/// The image's disk accepts no byte beyond a limit: the change fails with a message and did not
/// happen.
#[test]
fn a_full_disk_leaves_the_volume_as_it_was() {
    let dir = ready();
    let at = dir.path();
    // A file with few blocks, as images are: its free space is holes.
    succeed(at, &["mkfs", "-q", "old.img", "-f", "-s", "64M"]);
    let old = content(at, "old.img");
    let program = assert_cmd::cargo::cargo_bin("extant");
    let mut failed = 0;
    // In KiB: too little for the log, for a part of it, or for the content.
    for limit in [0, 64, 512, 2048, 8192, 24 << 10, 40 << 10] {
        fs::copy(at.join("old.img"), at.join("cut.img")).unwrap();
        let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", limit * 2);
        let output = Command::new("sh")
            .current_dir(at)
            .args(["-c", &script, "sh"])
            .arg(&program)
            .args(["put", "-r", "cut.img", "more", "one", "/"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            failed += 1;
            let one_line = said.lines().count() == 1 && said.starts_with("extant: cut.img: ");
            assert!(one_line && said.contains("File too large"), "{limit} KiB: {said}");
            succeed(at, &["replay", "-q", "cut.img"]);
            assert_eq!(content(at, "cut.img"), old, "{limit} KiB");
        }
        assert_clean(&at.join("cut.img"));
    }
    assert!(failed >= 3, "{failed} failed");
}

/// The same on a small tmpfs, if a namespace may have one.
#[test]
fn a_full_tmpfs_leaves_the_volume_as_it_was() {
    let dir = ready();
    let at = dir.path();
    let script = r#"
        mkdir t && mount -t tmpfs -o size=1536k tmpfs t || exit 77
        "$1" mkfs -q t/a.img -s 64M || exit 76
        "$1" tree --json --hash t/a.img > old.txt || exit 75
        "$1" put -r t/a.img more one / 2> said.txt; echo $? > status.txt
        rm -f t/filler
        cp --sparse=always t/a.img left.img
    "#;
    let output = Command::new("unshare")
        .current_dir(at)
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin("extant"))
        .output();
    let Ok(output) = output else { return eprintln!("no unshare here: not judged") };
    if !at.join("status.txt").exists() {
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() != Some(76) && output.status.code() != Some(75), "{why}");
        return eprintln!("no tmpfs of one's own here: not judged: {why}");
    }
    let said = fs::read_to_string(at.join("said.txt")).unwrap();
    assert_eq!(fs::read_to_string(at.join("status.txt")).unwrap(), "1\n", "{said}");
    assert!(said.lines().count() == 1 && said.contains("No space left on device"), "{said}");
    succeed(at, &["replay", "-q", "left.img"]);
    assert_clean(&at.join("left.img"));
    let names = |text: &str| text.lines().count();
    let left = succeed(at, &["tree", "--json", "--hash", "left.img"]);
    assert_eq!(names(&left), names(&fs::read_to_string(at.join("old.txt")).unwrap()));
}

/// The image does not exist when the verb starts, or its name is removed while the verb runs.
#[test]
fn an_image_that_is_gone_is_named() {
    let dir = ready();
    let at = dir.path();
    let (code, _, said) = run(at, &["mkdir", "gone.img", "/a"]);
    assert_eq!(
        (code, said.as_str()),
        (1, "extant: gone.img: cannot open: No such file or directory\n")
    );
    // The program has the file open: the removal of one of its names has no effect on that.
    fs::copy(at.join("old.img"), at.join("cut.img")).unwrap();
    fs::hard_link(at.join("cut.img"), at.join("kept.img")).unwrap();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("extant"))
        .current_dir(at)
        .args(["put", "cut.img", "-", "/x"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    fs::remove_file(at.join("cut.img")).unwrap();
    // It reads its input to the end, and may have failed to open the name.
    let _ = child.stdin.take().unwrap().write_all(b"in");
    let opened = child.wait().unwrap().success();
    let (code, _, _) = run(at, &["cat", "kept.img", "/x"]);
    assert_eq!(code == 0, opened);
    assert_clean(&at.join("kept.img"));
}
