//! Quota through the API, with the real journal: whatever several owners do, and wherever the
//! writer is killed, the quota files match a count of all inodes.

use extant::{
    Error, FallocateMode, FileKind, Filesystem, InodeFlags, NewFile, OpenOptions, QuotaKind,
    QuotaLimits, SetAttributes, XattrMode,
};
use extant_testkit::command::run;
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::rng::{self, Rng};
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const IDS: [u32; 7] = [0, 1, 500, 1000, 65_536, 70_000, u32::MAX - 1];

fn volume(scratch: &Scratch, options: &str) -> std::path::PathBuf {
    let path = scratch.file("image");
    mke2fs(&path, 24 << 20, options, None).unwrap();
    path
}

fn open(path: &Path) -> Filesystem {
    // The copies that simulate a crash are opened while the original is open.
    OpenOptions::new().write(true).lock(false).open(path).unwrap()
}

/// One change below `dir`. Errors because of a lack of space or a missing name are accepted.
fn step(fs: &Filesystem, dir: &str, rng: &mut Rng) {
    let mut id = || IDS[rng.below(IDS.len())];
    let new = NewFile { uid: id(), gid: id(), project: id(), ..NewFile::default() };
    let owner = SetAttributes {
        uid: Some(id()),
        gid: Some(id()),
        project: Some(id()),
        ..SetAttributes::default()
    };
    let path = format!("{dir}/f{}", rng.below(30));
    let other = format!("{dir}/f{}", rng.below(30));
    let (at, len) = (rng.below(300_000) as u64, rng.below(60_000));
    let done = match rng.below(12) {
        0..=2 => fs.create_file(&path, &new).map(drop),
        3 => fs.create_dir(&path, &NewFile { mode: 0o755, ..new }).map(drop),
        4 => fs.symlink("x".repeat(at as usize % 900 + 1), &path, &new).map(drop),
        5 => fs.mknod(&path, FileKind::Fifo, &new).map(drop),
        6 => fs.open_file(&path).and_then(|file| file.write_all_at(&rng::bytes(at, len), at)),
        7 => fs.open_file(&path).and_then(|file| file.set_len(at / 2)),
        8 => fs.set_symlink_attributes(&path, &owner),
        9 => fs.set_xattr(&path, "user.a", &vec![7; len % 6000], XattrMode::Any),
        10 => fs.rename(&path, &other),
        _ => fs.remove_file(&path).or_else(|_| fs.remove_dir(&path)),
    };
    if let Err(error @ (Error::Corrupt { .. } | Error::Device { .. } | Error::Aborted { .. })) =
        done
    {
        panic!("{error}");
    }
}

const FEATURES: &str = "-b 1024 -I 256 -O quota,project,ea_inode -J size=4 \
                        -E quotatype=usrquota:grpquota:prjquota";

#[test]
fn usage_is_right_after_any_operations() {
    extant_testkit::require!(E2fsprogs);
    for (seed, options) in [FEATURES, "-b 4096 -O quota,^has_journal"].into_iter().enumerate() {
        let scratch = Scratch::new();
        let path = volume(&scratch, options);
        for round in 0..3 {
            let fs = open(&path);
            if round == 0 {
                for n in 0..4 {
                    fs.create_dir(format!("d{n}"), &NewFile::directory()).unwrap();
                }
            }
            std::thread::scope(|threads| {
                for n in 0..4u64 {
                    let fs = &fs;
                    threads.spawn(move || {
                        let mut rng = Rng::new(seed as u64 * 100 + round * 10 + n);
                        (0..150).for_each(|_| step(fs, &format!("d{n}"), &mut rng));
                    });
                }
            });
            fs.close().unwrap();
            e2fsck(&path, None).expect_clean().unwrap();
        }
    }
}

/// The quota findings of e2fsck after it replayed the log of a killed writer.
#[test]
fn usage_is_right_wherever_the_writer_is_killed() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let path = volume(&scratch, FEATURES);
    let (fs, mut rng) = (open(&path), Rng::new(3));
    fs.create_dir("d", &NewFile::directory()).unwrap();
    let copy = scratch.file("copy");
    for n in 0..20 {
        (0..15).for_each(|_| step(&fs, "d", &mut rng));
        if n % 2 == 0 {
            fs.sync().unwrap();
        }
        std::fs::copy(&path, &copy).unwrap();
        let mut fsck = Command::new("e2fsck");
        let done = run(fsck.arg("-fy").arg(&copy), Duration::from_secs(60)).unwrap();
        let says = done.out() + &done.err();
        assert!(!says.contains("QUOTA WARNING"), "after {n}: {says}");
        e2fsck(&copy, None).expect_clean().unwrap();
    }
}

