//! Members that fail in use: writes acknowledged after the failure survive a power cut, even when
//! the failed members are present again.

use extant_base::{ByteOffset, Error, IoOp, MemberProblem, Result};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::member::{MEMBER_OFFSET, print_of};
use extant_raid::{Assembled, Mirror, Opening, Part, Wanted, assemble, create, record_of};
use parking_lot::{Condvar, Mutex, RwLock};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const LEN: u64 = 1 << 20;
/// How long a test waits for an acknowledgement that must not come.
const NO_ANSWER_TIME: Duration = Duration::from_millis(150);

/// The kinds of requests to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Write,
    Record,
    Flush,
}

#[derive(Default)]
struct Faults {
    /// Requests to block: kind, and how many from now on.
    hold: Vec<(Request, u32)>,
    /// Requests to fail: kind, and how many from now on.
    fail: Vec<(Request, u32)>,
    waiting: u32,
    failed: u32,
}

/// A disk with a volatile cache, which a power cut empties. A flush that fails empties it, too, and
/// reports the failure once.
struct Disk {
    seen: MemoryDevice,
    durable: MemoryDevice,
    cache: Mutex<Vec<(ByteOffset, Vec<u8>)>>,
    faults: Mutex<Faults>,
    changed: Condvar,
    /// The power cut takes it exclusively.
    power: Arc<RwLock<()>>,
}

impl Disk {
    fn check(&self, request: Request) -> Result<()> {
        let mut faults = self.faults.lock();
        if take(&mut faults.hold, request) {
            faults.waiting += 1;
            self.changed.notify_all();
            while faults.waiting > 0 {
                self.changed.wait(&mut faults);
            }
        }
        if !take(&mut faults.fail, request) {
            return Ok(());
        }
        faults.failed += 1;
        self.changed.notify_all();
        let source = io::Error::from_raw_os_error(5);
        let op = if request == Request::Flush { IoOp::Flush } else { IoOp::Write };
        Err(Error::Device { op, at: ByteOffset(0), len: 0, source })
    }

    fn hold(&self, request: Request, times: u32) {
        self.faults.lock().hold.push((request, times));
    }

    fn fail(&self, request: Request, times: u32) {
        self.faults.lock().fail.push((request, times));
    }

    fn wait_until(&self, is_so: impl Fn(&Faults) -> bool) {
        let mut faults = self.faults.lock();
        while !is_so(&faults) {
            let late = self.changed.wait_for(&mut faults, Duration::from_secs(60)).timed_out();
            assert!(!late, "the disk got no request");
        }
    }

    /// Lets blocked requests go on, and fails none any more.
    fn clear_faults(&self) {
        *self.faults.lock() = Faults::default();
        self.changed.notify_all();
    }
}

fn take(counted: &mut [(Request, u32)], request: Request) -> bool {
    let found = counted.iter_mut().find(|(what, left)| *what == request && *left > 0);
    found.map(|(_, left)| *left -= 1).is_some()
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        LEN
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.seen.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.check(Request::Write)?;
        let _on = self.power.read();
        let mut cache = self.cache.lock();
        cache.push((at, buf.to_vec()));
        self.seen.write_at(at, buf)
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.check(if at.0 == MEMBER_OFFSET { Request::Record } else { Request::Write })?;
        let _on = self.power.read();
        let mut cache = self.cache.lock();
        cache.retain(|(other, bytes)| (*other, bytes.len()) != (at, buf.len()));
        self.seen.write_at(at, buf)?;
        self.durable.write_at(at, buf)
    }

    fn flush(&self) -> Result<()> {
        let checked = self.check(Request::Flush);
        let _on = self.power.read();
        let mut cache = self.cache.lock();
        for (at, bytes) in std::mem::take(&mut *cache) {
            if checked.is_ok() {
                self.durable.write_at(at, &bytes)?;
            }
        }
        checked
    }
}

/// The disks of one mirror, and their content after a power cut.
struct Disks {
    all: Vec<Arc<Disk>>,
    power: Arc<RwLock<()>>,
}

impl Disks {
    fn new(count: usize) -> Disks {
        let plain: Vec<_> = (0..count).map(|_| Arc::new(MemoryDevice::new(LEN))).collect();
        create(&parts(&plain), Wanted::Mirrored { alike: true }, [5; 16], LEN).unwrap();
        let power = Arc::new(RwLock::new(()));
        let disk = |plain: &Arc<MemoryDevice>| {
            Arc::new(Disk {
                seen: MemoryDevice::clone(plain),
                durable: MemoryDevice::clone(plain),
                cache: Mutex::default(),
                faults: Mutex::default(),
                changed: Condvar::new(),
                power: Arc::clone(&power),
            })
        };
        Disks { all: plain.iter().map(disk).collect(), power }
    }

    fn open(&self) -> Arc<Mirror> {
        open(parts(&self.all)).unwrap()
    }

    /// The content of all disks after a power cut now.
    fn power_cut(&self) -> Vec<Arc<MemoryDevice>> {
        let _off = self.power.write();
        self.all.iter().map(|disk| Arc::new(disk.durable.clone())).collect()
    }
}

