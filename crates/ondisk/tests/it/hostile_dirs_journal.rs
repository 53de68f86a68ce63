//! Every parser and edit of directories, attributes and journal blocks runs on thousands of valid
//! ones with a few changed bytes, and none may panic. The seed is fixed, so each run is the same.

use crate::parsers::damage::damage;
use crate::parsers::{journal, names};
use extant_base::{BlockNr, BlockSize, Ino, LogicalBlock, Site, Tid};
use extant_ondisk::acl::{Acl, AclEntry, AclTag};
use extant_ondisk::byte_log::{BATCH_BYTES, Cursor, FastCommitBytes, Ring};
use extant_ondisk::dirent::{DirBlockMut, EntryKind};
use extant_ondisk::fast_commit::{BlockWriter, FcSum, MappedRange, NameChange, Record, encode};
use extant_ondisk::hash::HashVersion;
use extant_ondisk::htree::{IndexMut, RootInfo};
use extant_ondisk::inline_dir::InlineDirMut;
use extant_ondisk::jbd2::commit::TransactionCrc;
use extant_ondisk::jbd2::{
    Commit, DescriptorWriter, JournalCompat, JournalFeatures, JournalIncompat, JournalRoCompat,
    JournalSuperblock, RevokeWriter,
};
use extant_ondisk::xattr::{NameIndex, NewValue, NewXattr, encode_block, encode_in_inode};

fn ino(number: u32) -> Ino {
    Ino::new(number).unwrap()
}

/// `block` after the byte that selects its format.
fn chosen(choice: u8, block: &[u8]) -> Vec<u8> {
    [&[choice], block].concat()
}

#[test]
fn a_damaged_directory_block_does_no_harm() {
    for choice in [0, 1, 2, 3, 4, 6, 12] {
        let mut block = vec![0; 1024];
        let format = names::format_of(choice);
        let mut edit = DirBlockMut::new(&mut block, format, 1, Site::NOWHERE);
        edit.init_first(ino(12), Ino::ROOT);
        for i in 0..20 {
            let name = "n".repeat(i * 5 % 40 + 1);
            edit.insert(name.as_bytes(), ino(20), EntryKind::Regular, Some((1, 2))).unwrap();
        }
        damage("directory block", &chosen(choice, &block), 600, names::dir_block);
    }
}

#[test]
fn a_damaged_index_does_no_harm() {
    for choice in [0, 2, 4] {
        let format = names::format_of(choice);
        let (mut root, mut node) = (vec![0; 1024], vec![0; 1024]);
        let info = RootInfo { hash_version: HashVersion::Tea, levels: 1 };
        let own = (ino(12), Ino::ROOT);
        IndexMut::init_root(&mut root, &format, 1, own, info, LogicalBlock(1));
        let mut edit = IndexMut::init_node(&mut node, &format, 1, LogicalBlock(2));
        for i in 0..50 {
            assert!(edit.insert_after(i, i as u32 * 1000, LogicalBlock(i as u32 + 3)));
        }
        damage("htree root", &chosen(choice, &root), 2000, names::htree);
        damage("htree node", &chosen(choice, &node), 2000, names::htree);
    }
}

#[test]
fn a_damaged_inline_directory_does_no_harm() {
    for choice in [0x70, 0x11, 0x34] {
        let (mut i_block, mut value) = ([0; 60], [0; 60]);
        let format = names::format_of(choice);
        let mut edit = InlineDirMut::new(&mut i_block, &mut value, format, Site::NOWHERE);
        edit.init(Ino::ROOT);
        for name in [&b"one"[..], b"twenty", b"three-hundred", b"a"] {
            edit.insert(name, ino(12), EntryKind::Regular).unwrap();
        }
        let data = [&i_block[..], &value].concat();
        damage("inline directory", &chosen(choice, &data), 3000, names::inline_dir);
    }
}

#[test]
fn a_damaged_name_does_no_harm() {
    for name in ["Straße und ÅNGSTRÖM", "각\u{345}\u{301}\u{200D}x", "user.attribute"] {
        damage("name", name.as_bytes(), 5000, names::name);
    }
}

