//! The server of a mount, in a process of its own, until the mount is unmounted.
//!
//! ```text
//!   bench ── Server::start ──► process: Serve::run, or a rival's ── mount ◄── the bench's programs
//!     └───── dropped: umount ──► the server writes the remaining data and ends
//! ```

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use extant::OpenOptions;
use extant::dax::{ByteLogMode, DaxMode};
use extant_fuse::{MountOptions, Operations, Session, Transport, Volume, VolumeOptions};

use crate::rig::run;

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Served {
    /// A volume.
    Extant,
    /// Files in memory, with the same openings as the volume.
    Null,
}

/// As [`extant_fuse::Idle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// CpuLatencyHold on small machines.
    Auto,
    /// CpuLatencyHold.
    Poll,
    /// Asleep.
    Halt,
}

/// How an fsync of the volume is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Syncs {
    /// By a commit of all that is open.
    Full,
    /// By a fast commit, where the volume has the feature.
    Fast,
    /// By the byte log in the mapped image; there is no mount otherwise.
    ByteLog,
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
    #[arg(long, value_enum, default_value_t = Syncs::Fast)]
    syncs: Syncs,
}

impl Serve {
    pub(crate) fn run(&self) -> Result<()> {
        match self.served {
            Served::Extant => {
                let mut options = OpenOptions::new();
                options.write(true).cache_bytes(1 << 30).fast_commits(self.syncs != Syncs::Full);
                if self.syncs == Syncs::ByteLog {
                    options.byte_log(ByteLogMode::Force).dax(DaxMode::Always);
                }
                let fs = options.open(&self.image)?;
                let shown = VolumeOptions { check_permissions: true, ..VolumeOptions::default() };
                let volume = Arc::new(Volume::new(fs.clone(), shown)?);
                self.serve(&volume)?;
                volume.let_go();
                Ok(fs.close()?)
            }
            Served::Null => {
                // The limit negotiates the same settings with the kernel as the engine.
                let blank = extant_nullfs::Null::new(extant_fuse::Settings {
                    every_read: false,
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

    pub(crate) fn new(served: Served, image: &Path, dir: &Path, uring: bool, idle: Idle) -> Serve {
        Serve { served, image: image.into(), dir: dir.into(), uring, idle, syncs: Syncs::Fast }
    }

    /// The directory of the mount.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The same with another way to make an fsync durable.
    pub(crate) fn syncs(self, syncs: Syncs) -> Serve {
        Serve { syncs, ..self }
    }

    /// The arguments with which a process of this program serves the same mount.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let word = |value: Option<PossibleValue>| value.expect("none is hidden").get_name().into();
        let mut arguments = vec!["serve".into(), word(self.served.to_possible_value())];
        arguments.extend([self.image.clone().into(), self.dir.clone().into()]);
        arguments.extend(["--idle".into(), word(self.idle.to_possible_value())]);
        arguments.extend(["--syncs".into(), word(self.syncs.to_possible_value())]);
        if self.uring {
            arguments.push("--uring".into());
        }
        arguments
    }
}

/// A running server and its mount. Dropping it ends both.
pub(crate) struct Server {
    dir: PathBuf,
    process: Child,
}

impl Server {
    /// Starts this program with the arguments of `serve`.
    pub(crate) fn own(serve: &Serve) -> Result<Server> {
        Server::start(Command::new(std::env::current_exe()?).args(serve.arguments()), &serve.dir)
    }

    /// Starts a server that stays in the foreground and mounts on the existing directory `dir`.
    /// Returns when the mount can be used.
    pub(crate) fn start(command: &mut Command, dir: &Path) -> Result<Server> {
        let before = device_of(dir)?;
        let name = command.get_program().to_string_lossy().into_owned();
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let process = process.with_context(|| format!("cannot start {name}"))?;
        let mut server = Server { dir: dir.into(), process };
        for _ in 0..2000 {
            if device_of(dir).is_ok_and(|now| now != before) {
                return Ok(server);
            }
            if let Some(status) = server.process.try_wait()? {
                bail!("{name} ended with {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the mount of {name} did not come up")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for _ in 0..50 {
            let ended = matches!(self.process.try_wait(), Ok(Some(_)));
            let unmounted = run(Command::new("umount").arg(&self.dir)).is_ok();
            if unmounted {
                // It ends after the volume is written.
                let _ = self.process.wait();
            }
            if ended || unmounted {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("extant-bench: cannot unmount {}", self.dir.display());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn device_of(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(dir)?.dev())
}
