//! Sums of data: every way of writing leaves blocks that match theirs, every way of reading finds those that do not,
//! overwritten blocks are others, and space for them is promised when it is asked for.

mod common;

use common::{judge, pattern};
use extant::check;
use extant::mkfs::{self, MkfsOptions};
use extant::resize::{Size, resize, resize_device};
use extant::tune;
use extant::{
    BlockDevice, BlockSize, DirectOptions, Environment, Error, FallocateMode, File, Filesystem,
    InodeFlags, MemoryDevice, NewFile, OpenOptions, SetAttributes, What,
};
use extant_base::{ByteOffset, IoOp};
use extant_blockdev::Faulty;
use extant_ondisk::features::RoCompat;
use extant_testkit::rng::Rng;
use extant_testkit::{e2fsprogs, require};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

type Device = Arc<MemoryDevice>;

fn seed() -> u64 {
    std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn below(rng: &mut Rng, end: u64) -> u64 {
    rng.below(end as usize) as u64
}

fn made(mib: u64, block: usize, features: &str) -> Device {
    let device = Arc::new(MemoryDevice::new(mib << 20));
    let size = BlockSize::ALL.into_iter().find(|size| size.bytes() == block).unwrap();
    let options = MkfsOptions::new().block_size(size).zeroed(true);
    let options = options.features(&format!("data_csum,{features}")).unwrap();
    mkfs::format(device.clone(), &options, &Environment::default()).unwrap();
    device
}

fn options(cache_mib: u64) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(cache_mib << 20);
    options
}

fn open(device: &Device, cache_mib: u64) -> Filesystem {
    options(cache_mib).open_device(device.clone()).unwrap()
}

fn create(fs: &Filesystem, name: &str) -> File {
    fs.root().unwrap().create(name, &NewFile::default()).unwrap().open().unwrap()
}

/// What the device holds, read without a cache.
fn read_back(device: &Device, name: &str) -> extant::Result<Vec<u8>> {
    let copy = Arc::new(MemoryDevice::copy_of(&**device).unwrap());
    OpenOptions::new().page_cache_bytes(0).open_device(copy).unwrap().read(name)
}

fn is_mismatch<T: std::fmt::Debug>(done: extant::Result<T>) -> bool {
    match done {
        Err(error @ Error::Corrupt { what: What::DataChecksum, at }) => {
            assert_eq!(error.errno(), 5);
            at.ino.is_some() && at.block.is_some()
        }
        _ => false,
    }
}

fn flip(device: &Device, at: u64) {
    let mut byte = [0];
    device.read_at(ByteOffset(at), &mut byte).unwrap();
    device.write_at(ByteOffset(at), &[byte[0] ^ 0x10]).unwrap();
}

#[test]
fn a_new_volume_with_sums_is_one_that_e2fsck_knows_without_them() {
    for (block, features) in
        [(1024, ""), (4096, "quota,^resize_inode"), (4096, "inline_data"), (65_536, "")]
    {
        let device = made(192, block, features);
        let fs = open(&device, 8);
        let file = create(&fs, "a");
        file.write_all_at(0, &pattern(300_000, 1)).unwrap();
        drop(file);
        fs.close().unwrap();
        judge(&*device);
        assert_eq!(read_back(&device, "/a").unwrap(), pattern(300_000, 1));
    }
}

#[test]
fn what_cannot_stand_beside_sums_is_refused() {
    for features in [
        "data_csum,bigalloc",
        "data_csum,^has_journal",
        "data_csum,^metadata_csum",
        "data_csum,^extent",
    ] {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let options = MkfsOptions::new().features(features).unwrap();
        assert!(
            matches!(
                mkfs::format(device, &options, &Environment::default()),
                Err(Error::Invalid(_))
            ),
            "{features}"
        );
    }
    let device = made(64, 4096, "");
    let journaled = options(8).data_mode(extant::DataMode::Journal).open_device(device.clone());
    assert!(matches!(journaled, Err(Error::NotSupported(_))));
    let fs = open(&device, 8);
    create(&fs, "a").write_all_at(0, &[1; 5000]).unwrap();
    let flags = |flags| SetAttributes { flags: Some(flags), ..SetAttributes::default() };
    for wish in [
        InodeFlags::JOURNAL_DATA | InodeFlags::EXTENTS,
        InodeFlags::empty(),
        InodeFlags::NOCOW | InodeFlags::EXTENTS,
    ] {
        assert!(
            matches!(fs.set_attributes("/a", &flags(wish)), Err(Error::NotSupported(_))),
            "{wish:?}"
        );
    }
    fs.close().unwrap();
    judge(&*device);
}

