use super::*;
use crate::AlignedBuf;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// Takes `taken` bytes, reverts `back` of them, and takes the rest: the bytes of the rest, and of
/// the whole memory.
fn walk<'m>(memory: &mut dyn CallerMemory<'m>, taken: usize, back: usize) -> (Vec<u8>, Vec<u8>) {
    let len = memory.left();
    let mut first = vec![0; taken];
    assert_eq!(memory.copy_out(&mut first, Faults::Off), taken);
    assert_eq!(memory.left(), len - taken);
    memory.revert(back);
    let mut rest = vec![0; len + 3];
    let n = memory.copy_out(&mut rest, Faults::Allowed);
    assert_eq!((n, memory.left()), (len - taken + back, 0));
    rest.truncate(n);
    (first, rest)
}

#[test]
fn what_is_given_back_comes_again_across_pieces() {
    let bytes = b"0123456789";
    let pieces = [&b"0123"[..], b"", b"45678", b"", b"9"].map(IoSlice::new);
    for taken in 0..=10 {
        for back in (0..=taken).step_by(if cfg!(miri) { 4 } else { 1 }) {
            let want = (bytes[..taken].to_vec(), bytes[taken - back..].to_vec());
            assert_eq!(walk(&mut Source::vectored(&pieces), taken, back), want);
            assert_eq!(walk(&mut Source::new(bytes), taken, back), want);
            let mut copy = *bytes;
            assert_eq!(walk(&mut Target::new(&mut copy), taken, back), want);
            assert_eq!(walk(&mut OwnedMemory::new(AlignedBuf::copy_of(bytes)), taken, back), want);
        }
    }
}

#[test]
fn a_target_is_filled_across_pieces() {
    let (mut a, mut b, mut c) = ([0; 3], [0; 0], [0; 4]);
    let mut pieces = [&mut a[..], &mut b[..], &mut c[..]].map(IoSliceMut::new);
    let mut target = Target::vectored(&mut pieces);
    assert_eq!(target.copy_in(b"ab", Faults::Off), 2);
    assert_eq!(target.copy_in(b"cdefghi", Faults::Off), 5);
    assert_eq!((a, c), (*b"abc", *b"defg"));
}

#[test]
#[should_panic(expected = "gives back what is lent")]
fn memory_that_is_being_filled_is_not_given_back() {
    let mut bytes = [0; 16];
    let mut target = Target::new(&mut bytes);
    let _span = target.lend(8, Access::Write);
    target.revert(8);
}

#[test]
fn an_owned_buffer_is_its_owners_again_when_no_span_is_left() {
    let mut memory = OwnedMemory::new(AlignedBuf::zeroed(4096));
    let mut span = memory.lend(100, Access::Write).unwrap();
    span.store(&[7; 100]);
    drop(span);
    let buf = memory.into_buf().unwrap();
    assert!(buf[..100].iter().all(|byte| *byte == 7) && buf[100] == 0);
    let mut memory = OwnedMemory::new(buf);
    let span = memory.lend(1, Access::Read);
    assert!(memory.into_buf().is_none());
    drop(span);
}

#[test]
fn shared_memory_is_copied_from_any_byte_on() {
    let memory = Arc::new(SharedMemory::zeroed(8192));
    let lens = [0, 1, 7, 8, 9, 23, 4000];
    let lens = if cfg!(miri) { &lens[..6] } else { &lens[..] };
    let bytes: Vec<u8> = (0..8192u32).map(|n| (n * 7) as u8).collect();
    let mut all = SharedCursor::new(Arc::clone(&memory), 0, 8192);
    assert_eq!(all.copy_in(&bytes, Faults::Off), 8192);
    for start in [0, 1, 7, 8, 4090] {
        for &len in lens {
            let mut part = SharedCursor::new(Arc::clone(&memory), start, len);
            let mut copy = vec![0; len];
            assert_eq!(part.copy_out(&mut copy, Faults::Off), len);
            assert_eq!(copy, bytes[start..start + len]);
        }
    }
}

#[test]
fn threads_copy_beside_each_other_in_shared_memory() {
    let memory = Arc::new(SharedMemory::zeroed(4096));
    let rounds = if cfg!(miri) { 20 } else { 10_000 };
    std::thread::scope(|scope| {
        // The second range shares its first word with the first one, its last word with the third
        // one.
        for (start, len) in [(0, 13), (13, 30), (43, 21)] {
            let memory = &memory;
            scope.spawn(move || {
                for n in 0..rounds {
                    let stored = vec![n as u8; len];
                    let mut part = SharedCursor::new(Arc::clone(memory), start, len);
                    assert_eq!(part.copy_in(&stored, Faults::Off), len);
                    part.revert(len);
                    let mut looked = Vec::new();
                    let span = part.lend(len, Access::Read).unwrap();
                    span.look(&mut |bytes| looked.extend_from_slice(bytes));
                    assert_eq!(looked, stored);
                }
            });
        }
        scope.spawn(|| (0..rounds).for_each(|n| assert_eq!(memory.load(64 + n % 8), 0)));
        scope.spawn(|| (0..rounds).map(|n| memory.load(n % 64)).max());
    });
}
