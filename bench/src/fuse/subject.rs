//! The subjects: mounts of a fresh volume, and their servers.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use extant::mkfs::{InodeCount, MkfsOptions, format};
use extant::{Environment, FileDevice};

use super::Plan;
use crate::mounted::Mounted;
use crate::rig::Scratch;
use crate::serve::{Serve, Served};

/// The kernel's setting for FUSE over io_uring.
const URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// A subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Extant,
    Uring,
    FastCommit,
    Fuse2fs,
    Null,
    Kernel,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] =
        [Kind::Extant, Kind::Uring, Kind::FastCommit, Kind::Fuse2fs, Kind::Null, Kind::Kernel];

    /// Whether it differs from the others only in cases that sync.
    pub(super) fn syncs_only(self) -> bool {
        self == Kind::FastCommit
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Extant => "extant",
            Kind::Uring => "extant-uring",
            Kind::FastCommit => "extant-fast-commit",
            Kind::Fuse2fs => "fuse2fs",
            Kind::Null => "null-fuse",
            Kind::Kernel => "kernel-ext4",
        }
    }
}

/// Makes a volume and mounts it.
pub(super) fn mount(kind: Kind, scratch: &Scratch, plan: &Plan) -> Result<Mounted> {
    if kind == Kind::Uring && fs::read_to_string(URING).is_ok_and(|on| on.trim() != "Y") {
        bail!("the kernel's fuse module has io_uring switched off ({URING})");
    }
    let image = scratch.join(&format!("{}.img", kind.name()));
    if kind != Kind::Null {
        make_volume(&image, plan, kind == Kind::FastCommit)?;
    }
    let dir = scratch.join(&format!("{}.mnt", kind.name()));
    match kind {
        Kind::Kernel => Mounted::kernel(&image, &dir),
        Kind::Fuse2fs => Mounted::fuse2fs(&image, &dir),
        _ => {
            let served = if kind == Kind::Null { Served::Null } else { Served::Extant };
            Mounted::own(&Serve::new(served, &image, &dir, kind == Kind::Uring, plan.idle))
        }
    }
}

fn make_volume(path: &Path, plan: &Plan, fast_commits: bool) -> Result<()> {
    let _ = fs::remove_file(path);
    let inodes = plan.files as u64 * 3 + 50_000;
    // A group of 128 MiB has at most 32,768 inodes. Small files take a block each.
    let bytes = (((inodes >> 15) + 8) << 27).max((plan.mib << 20) * 3);
    let mut options = MkfsOptions::new().inodes(InodeCount::AtLeast(inodes as u32));
    if fast_commits {
        options = options.features("fast_commit")?;
    }
    let device = Arc::new(FileDevice::create(path, bytes)?);
    format(device, &options, &Environment::default())?;
    Ok(())
}
