//! The protocol against another host. The tests play that host inside the pauses, so none really
//! waits.

use crate::context::environment::Environment;
use crate::context::mmp::claim::Claim;
use crate::context::superblock::{patch_superblock, read_superblock};
use crate::offline::mkfs::{self, MkfsOptions};
use crate::open::OpenOptions;
use crate::tests::{NOW, features};
use extant_base::{ByteOffset, Error, Site};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::features::Incompat;
use extant_ondisk::mmp::{Mmp, MmpState};
use extant_ondisk::superblock::Superblock;
use extant_testdev::{Op, Recorder};
use std::sync::Arc;
use std::time::Duration;

fn volume(options: MkfsOptions) -> (Arc<MemoryDevice>, Superblock) {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    mkfs::format(device.clone(), &options, &Environment::fixed(NOW, 3)).unwrap();
    let superblock = read_superblock(&*device, None).unwrap();
    (device, superblock)
}

fn protected() -> (Arc<MemoryDevice>, Superblock) {
    volume(features("mmp"))
}

fn claim(device: &Arc<MemoryDevice>, superblock: &Superblock, node: &str) -> Claim {
    let holder = (node.as_bytes(), b"disk".as_slice());
    Claim::new(device.clone(), superblock, holder, Environment::fixed(NOW, node.len() as u64))
        .unwrap()
}

fn block(device: &dyn BlockDevice, superblock: &Superblock) -> Mmp {
    let mut bytes = vec![0; superblock.block_size.bytes()];
    device.read_at(place(superblock), &mut bytes).unwrap();
    Mmp::check(&bytes, &superblock.checksums(), Site::NOWHERE).unwrap()
}

fn put(device: &dyn BlockDevice, superblock: &Superblock, mmp: &Mmp) {
    let mut bytes = vec![0; superblock.block_size.bytes()];
    mmp.write(&mut bytes, &superblock.checksums());
    device.write_at(place(superblock), &bytes).unwrap();
}

fn place(superblock: &Superblock) -> ByteOffset {
    superblock.block_size.start_of(superblock.mmp_block)
}

fn never(_: Duration) {
    panic!("nothing to wait for")
}

#[test]
fn a_clean_volume_is_claimed_at_once_and_released() {
    let (device, superblock) = protected();
    let mut claim_here = claim(&device, &superblock, "here");
    claim_here.take(&mut never).unwrap();
    let first = block(&*device, &superblock);
    assert!(matches!(first.state, MmpState::Held(_)));
    assert_eq!(
        (&first.nodename[..5], &first.bdevname[..5]),
        (b"here\0".as_slice(), b"disk\0".as_slice())
    );
    assert_eq!((first.check_interval, first.time), (10, NOW.sec as u64));
    assert!(claim_here.beat().unwrap());
    assert_ne!(block(&*device, &superblock).state, first.state);
    claim_here.release().unwrap();
    assert_eq!(block(&*device, &superblock).state, MmpState::Clean);
    assert!(!claim_here.beat().unwrap());
}

#[test]
fn a_changing_number_means_that_another_host_holds_the_volume() {
    let (device, superblock) = protected();
    let mut other = claim(&device, &superblock, "there");
    other.take(&mut never).unwrap();
    let mut seconds = 0;
    let mut pause = |_| {
        seconds += 1;
        if seconds == 5 {
            other.beat().unwrap();
        }
    };
    let refused = claim(&device, &superblock, "here").take(&mut pause).unwrap_err();
    assert_eq!((refused.errno(), seconds), (16, 5));
    let Error::Held { holder } = refused else { panic!("{refused}") };
    assert_eq!((holder.node.as_str(), holder.device.as_str()), ("there", "disk"));
    assert_eq!((holder.seen, holder.is_checker), (NOW.sec as u64, false));
}

