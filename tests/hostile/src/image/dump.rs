//! A copy of the metadata of a changed volume.

use crate::image::bodies::{Whole, checked};
use crate::image::patch::{EDIT, patched};
use extant::check::{self, check_device};
use extant::dump::{self, dump_device};
use extant::{BlockDevice, MemoryDevice, Result};
use extant_base::ByteOffset;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Dumps it, with or without other names. The volume stays as it is, and no write is outside the
/// output. Of an unchanged volume the copy has a consistent tree.
pub fn run(data: &[u8]) {
    let Some(patched) = patched(data) else { return };
    let Some(whole) = checked(Whole::of(&patched, false)) else { return };
    let before = bytes_of(&patched.device);
    let scramble = (patched.choice & 2 != 0).then_some(patched.choice.into());
    let options = dump::Options { scramble, threads: 2 };
    let Some(size) = checked(dump::size_of(&*whole.device())) else { return };
    assert!(size <= whole.device().len(), "{size} bytes are more than the device has");
    let output = Output::new(size);
    let done = checked(dump_device(whole.device(), &*output, &options, &()));
    assert!(bytes_of(&patched.device) == before, "the device was written");
    let is_changed = data.len() >= 2 + EDIT;
    let Some(report) = done else {
        assert!(is_changed, "a sound volume has a dump");
        return;
    };
    assert_eq!(report.size, size);
    if !is_changed && patched.volume.journal == 0 {
        let options = check::Options { threads: 2, findings_limit: 100, ..Default::default() };
        let report = check_device(output, &options, &()).expect("the copy can be checked");
        let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(report.clean, "{}: {findings:?}", patched.volume.rich.name);
    }
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(ByteOffset(0), &mut bytes).expect("memory");
    bytes
}

/// An output that no write may exceed, and that receives few times its own size.
#[derive(Debug)]
struct Output {
    inner: MemoryDevice,
    written: AtomicU64,
}

impl Output {
    fn new(size: u64) -> Arc<Output> {
        Arc::new(Output { inner: MemoryDevice::new(size), written: AtomicU64::new(0) })
    }
}

impl BlockDevice for Output {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        let len = buf.len() as u64;
        let is_inside = at.0.checked_add(len).is_some_and(|end| end <= self.len());
        assert!(is_inside, "{len} bytes at {at:?} are outside the output");
        let written = self.written.fetch_add(len, Ordering::Relaxed) + len;
        assert!(written <= 4 * self.len(), "{written} bytes were written to the output");
        self.inner.write_at(at, buf)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
