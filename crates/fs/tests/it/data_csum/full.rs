//! Overwrites on a full volume: accepted or refused at the write.

use crate::common::{judge, new_file, pattern};
use crate::data_csum::{below, made, open, read_back, seed};
use extant::{Error, File};
use extant_testkit::rng::Rng;

/// Appends to `file` until the volume has hardly any space left, and returns what it holds then.
fn fill(file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Ok(n) = file.append(&pattern(65_536, bytes.len() as u8)) {
        bytes.extend_from_slice(&pattern(65_536, bytes.len() as u8)[..n]);
        if n < 65_536 {
            break;
        }
    }
    file.sync_all().unwrap();
    bytes
}

#[test]
fn a_full_volume_refuses_the_write_and_keeps_what_it_accepted() {
    let device = made(24, 4096, "");
    let fs = open(&device, 32);
    let file = new_file(&fs, "f");
    let mut want = fill(&file);
    let mut rng = Rng::new(seed());
    let (mut refused, mut taken) = (0, 0);
    for step in 0..400 {
        let at = below(&mut rng, want.len() as u64 - 20_000);
        let bytes = pattern(1 + below(&mut rng, 20_000) as usize, step as u8);
        match file.write_at(&bytes, at) {
            Ok(n) => {
                want[at as usize..at as usize + n].copy_from_slice(&bytes[..n]);
                taken += 1;
            }
            Err(Error::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if step % 37 == 0 {
            file.sync_all().unwrap();
        }
        if step == 200 {
            want.truncate(want.len() - 500_000);
            file.set_len(want.len() as u64).unwrap();
        }
    }
    file.sync_all().unwrap();
    assert!(taken > 100, "{taken} taken, {refused} refused");
    drop(file);
    fs.close().unwrap();
    assert!(read_back(&device, "/f").unwrap() == want);
    judge(&*device);
}

#[test]
fn overwrites_that_fragment_a_file_on_a_full_volume_are_accepted_or_refused_at_once() {
    let device = made(16, 1024, "");
    let fs = open(&device, 32);
    let file = new_file(&fs, "f");
    let mut want = fill(&file);
    // Some free space, so that blocks move.
    want.truncate(want.len() - 600_000);
    file.set_len(want.len() as u64).unwrap();
    file.sync_all().unwrap();
    let mut rng = Rng::new(seed());
    let (mut refused, mut taken) = (0, 0);
    for step in 0..20_000u64 {
        let at = below(&mut rng, want.len() as u64 / 1024) * 1024;
        let bytes = pattern(1024, step as u8);
        match file.write_at(&bytes, at) {
            Ok(n) => {
                want[at as usize..at as usize + n].copy_from_slice(&bytes[..n]);
                taken += 1;
            }
            Err(Error::NoSpace) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if step % 300 == 0 {
            file.sync_all().unwrap_or_else(|error| {
                panic!("step {step}, {taken} taken, {refused} refused: {error}")
            });
        }
    }
    file.sync_all().unwrap();
    println!("{taken} taken, {refused} refused");
    drop(file);
    fs.close().unwrap();
    assert!(read_back(&device, "/f").unwrap() == want);
    judge(&*device);
}