fn parts<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Vec<Part> {
    let part = |(n, device): (usize, &Arc<D>)| Part::new(Arc::clone(device) as _, format!("m{n}"));
    devices.iter().enumerate().map(part).collect()
}

fn open(parts: Vec<Part>) -> Result<Arc<Mirror>> {
    match assemble(parts, Opening::write())? {
        Assembled::Mirrored(mirror) => Ok(mirror),
        _ => panic!("no mirror"),
    }
}

fn bytes(device: &dyn BlockDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(ByteOffset(at), &mut bytes).unwrap();
    bytes
}

/// Opens the disks after a power cut with all members present; those in `lost` must be out of date.
fn open_after_cut(power_cut: &[Arc<MemoryDevice>], lost: &[usize]) -> Arc<Mirror> {
    let mirror = open(parts(power_cut)).unwrap();
    let left_out = mirror.left_out().iter().map(|left| (left.member.clone(), left.problem));
    let wanted = lost.iter().map(|n| (format!("m{n}"), MemberProblem::Stale));
    assert_eq!(left_out.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    mirror
}

type DurableWrite = fn(&Mirror, u64) -> Result<()>;

/// Ways to make bytes durable.
const DURABLE_WRITES: [DurableWrite; 2] = [
    |mirror, at| {
        mirror.write_at(ByteOffset(at), &[3; 4096])?;
        mirror.flush()
    },
    |mirror, at| mirror.write_fua(ByteOffset(at), &[3; 4096]),
];

#[test]
fn nothing_is_acknowledged_before_the_loss_of_a_member_is_on_record() {
    for count in [2, 3] {
        for durable_write in DURABLE_WRITES {
            let disks = Disks::new(count);
            let mirror = disks.open();
            mirror.write_at(ByteOffset(8192), &[1; 65536]).unwrap();
            mirror.flush().unwrap();
            let last = &disks.all[count - 1];
            disks.all[0].fail(Request::Write, 1);
            last.hold(Request::Record, 1);
            thread::scope(|scope| {
                let failing = scope.spawn(|| mirror.write_at(ByteOffset(8192), &[2; 4096]));
                last.wait_until(|faults| faults.waiting == 1);
                let (sender, receiver) = mpsc::channel();
                let mirror = &mirror;
                scope.spawn(move || sender.send(durable_write(mirror, 16384)).unwrap());
                let early = receiver.recv_timeout(NO_ANSWER_TIME);
                let power_cut = match early.is_ok() {
                    true => disks.power_cut(),
                    false => {
                        last.clear_faults();
                        receiver.recv().unwrap().unwrap();
                        disks.power_cut()
                    }
                };
                last.clear_faults();
                failing.join().unwrap().unwrap();
                let again = open_after_cut(&power_cut, &[0]);
                assert_eq!(bytes(&again, 16384, 4096), [3; 4096]);
            });
        }
    }
}

#[test]
fn while_a_loss_cannot_be_recorded_nothing_is_acknowledged() {
    for durable_write in DURABLE_WRITES {
        let disks = Disks::new(2);
        let mirror = disks.open();
        mirror.write_at(ByteOffset(8192), &[1; 65536]).unwrap();
        mirror.flush().unwrap();
        disks.all[0].fail(Request::Write, 1);
        disks.all[1].fail(Request::Record, 3);
        assert!(mirror.write_at(ByteOffset(8192), &[2; 4096]).is_err());
        assert!(durable_write(&mirror, 12288).is_err());
        assert!(mirror.flush().is_err());
        assert_eq!(bytes(&mirror, 20480, 4096), [1; 4096]);
        assert_eq!(
            disks.all[1].faults.lock().failed,
            3,
            "each call tried to record the loss again"
        );
        // Nothing was acknowledged, so both members may be used.
        assert_eq!(bytes(&open_after_cut(&disks.power_cut(), &[]), 8192, 65536), [1; 65536]);
        durable_write(&mirror, 16384).unwrap();
        let writes = mirror.stats().record_writes;
        durable_write(&mirror, 20480).unwrap();
        assert_eq!(mirror.stats().record_writes, writes, "the loss is recorded once");
        let again = open_after_cut(&disks.power_cut(), &[0]);
        assert_eq!(bytes(&again, 16384, 8192), [3; 8192]);
        assert_eq!(mirror.stats().failed_members, 1);
    }
}

#[test]
fn other_writes_that_failed_on_the_lost_member_are_not_acknowledged_before_the_record() {
    let disks = Disks::new(2);
    let mirror = disks.open();
    mirror.write_at(ByteOffset(8192), &[1; 65536]).unwrap();
    mirror.flush().unwrap();
    disks.all[0].hold(Request::Write, 3);
    disks.all[1].fail(Request::Record, 6);
    let failed = thread::scope(|scope| {
        let mirror = &mirror;
        let write = |n: u64| move || mirror.write_at(ByteOffset(8192 * (1 + n)), &[2; 4096]);
        let writers: Vec<_> = (0..3).map(|n| scope.spawn(write(n))).collect();
        disks.all[0].wait_until(|faults| faults.waiting == 3);
        *disks.all[0].faults.lock() =
            Faults { fail: vec![(Request::Write, 3)], ..Faults::default() };
        disks.all[0].changed.notify_all();
        writers.into_iter().map(|writer| writer.join().unwrap().is_err()).collect::<Vec<_>>()
    });
    assert_eq!(failed, [true; 3]);
}

#[test]
fn a_second_member_that_fails_while_the_first_loss_is_recorded_is_out_as_well() {
    let disks = Disks::new(3);
    let mirror = disks.open();
    mirror.write_at(ByteOffset(8192), &[1; 65536]).unwrap();
    mirror.flush().unwrap();
    disks.all[0].fail(Request::Write, 1);
    disks.all[1].fail(Request::Record, 1);
    disks.all[2].fail(Request::Record, 1);
    // No member is left that could store the record.
    assert!(mirror.write_at(ByteOffset(8192), &[2; 4096]).is_err());
    disks.all[1].fail(Request::Record, 1);
    mirror.write_at(ByteOffset(8192), &[3; 4096]).unwrap();
    mirror.flush().unwrap();
    assert_eq!(bytes(&open_after_cut(&disks.power_cut(), &[0, 1]), 8192, 4096), [3; 4096]);
}

#[test]
fn a_flush_whose_failure_another_caller_got_is_not_acknowledged_before_the_decision() {
    let disks = Disks::new(2);
    let mirror = disks.open();
    mirror.write_at(ByteOffset(8192), &[1; 4096]).unwrap();
    mirror.flush().unwrap();
    mirror.write_at(ByteOffset(8192), &[2; 4096]).unwrap();
    // The first flush gets the error from one disk while it still waits for the other.
    disks.all[0].fail(Request::Flush, 1);
    disks.all[1].hold(Request::Flush, 1);
    thread::scope(|scope| {
        let mirror = &mirror;
        let first = scope.spawn(|| mirror.flush());
        disks.all[1].wait_until(|faults| faults.waiting == 1);
        disks.all[0].wait_until(|faults| faults.failed == 1);
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || sender.send(mirror.flush()).unwrap());
        let early = receiver.recv_timeout(NO_ANSWER_TIME);
        let power_cut = match early.is_ok() {
            true => disks.power_cut(),
            false => {
                disks.all[1].clear_faults();
                receiver.recv().unwrap().unwrap();
                disks.power_cut()
            }
        };
        disks.all[1].clear_faults();
        first.join().unwrap().unwrap();
        assert_eq!(bytes(&open_after_cut(&power_cut, &[0]), 8192, 4096), [2; 4096]);
    });
}

