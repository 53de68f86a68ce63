//! Blocks that are freed and become file data: no older copy in the log overwrites them.

use super::{Ground, scene};
use crate::explore::{Timers, explore, finds};
use crate::journal::Credits;
use crate::journal::test_journal::{empty_log, home, options, put, recover, stamp};
use crate::journal::test_log::{KINDS, SIZE};
use crate::model::thread;
use extant_base::{BlockNr, ByteOffset};
use extant_blockdev::{BlockDevice, MemoryDevice};
use std::sync::Arc;

const FREED: u64 = 100;

fn freed() {
    let ground = Ground::new(empty_log(KINDS[7], 1), options(), 2);
    let journal = &ground.journal;
    thread::scope(|scope| {
        for n in 0..2 {
            let ground = &ground;
            scope.spawn(move || {
                for _ in 0..2 {
                    let (value, tid) = ground.change(n, &[]).unwrap();
                    ground.journal.commit(tid).unwrap();
                    ground.acknowledge(n, value);
                }
            });
        }
        scope.spawn(|| {
            let handle = journal.start(Credits::blocks(1)).unwrap();
            put(&handle, FREED, 7);
            let tid = handle.tid();
            handle.stop().unwrap();
            journal.commit(tid).unwrap();
            let handle = journal.start(Credits { blocks: 0, revokes: 1 }).unwrap();
            handle.forget(BlockNr(FREED));
            let tid = handle.tid();
            handle.stop().unwrap();
            // Only then may anything else be written there.
            journal.commit(tid).unwrap();
            journal.device().write_at(ByteOffset(FREED * SIZE as u64), &stamp(1000)).unwrap();
            journal.flush().unwrap();
            for _ in 0..3 {
                let device = Arc::new(MemoryDevice::from_bytes(&ground.disk.cut()));
                recover(&ground.log, &device);
                assert!(home(&*device, FREED) == stamp(1000), "an older copy came over data");
                journal.sync().unwrap();
            }
        });
        scope.spawn(|| journal.write_back(0).unwrap());
    });
    ground.close();
    assert!(home(&*ground.disk, FREED) == stamp(1000), "a freed block went home");
}

#[test]
fn freed_blocks_become_data() {
    let freed = scene("journal_scenes::freed::freed_blocks_become_data", Timers::Never, freed);
    explore(&freed, 1000);
    finds("a freed block is not revoked", &freed, 500, "older copy");
}
