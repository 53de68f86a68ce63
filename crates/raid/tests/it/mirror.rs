//! raid1: what a mirror guarantees while it is open, and which members it accepts.

use extant_base::{ByteOffset, Error, IoOp, MemberProblem, Result};
use extant_blockdev::{BlockDevice, MemoryDevice, Slice};
use extant_raid::{
    Assembled, Differences, Mirror, Opening, Part, Wanted, assemble, create, record_of,
};
use extant_testdev::Faulty;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LEN: u64 = 4 << 20;

fn devices(count: usize) -> Vec<Arc<MemoryDevice>> {
    let devices: Vec<_> = (0..count).map(|_| Arc::new(MemoryDevice::new(LEN))).collect();
    let wanted = Wanted::Mirrored { alike: true };
    create(&parts(&devices), wanted, *b"the mirror's id.", LEN).unwrap();
    devices
}

fn parts<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Vec<Part> {
    let part = |(n, device): (usize, &Arc<D>)| Part::new(Arc::clone(device) as _, format!("m{n}"));
    devices.iter().enumerate().map(part).collect()
}

fn open_parts(parts: Vec<Part>, opening: Opening) -> Result<Arc<Mirror>> {
    match assemble(parts, opening)? {
        Assembled::Mirrored(mirror) => Ok(mirror),
        _ => panic!("no mirror"),
    }
}

fn open<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Result<Arc<Mirror>> {
    open_parts(parts(devices), Opening::write())
}

fn degraded<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Result<Arc<Mirror>> {
    open_parts(parts(devices), Opening { degraded: true, ..Opening::write() })
}

fn problem(result: Result<Arc<Mirror>>) -> (String, MemberProblem) {
    match result.map(|_| ()) {
        Err(Error::Member(error)) => (error.member, error.problem),
        other => panic!("{other:?}"),
    }
}

fn bytes(device: &dyn BlockDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(ByteOffset(at), &mut bytes).unwrap();
    bytes
}

/// A copy of a device at this moment.
fn copy(device: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::clone(device))
}

#[test]
fn members_are_identical_except_for_the_record() {
    let devices = devices(3);
    let mirror = open(&devices).unwrap();
    mirror.write_at(ByteOffset(0), &vec![7; 8192]).unwrap();
    mirror.write_at(ByteOffset(1 << 20), &vec![8; 300_000]).unwrap();
    mirror.zero(ByteOffset(4096), 100).unwrap();
    mirror.write_fua(ByteOffset(LEN - 5), b"fives").unwrap();
    mirror.flush().unwrap();
    let mut want = vec![7; 8192];
    want[512..1024].fill(0);
    want[4096..4196].fill(0);
    assert_eq!(bytes(&mirror, 0, 8192), want);
    for device in &devices {
        assert_eq!(bytes(device, 1024, 7168), want[1024..]);
        assert_eq!(bytes(device, 0, 512), want[..512]);
        assert_eq!(bytes(device, LEN - 5, 5), b"fives");
    }
    drop(mirror);
    for (index, device) in devices.iter().enumerate() {
        let record = record_of(&**device).unwrap().unwrap();
        assert_eq!((record.index as usize, record.generation, record.confirmed), (index, 2, true));
        assert!(record.intent.is_empty(), "a clean end leaves no intent bits");
    }
}

#[test]
fn an_opening_without_a_change_writes_nothing() {
    let devices = devices(2);
    let before = record_of(&*devices[0]).unwrap();
    let mirror = open(&devices).unwrap();
    mirror.flush().unwrap();
    drop(mirror);
    assert_eq!(record_of(&*devices[0]).unwrap(), before);
}

#[test]
fn a_member_that_fails_a_write_is_older_before_the_write_is_acknowledged() {
    for op in [IoOp::Write, IoOp::Flush] {
        for nth in 1..7 {
            let plain = devices(3);
            let faulty: Vec<_> = plain
                .iter()
                .map(|device| Arc::new(Faulty::new(MemoryDevice::clone(device))))
                .collect();
            let mirror = open(&faulty).unwrap();
            let reported = Arc::new(Mutex::new(Vec::new()));
            let reports = Arc::clone(&reported);
            mirror.on_problem(move |error| reports.lock().push((error.member, error.problem)));
            faulty[1].fail_from(op, nth);
            for n in 0..6u8 {
                mirror.write_at(ByteOffset(8192 * (1 + u64::from(n))), &[n; 5000]).unwrap();
                mirror.flush().unwrap();
            }
            let failed = mirror.stats().failed_members == 1;
            drop(mirror);
            let wanted = [("m1".to_owned(), MemberProblem::Failed { errno: 5 })];
            assert_eq!(*reported.lock(), wanted[..usize::from(failed)], "{op} {nth}");
            let copies: Vec<_> =
                faulty.iter().map(|device| Arc::new(device.inner().clone())).collect();
            let again = open(&copies).unwrap();
            assert_eq!(again.left_out().len(), usize::from(failed), "{op} {nth}");
            for n in 0..6u8 {
                assert_eq!(bytes(&again, 8192 * (1 + u64::from(n)), 5000), [n; 5000]);
            }
        }
    }
}

