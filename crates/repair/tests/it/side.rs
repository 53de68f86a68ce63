//! The side file: a repair cut anywhere is completed or taken back; damaged files are refused.

use crate::repairs::plan_of;
use extant::MemoryDevice;
use extant_base::{ByteOffset, Error, IoOp, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::mmp::{Mmp, MmpState};
use extant_ondisk::superblock::RawSuperblock;
use extant_repair::{Plan, SideFile, SideState, Stage};
use extant_testdev::{Faulty, Op, Recorder};
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::path::PathBuf;
use std::sync::Arc;

/// The number of a protection block that no host holds.
const MMP_CLEAN: u32 = 0xFF4D_4D50;

/// A volume with damage in several structures.
fn damaged() -> Vec<u8> {
    damaged_with("-b 1024 -O metadata_csum")
}

fn damaged_with(options: &str) -> Vec<u8> {
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    for n in 0..40 {
        std::fs::write(tree.join(format!("a/file {n}")), vec![n; 3000]).unwrap();
    }
    let img = scratch.file("img");
    mke2fs(&img, 4 << 20, options, Some(&tree)).unwrap();
    let mut bytes = std::fs::read(&img).unwrap();
    // The superblock's free counts, and a byte of every 40th block of the first 600.
    bytes[1024 + 12] ^= 0x55;
    for block in (40..600).step_by(40) {
        bytes[block * 1024 + 100] ^= 0xFF;
    }
    bytes
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.len()).unwrap()];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    bytes
}

fn shared<D: BlockDevice + 'static>(device: &Arc<D>) -> Arc<dyn BlockDevice> {
    Arc::clone(device) as Arc<dyn BlockDevice>
}

fn planned(bytes: &[u8]) -> Plan {
    let plan = plan_of(Arc::new(MemoryDevice::from_bytes(bytes))).unwrap();
    assert!(plan.is_clean() && !plan.is_empty().unwrap());
    plan
}

/// A damaged volume, the plan of its repair, and the side file of that plan.
struct Repair {
    bytes: Vec<u8>,
    plan: Plan,
    path: PathBuf,
    side: SideFile,
    _scratch: Scratch,
}

impl Repair {
    fn of_damage() -> Repair {
        Repair::of(damaged())
    }

    fn of(bytes: Vec<u8>) -> Repair {
        let plan = planned(&bytes);
        let scratch = Scratch::new();
        let path = scratch.file("side");
        let side = SideFile::create(&path, &plan).unwrap();
        Repair { bytes, plan, path, side, _scratch: scratch }
    }
}

#[test]
fn a_repair_cut_anywhere_is_completed_or_taken_back() {
    require!(E2fsprogs);
    let Repair { bytes, plan, path, side, _scratch } = Repair::of_damage();
    let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&bytes)));
    assert_eq!(side.progress(&*recorder).unwrap(), SideState::Nothing);
    side.apply(&shared(&recorder)).unwrap();
    let whole = content(&*recorder);
    assert!(whole == content(&*plan.device()), "the plan predicts the bytes");
    assert_eq!(side.progress(&*recorder).unwrap(), SideState::Whole);

    let crashes = recorder.crash_plan(&MemoryDevice::from_bytes(&bytes));
    let mut cut = 0;
    for state in crashes.samples(8).torn(4).states() {
        cut += 1;
        let state = Arc::new(state.image);
        let side = SideFile::open(&path).unwrap();
        let found = side.progress(&*state).unwrap();
        assert!(!matches!(found, SideState::Foreign { .. }), "cut {cut}: {found:?}");
        let undone = Arc::new(MemoryDevice::from_bytes(&content(&*state)));
        side.undo(&shared(&undone)).unwrap();
        assert!(content(&*undone) == bytes, "cut {cut}: taken back");
        side.apply(&shared(&state)).unwrap();
        assert!(content(&*state) == whole, "cut {cut}: completed");
    }
    assert!(cut > 3, "{cut} states");
}

#[test]
fn the_stage_says_in_which_direction_to_continue() {
    require!(E2fsprogs);
    let Repair { bytes, path, side, _scratch, .. } = Repair::of_damage();
    let stage = || SideFile::open(&path).unwrap().stage();
    assert_eq!(stage(), Stage::Planned);
    let home = Arc::new(Faulty::new(MemoryDevice::from_bytes(&bytes)));
    home.fail_from(IoOp::Write, 3);
    side.apply(&shared(&home)).unwrap_err();
    assert_eq!(stage(), Stage::Applying);
    // What a failed flush lost may read as written.
    home.heal();
    home.fail_from(IoOp::Flush, 0);
    side.apply(&shared(&home)).unwrap_err();
    assert_eq!(stage(), Stage::Applying);
    home.heal();
    let writes = home.count(IoOp::Write);
    side.apply(&shared(&home)).unwrap();
    assert!(home.count(IoOp::Write) > writes + 1, "all rows are written again");
    assert_eq!(stage(), Stage::Applied);
    home.heal();
    home.fail_from(IoOp::Write, 3);
    side.undo(&shared(&home)).unwrap_err();
    assert_eq!(stage(), Stage::Undoing);
    home.heal();
    side.undo(&shared(&home)).unwrap();
    assert_eq!(stage(), Stage::Undone);
    assert!(content(home.inner()) == bytes);
}

