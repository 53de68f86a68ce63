//! The side file: a repair cut anywhere is completed or taken back; damaged files are refused.

use crate::repairs::plan_of;
use extant::MemoryDevice;
use extant_base::{ByteOffset, IoOp};
use extant_blockdev::BlockDevice;
use extant_repair::{Plan, SideFile, SideState, Stage};
use extant_testdev::{Faulty, Recorder};
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::path::PathBuf;
use std::sync::Arc;

/// A volume with damage in several structures.
fn damaged() -> Vec<u8> {
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    std::fs::create_dir_all(tree.join("a/b")).unwrap();
    for n in 0..40 {
        std::fs::write(tree.join(format!("a/file {n}")), vec![n; 3000]).unwrap();
    }
    let img = scratch.file("img");
    mke2fs(&img, 4 << 20, "-b 1024 -O metadata_csum", Some(&tree)).unwrap();
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
        let bytes = damaged();
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
    let recorder = Recorder::new(MemoryDevice::from_bytes(&bytes));
    assert_eq!(side.progress(&recorder).unwrap(), SideState::Nothing);
    side.apply(&recorder).unwrap();
    let whole = content(&recorder);
    assert!(whole == content(&*plan.device()), "the plan predicts the bytes");
    assert_eq!(side.progress(&recorder).unwrap(), SideState::Whole);

    let crashes = recorder.crash_plan(&MemoryDevice::from_bytes(&bytes));
    let mut cut = 0;
    for state in crashes.samples(8).torn(4).states() {
        cut += 1;
        let state = state.image;
        let side = SideFile::open(&path).unwrap();
        let found = side.progress(&state).unwrap();
        assert!(!matches!(found, SideState::Foreign { .. }), "cut {cut}: {found:?}");
        let undone = MemoryDevice::from_bytes(&content(&state));
        side.undo(&undone).unwrap();
        assert!(content(&undone) == bytes, "cut {cut}: taken back");
        side.apply(&state).unwrap();
        assert!(content(&state) == whole, "cut {cut}: completed");
    }
    assert!(cut > 3, "{cut} states");
}

#[test]
fn the_stage_says_in_which_direction_to_continue() {
    require!(E2fsprogs);
    let Repair { bytes, path, side, _scratch, .. } = Repair::of_damage();
    let stage = || SideFile::open(&path).unwrap().stage();
    assert_eq!(stage(), Stage::Planned);
    let home = Faulty::new(MemoryDevice::from_bytes(&bytes));
    home.fail_from(IoOp::Write, 3);
    side.apply(&home).unwrap_err();
    assert_eq!(stage(), Stage::Applying);
    // What a failed flush lost may read as written.
    home.heal();
    home.fail_from(IoOp::Flush, 0);
    side.apply(&home).unwrap_err();
    assert_eq!(stage(), Stage::Applying);
    home.heal();
    let writes = home.count(IoOp::Write);
    side.apply(&home).unwrap();
    assert!(home.count(IoOp::Write) > writes + 1, "all rows are written again");
    assert_eq!(stage(), Stage::Applied);
    home.heal();
    home.fail_from(IoOp::Write, 3);
    side.undo(&home).unwrap_err();
    assert_eq!(stage(), Stage::Undoing);
    home.heal();
    side.undo(&home).unwrap();
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
    let changed = MemoryDevice::from_bytes(&other);
    side.apply(&changed).unwrap_err();
    side.undo(&changed).unwrap_err();
    assert!(content(&changed) == other);
    let short = MemoryDevice::from_bytes(&bytes[..bytes.len() - 1024]);
    let found = side.progress(&short).unwrap();
    assert!(matches!(found, SideState::Foreign { .. }), "{found:?}");
    side.apply(&short).unwrap_err();
    assert!(content(&short) == bytes[..bytes.len() - 1024]);
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
    let home = MemoryDevice::from_bytes(&bytes);
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
                assert!(side.apply(&home).is_err(), "case {n}");
                refused += 1;
            }
        }
        assert!(content(&home) == bytes, "case {n}: nothing was written");
    }
    assert_eq!(refused, 400);
}
