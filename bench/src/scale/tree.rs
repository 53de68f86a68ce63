//! A tree of many files.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use extant::mkfs::{InodeCount, MkfsOptions, format};
use extant::{Environment, NewFile};

use super::{Meter, check, open, sparse_file};
use crate::rig::scatter;

/// Files per directory.
const FILES: u64 = 1000;

/// Empty files in directories of a thousand each.
pub(crate) fn run(dir: &Path, files: u64, meter: &Meter) -> Result<()> {
    let device = sparse_file(dir, 16 << 30)?;
    let wanted = (files + files / 100 + 1000) as u32;
    let options = MkfsOptions::new().inodes(InodeCount::AtLeast(wanted));
    format(Arc::clone(&device), &options, &Environment::default())?;
    let path = |n: u64| format!("/d{}/file-{}", n / FILES, n % FILES);
    let fs = open(&device)?;
    meter.step("create", (files, "file"), || {
        let mut dir = None;
        for n in 0..files {
            if n % FILES == 0 {
                dir = Some(fs.create_dir(format!("/d{}", n / FILES), &NewFile::directory())?);
            }
            let dir = dir.as_ref().expect("made with its first file");
            dir.create_file(format!("file-{}", n % FILES), &NewFile::default())?;
        }
        Ok(())
    })?;
    meter.step("sync and close", (files, "file"), || Ok(fs.close()?))?;
    let fs = open(&device)?;
    let seen = meter.step("walk with metadata", (files, "file"), || {
        let mut seen = 0;
        for entry in fs.walk("/") {
            seen += u64::from(entry?.metadata()?.is_file());
        }
        Ok(seen)
    })?;
    ensure!(seen == files, "{seen} files were seen of {files}");
    let random = (0..files).map(|n| scatter(n as usize, files as usize) as u64);
    meter.step("stat by path, at random", (files, "file"), || {
        random.clone().try_for_each(|n| Ok(fs.metadata(path(n)).map(drop)?))
    })?;
    fs.close()?;
    meter.step("check", (files, "file"), || check(&device))?;
    let fs = open(&device)?;
    meter.step("remove", (files, "file"), || {
        for n in 0..files / FILES {
            let dir = fs.node(format!("/d{n}"))?;
            (0..FILES).try_for_each(|n| dir.remove_file(format!("file-{n}")))?;
            fs.remove_dir(format!("/d{n}"))?;
        }
        Ok(fs.sync()?)
    })?;
    fs.close()?;
    check(&device).map(drop)
}
