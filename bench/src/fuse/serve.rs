//! The server of a mount, in a process of its own, until it is unmounted.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use extant::OpenOptions;
use extant_fuse::{MountOptions, Operations, Session, Transport, Volume, VolumeOptions};

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Served {
    /// A volume.
    Extant,
    /// Files in memory, told of the same openings as the volume is.
    Null,
}

/// As [`extant_fuse::Idle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// Awake on small machines.
    Auto,
    /// Awake.
    Poll,
    /// Asleep.
    Halt,
}

/// Serves a mount until it is unmounted: the other half of the bench.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    served: Served,
    image: PathBuf,
    dir: PathBuf,
    #[arg(long)]
    uring: bool,
    #[arg(long, value_enum)]
    idle: Idle,
}

impl Serve {
    pub(crate) fn run(&self) -> Result<()> {
        match self.served {
            Served::Extant => {
                let fs = OpenOptions::new().write(true).cache_bytes(1 << 30).open(&self.image)?;
                let shown = VolumeOptions { check_permissions: true, ..VolumeOptions::default() };
                let volume = Arc::new(Volume::new(fs.clone(), shown)?);
                self.serve(&volume)?;
                volume.let_go();
                Ok(fs.close()?)
            }
            Served::Null => {
                // What the engine asks of the kernel, the limit asks, too.
                let blank = extant_fuse::null::Null::new(extant_fuse::Settings {
                    writeback_cache: false,
                    posix_acl: true,
                    handles: extant_fuse::Handles::All,
                    time_granularity_ns: 1,
                    max_transfer: 1 << 20,
                });
                self.serve(&Arc::new(blank))
            }
        }
    }

    fn serve(&self, operations: &Arc<impl Operations + 'static>) -> Result<()> {
        let options = MountOptions {
            allow_other: true,
            transport: if self.uring { Transport::Best } else { Transport::Dev },
            idle: match self.idle {
                Idle::Auto => extant_fuse::Idle::Auto,
                Idle::Poll => extant_fuse::Idle::Poll,
                Idle::Halt => extant_fuse::Idle::Halt,
            },
            ..MountOptions::default()
        };
        let session = Session::mount(Arc::clone(operations), &self.image, &self.dir, &options)?;
        session.wait();
        Ok(())
    }

    pub(super) fn new(served: Served, image: &Path, dir: &Path, uring: bool, idle: Idle) -> Serve {
        Serve { served, image: image.into(), dir: dir.into(), uring, idle }
    }

    /// The arguments that make a process do this.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let word = |value: Option<PossibleValue>| value.expect("none is hidden").get_name().into();
        let mut arguments = vec!["serve".into(), word(self.served.to_possible_value())];
        arguments.extend([self.image.clone().into(), self.dir.clone().into()]);
        arguments.extend(["--idle".into(), word(self.idle.to_possible_value())]);
        if self.uring {
            arguments.push("--uring".into());
        }
        arguments
    }
}
