//! Many threads at once on one volume; then every name is where its thread left it.
//!
//! ```text
//!   Field::new(kind) ──► storm(threads, |thread| …)   all start at one barrier
//!                   ──► judge()                       closed; extant's check and e2fsck
//! ```

use extant::check::{Options, check_device};
use extant::mkfs::{JournalSize, MkfsOptions, format};
use extant::{BlockSize, Environment, FileDevice, Filesystem, Node, OpenOptions};
use extant_testkit::e2fsprogs;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Barrier};

/// A volume that threads fight over.
pub struct Field {
    image: PathBuf,
    /// The volume, open to be changed.
    pub fs: Filesystem,
    _scratch: tempfile::TempDir,
}

/// Kinds of volumes: a small journal commits and checkpoints all the time, small blocks make
/// directories grow, little memory makes blocks go and come.
pub fn kinds() -> Vec<(&'static str, MkfsOptions)> {
    let features = |wish: &str| MkfsOptions::new().features(wish).expect("features of mkfs");
    let small = BlockSize::from_bytes(1024).expect("a block size");
    vec![
        ("modern", MkfsOptions::new()),
        ("small blocks", MkfsOptions::new().block_size(small).journal(JournalSize::Blocks(1024))),
        ("no orphan file", features("^orphan_file").journal(JournalSize::Blocks(1024))),
        ("no journal", features("^has_journal")),
        ("quota", features("quota,project,inline_data")),
        ("fast commits", features("fast_commit")),
    ]
}

impl Field {
    /// A fresh volume.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(options: &MkfsOptions) -> Field {
        Field::opened(options, |_| {})
    }

    /// A fresh volume, opened as `fill` says.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn opened(options: &MkfsOptions, fill: impl FnOnce(&mut OpenOptions)) -> Field {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let image = scratch.path().join("img");
        let device = FileDevice::create(&image, 64 << 20).expect("room for a volume");
        format(Arc::new(device), options, &Environment::default()).expect("a volume");
        let mut options = OpenOptions::new();
        fill(options.write(true));
        let fs = options.open(&image).expect("a fresh volume opens");
        Field { image, fs, _scratch: scratch }
    }

    /// Runs `work` in `threads` threads that start together.
    ///
    /// # Panics
    /// When one of them does.
    pub fn storm(&self, threads: usize, work: impl Fn(usize) + Sync) {
        let barrier = Barrier::new(threads);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (barrier, work) = (&barrier, &work);
                scope.spawn(move || {
                    barrier.wait();
                    work(thread);
                });
            }
        });
    }

    /// Closes the volume; nobody may find anything wrong. Gives it back, open to be read.
    ///
    /// # Panics
    /// When somebody does.
    pub fn judge(self, name: &str) -> Filesystem {
        self.fs.close().expect("the volume closes");
        if let Err(report) = e2fsprogs::e2fsck(&self.image, None).expect_clean() {
            if let Some(keep) = std::env::var_os("EXTANT_KEEP") {
                std::fs::copy(&self.image, keep).expect("the image can be kept");
            }
            panic!("{name}: {report}");
        }
        let device = Arc::new(FileDevice::open(&self.image).expect("the volume opens"));
        let report = check_device(device, &Options::default(), &()).expect("a check");
        assert!(report.clean, "{name}: {:?}", report.findings);
        Filesystem::open(&self.image).expect("the volume opens again")
    }
}

/// The names of a directory.
///
/// # Panics
/// When it cannot be listed.
pub fn names(dir: &Node) -> BTreeSet<String> {
    let entries = dir.read_dir().expect("a directory lists");
    let name = |entry: extant::Result<extant::DirEntry>| {
        entry.expect("a whole entry").file_name().to_string_lossy().into_owned()
    };
    entries.map(name).collect()
}
