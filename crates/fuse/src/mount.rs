//! Mounting and unmounting: by system calls for root, by `fusermount3` for other users.
//!
//! ```text
//!   open /dev/fuse ──► mount(2) fd=N,rootmode=…          allowed to mount
//!        │ EPERM, EACCES
//!        └──► fusermount3 ──SCM_RIGHTS──► fd              not allowed
//! ```

use crate::connection::Idle;
use crate::mount_as::NamedMount;
use crate::transport::dev;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// libfuse's helper, which mounts for users without the privilege to mount.
const FUSERMOUNT: &str = "fusermount3";
/// The part after the dot in the mount's type.
const SUBTYPE: &str = "extant";

/// How requests reach the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// io_uring where the kernel and the process's limits permit it, otherwise `/dev/fuse`.
    #[default]
    Best,
    /// `/dev/fuse`.
    Dev,
}

/// How to mount. The default: read and write, access only for the user who mounts, and the kernel
/// checks permissions.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// No change is permitted.
    pub read_only: bool,
    /// Set-ID bits of programs have no effect.
    pub no_suid: bool,
    /// Device files cannot be opened.
    pub no_dev: bool,
    /// Programs cannot be run.
    pub no_exec: bool,
    /// Times of access are not updated.
    pub no_atime: bool,
    /// Every read updates the time of access. The table of mounts shows this option where the mount
    /// is made by system calls.
    pub strict_atime: bool,
    /// Times of access of directories are not updated. Shown like `strict_atime`.
    pub no_dir_atime: bool,
    /// Every user has access, not only the one who mounts. Without privilege this works only where
    /// `/etc/fuse.conf` permits it.
    pub allow_other: bool,
    /// The kernel checks permission bits. Without this, every user with access may do everything.
    pub default_permissions: bool,
    /// Mounts as `fuseblk`, a disk's filesystem: the source is a block device that no process has
    /// opened exclusively, and the value is the block size in bytes. The kernel then forwards
    /// `sync` to the filesystem, and an unmount waits until the filesystem has finished. Needs
    /// privilege.
    pub block_device: Option<u32>,
    /// A file, by its absolute path, that the table of mounts shows as the source in place of the
    /// block device: for example, the image in a loop device. Where the kernel does not support
    /// this, the table shows the block device.
    pub shown_as: Option<PathBuf>,
    /// How requests reach the server.
    pub transport: Transport,
    /// How deeply processors may sleep while requests come close together.
    pub idle: Idle,
    /// Largest number of threads that serve requests, at least 1.
    pub threads: usize,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            read_only: false,
            no_suid: false,
            no_dev: false,
            no_exec: false,
            no_atime: false,
            strict_atime: false,
            no_dir_atime: false,
            allow_other: false,
            default_permissions: true,
            block_device: None,
            shown_as: None,
            transport: Transport::Best,
            idle: Idle::Auto,
            threads: 64,
        }
    }
}

/// Why mounting or unmounting failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum MountError {
    /// The directory to mount on cannot be used.
    Place {
        /// The directory.
        dir: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// `/dev/fuse` cannot be opened.
    Device(Errno),
    /// The kernel refused the mount.
    Refused {
        /// The directory.
        dir: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// `fusermount3` could not be run.
    NoHelper(io::Error),
    /// `fusermount3` failed.
    Helper {
        /// Its message.
        output: String,
    },
    /// The kernel's protocol is too old.
    TooOld {
        /// Its version.
        major: u32,
        /// Its version.
        minor: u32,
    },
    /// The connection failed before the mount answered.
    Broken(Errno),
    /// No thread could be started.
    Thread(io::Error),
    /// The root's attributes cannot be read.
    Root(Errno),
    /// Files are open on the mount, or another filesystem is mounted on it.
    Busy(PathBuf),
    /// The filesystem is not mounted there, or a different one is.
    NotMounted(PathBuf),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place { dir, errno } => {
                write!(
                    f,
                    "cannot mount on {}: {errno}; give a directory that exists",
                    dir.display()
                )
            }
            Self::Device(Errno::NOENT) => {
                f.write_str("there is no /dev/fuse; load the kernel's fuse module (modprobe fuse)")
            }
            Self::Device(errno) => {
                write!(f, "cannot open /dev/fuse: {errno}; run as root, or allow it to this user")
            }
            Self::Refused { dir, errno } => {
                write!(f, "the kernel refused to mount on {}: {errno}", dir.display())
            }
            Self::NoHelper(error) => write!(
                f,
                "{FUSERMOUNT} cannot be run: {error}; run as root, or install the package fuse3"
            ),
            Self::Helper { output } => write!(f, "{FUSERMOUNT} failed: {output}"),
            Self::TooOld { major, minor } => {
                write!(f, "the kernel speaks FUSE {major}.{minor}; 7.31 (Linux 5.4) is needed")
            }
            Self::Broken(errno) => write!(f, "the kernel broke off the new mount: {errno}"),
            Self::Thread(error) => write!(f, "no thread to serve the mount: {error}"),
            Self::Root(errno) => write!(f, "the root of the mount cannot be shown: {errno}"),
            Self::Busy(dir) => {
                write!(f, "{} is busy; close what is open there, or unmount lazily", dir.display())
            }
            Self::NotMounted(dir) => write!(f, "{} is not mounted by this process", dir.display()),
        }
    }
}

