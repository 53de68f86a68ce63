//! Many threads at once on one volume; afterwards every name is where its thread left it.
//!
//! ```text
//!   Field::new(kind) ──► storm(threads, |thread| …)   all start at one barrier
//!                   ──► judge()                       closed; extant's check and e2fsck
//! ```

use extant::check::{Options, check_device};
use extant::mkfs::{JournalSize, MkfsOptions, format};
use extant::raid::{self, Part, Wanted};
use extant::{BlockSize, Environment, FileDevice, Filesystem, Node, OpenOptions};
use extant_testkit::e2fsprogs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

const VOLUME_BYTES: u64 = 64 << 20;

/// A volume that threads share.
pub struct Field {
    /// One image, or one for each mirror.
    images: Vec<PathBuf>,
    /// The volume, open for writing.
    pub fs: Filesystem,
    _scratch: tempfile::TempDir,
}

/// A kind of volume.
pub struct Kind {
    /// Its name in messages.
    pub name: &'static str,
    options: MkfsOptions,
    mirrors: usize,
    /// Whether content may go through the journal.
    pub journals_data: bool,
}

/// Kinds of volumes. A small journal commits and checkpoints all the time, small blocks make
/// directories grow, little memory makes blocks enter and leave the cache.
pub fn kinds() -> Vec<Kind> {
    let features = |wish: &str| MkfsOptions::new().features(wish).expect("features of mkfs");
    let small = BlockSize::from_bytes(1024).expect("a block size");
    let alone = |(name, options)| Kind { name, options, mirrors: 1, journals_data: true };
    let mut kinds: Vec<Kind> = [
        ("modern", MkfsOptions::new()),
        ("small blocks", MkfsOptions::new().block_size(small).journal(JournalSize::Blocks(1024))),
        ("no orphan file", features("^orphan_file").journal(JournalSize::Blocks(1024))),
        ("no journal", features("^has_journal")),
        ("quota", features("quota,project,inline_data")),
        ("fast commits", features("fast_commit")),
    ]
    .map(alone)
    .into();
    kinds.push(Kind { mirrors: 2, ..alone(("mirrors", MkfsOptions::new())) });
    let summed = [("sums of data", "data_csum", 1), ("mirrors with sums", "data_csum,quota", 2)];
    kinds.extend(summed.map(|(name, wish, mirrors)| {
        let options = features(wish).journal(JournalSize::Blocks(1024));
        Kind { name, options, mirrors, journals_data: false }
    }));
    kinds
}

impl Field {
    /// A new volume.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn new(kind: &Kind) -> Field {
        Field::opened(kind, |_| {})
    }

    /// A new volume, opened as `fill` says.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn opened(kind: &Kind, fill: impl FnOnce(&mut OpenOptions)) -> Field {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let image = |n: usize| scratch.path().join(format!("img{n}"));
        let images: Vec<PathBuf> = (0..kind.mirrors).map(image).collect();
        let mut parts = Vec::new();
        for image in &images {
            let device = FileDevice::create(image, VOLUME_BYTES).expect("room for a volume");
            parts.push(Part::new(Arc::new(device), image.display().to_string()));
        }
        if images.len() > 1 {
            let wanted = Wanted::Mirrored { alike: true };
            raid::create(&parts, wanted, [7; 16], VOLUME_BYTES).expect("a layout");
        }
        drop(parts);
        let device = opening(&images).write(true).assemble(&images[0]).expect("a device").device();
        format(device, &kind.options, &Environment::default()).expect("a volume");
        let mut options = opening(&images);
        fill(options.write(true));
        let fs = options.open(&images[0]).expect("a fresh volume opens");
        Field { images, fs, _scratch: scratch }
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

    /// Closes the volume. No check may find anything wrong, on each mirror by itself, and the
    /// mirrors must be equal. Returns the volume, open for reading.
    ///
    /// # Panics
    /// When a check finds an error.
    pub fn judge(self, name: &str) -> Filesystem {
        self.fs.close().expect("the volume closes");
        for image in &self.images {
            if let Err(report) = e2fsprogs::e2fsck(image, None).expect_clean() {
                if let Some(keep) = std::env::var_os("EXTANT_KEEP") {
                    std::fs::copy(image, keep).expect("the image can be kept");
                }
                panic!("{name}: {report}");
            }
            let device = Arc::new(FileDevice::open(image).expect("the volume opens"));
            let options = Options { data: true, ..Options::default() };
            let report = check_device(device, &options, &()).expect("a check");
            assert!(report.clean, "{name}: {:?}", report.findings);
        }
        let first = but_record(&self.images[0]);
        assert!(
            self.images.iter().all(|image| but_record(image) == first),
            "{name}: mirrors differ"
        );
        opening(&self.images).open(&self.images[0]).expect("the volume opens again")
    }
}

/// How to open the volume on these images.
fn opening(images: &[PathBuf]) -> OpenOptions {
    let mut options = OpenOptions::new();
    for member in &images[1..] {
        options.member(member);
    }
    options
}

/// The content of a mirror, without the sector that differs between members.
fn but_record(image: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(image).expect("the image is there");
    bytes[512..1024].fill(0);
    bytes
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