/// Random work against a plain vector, by every way in and out.
fn random_work(block: usize, cache_mib: u64, one_transaction: bool, seed: u64) {
    let device = made(if block > 4096 { 192 } else { 64 }, block, "");
    let mut rng = Rng::new(seed);
    let mut want: Vec<u8> = Vec::new();
    let mut opened = options(cache_mib);
    opened.one_transaction(one_transaction);
    let fs = opened.open_device(device.clone()).unwrap();
    let file = create(&fs, "f");
    for step in 0..120 {
        let at = below(&mut rng, 600_000);
        let len = 1 + below(&mut rng, if step % 5 == 0 { 200_000 } else { 9000 }) as usize;
        let bytes = pattern(len, below(&mut rng, 256) as u8);
        let end = at as usize + len;
        match below(&mut rng, if one_transaction { 6 } else { 9 }) {
            0..=2 => {
                file.write_all_at(at, &bytes).unwrap();
                want.resize(want.len().max(end), 0);
                want[at as usize..end].copy_from_slice(&bytes);
            }
            3 => {
                file.set_len(at).unwrap();
                want.resize(at as usize, 0);
            }
            4 if !one_transaction => {
                let mode =
                    [FallocateMode::PunchHole, FallocateMode::ZeroRange, FallocateMode::Allocate]
                        [below(&mut rng, 3) as usize];
                file.allocate(mode, at, len as u64).unwrap();
                if mode != FallocateMode::PunchHole {
                    want.resize(want.len().max(end), 0);
                }
                if mode != FallocateMode::Allocate {
                    let (from, to) = ((at as usize).min(want.len()), end.min(want.len()));
                    want[from..to].fill(0);
                }
            }
            4 | 5 => file.sync_data().unwrap_or_else(|error| assert!(one_transaction, "{error}")),
            6 | 7 => {
                let at = at / 512 * 512;
                let end = at as usize + len;
                let n = file.write_direct_at(at, &bytes, &DirectOptions::default()).unwrap();
                assert_eq!(n, len);
                want.resize(want.len().max(end), 0);
                want[at as usize..end].copy_from_slice(&bytes);
            }
            _ => {
                let mut buf = vec![0; len];
                let n = file.read_direct_at(at, &mut buf, &DirectOptions::default()).unwrap();
                let there = want.get(at as usize..).unwrap_or_default();
                assert!(buf[..n] == there[..len.min(there.len())], "seed {seed}, step {step}");
            }
        }
        let mut seen = vec![1; want.len() + 1];
        let n = file.read_at(0, &mut seen).unwrap();
        assert!(seen[..n] == want, "seed {seed}, step {step}: {} of {}", n, want.len());
    }
    drop(file);
    fs.close().unwrap();
    assert!(read_back(&device, "/f").unwrap() == want, "seed {seed}");
    judge(&*device);
    assert_eq!(findings(&device).0, [], "seed {seed}");
}

#[test]
fn whatever_is_written_is_read_back_and_matches() {
    let first = seed();
    for (n, block) in [1024, 4096, 65_536].into_iter().enumerate() {
        let seed = first + n as u64;
        random_work(block, 4, false, seed);
        random_work(block, 0, false, seed + 10);
        random_work(block, 0, true, seed + 20);
    }
}

#[test]
fn a_volume_with_sums_keeps_its_size_whichever_way_it_is_named() {
    require!(E2fsprogs);
    let device = made(16, 1024, "");
    let shared: Arc<dyn BlockDevice> = device.clone();
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    for size in [Size::Minimum, Size::Blocks(9000)] {
        let by_device = resize_device(&OpenOptions::new(), &shared, size, &mut |_, _| {});
        for refused in [by_device, resize(image.path(), size, &mut |_, _| {})] {
            assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}");
        }
        judge(&*device);
    }
}

