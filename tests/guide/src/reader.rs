//! The reader, who does what a chapter says.

use crate::block::{Block, agrees, blocks, commands};
use extant_testkit::command::run;
use extant_testkit::extant::{Extant, c_libraries};
use extant_testkit::scratch::{Scratch, workspace_dir};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

/// The time limit of a command: nothing in the guide takes longer.
const LIMIT: Duration = Duration::from_secs(120);

/// The reader of one chapter, in a directory of their own.
pub struct Reader {
    here: Scratch,
    environment: Vec<(String, String)>,
    bless: bool,
}

impl Reader {
    /// A reader who has installed the command.
    pub fn new() -> Reader {
        let here = Scratch::new();
        let bin = Extant::get().expect("the command builds");
        let dir = bin.bin().parent().expect("it lies in a folder");
        let path = env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}:/usr/sbin:/sbin", dir.display());
        let environment = vec![("PATH".into(), path), ("LC_ALL".into(), "C.UTF-8".into())];
        Reader { here, environment, bless: env::var_os("EXTANT_BLESS").is_some() }
    }

    /// Their directory.
    pub fn here(&self) -> &Path {
        self.here.path()
    }

    /// Sets a variable of their environment.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.environment.push((name.into(), value.into()));
    }

    /// Installs libextant, and makes pkg-config and the dynamic linker find it.
    pub fn install_library(&mut self) {
        let prefix = self.here().join("local");
        let mut install = Command::new(workspace_dir().join("packaging/library"));
        install.arg(&prefix).env("EXTANT_LIBDIR", c_libraries().expect("libextant builds"));
        run(&mut install, LIMIT).and_then(|done| done.success()).expect("it installs");
        let lib = prefix.join("lib").display().to_string();
        self.set("PKG_CONFIG_PATH", format!("{lib}/pkgconfig"));
        self.set("LD_LIBRARY_PATH", lib);
    }

    /// Makes the wheel, and makes Python find its content.
    pub fn install_module(&mut self) {
        let mut wheel = Command::new(workspace_dir().join("packaging/wheel"));
        wheel
            .arg(self.here())
            .env("EXTANT_LIB", c_libraries().expect("libextant builds").join("libextant.so"));
        let done = run(&mut wheel, LIMIT).and_then(|done| done.success()).expect("it is made");
        self.set("PYTHONPATH", self.here().join("modules").display().to_string());
        let unpack = format!("python3 -m zipfile -e {} modules", done.out().trim_end());
        self.run("python.md", 0, &unpack);
    }

    /// Reads a chapter from its first line to its last, and does what it says.
    pub fn read(&self, chapter: &str) {
        let path = place(chapter);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut text_lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut moved = 0_isize;
        for block in blocks(&text) {
            if let Some(test) = block.value("tested-by") {
                assert!(workspace_dir().join(test).is_file(), "{chapter}: there is no {test}");
                continue;
            }
            if let Some(name) = block.value("file") {
                fs::write(self.here().join(name), block.lines.join("\n") + "\n").unwrap();
                continue;
            }
            match block.language.as_str() {
                "console" => self.type_in(chapter, &block, &mut text_lines, &mut moved),
                "sh" => drop(self.run(chapter, block.line, &block.lines.join("\n"))),
                "rust" | "text" => {}
                other => panic!("{chapter}:{}: nothing runs {other:?}", block.line),
            }
        }
        if self.bless {
            fs::write(&path, text_lines.join("\n") + "\n").unwrap();
        }
    }

    /// Runs the commands of a console. Outputs that differ fail, or are written into the chapter.
    fn type_in(&self, chapter: &str, block: &Block, text: &mut Vec<String>, moved: &mut isize) {
        for command in commands(block) {
            let printed = self.run(chapter, command.line, &command.typed);
            let printed: Vec<String> = printed.lines().map(|l| l.trim_end().to_owned()).collect();
            if agrees(&command.prints, &printed) {
                continue;
            }
            assert!(
                self.bless,
                "{chapter}:{}: $ {}\nthe guide shows:\n{}\nit printed:\n{}",
                command.line,
                command.typed,
                command.prints.join("\n"),
                printed.join("\n")
            );
            let at =
                command.line.checked_add_signed(*moved).expect("the lines before it are there");
            *moved += printed.len() as isize - command.prints.len() as isize;
            text.splice(at..at + command.prints.len(), printed);
        }
    }

    /// Runs a script. Returns what it prints, both outputs.
    fn run(&self, chapter: &str, line: usize, script: &str) -> String {
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("exec 2>&1; set -eo pipefail\n{script}")]);
        shell.current_dir(self.here()).envs(self.environment.iter().cloned());
        let done = run(&mut shell, LIMIT).expect("bash is there");
        assert!(done.ok(), "{chapter}:{line}: {}: {script}\n{}", done.ending(), done.out());
        done.out()
    }
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

/// Unmounts what a chapter that failed left mounted.
impl Drop for Reader {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        let here = self.here().to_string_lossy().into_owned();
        for point in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
            if point.starts_with(&here) {
                let _ = Command::new("umount").args(["-l", point]).status();
            }
        }
    }
}

/// Where a chapter is.
pub fn place(chapter: &str) -> PathBuf {
    workspace_dir().join("docs/guide").join(chapter)
}
