//! The subjects: extant in three variants, the kernel in two.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use extant::dax::ByteLogMode;
use extant::mkfs::{MkfsOptions, format};
use extant::{BlockDevice, Environment, FileDevice, NewFile, Node, OpenOptions, SetAttributes};

use super::store::{Counts, Price, Store};
use crate::rig::{Mount, Scratch};

/// A volume that is open for one setting.
pub(crate) trait Volume: Sync {
    /// Creates the directory if it does not exist, and opens it.
    fn dir(&self, name: &str) -> Result<Box<dyn Dir>>;
    /// Totals that have reached the device, if they are known.
    fn counts(&self) -> Option<Counts>;
}

/// A directory that one thread uses.
pub(crate) trait Dir: Send {
    /// Creates a file, or opens the existing one.
    fn create(&self, name: &str) -> Result<Box<dyn File>>;
    fn unlink(&self, name: &str) -> Result<()>;
    fn sync(&self) -> Result<()>;
}

/// An open file that one thread uses.
pub(crate) trait File: Send {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    fn chmod(&self, mode: u16) -> Result<()>;
    fn sync(&self) -> Result<()>;
    fn sync_data(&self) -> Result<()>;
}

/// All subjects, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Subject {
    FullCommit,
    FastCommit,
    ByteLog,
    Kernel,
    KernelFastCommit,
}

impl Subject {
    pub(crate) const ALL: [Subject; 5] = [
        Subject::FullCommit,
        Subject::FastCommit,
        Subject::ByteLog,
        Subject::Kernel,
        Subject::KernelFastCommit,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Subject::FullCommit => "extant-full-commit",
            Subject::FastCommit => "extant-fast-commit",
            Subject::ByteLog => "extant-byte-log",
            Subject::Kernel => "kernel-ext4",
            Subject::KernelFastCommit => "kernel-ext4-fast-commit",
        }
    }

    pub(crate) fn is_kernel(self) -> bool {
        matches!(self, Subject::Kernel | Subject::KernelFastCommit)
    }

    fn features(self) -> &'static str {
        match self {
            Subject::FullCommit | Subject::Kernel => "^fast_commit",
            _ => "fast_commit",
        }
    }
}

/// Makes an empty volume and opens it as `subject` does.
pub(crate) fn open(subject: Subject, scratch: &Scratch, price: Price) -> Result<Box<dyn Volume>> {
    let image = scratch.join("volume.img");
    let _ = fs::remove_file(&image);
    let device = Arc::new(FileDevice::create(&image, 512 << 20)?);
    let options = MkfsOptions::new().features(subject.features())?;
    format(device, &options, &Environment::default())?;
    if subject.is_kernel() {
        return Ok(Box::new(Mounted::new(&image, &scratch.join("mnt"))?));
    }
    let store = Store::open(&image, price)?;
    let mut options = OpenOptions::new();
    options.write(true).fast_commits(subject != Subject::FullCommit);
    options.byte_log(match subject {
        // Memory outlives the process here, as the bytes of the other subjects do.
        Subject::ByteLog => ByteLogMode::Force,
        _ => ByteLogMode::Off,
    });
    let fs = options.open_device(Arc::clone(&store) as Arc<dyn BlockDevice>)?;
    Ok(Box::new(Extant { fs, store }))
}

struct Extant {
    fs: extant::Filesystem,
    store: Arc<Store>,
}

impl Drop for Extant {
    fn drop(&mut self) {
        if let Err(error) = self.fs.clone().close() {
            eprintln!("extant-bench: closing a volume: {error}");
        }
    }
}

impl Volume for Extant {
    fn dir(&self, name: &str) -> Result<Box<dyn Dir>> {
        let root = self.fs.root()?;
        Ok(Box::new(match root.create_dir(name, &NewFile::directory()) {
            Ok(dir) => dir,
            Err(extant::Error::Exists) => root.lookup(name)?,
            Err(error) => return Err(error.into()),
        }))
    }

    fn counts(&self) -> Option<Counts> {
        Some(self.store.counts())
    }
}

impl Dir for Node {
    fn create(&self, name: &str) -> Result<Box<dyn File>> {
        let node = match Node::create_file(self, name, &NewFile::default()) {
            Ok(node) => node,
            Err(extant::Error::Exists) => self.lookup(name)?,
            Err(error) => return Err(error.into()),
        };
        Ok(Box::new(node.open()?))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(Node::remove_file(self, name)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }
}

impl File for extant::File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.write_all_at(bytes, offset)?)
    }

    fn chmod(&self, mode: u16) -> Result<()> {
        self.set_attributes(&SetAttributes { mode: Some(mode), ..SetAttributes::default() })?;
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }

    fn sync_data(&self) -> Result<()> {
        Ok(extant::File::sync_data(self)?)
    }
}

/// A loop mount.
pub(crate) struct Mounted {
    mount: Mount,
}

impl Mounted {
    fn new(image: &Path, dir: &Path) -> Result<Mounted> {
        // A tmpfs does not support direct I/O: the loop device uses its page cache.
        Ok(Mounted { mount: Mount::image(image, dir, "ext4", false)? })
    }
}

impl Volume for Mounted {
    fn dir(&self, name: &str) -> Result<Box<dyn Dir>> {
        let path = self.mount.join(name);
        fs::create_dir_all(&path)?;
        let open = fs::File::open(&path)?;
        Ok(Box::new(KernelDir { path, open }))
    }

    fn counts(&self) -> Option<Counts> {
        // Fields of /sys/block/NAME/stat: 7 sectors written, 16 flushes; see the kernel's
        // Documentation/block/stat.
        let stat = fs::read_to_string(self.mount.block_stat()?).ok()?;
        let fields: Vec<u64> =
            stat.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some(Counts { bytes: fields.get(6)? * 512, flushes: *fields.get(15)? })
    }
}

struct KernelDir {
    path: PathBuf,
    open: fs::File,
}

impl Dir for KernelDir {
    fn create(&self, name: &str) -> Result<Box<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        Ok(Box::new(options.open(self.path.join(name)).context("creating a file")?))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.path.join(name))?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.open.sync_all()?)
    }
}

impl File for fs::File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(FileExt::write_all_at(self, bytes, offset)?)
    }

    fn chmod(&self, mode: u16) -> Result<()> {
        Ok(self.set_permissions(fs::Permissions::from_mode(mode.into()))?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }

    fn sync_data(&self) -> Result<()> {
        Ok(fs::File::sync_data(self)?)
    }
}
