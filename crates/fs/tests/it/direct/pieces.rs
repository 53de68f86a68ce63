//! Long transfers of a device with a descriptor: the next piece is copied or compared during the
//! transfer of others.

use crate::common::{judge, new_file, pattern};
use crate::direct::by;
use crate::direct::doubles::FaultsAt;
use crate::direct::{ALL, Bounce};
use extant::direct::{AlignedBuf, DirectOptions};
use extant::mkfs::{MkfsOptions, format};
use extant::{Environment, Error, FallocateMode, FileOptions, OpenOptions};
use extant_base::BlockSize;
use extant_blockdev::{CallerMemory, FileDevice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const MIB: usize = 1 << 20;

/// A volume in a file.
fn volume(path: &Path, features: &str, direct: bool) -> extant::Filesystem {
    let device = Arc::new(FileOptions::new().create(path, 48 << 20).unwrap());
    let block = BlockSize::from_superblock_log(2).unwrap();
    let options = MkfsOptions::new().block_size(block).features(features).unwrap();
    format(device, &options, &Environment::default()).unwrap();
    OpenOptions::new().write(true).direct(direct).open(path).unwrap()
}

fn whole(path: &Path) -> FileDevice {
    FileDevice::open(path).unwrap()
}

#[test]
fn each_byte_of_a_long_transfer_is_moved_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    for (features, direct) in [("", true), ("data_csum", true), ("data_csum", false)] {
        let fs = volume(&path, features, direct);
        let file = new_file(&fs, "f");
        for (n, bounce) in ALL.into_iter().enumerate() {
            let bytes = AlignedBuf::copy_of(&pattern(3 * MIB + 8192, n as u8));
            let at = 4096 * n as u64;
            let before = fs.direct_stats();
            // New blocks, then existing blocks.
            for _ in 0..2 {
                assert_eq!(file.write_direct_at(&bytes, at, &by(bounce)).unwrap(), bytes.len());
            }
            let mut back = AlignedBuf::zeroed(bytes.len());
            assert_eq!(file.read_direct_at(&mut back, at, &by(bounce)).unwrap(), bytes.len());
            assert!(back[..] == bytes[..], "{bounce:?}");
            let after = fs.direct_stats();
            let copied = after.copied_bytes - before.copied_bytes;
            let lent = after.lent_bytes - before.lent_bytes;
            let all = bytes.len() as u64;
            let want = match bounce {
                Bounce::Always | Bounce::Checksummed => (3 * all, 0),
                _ if features.is_empty() => (0, 3 * all),
                _ => (2 * all, all),
            };
            assert_eq!((copied, lent, after.buffered_bytes), (want.0, want.1, 0), "{bounce:?}");
        }
        // With a hole in it, to memory of odd pieces.
        file.allocate(FallocateMode::PunchHole, MIB as u64, 40960).unwrap();
        let mut want = pattern(3 * MIB + 8192, 3);
        want[MIB - 12288..MIB - 12288 + 40960].fill(0);
        let mut back = vec![0; want.len()];
        let n = file.read_direct_at(&mut back[1..], 12288, &DirectOptions::default()).unwrap();
        assert!(n == back.len() - 1 && back[1..] == want[..n]);
        drop(file);
        fs.close().unwrap();
        judge(&whole(&path));
    }
}

#[test]
fn memory_that_may_fault_is_copied_whole_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    for features in ["", "data_csum"] {
        let fs = volume(&path, features, true);
        let file = new_file(&fs, "f");
        file.write_all_at(&pattern(3 * MIB, 1), 0).unwrap();
        file.sync_all().unwrap();
        let bytes = pattern(3 * MIB, 2);
        let mut memory = FaultsAt::new(&bytes, 2 * MIB + 5, false);
        let done = file.write_direct(&mut memory, 0, &by(Bounce::Always));
        assert!(matches!(done, Err(Error::Fault)), "{done:?}");
        assert_eq!(memory.left(), 3 * MIB);
        assert!(fs.read("/f").unwrap() == pattern(3 * MIB, 1), "nothing is written");
    }
}

#[test]
fn data_that_does_not_match_its_checksum_is_never_returned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let fs = volume(&path, "data_csum", true);
    let file = new_file(&fs, "f");
    let bytes = pattern(2 * MIB, 7);
    file.write_direct_at(&bytes, 0, &DirectOptions::default()).unwrap();
    let bad: u64 = 700 << 10;
    let extents = file.extents().unwrap();
    let there = extents.iter().find(|run| (run.offset..run.offset + run.len).contains(&bad));
    let there = there.unwrap();
    let at = there.block.0 * 4096 + (bad - there.offset);
    drop(file);
    fs.close().unwrap();
    let image = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    image.write_all_at(&[bytes[bad as usize] ^ 4], at).unwrap();
    for bounce in ALL {
        let fs = OpenOptions::new().direct(true).open(&path).unwrap();
        let file = fs.open_file("/f").unwrap();
        let mut back = AlignedBuf::zeroed(2 * MIB);
        let n = file.read_direct_at(&mut back, 0, &by(bounce)).unwrap_or(0);
        assert!(n <= bad as usize, "{bounce:?}: {n} bytes");
        assert!(back[..n] == bytes[..n]);
        let mut rest = AlignedBuf::zeroed(MIB);
        let at = bad / 4096 * 4096;
        let done = file.read_direct_at(&mut rest, at, &by(bounce));
        assert!(matches!(done, Err(Error::Corrupt { .. })), "{done:?}");
        // The part after it is valid.
        let n = file.read_direct_at(&mut rest, at + 4096, &by(bounce)).unwrap();
        let from = at as usize + 4096;
        assert!(rest[..n] == bytes[from..from + n]);
    }
}

#[test]
fn a_file_that_short_writes_fragmented_is_contiguous_again_after_long_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let fs = volume(&path, "data_csum", true);
    let file = new_file(&fs, "f");
    let mut want = pattern(4 * MIB, 1);
    file.write_direct_at(&want, 0, &DirectOptions::default()).unwrap();
    let block = AlignedBuf::copy_of(&[9; 4096]);
    for n in 0..1024 {
        let at = n * 389 % 1024 * 4096;
        file.write_direct_at(&block, at as u64, &DirectOptions::default()).unwrap();
        want[at..at + 4096].fill(9);
    }
    let torn = file.extents().unwrap().len();
    assert!(torn > 256, "{torn} extents");
    assert!(fs.read("/f").unwrap() == want);
    // Written one after the other, they are adjacent.
    for at in (0..MIB).step_by(4096) {
        file.write_direct_at(&block, at as u64, &DirectOptions::default()).unwrap();
    }
    for at in (MIB..4 * MIB).step_by(MIB) {
        let bytes = &pattern(MIB, at as u8)[..];
        file.write_direct_at(bytes, at as u64, &DirectOptions::default()).unwrap();
        want[at..at + MIB].copy_from_slice(bytes);
    }
    let whole_again = file.extents().unwrap().len();
    assert!(whole_again < 16, "{whole_again} extents");
    assert!(fs.read("/f").unwrap() == want);
    drop(file);
    fs.close().unwrap();
    judge(&whole(&path));
}
