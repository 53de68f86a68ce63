//! `extant mount`: mounts a volume on a directory of this system.
//!
//! ```text
//!   extant mount ──spawns──► the same with --in-background ──► open ─► mount ─► "ready"
//!        │                                                                        │
//!        └── waits ◄──────────────────────────────────────────────────────────────┘
//!   … unmounted, or SIGTERM ──► volume closed: clean ─► the process ends
//! ```

mod background;
mod log;
mod notify;
mod options;
pub(super) mod second;
mod serve;
mod source;
mod statistics;
mod table;

use crate::failure::Failure;
use crate::image::Image;
use crate::repaired::ReadArgs;
use options::Options;
use std::ffi::OsString;
use std::path::PathBuf;

/// The supported options. `table.rs` has the others.
const OPTIONS: &str = "Mount options (-o, separated by commas):
  ro                       read only; recovery happens in memory
  rw                       read and write (yes)
  sync, async              whether every change is durable before the call returns (async)
  dirsync                  every change of names in directories is durable before the call returns,
                           as with chattr +D on all of them
  commit=SECONDS           interval between commits of the journal (5)
  fast_commit, nofast_commit   write small records for fsync, on a volume with the feature (yes)
  data=ordered|journal|writeback   mode of file data, as for the kernel's ext4 (ordered)
  errors=continue|remount-ro   behaviour when damage is found (as set in the superblock)
  noload, norecovery       with ro: do not replay the journal
  discard, nodiscard       after a commit, discard the freed blocks, or punch holes in an image
                           file (no; extant trim does it for all free space)
  relatime                 a read sets the access time if that is not later than the last change,
                           or is a day old (yes). Reads that the kernel serves from its cache do
                           not reach extant and do not set it. Access times are written by sync,
                           by unmount, or when the kernel drops the inode
  strictatime              every read sets the access time; the kernel caches no file content
  noatime, nodiratime      no read sets it; no read of a directory sets it
  stripe=BLOCKS            align large files to stripes of a RAID (as set in the superblock)
  minixdf, bsddf           whether df includes the filesystem's own metadata (bsddf: no)
  journal_path=DEVICE      device of an external journal, as IMG?journal=DEVICE
  dontcache                drop data from extant's cache after it is written
  cache=SIZE               memory for file data (a quarter of the machine's)
  allow_other              other users may use the mount (root: yes, unless noallow_other)
  default_permissions      the kernel checks permissions (root: yes, unless nodefault_permissions)
  uid=N gid=N              owner 0 on the volume is N on the mount, and N is stored as 0
  uidmap=VOLUME:HERE:COUNT, gidmap=…   map more ids; may be repeated
  quota                    enforce the limits in the volume's quota files
  writeback_cache          the kernel collects small writes: faster, but errors of a full volume
                           come late, holes are not seen, and a crash can lose 30 seconds
  plain                    no loop device: `sync` and `umount` then do not reach the volume
  uring, nouring           FUSE over io_uring if the kernel supports it (yes)
  idle=auto|poll|halt      poll: as root, keep processors awake between requests that follow each
                           other closely; halt: do not; auto: poll with up to four processors
  dax_fc_bytelog=off|on|force
                           fsync stores records into mapped memory (off); needs fast_commit.
                           on: if possible; force: fail a read-write mount if not possible
  dax=never|auto|always    whether to map the image for this. auto: if stores survive a power cut,
                           as on persistent memory; always: even if they survive only the end of
                           the server
  suid dev exec nosuid nodev noexec    as mount(8) (root: suid, dev, exec; else nosuid, nodev)
";

const EXAMPLES: &str = "
Examples:
  extant mount disk.img /mnt
  extant mount -o ro 'disk.img?offset=1M' /mnt
  extant mount -o uid=1000,gid=1000 rootfs.img ~/rootfs
  extant unmount /mnt
  mount -t extant disk.img /mnt             if /sbin/mount.extant is a link to extant
  disk.img /mnt extant noauto,user 0 0      the same in /etc/fstab

With -f under a service manager (systemd, Type=notify), the unit is ready when the mount is.

Exit status: 0 mounted (with -f: unmounted, and the volume is clean), 1 failed.";

/// The text that help prints after the options of the command.
fn long_help() -> String {
    format!("{OPTIONS}{}{EXAMPLES}", table::help())
}

/// Mount the volume in IMG on DIR, for any program, journaled and crash safe.
///
/// Returns when the mount is ready. Changes are durable after fsync, and without fsync after 5
/// seconds (commit=N). If root mounts, all users can use the mount, and permissions are checked. If
/// another user mounts, only that user can use it, and permissions are checked with
/// default_permissions only.
///
/// If extant has mounted the volume already, root without other options gets a bind mount of it on
/// DIR.
///
/// Unmount with `extant unmount DIR`, which returns when the volume is clean. SIGUSR1 writes
/// statistics to the log: commits, fast commits, and reasons for full commits.
#[derive(Debug, clap::Args)]
#[command(after_long_help = long_help())]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Directory on which it is mounted
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Mount options, see below
    #[arg(short, long = "option", value_name = "OPTIONS", value_parser = options::parse)]
    option: Vec<Options>,
    /// Stay in the foreground until the volume is unmounted; write errors to standard error
    #[arg(short, long)]
    foreground: bool,
    /// Log file for errors (default: the system's log, or standard error with -f)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[command(flatten)]
    read: ReadArgs,
    #[arg(long, hide = true, conflicts_with = "foreground")]
    in_background: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        if !self.in_background {
            let (image, options) = (Image::parse(&self.image)?, self.options()?);
            if let Some(first) = second::mounted_at(&image).filter(|_| !self.read.repaired) {
                return second::bind(&first, &image, &self.dir, &options, self.foreground);
            }
        }
        match self.foreground || self.in_background {
            true => serve::serve(&self),
            false => background::start(),
        }
    }

    fn options(&self) -> Result<Options, Failure> {
        let mut options = Options::all(&self.option)?;
        if self.read.repaired {
            // What a repair would leave exists only in memory.
            options.read_only = Some(true);
        }
        Ok(options)
    }
}