#[test]
fn when_all_members_fail_the_caller_gets_the_error_and_sees_one_content() {
    let plain = devices(2);
    let faulty: Vec<_> =
        plain.iter().map(|device| Arc::new(Faulty::new(MemoryDevice::clone(device)))).collect();
    let mirror = open(&faulty).unwrap();
    mirror.write_at(ByteOffset(8192), &[1; 4096]).unwrap();
    faulty[0].fail(IoOp::Write, 1);
    faulty[1].fail(IoOp::Write, 1);
    assert!(mirror.write_at(ByteOffset(8192), &[2; 4096]).is_err());
    // As if one member had received the write.
    faulty[1].inner().write_at(ByteOffset(8192), &[2; 4096]).unwrap();
    for _ in 0..10 {
        assert_eq!(bytes(&mirror, 8192, 4096), [1; 4096]);
    }
    assert!(mirror.out_of_sync_bytes() > 0);
    assert!(mirror.resync(&mut |_, _| true).unwrap());
    assert_eq!(bytes(faulty[1].inner(), 8192, 4096), [1; 4096]);
}

#[test]
fn after_a_read_error_the_other_member_serves_the_read_and_repairs_the_first() {
    let plain = devices(2);
    let faulty: Vec<_> =
        plain.iter().map(|device| Arc::new(Faulty::new(MemoryDevice::clone(device)))).collect();
    let mirror = open(&faulty).unwrap();
    mirror.write_at(ByteOffset(0), &vec![9; 1 << 20]).unwrap();
    for sick in [0, 1] {
        faulty[sick].inner().write_at(ByteOffset(300_000), &[0; 100]).unwrap();
        faulty[sick].fail_range(IoOp::Read, 299_500..301_000);
        for _ in 0..4 {
            assert_eq!(bytes(&mirror, 299_900, 200), [9; 200]);
        }
        faulty[sick].heal();
        assert_eq!(bytes(faulty[sick].inner(), 300_000, 100), [9; 100], "repaired");
    }
    assert_eq!(mirror.stats().failed_members, 0);
}

#[test]
fn a_verified_read_finds_and_repairs_wrong_bytes() {
    let devices = devices(3);
    let mirror = open(&devices).unwrap();
    mirror.write_at(ByteOffset(8192), &[5; 4096]).unwrap();
    let verify: &dyn Fn(&[u8]) -> bool = &|bytes| bytes.iter().all(|byte| *byte == 5);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let reports = Arc::clone(&reported);
    mirror.on_problem(move |error| reports.lock().push((error.member, error.problem)));
    for (n, sick) in devices.iter().enumerate() {
        sick.write_at(ByteOffset(8200), &[6]).unwrap();
        for _ in 0..6 {
            let mut buf = [0; 4096];
            assert!(mirror.read_verified(ByteOffset(8192), &mut buf, verify).unwrap());
            assert!(verify(&buf));
        }
        assert_eq!(bytes(sick, 8200, 1), [5]);
        let mended = (format!("m{n}"), MemberProblem::Repaired { at: 8192, len: 4096 });
        assert_eq!(std::mem::take(&mut *reported.lock()), [mended], "reported once");
    }
    devices.iter().for_each(|device| device.write_at(ByteOffset(8200), &[6]).unwrap());
    let mut buf = [0; 4096];
    assert!(!mirror.read_verified(ByteOffset(8192), &mut buf, verify).unwrap());
    assert_eq!(buf[8], 6);
}

