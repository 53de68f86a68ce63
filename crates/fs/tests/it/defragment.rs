//! Files move to fewer runs: content, holes, unwritten blocks and times stay, also after a power
//! cut at any write.

use crate::common::judge;
use extant::check::check_device;
use extant::mkfs::{self, MkfsOptions};
use extant::{
    BlockDevice, Environment, Error, FallocateMode, File, Filesystem, InodeFlags, MemoryDevice,
    NewFile, OpenOptions, SetAttributes,
};
use extant_testdev::Recorder;
use std::sync::Arc;

const KINDS: [&str; 5] = [
    "block_size=4096",
    "block_size=1024,^metadata_csum",
    "block_size=1024,data_csum",
    "block_size=4096,fast_commit",
    "block_size=1024,^has_journal",
];

fn volume(kind: &str, mib: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(mib << 20));
    let (size, features) = kind.split_once(',').unwrap_or((kind, ""));
    let size = size.strip_prefix("block_size=").unwrap().parse().unwrap();
    let size = extant::BlockSize::from_bytes(size).unwrap();
    let options = MkfsOptions::new().zeroed(true).block_size(size);
    let options = options.features(features).unwrap();
    mkfs::format(Arc::clone(&device) as _, &options, &Environment::default()).unwrap();
    device
}

fn open(device: Arc<dyn BlockDevice>) -> Filesystem {
    OpenOptions::new().write(true).page_cache_bytes(0).open_device(device).unwrap()
}

/// A file whose blocks lie in reverse order, with holes, unwritten blocks in the middle and after
/// its end.
fn fragmented(fs: &Filesystem, path: &str, blocks: u64) -> File {
    let file = fs.create_file(path, &NewFile::default()).unwrap().open().unwrap();
    let size = 4096;
    for n in (0..blocks).rev().filter(|n| n % 11 != 3) {
        let bytes: Vec<u8> = (0..size).map(|at| (n * 7 + at / 3) as u8).collect();
        file.write_all_at(&bytes, n * size).unwrap();
    }
    file.allocate(FallocateMode::KeepSize, 3 * size, size).unwrap();
    file.allocate(FallocateMode::KeepSize, blocks * size, 5 * size).unwrap();
    file
}

