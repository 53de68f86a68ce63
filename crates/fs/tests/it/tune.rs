//! Settings of existing volumes: e2fsck finds nothing, dumpe2fs shows the requested settings, and
//! Linux mounts them.

use extant::tune::{DefaultMountOpts, Tune, mark_checked, tune};
use extant::{Error, Filesystem};
use extant_testkit::e2fsprogs::{dumpe2fs, e2fsck, mke2fs};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::fs;
use std::path::Path;

const BYTES: u64 = 24 << 20;

fn source(dir: &Path) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    for n in 0..60 {
        fs::write(dir.join(format!("a/file {n}")), vec![n as u8; n * 700]).unwrap();
    }
}

/// The value of `field` in the output of dumpe2fs.
fn shown(img: &Path, field: &str) -> Result<String, String> {
    let text = dumpe2fs(img)?;
    let line = text.lines().find(|line| line.starts_with(field));
    Ok(line.unwrap_or_default()[field.len()..].trim().to_owned())
}

/// Name, options of mke2fs, features to change, and whether this machine's Linux can mount the
/// result.
const SWITCHES: &[(&str, &str, &str, bool)] = &[
    ("journal-on", "-b 1024 -O ^has_journal", "has_journal", true),
    ("journal-on-ext2", "-t ext2 -b 1024", "has_journal", true),
    ("journal-off", "-b 1024", "^has_journal", true),
    ("journal-off-ext3", "-t ext3 -b 1024", "^has_journal", true),
    ("journal-off-orphan-file", "-b 1024 -O orphan_file", "^has_journal", true),
    ("journal-and-more", "-b 1024 -O ^has_journal", "has_journal,orphan_file,fast_commit", true),
    ("orphan-file-on", "-b 1024", "orphan_file", true),
    ("orphan-file-off", "-b 1024 -O orphan_file", "^orphan_file", true),
    ("quota-on", "-b 1024", "quota", false),
    ("project-and-quota", "-b 1024", "project,quota", false),
    ("quota-off", "-b 1024 -O quota", "^quota", true),
    ("quota-project-off", "-b 1024 -O quota,project", "^quota,^project", true),
    ("fast-commit", "-b 1024 -J size=4", "fast_commit", true),
    ("journal-for-it", "-t ext2 -b 4096 -O fast_commit", "has_journal", true),
    ("seed-on", "-b 1024", "metadata_csum_seed", true),
    ("seed-off", "-b 1024 -O metadata_csum_seed", "^metadata_csum_seed", true),
    ("uninit-on", "-b 1024 -O ^metadata_csum,^uninit_bg", "uninit_bg", true),
    ("casefold", "-b 1024", "casefold", false),
    (
        "old-volume",
        "-t ext2 -b 1024 -O ^dir_index",
        "dir_index,large_file,dir_nlink,huge_file",
        true,
    ),
    ("large-dir", "-b 1024", "large_dir", true),
    ("ea-inode", "-b 1024", "ea_inode", true),
    ("verity", "-b 1024", "verity", false),
];

fn made(scratch: &Scratch, options: &str) -> Result<std::path::PathBuf, String> {
    let (from, img) = (scratch.file("from"), scratch.file("a.img"));
    source(&from);
    mke2fs(&img, BYTES, options, Some(&from))?;
    if options.contains("quota") {
        // mke2fs counts quota before it fills the volume.
        let done = std::process::Command::new("e2fsck").arg("-fy").arg(&img).output();
        done.map_err(|e| e.to_string())?;
    }
    Ok(img)
}

fn holds_all(img: &Path) -> Result<(), String> {
    let fs = Filesystem::open(img).map_err(|e| e.to_string())?;
    for n in 0..60 {
        let content = fs.read(format!("/a/file {n}")).map_err(|e| e.to_string())?;
        if content != vec![n as u8; n * 700] {
            return Err(format!("file {n} changed"));
        }
    }
    Ok(())
}