#[test]
fn a_fingerprint_that_could_not_be_recorded_is_recorded_before_its_superblock_is_written() {
    let disks = Disks::new(2);
    let mirror = disks.open();
    mirror.write_at(ByteOffset(1024), &[1; 1024]).unwrap();
    disks.all.iter().for_each(|disk| disk.fail(Request::Record, 1));
    assert!(mirror.write_fua(ByteOffset(1024), &[2; 1024]).is_err());
    mirror.write_fua(ByteOffset(1024), &[2; 1024]).unwrap();
    for disk in disks.power_cut() {
        let record = record_of(&*disk).unwrap().unwrap();
        assert_eq!(bytes(&*disk, 1024, 512), [2; 512]);
        assert!(record.prints.has(print_of(&[2; 512])));
    }
}

#[test]
fn acknowledged_writes_of_threads_survive_a_member_failure_and_a_power_cut() {
    const THREADS: u64 = 3;
    for round in 0..60u64 {
        let disks = Disks::new(2 + (round % 2) as usize);
        let mirror = disks.open();
        let acknowledged: Vec<_> = (0..THREADS).map(|_| AtomicU8::new(0)).collect();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for (n, sure) in acknowledged.iter().enumerate() {
                let (mirror, stop) = (&mirror, &stop);
                scope.spawn(move || {
                    let at = ByteOffset(65536 * (1 + n as u64));
                    for value in 1..=250 {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        mirror.write_at(at, &[value; 4096]).unwrap();
                        mirror.flush().unwrap();
                        sure.store(value, Ordering::SeqCst);
                    }
                });
            }
            while acknowledged[0].load(Ordering::SeqCst) < 5 {
                thread::yield_now();
            }
            let request = if round % 4 < 2 { Request::Flush } else { Request::Write };
            disks.all[0].fail(request, 1);
            disks.all[0].wait_until(|faults| faults.failed == 1);
            for _ in 0..20 {
                let sure: Vec<_> =
                    acknowledged.iter().map(|sure| sure.load(Ordering::SeqCst)).collect();
                let power_cut = open(parts(&disks.power_cut())).unwrap();
                for (n, sure) in (0..).zip(sure) {
                    let there = bytes(&power_cut, 65536 * (1 + n), 4096)[0];
                    assert!(there >= sure, "round {round}, thread {n}: {there} of {sure}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
