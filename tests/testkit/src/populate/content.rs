//! Files by content: sizes, holes, many extents, preallocation, inline data.

use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;

use super::Place;
use crate::rng::bytes;

/// Sizes around every limit, modes, owners.
pub(super) fn files(p: &Place) -> io::Result<()> {
    p.mkdir("files")?;
    let sizes = [
        0, 1, 59, 60, 61, 100, 155, 156, 157, 1000, 1023, 1024, 1025, 4095, 4096, 4097, 10_000,
        65_536, 300_001,
    ];
    for size in sizes {
        p.put(format!("files/size_{size}"), &bytes(size as u64, size))?;
    }
    for mode in [0o4755, 0o2750, 0o0000, 0o1777] {
        p.put_mode(format!("files/mode_{mode:04o}"), b"x", mode)?;
    }
    for (name, uid, gid) in [("owner", 1000, 100), ("owner32", 70_000, 4_000_000_000)] {
        p.put(format!("files/{name}"), b"o")?;
        std::os::unix::fs::chown(p.path(format!("files/{name}")), Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Holes; one block at each level of the block map.
pub(super) fn sparse(p: &Place) -> io::Result<()> {
    p.mkdir("sparse")?;
    let bs = p.block_size as u64;
    let per = bs / 4;
    let blocks = [
        0,
        5,
        11,
        12,
        13,
        12 + per - 1,
        12 + per,
        12 + per + 1,
        12 + 2 * per,
        12 + per + per * per - 1,
        12 + per + per * per,
        12 + per + per * per + 1,
        12 + per + per * per + per * per,
    ];
    let limit = if bs == 1024 { 15 << 30 } else { 100u64 << 30 };
    for (at, block) in blocks.into_iter().enumerate() {
        if block * bs > limit {
            break;
        }
        p.write_at("sparse/levels", &bytes(at as u64, p.block_size), block * bs)?;
    }
    p.put("sparse/tail_hole", b"head")?;
    p.open("sparse/tail_hole")?.set_len(1_000_000)?;
    p.open("sparse/all_hole")?.set_len(5_000_000)?;
    p.write_at("sparse/odd", b"one byte past a hole", 123_457)
}

/// 700 extents: every second block.
pub(super) fn fragmented(p: &Place) -> io::Result<()> {
    p.mkdir("frag")?;
    let file = p.open("frag/many_extents")?;
    for i in 0..700u64 {
        file.write_all_at(&bytes(i, p.block_size / 2), 2 * i * p.block_size as u64)?;
    }
    Ok(())
}

/// Ranges unwritten, allocated beyond the end, punched, zeroed, collapsed, inserted.
pub(super) fn prealloc(p: &Place) -> io::Result<()> {
    let bs = p.block_size as u64;
    p.mkdir("prealloc")?;
    p.attempt("unwritten", || {
        p.fallocate("prealloc/unwritten", FallocateFlags::empty(), 0, 300 << 10)?;
        p.write_at("prealloc/unwritten", &[b'M'; 5000], 100 << 10)
    });
    p.attempt("keep_size", || {
        p.put("prealloc/keep_size", b"abc")?;
        p.fallocate("prealloc/keep_size", FallocateFlags::KEEP_SIZE, 0, 200 << 10)
    });
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let works = [
        ("punched", 200 << 10, punch, 50 << 10, 70 << 10),
        ("zero_range", 200 << 10, FallocateFlags::ZERO_RANGE, (20 << 10) + 1, 30 << 10),
        ("collapsed", 64 * bs, FallocateFlags::COLLAPSE_RANGE, 8 * bs, 16 * bs),
        ("inserted", 64 * bs, FallocateFlags::INSERT_RANGE, 8 * bs, 16 * bs),
    ];
    for (seed, (name, size, mode, at, len)) in works.into_iter().enumerate() {
        p.attempt(name, || {
            let name = format!("prealloc/{name}");
            p.put(&name, &bytes(seed as u64 + 7, size as usize))?;
            p.open(&name)?.sync_all()?;
            p.fallocate(&name, mode, at, len)
        });
    }
    Ok(())
}

/// Files and directories around the sizes that fit into an inode.
pub(super) fn inline(p: &Place) -> io::Result<()> {
    p.mkdir("inl")?;
    let more = [59, 60, 61, 80, 100, 120, 150, 160, 400, 700, 800, 900];
    for size in (0..200).step_by(7).chain(more) {
        p.put(format!("inl/f{size}"), &bytes(size as u64, size))?;
    }
    p.put("inl/withx", &bytes(1, 70))?;
    p.setxattr("inl/withx", "user.x", &[b'v'; 20])?;
    for count in [0, 1, 2, 3, 4, 8, 20] {
        p.mkdir(format!("inl/d{count}"))?;
        for i in 0..count {
            p.put(format!("inl/d{count}/e{i}"), b"")?;
        }
    }
    p.put("inl/grown", &[b'a'; 30])?;
    p.write_at("inl/grown", &[b'b'; 5000], 30)?;
    p.put("inl/shrunk", &[b'a'; 5000])?;
    p.open("inl/shrunk")?.set_len(20)
}

/// Data blocks that begin with the journal's magic number.
pub(super) fn magic(p: &Place) -> io::Result<()> {
    for i in 0..20u64 {
        let mut block = bytes(i, p.block_size);
        block[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
        p.write_at("magic", &block, i * p.block_size as u64)?;
    }
    Ok(())
}