#[test]
fn limits_hold_only_where_they_are_enforced() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let path = volume(&scratch, "-b 1024 -O quota");
    let fs = OpenOptions::new().write(true).enforce_quota(true).open(&path).unwrap();
    let new = NewFile { uid: 77, ..NewFile::default() };
    let file = fs.create_file("f", &new).unwrap().open().unwrap();
    file.write_all_at(&[1; 50_000], 0).unwrap();
    // An open file holds the volume.
    drop(file);
    fs.close().unwrap();
    set_limit(&path, 77, 64);
    let fs = OpenOptions::new().write(true).enforce_quota(true).open(&path).unwrap();
    let file = fs.open_file("f").unwrap();
    file.write_all_at(&[2; 10_000], 50_000).unwrap();
    assert!(matches!(file.write_all_at(&[3; 20_000], 60_000), Err(Error::QuotaExceeded)));
    assert_eq!(fs.read("f").unwrap()[..60_000].iter().filter(|byte| **byte == 2).count(), 10_000);
    file.set_len(10_000).unwrap();
    file.write_all_at(&[3; 40_000], 10_000).unwrap();
    drop(file);
    fs.close().unwrap();
    e2fsck(&path, None).expect_clean().unwrap();
    let fs = open(&path);
    fs.open_file("f").unwrap().write_all_at(&[4; 200_000], 0).unwrap();
    fs.close().unwrap();
    e2fsck(&path, None).expect_clean().unwrap();
}

#[test]
fn limits_that_are_set_bind_at_once_and_are_listed() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let path = volume(&scratch, "-b 1024 -O quota");
    let fs = OpenOptions::new().write(true).enforce_quota(true).open(&path).unwrap();
    let limits = QuotaLimits { bytes_hard: 65_000, inodes_hard: 2, ..QuotaLimits::default() };
    fs.set_quota_limits(QuotaKind::User, 77, &limits).unwrap();
    let new = NewFile { uid: 77, ..NewFile::default() };
    let file = fs.create_file("f", &new).unwrap().open().unwrap();
    file.write_all_at(&[1; 50_000], 0).unwrap();
    let more = file.write_all_at(&[2; 20_000], 50_000).and_then(|()| file.sync_all());
    assert!(matches!(more, Err(Error::QuotaExceeded)), "{more:?}");
    fs.create_file("g", &new).unwrap();
    assert!(matches!(fs.create_file("h", &new), Err(Error::QuotaExceeded)));
    fs.set_quota_limits(QuotaKind::User, 77, &QuotaLimits::default()).unwrap();
    fs.create_file("h", &new).unwrap();
    let soft = QuotaLimits { bytes_soft: 1024, inodes_soft: 1000, ..QuotaLimits::default() };
    fs.set_quota_limits(QuotaKind::User, 77, &soft).unwrap();
    fs.set_quota_limits(QuotaKind::Group, 88, &soft).unwrap();
    let project = fs.set_quota_limits(QuotaKind::Project, 1, &soft);
    assert!(matches!(project, Err(Error::NotSupported(_))), "{project:?}");
    assert_eq!(fs.quota(QuotaKind::Project).unwrap(), None);
    drop(file);
    fs.close().unwrap();
    e2fsck(&path, None).expect_clean().unwrap();
    let fs = Filesystem::open(&path).unwrap();
    let users = fs.quota(QuotaKind::User).unwrap().unwrap();
    let user = users.iter().find(|usage| usage.id == 77).unwrap();
    assert_eq!((user.inodes, user.limits), (3, soft));
    assert!(user.bytes >= 50_000 && users.windows(2).all(|two| two[0].id < two[1].id));
    let groups = fs.quota(QuotaKind::Group).unwrap().unwrap();
    assert!(groups.iter().any(|usage| usage.id == 88 && usage.limits == soft));
    let refused = fs.set_quota_limits(QuotaKind::User, 77, &soft);
    assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
}

