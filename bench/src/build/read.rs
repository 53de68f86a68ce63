use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use extant::{FileKind, Filesystem};

use crate::rig::Mount;

/// Reads everything below `path` once. Returns the number of entries and of data bytes.
pub(crate) fn warm(path: &Path) -> Result<(u64, u64)> {
    let (mut entries, mut bytes) = (0, 0);
    let mut buffer = vec![0; 1 << 20];
    let mut stack = vec![path.to_path_buf()];
    while let Some(path) = stack.pop() {
        entries += 1;
        let meta = fs::symlink_metadata(&path)?;
        if meta.is_dir() {
            for entry in fs::read_dir(&path)? {
                stack.push(entry?.path());
            }
        } else if meta.is_file() {
            let mut file = fs::File::open(&path)?;
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    len => bytes += len as u64,
                }
            }
        }
    }
    Ok((entries, bytes))
}

/// Number of threads that read a tree.
const READERS: usize = 2;

/// Reads all files of `list` with `read`, on [`READERS`] threads. Returns the number of bytes.
fn read_all<T: Sync>(
    list: &[T],
    read: impl Fn(&T, &mut [u8]) -> Result<u64> + Sync,
) -> Result<u64> {
    let (next, sum) = (AtomicUsize::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            let mut buffer = vec![0; 1 << 20];
            while let Some(item) = list.get(next.fetch_add(1, Ordering::Relaxed)) {
                sum.fetch_add(read(item, &mut buffer)?, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..READERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a reader panicked"))
    })?;
    Ok(sum.into_inner())
}

/// Walks and reads the image with extant's library. Returns bytes and seconds.
pub(super) fn walk_extant(image: &Path) -> Result<(u64, f64)> {
    let start = Instant::now();
    let fs = Filesystem::open(image)?;
    let mut files = Vec::new();
    for entry in fs.walk("/") {
        let entry = entry?;
        if entry.metadata()?.file_type() == FileKind::Regular {
            files.push(entry.path().to_path_buf());
        }
    }
    let bytes = read_all(&files, |path, buffer| {
        let file = fs.open_file(path)?;
        let mut at = 0;
        loop {
            match file.read_at(buffer, at)? {
                0 => return Ok(at),
                len => at += len as u64,
            }
        }
    })?;
    Ok((bytes, start.elapsed().as_secs_f64()))
}

/// The same through the kernel, mounted read-only at `dir`.
pub(super) fn walk_kernel(image: &Path, dir: &Path) -> Result<(u64, f64)> {
    let _mount = Mount::image_with(image, dir, "ext4", false, "ro,noatime")?;
    read_mounted(dir)
}

fn read_mounted(dir: &Path) -> Result<(u64, f64)> {
    let start = Instant::now();
    let mut files: Vec<OsString> = Vec::new();
    let mut stack = vec![dir.to_path_buf()];
    while let Some(path) = stack.pop() {
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            // Metadata is requested because extant's walk does it too.
            let meta = entry.metadata()?;
            if meta.is_dir() {
                stack.push(entry.path());
            } else if meta.is_file() {
                files.push(entry.path().into_os_string());
            }
        }
    }
    let bytes = read_all(&files, |path, buffer| {
        let mut file = fs::File::open(Path::new(std::ffi::OsStr::from_bytes(path.as_bytes())))?;
        let mut sum = 0;
        loop {
            match file.read(buffer)? {
                0 => return Ok(sum),
                len => sum += len as u64,
            }
        }
    })?;
    Ok((bytes, start.elapsed().as_secs_f64()))
}
