//! Many transfers at a time.

use crate::common::{judge, new_file, pattern};
use crate::direct::{ALL, VOLUMES, by, open};
use extant::direct::{AlignedBuf, DirectOptions, DirectQueue, OwnedMemory, QueueWay};
use extant::{FallocateMode, FileOptions, OpenOptions};
use extant_testkit::rng::Rng;
use std::sync::Arc;

const BLOCKS: usize = 512;

fn block_of(fill: u8) -> OwnedMemory {
    OwnedMemory::new(AlignedBuf::copy_of(&[fill; 4096]))
}

/// Writes random blocks of a file, over all kinds of range, and reads them again. Returns the
/// content at the end.
fn random_work(queue: &mut DirectQueue<OwnedMemory>, file: &extant::File, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut model = vec![0u8; BLOCKS];
    for round in 0..8 {
        // No block twice at a time: the order of two transfers of the same block is undefined.
        let mut order: Vec<usize> = (0..BLOCKS).collect();
        for n in (1..BLOCKS).rev() {
            order.swap(n, rng.below(n + 1));
        }
        for at in &order[..BLOCKS / 2] {
            let fill = rng.below(255) as u8 + 1;
            model[*at] = fill;
            let how = by(ALL[(round + at) % 4]);
            queue.write(*at as u64, file, block_of(fill), (at * 4096) as u64, &how);
        }
        while let Some(done) = queue.wait() {
            assert_eq!(done.result.unwrap(), 4096);
        }
        for at in &order {
            queue.read(
                *at as u64,
                file,
                block_of(0xAA),
                (at * 4096) as u64,
                &by(ALL[(round + at) % 4]),
            );
        }
        while let Some(done) = queue.wait() {
            assert_eq!(done.result.unwrap(), 4096);
            let buf = done.memory.into_buf().unwrap();
            let want = model[done.tag as usize];
            assert!(buf.iter().all(|byte| *byte == want), "block {}", done.tag);
        }
    }
    model
}

#[test]
fn every_transfer_arrives_at_any_depth_in_memory_and_in_files_by_every_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    for direct in [false, true] {
        for (depth, way) in [
            (1, QueueWay::Auto),
            (64, QueueWay::Auto),
            (64, QueueWay::Ring),
            (7, QueueWay::Threads),
            (64, QueueWay::Inline),
        ] {
            {
                let device = Arc::new(FileOptions::new().create(&path, 32 << 20).unwrap());
                let options = extant::mkfs::MkfsOptions::new();
                extant::mkfs::format(device, &options, &extant::Environment::default()).unwrap();
            }
            let fs = OpenOptions::new().write(true).direct(direct).open(&path).unwrap();
            let file = new_file(&fs, "f");
            file.write_all_at(&vec![0; BLOCKS * 1024], 0).unwrap();
            file.allocate(FallocateMode::Allocate, 0, BLOCKS as u64 * 2048).unwrap();
            file.set_len(BLOCKS as u64 * 4096).unwrap();
            let mut queue = fs.direct_queue_by(depth, way);
            let model = random_work(&mut queue, &file, depth as u64);
            drop(queue);
            drop(file);
            fs.close().unwrap();
            extant_testkit::e2fsprogs::e2fsck(&path, None).expect_clean().unwrap();
            let fs = extant::Filesystem::open(&path).unwrap();
            let content = fs.read("/f").unwrap();
            assert!(
                content
                    .chunks(4096)
                    .zip(&model)
                    .all(|(block, fill)| block.iter().all(|b| b == fill))
            );
        }
    }
}

#[test]
fn a_thread_that_needs_the_file_finishes_queued_transfers() {
    for volume in VOLUMES {
        let (device, fs) = volume(4096, Some(4));
        let file = new_file(&fs, "f");
        file.allocate(FallocateMode::Allocate, 0, 1 << 20).unwrap();
        let mut queue = fs.direct_queue(64);
        for n in 0..32 {
            queue.write(n, &file, block_of(n as u8 + 1), n * 8192, &DirectOptions::default());
        }
        // The same thread truncates the file, overwrites a block and reads one while all transfers
        // are in flight.
        file.write_at(b"later", 100).unwrap();
        file.set_len(100_000).unwrap();
        let mut back = [0; 4096];
        file.read_direct_at(&mut back, 8192, &DirectOptions::default()).unwrap();
        assert!(back.iter().all(|byte| *byte == 2));
        let mut tags = Vec::new();
        while let Some(done) = queue.wait() {
            assert_eq!(done.result.unwrap(), 4096);
            tags.push(done.tag);
        }
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..32));
        let content = fs.read("/f").unwrap();
        assert_eq!((content.len(), &content[100..105], content[99]), (100_000, &b"later"[..], 1));
        // Dropped with some in flight, after the file lost its name.
        for n in 0..12 {
            queue.write(n, &file, block_of(9), n * 8192, &DirectOptions::default());
        }
        fs.remove_file("/f").unwrap();
        drop(file);
        drop(queue);
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn transfers_that_the_device_alone_cannot_do_are_done() {
    for volume in VOLUMES {
        let (device, fs) = volume(65_536, Some(4));
        let file = new_file(&fs, "f");
        let mut queue = fs.direct_queue(4);
        let mut model = Vec::new();
        // Appends, unaligned writes, and parts of new blocks.
        for n in 0..40usize {
            let bytes = pattern(3000 + n * 700, n as u8);
            let at = model.len();
            model.extend_from_slice(&bytes);
            let memory = OwnedMemory::new(AlignedBuf::copy_of(&bytes));
            queue.write(n as u64, &file, memory, at as u64, &by(ALL[n % 4]));
        }
        let sync = DirectOptions { sync: true, ..DirectOptions::default() };
        queue.write(99, &file, block_of(7), 4096, &sync);
        model[4096..8192].fill(7);
        while let Some(done) = queue.wait() {
            done.result.unwrap();
        }
        queue.read(0, &file, OwnedMemory::new(AlignedBuf::zeroed(1 << 20)), 4096, &by(ALL[0]));
        let done = queue.wait().unwrap();
        assert_eq!(done.result.unwrap(), model.len() - 4096);
        assert!(done.memory.into_buf().unwrap()[..model.len() - 4096] == model[4096..]);
        queue.read(0, &file, block_of(0), 1 << 30, &by(ALL[0]));
        assert_eq!(queue.wait().unwrap().result.unwrap(), 0, "past the end");
        assert!(queue.wait().is_none());
        drop((queue, file));
        fs.close().unwrap();
        judge(&*device);
        assert!(open(&device, None).read("/f").unwrap() == model);
    }
}