#[test]
fn a_flipped_bit_is_found_by_every_way_of_reading() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let bytes = pattern(40_960, 3);
    let file = create(&fs, "f");
    file.write_all_at(0, &bytes).unwrap();
    drop(file);
    fs.close().unwrap();
    let mut image = vec![0; device.len() as usize];
    device.read_at(ByteOffset(0), &mut image).unwrap();
    let at = image.windows(4096).position(|window| *window == bytes[8192..12_288]).unwrap() as u64;
    for (skip, cache) in [(0, 0), (1234, 8), (4095, 8)] {
        flip(&device, at + skip);
        let fs = open(&device, cache);
        let file = fs.open_file("/f").unwrap();
        let mut buf = vec![0; 4096];
        assert_eq!(file.read_at(4096, &mut buf).unwrap(), 4096);
        assert!(is_mismatch(file.read_at(8192, &mut buf)), "buffered, {cache}");
        assert!(is_mismatch(file.read_at(8192 + 100, &mut buf[..10])), "a part");
        assert!(
            is_mismatch(file.read_direct_at(8192, &mut buf, &DirectOptions::default())),
            "direct"
        );
        let bounce = DirectOptions { bounce: extant::Bounce::Always, ..DirectOptions::default() };
        assert!(is_mismatch(file.read_direct_at(8192, &mut buf, &bounce)), "direct, copied");
        assert_eq!(file.read_direct_at(12_288, &mut buf, &bounce).unwrap(), 4096);
        assert_eq!(buf, bytes[12_288..16_384]);
        // Writing over a part of it would bless what is there; writing it whole mends it.
        assert!(is_mismatch(file.write_at(8192 + 5, &[1; 10]).and_then(|_| file.sync_data())));
        assert!(!fs.superblock().state.contains(extant_ondisk::superblock::VolumeState::ERROR));
        drop(file);
        drop(fs);
        flip(&device, at + skip);
        extant::OpenOptions::new().recover_device_in_place(device.clone()).unwrap();
    }
    let fs = open(&device, 8);
    assert_eq!(fs.read("/f").unwrap(), bytes);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_file_without_sums_is_written_in_place_and_hands_that_down() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let root = fs.root().unwrap();
    let dir = root.create_dir("d", &NewFile::directory()).unwrap();
    let nocow = |flags| SetAttributes { flags: Some(flags), ..SetAttributes::default() };
    dir.set_attributes(&nocow(InodeFlags::NOCOW | InodeFlags::EXTENTS)).unwrap();
    let file = dir.create("f", &NewFile::default()).unwrap().open().unwrap();
    assert!(file.metadata().flags().contains(InodeFlags::NOCOW));
    let covered = create(&fs, "g");
    let place = |file: &File| file.extents().unwrap()[0].block;
    let mut places = Vec::new();
    for round in 0..3u8 {
        for file in [&file, &covered] {
            file.write_all_at(0, &[round; 8192]).unwrap();
            file.sync_data().unwrap();
            places.push(place(file));
        }
    }
    assert!(places[0] == places[2] && places[2] == places[4], "{places:?}");
    assert!(places[1] != places[3] && places[3] != places[5], "{places:?}");
    drop((file, covered, dir, root));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_full_volume_says_so_at_the_write_and_keeps_what_it_took() {
    let device = made(24, 4096, "");
    let fs = open(&device, 32);
    let file = create(&fs, "f");
    let mut want = Vec::new();
    // All that is free, but for a little.
    while let Ok(n) = file.append(&pattern(65_536, want.len() as u8)) {
        want.extend_from_slice(&pattern(65_536, want.len() as u8)[..n]);
        if n < 65_536 {
            break;
        }
    }
    file.sync_all().unwrap();
    let mut rng = Rng::new(seed());
    let (mut refused, mut taken) = (0, 0);
    for step in 0..400 {
        let at = below(&mut rng, want.len() as u64 - 20_000);
        let bytes = pattern(1 + below(&mut rng, 20_000) as usize, step as u8);
        match file.write_at(at, &bytes) {
            Ok(n) => {
                want[at as usize..at as usize + n].copy_from_slice(&bytes[..n]);
                taken += 1;
            }
            Err(Error::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if step % 37 == 0 {
            file.sync_all().unwrap();
        }
        if step == 200 {
            want.truncate(want.len() - 500_000);
            file.set_len(want.len() as u64).unwrap();
        }
    }
    file.sync_all().unwrap();
    assert!(taken > 100, "{taken} taken, {refused} refused");
    drop(file);
    fs.close().unwrap();
    assert!(read_back(&device, "/f").unwrap() == want);
    judge(&*device);
}

#[test]
fn readers_of_a_file_that_is_written_over_and_over_never_meet_an_error() {
    let device = made(64, 4096, "");
    // A small cache: what is read was written back, and its blocks are others soon.
    let fs = options(1)
        .commit_interval(Some(std::time::Duration::from_millis(20)))
        .open_device(device.clone())
        .unwrap();
    let file = create(&fs, "f");
    const LEN: usize = 4 << 20;
    file.write_all_at(0, &vec![0; LEN]).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (file, ends) = (&file, &ends);
            scope.spawn(move || {
                let mut rng = Rng::new(seed() + writer);
                for _ in 0..1500 {
                    let n = below(&mut rng, LEN as u64 / 4096);
                    let byte = [below(&mut rng, 256) as u8; 4096];
                    match writer {
                        0 => file.write_at(n * 4096, &byte).unwrap(),
                        _ => file
                            .write_direct_at(n * 4096, &byte, &DirectOptions::default())
                            .unwrap(),
                    };
                    if n.is_multiple_of(100) {
                        file.sync_data().unwrap();
                    }
                }
                ends.store(true, Relaxed);
            });
        }
        for reader in 0..2u64 {
            let (file, ends) = (&file, &ends);
            scope.spawn(move || {
                let mut rng = Rng::new(seed() + 100 + reader);
                let mut buf = vec![0; 65_536];
                while !ends.load(Relaxed) {
                    let at = below(&mut rng, LEN as u64 / 65_536) * 65_536;
                    match reader {
                        0 => file.read_at(at, &mut buf).unwrap(),
                        _ => file.read_direct_at(at, &mut buf, &DirectOptions::default()).unwrap(),
                    };
                    for block in buf.chunks(4096) {
                        assert!(block.iter().all(|byte| *byte == block[0]), "a torn block");
                    }
                }
            });
        }
    });
    drop(file);
    fs.close().unwrap();
    read_back(&device, "/f").unwrap();
    judge(&*device);
    assert_eq!(findings(&device).0, []);
}