impl std::error::Error for MountError {}

/// Unmounts what is mounted on `dir`, whichever process serves it. With `lazily`, new callers no
/// longer see the mount at once, and it ends when its last file is closed.
///
/// # Errors
/// `Busy` while files are open there; `NotMounted`.
pub fn unmount(dir: &Path, lazily: bool) -> Result<(), MountError> {
    Mounted { dir: dir.to_path_buf(), id: None }.unmount(lazily)
}

/// A mount that this process made, and its directory.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    dir: PathBuf,
    /// The kernel's id of the mount, so that a different mount on `dir` is not removed.
    id: Option<u64>,
}

/// Mounts on `dir` and returns the connection to the kernel.
pub(crate) fn mount(
    source: &OsStr,
    dir: &Path,
    options: &MountOptions,
) -> Result<(OwnedFd, Mounted), MountError> {
    let place = |errno| MountError::Place { dir: dir.to_path_buf(), errno };
    let errno_of = |e: io::Error| Errno::from_io_error(&e).unwrap_or(Errno::INVAL);
    let dir = std::fs::canonicalize(dir).map_err(|e| place(errno_of(e)))?;
    let stat = rustix::fs::stat(&dir).map_err(place)?;
    if !FileType::from_raw_mode(stat.st_mode).is_dir() {
        return Err(place(Errno::NOTDIR));
    }
    let fd = match mount_directly(source, &dir, stat.st_mode, options) {
        Ok(fd) => fd,
        Err(MountError::Device(Errno::ACCESS | Errno::PERM))
        | Err(MountError::Refused { errno: Errno::PERM | Errno::ACCESS, .. })
            if options.block_device.is_none() =>
        {
            mount_by_helper(source, &dir, options)?
        }
        Err(error) => return Err(error),
    };
    let id = mount_id(&dir).ok();
    Ok((fd, Mounted { dir, id }))
}

fn mount_directly(
    source: &OsStr,
    dir: &Path,
    root_mode: u32,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    let fd = dev::open().map_err(MountError::Device)?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut text = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        fd.as_raw_fd(),
        root_mode & 0o170_000,
        uid.as_raw(),
        gid.as_raw(),
    );
    for option in words(options) {
        text.push(',');
        text.push_str(option);
    }
    let kind = match options.block_device {
        Some(block_bytes) => {
            text.push_str(&format!(",blksize={block_bytes}"));
            format!("fuseblk.{SUBTYPE}")
        }
        None => format!("fuse.{SUBTYPE}"),
    };
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, options.no_suid);
    flags.set(MountFlags::NODEV, options.no_dev);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    flags.set(MountFlags::NOATIME, options.no_atime);
    flags.set(MountFlags::STRICTATIME, options.strict_atime);
    flags.set(MountFlags::NODIRATIME, options.no_dir_atime);
    if let (Some(shown_as), Some(_)) = (&options.shown_as, options.block_device) {
        let named = NamedMount { device: source, shown_as, subtype: SUBTYPE, text: &text, flags };
        return match named.mount(dir) {
            Ok(()) => Ok(fd),
            // The failed attempt may have consumed the connection.
            Err(_) => {
                let plainly = MountOptions { shown_as: None, ..options.clone() };
                mount_directly(source, dir, root_mode, &plainly)
            }
        };
    }
    let text = CString::new(text).expect("numbers and words");
    rustix::mount::mount(source, dir, kind.as_str(), flags, Some(&*text))
        .map_err(|errno| MountError::Refused { dir: dir.to_path_buf(), errno })?;
    Ok(fd)
}

/// Options that the kernel and `fusermount3` both know by the same name.
fn words(options: &MountOptions) -> impl Iterator<Item = &'static str> {
    let all = [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
    ];
    all.into_iter().filter_map(|(set, word)| set.then_some(word))
}