/// What readers see: content, and where data and unwritten blocks are.
fn seen(file: &File) -> (Vec<u8>, Vec<(u64, u64, bool)>) {
    let mut bytes = vec![0; file.metadata().len() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    let mut ranges: Vec<(u64, u64, bool)> = Vec::new();
    for extent in file.extents().unwrap() {
        match ranges.last_mut() {
            Some((at, len, written))
                if *at + *len == extent.offset && *written == extent.written =>
            {
                *len += extent.len;
            }
            _ => ranges.push((extent.offset, extent.len, extent.written)),
        }
    }
    (bytes, ranges)
}

#[test]
fn files_get_few_extents_and_nothing_else_changes() {
    extant_testkit::require!(E2fsprogs);
    for kind in KINDS {
        let device = volume(kind, 64);
        let fs = open(device.clone());
        let file = fragmented(&fs, "/f", 500);
        fs.hard_link("/f", "/second").unwrap();
        let flags = file.metadata().flags() | InodeFlags::IMMUTABLE;
        fs.set_attributes("/f", &SetAttributes { flags: Some(flags), ..Default::default() })
            .unwrap();
        let (before, meta) = (seen(&file), file.metadata());
        let extents = file.extents().unwrap().len();
        let done = file.defragment().unwrap();
        assert_eq!(done.before, extents as u64, "{kind}");
        assert!(done.before > 400 && done.moved_blocks >= 455, "{kind}: {done:?}");
        assert_eq!(done.after as usize, file.extents().unwrap().len());
        // As many as the holes and the unwritten parts make.
        assert_eq!(done.after as usize, before.1.len(), "{kind}: {done:?}");
        assert!(seen(&file) == before, "{kind}: the content has changed");
        let now = file.metadata();
        assert_eq!(
            (now.modified(), now.changed(), now.sectors() <= meta.sectors()),
            (meta.modified(), meta.changed(), true),
            "{kind}"
        );
        let again = file.defragment().unwrap();
        assert_eq!((again.moved_blocks, again.after), (0, done.after), "{kind}");
        drop(file);
        fs.close().unwrap();
        let fs = open(device.clone());
        assert!(seen(&fs.open_file("/second").unwrap()) == before, "{kind}: after opening");
        fs.close().unwrap();
        let report = check_device(device.clone(), &Default::default(), &()).unwrap();
        assert!(report.clean, "{kind}: {:?}", report.findings);
        judge(&*device);
    }
}

#[test]
fn files_that_cannot_move_are_refused_and_a_full_volume_changes_nothing() {
    extant_testkit::require!(E2fsprogs);
    for kind in ["block_size=1024,^extents,^64bit", "block_size=1024,bigalloc"] {
        let fs = open(volume(kind, 32));
        fs.write("/f", vec![1; 20_000]).unwrap();
        let done = fs.open_file("/f").unwrap().defragment();
        assert!(matches!(done, Err(Error::NotSupported(_))), "{kind}: {done:?}");
    }
    let device = volume("block_size=4096", 16);
    let fs = open(device.clone());
    let mut swap = vec![0; 40_960];
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    fs.write("/swap", &swap).unwrap();
    let done = fs.open_file("/swap").unwrap().defragment();
    assert!(matches!(done, Err(Error::NotSupported(_))), "{done:?}");
    let file = fragmented(&fs, "/f", 300);
    fs.write("/rest", vec![1; 1 << 20]).unwrap();
    let rest = fs.open_file("/rest").unwrap();
    while rest.append(&[1; 65536]).is_ok() {}
    while rest.append(&[1; 4096]).is_ok() {}
    let before = (seen(&file), file.extents().unwrap());
    let done = file.defragment().unwrap();
    assert_eq!((done.moved_blocks, done.after), (0, done.before));
    assert_eq!(before, (seen(&file), file.extents().unwrap()));
    drop((file, rest));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_power_cut_at_any_write_leaves_the_content() {
    extant_testkit::require!(E2fsprogs);
    for kind in ["block_size=1024", "block_size=1024,data_csum", "block_size=4096,fast_commit"] {
        let base = volume(kind, 24);
        let fs = open(base.clone());
        let before = seen(&fragmented(&fs, "/f", 90));
        fs.close().unwrap();
        let base = MemoryDevice::copy_of(&base).unwrap();
        let device = Arc::new(Recorder::new(MemoryDevice::copy_of(&base).unwrap()));
        let fs = open(device.clone());
        let done = fs.open_file("/f").unwrap().defragment().unwrap();
        assert!(done.after < done.before / 3, "{kind}: {done:?}");
        fs.sync().unwrap();
        // The blocks that the file had before get other content.
        fs.write("/other", vec![0xEE; 400_000]).unwrap();
        fs.sync().unwrap();
        let plan = device.crash_plan(&base).samples(2).torn(1);
        let mut states = plan.states();
        let mut cuts = 0;
        while let Some(state) = states.next_where(|_, n| n < 3) {
            let left = Arc::new(state.image);
            let fs = open(left.clone());
            let now = seen(&fs.open_file("/f").unwrap());
            assert!(now == before, "{kind}, cut {}: the content has changed", state.cut);
            fs.close().unwrap();
            let report = check_device(left.clone(), &Default::default(), &()).unwrap();
            assert!(report.findings.is_empty(), "cut {}: {:?}", state.cut, report.findings);
            if cuts % 40 == 0 {
                judge(&*left);
            }
            cuts += 1;
        }
        assert!(cuts > 20, "only {cuts} cuts");
    }
}
