//! Compiles a C program with the installed library, with the flags of pkg-config, and links it both
//! ways.

use crate::common::{home, run};
use extant_testkit::e2fsprogs;
use extant_testkit::extant::c_libraries;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library as `packaging/library` installs it, below `dir`.
struct Installed {
    prefix: PathBuf,
}

impl Installed {
    fn below(dir: &Path) -> Installed {
        let prefix = dir.join("prefix");
        let mut install = Command::new(home().join("../../packaging/library"));
        install.arg(&prefix).env("EXTANT_LIBDIR", c_libraries().expect("libextant builds"));
        let said = run(&mut install);
        assert_eq!(Path::new(said.trim_end()), prefix.join("lib/pkgconfig"));
        Installed { prefix }
    }

    fn lib(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// The words of `pkg-config ARGS extant`.
    fn config(&self, args: &[&str]) -> Vec<String> {
        let mut config = Command::new("pkg-config");
        config.args(args).arg("extant").env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"));
        run(&mut config).split_whitespace().map(str::to_owned).collect()
    }

    fn compiled(&self, dir: &Path, link: &[String]) -> PathBuf {
        let program = dir.join("stranger");
        let mut cc = Command::new("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-D_DEFAULT_SOURCE"]);
        cc.args(self.config(&["--cflags"])).arg(home().join("tests/stranger.c"));
        run(cc.arg("-o").arg(&program).args(link));
        program
    }
}

fn tried(dir: &Path, program: &Path, libraries: &Path) {
    let source = dir.join("source");
    std::fs::create_dir_all(source.join("etc")).unwrap();
    std::fs::write(source.join("etc/hostname"), "built\n").unwrap();
    run(Command::new(program)
        .args(["new.img", "damaged.img", "source", "built.img"])
        .env("LD_LIBRARY_PATH", libraries)
        .current_dir(dir));
    for image in ["new.img", "built.img"] {
        let report = e2fsprogs::e2fsck(&dir.join(image), None);
        report.expect_clean().unwrap();
    }
}

#[test]
fn a_c_program_uses_the_shared_library() {
    let dir = tempfile::tempdir().unwrap();
    let installed = Installed::below(dir.path());
    assert_eq!(installed.config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let program = installed.compiled(dir.path(), &installed.config(&["--libs"]));
    let needed = run(Command::new("objdump").arg("-p").arg(&program));
    assert!(needed.contains("NEEDED               libextant.so.0\n"), "{needed}");
    tried(dir.path(), &program, &installed.lib());
}

#[test]
fn a_c_program_uses_the_static_library() {
    let dir = tempfile::tempdir().unwrap();
    let installed = Installed::below(dir.path());
    // Without the shared library the linker takes the archive.
    std::fs::remove_file(installed.lib().join("libextant.so")).unwrap();
    let program = installed.compiled(dir.path(), &installed.config(&["--static", "--libs"]));
    std::fs::remove_dir_all(&installed.prefix).unwrap();
    tried(dir.path(), &program, dir.path());
}

#[test]
fn the_header_declares_what_the_library_offers() {
    let header = std::fs::read_to_string(home().join("include/extant.h")).unwrap();
    let names = |text: &str| -> BTreeSet<String> {
        let calls = text.split('(').filter_map(|before| before.rsplit([' ', '*', '\n']).next());
        calls.filter(|name| name.starts_with("extant_")).map(str::to_owned).collect()
    };
    let declared: String =
        header.lines().filter(|line| !line.starts_with([' ', '/'])).collect::<Vec<_>>().join("\n");
    let mut offered = String::new();
    for file in std::fs::read_dir(home().join("src")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines().filter(|line| line.contains("extern \"C\" fn extant_")) {
            offered.push_str(line);
            offered.push('\n');
        }
    }
    assert_eq!(names(&declared), names(&offered));
    assert!(names(&declared).len() > 20);
}
