//! `docs/guide`, run as a reader would: chapter by chapter, each in an empty directory.
//!
//! ```text
//!   chapter ──► block ──► reader: files written, commands typed, outputs compared
//!           └─► doc tests: rust.md, rust-io.md
//! ```
//! Doc tests of the crates run in such a directory, too ([`with_image`]). `EXTANT_BLESS=1` writes
//! outputs that differ into the chapter.
#![forbid(unsafe_code)]

pub mod block;
pub mod reader;

use extant::mkfs::{self, MkfsOptions};
use extant::{Environment, FileDevice, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_testkit::scratch::Scratch;
use std::sync::Arc;

/// Makes an empty directory the working directory of this process.
pub fn scratch_as_home() -> Scratch {
    let scratch = Scratch::new();
    std::env::set_current_dir(scratch.path()).expect("it was just made");
    scratch
}

/// A directory as [`scratch_as_home`] makes it, with a volume `disk.img` that contains what the
/// examples use.
pub fn with_image() -> Scratch {
    let here = scratch_as_home();
    let make = || -> extant::Result<()> {
        let device = Arc::new(FileDevice::create("disk.img", 64 << 20)?);
        let options = MkfsOptions::new().label("data")?.features("fast_commit")?.zeroed(true);
        mkfs::format(device, &options, &Environment::default())?;
        let fs = OpenOptions::new().write(true).open("disk.img")?;
        for dir in ["/etc", "/usr/bin", "/var/log"] {
            fs.create_dir_all(dir, &NewFile::directory())?;
        }
        for name in ["hostname", "motd", "passwd", "shadow"] {
            fs.write(format!("/etc/{name}"), format!("{name}\n"))?;
        }
        fs.write("/usr/bin/env", vec![0x7F; 100 << 10])?;
        fs.write("/var/log/syslog", "a line of the log\n".repeat(100))?;
        fs.write("/disk.raw", vec![0; 4 << 20])?;
        fs.close()
    };
    make().expect("there is room for it");
    here
}

/// A volume in memory, open for writing, with a small file `/file` and `disk.raw` of 1 MiB.
pub fn scratch_volume() -> Filesystem {
    let make = || -> extant::Result<Filesystem> {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        mkfs::format(device.clone(), &MkfsOptions::new(), &Environment::default())?;
        let fs = OpenOptions::new().write(true).open_device(device)?;
        fs.write("/file", "some text\n")?;
        fs.write("/disk.raw", vec![0; 1 << 20])?;
        Ok(fs)
    };
    make().expect("memory does not fail")
}

/// The chapters with Rust in them, and README.
#[cfg(doctest)]
mod rust {
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/rust.md"))]
    mod library {}
    #[doc = include_str!(concat!(env!("OUT_DIR"), "/rust-io.md"))]
    mod files {}
}
