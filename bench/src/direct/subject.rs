//! The subjects: the backing file alone, extant in its variants, the kernel's filesystems.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::Result;
use extant::direct::{AlignedBuf, Bounce, DirectOptions};
use extant::mkfs::{MkfsOptions, format};
use extant::{Environment, FileOptions, NewFile, OpenOptions};
use extant_base::ByteOffset;
use extant_blockdev::{BlockDevice, FileDevice};

use super::lane::{Buffered, Calls, Lane, Queued, Raw};
use super::work::Setting;
use crate::backing::{Kept, Past, direct};
use crate::rig::{Mount, run, sync_filesystem};

/// All subjects, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Subject {
    Device,
    ZeroCopy,
    Bounce,
    Checksummed,
    Buffered,
    KernelExt4,
    KernelBtrfsCsum,
    KernelBtrfsNocsum,
}

impl Subject {
    pub(crate) const ALL: [Subject; 8] = [
        Subject::Device,
        Subject::ZeroCopy,
        Subject::Bounce,
        Subject::Checksummed,
        Subject::Buffered,
        Subject::KernelExt4,
        Subject::KernelBtrfsCsum,
        Subject::KernelBtrfsNocsum,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Subject::Device => "device",
            Subject::ZeroCopy => "extant-zero-copy",
            Subject::Bounce => "extant-bounce",
            Subject::Checksummed => "extant-checksummed",
            Subject::Buffered => "extant-buffered",
            Subject::KernelExt4 => "kernel-ext4",
            Subject::KernelBtrfsCsum => "kernel-btrfs-csum",
            Subject::KernelBtrfsNocsum => "kernel-btrfs-nocsum",
        }
    }

    pub(crate) fn is_kernel(self) -> bool {
        matches!(self, Subject::KernelExt4 | Subject::KernelBtrfsCsum | Subject::KernelBtrfsNocsum)
    }

    /// Makes a volume in `store` and a file of `len` written bytes in it.
    pub(crate) fn open(self, store: &Path, len: u64) -> Result<Volume> {
        Ok(match self {
            Subject::Device => Volume::Raw(direct(store)?, None),
            Subject::KernelExt4 => mounted(store, len, "ext4", "noatime,noinit_itable")?,
            Subject::KernelBtrfsCsum => mounted(store, len, "btrfs", "noatime,datasum")?,
            Subject::KernelBtrfsNocsum => mounted(store, len, "btrfs", "noatime,nodatasum")?,
            Subject::ZeroCopy | Subject::Bounce | Subject::Checksummed | Subject::Buffered => {
                let mut options = MkfsOptions::new();
                if self == Subject::Checksummed {
                    options = options.features("data_csum")?;
                }
                format(Arc::new(Kept(direct(store)?)), &options, &Environment::default())?;
                let mut options = OpenOptions::new();
                options.write(true).page_cache_bytes(64 << 20);
                let fs = options.open_device(Arc::new(Past(direct(store)?)))?;
                let file = fs.root()?.create_file("data", &NewFile::default())?.open()?;
                let bytes = AlignedBuf::zeroed(1 << 20);
                for at in (0..len).step_by(bytes.len()) {
                    file.write_direct_at(&bytes, at, &DirectOptions::default())?;
                }
                file.sync_all()?;
                Volume::Extant { fs, file, subject: self }
            }
        })
    }
}

/// A volume mounted by the kernel, and the file in it.
fn mounted(store: &Path, len: u64, kind: &'static str, options: &str) -> Result<Volume> {
    match kind {
        "ext4" => {
            let device = Arc::new(Kept(direct(store)?));
            format(device, &MkfsOptions::new(), &Environment::default())?;
        }
        _ => {
            run(Command::new("mkfs.btrfs").args(["-q", "-f", "-K"]).arg(store))?;
        }
    }
    let mount = Mount::image_with(store, &store.with_extension("mnt"), kind, true, options)?;
    let path = mount.join("data");
    FileOptions::new().write(true).create(&path, len)?;
    let file = direct(&path)?;
    let bytes = AlignedBuf::zeroed(1 << 20);
    for at in (0..len).step_by(bytes.len()) {
        file.write_at(ByteOffset(at), &bytes)?;
    }
    file.flush()?;
    sync_filesystem(&path)?;
    Ok(Volume::Raw(file, Some(mount)))
}

/// A subject that is ready to measure.
pub(crate) enum Volume {
    /// A file, which is closed before its mount.
    Raw(Arc<FileDevice>, #[allow(dead_code, reason = "kept mounted")] Option<Mount>),
    Extant {
        fs: extant::Filesystem,
        file: extant::File,
        subject: Subject,
    },
}

impl Volume {
    /// The transfers of this subject for a setting.
    pub(crate) fn lane(&self, setting: Setting) -> Result<Box<dyn Lane + '_>> {
        Ok(match self {
            Volume::Raw(file, _) => Box::new(Raw::new(Arc::clone(file), setting)),
            Volume::Extant { file, subject: Subject::Buffered, .. } => {
                Box::new(Buffered::new(file.clone(), setting))
            }
            Volume::Extant { fs, file, subject } => {
                let bounce = match subject {
                    Subject::Bounce => Bounce::Always,
                    _ => Bounce::Auto,
                };
                let options = DirectOptions { bounce, ..DirectOptions::default() };
                match setting.depth {
                    1 => Box::new(Calls::new(file.clone(), options, setting)),
                    _ => Box::new(Queued::new(fs, file.clone(), options, setting)),
                }
            }
        })
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Volume::Extant { fs, .. } = self
            && let Err(error) = fs.clone().close()
        {
            eprintln!("extant-bench: closing a volume: {error}");
        }
    }
}
