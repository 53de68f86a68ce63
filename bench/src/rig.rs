//! The environment of benches: a temporary directory, volumes that the kernel mounts, processors.
//!
//! ```text
//!   Scratch ── image ── loop device ── mount      each is undone when dropped, the last made first
//! ```

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A directory for one run. It is removed with its contents, also when the bench fails.
pub(crate) struct Scratch(PathBuf);

/// The existing scratch directories.
static SCRATCH: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl Scratch {
    /// Creates the directory in `parent`.
    pub(crate) fn new(parent: &Path, bench: &str) -> Result<Scratch> {
        let dir = parent.join(format!("extant-{bench}-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = fs::canonicalize(dir)?;
        lock(&SCRATCH).push(dir.clone());
        Ok(Scratch(dir))
    }

    /// All existing scratch directories of this process.
    pub(crate) fn all() -> Vec<PathBuf> {
        lock(&SCRATCH).clone()
    }

    /// A path in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        lock(&SCRATCH).retain(|dir| *dir != self.0);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Syncs the filesystem that contains `path`. Others are left alone: a sync of all of them would
/// wait for everything that this machine has mounted.
pub(crate) fn sync_filesystem(path: &Path) -> Result<()> {
    let file = fs::File::open(path)?;
    rustix::fs::syncfs(file).with_context(|| format!("cannot sync {}", path.display()))
}

/// Those of `all` that `--only` names, or all if it names none.
pub(crate) fn chosen<S: Copy>(
    only: &[String],
    all: &[S],
    name: impl Fn(S) -> &'static str,
) -> Result<Vec<S>> {
    if only.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |wanted: &String| all.iter().copied().find(|one| name(*one) == wanted);
    match only.iter().map(find).collect() {
        Some(found) => Ok(found),
        None => {
            let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
            bail!("--only takes one of {}", names.join(", "))
        }
    }
}

/// Whether the bench may mount.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// A volume that the kernel has mounted.
pub(crate) struct Mount {
    dir: PathBuf,
    /// The device of the mount, detached after unmounting.
    device: Option<LoopDevice>,
}

impl Mount {
    /// Mounts an image through a loop device, which opens it with `O_DIRECT` if `direct`.
    ///
    /// Errors: `losetup` or `mount` fails; the error holds its message.
    pub(crate) fn image(image: &Path, dir: &Path, kind: &str, direct: bool) -> Result<Mount> {
        // Otherwise the kernel would initialise the inode tables while other subjects are measured.
        let options = if kind == "ext4" { "noatime,noinit_itable" } else { "noatime" };
        Mount::image_with(image, dir, kind, direct, options)
    }

    /// As [`Mount::image`], with other options.
    pub(crate) fn image_with(
        image: &Path,
        dir: &Path,
        kind: &str,
        direct: bool,
        options: &str,
    ) -> Result<Mount> {
        let device = LoopDevice::attach(image, direct)?;
        let from = device.0.clone();
        Mount::new(&from, dir, kind, options, Some(device))
    }

    /// A filesystem in memory, with large folios for large writes as in disk filesystems.
    pub(crate) fn tmpfs(dir: &Path, bytes: u64) -> Result<Mount> {
        Mount::new(
            Path::new("tmpfs"),
            dir,
            "tmpfs",
            &format!("noatime,huge=always,size={bytes}"),
            None,
        )
    }

    fn new(
        from: &Path,
        dir: &Path,
        kind: &str,
        options: &str,
        device: Option<LoopDevice>,
    ) -> Result<Mount> {
        fs::create_dir_all(dir)?;
        let mut mount = Command::new("mount");
        run(mount.args(["-t", kind, "-o", options]).arg(from).arg(dir))?;
        Ok(Mount { dir: dir.to_path_buf(), device })
    }

    /// A path in the volume.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The system's statistics file for the volume's device, if it has one.
    pub(crate) fn block_stat(&self) -> Option<PathBuf> {
        let LoopDevice(device) = self.device.as_ref()?;
        Some(Path::new("/sys/block").join(device.file_name()?).join("stat"))
    }

    /// Limits dirty bytes of the device to `bytes`. Returns whether the system supports such
    /// limits.
    pub(crate) fn limit_dirty(&self, bytes: u64) -> bool {
        let Some(LoopDevice(device)) = &self.device else { return false };
        let Some(name) = device.file_name().and_then(|name| name.to_str()) else { return false };
        let limits = PathBuf::from(format!("/sys/block/{name}/bdi"));
        fs::write(limits.join("max_bytes"), bytes.to_string()).is_ok()
            && fs::write(limits.join("strict_limit"), "1").is_ok()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Another process may still look at a fresh mount.
        for _ in 0..50 {
            if run(Command::new("umount").arg(&self.dir)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        eprintln!("extant-bench: cannot unmount {}", self.dir.display());
    }
}

/// An attached loop device, by its path.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn attach(image: &Path, direct: bool) -> Result<LoopDevice> {
        let direct = format!("--direct-io={}", if direct { "on" } else { "off" });
        let mut losetup = Command::new("losetup");
        let path = run(losetup.args(["--find", "--show", &direct]).arg(image))?;
        Ok(LoopDevice(path.trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The limits would stay with the device's number.
        if let Some(name) = self.0.file_name().and_then(|name| name.to_str()) {
            let limits = PathBuf::from(format!("/sys/block/{name}/bdi"));
            let _ = fs::write(limits.join("strict_limit"), "0");
            let _ = fs::write(limits.join("max_ratio"), "100");
        }
        if let Err(error) = run(Command::new("losetup").arg("--detach").arg(&self.0)) {
            eprintln!("extant-bench: {error:#}");
        }
    }
}

/// Runs a command to its end and returns its output.
///
/// Errors: it cannot be started, or fails; the error holds its message.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().with_context(|| format!("cannot run {name}"))?;
    if !done.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Binds the calling thread to the `n`-th processor, modulo their number. Threads it starts inherit
/// that.
pub(crate) fn pin(n: usize) {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(n % count);
    // Errors are ignored: the figures are the same, only less steady.
    let _ = sched_setaffinity(None, &set);
}

/// Binds the calling thread, and with it all threads and processes that it starts later, to the
/// first `count` of its processors.
///
/// Errors: it has fewer.
pub(crate) fn bind(count: usize) -> Result<()> {
    let all = sched_getaffinity(None)?;
    let (mut set, mut n) = (CpuSet::new(), 0);
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).take(count) {
        set.set(cpu);
        n += 1;
    }
    if count == 0 || n < count {
        bail!("cannot use {count} processors: there are {}", all.count());
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The `n`-th of `count` numbers in a scattered order that contains each once.
pub(crate) fn scatter(n: usize, count: usize) -> usize {
    // A prime that is larger than any count here has no factor in common with it. 2^31 - 1 would
    // count backwards for every power of two.
    (n as u64 * 2_654_435_761 % count as u64) as usize
}

/// The machine's load, in words.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    match text.split(' ').next() {
        Some(load) if !load.is_empty() => format!("load average at the start: {load}"),
        _ => "load average unknown".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_passes_its_processors_on() {
        let bound = std::thread::spawn(|| {
            bind(1).expect("there is one");
            let count =
                std::thread::spawn(|| std::thread::available_parallelism().map(usize::from));
            assert_eq!(count.join().expect("no panic").expect("a number"), 1);
            assert!(bind(2).is_err(), "only one is left");
            assert!(bind(0).is_err());
        });
        bound.join().expect("no panic");
    }
}
