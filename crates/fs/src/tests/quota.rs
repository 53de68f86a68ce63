//! Quota kept up to date: files of several owners are created, filled, truncated, given away and
//! removed at random. At every stop, the quota files must match a count of all inodes.

use super::{Bench, NOW, Random, features};
use crate::audit::check::check_device;
use crate::inodes::create::NewInode;
use crate::space::inodes::InodeGoal;
use crate::state::inode::Body;
use crate::state::quota::{Quota, QuotaFile, QuotaPolicy};
use crate::tree::usage::Usage;
use crate::tree::xattr::by_name::XattrMode;
use extant_base::{BlockSize, Error, Ino};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::extent::ExtentState;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::quota::{QuotaEntry, QuotaKind};
use extant_ondisk::xattr::NameIndex;

const MKE2FS: &str = "-b 1024 -I 256 -O quota,project,ea_inode \
                      -E quotatype=usrquota:grpquota:prjquota,root_owner=3:4";

/// The entry of `id` in the quota file of `kind`.
fn entry(bench: &Bench, kind: QuotaKind, id: u32) -> Option<QuotaEntry> {
    let volume = &bench.volume;
    let all = crate::state::quota::quota_inodes(volume.at_open());
    let ino = all.iter().find(|(of, _)| *of == kind).unwrap().1;
    let mut body = volume.inodes().read(ino).unwrap();
    let mut file = QuotaFile { host: volume, ino, body: &mut body, handle: None };
    let info = file.info(kind).unwrap();
    info.get(&mut file, id).unwrap()
}

