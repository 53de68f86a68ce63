//! A mount of a block device that the table of mounts shows under the name of the image in it.
//!
//! ```text
//!   thread in a namespace    /dev/loop0 ──bind──► /home/u/disk.img
//!   of its own:              fsconfig source=/home/u/disk.img ──► the kernel finds the device
//!                            fsmount ──► a mount that is not attached yet
//!   caller:                  move_mount ──► DIR;  findmnt and df show /home/u/disk.img
//! ```
//! The kernel looks the source up as a block device and shows it as the text that it was given. The
//! namespace ends with the thread.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags,
};
use rustix::thread::UnshareFlags;
use std::ffi::OsStr;
use std::path::Path;

/// What to mount. `text` holds the options of the filesystem, separated by commas.
pub(crate) struct NamedMount<'a> {
    /// The block device.
    pub(crate) device: &'a OsStr,
    /// An existing file, by its absolute path.
    pub(crate) shown_as: &'a Path,
    pub(crate) subtype: &'a str,
    pub(crate) text: &'a str,
    pub(crate) flags: MountFlags,
}

impl NamedMount<'_> {
    /// Mounts it on `dir`.
    ///
    /// # Errors
    /// The error of the kernel. In that case nothing is mounted, and the caller's mounts are
    /// unchanged.
    pub(crate) fn mount(&self, dir: &Path) -> Result<(), Errno> {
        let detached = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("mount".into());
            let started = thread.spawn_scoped(scope, || self.detached()).map_err(|_| Errno::AGAIN);
            started?.join().unwrap_or(Err(Errno::IO))
        })?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(detached.as_fd(), c"", rustix::fs::CWD, dir, flags)
    }

    /// Makes the mount without attaching it. Moves the calling thread to a new mount namespace.
    fn detached(&self) -> Result<OwnedFd, Errno> {
        // SAFETY: only FILES could close descriptors of other threads, and it is not set.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
        // Otherwise the bind mount would propagate to all other namespaces.
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private)?;
        rustix::mount::mount_bind(self.device, self.shown_as)?;
        let made = self.made();
        let _ = rustix::mount::unmount(self.shown_as, UnmountFlags::DETACH);
        made
    }

    fn made(&self) -> Result<OwnedFd, Errno> {
        let context = rustix::mount::fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &str, value: &OsStr| {
            rustix::mount::fsconfig_set_string(context.as_fd(), key, value)
        };
        set("source", self.shown_as.as_os_str())?;
        set("subtype", OsStr::new(self.subtype))?;
        for option in self.text.split(',') {
            match option.split_once('=') {
                Some((key, value)) => set(key, OsStr::new(value))?,
                None => rustix::mount::fsconfig_set_flag(context.as_fd(), option)?,
            }
        }
        if self.flags.contains(MountFlags::RDONLY) {
            rustix::mount::fsconfig_set_flag(context.as_fd(), "ro")?;
        }
        rustix::mount::fsconfig_create(context.as_fd())?;
        let mut attributes = MountAttrFlags::empty();
        for (flag, attribute) in [
            (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
            (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
            (MountFlags::STRICTATIME, MountAttrFlags::MOUNT_ATTR_STRICTATIME),
            (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
        ] {
            attributes.set(attribute, self.flags.contains(flag));
        }
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        rustix::mount::fsmount(context.as_fd(), flags, attributes)
    }
}
