//! Images that mke2fs made: every structure is at the place that this crate computes, passes its
//! checks, agrees with the counts, and is written back with the same bytes.

use extant_base::{BlockNr, GroupNr, Ino, LogicalBlock, Site};
use extant_ondisk::bitmap::{self, Kind};
use extant_ondisk::block_map;
use extant_ondisk::extent::{ExtentNode, NodeRules, set_checksum};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::{FileKind, Inode, InodeFormat, is_zero_slot};
use extant_ondisk::mmp::{Mmp, MmpState};
use extant_ondisk::orphan_file;
use extant_ondisk::quota::{QUOTA_BLOCK, QuotaInfo, QuotaKind};
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use zerocopy::IntoBytes;

/// The program, or `None` if e2fsprogs is not installed. CI must have it.
fn program(name: &str) -> Option<PathBuf> {
    let found = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI needs {name} of e2fsprogs");
        eprintln!("skipped: {name} is not installed");
    }
    found
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A small tree: a fragmented file, a long and a short symlink, a nested directory, an empty file.
fn source_tree(dir: &Path) {
    std::fs::create_dir_all(dir.join("a/b/c")).unwrap();
    std::fs::write(dir.join("empty"), b"").unwrap();
    std::fs::write(dir.join("small"), b"hello").unwrap();
    std::fs::write(dir.join("large"), vec![b'x'; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("small", dir.join("short-link")).unwrap();
    std::os::unix::fs::symlink("y".repeat(200), dir.join("a/long-link")).unwrap();
    let mut holes = std::fs::File::create(dir.join("a/b/holes")).unwrap();
    for n in 0..600u64 {
        holes.seek(SeekFrom::Start(n * 3 * 4096)).unwrap();
        holes.write_all(&[n as u8; 4096]).unwrap();
    }
}

struct Image {
    name: &'static str,
    bytes: Vec<u8>,
    sb: Superblock,
    geometry: Geometry,
    format: InodeFormat,
}

impl Image {
    fn open(name: &'static str, bytes: Vec<u8>) -> Image {
        let raw = RawSuperblock::from_prefix(&bytes[1024..]).unwrap();
        let sb = raw.check(Site::NOWHERE).unwrap_or_else(|error| panic!("{name}: {error}"));
        sb.check_device(bytes.len() as u64, Site::NOWHERE).unwrap();
        assert!(sb.is_clean(), "{name}");
        let mut again = raw.clone();
        sb.update_raw(&mut again);
        assert_eq!(again.as_bytes(), raw.as_bytes(), "{name}: superblock rewritten");
        let geometry = Geometry::new(&sb).unwrap();
        let format = InodeFormat::new(&sb);
        Image { name, bytes, sb, geometry, format }
    }

    fn block(&self, block: BlockNr) -> &[u8] {
        let start = self.geometry.block_size().start_of(block).0 as usize;
        &self.bytes[start..start + self.geometry.block_size().bytes()]
    }

    fn check_backups(&self) {
        for group in self.geometry.super_groups().skip(1) {
            let start = self.geometry.super_offset(group).unwrap().0 as usize;
            let raw = RawSuperblock::from_prefix(&self.bytes[start..]).unwrap();
            let backup = raw.check(Site::of_group(group)).unwrap();
            assert_eq!(backup.block_group, group, "{}", self.name);
            assert_eq!(backup.uuid, self.sb.uuid, "{}", self.name);
            assert_eq!(backup.blocks_count, self.sb.blocks_count, "{}", self.name);
        }
        for k in 0..self.geometry.desc_blocks() {
            for (group, block) in self.geometry.desc_block_backups(k) {
                let first = GroupNr(k * self.geometry.descs_per_block());
                let (_, offset) = self.geometry.desc_place(first).unwrap();
                let size = self.geometry.desc_size();
                let backup = &self.block(block)[offset..offset + size];
                let backup =
                    GroupDesc::check(backup, first, &self.geometry, self.format.checksums())
                        .unwrap_or_else(|error| panic!("{}: copy in {group}: {error}", self.name));
                assert_eq!(backup.inode_table, self.desc(first).inode_table, "{}", self.name);
            }
        }
    }

    fn desc(&self, group: GroupNr) -> GroupDesc {
        let (k, offset) = self.geometry.desc_place(group).unwrap();
        let block = self.block(self.geometry.desc_block(k).unwrap());
        let bytes = &block[offset..offset + self.geometry.desc_size()];
        let desc = GroupDesc::check(bytes, group, &self.geometry, self.format.checksums())
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let mut again = bytes.to_vec();
        desc.write(&mut again, group, self.format.checksums());
        assert_eq!(again, bytes, "{}: descriptor {group} rewritten", self.name);
        desc
    }

    fn block_bitmap(&self, group: GroupNr, desc: &GroupDesc) -> Vec<u8> {
        let checksums = self.format.checksums();
        let mut map = self.block(desc.block_bitmap).to_vec();
        if desc.block_uninit(checksums) {
            let free = bitmap::init_block_bitmap(&mut map, group, desc, &self.geometry);
            assert_eq!(free, desc.free_clusters, "{}: group {group} uninit", self.name);
        } else {
            bitmap::check(&map, Kind::Block, group, desc, &self.geometry, checksums)
                .unwrap_or_else(|error| panic!("{}: {error}", self.name));
            let mut same = *desc;
            bitmap::set_checksum(&mut same, &map, Kind::Block, &self.geometry, checksums);
            assert_eq!(same, *desc);
        }
        map
    }

    fn inode_bitmap(&self, group: GroupNr, desc: &GroupDesc) -> Vec<u8> {
        let checksums = self.format.checksums();
        let mut map = self.block(desc.inode_bitmap).to_vec();
        if desc.inode_uninit(checksums) {
            bitmap::init_inode_bitmap(&mut map, &self.geometry);
        } else {
            bitmap::check(&map, Kind::Inode, group, desc, &self.geometry, checksums)
                .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
        map
    }

    fn inode(&self, ino: Ino) -> Inode {
        let place = self.geometry.inode_place(ino).unwrap();
        let table = self.desc(place.group).inode_table;
        let block = self.block(BlockNr(table.0 + u64::from(place.table_block)));
        let bytes = &block[place.offset..place.offset + self.geometry.inode_size()];
        let inode = Inode::parse(bytes, ino, &self.format)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        if inode.kind().is_some() {
            inode
                .check_fields(ino, &self.format)
                .unwrap_or_else(|error| panic!("{}: {error}", self.name));
            let mut again = bytes.to_vec();
            inode.write(&mut again, ino, &self.format).unwrap();
            assert_eq!(again, bytes, "{}: inode {ino} rewritten", self.name);
        } else if !is_zero_slot(bytes) {
            assert!(ino.get() < self.geometry.first_ino(), "{}: inode {ino}", self.name);
        }
        inode
    }

    /// The map from logical to physical blocks, and the number of blocks of the map itself.
    fn map(&self, ino: Ino, inode: &Inode) -> (BTreeMap<u32, u64>, u64) {
        let mut blocks = BTreeMap::new();
        let mut nodes = 0;
        if inode.has_extents() {
            let rules = NodeRules::root(&self.geometry);
            let seed = inode.seed(ino, &self.format);
            self.walk_extents(&inode.i_block, &rules, ino, seed, &mut blocks, &mut nodes);
        } else {
            let size = self.geometry.block_size();
            for n in 0..inode.size.div_ceil(size.bytes() as u64).min(block_map::max_blocks(size)) {
                let path = block_map::Path::to(LogicalBlock(n as u32), size).unwrap();
                let mut bytes = &inode.i_block[..];
                let mut found = None;
                for slot in path.slots() {
                    let range = self.geometry.block_range();
                    found = block_map::check_pointer(bytes, *slot, &range, Site::of_ino(ino))
                        .unwrap_or_else(|error| panic!("{}: {error}", self.name));
                    match found {
                        Some(block) => bytes = self.block(block),
                        None => break,
                    }
                }
                if let Some(block) = found {
                    blocks.insert(n as u32, block.0);
                }
                // A pointer block counts once, with its first block.
            }
        }
        (blocks, nodes)
    }

    fn walk_extents(
        &self,
        bytes: &[u8],
        rules: &NodeRules,
        ino: Ino,
        seed: Option<u32>,
        blocks: &mut BTreeMap<u32, u64>,
        nodes: &mut u64,
    ) {
        let at = Site::of_ino(ino);
        let node = ExtentNode::check(bytes, rules, at)
            .unwrap_or_else(|error| panic!("{}: {error}", self.name));
        for extent in node.extents() {
            for n in 0..extent.len {
                blocks.insert(extent.logical.0 + n, extent.physical.0 + u64::from(n));
            }
        }
        for (n, index) in node.indexes().enumerate() {
            *nodes += 1;
            let child = self.block(index.child);
            if let Some(seed) = seed {
                let mut again = child.to_vec();
                set_checksum(&mut again, seed);
                assert_eq!(again, child, "{}: node {} rewritten", self.name, index.child);
            }
            self.walk_extents(child, &rules.child(&node, n, seed), ino, seed, blocks, nodes);
        }
    }

    fn read(&self, ino: Ino, inode: &Inode) -> Vec<u8> {
        let mut content = vec![0; inode.size as usize];
        let size = self.geometry.block_size().bytes();
        for (logical, physical) in self.map(ino, inode).0 {
            let start = logical as usize * size;
            if let Some(rest) = content.get_mut(start..) {
                let len = rest.len().min(size);
                rest[..len].copy_from_slice(&self.block(BlockNr(physical))[..len]);
            }
        }
        content
    }

    fn check_groups(&self) {
        let (mut free_clusters, mut free_inodes, mut dirs) = (0u64, 0u32, 0u32);
        let checksums = self.format.checksums();
        for group in self.geometry.groups() {
            let desc = self.desc(group);
            let map = self.block_bitmap(group, &desc);
            let used = Kind::Block.used_bits(&self.geometry, group);
            assert_eq!(
                bitmap::count_zeros(&map, 0..used),
                desc.free_clusters,
                "{}: group {group}",
                self.name
            );
            free_clusters += u64::from(desc.free_clusters);

            let inodes = self.inode_bitmap(group, &desc);
            let ipg = self.geometry.inodes_per_group();
            assert_eq!(bitmap::count_zeros(&inodes, 0..ipg), desc.free_inodes, "{}", self.name);
            free_inodes += desc.free_inodes;
            let used_slots_end = desc.used_slots(&self.geometry, checksums);
            assert_eq!(bitmap::next_set(&inodes, used_slots_end..ipg), None, "{}", self.name);
            let mut dirs_here = 0;
            for slot in bitmap::set_runs(&inodes, 0..used_slots_end).flatten() {
                let ino = self.geometry.ino_of_slot(group, slot).unwrap();
                dirs_here += u32::from(self.check_inode(ino));
            }
            assert_eq!(dirs_here, desc.used_dirs, "{}: group {group}", self.name);
            dirs += dirs_here;
        }
        let ratio = u64::from(self.geometry.cluster_ratio());
        assert_eq!(free_clusters * ratio, self.sb.free_blocks, "{}", self.name);
        assert_eq!(free_inodes, self.sb.free_inodes, "{}", self.name);
        assert!(dirs >= 2, "{}: root and lost+found", self.name);
    }

    /// Checks the inode and all its blocks. Returns whether it is a directory.
    fn check_inode(&self, ino: Ino) -> bool {
        let inode = self.inode(ino);
        let mapped = matches!(inode.kind(), Some(FileKind::Directory | FileKind::Regular))
            || (inode.is_symlink() && !inode.is_fast_symlink(&self.format));
        if inode.is_fast_symlink(&self.format) {
            assert_eq!(inode.fast_symlink_target(ino).unwrap(), b"small", "{}", self.name);
        }
        // The map of the resize inode has a format of its own.
        if !mapped || inode.has_inline_data() || ino == Ino::RESIZE {
            return inode.is_dir();
        }
        let (blocks, nodes) = self.map(ino, &inode);
        for block in blocks.values() {
            let (group, bit) = self.geometry.bit_of_block(BlockNr(*block)).unwrap();
            let desc = self.desc(group);
            assert!(bitmap::test(&self.block_bitmap(group, &desc), bit), "{}", self.name);
        }
        if inode.has_extents() && self.geometry.cluster_ratio() == 1 {
            let acl = u64::from(inode.file_acl.is_some());
            let sectors =
                (blocks.len() as u64 + nodes + acl) << (self.geometry.block_size().log2() - 9);
            assert_eq!(inode.sectors, sectors, "{}: inode {ino}", self.name);
        }
        inode.is_dir()
    }

    fn check_special(&self) {
        let checksums = self.format.checksums();
        if self.sb.features.incompat.contains(Incompat::MMP) {
            let block = self.block(self.sb.mmp_block);
            let mmp = Mmp::check(block, checksums, Site::of_block(self.sb.mmp_block)).unwrap();
            assert_eq!(mmp.state, MmpState::Clean, "{}", self.name);
            let mut again = block.to_vec();
            mmp.write(&mut again, checksums);
            assert_eq!(again, block, "{}: mmp rewritten", self.name);
        }
        if self.sb.features.compat.contains(Compat::ORPHAN_FILE) {
            let ino = Ino::new(self.sb.orphan_file_inum).unwrap();
            let inode = self.inode(ino);
            let blocks = self.map(ino, &inode).0;
            assert!(!blocks.is_empty(), "{}", self.name);
            for block in blocks.values().map(|block| BlockNr(*block)) {
                let seed = inode.seed(ino, &self.format);
                let bytes = self.block(block);
                let entries =
                    orphan_file::check(bytes, block, seed, self.geometry.inodes_count()).unwrap();
                assert_eq!(entries.count(), 0, "{}", self.name);
                let mut again = vec![1; bytes.len()];
                orphan_file::init(&mut again, block, seed);
                assert_eq!(again, bytes, "{}: orphan block rewritten", self.name);
            }
        }
        if self.sb.features.ro_compat.contains(RoCompat::QUOTA) {
            for (kind, ino) in [
                (QuotaKind::User, self.sb.usr_quota_inum),
                (QuotaKind::Group, self.sb.grp_quota_inum),
                (QuotaKind::Project, self.sb.prj_quota_inum),
            ] {
                let Some(ino) = Ino::new(ino) else { continue };
                let mut file = self.read(ino, &self.inode(ino));
                let blocks = (file.len() / QUOTA_BLOCK) as u32;
                let header = file[..QUOTA_BLOCK].try_into().unwrap();
                let info = QuotaInfo::check(header, kind, blocks).unwrap();
                let mut entries = Vec::new();
                info.for_each(&mut file, |entry| {
                    entries.push(entry);
                    Ok(())
                })
                .unwrap();
                assert!(!entries.is_empty() && entries[0].inodes > 0, "{}: {entries:?}", self.name);
                let built = QuotaInfo::build(kind, entries);
                assert!(built == file[..built.len()], "{}: quota file rebuilt", self.name);
            }
        }
    }
}

/// Name, options of mke2fs, size.
const IMAGES: [(&str, &str, &str); 26] = [
    ("ext2", "-t ext2 -b 1024", "24M"),
    ("ext2-128", "-t ext2 -b 4096 -I 128", "24M"),
    ("ext2-revision-0", "-t ext2 -b 1024 -r 0 -O none", "24M"),
    ("ext3", "-t ext3 -b 2048 -I 128", "32M"),
    ("ext4-1k", "-t ext4 -b 1024", "40M"),
    ("ext4-2k", "-t ext4 -b 2048", "40M"),
    ("ext4-4k", "-t ext4 -b 4096", "64M"),
    ("ext4-64k", "-t ext4 -b 65536", "64M"),
    ("ext4-16k", "-t ext4 -b 16384", "64M"),
    ("crc16", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", "40M"),
    ("crc16-64bit", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,64bit", "40M"),
    ("no-checksums", "-t ext4 -b 1024 -O ^metadata_csum,^64bit", "40M"),
    ("32-byte-descriptors", "-t ext4 -b 1024 -O ^64bit", "40M"),
    ("seed", "-t ext4 -b 4096 -O metadata_csum_seed", "64M"),
    ("meta-bg", "-t ext4 -b 1024 -g 256 -O meta_bg,^resize_inode", "40M"),
    ("sparse-super2", "-t ext4 -b 1024 -O sparse_super2", "40M"),
    ("all-copies", "-t ext4 -b 1024 -O ^sparse_super,^resize_inode", "40M"),
    ("no-flex", "-t ext4 -b 1024 -O ^flex_bg", "40M"),
    ("bigalloc", "-t ext4 -b 4096 -C 65536 -O bigalloc", "64M"),
    ("bigalloc-1k", "-t ext4 -b 1024 -C 16384 -O bigalloc", "64M"),
    ("inode-1024", "-t ext4 -b 4096 -I 1024", "64M"),
    ("mmp", "-t ext4 -b 4096 -O mmp", "64M"),
    ("orphan-file", "-t ext4 -b 4096 -O orphan_file", "64M"),
    ("quota", "-t ext4 -b 4096 -O quota,project -E quotatype=usrquota:grpquota:prjquota", "64M"),
    ("small-groups", "-t ext4 -b 1024 -g 1024 -N 4096", "40M"),
    (
        "rich",
        "-t ext4 -b 4096 -O inline_data,ea_inode,large_dir,casefold,encrypt,verity,stable_inodes",
        "64M",
    ),
];

#[test]
fn every_structure_of_every_kind_of_image_is_read_and_rewritten_the_same() {
    let (Some(mke2fs), Some(dumpe2fs)) = (program("mke2fs"), program("dumpe2fs")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    source_tree(&tree);
    for (name, options, size) in IMAGES {
        let image = dir.path().join(name);
        run(Command::new(&mke2fs)
            .args(["-q", "-F", "-d"])
            .arg(&tree)
            .args(options.split(' '))
            .arg(&image)
            .arg(size));
        let shown = run(Command::new(&dumpe2fs).arg("-h").arg(&image));
        let features = shown.lines().find_map(|line| line.strip_prefix("Filesystem features:"));
        let image = Image::open(name, std::fs::read(&image).unwrap());
        let features: Vec<&str> = features.unwrap().split_whitespace().collect();
        let ours = image.sb.features.to_string();
        if image.sb.features.iter().next().is_some() {
            assert_eq!(ours.split(' ').collect::<Vec<_>>(), features, "{name}");
        }
        image.check_backups();
        image.check_groups();
        image.check_special();
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
}