#[test]
fn default_mount_options_have_names_and_data_modes_replace_each_other() {
    let changes = Tune::default().mount_options("acl,journal_data_ordered,^user_xattr").unwrap();
    assert_eq!(
        changes.mount_options_on,
        DefaultMountOpts::ACL | DefaultMountOpts::JOURNAL_DATA_ORDERED
    );
    assert_eq!(
        changes.mount_options_off,
        DefaultMountOpts::XATTR_USER | DefaultMountOpts::JOURNAL_DATA
    );
    assert!(matches!(Tune::default().mount_options("none"), Err(Error::Invalid(_))));
}

#[test]
fn features_are_switched_and_the_volume_stays_consistent() {
    require!(Root, Loop, E2fsprogs);
    run_cases(
        "tune/features",
        SWITCHES,
        |row| row.0.to_owned(),
        |&(_, options, names, mountable)| {
            let scratch = Scratch::new();
            let img = made(&scratch, options)?;
            let changes = Tune::default().features(names).map_err(|e| e.to_string())?;
            let sb = tune(&img, &changes).map_err(|e| e.to_string())?;
            for (bit, on) in &changes.features {
                if sb.features.has(*bit) != *on {
                    return Err(format!("{bit:?} is not {on}"));
                }
            }
            e2fsck(&img, None).expect_clean()?;
            holds_all(&img)?;
            if mountable {
                let mount = LoopMount::rw(&img, "")?;
                fs::write(mount.path().join("new"), "new").map_err(|e| e.to_string())?;
                mount.unmount()?;
                e2fsck(&img, None).expect_clean()?;
            }
            Ok(sb.features.compat.to_string())
        },
    );
}

#[test]
fn label_uuid_and_limits_are_set_as_requested() {
    require!(E2fsprogs);
    let rows = [
        ("csum", "-b 1024"),
        ("seed", "-b 1024 -O metadata_csum_seed"),
        ("gdt-csum", "-b 1024 -O ^metadata_csum,uninit_bg"),
        ("none", "-t ext2 -b 1024"),
    ];
    run_cases(
        "tune/uuid",
        &rows,
        |row| row.0.to_owned(),
        |&(name, options)| {
            let scratch = Scratch::new();
            let img = made(&scratch, options)?;
            let uuid = *b"\x01\x02\x03\x04\x05\x06\x47\x08\x89\x0a\x0b\x0c\x0d\x0e\x0f\x10";
            let names = Tune {
                label: Some("fresh".into()),
                uuid: Some(uuid),
                reserved_blocks: Some(77),
                max_mounts: Some(9),
                errors: Some(extant_ondisk::superblock::ErrorPolicy::REMOUNT_RO),
                mount_text: Some("noatime".into()),
                ..Tune::default()
            };
            let sb = tune(&img, &names).map_err(|e| e.to_string())?;
            e2fsck(&img, None).expect_clean()?;
            holds_all(&img)?;
            for (field, value) in [
                ("Filesystem volume name:", "fresh"),
                ("Filesystem UUID:", "01020304-0506-4708-890a-0b0c0d0e0f10"),
                ("Reserved block count:", "77"),
                ("Maximum mount count:", "9"),
                ("Errors behavior:", "Remount read-only"),
                ("Mount options:", "noatime"),
            ] {
                let now = shown(&img, field)?;
                if now != value {
                    return Err(format!("{field} {now}"));
                }
            }
            let features = sb.features.to_owned();
            Ok(format!("{name}: {}", features.incompat))
        },
    );
}

#[test]
fn a_journal_counts_as_overhead_while_it_is_there() {
    require!(E2fsprogs);
    for options in ["-b 1024", "-t ext3 -b 1024", "-b 4096", "-b 1024 -O bigalloc -C 4096"] {
        let scratch = Scratch::new();
        let img = made(&scratch, options).unwrap();
        let overhead = |names: &str| {
            let changes = Tune::default().features(names).unwrap();
            let changes = Tune { journal_blocks: None, ..changes };
            tune(&img, &changes).unwrap().overhead_clusters
        };
        let with = Filesystem::open(&img).unwrap().superblock().overhead_clusters;
        let without = overhead("^has_journal");
        let plain = scratch.file("plain.img");
        mke2fs(&plain, BYTES, &format!("{options} -O ^has_journal"), None).unwrap();
        let known = Filesystem::open(&plain).unwrap().superblock().overhead_clusters;
        assert_eq!(without, known, "{options}");
        assert_eq!(overhead("has_journal"), with, "{options}");
        e2fsck(&img, None).expect_clean().unwrap();
    }
}