#[test]
fn a_damaged_attribute_does_no_harm() {
    let entry = |tag, perm| AclEntry { tag, perm };
    let list = Acl::new(vec![
        entry(AclTag::Owner, 7),
        entry(AclTag::User(1000), 5),
        entry(AclTag::OwningGroup, 5),
        entry(AclTag::Mask, 5),
        entry(AclTag::Other, 0),
    ]);
    let list = list.unwrap().to_disk();
    let (long, far) = (vec![7; 300], NewValue::InInode { ino: ino(30), size: 70_000, crc: 4 });
    let new = |index, name, value| NewXattr { index, name, value };
    let all = [
        new(NameIndex::USER, &b"small"[..], NewValue::Here(b"x")),
        new(NameIndex::ACL_ACCESS, b"", NewValue::Here(&list)),
        new(NameIndex::TRUSTED, b"far", far),
        new(NameIndex::SECURITY, b"empty", NewValue::Here(b"")),
        new(NameIndex::USER, b"long", NewValue::Here(&long)),
    ];
    damage("attribute block", &encode_block(&all, 1024).unwrap(), 6000, names::xattr);
    let mut tail = [0; 160];
    encode_in_inode(&all[..4], &mut tail).unwrap();
    damage("attributes in an inode", &tail, 6000, names::xattr);
    damage("access control list", &list, 6000, names::acl);
}

#[test]
fn a_damaged_journal_superblock_does_no_harm() {
    for (compat, incompat) in [(0, 0x33), (0, 0x2A), (1, 3), (0, 0)] {
        let superblock = JournalSuperblock {
            block_size: BlockSize::from_bytes(4096).unwrap(),
            maxlen: 8192,
            first: 1,
            sequence: Tid(7),
            start: Some(100),
            errno: 0,
            features: JournalFeatures {
                compat: JournalCompat::from_bits_retain(compat),
                incompat: JournalIncompat::from_bits_retain(incompat),
                ro_compat: JournalRoCompat::empty(),
            },
            uuid: [9; 16],
            fast_commit_blocks: 128,
            head: 0,
            is_v1: false,
            nr_users: 1,
        };
        let mut block = [0; 1024];
        superblock.write(&mut block);
        damage("journal superblock", &block, 3000, journal::superblock);
    }
}

#[test]
fn a_damaged_log_block_does_no_harm() {
    for choice in 0..8 {
        let format = journal::format_of(choice);
        let mut block = vec![0; 1024];
        let mut writer = DescriptorWriter::new(&mut block, format, Tid(3));
        while writer.push(BlockNr(77), false, 9) {}
        writer.finish();
        damage("descriptor", &chosen(choice, &block), 800, journal::log_block);
        let mut writer = RevokeWriter::new(&mut block, format, Tid(3));
        while writer.push(BlockNr(77)) {}
        writer.finish();
        damage("revoke", &chosen(choice, &block), 800, journal::log_block);
        Commit::write(&mut block, &format, Tid(3), (1, 2), TransactionCrc::default());
        damage("commit", &chosen(choice, &block), 800, journal::log_block);
    }
}

#[test]
fn damaged_fast_commit_records_do_no_harm() {
    let mut block = [0; 1024];
    let mut writer = BlockWriter::new(&mut block, FcSum::default());
    let change = NameChange { parent: Ino::ROOT, ino: ino(12), name: b"name" };
    let range = MappedRange {
        ino: ino(12),
        first: LogicalBlock(1),
        len_blocks: 9,
        unwritten: true,
        start: BlockNr(5000),
    };
    for record in [
        Record::Head { tid: Tid(4) },
        Record::Inode { ino: ino(12), raw: &[1; 160] },
        Record::AddRange(range),
        Record::DelRange { ino: ino(12), first: LogicalBlock(50), len_blocks: 9 },
        Record::Create(change),
        Record::Link(change),
        Record::Unlink(change),
    ] {
        assert!(writer.record(&record));
    }
    writer.tail(Tid(4)).unwrap();
    damage("fast commit", &block, 10_000, journal::fast_commit);
}

#[test]
fn a_damaged_record_of_the_byte_log_does_no_harm() {
    let ring = Ring { base: 1024, end: 1 << 20 };
    let mut commit = FastCommitBytes::new(ring, Cursor::start(Tid(4), ring), BATCH_BYTES, vec![]);
    let change = NameChange { parent: Ino::ROOT, ino: ino(12), name: b"name" };
    for record in [Record::Inode { ino: ino(12), raw: &[1; 160] }, Record::Create(change)] {
        let mut bytes = Vec::new();
        encode(&record, &mut bytes);
        assert!(commit.add(&bytes));
    }
    let (bytes, _) = commit.finish();
    for choice in 0..4 {
        damage("byte log", &chosen(choice, &bytes), 10_000, journal::byte_log);
    }
}
