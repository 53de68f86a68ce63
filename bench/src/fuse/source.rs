//! A program's source: unpacked, built, and cloned.
//!
//! ```text
//!   untar_source   tar -xf SOURCE.tar on the mount
//!   build_source   there: ./configure, if it has one, and make -jN    N: processors of this run
//!   git_clone      git clone --no-hardlinks of a repository beside the volumes, onto the mount
//!
//!   SOURCE.tar     --source, or made here:  Makefile  part00/  module000.h  module000.c  …
//! ```
//!
//! The made source is C modules in directories, one header each. A module includes the headers of
//! its directory and of the C library, so that the compiler looks up many names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;

use super::inputs::pack;
use super::run::{Run, timed, unpack};
use crate::report::Params;
use crate::rig::{self, Scratch};

pub(super) const CASES: [&str; 3] = ["untar_source", "build_source", "git_clone"];

/// Modules of a directory of the made source.
const MODULES: usize = 20;

/// The source, in the forms that the cases need.
pub(super) struct Source {
    /// A tar.
    pub(super) archive: PathBuf,
    /// The same in a repository with one commit, if it was asked for.
    pub(super) repository: Option<PathBuf>,
    files: usize,
}

impl Source {
    /// Makes it, from the tar at `given` if that names one, of about `modules` modules otherwise.
    pub(super) fn new(
        scratch: &Scratch,
        given: Option<&Path>,
        modules: usize,
        with_repository: bool,
    ) -> Result<Source> {
        let archive = match given {
            Some(path) => path.to_path_buf(),
            None => {
                let archive = scratch.join("source.tar");
                make(&archive.with_extension("dir"), modules)?;
                pack(&archive.with_extension("dir"), &archive)?;
                archive
            }
        };
        let listed = rig::run(Command::new("tar").arg("-tf").arg(&archive))?;
        let files = listed.lines().filter(|name| !name.ends_with('/')).count();
        let mut source = Source { archive, repository: None, files };
        if with_repository {
            source.repository = Some(source.commit(&scratch.join("source.git"))?);
        }
        Ok(source)
    }

    /// Unpacks it into a new repository and commits it.
    fn commit(&self, dir: &Path) -> Result<PathBuf> {
        fs::create_dir(dir)?;
        rig::run(&mut unpack(&self.archive, dir))?;
        for words in
            [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "source"], &["gc", "-q"]]
        {
            rig::run(git(dir).args(words))?;
        }
        Ok(dir.to_path_buf())
    }
}

/// git in a directory, independent of this machine's settings.
pub(super) fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(["-c", "user.name=x", "-c", "user.email=x@x"]);
    git.args(["-c", "safe.directory=*", "-c", "gc.auto=0"]);
    git
}

pub(super) fn source(run: &mut Run<'_>) -> Result<()> {
    let Some(source) = &run.inputs.source else { return Ok(()) };
    let files = source.files as f64;
    let params = || Params::from([("files", json!(source.files))]);
    let dir = run.join("source");
    if run.wants("untar_source") || run.wants("build_source") {
        fs::create_dir(&dir)?;
        let seconds = timed(&mut unpack(&source.archive, &dir))?;
        if run.wants("untar_source") {
            run.add("untar_source", "ops_per_s", params(), files / seconds);
        }
        if run.wants("build_source") {
            run.add("build_source", "wall_s", params(), build(&dir)?);
        }
        fs::remove_dir_all(&dir)?;
    }
    if let Some(repository) = &source.repository
        && run.wants("git_clone")
    {
        let mut clone = git(repository);
        clone.args(["clone", "-q", "--no-hardlinks"]).arg(repository).arg(&dir);
        run.add("git_clone", "ops_per_s", params(), files / timed(&mut clone)?);
        fs::remove_dir_all(&dir)?;
    }
    Ok(())
}

/// Builds the program whose source lies in `dir` or in its only directory. Returns the seconds.
fn build(dir: &Path) -> Result<f64> {
    let names =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    let root = match names.as_slice() {
        [only] if only.is_dir() => only,
        _ => dir,
    };
    let mut seconds = 0.0;
    if root.join("configure").exists() {
        // As root, some scripts refuse to run without this.
        let mut configure = Command::new("sh");
        configure.args(["configure", "--quiet"]).env("FORCE_UNSAFE_CONFIGURE", "1");
        seconds += timed(configure.current_dir(root)).context("configure")?;
    }
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    Ok(seconds
        + timed(make.arg("-s").arg(format!("-j{jobs}")).current_dir(root)).context("make")?)
}

