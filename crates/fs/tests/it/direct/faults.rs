//! A device that fails, at each request in turn.

use crate::common::{judge, new_file, pattern};
use crate::direct::{ALL, GARBAGE, VOLUMES, by};
use extant::direct::{AlignedBuf, OwnedMemory};
use extant::{Error, FallocateMode, OpenOptions};
use extant_base::IoOp;
use extant_testdev::Faulty;
use std::sync::Arc;

const LEN: usize = 256 << 10;

#[test]
fn a_failed_write_shows_nothing_that_was_on_the_device_before() {
    for volume in VOLUMES {
        let (empty, fs) = volume(4096, None);
        fs.close().unwrap();
        for cache in [0, 4] {
            for nth in 1..40 {
                let device = Arc::new((*empty).clone());
                let faulty = Arc::new(Faulty::new(device.clone()));
                let mut options = OpenOptions::new();
                options.write(true).commit_interval(None).page_cache_bytes(cache << 20);
                let fs = options.open_device(faulty.clone()).unwrap();
                let file = new_file(&fs, "f");
                let old = pattern(LEN, 1);
                file.write_all_at(&old, 0).unwrap();
                file.allocate(FallocateMode::ZeroRange, 65_536, 65_536).unwrap();
                file.allocate(FallocateMode::PunchHole, 131_072, 65_536).unwrap();
                fs.sync().unwrap();
                let new = vec![0x55; LEN + 65_536];
                faulty.fail(IoOp::Write, nth);
                let mut done = 0;
                while done < new.len() {
                    match file.write_direct_at(
                        &new[done..],
                        done as u64,
                        &by(ALL[nth as usize % 4]),
                    ) {
                        Ok(n) => done += n,
                        Err(_) => break,
                    }
                }
                faulty.heal();
                for direct in [false, true] {
                    let mut back = vec![0; new.len()];
                    let n = match direct {
                        true => file.read_direct_at(&mut back, 0, &by(ALL[0])).unwrap(),
                        false => file.read_at(&mut back, 0).unwrap(),
                    };
                    assert!(n >= done, "write {nth} failed: {done} bytes written, {n} there");
                    for (at, byte) in back[..n].iter().enumerate() {
                        let is_old = old.get(at) == Some(byte) || *byte == 0;
                        let is_new = *byte == 0x55;
                        assert!(
                            *byte != GARBAGE || old.get(at) == Some(&GARBAGE),
                            "write {nth}: garbage at {at}"
                        );
                        assert!(
                            is_new || (at >= done && is_old),
                            "write {nth}: byte {at} is {byte:#x}"
                        );
                    }
                }
                drop(file);
                // After an abort of the journal, its log must be replayed.
                let _ = fs.close();
                let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
                fs.close().unwrap();
                let report = extant::check::check_device(
                    device.clone(),
                    &extant::check::Options::default(),
                    &(),
                );
                let report = report.unwrap();
                let noted_only =
                    report.findings.iter().all(|found| format!("{found:?}").contains("rror"));
                assert!(report.clean || noted_only, "write {nth}: {:?}", report.findings);
            }
        }
    }
}

#[test]
fn a_failed_read_returns_the_bytes_before_the_failure_and_then_the_error() {
    for volume in VOLUMES {
        let (device, fs) = volume(4096, None);
        let file = new_file(&fs, "f");
        let bytes = pattern(3 << 20, 1);
        file.write_all_at(&bytes, 0).unwrap();
        drop(file);
        fs.close().unwrap();
        judge(&*device);
        let faulty = Arc::new(Faulty::new(device));
        let fs = OpenOptions::new().open_device(faulty.clone()).unwrap();
        let file = fs.open_file("/f").unwrap();
        let mut back = vec![0; 3 << 20];
        file.read_direct_at(&mut back, 0, &by(ALL[0])).unwrap();
        for nth in 1..4 {
            back.fill(0);
            faulty.fail(IoOp::Read, nth);
            // Each of the chunks is a request.
            match file.read_direct_at(&mut back, 0, &by(ALL[1])) {
                Ok(n) => assert!(back[..n] == bytes[..n]),
                Err(_) => assert_eq!(nth, 1),
            }
            faulty.heal();
        }
    }
}

/// How many pages of chunks exist: none, then more with each round.
const PAGES: [usize; 10] = [0, 1, 2, 3, 5, 8, 15, 16, 17, 40];