fn mount_by_helper(
    source: &OsStr,
    dir: &Path,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    let mut text = CommaText::default();
    for option in words(options) {
        text.word(option);
    }
    for (set, word) in [
        (options.read_only, "ro"),
        (options.no_suid, "nosuid"),
        (options.no_dev, "nodev"),
        (options.no_exec, "noexec"),
        (options.no_atime, "noatime"),
    ] {
        if set {
            text.word(word);
        }
    }
    text.value("subtype", OsStr::new(SUBTYPE));
    text.value("fsname", source);
    let (ours, theirs) = UnixStream::pair().map_err(MountError::NoHelper)?;
    // `fusermount3` finds the socket by the descriptor number in this variable. Standard input is a
    // descriptor that the child inherits.
    let mut child = Command::new(FUSERMOUNT)
        .arg("-o")
        .arg(OsString::from_vec(text.0))
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(MountError::NoHelper)?;
    let received = receive_fd(&ours);
    let mut output = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.read_to_string(&mut output);
    }
    let status = child.wait().map_err(MountError::NoHelper)?;
    match received {
        Some(fd) if status.success() => Ok(fd),
        _ => Err(helper_failed(&output, status)),
    }
}

/// The error of a failed `fusermount3`: what it wrote, without its name at the start of each line,
/// or its exit status if it wrote nothing.
fn helper_failed(output: &str, status: ExitStatus) -> MountError {
    let lines = output.lines().map(|line| {
        let line = line.trim();
        line.strip_prefix(FUSERMOUNT).map_or(line, |rest| rest.trim_start_matches([':', ' ']))
    });
    let output = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    MountError::Helper { output: if output.is_empty() { status.to_string() } else { output } }
}

/// Mount options as text. Commas and backslashes in values are escaped.
#[derive(Default)]
struct CommaText(Vec<u8>);

impl CommaText {
    fn word(&mut self, word: &str) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        self.0.extend_from_slice(word.as_bytes());
    }

    fn value(&mut self, name: &str, value: &OsStr) {
        self.word(name);
        self.0.push(b'=');
        for &byte in value.as_bytes() {
            if matches!(byte, b',' | b'\\') {
                self.0.push(b'\\');
            }
            self.0.push(byte);
        }
    }
}

/// Receives one open file that was sent with a byte; `None` when the other end closed the socket.
fn receive_fd(socket: &UnixStream) -> Option<OwnedFd> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    received.ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// The kernel's id of what is mounted on `dir`. Sends no request to the filesystem.
fn mount_id(dir: &Path) -> Result<u64, Errno> {
    const MNT_ID: u32 = 0x1000;
    let mask = StatxFlags::from_bits_retain(MNT_ID);
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let seen = rustix::fs::statx(CWD, dir, flags, mask)?;
    if seen.stx_mask & MNT_ID == 0 { Err(Errno::NOSYS) } else { Ok(seen.stx_mnt_id) }
}

impl Mounted {
    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the mount is still visible there. Always false where the kernel's id is not known.
    pub(crate) fn is_there(&self) -> bool {
        self.id.is_some_and(|id| mount_id(&self.dir) == Ok(id))
    }

    /// Unmounts. With `lazily`, new callers no longer see the mount at once, and it ends when its
    /// last file is closed.
    pub(crate) fn unmount(&self, lazily: bool) -> Result<(), MountError> {
        if let (Some(id), Ok(there)) = (self.id, mount_id(&self.dir))
            && id != there
        {
            return Err(MountError::NotMounted(self.dir.clone()));
        }
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, lazily);
        match rustix::mount::unmount(&self.dir, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(MountError::Busy(self.dir.clone())),
            Err(Errno::INVAL | Errno::NOENT) => Err(MountError::NotMounted(self.dir.clone())),
            Err(Errno::PERM) => self.unmount_by_helper(lazily),
            Err(errno) => Err(MountError::Refused { dir: self.dir.clone(), errno }),
        }
    }

    fn unmount_by_helper(&self, lazily: bool) -> Result<(), MountError> {
        let mut command = Command::new(FUSERMOUNT);
        command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(&self.dir);
        let out = command.stdin(Stdio::null()).output().map_err(MountError::NoHelper)?;
        match out.status.success() {
            true => Ok(()),
            false => {
                let output = String::from_utf8_lossy(&out.stderr);
                match output.contains("busy") {
                    true => Err(MountError::Busy(self.dir.clone())),
                    false => Err(helper_failed(&output, out.status)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_bytes_are_guarded_in_options() {
        let mut text = CommaText::default();
        text.word("ro");
        text.value("fsname", OsStr::from_bytes(b"a,b\\\xFF"));
        assert_eq!(text.0, b"ro,fsname=a\\,b\\\\\xFF");
    }

    #[test]
    fn why_the_helper_failed_is_part_of_the_message() {
        use std::os::unix::process::ExitStatusExt;
        let failed = |output: &str| helper_failed(output, ExitStatus::from_raw(1 << 8)).to_string();
        assert_eq!(
            failed("fusermount3: failed to open /dev/fuse: Permission denied\n"),
            "fusermount3 failed: failed to open /dev/fuse: Permission denied"
        );
        assert_eq!(failed("fusermount3: one\n\nand two\n"), "fusermount3 failed: one; and two");
        assert_eq!(failed(""), "fusermount3 failed: exit status: 1");
    }
}
