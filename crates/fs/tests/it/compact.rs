//! Directories packed again: the names stay, blocks become free, and a power cut at any write
//! leaves each directory as before or after.

use crate::common::{image_of, judge};
use extant::compact::{Compacted, directories_of_device};
use extant::mkfs::{self, MkfsOptions};
use extant::{BlockDevice, BlockSize, Environment, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_testdev::Recorder;
use std::collections::BTreeSet;
use std::sync::Arc;

const FEATURES: [&str; 6] = [
    "",
    "^has_journal",
    "^dir_index,^metadata_csum",
    "quota,project",
    "casefold,inline_data",
    "^extent,^64bit,fast_commit",
];

/// A volume with directories that were larger once: with an index, without, and small ones.
fn volume(features: &str) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    let options = MkfsOptions::new().zeroed(true).block_size(BlockSize::from_bytes(1024).unwrap());
    let options = options.features(features).unwrap();
    mkfs::format(Arc::clone(&device) as _, &options, &Environment::default()).unwrap();
    let options = OpenOptions::new().write(true).clone();
    let fs = options.open_device(Arc::clone(&device) as _).unwrap();
    for (dir, count, kept) in [("/large", 700, 60), ("/large/small", 40, 2), ("/full", 90, 90)] {
        fs.create_dir(dir, &NewFile::default()).unwrap();
        for n in 0..count {
            let name = format!("{dir}/a name of some length, number {n}");
            fs.create_file(&name, &NewFile::default()).unwrap();
        }
        for n in 0..count - kept {
            fs.remove_file(format!("{dir}/a name of some length, number {n}")).unwrap();
        }
    }
    fs.close().unwrap();
    device
}

/// Every path of the volume.
fn names(device: Arc<dyn BlockDevice>) -> BTreeSet<String> {
    let fs = Filesystem::open_device(device).unwrap();
    let mut names = BTreeSet::new();
    for dir in ["/", "/large", "/large/small", "/full"] {
        for entry in fs.read_dir(dir).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let path = format!("{dir}/{name}");
            fs.node_nofollow(&path).unwrap();
            assert!(names.insert(path));
        }
    }
    names
}

fn compact(device: Arc<dyn BlockDevice>) -> Compacted {
    directories_of_device(&OpenOptions::new(), &device).unwrap()
}

#[test]
fn blocks_become_free_and_names_stay() {
    for features in FEATURES {
        let device = volume(features);
        let before = names(device.clone());
        let free = |device: &Arc<MemoryDevice>| {
            Filesystem::open_device(Arc::clone(device) as _).unwrap().superblock().free_blocks
        };
        let had = free(&device);
        let done = compact(device.clone());
        assert!(done.rebuilt >= 1 && done.blocks_freed > 20, "{features}: {done:?}");
        assert_eq!(done.too_large, 0, "{features}");
        assert!(free(&device) >= had + done.blocks_freed, "{features}");
        assert_eq!(names(device.clone()), before, "{features}");
        judge(&*device);
        // What is as small as possible stays as it is.
        let bytes = image_of(&*device);
        let again = compact(device.clone());
        assert_eq!((again.rebuilt, again.blocks_freed), (0, 0), "{features}");
        assert!(image_of(&*device)[4096..] == bytes[4096..], "{features}: nothing is written");
    }
}

#[test]
fn a_cut_leaves_every_name() {
    for features in ["", "quota,project", "^extent,^64bit"] {
        let base = volume(features);
        let before = names(base.clone());
        let recorder = Arc::new(Recorder::new(MemoryDevice::copy_of(&*base).unwrap()));
        compact(recorder.clone());
        let plan = recorder.crash_plan(&base).seed(7).samples(2).exhaustive_up_to(2);
        let every = (plan.states().count() / 60).max(1);
        for state in plan.states().step_by(every) {
            let what = state.to_string();
            let device: Arc<dyn BlockDevice> = Arc::new(state.image);
            let recovered = OpenOptions::new().recover_device_in_place(Arc::clone(&device));
            recovered.unwrap_or_else(|error| panic!("{features}, {what}: {error}"));
            assert_eq!(names(Arc::clone(&device)), before, "{features}, {what}");
            judge(&*device);
        }
    }
}
