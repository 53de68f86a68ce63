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
use options::Options;
use std::ffi::OsString;
use std::path::PathBuf;

/// The supported options. `table.rs` has the others.
const OPTIONS: &str = "Mount options (-o, separated by commas):
  ro                       change nothing; a volume in need of recovery is shown recovered
  rw                       change the volume (yes)
  sync, async              every change is durable before it is answered
  dirsync                  every change of names in directories is, as with chattr +D on all of them
  commit=SECONDS           how long a change may wait for the journal (5)
  fast_commit, nofast_commit   fsync of a file as one small record, on a volume with the feature (yes)
  data=ordered|journal|writeback
  errors=continue|remount-ro   what damage that is met does (as the volume says)
  noload, norecovery       with ro: the volume as it lies there, its journal not replayed
  discard, nodiscard       freed space goes back to the device, or is a hole of the image, once the
                           transaction that freed it is durable (no; extant trim does it for all)
  relatime                 a read that reaches extant sets the time of access where that is not
                           later than the last change, or a day old (yes). The kernel serves what
                           it has in its cache itself: such a read sets none. Times of access are
                           stored with sync, unmount, or once the kernel forgets the file
  strictatime              each read sets it, and reaches extant: the kernel keeps no file content
  noatime, nodiratime      no read sets it; none of a directory
  stripe=BLOCKS            large files begin at stripes of a RAID (as the superblock's hints say)
  minixdf, bsddf           df counts the filesystem's own metadata, or does not (bsddf)
  journal_path=DEVICE      the device of an external journal, as IMG?journal=DEVICE
  dontcache                data leaves extant's cache once it is on the device
  cache=SIZE               memory for file data (a quarter of all)
  allow_other              other users may use the mount (root: yes, unless noallow_other)
  default_permissions      the kernel checks permissions (root: yes, unless nodefault_permissions)
  uid=N gid=N              the volume's owner 0 is N here, and N is stored as 0
  uidmap=VOLUME:HERE:COUNT, gidmap=…   more of them; may be repeated
  quota                    limits in the volume's quota files hold
  writeback_cache          the kernel collects small writes: faster, but a full volume is told
                           late, holes not at all, and a crash can lose 30 seconds
  plain                    no loop device: `sync` and `umount` do not reach the volume then
  uring, nouring           FUSE over io_uring, where the kernel has it (yes)
  idle=auto|poll|halt      what processors do between requests that come close together.
                           poll: wait awake, as root; auto: that, where there are up to four
  dax_fc_bytelog=off|on|force
                           fsync stores what changed into mapped memory (off); needs fast_commit.
                           on: where that can be; force: there, or no mount to write
  dax=never|auto|always    map the image for that. auto: where it survives a power cut, as on
                           persistent memory; always: else it survives the server's end only
  suid dev exec nosuid nodev noexec    as mount(8) (root: suid, dev, exec; else nosuid, nodev)
";

const EXAMPLES: &str = "
Examples:
  extant mount disk.img /mnt
  extant mount -o ro 'disk.img?offset=1M' /mnt
  extant mount -o uid=1000,gid=1000 rootfs.img ~/rootfs
  extant unmount /mnt
  mount -t extant disk.img /mnt   with /sbin/mount.extant, a link to extant, as the Debian package has it
  disk.img /mnt extant noauto,user 0 0      the same in /etc/fstab

With -f under a service manager (systemd, Type=notify) the unit is ready when the mount can be used.

Exit status: 0 mounted (with -f: unmounted again, and the volume is clean), 1 failed.";

/// The text that help prints after the options of the command.
fn long_help() -> String {
    format!("{OPTIONS}{}{EXAMPLES}", table::help())
}

/// Mount the volume in IMG on DIR, for any program, journaled and crash safe.
///
/// Returns when the mount can be used. Changes are durable after fsync, and without it after 5 seconds
/// (commit=N). As root the mount is for everybody and permissions are checked; as another user it is for
/// that user alone, who may do anything on it, unless default_permissions is given.
///
/// A volume that extant has mounted already is shown on DIR, too, if root asks for it without other options: a bind mount.
///
/// End it with `extant unmount DIR`, which returns when the volume is clean. SIGUSR1 notes statistics where it
/// notes what goes wrong: commits, fast commits, and why others were none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = long_help())]
pub(crate) struct Args {
    /// Image file or block device, or IMG?offset=BYTES
    #[arg(value_name = "IMG")]
    image: OsString,
    /// The directory to mount it on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Mount options
    #[arg(short, long = "option", value_name = "OPTIONS", value_parser = options::parse)]
    option: Vec<Options>,
    /// Stay in the foreground until the volume is unmounted; say on standard error what goes wrong
    #[arg(short, long)]
    foreground: bool,
    /// Where to note what goes wrong (the system's log, unless in the foreground)
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[arg(long, hide = true, conflicts_with = "foreground")]
    in_background: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        if !self.in_background {
            let (image, options) = (Image::parse(&self.image)?, self.options()?);
            if let Some(first) = second::mounted_at(&image) {
                return second::bind(&first, &image, &self.dir, &options, self.foreground);
            }
        }
        match self.foreground || self.in_background {
            true => serve::serve(&self),
            false => background::start(),
        }
    }

    fn options(&self) -> Result<Options, Failure> {
        Options::all(&self.option)
    }
}
