//! The explorer finds what it must find: devices that lie, and volumes that show what is not
//! allowed.

use extant_base::ByteOffset;
use extant_blockdev::BlockDevice;
use extant_crash_tests::explorer::{Budget, Depth, Explorer, Tally};
use extant_crash_tests::failure::Failure;
use extant_crash_tests::history::{Floor, History};
use extant_crash_tests::make::{MAKES, Make};
use extant_crash_tests::oracle::Bounds;
use extant_crash_tests::parse;
use extant_crash_tests::record::{record, record_over};
use extant_crash_tests::recovered::recover;
use extant_crash_tests::view::{POISON, View};
use extant_crash_tests::workload::Workload;
use extant_testdev::CrashPlan;
use std::sync::{Arc, Mutex};

const RUN: &str = "mkdir /A 0755 ; creat /A/foo 0644 ; write /A/foo 0 9000 ; fsync /A/foo ; \
                   rename /A/foo /bar ; creat /A/new 0644 ; write /A/new 0 5000 ; sync ; \
                   unlink /bar ; creat /other 0644 ; write /other 0 9000 ; fsync /other";

fn workload() -> Workload {
    Workload { name: "self_test".to_owned(), ops: parse::ops(RUN).unwrap() }
}

fn explore(make: &Make, history: &History) -> Result<Tally, Box<Failure>> {
    let depth = Depth { exhaustive: 3, samples: 12, torn: 1 };
    let budget = Budget { depth, states: 4000, cut_recoveries: (0, 0), e2fsck: 0, linux: 0 };
    Explorer::new(1, budget).explore_history(make, &workload(), history)
}

/// How a device lies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    /// Flushes and forced unit access do nothing.
    IgnoresFlush,
    /// The last write before a flush is still in flight when the flush returns.
    FlushesEarly,
    /// It writes, but ignores forced unit access.
    IgnoresForcedAccess,
}

struct Liar {
    inner: Arc<dyn BlockDevice>,
    lie: Lie,
    late: Mutex<Option<(ByteOffset, Vec<u8>)>>,
}

impl Liar {
    fn send_late(&self) -> extant::Result<()> {
        match self.late.lock().unwrap().take() {
            Some((at, bytes)) => self.inner.write_at(at, &bytes),
            None => Ok(()),
        }
    }
}

impl BlockDevice for Liar {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant::Result<()> {
        self.send_late()?;
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.send_late()?;
        if self.lie == Lie::FlushesEarly {
            *self.late.lock().unwrap() = Some((at, buf.to_vec()));
            return Ok(());
        }
        self.inner.write_at(at, buf)
    }

    fn flush(&self) -> extant::Result<()> {
        match self.lie {
            Lie::IgnoresFlush => Ok(()),
            _ => {
                self.inner.flush()?;
                self.send_late()
            }
        }
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.send_late()?;
        match self.lie {
            Lie::FlushesEarly => self.inner.write_fua(at, buf),
            _ => self.inner.write_at(at, buf),
        }
    }

    fn discard(&self, at: ByteOffset, len: u64) -> extant::Result<()> {
        self.send_late()?;
        self.inner.discard(at, len)
    }

    fn zero(&self, at: ByteOffset, len: u64) -> extant::Result<()> {
        self.send_late()?;
        self.inner.zero(at, len)
    }
}

#[test]
fn a_device_that_lies_about_flushes_is_found_out() {
    let make = MAKES[0];
    let honest = record(&make, &workload()).unwrap();
    let tally = explore(&make, &honest).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tally.distinct > 50, "{tally}");
    for lie in [Lie::IgnoresFlush, Lie::FlushesEarly, Lie::IgnoresForcedAccess] {
        let liar = |inner| -> Arc<dyn BlockDevice> {
            Arc::new(Liar { inner, lie, late: Mutex::default() })
        };
        let history = record_over(&make, &workload(), liar).unwrap();
        let failure = explore(&make, &history).expect_err(&format!("{lie:?} was not noticed"));
        assert!(failure.to_string().contains("EXTANT_CRASH_REPLAY='4k:1:3,12,1:"), "{failure}");
    }
}

