//! Power cuts of mirrors, at different points for each member.

use extant_base::{ByteOffset, Result};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_raid::{Assembled, Mirror, Opening, Part, Wanted, assemble, create};
use extant_testdev::Recorder;
use std::sync::Arc;

const LEN: u64 = 1 << 20;

/// A part of a recording that serves as a device.
struct Disk {
    recorder: Arc<Recorder<MemoryDevice>>,
    start: u64,
}

impl Disk {
    fn place(&self, at: ByteOffset) -> ByteOffset {
        ByteOffset(self.start + at.0)
    }
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        LEN
    }
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.recorder.read_at(self.place(at), buf)
    }
    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.recorder.write_at(self.place(at), buf)
    }
    fn flush(&self) -> Result<()> {
        self.recorder.flush_range(ByteOffset(self.start), LEN)
    }
    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.recorder.write_fua(self.place(at), buf)
    }
}

fn disks(image: MemoryDevice, count: u64) -> (Arc<Recorder<MemoryDevice>>, Vec<Part>) {
    let recorder = Arc::new(Recorder::new(image));
    let part = |n: u64| {
        let disk = Disk { recorder: Arc::clone(&recorder), start: n * LEN };
        Part::new(Arc::new(disk), format!("disk {n}"))
    };
    let parts = (0..count).map(part).collect();
    (recorder, parts)
}

fn open(parts: &[Part], write: bool) -> Result<Arc<Mirror>> {
    let opening = Opening { write, degraded: false, together: false };
    match assemble(parts.to_vec(), opening)? {
        Assembled::Mirrored(mirror) => Ok(mirror),
        _ => panic!("no mirror"),
    }
}

/// Offsets that the rounds write, including the superblock's first sector.
const PLACES: [u64; 4] = [1024, 70_000, 300_032, 999_424];

#[test]
fn members_cut_at_different_points_show_one_content_and_keep_what_was_flushed() {
    for count in [2, 3] {
        let base = MemoryDevice::new(count * LEN);
        let (_, parts) = disks(base.clone(), count);
        create(&parts, Wanted::Mirrored { alike: true }, [3; 16], LEN).unwrap();
        let base = MemoryDevice::new(count * LEN);
        for (n, part) in (0..).zip(&parts) {
            let mut bytes = vec![0; LEN as usize];
            part.device.read_at(ByteOffset(0), &mut bytes).unwrap();
            base.write_at(ByteOffset(n * LEN), &bytes).unwrap();
        }
        let (recorder, parts) = disks(base.clone(), count);
        let mirror = open(&parts, true).unwrap();
        let mut flushed = Vec::new();
        for round in 1..=12u8 {
            for at in PLACES {
                mirror.write_at(ByteOffset(at), &[round; 2048]).unwrap();
            }
            mirror.flush().unwrap();
            flushed.push(recorder.position());
        }
        drop(mirror);
        let plan = recorder.crash_plan(&base).samples(6).exhaustive_up_to(3);
        let mut tried = 0;
        for state in plan.states().step_by(3) {
            tried += 1;
            let sure = flushed.iter().filter(|at| **at <= state.completed).count() as u8;
            let (_, parts) = disks(state.image.clone(), count);
            let reader = open(&parts, false).unwrap_or_else(|e| panic!("{state}: {e}"));
            let mirror = open(&parts, true).unwrap_or_else(|e| panic!("{state}: {e}"));
            assert!(mirror.left_out().is_empty(), "{state}");
            let mut seen = Vec::new();
            for at in PLACES {
                let mut bytes = [0; 2048];
                mirror.read_at(ByteOffset(at), &mut bytes).unwrap();
                let whole =
                    bytes.chunks(512).all(|c| c.iter().all(|b| (sure..=sure + 1).contains(b)));
                assert!(whole || sure == 12, "{state}: {sure} rounds, {at}: {}", bytes[0]);
                for _ in 0..3 {
                    let mut again = [0; 2048];
                    reader.read_at(ByteOffset(at), &mut again).unwrap();
                    assert!(again == bytes, "{state}: two contents");
                }
                seen.push(bytes);
            }
            assert!(mirror.resync(&mut |_, _| true).unwrap());
            assert!(
                mirror.compare(1024, 9, &mut |_, _| true).unwrap().ranges.is_empty(),
                "{state}"
            );
            for (at, before) in PLACES.iter().zip(&seen) {
                let mut bytes = [0; 2048];
                mirror.read_at(ByteOffset(*at), &mut bytes).unwrap();
                assert!(bytes == *before, "{state}: changed by the resync");
            }
        }
        assert!(tried > 100, "{tried}");
    }
}
