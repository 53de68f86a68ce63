//! raid0: the place of every byte, and the refusal of missing members.

use extant_base::{ByteOffset, Error, MemberProblem};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_raid::{Assembled, Opening, Part, Wanted, assemble, create};
use std::sync::Arc;

const STRIPE: u32 = 4096;

fn made(count: usize, volume: u64) -> Vec<Arc<MemoryDevice>> {
    let wanted = Wanted::Striped { stripe_bytes: STRIPE };
    let len = wanted.member_bytes(count, volume);
    let devices: Vec<_> = (0..count).map(|_| Arc::new(MemoryDevice::new(len))).collect();
    create(&parts(&devices), wanted, [7; 16], volume).unwrap();
    devices
}

fn parts(devices: &[Arc<MemoryDevice>]) -> Vec<Part> {
    let part = |(n, device): (usize, &Arc<MemoryDevice>)| {
        Part::new(Arc::clone(device) as _, format!("m{n}"))
    };
    devices.iter().enumerate().map(part).collect()
}

fn open(devices: &[Arc<MemoryDevice>]) -> extant_base::Result<Arc<dyn BlockDevice>> {
    assemble(parts(devices), Opening::write()).map(|assembled| assembled.device())
}

#[test]
fn any_range_reads_back_what_was_written() {
    for count in [2, 3, 5] {
        let volume = 1_000_003;
        let mut devices = made(count, volume);
        let mut want: Vec<u8> = (0..volume).map(|n| (n * 31 / 7) as u8).collect();
        let device = open(&devices).unwrap();
        assert_eq!(device.len(), volume);
        device.write_at(ByteOffset(0), &want).unwrap();
        for (at, len) in [(0, 1), (4095, 2), (12_288, 4096), (5000, 300_000), (999_999, 4)] {
            let data: Vec<u8> = (0..len).map(|n| (n + at) as u8).collect();
            device.write_at(ByteOffset(at as u64), &data).unwrap();
            want[at..at + len].copy_from_slice(&data);
        }
        device.zero(ByteOffset(70_000), 20_000).unwrap();
        want[70_000..90_000].fill(0);
        device.flush().unwrap();
        drop(device);
        devices.reverse();
        let device = open(&devices).unwrap();
        let mut got = vec![0; volume as usize];
        device.read_at(ByteOffset(0), &mut got).unwrap();
        assert!(got == want);
        let mut part = vec![0; 100_000];
        device.read_at(ByteOffset(4000), &mut part).unwrap();
        assert!(part == want[4000..104_000]);
        assert!(device.read_at(ByteOffset(volume), &mut [0]).is_err());
        assert!(device.write_at(ByteOffset(volume - 1), &[0, 0]).is_err());
    }
}

#[test]
fn all_members_must_be_present_and_of_one_generation() {
    let mut devices = made(3, 1 << 20);
    let problem = |devices: &[Arc<MemoryDevice>]| match open(devices).map(|_| ()) {
        Err(Error::Member(error)) => error.problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(&devices[..2]), MemberProblem::Missing { index: 2, count: 3 });
    let backup = Arc::new(MemoryDevice::clone(&devices[1]));
    open(&devices).unwrap().write_at(ByteOffset(0), b"x").unwrap();
    assert!(open(&devices).is_ok());
    devices[1] = backup;
    assert_eq!(problem(&devices), MemberProblem::StaleStripes);
    let read = assemble(parts(&devices[..1]), Opening::read());
    assert!(matches!(read.map(|_| ()), Err(Error::Member(_))));
}

#[test]
fn a_device_without_a_record_is_returned_unchanged() {
    let device = Arc::new(MemoryDevice::new(8192));
    let single = assemble(parts(&[device]), Opening::write()).unwrap();
    assert!(matches!(single, Assembled::Single(_)));
}
