//! This crate reads and rewrites directories, attributes and journals that e2fsprogs made, and
//! e2fsprogs checks the result. Without those tools the tests do nothing, unless `CI=true`.

use extant_base::{BlockNr, BlockSize, Ino, LogicalBlock, Site, Tid};
use extant_crc32c::crc32c;
use extant_ondisk::dirent::{DirBlock, DirBlockMut, DirFormat, EntryKind};
use extant_ondisk::hash::{HashVersion, NameHasher};
use extant_ondisk::htree::{self, Index, IndexMut, RootInfo};
use extant_ondisk::jbd2::{
    BlockSum, BlockType, Commit, CommitSum, Header, JournalSuperblock, Revokes, Tags, commit,
    descriptor, revoke,
};
use extant_ondisk::xattr::{
    BlockHeader, NameIndex, NewValue, NewXattr, ValueRef, XattrArea, encode_block,
};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

const UUID: &str = "12345678-9abc-def0-1234-56789abcdef0";
const HASH_SEED: &str = "f0e1d2c3-b4a5-9687-7869-5a4b3c2d1e0f";
const SEED_WORDS: [u32; 4] = [0xC3D2_E1F0, 0x8796_A5B4, 0x4B5A_6978, 0x0F1E_2D3C];

fn have_tools() -> bool {
    let have = ["mke2fs", "debugfs", "e2fsck"]
        .iter()
        .all(|tool| Command::new(tool).arg("-V").output().is_ok());
    assert!(have || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "e2fsprogs is missing");
    if !have {
        eprintln!("passed over: e2fsprogs is missing");
    }
    have
}

fn run(tool: &str, args: &[&str]) -> (i32, String) {
    let out = Command::new(tool).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    (out.status.code().unwrap_or(-1), text + &String::from_utf8_lossy(&out.stderr))
}

struct Image {
    path: PathBuf,
    block_size: usize,
    checksums: bool,
    _dir: tempfile::TempDir,
}

impl Image {
    /// An image of `dirs` (name, number of files in it) with the mke2fs features `features`.
    fn make(dirs: &[(&str, usize)], block_size: usize, features: &str, size: &str) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        for (name, files) in dirs {
            let into = source.join(name);
            std::fs::create_dir(&into).unwrap();
            for i in 0..*files {
                std::fs::write(into.join(file_name(i)), b"").unwrap();
            }
        }
        let path = dir.path().join("image");
        let (path_text, source) = (path.to_str().unwrap(), source.to_str().unwrap());
        let extended = format!("hash_seed={HASH_SEED}");
        let block_text = block_size.to_string();
        let (code, said) = run(
            "mke2fs",
            &[
                "-q",
                "-F",
                "-t",
                "ext4",
                "-b",
                &block_text,
                "-O",
                features,
                "-U",
                UUID,
                "-E",
                &extended,
                "-N",
                "2048",
                "-d",
                source,
                path_text,
                size,
            ],
        );
        assert_eq!(code, 0, "mke2fs: {said}");
        let checksums = !features.contains("^metadata_csum");
        Image { path, block_size, checksums, _dir: dir }
    }

    fn debugfs(&self, request: &str) -> String {
        let (code, said) = run("debugfs", &["-w", "-R", request, self.path.to_str().unwrap()]);
        assert_eq!(code, 0, "{request}: {said}");
        said
    }

    fn check(&self) {
        let (code, said) = run("e2fsck", &["-fn", self.path.to_str().unwrap()]);
        assert_eq!(code, 0, "e2fsck: {said}");
    }

    /// Makes e2fsck index every directory.
    fn index_directories(&self) {
        let (code, said) = run("e2fsck", &["-fyD", self.path.to_str().unwrap()]);
        assert!(code <= 1, "e2fsck -D: {said}");
    }

    fn field(&self, file: &str, field: &str) -> u32 {
        let said = self.debugfs(&format!("stat {file}"));
        let value = said.split(field).nth(1).unwrap_or_else(|| panic!("no {field} in {said}"));
        value.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn ino(&self, file: &str) -> Ino {
        Ino::new(self.field(file, "Inode:")).unwrap()
    }

    /// The physical blocks of a file's data in order, without those of the extent tree.
    fn blocks(&self, file: &str) -> Vec<u64> {
        let count = self.field(file, "Size:") as usize / self.block_size;
        let script = self.path.with_file_name("bmap");
        let requests: String = (0..count).map(|i| format!("bmap {file} {i}\n")).collect();
        std::fs::write(&script, requests).unwrap();
        let args = ["-f", script.to_str().unwrap(), self.path.to_str().unwrap()];
        let (_, said) = run("debugfs", &args);
        let found: Vec<u64> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
        assert_eq!(found.len(), count, "{said}");
        found
    }

    fn read(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size];
        let file = std::fs::File::open(&self.path).unwrap();
        file.read_exact_at(&mut bytes, block * self.block_size as u64).unwrap();
        bytes
    }

    fn write(&self, block: u64, bytes: &[u8]) {
        let file = std::fs::File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, block * self.block_size as u64).unwrap();
    }

    fn fs_seed(&self) -> u32 {
        let digits: String = UUID.chars().filter(|c| *c != '-').collect();
        let byte = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap();
        crc32c(!0, &core::array::from_fn::<u8, 16, _>(byte))
    }

    fn inode_seed(&self, file: &str) -> u32 {
        let generation = self.field(file, "Generation:");
        let seed = crc32c(self.fs_seed(), &self.ino(file).get().to_le_bytes());
        crc32c(seed, &generation.to_le_bytes())
    }

    fn format(&self) -> DirFormat {
        DirFormat {
            filetype: true,
            checksums: self.checksums,
            hash_words: false,
            opaque_names: false,
            inodes_count: 1 << 20,
        }
    }
}

