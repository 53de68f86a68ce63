//! The command as users install it: by cargo, and as one file without dependencies on the system.
//!
//! Both tests use one build for musl, without optimisation: cargo has installed the other one
//! already.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> String {
    let out = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{command:?}\n{}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

/// Whether this machine can build for musl. In CI, a missing compiler is a failure.
fn has_musl() -> bool {
    let there = Command::new("musl-gcc").arg("--version").output().is_ok();
    if !there && std::env::var_os("CI").is_none() {
        println!("NOT RUN: no musl-gcc; tests/setup-judges installs it");
    }
    there || std::env::var_os("CI").is_some()
}

#[test]
fn the_static_program_runs_where_there_is_nothing_else() {
    if !has_musl() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut make = Command::new(root().join("packaging/static"));
    // Not optimised: nothing else is built for musl, so all of it is compiled here.
    let quick = [("CARGO_PROFILE_DEV_OPT_LEVEL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "0")];
    let name = run(make.arg(dir.path()).env("EXTANT_PROFILE", "dev").envs(quick));
    let program = Path::new(name.trim_end());
    let ldd = Command::new("ldd").arg(program).output().expect("there is ldd");
    let said = [ldd.stdout, ldd.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("statically linked") || said.contains("not a dynamic"), "{said}");

    assert_eq!(crate::package::debug_sections(program), [""; 0]);

    // An empty root: no libraries, no /proc, no /dev, no /tmp.
    let empty = dir.path().join("root");
    fs::create_dir_all(empty.join("tree/etc")).unwrap();
    fs::write(empty.join("tree/etc/hostname"), "guest\n").unwrap();
    fs::rename(program, empty.join("extant")).unwrap();
    let as_root = run(Command::new("id").arg("-u")) == "0\n";
    let inside = |words: &[&str]| {
        let mut command = match as_root {
            true => {
                let mut command = Command::new("chroot");
                command.arg(&empty).arg("/extant");
                command
            }
            false => Command::new(empty.join("extant")),
        };
        let path = "/usr/sbin:/usr/bin:/sbin:/bin";
        run(command.args(words).env_clear().env("PATH", path).current_dir(&empty))
    };
    inside(&["mkfs", "a.img", "--size", "16M"]);
    inside(&["put", "a.img", "tree/etc/hostname", "/hostname"]);
    inside(&["build", "tree", "-o", "b.img", "--free", "1M"]);
    for (image, path) in [("a.img", "/hostname"), ("b.img", "/etc/hostname")] {
        assert!(inside(&["check", image]).contains("clean"));
        assert_eq!(inside(&["cat", image, path]), "guest\n");
        crate::common::assert_clean(&empty.join(image));
    }
    assert_eq!(inside(&["--version"]), crate::common::succeed(&empty, &["--version"]));

    // Cargo installs the same build.
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut install = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    install.args([
        "install",
        "--path",
        "crates/cli",
        "--debug",
        "--locked",
        "--offline",
        "--quiet",
    ]);
    install.args(["--target", &target, "--root"]).arg(dir.path().join("home"));
    run(install.envs(quick).current_dir(root()));
    let installed = dir.path().join("home/bin/extant");
    run(Command::new(&installed).args(["check", "a.img"]).current_dir(&empty));
}

/// The packages that `tests/setup-judges` reports as missing on a machine that has only these
/// commands.
fn packages_for(set: &str) -> String {
    let bin = tempfile::tempdir().unwrap();
    for name in ["id", "sort", "tr", "dirname"] {
        let program = run(Command::new("sh").args(["-c", &format!("command -v {name}")]));
        std::os::unix::fs::symlink(program.trim_end(), bin.path().join(name)).unwrap();
    }
    let mut setup = Command::new("/bin/sh");
    setup.arg(root().join("tests/setup-judges")).arg(set);
    // As root it continues with apt-get, which is missing too.
    let out = setup.env_clear().env("PATH", bin.path()).output().expect("there is sh");
    assert!(!out.status.success());
    String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
}

#[test]
fn the_demo_asks_for_no_package_of_the_tests() {
    let (demo, test) = (packages_for("demo"), packages_for("test"));
    assert!(demo.contains("gcc") && demo.contains("curl"), "{demo}");
    for package in ["postgresql", "mypy", "stress-ng", "python3", "sqlite3", "musl-tools"] {
        assert!(!demo.contains(package), "{package} in {demo}");
        assert!(test.contains(package), "no {package} in {test}");
    }
}

/// The demo takes the program from the given target directory, and a new user can paste the lines
/// that it prints last.
#[test]
fn the_demo_ends_with_lines_that_work() {
    if Command::new("e2fsck").arg("-V").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs e2fsck");
        println!("NOT RUN: no e2fsck; tests/setup-judges installs it");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (target, tree, empty) =
        (dir.path().join("made"), dir.path().join("tree"), dir.path().join("empty"));
    fs::create_dir_all(target.join("release")).unwrap();
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::create_dir(&empty).unwrap();
    fs::write(tree.join("below/file"), "content\n").unwrap();
    let program = target.join("release/extant");
    std::os::unix::fs::symlink(assert_cmd::cargo::cargo_bin("extant"), &program).unwrap();
    let mut demo = Command::new(root().join("tests/demo"));
    demo.env("CARGO_TARGET_DIR", &target).env("DEMO_TREE", &tree).env("TMPDIR", dir.path());
    let said = run(&mut demo);
    assert!(said.contains(&format!("The command is {}", program.display())), "{said}");
    let (before, lines) = said.split_once("\nTry:\n").expect("lines to try");
    let path = before.lines().rfind(|line| line.trim_start().starts_with("export PATH="));
    let lines: Vec<&str> = lines.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 3, "{said}");
    let script = format!(
        "{}\ncommand -v extant && command -v cargo\n{}\n",
        path.expect("the PATH is named"),
        lines.join("\n")
    );
    let pasted = Command::new("sh").arg("-c").arg(script).current_dir(&empty).output().unwrap();
    // For a user other than root, the notes report files that cannot be read, and nothing else.
    let notes = String::from_utf8_lossy(&pasted.stderr);
    assert!(!notes.contains("no journal") && !notes.contains("no space"), "{notes}");
    let said = String::from_utf8_lossy(&pasted.stdout).into_owned();
    assert!(said.starts_with(&format!("{}\n/", program.display())), "{said}");
    assert!(said.contains("lost+found") && said.contains("etc.img: clean"), "{said}");
}
