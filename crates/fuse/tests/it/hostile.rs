//! Requests that no kernel would send. None may cause a panic or reach the filesystem. The seed is
//! fixed, so each run is the same.

use crate::parsers;
use extant_fuse::abi::{self, Opcode};
use extant_fuse::dispatch::Outcome;
use extant_fuse::request::Message;
use extant_nullfs::Null;
use extant_testkit::rng::{Rng, bytes};
use rustix::io::Errno;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A request of `opcode` for `node`: its struct of zeroes, then `payload`.
fn request(opcode: u32, node: u64, fixed: &[u8], payload: &[u8]) -> Vec<u8> {
    let len = size_of::<abi::InHeader>() + fixed.len() + payload.len();
    let head =
        abi::InHeader { len: len as u32, opcode, unique: 2, nodeid: node, ..Default::default() };
    [head.as_bytes(), fixed, payload].concat()
}

fn plain(opcode: Opcode, node: u64) -> Vec<u8> {
    let fixed = vec![0; opcode.struct_bytes()];
    request(opcode as u32, node, &fixed, b"name\0other name\0")
}

#[test]
fn any_bytes_do_no_harm() {
    let mut rng = Rng::new(7);
    for seed in 0..20_000 {
        let mut data = bytes(seed, 1 + rng.below(300));
        if data.len() > 8 && rng.below(8) != 0 {
            // A valid operation number.
            data[5..9].copy_from_slice(&(rng.below(56) as u32).to_ne_bytes());
        }
        parsers::request(&data);
    }
}

#[test]
fn changed_requests_do_no_harm() {
    let mut rng = Rng::new(8);
    let odd = [0u64, 1, 255, 256, 4096, 65_536, 65_537, 1 << 31, u64::MAX >> 1, u64::MAX];
    for &opcode in Opcode::ALL {
        let good = [&[0][..], &plain(opcode, 1)].concat();
        for _ in 0..3000 {
            let mut data = good.clone();
            data[0] = rng.below(3) as u8;
            for _ in 0..1 + rng.below(3) {
                // A number of 4 or 8 bytes at a place where one may be, or any byte.
                let value = odd[rng.below(odd.len())].to_ne_bytes();
                let place = 1 + 4 * rng.below((data.len() - 1) / 4);
                let width = [1, 4, 8][rng.below(3)].min(data.len() - place);
                if !(5..=8).contains(&place) {
                    data[place..place + width].copy_from_slice(&value[..width]);
                }
            }
            if rng.below(4) == 0 {
                data.truncate(1 + rng.below(data.len()));
            }
            if rng.below(10) == 0 {
                data.resize(data.len() + rng.below(140_000), b'n');
            }
            parsers::request(&data);
        }
    }
}

/// The reply of the filesystem in memory.
fn answer(request: &[u8]) -> Option<Outcome> {
    let dispatch = parsers::dispatch(Arc::new(Null::default()));
    let mut room = vec![0; dispatch.agreed().reply_bytes()];
    let message = Message::whole(request, &dispatch.agreed().limits())?;
    Some(dispatch.answer(&message, &mut room))
}