/// The quota files match a count of all inodes, by this engine's check and by e2fsck.
#[track_caller]
fn agree(bench: &Bench) {
    bench.judge();
    let report = check_device(bench.volume.device().clone(), &Default::default(), &()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

struct Run<'b> {
    bench: &'b Bench,
    random: Random,
    ids: Vec<u32>,
    files: Vec<(String, Ino, Body)>,
    made: usize,
}

impl<'b> Run<'b> {
    fn new(bench: &'b Bench, seed: u64, ids: &[u32]) -> Run<'b> {
        Run { bench, random: Random::new(seed), ids: ids.to_vec(), files: Vec::new(), made: 0 }
    }

    fn id(&mut self) -> u32 {
        self.ids[self.random.below(self.ids.len())]
    }

    fn create(&mut self) {
        self.made += 1;
        let name = format!("file {}", self.made);
        let (uid, gid, projid) = (self.id(), self.id(), self.id());
        let goal = InodeGoal::Other { parent: Ino::ROOT };
        let new = NewInode { uid, gid, projid, ..NewInode::at(goal, 0o100_644, NOW) };
        let made = self.bench.with(|volume, handle| {
            let (ino, mut body) = volume.inodes().allocate(handle, new)?;
            body.store(volume, handle)?;
            let mut root = volume.inodes().read(Ino::ROOT)?;
            let kind = EntryKind::Regular;
            volume.dir_mut(&mut root).insert(handle, name.as_bytes(), ino, kind)?;
            root.store(volume, handle)?;
            Ok((ino, body))
        });
        let (ino, body) = made.unwrap();
        self.files.push((name, ino, body));
    }

    fn step(&mut self) {
        if self.files.len() < 4 || self.random.below(5) == 0 && self.files.len() < 60 {
            return self.create();
        }
        let n = self.random.below(self.files.len());
        let (kind, start, len) =
            (self.random.below(6), self.random.below(200) as u32, self.random.below(9) as u32);
        let new_ids = (self.id(), self.id(), self.id());
        let value = vec![self.random.next() as u8; self.random.below(5000)];
        if kind == 0 {
            let (name, _, mut body) = self.files.swap_remove(n);
            let removed = self.bench.with(|volume, handle| {
                let mut root = volume.inodes().read(Ino::ROOT)?;
                volume.dir_mut(&mut root).remove(handle, name.as_bytes())?;
                root.store(volume, handle)?;
                volume.file_mut(&mut body).release_inode(handle)
            });
            return removed.unwrap();
        }
        let (_, _, body) = &mut self.files[n];
        let done = self.bench.with(|volume, handle| {
            match kind {
                1 => {
                    let state = ExtentState::Written;
                    volume
                        .file_mut(body)
                        .fill(handle, start..start + len, state, &mut |_| Ok(()))?;
                    let end = u64::from(start + len) << volume.block_size().log2();
                    body.disk.size = body.disk.size.max(end);
                }
                2 => volume.file_mut(body).unmap(handle, start..start + 40)?,
                3 => (body.disk.uid, body.disk.gid, body.disk.projid) = new_ids,
                _ => {
                    let value = (kind == 4).then_some(&*value);
                    let name = [b'a' + (start % 3) as u8];
                    let index = NameIndex::USER;
                    volume.xattrs_mut(body).set(handle, index, &name, value, XattrMode::Any)?;
                }
            }
            body.store(volume, handle)
        });
        match done {
            Ok(()) | Err(Error::NoAttribute | Error::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn usage_is_right_after_any_operations() {
    let block = BlockSize::from_bytes(4096).unwrap();
    let benches = [
        Bench::mke2fs(24, MKE2FS),
        Bench::made(32, features("quota,project").block_size(block)),
        Bench::mke2fs(24, "-b 1024 -O quota,bigalloc -C 4096"),
    ];
    for (seed, bench) in benches.iter().enumerate() {
        let mut run = Run::new(bench, seed as u64, &[0, 1, 100, 1000, 65536, u32::MAX]);
        for _ in 0..3 {
            (0..150).for_each(|_| run.step());
            agree(bench);
        }
        assert_eq!(bench.volume.context().errors_seen(), 0);
    }
}

#[test]
fn the_tree_grows_with_new_owners_and_shrinks_when_they_are_gone() {
    let bench = Bench::mke2fs(24, MKE2FS);
    let mut run = Run::new(&bench, 7, &[0]);
    for n in 0..120 {
        run.ids = vec![n * 70_001];
        run.create();
    }
    agree(&bench);
    assert_eq!(entry(&bench, QuotaKind::User, 70_001).map(|entry| entry.inodes), Some(1));
    for (name, _, mut body) in std::mem::take(&mut run.files) {
        let removed = bench.with(|volume, handle| {
            let mut root = volume.inodes().read(Ino::ROOT)?;
            volume.dir_mut(&mut root).remove(handle, name.as_bytes())?;
            root.store(volume, handle)?;
            volume.file_mut(&mut body).release_inode(handle)
        });
        removed.unwrap();
    }
    agree(&bench);
    assert!(entry(&bench, QuotaKind::User, 70_001).is_some());
    bench.volume.quota_accounting().sweep().unwrap();
    agree(&bench);
    for kind in [QuotaKind::User, QuotaKind::Group, QuotaKind::Project] {
        assert_eq!(entry(&bench, kind, 70_001), None);
    }
    run.ids = vec![5];
    run.create();
    agree(&bench);
}

#[test]
fn entries_are_there_before_they_are_needed() {
    let bench = Bench::mke2fs(24, MKE2FS);
    bench.volume.quota_accounting().prepare(7, 8, 9).unwrap();
    assert_eq!(entry(&bench, QuotaKind::User, 7), Some(QuotaEntry { id: 7, ..Default::default() }));
    assert_eq!(bench.volume.quota_accounting().credits(2), 6);
    agree(&bench);
}

#[test]
fn limits_hold_when_they_are_enforced() {
    let mut bench = Bench::mke2fs(24, MKE2FS);
    let volume = &mut bench.volume;
    let quota = Quota::of(volume.at_open(), QuotaPolicy::Enforce);
    volume.set_quota(quota);
    volume.quota_accounting().prepare(50, 0, 0).unwrap();
    let handle = volume.journal().start(extant_journal::Credits::blocks(9)).unwrap();
    let mut body = volume.inodes().read(Ino::USER_QUOTA).unwrap();
    let mut file =
        QuotaFile { host: volume, ino: Ino::USER_QUOTA, body: &mut body, handle: Some(&handle) };
    let mut info = file.info(QuotaKind::User).unwrap();
    let limits = QuotaEntry {
        id: 50,
        inodes_hard: 2,
        space_hard_kib: 10,
        space_soft_kib: 4,
        ..Default::default()
    };
    info.put(&mut file, &limits).unwrap();
    handle.stop().unwrap();
    let make = || {
        let goal = InodeGoal::Other { parent: Ino::ROOT };
        let new = NewInode { uid: 50, ..NewInode::at(goal, 0o100_644, NOW) };
        bench.with(|volume, handle| {
            let (ino, mut body) = volume.inodes().allocate(handle, new)?;
            body.store(volume, handle)?;
            Ok((ino, body))
        })
    };
    let (_, mut body) = make().unwrap();
    let mut fill = |range: std::ops::Range<u32>| {
        bench.with(|volume, handle| {
            let state = ExtentState::Written;
            volume.file_mut(&mut body).fill(handle, range, state, &mut |_| Ok(()))?;
            body.store(volume, handle)
        })
    };
    fill(0..6).unwrap();
    assert!(entry(&bench, QuotaKind::User, 50).unwrap().space_grace_end > NOW.sec as u64);
    assert!(matches!(fill(6..12), Err(Error::QuotaExceeded)));
    fill(6..10).unwrap();
    let (_other, mut other_body) = make().unwrap();
    assert!(matches!(make(), Err(Error::QuotaExceeded)));
    bench.with(|volume, handle| volume.file_mut(&mut body).release_inode(handle)).unwrap();
    bench.with(|volume, handle| volume.file_mut(&mut other_body).release_inode(handle)).unwrap();
    assert_eq!(entry(&bench, QuotaKind::User, 50), Some(limits));
    agree(&bench);
}

#[test]
fn a_damaged_quota_file_is_left_alone_and_the_others_are_kept() {
    let bench = Bench::mke2fs(24, MKE2FS);
    bench
        .with(|volume, handle| {
            // The root of the users' tree points to a block far beyond the end of the file.
            let body = volume.inodes().read(Ino::USER_QUOTA)?;
            let block = volume.file(&body).content_block(extant_base::LogicalBlock(1))?;
            let block = block.unwrap();
            block.write(handle)?.bytes_mut()[..4].copy_from_slice(&0x00FF_FFFFu32.to_le_bytes());
            Ok(())
        })
        .unwrap();
    let mut run = Run::new(&bench, 3, &[9]);
    (0..3).for_each(|_| run.create());
    assert_eq!(bench.volume.context().errors_seen(), 1, "reported once");
    assert_eq!(entry(&bench, QuotaKind::Group, 9).map(|entry| entry.inodes), Some(3));
    let (ino, flags) = (run.files[0].1, InodeFlags::empty());
    assert_eq!(bench.volume.inodes().read(ino).unwrap().flags & InodeFlags::IMMUTABLE, flags);
}

#[test]
fn a_count_of_all_inodes_agrees_with_the_quota_files() {
    let bench = Bench::mke2fs(24, MKE2FS);
    let mut run = Run::new(&bench, 11, &[0, 77]);
    (0..80).for_each(|_| run.step());
    let mut usage = Usage::default();
    for (_, _, body) in &run.files {
        usage.charge(bench.volume.file(body)).unwrap();
    }
    let total = usage.totals(QuotaKind::Group)[&77];
    let says = entry(&bench, QuotaKind::Group, 77).unwrap();
    assert_eq!((says.inodes, says.space), (total.inodes, total.bytes));
}
