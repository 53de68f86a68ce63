//! `extant stat`: shows everything known about single files.

use crate::failure::{Failure, print_message};
use crate::image::{Image, as_path, inner_path};
use crate::moment;
use crate::out::Out;
use crate::record::{Parts, Record, flag_letters};
use crate::repaired::ReadArgs;
use crate::shown::{Shown, Whole};
use crate::verb::ls::mode_letters;
use crate::walk::Visit;
use extant::{FileKind, Filesystem, Metadata};
use extant_ondisk::features::RoCompat;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Show everything about files: inode, times, flags, attributes, extents.
///
/// A symbolic link at the end of PATH is shown itself, not followed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant stat disk.img /bin/sh
  extant stat --extents disk.img /var/lib/db
  extant stat --json --hash disk.img /etc/passwd /etc/group

Exit status: 0 read, 1 something could not be read.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Files in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Show the extents of the content
    #[arg(short, long)]
    extents: bool,
    /// Print one JSON object per file (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// With --json, add the SHA-256 of the content
    #[arg(long, requires = "json")]
    hash: bool,
    #[command(flatten)]
    read: ReadArgs,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let fs = self.read.open(&image)?;
        let mut out = Out::new();
        let mut failed = false;
        for path in &self.paths {
            let path = inner_path(path)?;
            let meta = fs
                .symlink_metadata(as_path(&path))
                .map_err(|error| image.failure(&path, &error))?;
            let visit = Visit {
                path: &path,
                name: &path,
                ino: meta.ino(),
                kind: Some(meta.file_type()),
                metadata: Some(meta.clone()),
                depth: 0,
                last: true,
                is_repeated: false,
                siblings: &[],
                problems: Vec::new(),
            };
            match self.json {
                true => {
                    let parts = Parts { hash: self.hash, extents: self.extents };
                    let record = Record::of(&fs, visit, parts);
                    if let Some(error) = &record.error {
                        failed = true;
                        let name = Shown::path(&image.name);
                        print_message(format_args!("{name}: {}: {error}", Shown(&path)));
                    }
                    out.json(&record)?;
                }
                false => {
                    let shown = show(&fs, &path, &meta, self.extents, &mut out)?;
                    shown.map_err(|error| image.failure(&path, &error))?;
                }
            }
        }
        out.finish()?;
        Ok(u8::from(failed))
    }
}

/// The outer result is that of the output, the inner one that of the volume.
fn show(
    fs: &Filesystem,
    path: &[u8],
    meta: &Metadata,
    extents: bool,
    out: &mut Out,
) -> Result<Result<(), extant::Error>, Failure> {
    let node = match fs.node_of_ino(meta.ino()) {
        Ok(node) => node,
        Err(error) => return Ok(Err(error)),
    };
    let mut text = format!("   Path: {}", Whole(path));
    if meta.file_type() == FileKind::Symlink {
        match node.read_link() {
            Ok(target) => text += &format!(" -> {}", Whole(target.as_os_str().as_bytes())),
            Err(error) => return Ok(Err(error)),
        }
    }
    let kind = match meta.file_type() {
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Fifo => "named pipe",
        FileKind::Socket => "socket",
    };
    text += &format!("\n   Type: {kind}");
    if let Some(device) = meta.device() {
        text += &format!(" {}, {}", device.major, device.minor);
    }
    text += &format!("\n  Inode: {}  Generation: {}", meta.ino(), meta.generation());
    text += &format!("\n   Mode: {:04o} ({})", meta.permissions(), mode_letters(meta));
    text += &format!("\n  Owner: {}  Group: {}", meta.uid(), meta.gid());
    if fs.superblock().features.ro_compat.contains(RoCompat::PROJECT) {
        text += &format!("  Project: {}", meta.project());
    }
    text += &format!("\n  Links: {}", meta.nlink());
    text += &format!("\n   Size: {}  Sectors: {}", meta.len(), meta.sectors());
    text += &format!("\n  Flags: {:#x} ({})", meta.flags().bits(), flag_letters(meta.flags()));
    text += &format!("\n Access: {}", moment::full(meta.accessed()));
    text += &format!("\n Modify: {}", moment::full(meta.modified()));
    text += &format!("\n Change: {}", moment::full(meta.changed()));
    if let Some(birth) = meta.created() {
        text += &format!("\n  Birth: {}", moment::full(birth));
    }
    out.text(format_args!("{text}\n"))?;
    let attributes = match node.xattr_values() {
        Ok(attributes) => attributes,
        Err(error) => return Ok(Err(error)),
    };
    for (name, value) in &attributes {
        let printable = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
        match printable {
            true => out.text(format_args!(
                "  Xattr: {} = {:?}\n",
                Whole(name.as_bytes()),
                ascii(value)
            ))?,
            false => {
                let hex = crate::shown::hex(value);
                out.text(format_args!("  Xattr: {} = 0x{hex}\n", Whole(name.as_bytes())))?;
            }
        }
    }
    if extents && meta.is_file() {
        let pieces = match node.open().and_then(|file| file.extents()) {
            Ok(pieces) => pieces,
            Err(error) => return Ok(Err(error)),
        };
        for piece in pieces {
            let kind = if piece.written { "" } else { " unwritten" };
            let (from, len) = (piece.offset, piece.len);
            out.text(format_args!(
                " Extent: {len} bytes at {from}: block {}{kind}\n",
                piece.block
            ))?;
        }
    }
    Ok(Ok(()))
}

fn ascii(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}
