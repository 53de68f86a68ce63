//! `extant get`: copies files out of a volume, into a directory or a tar.
//!
//! ```text
//!   walk ─┬─► extract   files, with owners, modes, times, attributes, holes and hard links
//!         └─► archive   the same as a PAX tar, to a file or a pipe
//! ```

mod archive;
mod extract;
mod flags;
mod project;

pub(crate) use extract::times;

use crate::bar;
use crate::failure::{Failure, print_message};
use crate::image::{Image, as_path, inner_path};
use crate::repaired::ReadArgs;
use crate::shown::Shown;
use crate::walk::Visit;
use extant::Filesystem;
use indicatif::ProgressBar;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Copy files and directories out of a volume.
///
/// Directories are copied with everything below them. Modes, times, extended attributes, ACLs, hard
/// links, holes, named pipes and sockets are kept. Owners, device nodes and all inode flags (as
/// chattr sets them) are kept when run as root. Whatever is skipped is reported. Project ids are
/// not kept. A symbolic link at the end of PATH is copied, not followed. Nothing outside DEST is
/// written, and nothing in it is replaced without --force. With --tar, the copy is a tar archive
/// (PAX, with sparse files), which keeps owners and devices for every user, but no flags.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Destination:
  DEST does not exist     PATH is copied to the new name DEST
  DEST is a directory     PATH is copied into DEST; of / the content is copied into DEST
  DEST is -               the content of a file, or the tar archive, goes to standard output
  no DEST                 the current directory; with --tar standard output

Examples:
  extant get disk.img /etc/fstab
  extant get disk.img / rootfs
  extant get disk.img /usr/share/doc /tmp
  extant get --tar disk.img / root.tar
  extant get --tar disk.img /home | zstd > home.tar.zst

Exit status: 0 copied (except what only root can keep), 1 something failed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// File or directory in the volume
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Destination
    #[arg(value_name = "DEST")]
    dest: Option<PathBuf>,
    /// Write a tar archive
    #[arg(short, long)]
    tar: bool,
    /// Replace existing files
    #[arg(short, long)]
    force: bool,
    /// Do not keep owners, even as root
    #[arg(long)]
    no_owner: bool,
    /// Do not keep extended attributes and ACLs
    #[arg(long)]
    no_xattrs: bool,
    /// Do not keep inode flags; a copy with the immutable flag cannot be removed
    #[arg(long)]
    no_flags: bool,
    #[command(flatten)]
    read: ReadArgs,
}

/// State that both ways of copying share.
struct Job<'a> {
    args: &'a Args,
    image: &'a Image,
    fs: &'a Filesystem,
    /// Length of the part of a visit's path that the copy's path does not have.
    prefix: usize,
    /// Counts bytes of content.
    bar: ProgressBar,
    failed: bool,
}

impl Job<'_> {
    /// The path relative to the start; empty for the start itself.
    fn below<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        path.get(self.prefix..).unwrap_or_default()
    }

    fn report_error(&mut self, path: &[u8], error: impl std::fmt::Display) {
        self.failed = true;
        self.print_message(format_args!(
            "{}: {}: {error}",
            Shown::path(&self.image.name),
            Shown(path)
        ));
    }

    /// Prints a message without disturbing the bar.
    fn print_message(&self, text: impl std::fmt::Display) {
        self.bar.suspend(|| print_message(text));
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let fs = self.read.open(&image)?;
        let path = inner_path(&self.path)?;
        let meta =
            fs.symlink_metadata(as_path(&path)).map_err(|error| image.failure(&path, &error))?;
        let to_stdout = self.dest.as_deref().is_some_and(|dest| dest.as_os_str() == "-");
        let prefix = if path == b"/" { 1 } else { path.len() + 1 };
        let total = match path == b"/" {
            true => {
                let superblock = fs.superblock();
                let used = superblock.blocks_count.saturating_sub(superblock.free_blocks);
                used.saturating_mul(superblock.block_size.bytes() as u64)
            }
            // The size of a directory's content is known only at the end.
            false => meta.len(),
        };
        let bar = match meta.is_dir() && path != b"/" {
            true => ProgressBar::hidden(),
            false => bar::copying(total),
        };
        let job = Job { args: &self, image: &image, fs: &fs, prefix, bar, failed: false };
        if self.tar {
            return archive::run(job, &path);
        }
        if to_stdout {
            if !meta.is_file() {
                return Err(Failure::new(format!(
                    "{}: {}: only the content of a file can go to standard output: use --tar",
                    Shown::path(&image.name),
                    Shown(&path)
                )));
            }
            drop(job);
            drop(fs);
            return super::cat::Args::of(self.image, self.path, self.read).run();
        }
        let dest = self.dest.clone().unwrap_or_else(|| ".".into());
        let (dir, name) = match std::fs::metadata(&dest).is_ok_and(|dest| dest.is_dir()) {
            true => (dest.as_path(), own_name(&path).unwrap_or(b".")),
            false => match (dest.parent(), dest.file_name()) {
                (Some(dir), Some(name)) if dir.as_os_str().is_empty() => {
                    (".".as_ref(), name.as_bytes())
                }
                (Some(dir), Some(name)) => (dir, name.as_bytes()),
                _ => (dest.as_path(), &b"."[..]),
            },
        };
        extract::run(job, &path, dir, name)
    }
}

/// Why an entry below the start must not be copied, or `None`.
fn refused(visit: &Visit<'_>) -> Option<&'static str> {
    if visit.depth == 0 {
        None
    } else if !is_name(visit.name) {
        Some("skipped: the name would lead out of its directory")
    } else if visit.is_repeated {
        Some("skipped: its directory contains this name twice: `extant check` lists all damage")
    } else {
        None
    }
}

/// The last part of a path, if it is a valid name.
fn own_name(path: &[u8]) -> Option<&[u8]> {
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    Some(&path[start..]).filter(|name| is_name(name))
}

/// Whether `name` is valid and stays in its directory.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/') && !name.contains(&0)
}
