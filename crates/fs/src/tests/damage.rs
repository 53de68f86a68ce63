//! Changing damaged structures gives an error at most, never a panic or an endless loop.

use super::{Bench, Random, features};
use crate::state::inode::Body;
use crate::tree::xattr::by_name::XattrMode;
use extant_base::{BlockNr, BlockSize, Ino, LogicalBlock};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::xattr::NameIndex;

/// Overwrites a few bytes of one of `blocks`, preferably near its start.
fn damage(bench: &Bench, blocks: &[BlockNr], random: &mut Random) {
    let nr = blocks[random.below(blocks.len())];
    bench
        .with(|volume, handle| {
            let block = volume.journal().cache().get(nr)?;
            let block = block.write(handle)?;
            let mut bytes = block.bytes_mut();
            for _ in 0..1 + random.below(4) {
                let range = [16, 64, bytes.len()][random.below(3)];
                let at = random.below(range);
                bytes[at] = [0, 1, 0xFF, random.next() as u8][random.below(4)];
            }
            Ok(())
        })
        .unwrap();
}

fn blocks_of(bench: &Bench, body: &Body) -> Vec<BlockNr> {
    let blocks = (body.disk.size >> bench.volume.block_size().log2()) as u32;
    let block = |n| bench.volume.file(body).map(LogicalBlock(n), 1).unwrap().target.block();
    (0..blocks).filter_map(block).chain(body.disk.file_acl).collect()
}

/// Uses a directory in every way and ignores the results.
fn use_all(bench: &Bench, body: &mut Body, target: Ino, random: &mut Random) {
    for step in 0..60 {
        let name = format!("{:->90}", random.below(400)).into_bytes();
        let kind = EntryKind::Regular;
        let _ = bench.with(|volume, handle| match step % 6 {
            0..3 => volume.dir_mut(body).insert(handle, &name, target, kind),
            3 => volume.dir_mut(body).remove(handle, &name).map(drop),
            4 => volume.dir_mut(body).set(handle, &name, target, kind).map(drop),
            _ => {
                let value = vec![step as u8; random.below(1200)];
                let value = (random.below(4) > 0).then_some(&value[..]);
                let index = NameIndex::USER;
                volume.xattrs_mut(body).set(handle, index, b"a", value, XattrMode::Any)
            }
        });
    }
    let _ = bench.with(|volume, handle| volume.dir_mut(body).set_parent(handle, target));
    let _ = bench.with(|volume, handle| volume.file_mut(body).release_inode(handle));
}

#[test]
fn damaged_directories_and_attributes_are_errors() {
    let small = BlockSize::from_bytes(1024).unwrap();
    for seed in 0..120 {
        let mut random = Random::new(seed);
        let names = ["^metadata_csum", "^metadata_csum,inline_data", "^metadata_csum,ea_inode"];
        let options = features(names[random.below(3)]).block_size(small);
        let bench = Bench::made(8, options);
        let (dir, mut body) = bench.mkdir("d", InodeFlags::empty());
        let target = bench.file(dir, 1);
        let count = [2, 20, 300][random.below(3)];
        bench
            .with(|volume, handle| {
                for n in 0..count {
                    let name = format!("{n:->90}").into_bytes();
                    let kind = EntryKind::Regular;
                    volume.dir_mut(&mut body).insert(handle, &name, target, kind)?;
                }
                let index = NameIndex::USER;
                let value = Some(&[7; 600][..]);
                volume.xattrs_mut(&mut body).set(handle, index, b"a", value, XattrMode::Any)?;
                body.store(volume, handle)
            })
            .unwrap();
        let blocks = blocks_of(&bench, &body);
        for _ in 0..1 + random.below(5) {
            if random.below(4) == 0 || blocks.is_empty() {
                // The inode: map or inline entries, and attributes.
                let at = random.below(60);
                body.disk.i_block[at] = random.next() as u8;
                let at = random.below(body.raw.len() - 160) + 160;
                body.raw[at] = random.next() as u8;
            } else {
                damage(&bench, &blocks, &mut random);
            }
        }
        use_all(&bench, &mut body, target, &mut random);
    }
}