fn refused(request: &[u8]) -> Option<Errno> {
    match answer(request) {
        Some(Outcome::Reply { error, .. }) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_checked() {
    for (name, errno) in [
        (&b"\0"[..], Errno::INVAL),
        (b"a/b\0", Errno::INVAL),
        (b"/\0", Errno::INVAL),
        (b"no end", Errno::INVAL),
        (b"", Errno::INVAL),
        (&[[b'n'; 256].as_slice(), b"\0"].concat(), Errno::NAMETOOLONG),
        (&[[b'n'; 255].as_slice(), b"\0"].concat(), Errno::NOENT),
        (b"none\0", Errno::NOENT),
    ] {
        let of = |opcode: Opcode| refused(&request(opcode as u32, 1, &[], name));
        assert_eq!(of(Opcode::Lookup), Some(errno), "{name:?}");
        assert_eq!(of(Opcode::Unlink), Some(errno), "{name:?}");
    }
    for name in [&b".\0"[..], b"..\0"] {
        assert_eq!(refused(&request(Opcode::Lookup as u32, 1, &[], name)), None);
        assert_eq!(refused(&request(Opcode::Rmdir as u32, 1, &[], name)), Some(Errno::INVAL));
    }
}

#[test]
fn sizes_are_held_to_what_was_agreed() {
    let read = |size| abi::ReadIn { size, ..Default::default() };
    for size in [(1 << 20) + 1, u32::MAX] {
        let of = |opcode: Opcode| refused(&request(opcode as u32, 1, read(size).as_bytes(), &[]));
        assert_eq!(of(Opcode::Read), Some(Errno::INVAL));
        assert_eq!(of(Opcode::Readdir), Some(Errno::INVAL));
        assert_eq!(of(Opcode::Readdirplus), Some(Errno::INVAL));
        let write = abi::WriteIn { size, ..Default::default() };
        let write = request(Opcode::Write as u32, 1, write.as_bytes(), b"bytes");
        assert_eq!(refused(&write), Some(Errno::INVAL));
    }
    let write = abi::WriteIn { size: 6, ..Default::default() };
    let write = request(Opcode::Write as u32, 1, write.as_bytes(), b"bytes");
    assert_eq!(refused(&write), Some(Errno::INVAL), "more than came");
    let value = abi::SetxattrIn { size: 65_537, ..Default::default() };
    let payload = [&b"user.a\0"[..], &[0; 65_537]].concat();
    let value = request(Opcode::Setxattr as u32, 1, value.as_bytes(), &payload);
    assert_eq!(refused(&value), Some(Errno::TOOBIG));
    let forget = abi::BatchForgetIn { count: u32::MAX, dummy: 0 };
    let forget = request(Opcode::BatchForget as u32, 0, forget.as_bytes(), &[0; 32]);
    assert_eq!(answer(&forget), Some(Outcome::Silent));
    let control = abi::IoctlIn { out_size: u32::MAX, ..Default::default() };
    let control = request(Opcode::Ioctl as u32, 1, control.as_bytes(), &[]);
    assert_eq!(refused(&control), Some(Errno::INVAL));
}

#[test]
fn nodes_that_are_gone_are_stale() {
    for opcode in [Opcode::Getattr, Opcode::Setattr, Opcode::Statx, Opcode::Lookup, Opcode::Mkdir] {
        assert_eq!(refused(&plain(opcode, 99)), Some(Errno::STALE), "{}", opcode.name());
    }
    for opcode in [Opcode::Unlink, Opcode::Readdir, Opcode::Read, Opcode::Listxattr] {
        assert_eq!(refused(&plain(opcode, 0)), Some(Errno::STALE), "{}", opcode.name());
    }
    assert_eq!(answer(&plain(Opcode::Forget, 99)), Some(Outcome::Silent));
}

#[test]
fn an_operation_without_support_is_not_sent_again() {
    for opcode in [
        Opcode::Open,
        Opcode::Opendir,
        Opcode::Create,
        Opcode::Flush,
        Opcode::Access,
        Opcode::Interrupt,
        Opcode::Poll,
        Opcode::Getlk,
        Opcode::Setlk,
        Opcode::Setlkw,
    ] {
        assert_eq!(refused(&plain(opcode, 1)), Some(Errno::NOSYS), "{}", opcode.name());
    }
    for unknown in [0, 7, 54, 4096, u32::MAX] {
        assert_eq!(refused(&request(unknown, 1, &[], &[])), Some(Errno::NOSYS));
    }
    assert_eq!(refused(&plain(Opcode::Init, 1)), Some(Errno::PROTO));
    assert_eq!(answer(&[0; 39]), None, "less than a header");
}
