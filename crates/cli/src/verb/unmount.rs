//! `extant unmount`: ends a mount, and returns when the volume is clean.

use crate::failure::{Failure, explained, tell};
use crate::image::Image;
use crate::shown::Shown;
use crate::verb::mount::second;
use crate::verb::mount::source::image_of;
use extant::Error;
use extant::layout::record_of;
use extant_blockdev::FileOptions;
use extant_fuse::MountError;
use extant_ondisk::features::Incompat;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// End a mount that `extant mount` made, and wait until the volume is clean.
///
/// While another mount shows the same volume, it stays open and there is nothing to wait for.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant unmount /mnt
  extant unmount --lazy /mnt      take it out of sight now, end it when nobody uses it any more

Exit status: 0 unmounted and the volume is clean, 1 failed.")]
pub(crate) struct Args {
    /// The directory it is mounted on
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Take it out of sight at once; it ends when nobody uses it any more
    #[arg(short, long)]
    lazy: bool,
}

/// How long a wait goes on before it is said what is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let dir = std::path::absolute(&self.dir)
            .map_err(|error| Failure::of_file("unmount it", &self.dir, error))?;
        // A server that died leaves a directory that cannot be looked at.
        let dir = std::fs::canonicalize(&dir).unwrap_or(dir);
        let Some(mounted) = mounted_on(&dir)? else {
            return Err(Failure::new(format!(
                "{}: nothing that extant mounted is mounted there",
                Shown::path(&self.dir)
            )));
        };
        // Asked before it is unmounted: a loop device goes with the mount.
        let image = Image::parse(image_of(&mounted.source).as_os_str())?;
        extant_fuse::unmount(&dir, self.lazy).map_err(|error| match error {
            MountError::Busy(_) => Failure::new(error),
            _ => Failure::new(format!("{}: {error}", Shown::path(&self.dir))),
        })?;
        if self.lazy || second::mounted_at(&image).is_some() {
            return Ok(0);
        }
        wait_until_free(&image.path)?;
        if !mounted.read_only {
            check_clean(&image)?;
        }
        Ok(0)
    }
}

/// A mount of ours.
struct Mounted {
    source: PathBuf,
    /// The volume is as it was before.
    read_only: bool,
}

/// What is mounted on `dir`, from the kernel's table.
fn mounted_on(dir: &Path) -> Result<Option<Mounted>, Failure> {
    let table = std::fs::read("/proc/self/mountinfo")
        .map_err(|error| Failure::of_file("read it", Path::new("/proc/self/mountinfo"), error))?;
    let found = table.split(|&byte| byte == b'\n').rev().find_map(|line| {
        // id parent major:minor root DIR options [tags…] - type SOURCE options
        let mut fields = line.split(|&byte| byte == b' ');
        let at = unescaped(fields.nth(4)?);
        let read_only = fields.next()?.split(|&byte| byte == b',').any(|word| word == b"ro");
        let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (behind.next()?, behind.next()?);
        let ours = kind == b"fuse.extant" || kind == b"fuseblk.extant";
        let source = PathBuf::from(OsString::from_vec(unescaped(source)));
        (ours && at == dir.as_os_str().as_bytes()).then_some(Mounted { source, read_only })
    });
    Ok(found)
}

/// A field of the table: `\040` stands for a space, and so on.
pub(super) fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| first == b'\\');
        let byte = octal.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match byte {
            Some(byte) => {
                out.push(byte);
                rest = &behind[3..];
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
    out
}

/// Waits until the server has let go of the image.
fn wait_until_free(image: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    let mut said = false;
    loop {
        match FileOptions::new().open(image) {
            Err(Error::Busy) => {}
            // The image was moved or taken away meanwhile; nobody can say more.
            _ => return Ok(()),
        }
        if !said && start.elapsed() > PATIENCE {
            tell(format_args!("{}: waiting until it is written …", Shown::path(image)));
            said = true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn check_clean(image: &Image) -> Result<(), Failure> {
    // What one member alone says is not what the layout says.
    let device = FileOptions::new().lock(false).open(&image.path);
    if device.is_ok_and(|device| !matches!(record_of(&device), Ok(None))) {
        return Ok(());
    }
    match image.options().recover(false).open(&image.path) {
        Ok(fs) if fs.superblock().features.incompat.contains(Incompat::RECOVER) => {
            Err(Failure::new(format!(
                "{}: could not be closed, what was not synced may be lost: `extant replay` makes it whole; the mount's log \
                 says more",
                Shown::path(&image.name)
            )))
        }
        // Somebody else has it already.
        // Or it cannot be told from one member alone.
        Ok(_) | Err(Error::Busy | Error::Member(_)) => Ok(()),
        Err(error) => {
            tell(format_args!("{}: {}", Shown::path(&image.name), explained(&error)));
            Err(Failure::Told)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_the_mount_table_are_read() {
        assert_eq!(unescaped(br"/mnt/a\040b\134c"), b"/mnt/a b\\c");
        assert_eq!(unescaped(br"\04"), br"\04");
    }
}
