//! A mount that this process serves.
//!
//! ```text
//!   mount ──► INIT ──► threads serve ──► unmounted: reads give ENODEV ──► threads end ──► destroy
//!                          │                                                   │
//!                       Session ──drop: unmounts──►                        wait returns
//! ```
//!
//! An abort (`umount -f`, or the file `abort` of the control filesystem) looks the same to the
//! threads that read, but the mount stays in the tree and every access to it fails. The log records
//! an abort, because the server did not request it.

use crate::abi::{self, InitFlags};
use crate::connection::Log;
use crate::dispatch::Dispatch;
use crate::mount::{self, MountError, MountOptions, Mounted, Transport};
use crate::negotiate::{self, Agreed, Refusal};
use crate::operations::{Operations, Settings};
use crate::statistics::Requests;
use crate::transport::dev::{self, Dev};
use crate::transport::{CpuLatencyHold, WorkerPool, uring};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

/// Threads that serve from the start.
const FIRST_THREADS: usize = 2;

/// A filesystem that is mounted and served by threads of this process. Dropping it unmounts.
pub struct Session {
    mounted: Mounted,
    pools: Vec<Arc<WorkerPool>>,
    dispatch: Arc<Dispatch>,
    /// The kernel has ended the connection, and all threads have ended.
    over: bool,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("mounted", &self.mounted).finish_non_exhaustive()
    }
}

/// Unmounts a mount from any thread. It can be cloned.
#[derive(Clone, Debug)]
pub struct Unmounter(Mounted);

impl Unmounter {
    /// Unmounts.
    ///
    /// # Errors
    /// `Busy` while files are open there, see [`Unmounter::detach`]; errors of the system.
    pub fn unmount(&self) -> Result<(), MountError> {
        self.0.unmount(false)
    }

    /// Takes the mount out of the tree at once. It ends when the last file open there is closed.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn detach(&self) -> Result<(), MountError> {
        self.0.unmount(true)
    }
}

impl Session {
    /// Mounts `operations` on `dir` and returns when the mount answers requests. `source` is the
    /// device that the table of mounts shows; with [`MountOptions::block_device`] it is the device
    /// itself.
    ///
    /// # Errors
    /// The kernel or its helper refuses the mount, or the server cannot start.
    pub fn mount(
        operations: Arc<impl Operations + 'static>,
        source: impl AsRef<OsStr>,
        dir: impl AsRef<Path>,
        options: &MountOptions,
    ) -> Result<Session, MountError> {
        Session::mount_logged(
            operations,
            source,
            dir,
            options,
            Arc::new(|text| eprintln!("{text}")),
        )
    }

    /// As [`Session::mount`]. Any thread may report a failure of the server to `log`, which
    /// replaces standard error.
    ///
    /// # Errors
    /// As [`Session::mount`].
    pub fn mount_logged(
        operations: Arc<impl Operations + 'static>,
        source: impl AsRef<OsStr>,
        dir: impl AsRef<Path>,
        options: &MountOptions,
        log: Log,
    ) -> Result<Session, MountError> {
        let settings = operations.settings();
        let (fd, mounted) = mount::mount(source.as_ref(), dir.as_ref(), options)?;
        let served = serve(Arc::new(fd), operations, &settings, options, log);
        let session = match served {
            Ok((dispatch, pools)) => Session { mounted, pools, dispatch, over: false },
            Err(error) => {
                let _ = mounted.unmount(true);
                return Err(error);
            }
        };
        // From here on, dropping the session unmounts.
        rustix::fs::stat(session.mounted.dir()).map_err(MountError::Root)?;
        Ok(session)
    }

    /// A handle that unmounts.
    pub fn unmounter(&self) -> Unmounter {
        Unmounter(self.mounted.clone())
    }