#[test]
fn memory_that_ends_at_any_chunk_shortens_a_transfer_or_refuses_it_whole() {
    for volume in VOLUMES {
        let (device, fs) = volume(4096, Some(4));
        let file = new_file(&fs, "f");
        let mut want = pattern(LEN, 1);
        file.write_all_at(&want, 0).unwrap();
        file.allocate(FallocateMode::ZeroRange, 65_536, 65_536).unwrap();
        file.allocate(FallocateMode::PunchHole, 131_072, 65_536).unwrap();
        want[65_536..196_608].fill(0);
        fs.sync().unwrap();
        let free = fs.space().free;
        for (round, pages) in PAGES.into_iter().enumerate() {
            // Over written blocks, unwritten blocks and holes, and after the end.
            for (at, len) in
                [(0, 49_152), (40_960, 131_072), (126_976, 65_536), (want.len(), 40_960)]
            {
                let new = pattern(len, (round * 4 + at / 4096) as u8 ^ 0x5A);
                fs.limit_direct_chunks(pages * 4096);
                match file.write_direct_at(&new, at as u64, &by(ALL[1])) {
                    Ok(n) => {
                        assert!(n > 0 && n.is_multiple_of(512), "{pages} pages: {n} of {len}");
                        want.resize(want.len().max(at + n), 0);
                        want[at..at + n].copy_from_slice(&new[..n]);
                    }
                    Err(Error::NoMemory) => assert_eq!(pages, 0, "a page is enough to go on"),
                    Err(error) => panic!("{pages} pages: {error}"),
                }
                let mut back = vec![0; len];
                match file.read_direct_at(&mut back, at as u64, &by(ALL[1])) {
                    Ok(n) => assert!(back[..n] == want[at..at + n], "{pages} pages: read {at}"),
                    Err(Error::NoMemory) => assert_eq!(pages, 0),
                    Err(error) => panic!("{pages} pages: {error}"),
                }
                fs.limit_direct_chunks(64 << 20);
                assert!(fs.read("/f").unwrap() == want, "{pages} pages: {len} bytes at {at}");
            }
        }
        // Nothing that was held or reserved for refused writes is lost.
        let blocks = want.len().div_ceil(4096) as u64;
        file.set_len(0).unwrap();
        fs.sync().unwrap();
        assert!(
            fs.space().free >= free,
            "{} free, {free} before, {blocks} blocks",
            fs.space().free
        );
        drop(file);
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn a_queue_that_runs_out_of_memory_does_the_rest() {
    for volume in VOLUMES {
        for pages in PAGES {
            let (device, fs) = volume(4096, Some(4));
            let file = new_file(&fs, "f");
            let mut want = pattern(LEN, 1);
            file.write_all_at(&want, 0).unwrap();
            file.sync_all().unwrap();
            fs.limit_direct_chunks(pages * 4096);
            let mut queue = fs.direct_queue(8);
            let new = pattern(LEN, 2);
            for (n, part) in new.chunks(32_768).enumerate() {
                let at = (n * 32_768) as u64;
                let memory = OwnedMemory::new(AlignedBuf::copy_of(part));
                queue.write(at, &file, memory, at, &by(ALL[1]));
            }
            while let Some(done) = queue.wait() {
                let at = done.tag as usize;
                match done.result {
                    Ok(n) => want[at..at + n].copy_from_slice(&new[at..at + n]),
                    // Other transfers have all of it; at least one has some, unless there is none.
                    Err(Error::NoMemory) => {}
                    Err(error) => panic!("{pages} pages: {error}"),
                }
            }
            drop(queue);
            fs.limit_direct_chunks(64 << 20);
            assert!(fs.read("/f").unwrap() == want, "{pages} pages");
            assert!(pages == 0 || want != pattern(LEN, 1), "{pages} pages: nothing was written");
            drop(file);
            fs.close().unwrap();
            judge(&*device);
        }
    }
}

#[test]
fn only_the_writes_that_do_not_fit_are_refused_wherever_space_ends() {
    for volume in VOLUMES {
        for free in [0, 1, 2, 3, 4, 7, 12, 20, 33] {
            let (device, fs) = volume(4096, Some(4));
            let file = new_file(&fs, "f");
            let mut want = pattern(LEN, 1);
            file.write_all_at(&want, 0).unwrap();
            file.allocate(FallocateMode::PunchHole, 131_072, 65_536).unwrap();
            want[131_072..196_608].fill(0);
            let filler = new_file(&fs, "filler");
            let mut at = 0;
            while let Ok(n) = filler.write_at(&[7; 4096], at) {
                at += n as u64;
            }
            fs.sync().unwrap();
            filler.set_len(filler.metadata().len().saturating_sub(free * 4096)).unwrap();
            fs.sync().unwrap();
            for (round, bounce) in ALL.into_iter().enumerate() {
                for (at, len) in
                    [(131_072, 65_536), (want.len(), 65_536), (0, 98_304), (4096, 4096)]
                {
                    let new = pattern(len, round as u8 ^ 0x33);
                    match file.write_direct_at(&new, at as u64, &by(bounce)) {
                        Ok(n) => {
                            want.resize(want.len().max(at + n), 0);
                            want[at..at + n].copy_from_slice(&new[..n]);
                        }
                        Err(Error::NoSpace) => {}
                        Err(error) => panic!("{free} blocks free: {error}"),
                    }
                    assert!(fs.read("/f").unwrap() == want, "{free} free: {len} bytes at {at}");
                }
            }
            drop((file, filler));
            fs.close().unwrap();
            judge(&*device);
            let fs = crate::direct::open(&device, None);
            assert!(fs.read("/f").unwrap() == want, "{free} free: opened again");
        }
    }
}
