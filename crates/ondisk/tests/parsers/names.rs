//! The structures that hold names: directory blocks, indexes, inline directories, attributes.
//! The first byte of the data selects the format; the rest is the structure.

use extant_base::{BlockNr, Ino, LogicalBlock, Site};
use extant_ondisk::acl::Acl;
use extant_ondisk::casefold::{CaseFold, fold};
use extant_ondisk::dirent::{DirBlock, DirBlockMut, DirFormat, EntryKind};
use extant_ondisk::hash::{HashVersion, NameHasher};
use extant_ondisk::htree::{self, Index, IndexMut};
use extant_ondisk::inline_dir::{InlineDir, InlineDirMut};
use extant_ondisk::xattr::{
    BlockHeader, NameIndex, NewValue, NewXattr, ValueRef, XattrArea, encode_block, encode_in_inode,
};

const AT: Site = Site::NOWHERE;

/// The format that a byte selects.
pub fn format_of(choice: u8) -> DirFormat {
    DirFormat {
        filetype: choice & 1 == 0,
        checksums: choice & 2 == 0,
        hash_words: choice & 4 != 0,
        opaque_names: choice & 8 != 0,
        inodes_count: 1000,
    }
}

/// A block of a legal size that starts with the data, or with as much of it as fits.
fn block_of(data: &[u8]) -> Vec<u8> {
    let len = data.len().next_power_of_two().clamp(1024, 65536);
    let mut block = data[..data.len().min(len)].to_vec();
    block.resize(len, 0);
    block
}

fn hasher() -> NameHasher {
    NameHasher::new(HashVersion::HalfMd4, false, [1, 2, 3, 4])
}

/// A linear directory block: read, searched, edited, split.
pub fn dir_block(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let format = format_of(choice);
    // First the data itself, at its own length, then a whole block.
    let _ = DirBlock::new(data, format, AT).entries().count();
    let _ = DirBlock::new(data, format, AT).verify_checksum(1);
    let block = block_of(data);
    let mut offsets = vec![0, 12, block.len() - 12];
    // No caller removes the entry after ".", because that may leave the block malformed.
    let (mut whole, mut dots, mut after_dot) = (true, Vec::new(), false);
    for entry in DirBlock::new(&block, format, AT).entries() {
        match entry {
            Ok(entry) => {
                assert!(entry.offset + entry.rec_len <= block.len());
                offsets.push(entry.offset);
                if std::mem::replace(&mut after_dot, entry.name == b".") || after_dot {
                    dots.push(entry.offset);
                }
                let _ = hasher().hash(entry.name);
            }
            Err(_) => whole = false,
        }
    }
    let _ = DirBlock::new(&block, format, AT).find(b"name");
    let (ino, kind) = (Ino::new(12).unwrap(), EntryKind::Regular);
    for offset in offsets {
        let mut bytes = block.clone();
        let mut edit = DirBlockMut::new(&mut bytes, format, 1, AT);
        edit.set_checksum();
        let _ = edit.set_inode(offset, ino, kind);
        let removed = edit.remove(offset);
        let _ = edit.insert(b"a name to put in", ino, kind, Some((1, 2)));
        edit.view().verify_checksum(1).unwrap();
        // An edit never breaks a block that was whole.
        if whole && removed.is_ok() && !dots.contains(&offset) {
            assert!(edit.view().entries().all(|entry| entry.is_ok()));
        }
    }
    let (mut low, mut high) = (block.clone(), block);
    let split = htree::split_leaf(
        DirBlockMut::new(&mut low, format, 1, AT),
        DirBlockMut::new(&mut high, format, 1, AT),
        |name| Ok(hasher().hash(name)),
    );
    if split.is_ok() {
        for half in [low, high] {
            let view = DirBlock::new(&half, format, AT);
            view.verify_checksum(1).unwrap();
            assert!(view.entries().all(|entry| entry.is_ok()));
        }
    }
}

/// A root and an inner node of an index: read, searched, edited, split.
pub fn htree(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let format = format_of(choice);
    let block = block_of(data);
    let use_index = |index: Index<'_>| {
        let _ = (index.check_order(), index.verify_checksum(1));
        for hash in [0, 1, 0x8000_0000, u32::MAX] {
            assert!(index.search(hash) < index.count());
        }
        assert_eq!(index.entries().count(), index.count());
    };
    if let Ok((_, index)) = Index::root(&block, &format, 2, AT) {
        use_index(index);
        let (mut root, mut node) = (block.clone(), block.clone());
        let mut edit = IndexMut::root(&mut root, &format, 2, 1, AT).unwrap();
        let _ = edit.insert_after(0, 5, LogicalBlock(7));
        edit.set_parent(Ino::ROOT);
        edit.push_down(&mut node, &format, LogicalBlock(9));
        edit.view().verify_checksum(1).unwrap();
        use_index(Index::node(&node, &format, AT).unwrap());
    }
    if let Ok(index) = Index::node(&block, &format, AT) {
        use_index(index);
        let (mut low, mut high) = (block.clone(), block);
        let mut edit = IndexMut::node(&mut low, &format, 1, AT).unwrap();
        let _ = edit.insert_after(0, 5, LogicalBlock(7));
        if edit.view().count() >= 2 {
            edit.split_into(&mut high, &format);
            Index::node(&high, &format, AT).unwrap().verify_checksum(1).unwrap();
        }
        edit.view().verify_checksum(1).unwrap();
    }
    let _ = htree::looks_like_node(data);
}