fn file_name(i: usize) -> String {
    format!("file-{}-{i:05}", "x".repeat(i * 7 % 60))
}

fn names_of(block: &[u8], format: DirFormat) -> Vec<(Vec<u8>, Ino)> {
    DirBlock::new(block, format, Site::NOWHERE)
        .entries()
        .map(|entry| entry.unwrap())
        .filter(|entry| !entry.is_dot_or_dotdot())
        .filter_map(|entry| Some((entry.name.to_vec(), entry.ino?)))
        .collect()
}

const SHAPES: [(usize, &str, &str); 4] = [
    (1024, "metadata_csum,^has_journal", "16M"),
    (1024, "^metadata_csum,^has_journal", "16M"),
    (4096, "metadata_csum,64bit,^has_journal", "32M"),
    (65536, "metadata_csum,^has_journal", "128M"),
];

#[test]
fn linear_blocks_read_and_change_as_e2fsprogs_expects() {
    if !have_tools() {
        return;
    }
    for (block_size, features, size) in SHAPES {
        let image = Image::make(&[("few", 5)], block_size, features, size);
        let (seed, format) = (image.inode_seed("/few"), image.format());
        let blocks = image.blocks("/few");
        let mut block = image.read(blocks[0]);
        let view = DirBlock::new(&block, format, Site::NOWHERE);
        view.verify_checksum(seed).unwrap();
        let mut want: Vec<_> = (0..5).map(|i| file_name(i).into_bytes()).collect();
        let names = names_of(&block, format);
        let mut got: Vec<_> = names.iter().map(|(name, _)| name.clone()).collect();
        got.sort();
        want.sort();
        assert_eq!(got, want);
        assert_eq!(view.find(b"..").unwrap().unwrap().ino, Some(Ino::ROOT));

        // Rename one by a removal and an insertion, and swap the inodes of two others.
        let find = |block: &[u8], name: &[u8]| {
            DirBlock::new(block, format, Site::NOWHERE).find(name).unwrap().map(|e| e.offset)
        };
        let (gone, ino) = names[1].clone();
        let (at, a, b) = (
            find(&block, &gone).unwrap(),
            find(&block, &names[2].0).unwrap(),
            find(&block, &names[3].0).unwrap(),
        );
        let mut edit = DirBlockMut::new(&mut block, format, seed, Site::NOWHERE);
        edit.remove(at).unwrap();
        edit.set_inode(a, names[3].1, EntryKind::Regular).unwrap();
        edit.set_inode(b, names[2].1, EntryKind::Regular).unwrap();
        let new_name = "n".repeat(200);
        edit.insert(new_name.as_bytes(), ino, EntryKind::Regular, None).unwrap().unwrap();
        DirBlock::new(&block, format, Site::NOWHERE).verify_checksum(seed).unwrap();
        image.write(blocks[0], &block);
        image.check();
        assert_eq!(image.ino(&format!("/few/{new_name}")), ino);
        assert_eq!(
            image.ino(&format!("/few/{}", String::from_utf8_lossy(&names[2].0))),
            names[3].1
        );
    }
}