/// What a check of the volume and all its data finds.
fn findings(device: &Device) -> (Vec<What>, u64) {
    findings_of(device.clone())
}

fn findings_of(device: Arc<dyn BlockDevice>) -> (Vec<What>, u64) {
    let options = check::Options { data: true, ..check::Options::default() };
    let report = check::check_device(device, &options, &()).unwrap();
    let blocks = report.stats.data_blocks.unwrap_or(0);
    (report.findings.iter().map(|finding| finding.what).collect(), blocks)
}

fn switched(device: &Device, wish: &str) -> extant::Result<()> {
    let wish = tune::Tune::default().features(wish).unwrap();
    let device: Arc<dyn BlockDevice> = device.clone();
    tune::tune_device(&OpenOptions::new(), &device, &wish).map(|_| ())
}

#[test]
fn sums_are_switched_on_for_data_that_is_there_and_off_again() {
    let dir = tempfile::tempdir().unwrap();
    for (name, len) in [("small", 10), ("a", 70_000), ("b", 3_000_000)] {
        std::fs::write(dir.path().join(name), pattern(len, name.len() as u8)).unwrap();
    }
    for options in ["-b 1024 -O quota", "-b 4096 -O inline_data,^orphan_file", "-b 4096"] {
        let path = dir.path().with_extension("img");
        e2fsprogs::mke2fs(&path, 64 << 20, options, Some(dir.path())).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
        std::fs::remove_file(&path).unwrap();
        if options.contains("quota") {
            // mke2fs -d counts wrong.
            switched(&device, "^quota").unwrap();
            switched(&device, "quota").unwrap();
        }
        judge(&*device);
        switched(&device, "data_csum").unwrap();
        judge(&*device);
        let (found, blocks) = findings(&device);
        assert!(found.is_empty() && blocks > 700, "{options}: {found:?}, {blocks}");
        let fs = open(&device, 8);
        assert_eq!(fs.read("/b").unwrap(), pattern(3_000_000, 1));
        fs.open_file("/b").unwrap().write_all_at(12_345, &[7; 50_000]).unwrap();
        fs.close().unwrap();
        let fs = open(&device, 0);
        fs.open_file("/small").unwrap().append(&[8; 5000]).unwrap();
        fs.close().unwrap();
        assert_eq!(findings(&device).0, []);
        assert!(matches!(switched(&device, "^has_journal"), Err(Error::NotSupported(_))));
        let free = open(&device, 0).space().free;
        switched(&device, "^data_csum").unwrap();
        let fs = open(&device, 8);
        assert!(fs.space().free > free, "the file's blocks are free again");
        assert_eq!(fs.read("/small").unwrap()[10..], [8; 5000]);
        assert!(!fs.superblock().features.ro_compat.contains(RoCompat::DATA_CSUM));
        fs.close().unwrap();
        judge(&*device);
        switched(&device, "data_csum").unwrap();
        assert_eq!(findings(&device).0, []);
    }
}

