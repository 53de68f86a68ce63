//! The Debian package, as users install it.

use std::fs;
use std::path::Path;
use std::process::Command;

fn run(command: &mut Command) -> String {
    let out = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{command:?}\n{}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

fn package(dir: &Path, to: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/deb");
    let to = dir.join(to);
    let mut command = Command::new(script);
    command.arg(&to).env("EXTANT_BIN", crate::common::extant().get_program());
    run(command.env("SOURCE_DATE_EPOCH", "1700000000")).trim_end().to_owned()
}

/// The sections with debug information of a program: tens of MB if it is built with them.
pub(crate) fn debug_sections(program: &Path) -> Vec<String> {
    let table = run(Command::new("readelf").args(["--wide", "--section-headers"]).arg(program));
    assert!(table.contains(" .text "), "{table}");
    // `.debug_gdb_scripts` is a few bytes that debuggers look for, and is loaded with the program.
    let names = table.split_whitespace().filter(|word| word.contains("debug_"));
    let names = names.filter(|name| *name != ".debug_gdb_scripts");
    names.map(str::to_owned).collect()
}

#[test]
fn the_release_profile_leaves_debug_information_out() {
    // The test of the sections sees other profiles: no test builds with this one.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let (_, profile) = manifest.split_once("[profile.release]\n").expect("a release profile");
    let profile = profile.split("\n[").next().unwrap_or(profile);
    for line in ["debug = false", "strip = \"debuginfo\""] {
        assert!(profile.lines().any(|given| given == line), "no {line:?} in\n{profile}");
    }
}

#[test]
fn the_package_installs_the_command_its_manual_and_completions() {
    let dir = tempfile::tempdir().unwrap();
    let package = package(dir.path(), "made");
    let contents = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for part in [
        "-rwxr-xr-x root/root",
        " ./usr/bin/extant\n",
        " ./usr/sbin/mount.extant -> ../bin/extant\n",
        " ./usr/sbin/mount.fuse.extant -> ../bin/extant\n",
        " ./usr/lib/extant/compat/fsck.ext4 -> ../../../bin/extant\n",
        " ./usr/share/man/man1/extant.1.gz\n",
        " ./usr/share/man/man1/extant-build.1.gz\n",
        " ./usr/share/bash-completion/completions/extant\n",
        " ./usr/share/zsh/vendor-completions/_extant\n",
        " ./usr/share/fish/vendor_completions.d/extant.fish\n",
        " ./usr/share/doc/extant/copyright\n",
        " ./usr/share/doc/extant/LICENSE-APACHE\n",
        " ./usr/share/doc/extant/changelog.gz\n",
        " ./usr/share/doc/extant/docs/JSON.md\n",
        " ./usr/share/doc/extant/docs/guide/README.md\n",
    ] {
        assert!(contents.contains(part), "no {part:?} in\n{contents}");
    }
    let depends = run(Command::new("dpkg-deb").args(["--field", &package, "Depends"]));
    assert!(depends.contains("libc6 (>= 2."), "{depends}");

    // An empty system: its own package database, and dependencies are not checked. dpkg makes root
    // the owner of files, so a normal user only unpacks.
    let root = dir.path().join("root");
    if run(Command::new("id").arg("-u")) == "0\n" {
        fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
        fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
        fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
        run(Command::new("dpkg")
            .arg(format!("--root={}", root.display()))
            .arg(format!("--log={}", dir.path().join("log").display()))
            .args(["--force-depends", "--install", &package]));
    } else {
        run(Command::new("dpkg-deb").args(["-x", &package]).arg(&root));
    }
    let installed = root.join("usr/bin/extant");
    assert_eq!(debug_sections(&installed), [""; 0]);
    run(Command::new(&installed).args(["mkfs", "a.img", "--size", "16M"]).current_dir(dir.path()));
    run(Command::new(&installed).args(["check", "a.img"]).current_dir(dir.path()));
    let manual = root.join("usr/share/man/man1/extant-check.1.gz");
    assert!(run(Command::new("gzip").arg("-dc").arg(manual)).contains(".SH NAME"));
}

#[test]
fn the_same_program_gives_the_same_package() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (package(dir.path(), "one"), package(dir.path(), "two"));
    assert!(fs::read(one).unwrap() == fs::read(two).unwrap());
}