    /// Unmounts and waits until all threads have ended.
    ///
    /// # Errors
    /// `Busy` leaves everything unchanged; errors of the system.
    pub fn unmount(mut self) -> Result<(), (Session, MountError)> {
        match self.mounted.unmount(false) {
            Ok(()) => {
                self.finish();
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }

    /// Waits until the kernel ends the connection, by unmount or abort, and all threads have ended.
    /// The log records an abort.
    pub fn wait(mut self) {
        self.finish();
    }

    /// Requests so far.
    pub fn requests(&self) -> &Requests {
        self.dispatch.requests()
    }

    /// The settings agreed on with the kernel.
    pub fn agreed(&self) -> &Agreed {
        self.dispatch.agreed()
    }

    fn finish(&mut self) {
        self.pools.iter().for_each(|pool| pool.wait());
        if self.mounted.is_there() {
            let dir = self.mounted.dir().display();
            self.dispatch
                .log_message(&format!("{dir}: the connection was aborted, and not unmounted"));
        }
        self.dispatch.destroy();
        self.over = true;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        match self.mounted.unmount(false) {
            Ok(()) => self.finish(),
            // Files are open: the mount ends when they are closed, or with the process.
            Err(MountError::Busy(_)) => drop(self.mounted.unmount(true)),
            Err(_) => {}
        }
    }
}

/// Answers INIT and starts the threads.
fn serve(
    connection: Arc<OwnedFd>,
    operations: Arc<dyn Operations>,
    settings: &Settings,
    options: &MountOptions,
    log: Log,
) -> Result<(Arc<Dispatch>, Vec<Arc<WorkerPool>>), MountError> {
    let (unique, mut agreed, offered) = negotiate(&connection, settings)?;
    let rings = match options.transport {
        Transport::Best if offered.contains(InitFlags::OVER_IO_URING) => {
            uring::prepare(&agreed, &connection, options.threads)
        }
        _ => None,
    };
    // Offer io_uring to the kernel only if rings are ready: with it agreed, every request would
    // wait until the rings are registered.
    agreed.flags.set(InitFlags::OVER_IO_URING, rings.is_some());
    dev::answer_init(&connection, unique, &agreed.reply()).map_err(MountError::Broken)?;
    let dispatch = Dispatch::new(operations, agreed, Arc::clone(&log));
    let dispatch = Arc::new(dispatch.with_notices(Arc::clone(&connection)));
    let cpu_latency = CpuLatencyHold::new(options.idle, &log);
    let start =
        |rings: uring::Prepared| rings.start(&dispatch, &connection, cpu_latency.as_ref(), &log);
    let mut pools = rings.map_or_else(Vec::new, start);
    let dev = Arc::new(Dev { dispatch: Arc::clone(&dispatch), connection, cpu_latency, log });
    let pool = WorkerPool::new("extant-fuse", options.threads);
    for _ in 0..FIRST_THREADS {
        dev::start(&dev, &pool).map_err(MountError::Thread)?;
    }
    pools.push(pool);
    Ok((dispatch, pools))
}

/// Reads INIT until the versions match. Returns the request's number, the agreement without
/// io_uring, and what the kernel offers.
fn negotiate(
    connection: &OwnedFd,
    settings: &Settings,
) -> Result<(u64, Agreed, InitFlags), MountError> {
    loop {
        let init = dev::read_init(connection).map_err(MountError::Broken)?;
        let (head, offer) = init.ok_or(MountError::Broken(Errno::NODEV))?;
        match Agreed::negotiate(&offer, settings) {
            Ok(agreed) => return Ok((head.unique, agreed, negotiate::offered(&offer))),
            Err(Refusal::SendMajor) => {
                let reply = abi::InitOut { major: abi::MAJOR, ..Default::default() };
                dev::answer_init(connection, head.unique, &reply).map_err(MountError::Broken)?;
            }
            Err(Refusal::TooOld { major, minor }) => {
                return Err(MountError::TooOld { major, minor });
            }
        }
    }
}
