//! `extant unmount`: ends a mount and returns when the volume is clean.

use crate::failure::{Failure, explained, print_message};
use crate::image::Image;
use crate::mounts::{Mounted, place_of};
use crate::shown::Shown;
use crate::verb::mount::second;
use extant::Error;
use extant::raid::record_of;
use extant_blockdev::FileOptions;
use extant_fuse::MountError;
use extant_ondisk::features::Incompat;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Unmount a volume that `extant mount` mounted, and wait until it is clean.
///
/// If another mount shows the same volume, the volume stays open, and the command does not wait.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant unmount /mnt
  extant unmount --lazy /mnt      detach it now, close the volume after its last use
  extant unmount disk.img         unmount the directory on which the image is mounted

`extant umount` is the same verb. A mount whose server was killed is removed, too.

Exit status: 0 unmounted and the volume is clean, 1 failed.")]
pub(crate) struct Args {
    /// Directory on which it is mounted, or the image if it is mounted on one directory
    #[arg(value_name = "DIR|IMG")]
    place: PathBuf,
    /// Detach the mount at once; the volume is closed when no program uses it any more
    #[arg(short, long)]
    lazy: bool,
}

/// The message for a dead mount that was removed.
pub(super) fn dead_mount_message(dir: &Path) -> String {
    format!("{}: unmounted: the server of this mount had ended", Shown::path(dir))
}

/// How long to wait before a message says why.
const MESSAGE_AFTER: Duration = Duration::from_secs(3);

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let mounted = self.mounted()?;
        let dir = &mounted.dir;
        let image = Image::parse(mounted.image.as_os_str())?;
        let is_dead = mounted.is_dead();
        extant_fuse::unmount(dir, self.lazy || is_dead).map_err(|error| match error {
            MountError::Busy(_) => Failure::new(error),
            _ => Failure::new(format!("{}: {error}", Shown::path(dir))),
        })?;
        if is_dead {
            print_message(dead_mount_message(dir));
        }
        if self.lazy || second::mounted_at(&image).is_some() {
            return Ok(0);
        }
        wait_until_free(&image.path)?;
        if !mounted.read_only {
            check_clean(&image)?;
        }
        Ok(0)
    }

    /// The mount on the directory, or the only mount of the image. Like umount(8), this prefers the
    /// directory.
    fn mounted(&self) -> Result<Mounted, Failure> {
        let name = Shown::path(&self.place);
        let place = place_of(&self.place)
            .map_err(|error| Failure::of_file("unmount it", &self.place, error))?;
        if let Some(mounted) = Mounted::on(&place)? {
            return Ok(mounted);
        }
        let image = Image::parse(self.place.as_os_str())?;
        let mut of_image = second::mounts_of(&image)?;
        match (of_image.pop(), of_image.pop()) {
            (Some(mounted), None) => Ok(mounted),
            (Some(last), Some(other)) => Err(Failure::new(format!(
                "{name}: is mounted on {} and on {}: name the directory",
                Shown::path(&other.dir),
                Shown::path(&last.dir)
            ))),
            _ => Err(Failure::new(format!(
                "{name}: not a mount of extant, nor an image that it mounted"
            ))),
        }
    }
}

/// Waits until the server has closed the image.
fn wait_until_free(image: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    let mut announced = false;
    loop {
        match FileOptions::new().open(image) {
            Err(Error::Busy) => {}
            // The image was moved or removed in the meantime, so nothing more can be checked.
            _ => return Ok(()),
        }
        if !announced && start.elapsed() > MESSAGE_AFTER {
            print_message(format_args!(
                "{}: waiting until all data is written …",
                Shown::path(image)
            ));
            announced = true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn check_clean(image: &Image) -> Result<(), Failure> {
    // The state of one member alone is not the state of the layout.
    let device = FileOptions::new().lock(false).open(&image.path);
    if device.is_ok_and(|device| !matches!(record_of(&device), Ok(None))) {
        return Ok(());
    }
    match image.options().recover(false).open(&image.path) {
        Ok(fs) if fs.superblock().features.incompat.contains(Incompat::RECOVER) => {
            Err(Failure::new(format!(
                "{}: could not be closed, and changes that were not synced may be lost: run \
                 `extant replay`, and see the mount's log",
                Shown::path(&image.name)
            )))
        }
        // Another process has opened it already, or the state cannot be read from one member alone.
        Ok(_) | Err(Error::Busy | Error::Member(_)) => Ok(()),
        Err(error) => {
            print_message(format_args!("{}: {}", Shown::path(&image.name), explained(&error)));
            Err(Failure::Reported)
        }
    }
}