/// One long change, like a copy of a tree, until something fails: names, content, owners,
/// attributes. Ids are far apart, so that their entries need their own blocks.
fn copy_until_full(fs: &Filesystem, rng: &mut Rng) -> extant::Result<()> {
    fs.create_dir_all("top", &NewFile::directory())?;
    for n in 0..200u64 {
        let id = |rng: &mut Rng| 77_777 * rng.below(40) as u32;
        let new = NewFile { uid: id(rng), gid: id(rng), project: id(rng), ..NewFile::default() };
        let dir = format!("top/{}", rng.below(12));
        let path = format!("{dir}/file {n} {}", "x".repeat(rng.below(200)));
        if !fs.exists(&dir)? {
            let flags =
                (rng.below(2) == 0).then_some(InodeFlags::EXTENTS | InodeFlags::PROJINHERIT);
            fs.create_dir(&dir, &NewFile { mode: 0o755, ..new })?;
            fs.set_attributes(&dir, &SetAttributes { flags, ..SetAttributes::default() })?;
        }
        if fs.symlink_metadata(&path).is_ok() {
            fs.remove_file(&path).or_else(|_| fs.remove_dir_all(&path))?;
        }
        match rng.below(8) {
            0 => drop(fs.symlink("x".repeat(1 + rng.below(900)), &path, &new)?),
            1 => drop(fs.create_dir(&path, &NewFile { mode: 0o755, ..new })?),
            2 => fs.remove_dir_all(format!("top/{}", rng.below(12))).or_else(
                |error| match error {
                    Error::NotFound => Ok(()),
                    error => Err(error),
                },
            )?,
            _ => {
                let file = fs.create_file(&path, &new)?.open()?;
                let most = 8 + rng.below(12);
                let len = rng.below(1 << most);
                file.write_all_at(&rng::bytes(n, len), rng.below(5000) as u64)?;
                let owner = SetAttributes {
                    uid: Some(id(rng)),
                    gid: Some(id(rng)),
                    project: Some(id(rng)),
                    ..SetAttributes::default()
                };
                fs.set_attributes(&path, &owner)?;
                if rng.below(4) == 0 {
                    fs.set_xattr(&path, "user.a", &vec![7; rng.below(900)], XattrMode::Any)?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn usage_is_right_after_changes_that_fail_on_a_full_volume() {
    extant_testkit::require!(E2fsprogs);
    let soak = std::env::var("EXTANT_SOAK").ok().and_then(|n| n.parse::<u64>().ok());
    for seed in 0..4 * soak.unwrap_or(1) {
        let features = match seed % 4 {
            3 => "quota,project,^has_journal",
            _ => "quota,project,orphan_file,fast_commit",
        };
        let options = format!("-b 1024 -I 256 -N 400 -O {features}");
        let scratch = Scratch::new();
        let path = scratch.file("image");
        mke2fs(&path, 6 << 20, &options, None).unwrap();
        let mut rng = Rng::new(seed);
        for round in 0..6 {
            let fs = open(&path);
            match copy_until_full(&fs, &mut rng) {
                Ok(()) | Err(Error::NoSpace | Error::LinkLimit) => {}
                Err(error) => panic!("seed {seed}, round {round}: {error}"),
            }
            drop(fs);
            let report = e2fsck(&path, None);
            report.expect_clean().unwrap_or_else(|why| panic!("seed {seed}, round {round}: {why}"));
        }
    }
}

/// Found by a power cut on a full volume: the inode that was released had never been charged.
#[test]
fn a_file_that_cannot_be_made_is_not_charged() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let path = volume(&scratch, "-b 4096 -O quota,project");
    let fs = open(&path);
    let big = fs.create_file("big", &NewFile::default()).unwrap().open().unwrap();
    let filled = big.allocate(FallocateMode::KeepSize, 0, 90_000_000);
    assert!(matches!(filled, Err(Error::NoSpace)), "{filled:?}");
    let refused = (0..1000).find_map(|n| {
        let made = fs.create_dir(format!("d{n}"), &NewFile::directory());
        made.err()
    });
    assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
    drop(big);
    fs.close().unwrap();
    e2fsck(&path, None).expect_clean().unwrap();
}

#[test]
fn a_new_owner_gets_an_entry_in_blocks_that_were_just_freed() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let path = volume(&scratch, "-b 1024 -m 0 -O quota,project");
    let fs = open(&path);
    let file = fs.create_file("file", &NewFile::default()).unwrap();
    let big = fs.create_file("big", &NewFile::default()).unwrap().open().unwrap();
    for len in [1 << 20, 1 << 10] {
        let refused = (0..1000)
            .find_map(|_| big.allocate(FallocateMode::Allocate, big.metadata().len(), len).err());
        assert!(matches!(refused, Some(Error::NoSpace)), "{refused:?}");
    }
    let filled = (0..1000).find_map(|n| fs.create_dir(format!("{n}"), &NewFile::directory()).err());
    assert!(matches!(filled, Some(Error::NoSpace)), "{filled:?}");
    let owner = SetAttributes { uid: Some(0x0102_0304), ..SetAttributes::default() };
    let refused = file.set_attributes(&owner);
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    drop(big);
    fs.remove_file("big").unwrap();
    file.set_attributes(&owner).unwrap();
    fs.close().unwrap();
    e2fsck(&path, None).expect_clean().unwrap();
}

/// Sets the hard space limit of a user with an entry, in KiB, directly in the bytes of the file.
fn set_limit(path: &Path, id: u32, kib: u64) {
    let mut image = std::fs::read(path).unwrap();
    let id = u64::from(id).to_le_bytes();
    let blocks = image.chunks_exact_mut(1024);
    let mut found = 0;
    for entry in blocks.flat_map(|block| block[16..].chunks_exact_mut(72)) {
        // Id, one inode, some space, no limits yet.
        let (limits, inodes) = (&entry[8..24], &entry[24..32]);
        if entry[..8] == id && limits == [0; 16] && inodes == 1u64.to_le_bytes() {
            entry[32..40].copy_from_slice(&kib.to_le_bytes());
            found += 1;
        }
    }
    // The log has a copy that nothing reads.
    assert!(found >= 1, "the user has an entry");
    std::fs::write(path, image).unwrap();
}
