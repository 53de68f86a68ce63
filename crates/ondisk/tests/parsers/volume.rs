//! The structures of the volume: superblock, groups, inodes, block maps.

use extant_base::{BlockNr, BlockSize, GroupNr, Ino, LogicalBlock, Site};
use extant_ondisk::bitmap::{self, Kind};
use extant_ondisk::block_map;
use extant_ondisk::checksum::Checksums;
use extant_ondisk::data_sums;
use extant_ondisk::extent::{self, Extent, ExtentNode, ExtentNodeMut, ExtentState, NodeRules};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::{self, GroupDesc};
use extant_ondisk::inode::{self, Inode, InodeFormat};
use extant_ondisk::member::{INTENT_BITS, Kind as Layouts, MEMBER_SIZE, Member};
use extant_ondisk::mmp::{Mmp, MmpState};
use extant_ondisk::orphan_file;
use extant_ondisk::quota::{QUOTA_BLOCK, QuotaEntry, QuotaInfo, QuotaKind};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC, Superblock};

const AT: Site = Site::NOWHERE;

/// The superblock of a small volume that the other structures belong to.
pub fn superblock_of(block_bytes: u32, inode_size: u16) -> Superblock {
    let mut sb = Superblock::new(BlockSize::from_bytes(block_bytes).unwrap());
    sb.blocks_per_group = 8 * block_bytes.min(8191);
    sb.clusters_per_group = sb.blocks_per_group;
    sb.blocks_count = u64::from(sb.blocks_per_group) * 5 / 2;
    sb.inodes_per_group = 512;
    sb.inodes_count = sb.groups_count().unwrap() * 512;
    sb.inode_size = inode_size;
    sb.desc_size = 64;
    sb.features.incompat = Incompat::EXTENTS | Incompat::IS_64BIT | Incompat::INLINE_DATA;
    sb.features.ro_compat = RoCompat::METADATA_CSUM | RoCompat::HUGE_FILE | RoCompat::PROJECT;
    sb.want_extra_isize = if inode_size > 128 { 32 } else { 0 };
    sb
}

fn cut<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let len = data.len().min(N);
    bytes[..len].copy_from_slice(&data[..len]);
    bytes
}

/// Superblock and geometry.
pub fn superblock(data: &[u8]) {
    let bytes: [u8; 1024] = cut(data);
    let mut raw = RawSuperblock::from_prefix(&bytes).unwrap().clone();
    let _ = raw.check(AT);
    // Again with the right magic and checksum, to reach the later checks.
    raw.s_magic = SUPERBLOCK_MAGIC.into();
    raw.set_checksum();
    let _ = raw.check(AT);
    let Ok(mut sb) = raw.parse(AT) else { return };
    let _ = (sb.label(), sb.checksums(), sb.is_clean(), sb.check_is_due(u64::MAX));
    let _ = (sb.features.to_string(), sb.groups_per_flex(), sb.cluster_ratio());
    let _ = sb.check_device(1 << 40, AT);
    let _ = InodeFormat::new(&sb);
    if let Ok(geometry) = Geometry::new(&sb) {
        places(&geometry);
    }
    sb.begin_write_mount(u64::MAX);
    sb.update_raw(&mut raw);
    let _ = raw.check(AT);
}

fn places(geometry: &Geometry) {
    let last = geometry.groups_count() - 1;
    for group in [0, 1, 2, last / 2, last, last.wrapping_add(1), u32::MAX].map(GroupNr) {
        let _ = (
            geometry.first_block(group),
            geometry.base_blocks(group),
            geometry.super_offset(group),
        );
        let _ = (geometry.clusters_in_group(group), geometry.desc_blocks_in(group));
        let _ = (geometry.block_of_bit(group, 0), geometry.block_of_bit(group, u32::MAX));
        let _ = (geometry.ino_of_slot(group, 0), geometry.ino_of_slot(group, u32::MAX));
        if let Some((k, offset)) = geometry.desc_place(group) {
            assert!(offset + geometry.desc_size() <= geometry.block_size().bytes());
            let _ = (geometry.desc_block(k), geometry.desc_block_backups(k).take(70).count());
        }
    }
    let _ = (geometry.desc_block(u32::MAX), geometry.super_groups().take(70).count());
    for block in [0, 1, geometry.blocks_count() - 1, geometry.blocks_count(), u64::MAX].map(BlockNr)
    {
        if let Some((group, bit)) = geometry.bit_of_block(block) {
            assert!(geometry.block_of_bit(group, bit).unwrap() <= block);
        }
    }
    for ino in [1, geometry.inodes_count(), u32::MAX].map(|ino| Ino::new(ino).unwrap()) {
        if let Some(place) = geometry.inode_place(ino) {
            assert_eq!(geometry.ino_of_slot(place.group, place.slot), Some(ino));
            assert!(place.table_block < geometry.itable_blocks());
        }
    }
}