#[test]
fn a_repair_does_not_copy_the_bytes_around() {
    let devices = devices(2);
    let mirror = open(&devices).unwrap();
    mirror.write_at(ByteOffset(8192), &[5; 4096]).unwrap();
    // Each member alone has the correct bytes at one of these two offsets.
    devices[0].write_at(ByteOffset(8200), &[6]).unwrap();
    devices[1].write_at(ByteOffset(10_000), &[6]).unwrap();
    let verify: &dyn Fn(&[u8]) -> bool = &|bytes| bytes.iter().all(|byte| *byte == 5);
    for _ in 0..4 {
        for at in [8192, 9216] {
            let mut buf = [0; 1024];
            assert!(mirror.read_verified(ByteOffset(at), &mut buf, verify).unwrap());
        }
    }
    assert!(devices.iter().all(|device| bytes(device, 8192, 4096) == [5; 4096]));
}

#[test]
fn devices_that_do_not_belong_to_the_volume_are_named() {
    let (ours, theirs) = (devices(2), devices(2));
    // A member of another volume, with its own UUID.
    create(&parts(&theirs), Wanted::Mirrored { alike: true }, [9; 16], LEN).unwrap();
    let blank = Arc::new(MemoryDevice::new(LEN));
    let twin = copy(&ours[0]);
    let with = |other: &Arc<MemoryDevice>| open(&[Arc::clone(&ours[0]), Arc::clone(other)]);
    assert_eq!(problem(with(&theirs[1])), ("m1".into(), MemberProblem::Foreign));
    assert_eq!(problem(with(&blank)), ("m1".into(), MemberProblem::NoRecord));
    assert!(matches!(problem(with(&twin)).1, MemberProblem::Duplicate { index: 0 }));
    let missing = MemberProblem::Missing { index: 1, count: 2 };
    assert_eq!(problem(open(&ours[..1])), ("m0".into(), missing));
    let short = Arc::new(MemoryDevice::new(LEN - 4096));
    short.write_at(ByteOffset(0), &bytes(&ours[1], 0, 4096)).unwrap();
    assert!(matches!(problem(with(&short)).1, MemberProblem::TooShort { needed: LEN }));
    ours[1].write_at(ByteOffset(600), b"flip").unwrap();
    assert_eq!(problem(with(&ours[1])), ("m1".into(), MemberProblem::Damaged));
    let left = degraded(&ours).unwrap();
    assert_eq!(left.left_out()[0].problem, MemberProblem::Damaged);
    drop(left);
    ours[1].write_at(ByteOffset(512), &[0; 512]).unwrap();
    assert_eq!(problem(with(&ours[1])), ("m1".into(), MemberProblem::NoRecord));
    let left = degraded(&ours).unwrap();
    assert_eq!((left.left_out()[0].member.as_str(), left.missing()), ("m1", None));
    drop(left);
    // Reading works with one member, and with members in any order.
    assert!(open_parts(parts(&ours[..1]), Opening::read()).is_ok());
    assert_eq!(open_parts(parts(&ours[..1]), Opening::read()).unwrap().missing(), Some(1));
    let fresh = devices(2);
    let swapped = [Arc::clone(&fresh[1]), Arc::clone(&fresh[0])];
    open(&swapped).unwrap().write_at(ByteOffset(4096), b"in any order").unwrap();
}

#[test]
fn an_old_copy_of_a_member_is_out_of_date() {
    let mut devices = devices(2);
    let backup = copy(&devices[1]);
    open(&devices).unwrap().write_at(ByteOffset(8192), b"newer").unwrap();
    devices[1] = backup;
    assert_eq!(problem(open(&devices)), ("m1".into(), MemberProblem::Stale));
    let reader = open_parts(parts(&devices), Opening::read()).unwrap();
    assert_eq!(bytes(&reader, 8192, 5), b"newer");
    let mirror = degraded(&devices).unwrap();
    assert_eq!(mirror.left_out()[0].problem, MemberProblem::Stale);
    mirror.write_at(ByteOffset(8192), b"newest").unwrap();
    drop(mirror);
    // From now on the other members do not count on it.
    assert_eq!(bytes(&open(&devices).unwrap(), 8192, 6), b"newest");
}

#[test]
fn members_changed_without_each_other_are_not_combined() {
    let devices = devices(2);
    for device in &devices {
        degraded(std::slice::from_ref(device)).unwrap().write_at(ByteOffset(8192), b"x").unwrap();
    }
    assert_eq!(problem(open(&devices)), ("m1".into(), MemberProblem::Split));
    assert_eq!(problem(degraded(&devices)), ("m1".into(), MemberProblem::Split));
    assert!(open(&devices[..1]).is_ok(), "alone it is complete");
    // The number of changes on either side does not matter.
    degraded(&devices[1..]).unwrap().write_at(ByteOffset(8192), b"y").unwrap();
    assert_eq!(problem(open(&devices)), ("m0".into(), MemberProblem::Split));
    assert_eq!(problem(degraded(&devices)), ("m0".into(), MemberProblem::Split));
}