/// An inline directory: 60 bytes, then the attribute's value.
pub fn inline_dir(data: &[u8]) {
    let Some((&choice, data)) = data.split_first() else { return };
    let format = format_of(choice);
    let mut i_block = [0; 60];
    let (first, value) = data.split_at(data.len().min(60));
    i_block[..first.len()].copy_from_slice(first);
    let dir = InlineDir::new(&i_block, value, format, AT);
    let _ = (dir.parent(), dir.find(b"name"));
    let offsets: Vec<usize> = dir.entries().flatten().map(|entry| entry.offset).collect();
    for offset in offsets.into_iter().chain([0, 4, 59, 60, 61]) {
        let (mut i_block, mut value) = (i_block, value.to_vec());
        let mut edit = InlineDirMut::new(&mut i_block, &mut value, format, AT);
        let (ino, kind) = (Ino::new(12).unwrap(), EntryKind::Regular);
        let _ = edit.set_inode(offset, ino, kind);
        let _ = edit.remove(offset);
        let _ = edit.insert(b"new", ino, kind);
        edit.set_parent(Ino::ROOT);
    }
    let mut grown = value.to_vec();
    grown.resize(value.len() + usize::from(choice >> 4) * 4, 0xEE);
    let _ = InlineDirMut::new(&mut i_block, &mut grown, format, AT).value_grown(value.len());
}

/// A name, folded and compared.
pub fn name(data: &[u8]) {
    for flags in [0, 1] {
        let rules = CaseFold::new(1, flags).unwrap();
        let _ = rules.check_new(data);
        let query = rules.query(data);
        assert!(query.matches(data));
        // Folding twice may differ from folding once: an ignorable character ends a run of marks,
        // but only the first time.
        let _ = fold(data).map(|folded| query.matches(&folded));
        let _ = hasher().hash(&rules.hashed(data));
    }
    let _ = NameIndex::split(data);
}

fn use_area(area: &XattrArea<'_>) {
    let _ = (area.free_len(), area.block_hash(), area.check_layout(AT));
    let mut new = Vec::new();
    for entry in area.entries() {
        let _ = entry.hash_matches(|| 7);
        assert_eq!(area.find(entry.index, entry.name).map(|e| e.name), Some(entry.name));
        let value = match entry.value {
            ValueRef::Here(value) => NewValue::Here(value),
            ValueRef::InInode { ino, size } => NewValue::InInode { ino, size, crc: 1 },
        };
        if entry.index == NameIndex::ACL_ACCESS
            && let ValueRef::Here(value) = entry.value
        {
            acl(value);
        }
        new.push(NewXattr { index: entry.index, name: entry.name, value });
    }
    if let Ok(block) = encode_block(&new, 4096) {
        let (_, again) = XattrArea::in_block(&block, true, AT).unwrap();
        assert_eq!(again.entries().count(), new.len());
    }
    let mut tail = [0; 200];
    let _ = encode_in_inode(&new, &mut tail);
}

/// Attributes of a block and of an inode.
pub fn xattr(data: &[u8]) {
    for ea_inode in [false, true] {
        if let Ok((_, area)) = XattrArea::in_block(data, ea_inode, AT) {
            use_area(&area);
        }
        if let Ok(Some(area)) = XattrArea::in_inode(data, ea_inode, AT) {
            use_area(&area);
        }
    }
    let _ = BlockHeader::verify_checksum(data, 1, BlockNr(2), AT);
}

/// An access control list in both forms.
pub fn acl(data: &[u8]) {
    if let Ok(mut acl) = Acl::from_disk(data, AT) {
        assert_eq!(acl.to_disk(), data);
        assert_eq!(acl.disk_len(), data.len());
        assert_eq!(Acl::from_call(&acl.to_call()), Some(acl.clone()));
        let (mode, _) = acl.to_mode();
        acl.chmod(mode);
        let _ = acl.inherit(0o644);
    }
    let _ = Acl::from_call(data);
}