#[test]
fn a_number_that_does_not_change_is_replaced_after_two_waits() {
    let (device, superblock) = protected();
    claim(&device, &superblock, "there").take(&mut never).unwrap();
    let mut seconds = 0;
    let mut claim_here = claim(&device, &superblock, "here");
    claim_here.take(&mut |second| seconds += second.as_secs()).unwrap();
    // The block's check interval is 10 s.
    assert_eq!(seconds, 2 * 21);
    assert!(claim_here.beat().unwrap());
}

#[test]
fn a_host_that_writes_between_our_write_and_our_check_wins() {
    let (device, superblock) = protected();
    claim(&device, &superblock, "gone").take(&mut never).unwrap();
    let mut seconds = 0;
    let other = Mmp { state: MmpState::Held(5), ..block(&*device, &superblock) };
    let mut pause = |_| {
        seconds += 1;
        if seconds == 30 {
            put(&*device, &superblock, &other);
        }
    };
    let refused = claim(&device, &superblock, "here").take(&mut pause);
    assert!(matches!(refused, Err(Error::Held { .. })));
    assert_eq!(block(&*device, &superblock), other);
}

#[test]
fn a_volume_in_use_by_a_checker_is_refused_at_once() {
    let (device, superblock) = protected();
    put(&*device, &superblock, &Mmp { state: MmpState::Checker, ..block(&*device, &superblock) });
    let refused = claim(&device, &superblock, "here").take(&mut never).unwrap_err();
    assert!(matches!(refused, Error::Held { holder } if holder.is_checker));
    let refused = OpenOptions::new().write(true).open_device(device.clone());
    assert!(matches!(refused, Err(Error::Held { .. })));
    OpenOptions::new().open_device(device).unwrap();
}

#[test]
fn a_heartbeat_detects_that_the_volume_is_lost() {
    let (device, superblock) = protected();
    let mut claim_here = claim(&device, &superblock, "here");
    claim_here.take(&mut never).unwrap();
    let stolen = Mmp { nodename: [b'x'; 64], ..block(&*device, &superblock) };
    put(&*device, &superblock, &stolen);
    assert!(!claim_here.beat().unwrap());
    claim_here.release().unwrap();
    assert_eq!(block(&*device, &superblock), stolen);
}

#[test]
fn an_open_volume_is_held_and_a_closed_one_is_not() {
    let (device, superblock) = protected();
    let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
    assert!(matches!(block(&*device, &superblock).state, MmpState::Held(_)));
    fs.close().unwrap();
    assert_eq!(block(&*device, &superblock).state, MmpState::Clean);
    drop(OpenOptions::new().write(true).one_transaction(true).open_device(device.clone()).unwrap());
    assert_eq!(block(&*device, &superblock).state, MmpState::Clean);
    OpenOptions::new().recover_device_in_place(device.clone()).unwrap();
    assert_eq!(block(&*device, &superblock).state, MmpState::Clean);
}

#[test]
fn a_volume_that_needs_recovery_is_held_before_it_is_recovered() {
    let (device, superblock) = protected();
    patch_superblock(&*device, |sb| sb.features.incompat.insert(Incompat::RECOVER)).unwrap();
    let recorder = Arc::new(Recorder::new(device));
    OpenOptions::new().recover_device_in_place(recorder.clone()).unwrap();
    let log = recorder.log();
    let changes: Vec<_> =
        log.iter().filter(|op| **op != Op::Flush).map(|op| op.range().0).collect();
    assert_eq!(changes.first(), Some(&place(&superblock)));
    assert_eq!(changes.last(), Some(&place(&superblock)));
    assert!(changes.len() > 2);
}

#[test]
fn a_protection_block_outside_the_volume_is_corrupt() {
    let (device, superblock) = protected();
    for block in [0, superblock.blocks_count, u64::MAX] {
        let wrong = Superblock { mmp_block: extant_base::BlockNr(block), ..superblock.clone() };
        let holder = (b"here".as_slice(), b"".as_slice());
        let refused = Claim::new(device.clone(), &wrong, holder, Environment::fixed(NOW, 1));
        assert!(matches!(refused, Err(Error::Corrupt { .. })));
    }
}
