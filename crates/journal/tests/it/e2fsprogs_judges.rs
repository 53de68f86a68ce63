//! debugfs writes logs. e2fsck replays one copy of the volume and this crate another. Both must
//! give the same bytes, for every kind of checksum.

use extant_base::{BlockNr, BlockSize};
use extant_blockdev::{BlockDevice, FileDevice};
use extant_journal::{HomeLimits, Log, LogMap, LogRun};
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::{Scratch, copy_sparse};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

const BYTES: u64 = 16 << 20;
/// Transactions that log blocks. After every third comes one with revokes only.
const DATA: usize = 12;

/// The option of debugfs' `journal_open` for v1 checksums.
const V1: &str = "-c";

/// Name, options of mke2fs, options of debugfs' `journal_open`, block size.
const KINDS: [(&str, &str, &str, u32); 7] = [
    ("none", "-t ext3 -b 1024", "", 1024),
    ("none, 64-bit", "-b 1024 -O 64bit,^metadata_csum", "", 1024),
    ("v1", "-b 1024 -O ^metadata_csum,^64bit", V1, 1024),
    ("v2", "-b 2048 -O metadata_csum,^64bit", "-c -v 2", 2048),
    ("v2, 64-bit", "-b 1024 -O metadata_csum,64bit", "-c -v 2", 1024),
    ("v3", "-b 4096 -O metadata_csum,^64bit", "-c -v 3", 4096),
    ("v3, 64-bit", "-b 1024 -O metadata_csum,64bit", "-c -v 3", 1024),
];

/// Runs `script` on `img`. Returns its output.
fn debugfs_script(img: &Path, scratch: &Scratch, script: &str) -> String {
    let commands = scratch.file("commands");
    std::fs::write(&commands, script).unwrap();
    let (commands, img) = (commands.to_str().unwrap(), img.to_str().unwrap());
    run_args("debugfs", &["-w", "-f", commands, img]).unwrap().success().unwrap().out()
}

/// The blocks of the journal inode, in log order.
fn journal_blocks(img: &Path, scratch: &Scratch, count: u32) -> Vec<u64> {
    let mut script = String::new();
    for nr in 0..count {
        writeln!(script, "bmap <8> {nr}").unwrap();
    }
    let out = debugfs_script(img, scratch, &script);
    out.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

fn log_map(block_size: BlockSize, blocks: &[u64]) -> LogMap {
    let mut runs: Vec<LogRun> = Vec::new();
    for (nr, block) in (0..).zip(blocks) {
        let at = block_size.start_of(BlockNr(*block));
        match runs.last_mut() {
            Some(run) if at.0 == run.at.0 + (u64::from(run.count) << block_size.log2()) => {
                run.count += 1;
            }
            _ => runs.push(LogRun { first: nr, count: 1, at }),
        }
    }
    LogMap::new(block_size, runs).unwrap()
}

/// Fills the log with transactions over free blocks of the volume. Some blocks start with the
/// magic.
fn write_log(img: &Path, scratch: &Scratch, open: &str, block_size: usize, seed: u64) {
    // debugfs includes revoke blocks in the checksum of a v1 commit block, and e2fsck then rejects
    // its log.
    let revokes = open != V1;
    let mut rng = Rng::new(seed);
    let mut script = format!("journal_open {open}\n");
    let first_free = (BYTES as usize / block_size) - 400;
    for transaction in 0..DATA {
        let blocks: Vec<_> = (0..1 + rng.below(30)).map(|_| first_free + rng.below(60)).collect();
        let mut content = extant_testkit::rng::bytes(rng.next_u64(), blocks.len() * block_size);
        for block in content.chunks_mut(block_size) {
            if rng.below(4) == 0 {
                block[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
            }
        }
        let file = scratch.file(&format!("content{transaction}"));
        std::fs::write(&file, content).unwrap();
        let list: Vec<_> = blocks.iter().map(|block| block.to_string()).collect();
        // The last transaction has no commit block.
        let end = if transaction == DATA - 1 { "-c " } else { "" };
        writeln!(script, "journal_write -b {} {end}{}", list.join(","), file.display()).unwrap();
        if revokes && transaction % 3 == 0 {
            let (one, other) = (first_free + rng.below(60), first_free + rng.below(60));
            writeln!(script, "journal_write -r {one},{other}").unwrap();
        }
    }
    script.push_str("journal_close\n");
    debugfs_script(img, scratch, &script);
}

#[test]
fn e2fsck_and_this_crate_replay_to_the_same_bytes() {
    require!(E2fsprogs);
    for (seed, (name, options, open, size)) in (1..).zip(KINDS) {
        let scratch = Scratch::new();
        let (ours, theirs) = (scratch.file("ours.img"), scratch.file("theirs.img"));
        mke2fs(&ours, BYTES, &format!("{options} -J size=4"), None).unwrap();
        let block_size = BlockSize::from_bytes(size).unwrap();
        write_log(&ours, &scratch, open, block_size.bytes(), seed);
        copy_sparse(&ours, &theirs).unwrap();
        let before = std::fs::read(&ours).unwrap();

        let path = theirs.to_str().unwrap();
        run_args("e2fsck", &["-E", "journal_only", "-y", path]).unwrap();

        let journal = journal_blocks(&ours, &scratch, (4 << 20) / size);
        let device = Arc::new(FileDevice::open_rw(&ours).unwrap());
        let shared = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let mut log = Log::open(shared, log_map(block_size, &journal)).unwrap();
        let volume_blocks = BYTES / u64::from(size);
        let limits = HomeLimits { volume_blocks, log_on_volume: true, inode_bytes: 256 };
        assert!(log.needs_recovery(), "{name}");
        let recovery = log.recover(&*device, limits).unwrap();
        log.finish(&*device, &recovery).unwrap();
        let revoking = if open == V1 { 0 } else { 4 };
        assert_eq!(recovery.transactions, 11 + revoking, "{name}");

        let (ours_after, theirs_after) =
            (std::fs::read(&ours).unwrap(), std::fs::read(&theirs).unwrap());
        let blocks = |image: &[u8]| -> Vec<Vec<u8>> {
            image.chunks(block_size.bytes()).map(<[u8]>::to_vec).collect()
        };
        let (before, a, b) = (blocks(&before), blocks(&ours_after), blocks(&theirs_after));
        let superblock = 1024 / block_size.bytes();
        let mut changed = 0;
        for nr in (0..a.len()).filter(|nr| *nr != superblock && !journal.contains(&(*nr as u64))) {
            assert!(a[nr] == b[nr], "{name}: block {nr} differs");
            changed += usize::from(a[nr] != before[nr]);
        }
        assert!(changed > 20, "{name}: only {changed} blocks were replayed");

        // The superblock still says that recovery is needed, because its owner clears that flag.
        let path = ours.to_str().unwrap();
        run_args("debugfs", &["-w", "-R", "feature ^needs_recovery", path]).unwrap();
        e2fsck(&ours, None).expect_clean().unwrap();
    }
}