#[test]
fn an_existing_journal_keeps_its_size() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = made(&scratch, "-b 1024").unwrap();
    let size = Tune { journal_blocks: Some(2048), ..Tune::default() };
    let refused = tune(&img, &size);
    assert!(matches!(refused, Err(Error::NotSupported(why)) if why.contains("cannot be changed")));
    tune(&img, &Tune::default().features("^has_journal").unwrap()).unwrap();
    assert!(matches!(tune(&img, &size), Err(Error::Invalid(_))));
    tune(&img, &size.features("has_journal").unwrap()).unwrap();
    assert_eq!(shown(&img, "Total journal blocks:").unwrap(), "2048");
    e2fsck(&img, None).expect_clean().unwrap();
}

#[test]
fn changes_that_would_damage_the_volume_are_refused() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = made(&scratch, "-b 1024").unwrap();
    let before = fs::read(&img).unwrap();
    for names in [
        "^metadata_csum",
        "^extent",
        "64bit",
        "^dir_index",
        "bigalloc",
        "^flex_bg",
        "^resize_inode",
        "^64bit",
        "inline_data",
        "uninit_bg",
        // The journal has 1024 blocks.
        "fast_commit",
    ] {
        let changes = Tune::default().features(names).unwrap();
        let refused = tune(&img, &changes);
        // If the feature is off already, nothing is refused.
        assert!(matches!(refused, Err(Error::NotSupported(_)) | Ok(_)), "{names}: {refused:?}");
        assert!(names == "64bit" || refused.is_err(), "{names}");
    }
    let long = Tune { label: Some("seventeen letters".into()), ..Tune::default() };
    assert!(matches!(tune(&img, &long), Err(Error::Invalid(_))));
    assert!(Tune::default().features("no_such").is_err());
    assert!(fs::read(&img).unwrap() == before);
}

#[test]
fn a_check_is_recorded_and_clears_the_error_state() {
    require!(E2fsprogs);
    for options in ["-t ext4", "-t ext4 -O ^has_journal", "-t ext2"] {
        let scratch = Scratch::new();
        let img = scratch.file("a.img");
        mke2fs(&img, BYTES, options, None).unwrap();
        let changes = Tune {
            mount_count: Some(7),
            last_check: Some(1_000_000_000),
            last_mounted: Some("/there".into()),
            hash_version: Some(2),
            ..Tune::default()
        };
        let now = tune(&img, &changes).unwrap();
        assert_eq!((now.mnt_count, now.lastcheck, now.def_hash_version), (7, 1_000_000_000, 2));
        assert_eq!(shown(&img, "Last mounted on:").unwrap(), "/there");
        for field in ["state 3", "error_count 2", "first_error_time 20200101"] {
            let request = format!("set_super_value {field}");
            let mut command = std::process::Command::new("debugfs");
            assert!(command.args(["-w", "-R", &request]).arg(&img).status().unwrap().success());
        }
        let before = mark_checked(&extant::OpenOptions::new(), &img).unwrap();
        assert!(before.has_errors() && before.mnt_count == 7);
        assert_eq!(shown(&img, "Filesystem state:").unwrap(), "clean");
        assert_eq!(shown(&img, "Mount count:").unwrap(), "0");
        assert!(!dumpe2fs(&img).unwrap().contains("FS Error count:"));
        let now = Filesystem::open(&img).unwrap().superblock().clone();
        assert!(now.lastcheck > 1_000_000_000);
        e2fsck(&img, None).expect_clean().unwrap();
        let wrong = Tune { hash_version: Some(3), ..Tune::default() };
        assert!(matches!(tune(&img, &wrong), Err(Error::Invalid(_))));
    }
}
