//! Tests of the parts that change a volume, with access to internals. This engine or mke2fs makes
//! the volume, a handle changes it, and `e2fsck -fn` and debugfs verify it.

mod allocation;
mod attributes;
mod damage;
mod data_csum;
mod errors;
mod features;
mod files;
mod hide;
mod maps;
mod names;
mod pack;
mod quota;

use crate::context::environment::Environment;
use crate::inodes::create::NewInode;
use crate::offline::mkfs::{MkfsOptions, format_open};
use crate::space::inodes::InodeGoal;
use crate::state::inode::Body;
use crate::state::quota::QuotaPolicy;
use crate::volume::{Volume, VolumeOptions};
use extant_base::{Ino, Result};
use extant_blockdev::{BlockDevice, FileDevice};
use extant_journal::{Credits, Handle};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::time::Timestamp;
use extant_testkit::e2fsprogs;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) const NOW: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 5 };

/// A volume in a scratch file, open for writing.
pub(super) struct Bench {
    pub(super) volume: Volume,
    pub(super) path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// A volume of `mib` MiB made by this engine.
    pub(super) fn made(mib: u64, options: MkfsOptions) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        let device = Arc::new(FileDevice::create(&path, mib << 20).unwrap());
        let environment = Environment::fixed(NOW, 7);
        let options = options.zeroed(true);
        let made = format_open(device.clone(), &options, &environment).unwrap();
        made.finish().unwrap();
        Bench { volume: open(device), path, _dir: dir }
    }

    /// A volume of `mib` MiB made by mke2fs.
    pub(super) fn mke2fs(mib: u64, options: &str) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        e2fsprogs::mke2fs(&path, mib << 20, options, None).unwrap();
        let device = Arc::new(FileDevice::open_rw(&path).unwrap());
        Bench { volume: open(device), path, _dir: dir }
    }

    /// Checkpoints everything and reopens the volume, so that nothing of it is in memory.
    pub(super) fn reopen(&mut self) {
        self.volume.mount_state().update_superblock().unwrap();
        self.volume.journal().sync().unwrap();
        self.volume = open(Arc::clone(self.volume.device()));
    }

    /// Runs `change` under a handle.
    pub(super) fn with<T>(
        &self,
        change: impl FnOnce(&Volume, &Handle<'_>) -> Result<T>,
    ) -> Result<T> {
        let handle = self.volume.journal().start(Credits::blocks(1000)).unwrap();
        let done = change(&self.volume, &handle);
        handle.stop().unwrap();
        done
    }

    /// Makes a directory in the root, empty and stored.
    pub(super) fn mkdir(&self, name: &str, flags: InodeFlags) -> (Ino, Body) {
        self.with(|volume, handle| {
            let mode = 0o040_755;
            let goal = InodeGoal::Directory { parent: Ino::ROOT };
            let new = NewInode { flags, ..NewInode::at(goal, mode, NOW) };
            let (ino, mut body) = volume.inodes().allocate(handle, new)?;
            volume.dir_mut(&mut body).init(handle, Ino::ROOT)?;
            body.store(volume, handle)?;
            let mut root = volume.inodes().read(Ino::ROOT)?;
            let kind = EntryKind::Directory;
            volume.dir_mut(&mut root).insert(handle, name.as_bytes(), ino, kind)?;
            root.add_subdirectory(volume)?;
            root.store(volume, handle)?;
            Ok((ino, body))
        })
        .unwrap()
    }

    /// Makes an empty regular file with this link count, without a name yet.
    pub(super) fn file(&self, parent: Ino, links: u16) -> Ino {
        self.with(|volume, handle| {
            let goal = InodeGoal::Other { parent };
            let (ino, mut body) =
                volume.inodes().allocate(handle, NewInode::at(goal, 0o100_644, NOW))?;
            body.disk.links = links;
            body.store(volume, handle)?;
            Ok(ino)
        })
        .unwrap()
    }

    /// Sets the link count of a stored inode.
    pub(super) fn set_links(&self, ino: Ino, links: u16) {
        self.with(|volume, handle| {
            let mut body = volume.inodes().read(ino)?;
            body.disk.links = links;
            body.store(volume, handle)
        })
        .unwrap();
    }

    /// Stores a body.
    pub(super) fn store(&self, body: &mut Body) {
        self.with(|volume, handle| body.store(volume, handle)).unwrap();
    }

    /// All names of a directory and their inodes, as this engine reads them.
    pub(super) fn names(&self, body: &Body) -> Vec<(Vec<u8>, u32)> {
        let dir = self.volume.file(body).dir().unwrap();
        let (mut position, mut names) = (Default::default(), Vec::new());
        while dir
            .next_batch(&mut position, |entry| {
                let entry = entry.unwrap();
                names.push((entry.name, entry.ino.get()));
            })
            .unwrap()
        {}
        names.sort();
        names
    }

    /// Checkpoints everything and runs e2fsck, which must find nothing. The volume stays usable.
    #[track_caller]
    pub(super) fn judge(&self) {
        self.volume.mount_state().update_superblock().unwrap();
        self.volume.journal().sync().unwrap();
        if let Err(report) = e2fsprogs::e2fsck(&self.path, None).expect_clean() {
            self.keep();
            panic!("{report}");
        }
    }

    /// The output of debugfs.
    #[track_caller]
    pub(super) fn debugfs(&self, request: &str) -> String {
        e2fsprogs::debugfs(&self.path, request).unwrap_or_else(|error| {
            self.keep();
            panic!("{error}")
        })
    }

    /// Copies the volume of a failed test to the directory in `EXTANT_KEEP`.
    fn keep(&self) {
        if let Some(keep) = std::env::var_os("EXTANT_KEEP") {
            std::fs::copy(&self.path, keep).unwrap();
        }
    }
}

fn open(device: Arc<dyn BlockDevice>) -> Volume {
    let options = VolumeOptions {
        read_only: false,
        quota: Some(QuotaPolicy::Count),
        environment: Environment::fixed(NOW, 9),
        ..VolumeOptions::default()
    };
    let volume = Volume::open_parts(device, &options).unwrap();
    volume.space().recount_free().unwrap();
    volume
}

/// Options with these features.
pub(super) fn features(names: &str) -> MkfsOptions {
    MkfsOptions::new().features(names).unwrap()
}

/// A small random generator: the same seed gives the same run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let x = self.0 ^ self.0 >> 33;
        x.wrapping_mul(0xff51_afd7_ed55_8ccd) >> 11
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