/// Descriptor and bitmaps: the first 64 bytes are a descriptor, the rest a bitmap.
pub fn group_desc(data: &[u8]) {
    let sb = superblock_of(1024, 256);
    let geometry = Geometry::new(&sb).unwrap();
    let mut bytes: [u8; 64] = cut(data);
    let mut map: [u8; 1024] = cut(data.get(64..).unwrap_or(&[]));
    for checksums in [sb.checksums(), Checksums::GdtCsum { uuid: [1; 16] }, Checksums::None] {
        for group in geometry.groups() {
            let _ = GroupDesc::check(&bytes[..32], group, &geometry, &checksums);
            let _ = GroupDesc::check(&bytes, group, &geometry, &checksums);
            group_desc::set_checksum(&mut bytes, group, &checksums);
            // The bitmap functions accept any descriptor, also a damaged one.
            let mut desc = GroupDesc::parse(&bytes);
            let _ = GroupDesc::check(&bytes, group, &geometry, &checksums);
            let _ = desc.used_slots(&geometry, &checksums);
            for kind in [Kind::Block, Kind::Inode] {
                let _ = bitmap::check(&map, kind, group, &desc, &geometry, &checksums);
                bitmap::set_checksum(&mut desc, &map, kind, &geometry, &checksums);
                let _ = bitmap::check(&map, kind, group, &desc, &geometry, &checksums);
                let _ = bitmap::zero_runs(&map, 0..kind.used_bits(&geometry, group)).count();
            }
            desc.write(&mut bytes, group, &checksums);
            let mut fresh = [0; 1024];
            let free = bitmap::init_block_bitmap(&mut fresh, group, &desc, &geometry);
            assert_eq!(free, bitmap::count_zeros(&fresh, 0..8192));
        }
    }
    bitmap::init_inode_bitmap(&mut map, &geometry);
}

/// An inode slot of any of three sizes.
pub fn inode(data: &[u8]) {
    let (size, data) = match data.split_first() {
        Some((choice, data)) => ([128, 256, 1024][usize::from(*choice) % 3], data),
        None => return,
    };
    let mut slot: [u8; 1024] = cut(data);
    let slot = &mut slot[..usize::from(size)];
    let mut sb = superblock_of(1024, size);
    for with_checksums in [true, false] {
        sb.features.ro_compat.set(RoCompat::METADATA_CSUM, with_checksums);
        let format = InodeFormat::new(&sb);
        let _ = Inode::check(slot, Ino::ROOT, &format);
        inode::set_checksum(slot, Ino::ROOT, format.checksums());
        let _ = Inode::check(slot, Ino::ROOT, &format);
        if let Ok(inode) = Inode::parse(slot, Ino::ROOT, &format) {
            let _ = (inode.is_fast_symlink(&format), inode.fast_symlink_target(Ino::ROOT));
            let _ = (inode.device(), inode.max_size(&format), inode.seed(Ino::ROOT, &format));
            assert!(slot.get(inode.xattr_area(&format)).is_some());
            let mut again = slot.to_vec();
            if inode.write(&mut again, Ino::ROOT, &format).is_ok() {
                assert_eq!(Inode::parse(&again, Ino::ROOT, &format).unwrap().size, inode.size);
            }
        }
    }
    let _ = Inode::check(data, Ino::ROOT, &InodeFormat::new(&sb));
}

/// A root of an extent tree, or a node block, and changes of every accepted one.
pub fn extent_node(data: &[u8]) {
    let geometry = Geometry::new(&superblock_of(1024, 256)).unwrap();
    let mut rules = NodeRules::root(&geometry);
    let mut bytes: [u8; 1024] = cut(data);
    for root in [true, false] {
        let bytes = if root { &mut bytes[..60] } else { &mut bytes[..] };
        let _ = ExtentNode::check(bytes, &rules, AT);
        if !root && extent::checksum_offset(bytes).is_some() {
            rules.seed = Some(7);
            let _ = ExtentNode::check(bytes, &rules, AT);
            extent::set_checksum(bytes, 7);
        }
        let Ok(node) = ExtentNode::check(bytes, &rules, AT) else { continue };
        for block in [0, 1, 1000, u32::MAX - 1, u32::MAX].map(LogicalBlock) {
            let _ = node.search(block).map(|n| node.key(n));
        }
        for pair in node.extents().collect::<Vec<_>>().windows(2) {
            let _ = (pair[0].can_merge(&pair[1]), pair[0].physical_of(pair[1].logical));
            assert!(pair[0].end() <= pair[1].logical.0);
        }
        for n in 0..node.indexes().count() {
            let _ = rules.child(&node, n, Some(1));
        }
        let (len, leaf) = (node.len(), node.is_leaf());
        let mut node = ExtentNodeMut::new(bytes);
        if leaf && !node.is_full() {
            let extent = Extent {
                logical: LogicalBlock(0),
                len: 1,
                physical: BlockNr(9),
                state: ExtentState::Unwritten,
            };
            node.insert_extent(len, &extent);
        }
        node.remove(0..node.len() / 2);
        let _ = ExtentNode::check(bytes, &rules, AT);
    }
}

