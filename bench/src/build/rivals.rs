//! The programs that make an image or an archive of a tree.
//!
//! ```text
//!   tree      mke2fs -d, genext2fs, cp on a mount    the same kind of volume
//!             mksquashfs, mkfs.erofs                 images that can only be read; not compressed
//!             tar                                    no image: lower bound
//!   archive   tar2sqfs (lz4)                         an image from a tar
//!   oci       umoci                                  a container image, unpacked to a directory
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::process::{Cost, run};
use crate::rig::{self, Mount, is_root};

/// What a rival works on.
pub(super) struct Job<'a> {
    /// The tree, or the archive.
    pub(super) source: &'a Path,
    /// Where the output goes.
    pub(super) output: PathBuf,
    /// A directory for a mount.
    pub(super) mount: PathBuf,
    /// Size of extant's image of the same tree, bytes.
    pub(super) bytes: u64,
    /// Entries of the tree.
    pub(super) entries: u64,
}

/// A program to compare with.
pub(super) struct Rival {
    /// Its name in the figures.
    pub(super) name: &'static str,
    /// What must be there.
    program: &'static str,
    work: fn(&Job<'_>) -> Result<Cost>,
}

impl Rival {
    pub(super) const TREE: [Rival; 6] = [
        Rival { name: "mke2fs", program: "mke2fs", work: mke2fs },
        Rival { name: "genext2fs", program: "genext2fs", work: genext2fs },
        Rival { name: "cp-kernel-ext4", program: "mke2fs", work: cp },
        Rival { name: "mksquashfs", program: "mksquashfs", work: mksquashfs },
        Rival { name: "mkfs.erofs", program: "mkfs.erofs", work: mkfs_erofs },
        Rival { name: "tar", program: "tar", work: tar },
    ];
    pub(super) const ARCHIVE: [Rival; 1] =
        [Rival { name: "tar2sqfs", program: "tar2sqfs", work: tar2sqfs }];
    pub(super) const OCI: [Rival; 1] = [Rival { name: "umoci", program: "umoci", work: umoci }];

    /// Whether this machine can run it.
    pub(super) fn is_here(&self) -> bool {
        let needs_root = self.name == "cp-kernel-ext4" && !is_root();
        !needs_root && has(self.program)
    }

    /// Makes the output, durable, and removes it. Only the first is timed.
    pub(super) fn run(&self, job: &Job<'_>) -> Result<Cost> {
        let done = (self.work)(job);
        match fs::metadata(&job.output) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(&job.output)?,
            Ok(_) => fs::remove_file(&job.output)?,
            Err(_) => {}
        }
        done.context(self.name)
    }
}

/// Whether a program can be started.
pub(super) fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn success(status: i32) -> bool {
    status == 0
}

/// Size for a volume whose maker does not compute it, KiB.
fn volume_kib(job: &Job<'_>) -> u64 {
    job.bytes / 1024 * 5 / 4 + (128 << 10)
}

fn mke2fs(job: &Job<'_>) -> Result<Cost> {
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-i", "8192", "-d"]);
    command.arg(job.source).arg(&job.output).arg(format!("{}k", volume_kib(job)));
    run(&mut command, Some(&job.output), success)
}

fn genext2fs(job: &Job<'_>) -> Result<Cost> {
    let mut command = Command::new("genext2fs");
    command.args(["-B", "4096", "-b"]).arg((volume_kib(job) / 4).to_string());
    command.arg("-N").arg((job.entries * 5 / 4 + 64).to_string());
    command.arg("-d").arg(job.source).arg(&job.output);
    run(&mut command, Some(&job.output), success)
}

/// An empty volume, mounted, filled, unmounted.
fn cp(job: &Job<'_>) -> Result<Cost> {
    let start = Instant::now();
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-i", "8192"]).arg(&job.output);
    rig::run(make.arg(format!("{}k", volume_kib(job))))?;
    let mount = Mount::image(&job.output, &job.mount, "ext4", false)?;
    let mut command = Command::new("cp");
    command.arg("-a").arg(job.source.join(".")).arg(&job.mount);
    let cost = run(&mut command, None, success)?;
    drop(mount);
    File::open(&job.output)?.sync_all()?;
    Ok(Cost { wall_s: start.elapsed().as_secs_f64(), ..cost })
}

fn mksquashfs(job: &Job<'_>) -> Result<Cost> {
    let mut command = Command::new("mksquashfs");
    command.arg(job.source).arg(&job.output);
    command.args(["-noappend", "-no-progress", "-quiet", "-noI", "-noD", "-noF", "-noX"]);
    run(&mut command, Some(&job.output), success)
}

fn mkfs_erofs(job: &Job<'_>) -> Result<Cost> {
    let mut command = Command::new("mkfs.erofs");
    command.arg("--quiet").arg(&job.output).arg(job.source);
    run(&mut command, Some(&job.output), success)
}

fn tar(job: &Job<'_>) -> Result<Cost> {
    let mut command = Command::new("tar");
    command.arg("-cf").arg(&job.output).arg("-C").arg(job.source).arg(".");
    // Status 1: a file changed while tar read it.
    run(&mut command, Some(&job.output), |status| status <= 1)
}

fn tar2sqfs(job: &Job<'_>) -> Result<Cost> {
    let mut command = Command::new("sh");
    command.args(["-c", "exec tar2sqfs -q -f -c lz4 \"$2\" < \"$1\"", "sh"]);
    command.arg(job.source).arg(&job.output);
    run(&mut command, Some(&job.output), success)
}

fn umoci(job: &Job<'_>) -> Result<Cost> {
    let start = Instant::now();
    let mut image = job.source.as_os_str().to_owned();
    image.push(":bench");
    let mut command = Command::new("umoci");
    command.args(["unpack", "--image"]).arg(image).arg(&job.output);
    let cost = run(&mut command, None, success)?;
    rig::sync_filesystem(&job.output)?;
    Ok(Cost { wall_s: start.elapsed().as_secs_f64(), ..cost })
}

/// Makes an OCI layout in the directory `layout`, with one layer: the archive `tar`.
pub(super) fn oci_layout(tar: &Path, layout: &Path) -> Result<()> {
    let mut tag = layout.as_os_str().to_owned();
    tag.push(":bench");
    rig::run(Command::new("umoci").args(["init", "--layout"]).arg(layout))?;
    rig::run(Command::new("umoci").args(["new", "--image"]).arg(&tag))?;
    let mut add = Command::new("umoci");
    rig::run(add.args(["raw", "add-layer", "--image"]).arg(&tag).arg(tar))?;
    Ok(())
}
