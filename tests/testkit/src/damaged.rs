//! Volumes with one kind of damage each. They are kept outside the repository, because of their
//! licence.
//!
//! `$EXTANT_SHARED`, or the folder `shared` next to the repository, contains
//! `data/damaged-images/{index.tsv, NAME.img.gz}`. If it is missing, the tests say so and pass: the
//! project must pass without it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scratch::workspace_dir;

/// One damaged volume.
#[derive(Debug, Clone)]
pub struct DamagedImage {
    /// Its name in the index.
    pub name: String,
    /// Its size unpacked.
    pub bytes: u64,
    /// The exit status of `e2fsck -fn` 1.47.0; `None` if it did not end.
    pub e2fsck_exit: Option<i32>,
    /// The first finding of e2fsck.
    pub first_finding: String,
    packed: PathBuf,
}

impl DamagedImage {
    /// e2fsck found errors, so `extant check` must find some, too.
    pub fn has_errors(&self) -> bool {
        matches!(self.e2fsck_exit, Some(4 | 8 | 12))
    }

    /// Unpacks it to `to`.
    pub fn unpack(&self, to: &Path) -> Result<(), String> {
        let out = std::fs::File::create(to).map_err(|e| format!("{}: {e}", to.display()))?;
        let mut gzip = Command::new("gzip");
        gzip.arg("-dc").arg(&self.packed).stdout(Stdio::from(out));
        let status = gzip.status().map_err(|e| format!("gzip: {e}"))?;
        if status.success() { Ok(()) } else { Err(format!("gzip -dc {:?}: {status}", self.packed)) }
    }
}

/// All of them, in the order of the index; `None` if they are not on this machine.
pub fn images() -> Option<Vec<DamagedImage>> {
    let dir = shared_dir().join("data/damaged-images");
    let Ok(index) = std::fs::read_to_string(dir.join("index.tsv")) else {
        println!("damaged images: not present ({}): N/A", dir.display());
        return None;
    };
    let line = |line: &str| {
        let mut cells = line.split('\t');
        let name = cells.next()?.to_owned();
        let bytes = cells.next()?.parse().ok()?;
        let e2fsck_exit = cells.next()?.parse().ok();
        let first_finding = cells.next().unwrap_or_default().to_owned();
        let packed = [".img.gz", ".gz"].iter().map(|end| dir.join(format!("{name}{end}")));
        let packed = packed.into_iter().find(|p| p.exists())?;
        Some(DamagedImage { name, bytes, e2fsck_exit, first_finding, packed })
    };
    Some(index.lines().skip(1).filter_map(line).collect())
}

/// The folder of optional material: used if it exists, never required.
pub fn shared_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("EXTANT_SHARED") {
        return dir.into();
    }
    let root = workspace_dir();
    let beside = root.parent().unwrap_or(&root).join("shared");
    // A worktree is one level deeper than the repository.
    let above = root.ancestors().nth(2).map(|dir| dir.join("shared"));
    if beside.exists() { beside } else { above.filter(|p| p.exists()).unwrap_or(beside) }
}
