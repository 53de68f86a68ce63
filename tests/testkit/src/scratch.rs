//! A directory for one case's images, gone when it is dropped.
//!
//! Images are sparse and short-lived, so they live in memory (`/dev/shm`) where there is room:
//! a loop device over a file there has no disk in its way. Else under the target directory.

use std::path::{Path, PathBuf};

/// Free bytes below which `/dev/shm` is left alone.
const ROOM_BYTES: u64 = 3 << 30;

/// A directory of our own; removed with all it holds on drop, also after a panic.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A fresh empty directory. Panics when none can be made: nothing can be tested then.
    pub fn new() -> Self {
        let base = base();
        let dir = tempfile::Builder::new().prefix("extant-test.").tempdir_in(&base);
        Self(dir.unwrap_or_else(|error| panic!("no scratch directory in {base:?}: {error}")))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of `name` inside.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for Scratch {
    /// What was copied out of a volume may be marked so that it cannot be removed.
    fn drop(&mut self) {
        if std::fs::remove_dir_all(self.path()).is_err() {
            let mut command = std::process::Command::new("chattr");
            command.args(["-R", "-f", "-i", "-a"]).arg(self.path());
            let _ = crate::command::run(&mut command, std::time::Duration::from_secs(60));
            let _ = std::fs::remove_dir_all(self.path());
        }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

fn base() -> PathBuf {
    if let Some(dir) = std::env::var_os("EXTANT_SCRATCH") {
        return dir.into();
    }
    let shm = Path::new("/dev/shm");
    match rustix::fs::statvfs(shm) {
        Ok(fs) if fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM_BYTES => shm.into(),
        _ => {
            let dir = target_dir().join("scratch");
            std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
            dir
        }
    }
}

/// The workspace's root folder.
pub fn workspace_dir() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tests/testkit lies two levels down").to_path_buf()
}

/// The folder that cargo builds into.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace_dir().join(dir),
        None => workspace_dir().join("target"),
    }
}

/// Copies a file and keeps its holes. `Err` names both files.
pub fn copy_sparse(from: &Path, to: &Path) -> Result<(), String> {
    let mut command = std::process::Command::new("cp");
    command.args(["--sparse=always", "--"]).arg(from).arg(to);
    crate::command::run(&mut command, std::time::Duration::from_secs(120))?.success().map(drop)
}

/// Makes a file of `bytes` that is one hole, in place of any older one.
pub fn make_sparse(path: &Path, bytes: u64) -> Result<(), String> {
    let file = std::fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
    file.set_len(bytes).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_is_marked_as_immutable_goes_with_it() {
        let scratch = Scratch::new();
        let path = scratch.path().to_owned();
        std::fs::create_dir_all(path.join("out/dir")).unwrap();
        std::fs::write(path.join("out/dir/file"), b"x").unwrap();
        // Only root may do that, and not every filesystem takes it.
        for marked in ["out/dir/file", "out/dir"] {
            let _ = Command::new("chattr").arg("+i").arg(path.join(marked)).output();
        }
        drop(scratch);
        assert!(!path.exists());
    }
}
