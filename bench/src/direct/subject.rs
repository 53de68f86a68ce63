//! Who does the work, and on what: one file each on the disk, made and written before.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use extant::mkfs::{MkfsOptions, format};
use extant::{
    AlignedBuf, BlockDevice, Bounce, DirectOptions, Environment, File, FileOptions, Filesystem,
    NewFile, OpenOptions,
};
use extant_base::ByteOffset;
use extant_blockdev::{Queue, QueueWay};

use super::work::Work;
use crate::report::Report;
use crate::rig::{Mount, Scratch, is_root, run};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Subject {
    Device,
    ZeroCopy,
    Bounce,
    Buffered,
    Ext4,
    BtrfsCsum,
    BtrfsNoCsum,
}

pub(super) const SUBJECTS: [Subject; 7] = [
    Subject::Device,
    Subject::ZeroCopy,
    Subject::Bounce,
    Subject::Buffered,
    Subject::Ext4,
    Subject::BtrfsCsum,
    Subject::BtrfsNoCsum,
];

impl Subject {
    pub(super) fn name(self) -> &'static str {
        match self {
            Subject::Device => "device",
            Subject::ZeroCopy => "extant-zero-copy",
            Subject::Bounce => "extant-bounce",
            Subject::Buffered => "extant-buffered",
            Subject::Ext4 => "kernel-ext4",
            Subject::BtrfsCsum => "kernel-btrfs-csum",
            Subject::BtrfsNoCsum => "kernel-btrfs-nocsum",
        }
    }

    fn options(self) -> DirectOptions {
        let bounce = if self == Subject::Bounce { Bounce::Always } else { Bounce::Auto };
        DirectOptions { bounce, ..DirectOptions::default() }
    }
}

/// What a subject works on.
pub(super) struct Store {
    subject: Subject,
    kind: Kind,
}

enum Kind {
    /// A file of the system, opened with `O_DIRECT`; behind it perhaps a mount.
    System(Arc<dyn BlockDevice>, Option<Mount>),
    /// A file of a volume.
    Volume(File, Filesystem, PathBuf),
}

impl Store {
    /// Makes the file and writes it once. Errors: when the subject cannot be had here.
    pub(super) fn prepare(scratch: &Scratch, subject: Subject, bytes: u64) -> Result<Store> {
        let image = scratch.join(&format!("{}.img", subject.name()));
        let room = bytes + bytes / 4 + (256 << 20);
        let kind = match subject {
            Subject::Device => Kind::System(system_file(&image, bytes)?, None),
            Subject::ZeroCopy | Subject::Bounce | Subject::Buffered => {
                let device = Arc::new(FileOptions::new().create(&image, room)?);
                format(device, &MkfsOptions::new(), &Environment::default())?;
                let mut options = OpenOptions::new();
                // Little, so that what is read is not there from before.
                options.write(true).direct(true).page_cache_bytes(16 << 20);
                let fs = options.open(&image)?;
                let file = fs.create_file("/timed", &NewFile::default())?.open()?;
                let buf = AlignedBuf::copy_of(&[1; 1 << 20]);
                for at in (0..bytes).step_by(buf.len()) {
                    file.write_direct_at(at, &buf, &DirectOptions::default())?;
                }
                file.sync_all()?;
                Kind::Volume(file, fs, image)
            }
            Subject::Ext4 | Subject::BtrfsCsum | Subject::BtrfsNoCsum => {
                if !is_root() {
                    bail!("only root mounts");
                }
                FileOptions::new().create(&image, room)?;
                let (program, kind, options) = match subject {
                    Subject::Ext4 => ("mkfs.ext4", "ext4", "noatime,noinit_itable"),
                    Subject::BtrfsCsum => ("mkfs.btrfs", "btrfs", "noatime"),
                    _ => ("mkfs.btrfs", "btrfs", "noatime,nodatasum"),
                };
                run(Command::new(program).arg("-q").arg(&image))
                    .with_context(|| format!("{program} (Debian: btrfs-progs, e2fsprogs)"))?;
                let dir = scratch.join(&format!("{}.mnt", subject.name()));
                let mount = Mount::image_with(&image, &dir, kind, options, true)?;
                Kind::System(system_file(&mount.join("timed"), bytes)?, Some(mount))
            }
        };
        Ok(Store { subject, kind })
    }

    pub(super) fn name(&self) -> &'static str {
        self.subject.name()
    }

    /// Seconds for the work.
    pub(super) fn run(&self, work: &Work) -> Result<f64> {
        match &self.kind {
            Kind::System(device, _) => {
                work.at_device(&mut Queue::new(Arc::clone(device), work.depth, QueueWay::Auto))
            }
            Kind::Volume(file, ..) if self.subject == Subject::Buffered => work.buffered(file),
            Kind::Volume(file, fs, _) => {
                work.at_file(&mut fs.direct_queue(work.depth), file, &self.subject.options())
            }
        }
    }

    /// Closes it; states what it did, and that its volume is whole.
    pub(super) fn conclude(self, report: &mut Report) -> Result<()> {
        let name = self.name();
        let Kind::Volume(file, fs, image) = self.kind else { return Ok(()) };
        let stats = fs.direct_stats();
        report.condition(format!(
            "{name}: {} MiB lent, {} MiB copied",
            stats.lent_bytes >> 20,
            stats.copied_bytes >> 20
        ));
        drop(file);
        fs.close()?;
        if let Ok(checked) = Command::new("e2fsck").arg("-fn").arg(&image).output()
            && !checked.status.success()
        {
            bail!("{}: {}", image.display(), String::from_utf8_lossy(&checked.stdout));
        }
        Ok(())
    }
}

/// A file with all its blocks, written, open past the kernel's cache.
fn system_file(path: &std::path::Path, bytes: u64) -> Result<Arc<dyn BlockDevice>> {
    let device = FileOptions::new().write(true).direct(true).lock(false).create(path, bytes)?;
    if !device.is_direct() {
        bail!("{} has no direct I/O", path.display());
    }
    let buf = AlignedBuf::copy_of(&[1; 1 << 20]);
    for at in (0..bytes).step_by(buf.len()) {
        device.write_at(ByteOffset(at), &buf)?;
    }
    device.flush()?;
    Ok(Arc::new(device))
}