#[test]
fn indexes_read_and_rebuild_as_e2fsprogs_expects() {
    if !have_tools() {
        return;
    }
    for (block_size, features, size) in SHAPES {
        let files = if block_size == 65536 { 2000 } else { 600 };
        let image = Image::make(&[("many", files)], block_size, features, size);
        image.index_directories();
        let (seed, format) = (image.inode_seed("/many"), image.format());
        let blocks = image.blocks("/many");
        let root = image.read(blocks[0]);
        let (info, index) = Index::root(&root, &format, 1, Site::NOWHERE).unwrap();
        assert_eq!(info, RootInfo { hash_version: HashVersion::HalfMd4, levels: 0 });
        index.verify_checksum(seed).unwrap();
        index.check_order().unwrap();

        // Every name hashes to the leaf that holds it, and to what debugfs prints beside it.
        let hasher = NameHasher::new(HashVersion::HalfMd4, false, SEED_WORDS);
        let said = image.debugfs("htree_dump /many");
        let printed: BTreeMap<&str, &str> = said
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let (_, hash, _, name) =
                    (words.next()?, words.next()?, words.next()?, words.next()?);
                Some((name, hash))
            })
            .collect();
        let mut names = Vec::new();
        for (i, entry) in index.entries().enumerate() {
            let leaf = image.read(blocks[entry.block.0 as usize]);
            DirBlock::new(&leaf, format, Site::NOWHERE).verify_checksum(seed).unwrap();
            for (name, ino) in names_of(&leaf, format) {
                let hash = hasher.hash(&name);
                let text = format!("0x{:08x}-{:08x}", hash.hash, hash.minor);
                let name_text = std::str::from_utf8(&name).unwrap();
                assert_eq!(printed.get(name_text), Some(&&*text), "{name_text}");
                let found = index.search(hash.hash);
                let next = index.entry(i).is_some_and(|entry| entry.continues(hash.hash));
                assert!(found == i || next, "{name_text} is in leaf {i}, search says {found}");
                names.push((name, ino));
            }
        }
        assert_eq!(names.len(), files);
    }
}

#[test]
fn e2fsprogs_accepts_an_index_that_this_crate_made() {
    if !have_tools() {
        return;
    }
    // Long names: in 1 KiB blocks they need a second level.
    for ((block_size, features, size), levels) in SHAPES.into_iter().zip([1, 1, 0, 0]) {
        let image = Image::make(&[("many", 600)], block_size, features, size);
        let (seed, format) = (image.inode_seed("/many"), image.format());
        let mut names = Vec::new();
        let old = image.blocks("/many");
        for block in &old {
            names.extend(names_of(&image.read(*block), format));
        }
        assert_eq!(names.len(), 600);
        for (i, (name, _)) in names.iter_mut().enumerate() {
            name.extend([b'a'; 180]);
            name.extend(i.to_string().into_bytes());
        }
        let hasher = NameHasher::new(HashVersion::HalfMd4, false, SEED_WORDS);
        let mut tree = Tree::new(block_size, format, seed, image.ino("/many"));
        for (name, ino) in &names {
            tree.insert(name, *ino, &hasher);
        }
        let (info, _) = Index::root(&tree.blocks[0], &format, 1, Site::NOWHERE).unwrap();
        assert_eq!(info.levels, levels);
        for _ in old.len()..tree.blocks.len() {
            image.debugfs("expand_dir /many");
        }
        let places = image.blocks("/many");
        assert_eq!(places.len(), tree.blocks.len());
        for (place, bytes) in places.iter().zip(&tree.blocks) {
            image.write(*place, bytes);
        }
        image.debugfs("set_inode_field /many flags 0x81000");
        image.check();
        let said = image.debugfs("htree_dump /many");
        for (name, _) in &names {
            assert!(said.contains(std::str::from_utf8(name).unwrap()));
        }
    }
}

/// A directory that grows name by name, as an engine makes it.
struct Tree {
    blocks: Vec<Vec<u8>>,
    block_size: usize,
    format: DirFormat,
    seed: u32,
}

impl Tree {
    fn new(block_size: usize, format: DirFormat, seed: u32, own: Ino) -> Tree {
        let mut blocks = vec![vec![0; block_size]; 2];
        let info = RootInfo { hash_version: HashVersion::HalfMd4, levels: 0 };
        let first = LogicalBlock(1);
        IndexMut::init_root(&mut blocks[0], &format, seed, (own, Ino::ROOT), info, first);
        DirBlockMut::new(&mut blocks[1], format, seed, Site::NOWHERE).init_empty();
        Tree { blocks, block_size, format, seed }
    }