#[test]
fn a_volume_that_is_marked_as_damaged_can_be_given_to_e2fsck() {
    let device = made(64, 4096, "");
    let fs = open(&device, 0);
    create(&fs, "a").write_all_at(0, &pattern(100_000, 3)).unwrap();
    fs.close().unwrap();
    let mut sb = [0; 1024];
    device.read_at(ByteOffset(1024), &mut sb).unwrap();
    sb[0x3A] |= 2;
    let sum = extant_crc32c::crc32c(!0, &sb[..1020]).to_le_bytes();
    sb[1020..].copy_from_slice(&sum);
    device.write_at(ByteOffset(1024), &sb).unwrap();

    for other in ["^data_csum,quota", "^orphan_file"] {
        assert!(matches!(switched(&device, other), Err(Error::NotSupported(_))), "{other}");
    }
    switched(&device, "^data_csum").unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    let mended = std::process::Command::new("e2fsck").arg("-fy").arg(image.path()).output();
    let mended = mended.unwrap();
    assert!(mended.status.code().is_some_and(|code| code <= 1), "{mended:?}");

    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
    judge(&*device);
    let free = open(&device, 0).space().free;
    switched(&device, "data_csum").unwrap();
    assert_eq!(
        open(&device, 0).space().free,
        free,
        "the file that was left made way for the new one"
    );
    assert_eq!(findings(&device).0, []);
    assert_eq!(open(&device, 8).read("/a").unwrap(), pattern(100_000, 3));
    judge(&*device);
}

#[test]
fn a_check_finds_every_flipped_bit_of_data_and_of_sums() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let file = create(&fs, "f");
    file.write_all_at(0, &pattern(2 << 20, 1)).unwrap();
    file.sync_all().unwrap();
    let data: Vec<_> = file.extents().unwrap();
    drop(file);
    fs.close().unwrap();
    let (found, blocks) = findings(&device);
    assert_eq!((found, blocks), (vec![], 512));
    let debug = |request: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(ByteOffset(0), &mut bytes).unwrap();
        std::fs::write(&path, bytes).unwrap();
        e2fsprogs::debugfs(&path, request).unwrap()
    };
    let sums = debug(&format!("bmap <5> {}", data[0].block.0 / 1023));
    let sums: u64 = sums.trim().parse().unwrap();
    let mut rng = Rng::new(seed());
    for _ in 0..60 {
        let extent = &data[below(&mut rng, data.len() as u64) as usize];
        let at = (extent.block.0 << 12) + below(&mut rng, extent.len);
        flip(&device, at);
        let (found, _) = findings(&device);
        assert_eq!(found, [What::DataChecksum], "data, byte {at}");
        flip(&device, at);
        let at = (sums << 12) + below(&mut rng, 4096);
        flip(&device, at);
        let (found, _) = findings(&device);
        assert!(found.contains(&What::DataSumsChecksum), "sums, byte {at}: {found:?}");
        flip(&device, at);
    }
    // A block of zeros says that nothing was stored, which does not match what is there.
    let mut block = vec![0; 4096];
    device.read_at(ByteOffset(sums << 12), &mut block).unwrap();
    device.write_at(ByteOffset(sums << 12), &[0; 4096]).unwrap();
    assert!(findings(&device).0.contains(&What::DataChecksum));
    assert!(is_mismatch(read_back(&device, "/f")));
    device.write_at(ByteOffset(sums << 12), &block).unwrap();
    assert_eq!(findings(&device).0, []);
}