#[test]
fn a_member_whose_superblock_other_software_wrote_is_refused() {
    let devices = devices(2);
    open(&devices).unwrap().write_at(ByteOffset(1024), &[3; 1024]).unwrap();
    let mut sector = bytes(&devices[1], 1024, 1024);
    sector[0x34] ^= 1;
    sector[0x38..0x3A].copy_from_slice(&[0x53, 0xEF]);
    devices[1].write_at(ByteOffset(1024), &sector).unwrap();
    // The superblock is invalid: this counts as damage, and the other member leads.
    assert!(open(&devices).is_ok());
}

#[test]
fn a_new_member_gets_everything_while_others_write() {
    let mut devices = devices(3);
    devices[2] = Arc::new(MemoryDevice::new(LEN + 4096));
    let mirror = degraded(&devices[..2]).unwrap();
    mirror.write_at(ByteOffset(8192), &vec![1; 3 << 20]).unwrap();
    assert_eq!(mirror.add(Part::new(Arc::clone(&devices[2]) as _, "new")).unwrap(), 2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (mirror, stop) = (&mirror, &stop);
            scope.spawn(move || {
                let mut n = thread;
                while !stop.load(Ordering::Relaxed) {
                    let at = 8192 + (n * 77_777) % (LEN - 20_000);
                    let at = at / 12288 * 12288 + thread * 4096 + 8192;
                    if at + 4096 > LEN {
                        n += 1;
                        continue;
                    }
                    let data = vec![n as u8; 4096];
                    mirror.write_at(ByteOffset(at), &data).unwrap();
                    assert_eq!(bytes(mirror, at, 4096), data);
                    if n % 7 == 0 {
                        mirror.flush().unwrap();
                    }
                    n += 3;
                }
            });
        }
        let mut reported = 0;
        assert!(
            mirror
                .resync(&mut |done, _| {
                    reported = done;
                    true
                })
                .unwrap()
        );
        assert!(reported > 0);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(mirror.places().iter().all(|place| !place.rebuilding && place.out_of_sync_bytes == 0));
    assert!(mirror.compare(4096, 9, &mut |_, _| true).unwrap().ranges.is_empty());
    drop(mirror);
    assert_eq!(open(&devices).unwrap().left_out().len(), 0);
    assert_eq!(bytes(&devices[2], 8192, 1 << 20), bytes(&devices[0], 8192, 1 << 20));
}

#[test]
fn a_stopped_rebuild_continues_and_is_not_read_before_its_end() {
    let devices = devices(2);
    let blank = Arc::new(MemoryDevice::new(LEN));
    let mirror = degraded(&devices[..1]).unwrap();
    mirror.write_at(ByteOffset(8192), &vec![4; 2 << 20]).unwrap();
    mirror.add(Part::new(Arc::clone(&blank) as _, "new")).unwrap();
    let mut steps = 0;
    assert!(
        !mirror
            .resync(&mut |_, _| {
                steps += 1;
                steps < 5
            })
            .unwrap()
    );
    drop(mirror);
    assert_eq!(problem(open(&[Arc::clone(&blank)])).1, MemberProblem::Unfinished);
    let mirror = open(&[Arc::clone(&devices[0]), Arc::clone(&blank)]).unwrap();
    assert!(mirror.out_of_sync_bytes() > 0);
    for at in (8192..2 << 20).step_by(65536) {
        assert_eq!(bytes(&mirror, at, 4096), [4; 4096]);
    }
    Mirror::resync_in_background(&mirror).unwrap();
    while mirror.places()[1].rebuilding {
        std::thread::yield_now();
    }
    drop(mirror);
    assert_eq!(bytes(&blank, 8192, 2 << 20), vec![4; 2 << 20]);
}

#[test]
fn compare_shows_which_members_differ() {
    let devices = devices(3);
    let mirror = open(&devices).unwrap();
    devices[1].write_at(ByteOffset(1 << 20), b"x").unwrap();
    let found = mirror.compare(4096, 9, &mut |_, _| true).unwrap().ranges;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].range, 1 << 20..(1 << 20) + 4096);
    assert_eq!(*found[0].contents, [Some(0), Some(1), Some(0)]);
    let mut right = [0; 4096];
    mirror.read_of(2, found[0].range.start, &mut right).unwrap();
    mirror.write_at(ByteOffset(found[0].range.start), &right).unwrap();
    assert!(mirror.compare(4096, 9, &mut |_, _| true).unwrap().ranges.is_empty());
    assert!(mirror.needs_stable_buffers());
}