    fn index(&self, block: usize) -> Index<'_> {
        match block {
            0 => Index::root(&self.blocks[0], &self.format, 1, Site::NOWHERE).unwrap().1,
            _ => Index::node(&self.blocks[block], &self.format, Site::NOWHERE).unwrap(),
        }
    }

    fn edit<R>(&mut self, block: usize, edit: impl FnOnce(&mut IndexMut<'_>) -> R) -> R {
        let (bytes, at) = (&mut self.blocks[block], Site::NOWHERE);
        edit(&mut match block {
            0 => IndexMut::root(bytes, &self.format, 1, self.seed, at).unwrap(),
            _ => IndexMut::node(bytes, &self.format, self.seed, at).unwrap(),
        })
    }

    fn insert(&mut self, name: &[u8], ino: Ino, hasher: &NameHasher) {
        let hash = hasher.hash(name).hash;
        let (format, seed, at) = (self.format, self.seed, Site::NOWHERE);
        loop {
            let (info, root) = Index::root(&self.blocks[0], &format, 1, at).unwrap();
            let mut path = vec![(0, root.search(hash))];
            let mut next = root.entry(path[0].1).unwrap().block.0 as usize;
            for _ in 0..info.levels {
                let node = self.index(next);
                path.push((next, node.search(hash)));
                next = node.entry(path[path.len() - 1].1).unwrap().block.0 as usize;
            }
            let mut leaf = DirBlockMut::new(&mut self.blocks[next], format, seed, at);
            if leaf.insert(name, ino, EntryKind::Regular, None).unwrap().is_some() {
                DirBlock::new(&self.blocks[next], format, at).verify_checksum(seed).unwrap();
                return;
            }
            let (parent, slot) = path[path.len() - 1];
            let mut new = vec![0; self.block_size];
            let new_block = LogicalBlock(self.blocks.len() as u32);
            if !self.index(parent).is_full() {
                let lower = DirBlockMut::new(&mut self.blocks[next], format, seed, at);
                let upper = DirBlockMut::new(&mut new, format, seed, at);
                let key = htree::split_leaf(lower, upper, |n| Ok(hasher.hash(n))).unwrap();
                assert!(self.edit(parent, |index| index.insert_after(slot, key, new_block)));
            } else if parent == 0 {
                self.edit(0, |root| root.push_down(&mut new, &format, new_block));
            } else {
                let key = self.edit(parent, |node| node.split_into(&mut new, &format));
                let above = path[0].1;
                assert!(self.edit(0, |root| root.insert_after(above, key, new_block)));
            }
            self.blocks.push(new);
        }
    }
}

#[test]
fn attributes_read_and_rebuild_as_e2fsprogs_expects() {
    if !have_tools() {
        return;
    }
    for (block_size, features, size) in SHAPES {
        let image = Image::make(&[("d", 1)], block_size, features, size);
        let file = format!("/d/{}", file_name(0));
        let long = "v".repeat(700);
        for (name, value) in [
            ("user.small", "x"),
            ("user.long", &long),
            ("trusted.t", "abcde"),
            ("user.latin-é", "1"),
            ("security.label", "system_u"),
        ] {
            image.debugfs(&format!("ea_set {file} {name} {value}"));
        }
        image.check();
        let place = u64::from(image.field(&file, "File ACL:"));
        let nr = BlockNr(place);
        let block = image.read(place);
        let at = Site::of_block(nr);
        let (header, area) = XattrArea::in_block(&block, false, at).unwrap();
        assert_eq!(header.refcount, 1);
        if image.checksums {
            BlockHeader::verify_checksum(&block, image.fs_seed(), nr, at).unwrap();
        }
        area.check_layout(at).unwrap();
        let mut new = Vec::new();
        for entry in area.entries() {
            assert!(entry.hash_matches(|| unreachable!()), "{entry:?}");
            let ValueRef::Here(value) = entry.value else { panic!("{entry:?}") };
            new.push(NewXattr {
                index: entry.index,
                name: entry.name,
                value: NewValue::Here(value),
            });
        }
        assert!(new.len() >= 2);
        let long = area.find(NameIndex::USER, b"long").unwrap();
        assert_eq!(long.value, ValueRef::Here("v".repeat(700).as_bytes()));

        // Write them again, in another order, with one more.
        new.reverse();
        let more = vec![7; 65];
        let value = NewValue::Here(&more);
        new.push(NewXattr { index: NameIndex::USER, name: b"ours", value });
        let mut rebuilt = encode_block(&new, block_size).unwrap();
        if image.checksums {
            BlockHeader::set_checksum(&mut rebuilt, image.fs_seed(), nr);
        }
        let (header, area) = XattrArea::in_block(&rebuilt, false, at).unwrap();
        assert_eq!(header.hash, area.block_hash());
        area.check_layout(at).unwrap();
        image.write(place, &rebuilt);
        image.check();
        let said = image.debugfs(&format!("ea_list {file}"));
        assert!(said.contains("user.ours (65)") && said.contains("user.long (700)"), "{said}");
    }
}