/// Writes the source of a program of `modules` modules, rounded up to whole directories.
fn make(dir: &Path, modules: usize) -> Result<()> {
    let parts = modules.div_ceil(MODULES);
    let (mut names, mut calls) = (String::new(), String::new());
    for part in 0..parts {
        let path = dir.join(format!("part{part:02}"));
        fs::create_dir_all(&path)?;
        let headers: String =
            (0..MODULES).map(|n| format!("#include \"module{n:03}.h\"\n")).collect();
        for n in 0..MODULES {
            let (file, name) = (format!("module{n:03}"), format!("p{part}_m{n}"));
            let header = format!(
                "#ifndef {name}_H\n#define {name}_H\nint {name}(const char *text, int times);\n#endif\n"
            );
            fs::write(path.join(format!("{file}.h")), header)?;
            fs::write(path.join(format!("{file}.c")), module(&headers, &name))?;
            names.push_str(&format!(" part{part:02}/{file}.o"));
            calls.push_str(&format!("int {name}(const char *, int);\n"));
        }
    }
    let sum: String = (0..parts).map(|part| format!(" + p{part}_m0(\"text\", 3)")).collect();
    fs::write(dir.join("main.c"), format!("{calls}int main(void) {{ return (0{sum}) == 0; }}\n"))?;
    let makefile = format!(
        "CFLAGS = -O0\nOBJECTS = main.o{names}\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n"
    );
    Ok(fs::write(dir.join("Makefile"), makefile)?)
}

/// A module with a few functions.
fn module(headers: &str, name: &str) -> String {
    let mut text = String::from(
        "#include <ctype.h>\n#include <errno.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n",
    );
    text.push_str(headers);
    for n in 0..8 {
        text.push_str(&format!(
            "static int step{n}(const char *text, int times) {{\n    int sum = {n};\n    for (int i = 0; i < times; i++)\n        \
             for (const char *at = text; *at; at++)\n            sum = sum * 31 + toupper((unsigned char)*at);\n    \
             return sum;\n}}\n"
        ));
    }
    let sum: String = (0..8).map(|n| format!(" + step{n}(text, times)")).collect();
    text.push_str(&format!(
        "int {name}(const char *text, int times) {{ return (int)strlen(text){sum}; }}\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_source_is_unpacked_and_built() {
        if !["cc", "make", "tar"].iter().all(|name| crate::load::answers(name, &["--version"])) {
            return println!("NOT RUN: no compiler");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let scratch = Scratch::new(dir.path(), "source").expect("a scratch directory");
        let source = Source::new(&scratch, None, 5, false).expect("a source");
        assert_eq!(source.files, 2 * MODULES + 2);
        let to = dir.path().join("to");
        fs::create_dir(&to).expect("a directory");
        rig::run(&mut unpack(&source.archive, &to)).expect("unpacked");
        assert!(build(&to).expect("built") > 0.0);
        assert!(to.join("program").exists());
    }
    #[test]
    fn a_given_source_is_configured_where_it_has_a_script() {
        if !crate::load::answers("make", &["--version"]) {
            return println!("NOT RUN: no make");
        }
        let dir = tempfile::tempdir().expect("a directory");
        let (archive, root) = (dir.path().join("given.tar"), dir.path().join("given/hello-1"));
        fs::create_dir_all(&root).expect("directories");
        fs::write(root.join("configure"), "printf 'all:\\n\\ttouch made\\n' > Makefile\n")
            .expect("a file");
        pack(&dir.path().join("given"), &archive).expect("packed");
        let scratch = Scratch::new(dir.path(), "source").expect("a scratch directory");
        let source = Source::new(&scratch, Some(&archive), 5, false).expect("a source");
        assert_eq!(source.files, 1);
        let to = dir.path().join("to");
        fs::create_dir(&to).expect("a directory");
        rig::run(&mut unpack(&source.archive, &to)).expect("unpacked");
        build(&to).expect("built");
        assert!(to.join("hello-1/made").exists());
    }
}