#[test]
fn a_mirror_mends_data_from_the_copy_that_matches() {
    use extant::layout::{Assembled, Opening, Part, Wanted, assemble, create};
    let devices: Vec<Device> = (0..2).map(|_| Arc::new(MemoryDevice::new(32 << 20))).collect();
    let parts = || {
        let part =
            |(n, device): (usize, &Device)| Part::new(Arc::clone(device) as _, format!("m{n}"));
        devices.iter().enumerate().map(part).collect::<Vec<_>>()
    };
    create(&parts(), Wanted::Mirrored { alike: true }, [7; 16], 32 << 20).unwrap();
    let mirror = || match assemble(parts(), Opening::write()).unwrap() {
        Assembled::Mirrored(mirror) => mirror,
        _ => panic!("no mirror"),
    };
    let bytes = pattern(1 << 20, 9);
    let mut at = 0;
    {
        let device = mirror();
        let size = BlockSize::from_bytes(4096).unwrap();
        let words = MkfsOptions::new().block_size(size).features("data_csum").unwrap();
        mkfs::format(device.clone(), &words, &Environment::default()).unwrap();
        let fs = options(8).open_device(device).unwrap();
        let file = self::create(&fs, "f");
        file.write_all_at(0, &bytes).unwrap();
        file.sync_all().unwrap();
        at += file.extents().unwrap()[0].block.0 << 12;
        drop(file);
        fs.close().unwrap();
    }
    let mut rng = Rng::new(seed());
    for round in 0..20u64 {
        let member = &devices[below(&mut rng, 2) as usize];
        let place = at + below(&mut rng, 100) * 4096 + below(&mut rng, 4096);
        flip(member, place);
        let fs = options([0, 8][round as usize % 2]).open_device(mirror()).unwrap();
        let file = fs.open_file("/f").unwrap();
        // Which member is asked is its own choice: each of them has its turn.
        for _ in 0..4 {
            let mut back = vec![0; bytes.len()];
            match round % 3 {
                0 => assert_eq!(file.read_at(0, &mut back).unwrap(), bytes.len()),
                _ => assert_eq!(
                    file.read_direct_at(0, &mut back, &DirectOptions::default()).unwrap(),
                    bytes.len()
                ),
            }
            assert!(back == bytes, "round {round}");
        }
        drop(file);
        fs.close().unwrap();
        let mut there = [vec![0; 4096], vec![0; 4096]];
        for (device, there) in devices.iter().zip(&mut there) {
            device.read_at(ByteOffset(place / 4096 * 4096), there).unwrap();
        }
        if there[0] != there[1] {
            // Nobody asked the bad one.
            flip(member, place);
        }
    }
    let (found, _) = findings_of(mirror());
    assert_eq!(found, []);
}

/// The device as it is when the power goes now.
fn cut(device: &Device) -> Device {
    Arc::new(MemoryDevice::copy_of(&**device).unwrap())
}

