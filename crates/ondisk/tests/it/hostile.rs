//! Every parser of the volume's structures reads thousands of valid structures with a few changed
//! bytes, and none may panic. The seed is fixed, so each run is the same.

use crate::parsers::damage::damage;
use crate::parsers::volume;
use extant_base::{BlockNr, GroupNr, Ino, LogicalBlock};
use extant_ondisk::checksum::Checksums;
use extant_ondisk::extent::{Extent, ExtentNodeMut, ExtentState};
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::{Inode, InodeFlags, InodeFormat};
use extant_ondisk::member::{self, Intent, Member, Prints};
use extant_ondisk::mmp::{Mmp, MmpState};
use extant_ondisk::orphan_file;
use extant_ondisk::quota::{QuotaEntry, QuotaInfo, QuotaKind};
use zerocopy::IntoBytes;

#[test]
fn a_damaged_superblock_does_no_harm() {
    for (block_bytes, inode_size) in [(1024, 128), (4096, 256), (65536, 1024)] {
        let raw = volume::superblock_of(block_bytes, inode_size).to_raw();
        assert!(raw.check(extant_base::Site::NOWHERE).is_ok());
        damage("superblock", raw.as_bytes(), 5000, volume::superblock);
    }
}

#[test]
fn a_damaged_descriptor_or_bitmap_does_no_harm() {
    let desc = GroupDesc {
        block_bitmap: BlockNr(100),
        inode_bitmap: BlockNr(101),
        inode_table: BlockNr(102),
        free_clusters: 5000,
        free_inodes: 400,
        used_dirs: 3,
        ..GroupDesc::default()
    };
    let mut bytes = vec![0; 64 + 1024];
    desc.write(&mut bytes[..64], GroupNr(0), &Checksums::None);
    damage("descriptor", &bytes, 3000, volume::group_desc);
}

#[test]
fn a_damaged_inode_does_no_harm() {
    for (choice, size) in [128u16, 256, 1024].into_iter().enumerate() {
        let format = InodeFormat::new(&volume::superblock_of(1024, size));
        for (mode, flags) in [
            (0x81A4, InodeFlags::EXTENTS),
            (0xA1FF, InodeFlags::empty()),
            (0x41ED, InodeFlags::INLINE_DATA),
            (0x21B6, InodeFlags::empty()),
        ] {
            let inode = Inode {
                mode,
                flags,
                size: 5,
                links: 1,
                i_block: [b'a'; 60],
                extra_isize: format.want_extra_isize(),
                ..Inode::default()
            };
            let mut bytes = vec![0; 1 + usize::from(size)];
            bytes[0] = choice as u8;
            inode.write(&mut bytes[1..], Ino::ROOT, &format).unwrap();
            damage("inode", &bytes, 2000, volume::inode);
        }
    }
}

#[test]
fn a_damaged_extent_node_does_no_harm() {
    for depth in 0..3 {
        let mut bytes = vec![0; 1024];
        let mut node = ExtentNodeMut::init(&mut bytes, depth);
        for n in 0..3 {
            let logical = LogicalBlock(n as u32 * 100);
            if depth == 0 {
                let state = [ExtentState::Written, ExtentState::Unwritten][n % 2];
                let extent = Extent { logical, len: 50, physical: BlockNr(500), state };
                node.insert_extent(n, &extent);
            } else {
                let child = BlockNr(600 + n as u64);
                node.insert_index(n, &extant_ondisk::extent::ExtentIndex { logical, child });
            }
        }
        damage("extent block", &bytes, 5000, volume::extent_node);
        bytes[4] = 4; // as a root
        damage("extent root", &bytes[..60], 5000, volume::extent_node);
    }
}

#[test]
fn a_damaged_block_map_does_no_harm() {
    let mut bytes = vec![0; 4 + 1024];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = if n % 4 < 2 { n as u8 } else { 0 };
    }
    damage("block map", &bytes, 10_000, volume::block_map);
}

#[test]
fn a_damaged_mmp_or_orphan_block_does_no_harm() {
    let mut bytes = vec![0; 1024];
    let mmp = Mmp {
        state: MmpState::Held(7),
        time: 1,
        nodename: [b'n'; 64],
        bdevname: [b'd'; 32],
        check_interval: 5,
    };
    mmp.write(&mut bytes, &Checksums::None);
    damage("mmp", &bytes, 5000, volume::small_blocks);
    orphan_file::init(&mut bytes, BlockNr(1), Some(5));
    damage("orphan file", &bytes, 5000, volume::small_blocks);
}

#[test]
fn a_damaged_quota_file_does_no_harm() {
    let entries = (0..40).map(|n| QuotaEntry { id: n * 1000, inodes: 1, ..QuotaEntry::default() });
    let file = QuotaInfo::build(QuotaKind::User, entries);
    damage("quota", &file, 4000, volume::quota);
}

#[test]
fn a_damaged_member_record_does_no_harm() {
    for kind in [member::Kind::mirrored(8 << 20), member::Kind::Striped { stripe_bytes: 65536 }] {
        let member = Member {
            kind,
            index: 1,
            count: 3,
            uuid: [5; 16],
            generation: 9,
            volume_bytes: 8 << 20,
            confirmed: true,
            rebuilding: true,
            rebuilt_bytes: 1 << 20,
            active: 7,
            prints: Prints::one(1),
            intent: Intent::none(),
        };
        assert_eq!(Member::check(&member.to_bytes()).unwrap().unwrap(), member);
        damage("member record", &member.to_bytes(), 5000, volume::member);
    }
}

#[test]
fn a_damaged_block_of_data_sums_does_no_harm() {
    let mut bytes = vec![0; 8 + 1024];
    extant_ondisk::data_sums::store(&mut bytes[8..], 0, 5, 10, &[7; 100]);
    damage("data sums", &bytes, 5000, volume::sums);
}