#[test]
fn attributes_in_an_inode_read_back() {
    if !have_tools() {
        return;
    }
    let (block_size, features, size) = SHAPES[0];
    let image = Image::make(&[("d", 1)], block_size, features, size);
    let file = format!("/d/{}", file_name(0));
    image.debugfs(&format!("ea_set {file} user.a 12345"));
    image.debugfs(&format!("ea_set {file} security.b xyz"));
    let said = image.debugfs(&format!("imap {file}"));
    let word = |before: &str| {
        let rest = said.split(before).nth(1).unwrap();
        rest.split([',', ' ', '\n']).next().unwrap().to_owned()
    };
    let block = image.read(word("located at block ").parse().unwrap());
    let offset = usize::from_str_radix(word("offset 0x").trim(), 16).unwrap();
    let inode = &block[offset..offset + 256];
    let extra = usize::from(u16::from_le_bytes([inode[0x80], inode[0x81]]));
    let tail = &inode[128 + extra..];
    let area = XattrArea::in_inode(tail, false, Site::NOWHERE).unwrap().unwrap();
    area.check_layout(Site::NOWHERE).unwrap();
    assert_eq!(area.entries().count(), 2);
    let find = |index, name: &[u8]| area.find(index, name).map(|entry| entry.value);
    assert_eq!(find(NameIndex::USER, b"a"), Some(ValueRef::Here(b"12345")));
    assert_eq!(find(NameIndex::SECURITY, b"b"), Some(ValueRef::Here(b"xyz")));
}

#[test]
fn journals_of_debugfs_read_in_every_layout() {
    if !have_tools() {
        return;
    }
    for (features, jo, sum, wide) in [
        ("metadata_csum,64bit", "jo -c -v 3", BlockSum::V3, true),
        ("metadata_csum,^64bit", "jo -c -v 3", BlockSum::V3, false),
        ("metadata_csum,64bit", "jo -c -v 2", BlockSum::V2, true),
        ("metadata_csum,^64bit", "jo -c -v 2", BlockSum::V2, false),
        ("^metadata_csum,64bit", "jo", BlockSum::None, true),
        ("^metadata_csum,^64bit", "jo", BlockSum::None, false),
    ] {
        let image = Image::make(&[], 1024, features, "32M");
        let dir = image.path.parent().unwrap();
        let copies: Vec<u8> = (0..3 * 1024_u32).map(|i| (i / 7) as u8).collect();
        let mut escaped = copies.clone();
        escaped[1024..1028].copy_from_slice(&extant_ondisk::jbd2::MAGIC.to_be_bytes());
        std::fs::write(dir.join("copies"), &escaped).unwrap();
        let script = format!(
            "{jo}\njw -b 20000,20001,20002 {0}/copies\njw -r 20005,20006\njc\n",
            dir.display()
        );
        std::fs::write(dir.join("script"), script).unwrap();
        let script = dir.join("script");
        let args = ["-w", "-f", script.to_str().unwrap(), image.path.to_str().unwrap()];
        let (_, said) = run("debugfs", &args);

        let places = image.blocks("<8>");
        let log = |i: u32| image.read(places[i as usize]);
        let size = BlockSize::from_bytes(1024).unwrap();
        let first = log(0);
        let superblock =
            JournalSuperblock::read(&first, size, places.len() as u64, Site::NOWHERE).unwrap();
        let mut written = first.clone();
        superblock.write(&mut written);
        assert!(written == first, "the written superblock equals the one read: {said}");
        let format = superblock.log_format();
        assert_eq!((format.sum, format.wide), (sum, wide), "{said}");
        let (mut at, tid) = (superblock.start.unwrap(), superblock.sequence);

        let block = log(at);
        let header = Header::read(&block).unwrap();
        assert_eq!((header.block_type, header.tid), (BlockType::Descriptor, tid));
        assert!(descriptor::checksum_matches(&block, &format));
        let tags: Vec<_> =
            Tags::new(&block, format, Site::NOWHERE).map(|tag| tag.unwrap()).collect();
        let homes: Vec<_> = tags.iter().map(|tag| tag.block.0).collect();
        assert_eq!(homes, [20000, 20001, 20002]);
        for tag in &tags {
            at += 1;
            let mut copy = log(at);
            tag.verify_copy(&format, tid, &copy).unwrap();
            if tag.flags.contains(descriptor::TagFlags::ESCAPE) {
                extant_ondisk::jbd2::header::unescape(&mut copy);
            }
            let i = (tag.block.0 - 20000) as usize * 1024;
            assert!(copy == escaped[i..i + 1024]);
        }
        assert!(tags[1].flags.contains(descriptor::TagFlags::ESCAPE));
        at += 1;
        let closed = Commit::read(&log(at), &format).unwrap();
        assert_eq!(closed.tid, tid);
        let want = if sum == BlockSum::None { CommitSum::Absent } else { CommitSum::Right };
        assert_eq!(closed.sum, want);
        let mut torn = log(at);
        torn[commit::COMMIT_LEN + 600] ^= 0xFF;
        let want = if sum == BlockSum::None { CommitSum::Absent } else { CommitSum::RightTorn };
        assert_eq!(Commit::read(&torn, &format).unwrap().sum, want);

        at += 1;
        let block = log(at);
        let header = Header::read(&block).unwrap();
        assert_eq!((header.block_type, header.tid), (BlockType::Revoke, tid.next()));
        assert!(revoke::checksum_matches(&block, &format));
        let revoked: Vec<_> = Revokes::new(&block, &format, Site::NOWHERE).unwrap().collect();
        assert_eq!(revoked, [BlockNr(20005), BlockNr(20006)]);
        assert_eq!(Commit::read(&log(at + 1), &format).unwrap().tid, Tid(tid.0 + 1));
    }
}

