//! The subjects: mounts of a fresh volume, by how an fsync becomes durable.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use clap::ValueEnum;
use extant::Environment;
use extant::mkfs::{MkfsOptions, format};

use crate::backing::{self, Kept};
use crate::mounted::Mounted;
use crate::rig::Scratch;
use crate::serve::{Idle, Serve, Served, Syncs};

/// Size of each volume.
pub(super) const VOLUME_BYTES: u64 = 1536 << 20;

/// Where the image lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    /// In --memory
    Memory,
    /// In --scratch
    Disk,
}

impl Store {
    pub(super) const ALL: [Store; 2] = [Store::Memory, Store::Disk];

    pub(super) fn name(self) -> &'static str {
        match self {
            Store::Memory => "memory",
            Store::Disk => "disk",
        }
    }
}

/// All subjects, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    FullCommit,
    FastCommit,
    ByteLog,
    Kernel,
    KernelFastCommit,
    Fuse2fs,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] = [
        Kind::FullCommit,
        Kind::FastCommit,
        Kind::ByteLog,
        Kind::Kernel,
        Kind::KernelFastCommit,
        Kind::Fuse2fs,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::FullCommit => "extant-full-commit",
            Kind::FastCommit => "extant-fast-commit",
            Kind::ByteLog => "extant-byte-log",
            Kind::Kernel => "kernel-ext4",
            Kind::KernelFastCommit => "kernel-ext4-fast-commit",
            Kind::Fuse2fs => "fuse2fs",
        }
    }

    /// Whether the subject works in this store. The byte log is durable where its mapped bytes are:
    /// in memory, which outlives the process as the bytes of the other subjects do here, but not in
    /// a file on a disk.
    pub(super) fn can_be_in(self, store: Store) -> bool {
        self != Kind::ByteLog || store == Store::Memory
    }

    fn features(self) -> &'static str {
        match self {
            Kind::FullCommit | Kind::Kernel | Kind::Fuse2fs => "^fast_commit",
            Kind::FastCommit | Kind::ByteLog | Kind::KernelFastCommit => "fast_commit",
        }
    }

    fn syncs(self) -> Syncs {
        match self {
            Kind::FastCommit => Syncs::Fast,
            Kind::ByteLog => Syncs::ByteLog,
            _ => Syncs::Full,
        }
    }
}

/// Makes a new volume in the file of the previous one, and mounts it.
pub(super) fn mount(kind: Kind, scratch: &Scratch) -> Result<Mounted> {
    let (image, dir) = (scratch.join("volume.img"), scratch.join("mnt"));
    make_volume(&image, kind)?;
    match kind {
        Kind::Kernel | Kind::KernelFastCommit => Mounted::kernel(&image, &dir),
        Kind::Fuse2fs => Mounted::fuse2fs(&image, &dir),
        Kind::FullCommit | Kind::FastCommit | Kind::ByteLog => {
            let serve = Serve::new(Served::Extant, &image, &dir, false, Idle::Auto);
            Mounted::own(&serve.syncs(kind.syncs()))
        }
    }
}

fn make_volume(image: &Path, kind: Kind) -> Result<()> {
    if !image.exists() {
        backing::file(image, VOLUME_BYTES)?;
    }
    let device = Arc::new(Kept(backing::direct(image)?));
    format(device, &MkfsOptions::new().features(kind.features())?, &Environment::default())?;
    Ok(())
}
