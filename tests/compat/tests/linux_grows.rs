//! Volumes in use that Linux was growing when the power was cut: the log refers to blocks beyond
//! the size in the superblock at home.
//!
//! ```text
//!   guest: mount, syncs, resize2fs ──cut──► image ─┬─► extant reads, recovers ─► e2fsck, check
//!                                                  └─► Linux recovers a copy: same size, same tree
//! ```
//!
//! When the growth is done Linux empties the log, so each kind of volume is cut at several moments.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use extant_compat_tests::{Verdict, linux_confirms};
use extant_testkit::e2fsprogs::{dumpe2fs_superblock, e2fsck, mke2fs};
use extant_testkit::extant::Extant;
use extant_testkit::manifest::Look;
use extant_testkit::report::{expect_none, try_cases};
use extant_testkit::require;
use extant_testkit::scratch::{Scratch, copy_sparse};
use extant_testkit::uml::Uml;

/// Name, options for mke2fs. Groups of 8 MiB, so that many are added.
const KINDS: [(&str, &str); 3] = [
    ("resize-inode", "-b 1024 -J size=32 -E resize=100000000"),
    ("meta-bg", "-b 1024 -J size=32 -O ^resize_inode,meta_bg"),
    ("no-csum", "-b 1024 -J size=4 -O ^metadata_csum -E resize=100000000"),
];

/// The cut comes when this many files were synced during the growth.
const CUTS: [u32; 2] = [1, 2];

const BYTES: u64 = 256 << 20;
const LARGE_BYTES: u64 = 24 << 30;

/// The image of a volume of `options`, cut during its growth.
fn cut(options: &str, files: u32, dir: &Path, img: &Path) -> Result<(), String> {
    mke2fs(img, BYTES, options, None)?;
    let grow = |file: std::fs::File| file.set_len(LARGE_BYTES);
    std::fs::File::options().write(true).open(img).and_then(grow).map_err(|e| e.to_string())?;
    let script = format!(
        "mount -t ext4 /dev/ubda /dev/shm/m || exit 9\n\
         echo before > /dev/shm/m/before; sync -f /dev/shm/m\n\
         resize2fs /dev/ubda &\n\
         for n in $(seq {files}); do echo $n > /dev/shm/m/$n; sync /dev/shm/m/$n; done\n\
         echo o > /proc/sysrq-trigger; sleep 60\n"
    );
    let end = Uml::get()?.run(&script, &[img], dir, Duration::from_secs(120))?;
    // A guest without power does not report its end.
    if end.exit.is_some() { Err(end.to_string()) } else { Ok(()) }
}

/// The volume's size in blocks as dumpe2fs reads it, and whether its journal needs recovery.
fn size_of(img: &Path) -> Result<(u64, bool), String> {
    let text = dumpe2fs_superblock(img)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Block count:"));
    let blocks = line.and_then(|count| count.trim().parse().ok());
    Ok((blocks.ok_or("dumpe2fs tells no size")?, text.contains("needs_recovery")))
}

#[test]
fn a_volume_that_was_being_made_larger_is_recovered() {
    require!(E2fsprogs, Uml);
    let name = "linux_grows";
    let extant = Extant::get().expect("the extant command");
    let kept = Scratch::new();
    let verdicts = Mutex::new(Vec::new());
    let sizes = Mutex::new(Vec::new());
    let cases: Vec<_> =
        KINDS.iter().flat_map(|kind| CUTS.iter().map(move |files| (kind, *files))).collect();
    let case_name = |(kind, files): &(&(&str, &str), u32)| format!("{}-{files}", kind.0);
    let mut failures = try_cases(name, &cases, case_name, |case| {
        let (kind, files) = *case;
        let scratch = Scratch::new();
        let (img, by_linux) = (scratch.file("img"), kept.file(&case_name(case)));
        cut(kind.1, files, scratch.path(), &img)?;
        let (before, dirty) = size_of(&img)?;
        if !dirty {
            return Err("the cut left a volume that is whole".into());
        }
        copy_sparse(&img, &by_linux)?;

        let read = extant.manifest(&img).map_err(|e| format!("before recovery: {e}"))?;
        extant.run(&["replay".as_ref(), img.as_os_str()])?.success()?;
        // extant's own check is not used here: Linux leaves the bitmap of a group unwritten that
        // was the last one for a moment.
        e2fsck(&img, None).expect_clean()?;
        let expected = extant.manifest(&img)?;
        read.diff(&expected, Look::all()).expect_same("read-only | recovered")?;
        for synced in std::iter::once("/before".into()).chain((1..=files).map(|n| format!("/{n}")))
        {
            if !expected.entries.contains_key(&synced) {
                return Err(format!("{synced}: was synced, is gone"));
            }
        }
        let (after, _) = size_of(&img)?;
        sizes.lock().expect("no case panics with it").push((by_linux.clone(), before, after));
        verdicts.lock().expect("no case panics with it").push(Verdict {
            name: case_name(case),
            img: by_linux,
            journal: None,
            expected,
            look: Look::all(),
            recovered_by_linux: true,
        });
        Ok(format!("{before} blocks by home, {after} by the log"))
    });
    let guest = Scratch::new();
    let verdicts = verdicts.into_inner().expect("no case panics with it");
    failures.extend(linux_confirms(name, &verdicts, guest.path()));
    let sizes = sizes.into_inner().expect("no case panics with it");
    for (img, _, after) in &sizes {
        let by_linux = size_of(img).map(|(blocks, _)| blocks);
        if by_linux != Ok(*after) {
            failures.push(format!("{}: {after} blocks | {by_linux:?} by Linux", img.display()));
        }
    }
    expect_none(name, &failures);
    let grown = sizes.iter().filter(|(_, before, after)| before < after).count();
    assert!(grown > 0 || sizes.len() < CUTS.len(), "no cut came while the log reached further");
}