#[test]
fn a_member_is_not_compared_where_it_is_out_of_sync() {
    for place in [0, 1] {
        let devices = devices(2);
        let new = Arc::new(MemoryDevice::new(LEN));
        new.write_at(ByteOffset(0), &vec![7; LEN as usize]).unwrap();
        let mirror = degraded(&devices[1 - place..2 - place]).unwrap();
        mirror.write_at(ByteOffset(8192), &vec![4; 3 << 20]).unwrap();
        mirror.add(Part::new(Arc::clone(&new) as _, "new")).unwrap();
        let mut steps = 0;
        let mut stop = |_, _| {
            steps += 1;
            steps < 20
        };
        assert!(!mirror.resync(&mut stop).unwrap());
        let all = mirror.compare(1024, 9, &mut |_, _| true).unwrap();
        assert_eq!(all, Differences::default(), "{place}");
        // Where it was copied it is compared.
        new.write_at(ByteOffset(10_240), &[9; 2048]).unwrap();
        let found = mirror.compare(1024, 9, &mut |_, _| true).unwrap();
        let ranges: Vec<_> = found.ranges.iter().map(|found| found.range.clone()).collect();
        assert!(matches!(&ranges[..], [one] if *one == (10_240..12_288)), "{ranges:?}");
        assert_eq!((found.units, found.more), (2, false));
        // It is never read elsewhere.
        let number = mirror.places().iter().position(|place| place.name == "new").unwrap();
        assert!(mirror.read_of(number, LEN - 4096, &mut [0; 4096]).is_err());
        assert!(mirror.read_of(number, 8192, &mut [0; 2048]).is_ok());
        assert!(mirror.compare_behind(1024, 9).ranges.is_empty());
    }
}

#[test]
fn compare_stops_when_more_units_differ_than_requested() {
    let devices = devices(2);
    let mirror = open(&devices).unwrap();
    devices[1].write_at(ByteOffset(1 << 20), &vec![3; 1 << 20]).unwrap();
    let asked = |units| {
        let mut reported = 0;
        let found = mirror.compare(4096, units, &mut |at, _| {
            reported = at;
            true
        });
        (found.unwrap(), reported)
    };
    let (found, reported) = asked(256);
    assert_eq!((found.ranges.len(), found.units, found.more, reported), (1, 256, false, LEN));
    let (found, reported) = asked(255);
    assert_eq!((found.ranges.len(), found.units, found.more, reported), (1, 255, true, 1 << 20));
}

#[test]
fn members_that_differ_from_the_start_are_resynced() {
    let devices: Vec<_> = (0..2).map(|_| Arc::new(MemoryDevice::new(LEN))).collect();
    devices[1].write_at(ByteOffset(2 << 20), &[1; 4096]).unwrap();
    create(&parts(&devices), Wanted::Mirrored { alike: false }, [1; 16], LEN).unwrap();
    let mirror = open(&devices).unwrap();
    assert_eq!(mirror.out_of_sync_bytes(), LEN);
    assert_eq!(bytes(&mirror, 2 << 20, 4096), [0; 4096]);
    assert!(mirror.resync(&mut |_, _| true).unwrap());
    assert_eq!(bytes(&devices[1], 2 << 20, 4096), [0; 4096]);
}

