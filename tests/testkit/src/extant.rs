//! The `extant` command as a test calls it: found or built once, and run within limits.
//!
//! ```text
//!   $EXTANT_BIN, or cargo build --bin extant  ──►  prlimit --as=… extant VERB …  ──►  Finished
//! ```

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::command::{Finished, run};
use crate::manifest::Manifest;
use crate::scratch::{target_dir, workspace_dir};

/// The address space that a call may use. A call that needs more lets an image decide how much to
/// allocate.
pub const ADDRESS_SPACE_BYTES: u64 = 2 << 30;

/// The exit status of a Rust program that panicked.
pub const PANIC_EXIT: i32 = 101;

/// The `extant` program.
#[derive(Debug, Clone)]
pub struct Extant {
    bin: PathBuf,
    /// Time a call may take.
    pub limit: Duration,
}

impl Extant {
    /// `$EXTANT_BIN` if set, otherwise the debug build of `extant-cli`, built once.
    pub fn get() -> Result<Self, String> {
        static BIN: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let find = || match std::env::var_os("EXTANT_BIN") {
            Some(bin) => Ok(PathBuf::from(bin)),
            None => build("extant"),
        };
        let bin = BIN.get_or_init(find).clone()?;
        Ok(Self { bin, limit: Duration::from_secs(120) })
    }

    /// The path of the program.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The same program with another time limit.
    pub fn within(&self, limit: Duration) -> Self {
        Self { limit, ..self.clone() }
    }

    /// Runs `extant ARGS`. `Err` if it could not start, panicked, was ended by a signal or took too
    /// long: each of these is a defect. The caller judges any other exit status.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Finished, String> {
        let mut command = Command::new("prlimit");
        command.arg(format!("--as={ADDRESS_SPACE_BYTES}")).arg("--core=0").arg(&self.bin);
        command.args(args).env("RUST_BACKTRACE", "1");
        let mut done = run(&mut command, self.limit)?;
        let name = args.first().map(|s| s.as_ref().to_string_lossy().into_owned());
        done.line = format!("extant {}", name.unwrap_or_default());
        if done.timed_out || done.signal().is_some() || done.code() == Some(PANIC_EXIT) {
            return Err(format!("{done}"));
        }
        Ok(done)
    }

    /// `extant tree IMG --json --hash` as a manifest. `Err` also if it exits with a status other
    /// than 0.
    pub fn manifest(&self, img: &Path) -> Result<Manifest, String> {
        let done = self.tree(img)?;
        if !done.ok() {
            let (ending, error) = (done.ending(), done.err());
            return Err(format!("extant tree: {ending}: {}", error.trim().replace('\n', " | ")));
        }
        Manifest::from_json_lines(&done.out())
    }

    /// The same for trees with unreadable entries: the content of encrypted ones cannot be shown.
    pub fn manifest_in_part(&self, img: &Path) -> Result<Manifest, String> {
        Manifest::from_json_lines(&self.tree(img)?.out())
    }

    fn tree(&self, img: &Path) -> Result<Finished, String> {
        self.run(&["tree".as_ref(), img.as_os_str(), "--json".as_ref(), "--hash".as_ref()])
    }

    /// `extant check IMG`: `Ok` when it exits with 0.
    pub fn expect_clean(&self, img: &Path) -> Result<(), String> {
        let args = [OsStr::new("check"), OsStr::new("--data"), img.as_os_str()];
        self.run(&args)?.success().map(drop)
    }
}

/// The `extant-testkit` command, built once: user-mode Linux runs it inside its guest.
pub fn kit_binary() -> Result<PathBuf, String> {
    static BIN: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BIN.get_or_init(|| build("extant-testkit")).clone()
}

/// The directory with `libextant.so` and `libextant.a`: `$EXTANT_LIBDIR` if set, otherwise a debug
/// build, built once. `cargo test` makes neither, because a Rust test cannot link them.
pub fn c_libraries() -> Result<PathBuf, String> {
    static DIR: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let find = || match std::env::var_os("EXTANT_LIBDIR") {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => build_targets(&["--lib"]),
    };
    DIR.get_or_init(find).clone()
}

fn build(bin: &str) -> Result<PathBuf, String> {
    Ok(build_targets(&["--bin", bin])?.join(bin))
}

/// Builds targets of the workspace. Returns the directory that they are in.
fn build_targets(targets: &[&str]) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--locked", "--workspace"])
        .args(targets)
        // With the features of dev-dependencies, as for `cargo test --workspace`; otherwise cargo
        // would build the engine again. It adds them only where a test or an example is built.
        .args(["--example", "check"])
        .current_dir(workspace_dir());
    run(&mut command, Duration::from_secs(900))?.success()?;
    Ok(target_dir().join("debug"))
}