#[test]
fn a_side_file_of_another_volume_changes_nothing() {
    require!(E2fsprogs);
    let bytes = damaged();
    let scratch = Scratch::new();
    let side = SideFile::create(&scratch.file("side"), &planned(&bytes)).unwrap();
    let mut other = bytes.clone();
    let row = usize::try_from(planned(&bytes).places().unwrap()[0].0).unwrap();
    other[row] ^= 0x0F;
    other[row + 1] ^= 0x0F;
    let found = side.progress(&MemoryDevice::from_bytes(&other)).unwrap();
    assert!(matches!(found, SideState::Foreign { .. }), "{found:?}");
    let changed = Arc::new(MemoryDevice::from_bytes(&other));
    side.apply(&shared(&changed)).unwrap_err();
    side.undo(&shared(&changed)).unwrap_err();
    assert!(content(&*changed) == other);
    let short = Arc::new(MemoryDevice::from_bytes(&bytes[..bytes.len() - 1024]));
    let found = side.progress(&*short).unwrap();
    assert!(matches!(found, SideState::Foreign { .. }), "{found:?}");
    side.apply(&shared(&short)).unwrap_err();
    assert!(content(&*short) == bytes[..bytes.len() - 1024]);
}

#[test]
fn damaged_side_files_are_refused() {
    require!(E2fsprogs);
    let bytes = damaged();
    let scratch = Scratch::new();
    let path = scratch.file("side");
    SideFile::create(&path, &planned(&bytes)).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let damaged = scratch.file("damaged");
    let home = Arc::new(MemoryDevice::from_bytes(&bytes));
    let mut rng = Rng::new(3);
    let mut refused = 0;
    for n in 0..400 {
        let mut file = whole.clone();
        match n % 4 {
            0 => file.truncate(rng.below(whole.len())),
            1 => file.extend_from_slice(&[0; 7]),
            _ => {
                let at = if n % 4 == 2 { rng.below(400) } else { rng.below(whole.len()) };
                let at = at.min(whole.len() - 1);
                file[at] ^= 1 << rng.below(8);
            }
        }
        std::fs::write(&damaged, &file).unwrap();
        match SideFile::open(&damaged) {
            Err(_) => refused += 1,
            Ok(side) => {
                assert!(side.apply(&shared(&home)).is_err(), "case {n}");
                refused += 1;
            }
        }
        assert!(content(&*home) == bytes, "case {n}: nothing was written");
    }
    assert_eq!(refused, 400);
}

/// The place of the protection block of a volume with blocks of 1 KiB.
fn protection_at(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[1024 + 0x168..][..8].try_into().unwrap()) * 1024
}

/// The protection block of a volume in another state.
fn protection(bytes: &[u8], state: MmpState) -> Vec<u8> {
    let sb = RawSuperblock::from_prefix(&bytes[1024..]).unwrap();
    let checksums = sb.parse(Site::NOWHERE).unwrap().checksums();
    let at = usize::try_from(protection_at(bytes)).unwrap();
    let mut block = bytes[at..at + 1024].to_vec();
    let found = Mmp::check(&block, &checksums, Site::NOWHERE).unwrap();
    Mmp { state, ..found }.write(&mut block, &checksums);
    block
}

#[test]
fn a_protected_volume_is_held_while_it_is_written() {
    require!(E2fsprogs);
    let Repair { bytes, side, _scratch, .. } =
        Repair::of(damaged_with("-b 1024 -O metadata_csum,mmp"));
    let at = protection_at(&bytes);
    let recorder = Arc::new(Recorder::new(MemoryDevice::from_bytes(&bytes)));
    side.apply(&shared(&recorder)).unwrap();
    let writes: Vec<(u64, u32)> = recorder
        .log()
        .iter()
        .filter_map(|op| match op {
            Op::Write { at, data, .. } => {
                Some((at.0, u32::from_le_bytes(data[4..8].try_into().unwrap())))
            }
            _ => None,
        })
        .collect();
    let (first, last) = (writes[0], writes[writes.len() - 1]);
    assert!(writes.len() > 4 && first.0 == at && last.0 == at, "{writes:x?}");
    assert_ne!(first.1, MMP_CLEAN);
    assert_eq!(last.1, MMP_CLEAN);

    let another = protection(&bytes, MmpState::Checker);
    let home = Arc::new(MemoryDevice::from_bytes(&bytes));
    home.write_at(ByteOffset(at), &another).unwrap();
    let before = content(&*home);
    let refused = side.apply(&shared(&home)).unwrap_err();
    assert!(matches!(refused, Error::Held { .. }), "{refused}");
    assert!(content(&*home) == before);
}