#[test]
fn what_is_written_over_a_zeroed_range_leaves_the_blocks_that_the_last_commit_has() {
    for (cache, is_direct) in [(0, false), (8, false), (8, true)] {
        let device = made(64, 4096, "");
        let fs = open(&device, cache);
        let file = create(&fs, "f");
        let old = pattern(400_000, 1);
        file.write_all_at(0, &old).unwrap();
        fs.sync().unwrap();
        file.allocate(FallocateMode::ZeroRange, 0, 300_000).unwrap();
        let new = pattern(262_144, 2);
        match is_direct {
            true => {
                let n = file.write_direct_at(0, &new, &DirectOptions::default()).unwrap();
                assert_eq!(n, new.len());
            }
            false => file.write_all_at(0, &new).unwrap(),
        }
        // Nothing was committed, and the data may be at the device.
        assert!(read_back(&cut(&device), "/f").unwrap() == old, "cache {cache}, {is_direct}");
        fs.sync().unwrap();
        let mut want = old.clone();
        want[..300_000].fill(0);
        want[..new.len()].copy_from_slice(&new);
        assert!(read_back(&cut(&device), "/f").unwrap() == want);
        drop(file);
        fs.close().unwrap();
        judge(&*device);
        assert_eq!(findings(&device).0, []);
    }
}

