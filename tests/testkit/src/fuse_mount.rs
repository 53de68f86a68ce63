//! A volume that `extant mount` serves, unmounted on drop.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::command::{Finished, run};
use crate::extant::Extant;

const LIMIT: Duration = Duration::from_secs(120);

/// A mounted volume and its server. Dropping it ends both, also after a panic.
#[derive(Debug)]
pub struct FuseMount {
    extant: Extant,
    dir: tempfile::TempDir,
    server: Option<Child>,
    log: PathBuf,
}

impl FuseMount {
    /// Mounts `img`, or `IMG?member=OTHER`, with a server in the foreground; `options` are those
    /// after `-o`.
    pub fn new(img: &Path, options: &str) -> Result<Self, String> {
        let extant = Extant::get()?;
        let dir = tempfile::Builder::new().prefix("extant-fuse.").tempdir();
        let dir = dir.map_err(|e| format!("no mount point: {e}"))?;
        let file = img.as_os_str().as_bytes().split(|byte| *byte == b'?').next();
        let file = Path::new(OsStr::from_bytes(file.unwrap_or_default()));
        let log = file.with_extension("mount.log");
        let mut command = Command::new(extant.bin());
        command.args(["mount", "--foreground", "--log"]).arg(&log);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        command.arg(img).arg(dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).env("RUST_BACKTRACE", "1");
        let server = command.spawn().map_err(|e| format!("extant mount: {e}"))?;
        let mut mount = Self { extant, dir, server: Some(server), log };
        mount.wait_until_usable()?;
        Ok(mount)
    }

    fn wait_until_usable(&mut self) -> Result<(), String> {
        for _ in 0..3000 {
            if is_mounted(self.path()) {
                return Ok(());
            }
            let server = self.server.as_mut().expect("it was just started");
            if let Ok(Some(status)) = server.try_wait() {
                self.server = None;
                return Err(format!("extant mount ended with {status}: {}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(format!("extant mount did not come up: {}", self.log()))
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What the server has printed so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The server's process.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// Runs `extant unmount`. The server must exit with 0 and must have printed nothing.
    pub fn unmount(mut self) -> Result<(), String> {
        unmount(&self.extant, self.path().as_os_str())?.success()?;
        let mut server = self.server.take().expect("only unmount and kill take it");
        let status = server.wait().map_err(|e| format!("the server: {e}"))?;
        let log = self.log();
        match status.success() && log.is_empty() {
            true => Ok(()),
            false => Err(format!("the server ended with {status}: {log}")),
        }
    }

    /// Kills the server at once and removes the dead mount.
    pub fn kill(mut self) -> Result<(), String> {
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let _ = server.kill();
        let _ = server.wait();
        if is_mounted(self.path())
            && let Err(error) = run(Command::new("umount").arg("-l").arg(self.path()), LIMIT)
                .and_then(|d| d.success())
        {
            eprintln!("unmount: {error}");
        }
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let dir = dir.to_string_lossy();
    table.lines().any(|line| line.split(' ').nth(4) == Some(&*dir))
}

/// `extant unmount PLACE`, again while the mount is busy, at most 5 seconds: between fork and exec,
/// a program that another thread of the test starts has copies of the test's open files.
pub fn unmount(extant: &Extant, place: &OsStr) -> Result<Finished, String> {
    let mut command = Command::new(extant.bin());
    command.arg("unmount").arg(place);
    let mut done = run(&mut command, LIMIT)?;
    for _ in 0..50 {
        if done.ok() || !done.err().contains("busy") {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        done = run(&mut command, LIMIT)?;
    }
    Ok(done)
}