#[test]
fn folded_names_hash_as_e2fsprogs_folds_them() {
    if !have_tools() {
        return;
    }
    let names: Vec<String> =
        SAMPLES.iter().map(|name| (*name).to_owned()).chain(ranges()).collect();
    let dir = tempfile::tempdir().unwrap();
    let script: String =
        names.iter().map(|name| format!("dx_hash -h half_md4 -c -e utf8 \"{name}\"\n")).collect();
    let path = dir.path().join("script");
    std::fs::write(&path, script).unwrap();
    let (_, said) = run("debugfs", &["-f", path.to_str().unwrap()]);
    let hashes: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix("Hash of ")?.rsplit(" is ").next())
        .collect();
    assert_eq!(hashes.len(), names.len());
    let rules = extant_ondisk::casefold::CaseFold::new(1, 0).unwrap();
    let hasher = NameHasher::new(HashVersion::HalfMd4, false, [0; 4]);
    let mut wrong = Vec::new();
    for (name, said) in names.iter().zip(hashes) {
        let hash = hasher.hash(&rules.hashed(name.as_bytes()));
        if format!("{:#x} (minor {:#x})", hash.hash, hash.minor) != said {
            wrong.push(name);
        }
    }
    let shown = &wrong[..wrong.len().min(20)];
    assert!(wrong.is_empty(), "{} wrong: {shown:?}", wrong.len());
}

const SAMPLES: &[&str] = &[
    "README",
    "Straße",
    "ÅNGSTRÖM",
    "\u{212A}elvin",
    "ΟΔΟΣ",
    "\u{1F80}x",
    "α\u{345}\u{301}",
    "각",
    "A\u{301}\u{323}",
    "A\u{AD}B\u{200D}C",
    "a\u{301}\u{34F}\u{323}",
    "\u{FEFF}",
    "İ",
    "A\u{1FAE0}",
    "A\u{301}\u{200D}\u{323}",
    "\u{1E9B}\u{323}",
    "ﬃ",
    "Ǆ",
    "\u{10400}",
    "\u{1F1E9}A",
    "\u{32FF}A",
];

/// Names of four adjacent characters, from every plane that has letters.
fn ranges() -> impl Iterator<Item = String> {
    (0xA0..0x1_1A00)
        .chain(0x1_2000..0x1_2010)
        .chain(0x1_6E30..0x1_6E90)
        .chain(0x1_D100..0x1_D250)
        .chain(0x1_E800..0x1_FB00)
        .chain(0x2_F800..0x2_FA20)
        .step_by(4)
        .map(|first: u32| (first..first + 4).filter_map(char::from_u32).collect::<String>() + "A")
}
