//! The program under the names of e2fsprogs' tools, beside those tools: the same output and exit
//! status for the same call on the same volume.

mod check;
mod debugfs;
mod dump;
mod links;
mod make;
mod print;
mod programs;
mod resize;
mod settings;

use crate::common::pattern;
use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What a call printed, and its exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A directory with `v.img`, a volume that the original mke2fs made and debugfs filled.
pub struct Scene {
    dir: TempDir,
    /// The volume before any call.
    base: PathBuf,
}

/// The features of the volumes that are compared.
pub const VOLUMES: [(&str, &str); 9] = [
    ("ext4", "-t ext4"),
    ("ext2 with 4 KiB blocks", "-t ext2 -b 4096 -L label -M /mnt"),
    ("ext3", "-t ext3"),
    (
        "many features",
        "-t ext4 -O quota,project,casefold,encrypt,mmp,inline_data,verity,ea_inode,\
        large_dir,orphan_file,fast_commit,stable_inodes,metadata_csum_seed \
        -E stride=4,stripe_width=16,encoding_flags=strict",
    ),
    ("bigalloc", "-t ext4 -O bigalloc"),
    ("meta_bg", "-t ext4 -O meta_bg,^resize_inode"),
    ("sparse_super2", "-t ext4 -O sparse_super2 -G 4"),
    ("revision 0", "-r 0 -O none"),
    ("uninit_bg, no 64bit", "-t ext4 -O uninit_bg,^metadata_csum,^64bit"),
];

/// Runs a program in an environment in which the originals and the links print the same.
fn run(command: &mut Command, dir: &Path, words: &[&str]) -> Answer {
    let path = std::env::var("PATH").unwrap_or_default();
    command.current_dir(dir).args(words).stdin(Stdio::null());
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").env("TZ", "UTC");
    let output = command.output().unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().expect("no signal ends the program");
    Answer { code, out: text(&output.stdout), err: text(&output.stderr) }
}

/// Whether the originals are there. In CI they must be.
fn has_originals() -> bool {
    let found = ["/usr/sbin/debugfs", "/sbin/debugfs"].iter().any(|path| Path::new(path).exists());
    assert!(found || std::env::var_os("CI").is_none(), "e2fsprogs is needed in CI");
    found
}

impl Scene {
    /// A scene with a volume of `size`, made with mke2fs' `options`. `None` without e2fsprogs.
    pub fn new(options: &str, size: &str) -> Option<Scene> {
        if !has_originals() {
            eprintln!("no e2fsprogs here: not judged");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base.img");
        let scene = Scene { dir, base };
        let words: Vec<&str> = options.split(' ').filter(|word| !word.is_empty()).collect();
        let words = [&["-q", "-F"], &words[..], &["base.img", size]].concat();
        assert_eq!(run(&mut Command::new("mke2fs"), scene.path(), &words).code, 0);
        fs::write(scene.path().join("file"), pattern(9000)).unwrap();
        let names = ["a", "b", "c", "d"];
        let lines: Vec<String> = names.map(|name| format!("write file {name}")).into();
        let lines = lines.join("\n") + "\nmkdir dir\nsymlink link a\nrm b\n";
        fs::write(scene.path().join("lines"), lines).unwrap();
        let words = ["-w", "-f", "lines", "base.img"];
        assert_eq!(run(&mut Command::new("debugfs"), scene.path(), &words).code, 0);
        scene.reset();
        Some(scene)
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn image(&self) -> PathBuf {
        self.path().join("v.img")
    }

    /// Makes `v.img` what it was at the start.
    pub fn reset(&self) {
        fs::copy(&self.base, self.image()).unwrap();
    }

    /// Changes the volume of the scene by debugfs.
    pub fn debugfs(&self, request: &str) {
        let words = ["-w", "-R", request, "base.img"];
        run(&mut Command::new("debugfs"), self.path(), &words);
        self.reset();
    }

    /// Runs the original.
    pub fn original(&self, line: &str) -> Answer {
        self.words_of_original(&split(line))
    }

    /// Runs this program under the name of the original.
    pub fn ours(&self, line: &str) -> Answer {
        self.words_of_ours(&split(line))
    }

    /// As [`Scene::original`], for words with blanks.
    pub fn words_of_original(&self, words: &[&str]) -> Answer {
        plain(run(&mut Command::new(words[0]), self.path(), &words[1..]))
    }

    /// As [`Scene::ours`], for words with blanks.
    pub fn words_of_ours(&self, words: &[&str]) -> Answer {
        let mut command = Command::new(cargo_bin("extant"));
        plain(run(command.arg0(words[0]), self.path(), &words[1..]))
    }

    /// Asserts that both answer the same, each on the volume as it was at the start.
    pub fn same(&self, line: &str) -> Answer {
        self.same_words(&split(line))
    }

    /// As [`Scene::same`], for words with blanks.
    pub fn same_words(&self, words: &[&str]) -> Answer {
        self.reset();
        let original = self.words_of_original(words);
        self.reset();
        let ours = self.words_of_ours(words);
        assert_eq!(ours.code, original.code, "{words:?}: {ours:?}, {original:?}");
        assert_eq!(ours.out, original.out, "{words:?}");
        assert_eq!(ours.err, original.err, "{words:?}");
        ours
    }
}

fn split(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The answer with the same version line on both sides.
fn plain(answer: Answer) -> Answer {
    let version = |text: String| match text.find(" 1.47.") {
        Some(at) => {
            let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
            format!("{} VERSION{}", &text[..at], &text[end..])
        }
        None => text,
    };
    Answer { code: answer.code, out: version(answer.out), err: version(answer.err) }
}
