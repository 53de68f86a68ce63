//! A scrub of two changed copies of a volume.

use crate::image::bodies::checked;
use crate::image::patch::{EDIT, patched};
use crate::image::volumes::{parts, split};
use extant::scrub::{Options, Report, scrub};
use extant::{BlockDevice, ByteOffset, MemoryDevice};
use extant_compat_tests::bounded::Bounded;
use extant_raid::{Assembled, Mirror, Opening, Wanted, assemble, create};
use std::sync::Arc;

/// The copies that an input describes, with records, and how to scrub them. A mirror has both
/// already; for other volumes, each copy gets every second edit.
fn copies(data: &[u8]) -> Option<([MemoryDevice; 2], u8)> {
    let (head, edits) = data.split_first_chunk::<2>()?;
    let of = |first: usize| {
        let edits = edits.chunks(EDIT).skip(first).step_by(2);
        patched(&[&head[..], &edits.collect::<Vec<_>>().concat()].concat())
    };
    let whole = patched(data)?;
    if whole.volume.members > 1 && !whole.volume.striped {
        let device: Arc<dyn BlockDevice> = Arc::new(whole.device);
        let half = device.len() / 2;
        return Some((split(&device, half).map(|part| memory(&*part, half)), whole.choice));
    }
    // The bytes after the volume's are not part of it.
    let len = whole.device.len() - whole.volume.behind() as u64;
    let both = [of(0)?, of(1)?].map(|patched| memory(&patched.device, len));
    let devices = both.each_ref().map(|device| Arc::new(device.clone()));
    create(&parts(&devices), Wanted::Mirrored { alike: true }, [5; 16], len).ok()?;
    Some((devices.map(|device| MemoryDevice::clone(&device)), whole.choice))
}

fn memory(device: &dyn BlockDevice, len: u64) -> MemoryDevice {
    let mut bytes = vec![0; len as usize];
    device.read_at(ByteOffset(0), &mut bytes).expect("memory");
    MemoryDevice::from_bytes(&bytes)
}

/// Scrubs two copies that were changed independently: reading only, then writing, and once more.
pub fn run(data: &[u8]) {
    let Some((copies, choice)) = copies(data) else { return };
    let mirror = |write| {
        let devices = copies.each_ref().map(|copy| Bounded::over(copy.clone()));
        let opening = Opening { write, degraded: choice & 1 != 0, together: false };
        match checked(assemble(parts(&devices), opening))? {
            Assembled::Mirrored(mirror) => Some((mirror, devices)),
            _ => None,
        }
    };
    let mut options = Options::default();
    if choice & 2 != 0 {
        options.trust = Some(usize::from(choice >> 2 & 1));
    }
    if choice & 8 != 0 {
        options.blocks_max = 30;
    }
    let Some((reader, devices)) = mirror(false) else { return };
    let looked = checked(scrub(&reader, &options, &()));
    assert!(looked.is_none_or(|report| report.repaired_blocks == 0));
    for (device, copy) in devices.iter().zip(&copies) {
        let mut was = vec![0; copy.len() as usize];
        copy.read_at(ByteOffset(0), &mut was).expect("memory");
        assert!(device.bytes() == was, "who reads changed something");
    }
    let Some((writer, _)) = mirror(true) else { return };
    options.write = true;
    let Some(report) = checked(scrub(&writer, &options, &())) else { return };
    expect_reported(&writer, &report);
    if data.len() < 2 + EDIT {
        assert!(report.unresolved.is_empty(), "{report:?}");
        // Some volumes need recovery, or lack their log: both members alike.
        assert!(report.errors.windows(2).all(|pair| pair[0] == pair[1]), "{report:?}");
    }
    // What was repaired may reveal more about the rest. That ends after a few rounds, and nothing
    // gets worse.
    let blocks = |report: &Report| report.unresolved.iter().map(|left| left.blocks).sum::<usize>();
    let mut last = report;
    for _ in 0..8 {
        let Some(again) = checked(scrub(&writer, &options, &())) else { return };
        assert!(last.more || blocks(&again) <= blocks(&last), "{last:?}, then {again:?}");
        if again.repaired_blocks == 0 {
            return;
        }
        last = again;
    }
    panic!("mends without end: {last:?}");
}

/// Members are equal except for what the report names.
fn expect_reported(mirror: &Arc<Mirror>, report: &Report) {
    if report.more {
        return;
    }
    let found = mirror.compare(1024, usize::MAX, &mut |_, _| true).expect("memory");
    for found in found.ranges {
        let is_in = |at: u64| report.unresolved.iter().any(|left| left.range.contains(&at));
        assert!(found.range.clone().step_by(1024).all(is_in), "{found:?}: {report:?}");
    }
}
