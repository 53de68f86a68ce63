//! A directory for the images of one case, removed when it is dropped.
//!
//! Images are sparse and short-lived, so they are in memory (`/dev/shm`) if there is space: a loop
//! device over such a file does not wait for a disk. Otherwise they are in the target directory.

use std::path::{Path, PathBuf};

/// With less free space than this, in bytes, `/dev/shm` is not used.
const ROOM_BYTES: u64 = 3 << 30;

/// A private directory, removed with its content on drop, also after a panic.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new empty directory. Panics if none can be made, because no test can run then.
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
    /// Files copied from a volume may have flags that forbid their removal.
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

/// Cargo's target folder.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => workspace_dir().join(dir),
        None => workspace_dir().join("target"),
    }
}

/// Copies a file and preserves its holes. `Err` names both files.
pub fn copy_sparse(from: &Path, to: &Path) -> Result<(), String> {
    let mut command = std::process::Command::new("cp");
    command.args(["--sparse=always", "--"]).arg(from).arg(to);
    crate::command::run(&mut command, std::time::Duration::from_secs(120))?.success().map(drop)
}

/// Makes a file of `bytes` that is one hole; replaces any existing one.
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
        // Only root may do that, and not every filesystem supports it.
        for marked in ["out/dir/file", "out/dir"] {
            let _ = Command::new("chattr").arg("+i").arg(path.join(marked)).output();
        }
        drop(scratch);
        assert!(!path.exists());
    }
}
