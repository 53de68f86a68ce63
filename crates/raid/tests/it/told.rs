//! Members that fail in use: what is acknowledged behind that stays, with them there again after a power cut.

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
/// How long an acknowledgement that must not come is waited for.
const PATIENCE: Duration = Duration::from_millis(150);

/// What a disk is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Write,
    Record,
    Flush,
}

#[derive(Default)]
struct Orders {
    /// So many of each from now on wait.
    hold: Vec<(Ask, u32)>,
    /// So many of each from now on fail.
    refuse: Vec<(Ask, u32)>,
    waiting: u32,
    refused: u32,
}

/// A disk with a cache that a power cut empties. A flush that fails empties it, too, and is told once.
struct Disk {
    seen: MemoryDevice,
    durable: MemoryDevice,
    cache: Mutex<Vec<(ByteOffset, Vec<u8>)>>,
    orders: Mutex<Orders>,
    changed: Condvar,
    /// Taken alone by the power cut.
    power: Arc<RwLock<()>>,
}

impl Disk {
    fn pass(&self, ask: Ask) -> Result<()> {
        let mut orders = self.orders.lock();
        if take(&mut orders.hold, ask) {
            orders.waiting += 1;
            self.changed.notify_all();
            while orders.waiting > 0 {
                self.changed.wait(&mut orders);
            }
        }
        if !take(&mut orders.refuse, ask) {
            return Ok(());
        }
        orders.refused += 1;
        self.changed.notify_all();
        let source = io::Error::from_raw_os_error(5);
        let op = if ask == Ask::Flush { IoOp::Flush } else { IoOp::Write };
        Err(Error::Device { op, at: ByteOffset(0), len: 0, source })
    }

    fn hold(&self, ask: Ask, times: u32) {
        self.orders.lock().hold.push((ask, times));
    }

    fn refuse(&self, ask: Ask, times: u32) {
        self.orders.lock().refuse.push((ask, times));
    }

    fn wait_until(&self, is_so: impl Fn(&Orders) -> bool) {
        let mut orders = self.orders.lock();
        while !is_so(&orders) {
            let late = self.changed.wait_for(&mut orders, Duration::from_secs(60)).timed_out();
            assert!(!late, "nothing comes");
        }
    }

    /// Lets those that wait go on, and fails nothing any more.
    fn heal(&self) {
        *self.orders.lock() = Orders::default();
        self.changed.notify_all();
    }
}

fn take(counted: &mut [(Ask, u32)], ask: Ask) -> bool {
    let found = counted.iter_mut().find(|(what, left)| *what == ask && *left > 0);
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
        self.pass(Ask::Write)?;
        let _on = self.power.read();
        let mut cache = self.cache.lock();
        cache.push((at, buf.to_vec()));
        self.seen.write_at(at, buf)
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.pass(if at.0 == MEMBER_OFFSET { Ask::Record } else { Ask::Write })?;
        let _on = self.power.read();
        let mut cache = self.cache.lock();
        cache.retain(|(other, bytes)| (*other, bytes.len()) != (at, buf.len()));
        self.seen.write_at(at, buf)?;
        self.durable.write_at(at, buf)
    }

    fn flush(&self) -> Result<()> {
        let passed = self.pass(Ask::Flush);
        let _on = self.power.read();
        let mut cache = self.cache.lock();
        for (at, bytes) in std::mem::take(&mut *cache) {
            if passed.is_ok() {
                self.durable.write_at(at, &bytes)?;
            }
        }
        passed
    }
}

