//! Data checksums: after every way of writing, blocks match their checksums; every way of reading
//! finds blocks that do not; overwrites use other blocks, and space for them is reserved at the
//! write.

mod bad;
mod full;
mod switched;
mod written;

use extant::mkfs::MkfsOptions;
use extant::{
    BlockDevice, BlockSize, Environment, Error, Filesystem, MemoryDevice, OpenOptions, What, check,
    mkfs, tune,
};
use extant_base::ByteOffset;
use extant_testkit::rng::Rng;
use std::sync::Arc;

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

/// The content on the device, read without a cache.
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

/// The findings of a check of the volume and all its data.
fn findings(device: &Device) -> (Vec<What>, u64) {
    findings_of(device.clone())
}

fn findings_of(device: Arc<dyn BlockDevice>) -> (Vec<What>, u64) {
    let options = check::Options { data: true, ..check::Options::default() };
    let report = check::check_device(device, &options, &()).unwrap();
    let blocks = report.stats.data_blocks.unwrap_or(0);
    (report.findings.iter().map(|finding| finding.what).collect(), blocks)
}

fn switched(device: &Device, names: &str) -> extant::Result<()> {
    let changes = tune::Tune::default().features(names).unwrap();
    let device: Arc<dyn BlockDevice> = device.clone();
    tune::tune_device(&OpenOptions::new(), &device, &changes).map(|_| ())
}

/// The device as a power cut now would leave it.
fn cut(device: &Device) -> Device {
    Arc::new(MemoryDevice::copy_of(&**device).unwrap())
}
