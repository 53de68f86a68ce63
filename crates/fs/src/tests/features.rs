//! Every feature bit, one at a time: whether a volume with it can be read or changed.

use crate::context::environment::Environment;
use crate::context::superblock::patch_superblock;
use crate::offline::mkfs::{self, MkfsOptions};
use crate::open::OpenOptions;
use crate::tests::NOW;
use extant_base::{Error, FeatureSet};
use extant_blockdev::MemoryDevice;
use extant_ondisk::features::{Compat, FeatureBit, Features, Incompat, RoCompat};
use extant_testdev::Recorder;
use std::sync::Arc;

/// A new volume with one more feature bit set.
fn volume(bit: FeatureBit) -> Arc<Recorder<Arc<MemoryDevice>>> {
    let device = Arc::new(MemoryDevice::new(4 << 20));
    let (options, environment) = (MkfsOptions::new(), Environment::fixed(NOW, 3));
    mkfs::format(device.clone(), &options, &environment).unwrap();
    patch_superblock(&*device, |sb| sb.features.set(bit, true)).unwrap();
    Arc::new(Recorder::new(device))
}

fn bits() -> impl Iterator<Item = u32> {
    (0..32).map(|n| 1 << n)
}

#[test]
fn a_feature_that_cannot_be_kept_is_named_and_the_volume_stays_readable() {
    for bit in bits().filter(|bit| RoCompat::WRITABLE.bits() & bit == 0) {
        let device = volume(FeatureBit::RoCompat(RoCompat::from_bits_retain(bit)));
        let mut options = OpenOptions::new();
        let Err(Error::Unsupported { feature }) = options.write(true).open_device(device.clone())
        else {
            panic!("{bit:#x}: not refused")
        };
        assert_eq!((feature.set, feature.bits), (FeatureSet::RoCompat, bit));
        let fs = options.read_only_if_needed(true).open_device(device.clone()).unwrap();
        assert_eq!((fs.is_read_only(), fs.read_only_reason()), (true, Some(feature)));
        assert!(fs.exists("/lost+found").unwrap());
        fs.close().unwrap();
        assert_eq!(device.position(), 0, "{bit:#x}: something was written");
    }
}

#[test]
fn a_feature_that_forbids_reading_is_named() {
    for bit in bits().filter(|bit| Incompat::READABLE.bits() & bit == 0) {
        let device = volume(FeatureBit::Incompat(Incompat::from_bits_retain(bit)));
        for write in [false, true] {
            let mut options = OpenOptions::new();
            options.write(write).read_only_if_needed(true);
            let refused = options.open_device(device.clone()).err();
            let Some(Error::Unsupported { feature }) = refused else {
                panic!("{bit:#x}: {refused:?}")
            };
            assert_eq!((feature.set, feature.bits), (FeatureSet::Incompat, bit));
        }
        assert_eq!(device.position(), 0, "{bit:#x}: something was written");
    }
}

#[test]
fn compatible_features_without_a_structure_stay_as_they_are() {
    let structured = Compat::HAS_JOURNAL | Compat::RESIZE_INODE | Compat::ORPHAN_FILE;
    // With this feature, backups of the superblock are at other places.
    let structured = (structured | Compat::SPARSE_SUPER2).bits();
    for bit in bits().filter(|bit| structured & bit == 0) {
        let bit = FeatureBit::Compat(Compat::from_bits_retain(bit));
        let device = volume(bit);
        let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
        assert_eq!(fs.read_only_reason(), None);
        fs.close().unwrap();
        let features: Features =
            OpenOptions::new().open_device(device).unwrap().superblock().features;
        assert!(features.has(bit), "{bit:?} was lost");
    }
}