/// Disks of one mirror, and what a power cut leaves of them.
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
                orders: Mutex::default(),
                changed: Condvar::new(),
                power: Arc::clone(&power),
            })
        };
        Disks { all: plain.iter().map(disk).collect(), power }
    }

    fn open(&self) -> Arc<Mirror> {
        open(parts(&self.all)).unwrap()
    }

    /// All disks, as a power cut now leaves them.
    fn cut(&self) -> Vec<Arc<MemoryDevice>> {
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

/// Opens what a cut left with all members there, of which those in `lost` are named as out of date.
fn open_cut(cut: &[Arc<MemoryDevice>], lost: &[usize]) -> Arc<Mirror> {
    let mirror = open(parts(cut)).unwrap();
    let left_out = mirror.left_out().iter().map(|left| (left.member.clone(), left.problem));
    let wanted = lost.iter().map(|n| (format!("m{n}"), MemberProblem::Stale));
    assert_eq!(left_out.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());
    mirror
}

type Deed = fn(&Mirror, u64) -> Result<()>;

/// Ways to have bytes acknowledged as durable.
const DEEDS: [Deed; 2] = [
    |mirror, at| {
        mirror.write_at(ByteOffset(at), &[3; 4096])?;
        mirror.flush()
    },
    |mirror, at| mirror.write_fua(ByteOffset(at), &[3; 4096]),
];

#[test]
fn nothing_is_acknowledged_before_the_loss_of_a_member_is_on_record() {
    for count in [2, 3] {
        for deed in DEEDS {
            let disks = Disks::new(count);
            let mirror = disks.open();
            mirror.write_at(ByteOffset(8192), &[1; 65536]).unwrap();
            mirror.flush().unwrap();
            let last = &disks.all[count - 1];
            disks.all[0].refuse(Ask::Write, 1);
            last.hold(Ask::Record, 1);
            thread::scope(|scope| {
                let loser = scope.spawn(|| mirror.write_at(ByteOffset(8192), &[2; 4096]));
                last.wait_until(|orders| orders.waiting == 1);
                let (tell, told) = mpsc::channel();
                let mirror = &mirror;
                scope.spawn(move || tell.send(deed(mirror, 16384)).unwrap());
                let early = told.recv_timeout(PATIENCE);
                let cut = match early.is_ok() {
                    true => disks.cut(),
                    false => {
                        last.heal();
                        told.recv().unwrap().unwrap();
                        disks.cut()
                    }
                };
                last.heal();
                loser.join().unwrap().unwrap();
                let again = open_cut(&cut, &[0]);
                assert_eq!(bytes(&again, 16384, 4096), [3; 4096]);
            });
        }
    }
}

#[test]
fn a_loss_that_comes_on_no_record_lets_nothing_through_until_it_does() {
    for deed in DEEDS {
        let disks = Disks::new(2);
        let mirror = disks.open();
        mirror.write_at(ByteOffset(8192), &[1; 65536]).unwrap();
        mirror.flush().unwrap();
        disks.all[0].refuse(Ask::Write, 1);
        disks.all[1].refuse(Ask::Record, 3);
        assert!(mirror.write_at(ByteOffset(8192), &[2; 4096]).is_err());
        assert!(deed(&mirror, 12288).is_err());
        assert!(mirror.flush().is_err());
        assert_eq!(bytes(&mirror, 20480, 4096), [1; 4096]);
        assert_eq!(disks.all[1].orders.lock().refused, 3, "each of them tried it again");
        // Nothing was acknowledged: both may be taken.
        assert_eq!(bytes(&open_cut(&disks.cut(), &[]), 8192, 65536), [1; 65536]);
        deed(&mirror, 16384).unwrap();
        let writes = mirror.stats().record_writes;
        deed(&mirror, 20480).unwrap();
        assert_eq!(mirror.stats().record_writes, writes, "it is told once");
        let again = open_cut(&disks.cut(), &[0]);
        assert_eq!(bytes(&again, 16384, 8192), [3; 8192]);
        assert_eq!(mirror.stats().failed_members, 1);
    }
}

#[test]
fn whoever_else_failed_on_the_lost_member_is_not_acknowledged_before_the_record() {
    let disks = Disks::new(2);
    let mirror = disks.open();
    mirror.write_at(ByteOffset(8192), &[1; 65536]).unwrap();
    mirror.flush().unwrap();
    disks.all[0].hold(Ask::Write, 3);
    disks.all[1].refuse(Ask::Record, 6);
    let failed = thread::scope(|scope| {
        let mirror = &mirror;
        let write = |n: u64| move || mirror.write_at(ByteOffset(8192 * (1 + n)), &[2; 4096]);
        let writers: Vec<_> = (0..3).map(|n| scope.spawn(write(n))).collect();
        disks.all[0].wait_until(|orders| orders.waiting == 3);
        *disks.all[0].orders.lock() = Orders { refuse: vec![(Ask::Write, 3)], ..Orders::default() };
        disks.all[0].changed.notify_all();
        writers.into_iter().map(|writer| writer.join().unwrap().is_err()).collect::<Vec<_>>()
    });
    assert_eq!(failed, [true; 3]);
}

#[test]
fn a_second_member_that_fails_while_the_first_is_put_on_record_is_out_as_well() {
    let disks = Disks::new(3);
    let mirror = disks.open();
    mirror.write_at(ByteOffset(8192), &[1; 65536]).unwrap();
    mirror.flush().unwrap();
    disks.all[0].refuse(Ask::Write, 1);
    disks.all[1].refuse(Ask::Record, 1);
    disks.all[2].refuse(Ask::Record, 1);
    // None is left that could take it.
    assert!(mirror.write_at(ByteOffset(8192), &[2; 4096]).is_err());
    disks.all[1].refuse(Ask::Record, 1);
    mirror.write_at(ByteOffset(8192), &[3; 4096]).unwrap();
    mirror.flush().unwrap();
    assert_eq!(bytes(&open_cut(&disks.cut(), &[0, 1]), 8192, 4096), [3; 4096]);
}

#[test]
fn a_flush_that_another_one_saw_fail_is_not_acknowledged_while_the_member_counts() {
    let disks = Disks::new(2);
    let mirror = disks.open();
    mirror.write_at(ByteOffset(8192), &[1; 4096]).unwrap();
    mirror.flush().unwrap();
    mirror.write_at(ByteOffset(8192), &[2; 4096]).unwrap();
    // The first one hears of it while the other disk still has it wait.
    disks.all[0].refuse(Ask::Flush, 1);
    disks.all[1].hold(Ask::Flush, 1);
    thread::scope(|scope| {
        let mirror = &mirror;
        let first = scope.spawn(|| mirror.flush());
        disks.all[1].wait_until(|orders| orders.waiting == 1);
        disks.all[0].wait_until(|orders| orders.refused == 1);
        let (tell, told) = mpsc::channel();
        scope.spawn(move || tell.send(mirror.flush()).unwrap());
        let early = told.recv_timeout(PATIENCE);
        let cut = match early.is_ok() {
            true => disks.cut(),
            false => {
                disks.all[1].heal();
                told.recv().unwrap().unwrap();
                disks.cut()
            }
        };
        disks.all[1].heal();
        first.join().unwrap().unwrap();
        assert_eq!(bytes(&open_cut(&cut, &[0]), 8192, 4096), [2; 4096]);
    });
}

#[test]
fn a_fingerprint_that_came_on_no_record_is_recorded_before_its_superblock_is_written() {
    let disks = Disks::new(2);
    let mirror = disks.open();
    mirror.write_at(ByteOffset(1024), &[1; 1024]).unwrap();
    disks.all.iter().for_each(|disk| disk.refuse(Ask::Record, 1));
    assert!(mirror.write_fua(ByteOffset(1024), &[2; 1024]).is_err());
    mirror.write_fua(ByteOffset(1024), &[2; 1024]).unwrap();
    for disk in disks.cut() {
        let record = record_of(&*disk).unwrap().unwrap();
        assert_eq!(bytes(&*disk, 1024, 512), [2; 512]);
        assert!(record.prints.has(print_of(&[2; 512])));
    }
}

#[test]
fn threads_whose_members_fail_find_all_that_was_acknowledged_after_a_cut() {
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
            let ask = if round % 4 < 2 { Ask::Flush } else { Ask::Write };
            disks.all[0].refuse(ask, 1);
            disks.all[0].wait_until(|orders| orders.refused == 1);
            for _ in 0..20 {
                let sure: Vec<_> =
                    acknowledged.iter().map(|sure| sure.load(Ordering::SeqCst)).collect();
                let cut = open(parts(&disks.cut())).unwrap();
                for (n, sure) in (0..).zip(sure) {
                    let there = bytes(&cut, 65536 * (1 + n), 4096)[0];
                    assert!(there >= sure, "round {round}, thread {n}: {there} of {sure}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
