//! A mount of a test filesystem on a directory of its own, over one transport.

use extant_fuse::abi::InitFlags;
use extant_fuse::{MountError, MountOptions, Operations, Session, Transport};
use extant_nullfs::Null;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

pub struct Rig<O: Operations + 'static = Null> {
    // Before the directory, so that it is dropped first.
    session: Option<Session>,
    pub operations: Arc<O>,
    dir: TempDir,
}

/// Enables the kernel's io_uring support while a mount is made, and restores the setting
/// afterwards.
struct Switched(Option<String>);

impl Switched {
    fn on() -> Switched {
        let before = fs::read_to_string(SWITCH).ok();
        if before.is_some() {
            let _ = fs::write(SWITCH, "Y");
        }
        Switched(before)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = fs::write(SWITCH, before.trim());
        }
    }
}

impl Rig<Null> {
    /// The filesystem in memory. `None`, with a reason printed, if this machine lacks the
    /// transport.
    pub fn new(transport: Transport) -> Option<Rig> {
        Rig::with(Null::default(), MountOptions { transport, ..Default::default() })
    }
}

impl<O: Operations + 'static> Rig<O> {
    pub fn with(operations: O, options: MountOptions) -> Option<Rig<O>> {
        static ONE: Mutex<()> = Mutex::new(());
        let dir = TempDir::new().unwrap();
        let operations = Arc::new(operations);
        let session = {
            let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
            let _on = (options.transport == Transport::Best).then(Switched::on);
            Session::mount(Arc::clone(&operations), "null", dir.path(), &options).unwrap()
        };
        let by_ring = session.agreed().flags.contains(InitFlags::OVER_IO_URING);
        if by_ring != (options.transport == Transport::Best) {
            println!("NOT RUN: the kernel offers no FUSE over io_uring, or io_uring is forbidden");
            return None;
        }
        Some(Rig { session: Some(session), operations, dir })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    pub fn take_session(&mut self) -> Session {
        self.session.take().unwrap()
    }

    /// Unmounts when the test has no files open. Programs that other tests start may hold files
    /// open between fork and exec.
    pub fn end(mut self) {
        let mut session = self.take_session();
        for _ in 0..100 {
            session = match session.unmount() {
                Ok(()) => return,
                Err((session, MountError::Busy(_))) => session,
                Err((_, error)) => panic!("{error}"),
            };
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("the mount stays busy");
    }
}
