//! The server of a mount, in a process of its own, until it is unmounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
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

/// Serves a mount until it is unmounted: the other half of the bench.
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    served: Served,
    image: PathBuf,
    dir: PathBuf,
    #[arg(long)]
    uring: bool,
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
            ..MountOptions::default()
        };
        let session = Session::mount(Arc::clone(operations), &self.image, &self.dir, &options)?;
        session.wait();
        Ok(())
    }

    /// The arguments that make a process do this.
    pub(crate) fn arguments(served: Served, image: &Path, dir: &Path, uring: bool) -> Vec<PathBuf> {
        let served = if served == Served::Extant { "extant" } else { "null" };
        let mut arguments = vec!["serve".into(), served.into(), image.into(), dir.into()];
        if uring {
            arguments.push("--uring".into());
        }
        arguments
    }
}