#[test]
fn overwrites_that_tear_a_file_to_single_blocks_on_a_full_volume_are_taken_or_refused_at_once() {
    let device = made(16, 1024, "");
    let fs = open(&device, 32);
    let file = create(&fs, "f");
    let mut want = Vec::new();
    while let Ok(n) = file.append(&pattern(65_536, want.len() as u8)) {
        want.extend_from_slice(&pattern(65_536, want.len() as u8)[..n]);
        if n < 65_536 {
            break;
        }
    }
    file.sync_all().unwrap();
    // Some room, so that blocks move about.
    want.truncate(want.len() - 600_000);
    file.set_len(want.len() as u64).unwrap();
    file.sync_all().unwrap();
    let mut rng = Rng::new(seed());
    let (mut refused, mut taken) = (0, 0);
    for step in 0..20_000u64 {
        let at = below(&mut rng, want.len() as u64 / 1024) * 1024;
        let bytes = pattern(1024, step as u8);
        match file.write_at(at, &bytes) {
            Ok(n) => {
                want[at as usize..at as usize + n].copy_from_slice(&bytes[..n]);
                taken += 1;
            }
            Err(Error::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if step % 300 == 0 {
            file.sync_all().unwrap_or_else(|error| {
                panic!("step {step}, {taken} taken, {refused} refused: {error}")
            });
        }
    }
    file.sync_all().unwrap();
    println!("{taken} taken, {refused} refused");
    drop(file);
    fs.close().unwrap();
    assert!(read_back(&device, "/f").unwrap() == want);
    judge(&*device);
}

#[test]
fn a_file_that_cannot_be_written_back_does_not_cost_others_their_changes() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let old = pattern(4096, 1);
    create(&fs, "a").write_all_at(0, &old).unwrap();
    fs.close().unwrap();
    // Its next block has its word beside this one.
    let word = extant_ondisk::data_sums::sum_of(&old).to_le_bytes();
    let mut all = vec![0u8; 64 << 20];
    device.read_at(ByteOffset(0), &mut all).unwrap();
    let places = (0..all.len()).step_by(4).filter(|at: &usize| all[*at..].starts_with(&word));
    places.for_each(|at| flip(&device, at as u64));

    let fs = open(&device, 8);
    let a = fs.open_file("/a").unwrap();
    a.write_all_at(0, &pattern(4096, 2)).unwrap();
    create(&fs, "b");
    assert!(fs.sync().is_err());
    assert!(read_back(&cut(&device), "/b").unwrap().is_empty());
    create(&fs, "c");
    drop(a);
    assert!(fs.close().is_err());
    assert!(read_back(&cut(&device), "/c").unwrap().is_empty());
}

/// A file of which block 0 has a bit flipped on the device, and where that block is.
fn bad_at_its_start(device: &Device, blocks: usize) -> u64 {
    let fs = open(device, 8);
    let file = create(&fs, "f");
    file.write_all_at(0, &pattern(blocks * 4096, 3)).unwrap();
    file.sync_all().unwrap();
    let at = file.extents().unwrap()[0].block.0 << 12;
    drop(file);
    fs.close().unwrap();
    flip(device, at + 50);
    at
}

#[test]
fn a_truncation_that_fails_leaves_what_was_not_synced() {
    for by_attributes in [false, true] {
        let device = made(64, 4096, "");
        bad_at_its_start(&device, 3);
        let fs = open(&device, 8);
        let file = fs.open_file("/f").unwrap();
        // Over what is there, behind a block that is kept, and behind the file's end.
        file.write_all_at(4096, &[7; 4096]).unwrap();
        file.write_all_at(5 * 4096, &[8; 9000]).unwrap();
        let cut = match by_attributes {
            false => file.set_len(100),
            true => {
                let size = Some(100);
                file.set_attributes(&SetAttributes { size, ..SetAttributes::default() })
            }
        };
        assert!(is_mismatch(cut), "{by_attributes}");
        let mut want = pattern(3 * 4096, 3);
        want[4096..8192].fill(7);
        want.resize(5 * 4096, 0);
        want.resize(5 * 4096 + 9000, 8);
        let mut bytes = vec![1; want.len() - 4096];
        assert_eq!(file.read_at(4096, &mut bytes).unwrap(), bytes.len(), "{by_attributes}");
        assert!(bytes == want[4096..], "{by_attributes}");
        file.sync_all().unwrap();
        // The whole block can be written, and then all of it is cut.
        file.write_all_at(0, &want[..4096]).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs.close().unwrap();
        assert!(read_back(&device, "/f").unwrap() == want, "{by_attributes}");
        let fs = open(&device, 8);
        fs.open_file("/f").unwrap().set_len(100).unwrap();
        assert_eq!(fs.read("/f").unwrap(), want[..100]);
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn a_bad_block_is_told_of_also_where_the_device_fails_behind_it() {
    let made = made(64, 4096, "");
    bad_at_its_start(&made, 1);
    let fs = open(&made, 8);
    let file = fs.open_file("/f").unwrap();
    // Behind a hole, so that each block has a request of its own.
    file.write_all_at(2 * 4096, &pattern(4096, 4)).unwrap();
    file.sync_all().unwrap();
    let behind = file.extents().unwrap()[1].block.0 << 12;
    drop(file);
    fs.close().unwrap();

    let device = Arc::new(Faulty::new(MemoryDevice::copy_of(&*made).unwrap()));
    let fs = options(8).open_device(device.clone()).unwrap();
    let file = fs.open_file("/f").unwrap();
    device.fail_range(IoOp::Read, behind..behind + 4096);
    let mut buf = vec![0; 3 * 4096];
    for bounce in [extant::Bounce::Auto, extant::Bounce::Always] {
        let how = DirectOptions { bounce, ..DirectOptions::default() };
        assert!(is_mismatch(file.read_direct_at(0, &mut buf, &how)), "{bounce:?}");
    }
}

#[test]
fn a_bad_block_of_sums_is_told_of_and_made_anew() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let file = create(&fs, "f");
    file.write_all_at(0, &pattern(50_000, 1)).unwrap();
    file.sync_all().unwrap();
    let block = file.extents().unwrap()[0].block.0;
    drop(file);
    fs.close().unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    let sums = e2fsprogs::debugfs(image.path(), &format!("bmap <5> {}", block / 1023)).unwrap();
    let sums: u64 = sums.trim().parse().unwrap();
    flip(&device, (sums << 12) + 100);

    let is_told = |done: extant::Result<()>| {
        matches!(done, Err(Error::Corrupt { what: What::DataSumsChecksum, at })
            if at.ino.is_some() && at.block.is_some_and(|block| block.0 == sums))
    };
    let fs = open(&device, 8);
    let file = fs.open_file("/f").unwrap();
    assert!(is_told(file.read_at(0, &mut [0; 10]).map(drop)));
    assert!(is_told(file.write_at(5, &[1; 10]).and_then(|_| file.sync_all())));
    drop(file);
    // Nothing of it is for e2fsck to mend.
    let _ = fs.close();
    let fs = options(8).open_device(device.clone()).unwrap();
    assert!(!fs.superblock().state.contains(extant_ondisk::superblock::VolumeState::ERROR));
    drop(fs);
    OpenOptions::new().recover_device_in_place(device.clone()).unwrap();
    switched(&device, "^data_csum").unwrap();
    switched(&device, "data_csum").unwrap();
    assert_eq!(findings(&device).0, []);
    assert_eq!(read_back(&device, "/f").unwrap(), pattern(50_000, 1));
    judge(&*device);
}
