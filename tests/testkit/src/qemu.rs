//! A separate machine: QEMU runs Debian's kernel with persistent memory, and is killed to simulate
//! a power cut.
//!
//! ```text
//!   host                                     guest
//!   /                ── 9p, read-only ──►    /               programs and libraries
//!   shared directory ── 9p ─────────────►    /mnt/work       init, script, what comes back
//!   memory file      ── its RAM ────────►    memory; 512 .. 896 MiB of it are /dev/pmem0, with DAX
//! ```
//!
//! The memory is a file, so its bytes remain after QEMU was killed, like those of persistent memory
//! after a power cut. They contain all stores that the guest executed. A cache line that was not
//! written back is not lost here, although a real machine would lose it. The crash suites model the
//! cache for that.
//!
//! The processor is emulated: times in the guest say nothing about a real machine, and ratios say
//! little.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::run;
use crate::scratch::{target_dir, workspace_dir};

/// Where persistent memory begins in the guest's memory, in bytes.
const PMEM_START: u64 = 512 << 20;
/// The length of the guest's persistent memory, in bytes.
pub const PMEM_BYTES: u64 = 384 << 20;
/// All memory of the guest, in bytes.
const MEMORY_BYTES: u64 = 1 << 30;

/// QEMU with a guest kernel.
#[derive(Debug, Clone)]
pub struct Qemu {
    home: PathBuf,
}

/// A running guest. Dropping it kills it.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    shared: PathBuf,
}

impl Qemu {
    /// The one in the target directory, fetched from Debian and set up on first use.
    pub fn get() -> Result<Self, String> {
        let home = target_dir().join("judges").join("qemu");
        let setup = workspace_dir().join("tests/testkit/qemu/setup");
        run(Command::new(setup).arg(&home), Duration::from_secs(600))?.success()?;
        Ok(Self { home })
    }

    /// Starts a guest that runs `script` (sh) with its persistent memory in `memory`. That file is
    /// created if it is missing, and keeps its bytes from guest to guest.
    ///
    /// `shared` is the guest's `/mnt/work`. In the script, `$MODULES` is the argument with which
    /// `modprobe` finds the modules of `nd_e820`, `nd_pmem`, `ext4` and `fuse`.
    pub fn start(&self, script: &str, shared: &Path, memory: &Path) -> Result<Guest, String> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(memory);
        file.and_then(|file| file.set_len(MEMORY_BYTES))
            .map_err(|e| format!("{}: {e}", memory.display()))?;
        let write = |name: &str, text: &str| {
            let path = shared.join(name);
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(&path, mode).map_err(|e| format!("{}: {e}", path.display()))
        };
        write("init", &self.init())?;
        write("script", script)?;
        let kernel = self.kernel()?;
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-no-reboot"])
            .args(["-display", "none", "-serial", "stdio", "-vga", "none", "-net", "none"])
            .args(["-machine", "q35,memory-backend=ram"])
            .args(["-m", &format!("{}M", MEMORY_BYTES >> 20)])
            .args(["-object", &format!(
                "memory-backend-file,id=ram,share=on,mem-path={},size={MEMORY_BYTES}",
                memory.display()
            )])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(self.home.join("initrd.gz"))
            .args(["-append", &format!(
                "console=ttyS0 panic=-1 quiet nokaslr mitigations=off memmap={}M!{}M guest_init={}",
                PMEM_BYTES >> 20,
                PMEM_START >> 20,
                shared.join("init").display()
            )])
            .args(["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"])
            .args(["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"])
            .args(["-fsdev", &format!(
                "local,id=work,path={},security_model=none,multidevs=remap",
                shared.display()
            )])
            .args(["-device", "virtio-9p-pci,fsdev=work,mount_tag=work"]);
        let console = File::create(shared.join("console"));
        let console = console.map_err(|e| format!("{}: {e}", shared.display()))?;
        let also = console.try_clone().map_err(|e| e.to_string())?;
        command.stdin(Stdio::null()).stdout(console).stderr(also);
        let child = command.spawn().map_err(|e| format!("qemu-system-x86_64: {e}"))?;
        Ok(Guest { child, shared: shared.to_owned() })
    }

    fn kernel(&self) -> Result<PathBuf, String> {
        let boot = self.home.join("boot");
        let files = std::fs::read_dir(&boot).map_err(|e| format!("{}: {e}", boot.display()))?;
        let mut kernels = files.flatten().map(|entry| entry.path());
        kernels
            .find(|path| {
                path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz"))
            })
            .ok_or_else(|| format!("{}: no kernel", boot.display()))
    }

    fn init(&self) -> String {
        format!(
            "#!/bin/sh\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs run /run\n\
             mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; mount -t tmpfs mnt /mnt; mkdir /mnt/work\n\
             mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=262144 work /mnt/work\n\
             export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run MODULES='-d {home}'\n\
             sh /mnt/work/script > /mnt/work/output 2>&1\n\
             echo $? > /mnt/work/exit\n\
             echo o > /proc/sysrq-trigger\n\
             sleep 60\n",
            home = self.home.display()
        )
    }
}

impl Guest {
    /// Waits until the script has created the file `name` in the shared directory, for at most
    /// `limit`.
    pub fn wait_for(&mut self, name: &str, limit: Duration) -> Result<(), String> {
        let end = Instant::now() + limit;
        while !self.shared.join(name).exists() {
            let ended = self.child.try_wait().map_err(|e| e.to_string())?;
            if ended.is_some() || Instant::now() > end {
                let said = |name| {
                    let bytes = std::fs::read(self.shared.join(name)).unwrap_or_default();
                    String::from_utf8_lossy(&bytes).into_owned()
                };
                let (output, console) = (said("output"), said("console"));
                return Err(format!("the guest made no {name}: {output}\nconsole: {console}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Cuts the power: kills QEMU at once.
    pub fn kill(mut self) {
        // An error means that it has just ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies the persistent memory of an ended guest from `memory` to a new image at `to`.
pub fn take_pmem(memory: &Path, to: &Path) -> Result<(), String> {
    let copy = || -> std::io::Result<()> {
        let mut from = File::open(memory)?;
        from.seek(SeekFrom::Start(PMEM_START))?;
        std::io::copy(&mut from.take(PMEM_BYTES), &mut File::create(to)?).map(drop)
    };
    copy().map_err(|e| format!("{} to {}: {e}", memory.display(), to.display()))
}

/// Copies the image at `from` into `memory`, the persistent memory of the next guest.
pub fn put_pmem(from: &Path, memory: &Path) -> Result<(), String> {
    let copy = || -> std::io::Result<()> {
        let mut to = OpenOptions::new().write(true).open(memory)?;
        to.seek(SeekFrom::Start(PMEM_START))?;
        std::io::copy(&mut File::open(from)?.take(PMEM_BYTES), &mut to).map(drop)
    };
    copy().map_err(|e| format!("{} to {}: {e}", from.display(), memory.display()))
}