/// A pointer block, read along the path of any logical block.
pub fn block_map(data: &[u8]) {
    let number = u32::from_le_bytes(cut(data));
    let mut block: [u8; 1024] = cut(data.get(4..).unwrap_or(&[]));
    for size in BlockSize::ALL {
        let Some(path) = block_map::Path::to(LogicalBlock(number), size) else {
            assert!(u64::from(number) >= block_map::max_blocks(size));
            continue;
        };
        assert!(path.slots().len() == path.depth() + 1 && path.depth() <= 3);
        for slot in path.slots() {
            let _ = block_map::check_pointer(&block, *slot, &(1..5000), AT);
        }
    }
    let _ = block_map::pointers(&block).filter(|pointer| *pointer != 0).count();
    let _ = block_map::set_pointer(&mut block, number % 256, Some(BlockNr(u64::from(number))));
}

/// The multi-mount block and a block of the orphan file.
pub fn small_blocks(data: &[u8]) {
    let checksums = Checksums::MetadataCsum { seed: 5 };
    let mut bytes: [u8; 1024] = cut(data);
    let _ = Mmp::check(data, &Checksums::None, AT);
    let _ = Mmp::check(&bytes, &checksums, AT);
    if let Ok(mmp) = Mmp::check(&bytes, &Checksums::None, AT) {
        let _ = mmp.wait_seconds(u16::MAX);
        if let MmpState::Held(seq) = mmp.state {
            let _ = Mmp::next_seq(seq);
        }
        mmp.write(&mut bytes, &checksums);
        assert_eq!(Mmp::check(&bytes, &checksums, AT).unwrap(), mmp);
    }
    let mut bytes: [u8; 1024] = cut(data);
    let _ = orphan_file::check(data, BlockNr(1), None, 100).map(Iterator::count);
    let is_sound =
        orphan_file::check(&bytes, BlockNr(1), Some(5), 100).map(Iterator::count).is_ok();
    // Only a checked block is changed: the change updates its checksum.
    if let Some(slot) = orphan_file::free_slot(&bytes).filter(|_| is_sound) {
        orphan_file::set_slot(&mut bytes, slot, Some(Ino::ROOT), BlockNr(1), Some(5));
    }
    let _ = orphan_file::check(&bytes, BlockNr(1), Some(5), u32::MAX).map(Iterator::count);
}

/// A whole quota file: iterated, searched and extended.
pub fn quota(data: &[u8]) {
    let mut file = data.to_vec();
    file.truncate(64 * QUOTA_BLOCK);
    let blocks = (file.len() / QUOTA_BLOCK) as u32;
    let Some(header) = file.first_chunk_mut::<QUOTA_BLOCK>() else { return };
    let _ = QuotaInfo::check(header, QuotaKind::Group, blocks);
    header[..4].copy_from_slice(&QuotaKind::User.magic().to_le_bytes());
    header[4..8].copy_from_slice(&1u32.to_le_bytes());
    let _ = QuotaInfo::check(header, QuotaKind::User, blocks);
    header[0x14..0x18].copy_from_slice(&blocks.to_le_bytes());
    let Ok(mut info) = QuotaInfo::check(header, QuotaKind::User, blocks) else { return };
    let _ = info.for_each(&mut file, |_| Ok(()));
    for id in [0, 1, 77, 1 << 24, u32::MAX] {
        let _ = info.get(&mut file, id);
        let _ = info.put(&mut file, &QuotaEntry { id, inodes: 1, ..QuotaEntry::default() });
    }
}

/// A member record, with its own checksum and with the right one.
pub fn member(data: &[u8]) {
    let _ = Member::check(data);
    let mut bytes: [u8; MEMBER_SIZE] = cut(data);
    let sum = extant_crc32c::crc32c(!0, &bytes[..MEMBER_SIZE - 4]);
    bytes[MEMBER_SIZE - 4..].copy_from_slice(&sum.to_le_bytes());
    let Ok(Some(member)) = Member::check(&bytes) else { return };
    assert!(member.index < member.count && member.intent.count() <= INTENT_BITS);
    if let Layouts::Mirrored { region_log2 } = member.kind {
        assert!(member.volume_bytes >> region_log2 < INTENT_BITS as u64);
    }
    let _ = (member.needed_bytes(), member.kind.data_offset(), member.prints.all().len());
    assert_eq!(Member::check(&member.to_bytes()).unwrap().unwrap(), member);
}

/// A block of the file of data checksums, after its index in the file.
pub fn sums(data: &[u8]) {
    let index = u64::from_le_bytes(cut(data));
    let _ = data_sums::check(data, index, 5, AT);
    let mut block: [u8; 1024] = cut(data.get(8..).unwrap_or(&[]));
    let was_right = data_sums::check(&block, index, 5, AT).is_ok();
    let slot = (index % 250) as usize;
    data_sums::store(&mut block, index, 5, slot, &[1, 2, 3]);
    assert_eq!(data_sums::check(&block, index, 5, AT).is_ok(), was_right);
    let stored: Vec<u32> = data_sums::words(&block, slot, 3).collect();
    assert_eq!(stored, [1, 2, 3]);
    for size in BlockSize::ALL {
        let (at, word) = data_sums::place_of(size, BlockNr(index));
        assert!(word < data_sums::words_per_block(size) as usize);
        assert!(index == u64::MAX || at < data_sums::file_blocks(size, index + 1));
    }
}