/// A view in which the content of one inode is changed.
fn with_bytes(view: &View, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> View {
    let mut view = view.clone();
    let ino = view.names[path];
    let node = view.inodes.get_mut(&ino).unwrap();
    change(&mut Arc::make_mut(node).content);
    view
}

#[test]
fn only_what_the_run_allows_passes() {
    let history = record(&MAKES[0], &workload()).unwrap();
    let last = history.steps.len();
    let bounds =
        |view, newest| Bounds { floor: Floor { view, all_data: view, data: Vec::new() }, newest };
    for (n, view) in history.views.iter().enumerate() {
        assert!(history.judge(view, &bounds(0, last)).is_ok(), "view {n}");
        if n < 7 {
            let error = history.judge(view, &bounds(8, last)).unwrap_err();
            assert!(error.contains("synced steps are lost"), "view {n}: {error}");
        }
    }
    let synced = &history.views[8];
    let stale = with_bytes(synced, "/A/new", |bytes| bytes[4096..].fill(POISON));
    let error = history.judge(&stale, &bounds(8, last)).unwrap_err();
    assert!(error.contains("stale"), "{error}");
    let foreign = synced.node("/bar").unwrap().content.clone();
    let mixed = with_bytes(synced, "/A/new", |bytes| bytes.copy_from_slice(&foreign[..5000]));
    let error = history.judge(&mixed, &bounds(8, last)).unwrap_err();
    assert!(error.contains("has these bytes in inode"), "{error}");
    let mut half = (**synced).clone();
    let ino = half.names["/bar"];
    half.names.insert("/A/foo".to_owned(), ino);
    let error = history.judge(&half, &bounds(0, last)).unwrap_err();
    assert!(error.contains("/A/foo: there | missing"), "{error}");
}

const BUFFERED: &str = "creat /a 0644 ; write /a 0 30000 ; fsync /a ; append /a 9000 ; \
                        write /a 0 20000 ; fsync /a ; truncate /a 6000 ; append /a 90000 ; sync";

#[test]
fn through_the_page_cache_a_device_that_lies_is_found_out() {
    let make = Make::named("cache_4k").expect("a kind of volume");
    let workload = Workload { name: "buffered".to_owned(), ops: parse::ops(BUFFERED).unwrap() };
    let depth = Depth { exhaustive: 3, samples: 12, torn: 1 };
    let budget = Budget { depth, states: 4000, cut_recoveries: (0, 0), e2fsck: 0, linux: 0 };
    let explore =
        |history: &History| Explorer::new(1, budget).explore_history(&make, &workload, history);
    let honest = record(&make, &workload).unwrap();
    let tally = explore(&honest).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(tally.distinct > 20, "{tally}");
    for lie in [Lie::IgnoresFlush, Lie::FlushesEarly, Lie::IgnoresForcedAccess] {
        let liar = |inner| -> Arc<dyn BlockDevice> {
            Arc::new(Liar { inner, lie, late: Mutex::default() })
        };
        let history = record_over(&make, &workload, liar).unwrap();
        explore(&history).expect_err(&format!("{lie:?} was not noticed"));
    }
}

#[test]
fn through_the_page_cache_only_what_was_written_passes() {
    let make = Make::named("cache_4k").expect("a kind of volume");
    let workload = Workload { name: "buffered".to_owned(), ops: parse::ops(BUFFERED).unwrap() };
    let history = record(&make, &workload).unwrap();
    let contents = history.contents.as_ref().expect("it went through the page cache");
    let end = history.log.len();
    let plan = CrashPlan::new(history.base.clone(), Arc::clone(&history.log)).cuts(end..=end);
    let image = plan.states().next().expect("nothing is lost of it").image;
    let view = recover(&make, image).unwrap().view;
    contents.judge(&history, &view, (end, end)).unwrap();
    // What was synced, and what is allowed until it is.
    let wrong = |completed, change: &dyn Fn(&mut Vec<u8>)| {
        let view = with_bytes(&view, "/a", change);
        contents.judge(&history, &view, (end, completed)).expect_err("it must not pass")
    };
    for completed in [0, end] {
        let error = wrong(completed, &|bytes| bytes[8192..12288].fill(POISON));
        assert!(error.contains("stale"), "{error}");
        let error = wrong(completed, &|bytes| bytes[8192..12288].fill(0));
        assert!(error.contains("zeros"), "{error}");
        let error = wrong(completed, &|bytes| bytes.push(1));
        assert!(error.contains("96001 bytes, wanted"), "{error}");
        wrong(completed, &|bytes| bytes.copy_within(20_000..20_600, 40_000));
    }
    wrong(end, &|bytes| bytes.truncate(95_999));
}