#[test]
fn a_member_with_changes_of_its_own_does_not_count_as_out_of_date() {
    let add = |to: &Arc<MemoryDevice>, part: &Arc<MemoryDevice>| {
        let mirror = degraded(std::slice::from_ref(to)).unwrap();
        let before = bytes(&**to, 0, 4096);
        let done = mirror.add(Part::new(Arc::clone(part) as _, "new"));
        let refused = done.is_err();
        drop(mirror);
        assert!(!refused || before == bytes(&**to, 0, 4096), "a refusal writes nothing");
        match done {
            Err(Error::Member(error)) => (error.member, error.problem),
            other => panic!("{other:?}"),
        }
    };
    let change = |devices: &[Arc<MemoryDevice>]| {
        degraded(devices).unwrap().write_at(ByteOffset(8192), b"x").unwrap();
    };
    // One is newer.
    let pair = devices(2);
    change(&pair[..1]);
    let newer = MemberProblem::Newer { generation: 2, source: 1 };
    assert_eq!(add(&pair[1], &pair[0]), ("new".into(), newer));
    // Both have changes, one of them more often.
    change(&pair[1..]);
    change(&pair[1..]);
    let diverged = MemberProblem::Diverged { generation: 2, source: 3 };
    assert_eq!(add(&pair[1], &pair[0]).1, diverged);
    let diverged = MemberProblem::Diverged { generation: 3, source: 2 };
    assert_eq!(add(&pair[0], &pair[1]).1, diverged);
    // Both have changes, equally often.
    change(&pair[..1]);
    let diverged = MemberProblem::Diverged { generation: 3, source: 3 };
    assert_eq!(add(&pair[0], &pair[1]).1, diverged);
    // Two of three went on without the first one, which then got changes of its own and a new
    // second member.
    let three = devices(3);
    change(&three[1..]);
    change(&three[..1]);
    change(&three[..1]);
    let mirror = degraded(&three[..1]).unwrap();
    let new = Arc::new(MemoryDevice::new(LEN));
    assert_eq!(mirror.add(Part::new(Arc::clone(&new) as _, "new")).unwrap(), 1);
    assert!(mirror.resync(&mut |_, _| true).unwrap());
    let done = mirror.add(Part::new(Arc::clone(&three[2]) as _, "old"));
    let Err(Error::Member(error)) = done else { panic!("{done:?}") };
    assert!(matches!(error.problem, MemberProblem::Diverged { generation: 2, .. }), "{error}");
    assert_eq!(mirror.add_over(Part::new(Arc::clone(&three[2]) as _, "old")).unwrap(), 2);
}

#[test]
fn a_member_in_use_is_not_added_again() {
    let devices = devices(3);
    let mirror = degraded(&devices[..2]).unwrap();
    let refused = |done: Result<u16, Error>| {
        let Err(Error::Member(error)) = done else { panic!("{done:?}") };
        assert_eq!(error.problem, MemberProblem::Duplicate { index: 1 });
        assert!(!error.to_string().contains('\n'), "{error}");
    };
    refused(mirror.add(Part::new(copy(&devices[1]) as _, "copy")));
    // Not even with force: the rebuild would copy the member over itself. A slice is another device
    // with the same bytes, as a second opening of a file is.
    let again =
        Slice::new(Arc::clone(&devices[1]) as Arc<dyn BlockDevice>, ByteOffset(0), LEN).unwrap();
    for same in [Arc::clone(&devices[1]) as Arc<dyn BlockDevice>, Arc::new(again)] {
        refused(mirror.add_over(Part::new(same, "same")));
    }
    assert_eq!(mirror.places().len(), 2);
    drop(mirror);
    // What was refused changed nothing: each member is used as before.
    let mirror = degraded(&devices[..2]).unwrap();
    assert!(mirror.left_out().is_empty());
    // A copy is another device, which force may write over.
    assert_eq!(mirror.add_over(Part::new(copy(&devices[1]) as _, "copy")).unwrap(), 2);
    assert!(mirror.resync(&mut |_, _| true).unwrap());
}

#[test]
fn settling_clears_the_intent_bits_and_a_write_sets_them_again() {
    let devices = devices(2);
    let mirror = open(&devices).unwrap();
    let record = |n: usize| record_of(&*devices[n]).unwrap().unwrap();
    for at in [8192, 1024] {
        mirror.write_at(ByteOffset(at), &[5; 4096]).unwrap();
        assert!(!record(0).intent.is_empty() && !record(1).intent.is_empty());
        mirror.set_idle();
        assert!(record(0).intent.is_empty() && record(1).intent.is_empty());
        let writes = mirror.stats().record_writes;
        mirror.set_idle();
        assert_eq!(mirror.stats().record_writes, writes, "nothing to clear");
    }
    // Report idleness again and again during writes, also of the superblock.
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let mirror = &mirror;
            scope.spawn(move || {
                for n in 0..200u64 {
                    let at = if thread == 0 { 1024 } else { 8192 + n * 4096 };
                    mirror.write_at(ByteOffset(at), &[n as u8; 1024]).unwrap();
                }
            });
        }
        for _ in 0..100 {
            mirror.set_idle();
        }
    });
    let cut: Vec<_> = devices.iter().map(copy).collect();
    drop(mirror);
    assert_eq!(open(&cut).unwrap().left_out().len(), 0);
}
