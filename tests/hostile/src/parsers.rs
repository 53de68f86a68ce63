//! One target for each parser. Those of structures are in the crates' own tests, which run them,
//! too.

#[path = "../../../crates/fuse/tests/parsers/mod.rs"]
pub(crate) mod fuse;
#[path = "../../../crates/ondisk/tests/parsers/mod.rs"]
mod ondisk;

use crate::Target;
use crate::disk;
use crate::image::volumes::{self, Volume};
use extant_compat_tests::volume::Kind;
use extant_fuse::abi::{self, Opcode};
use extant_image::{Excludes, ModeChange, Ownership};
use ondisk::{journal, names, volume};
use std::path::Path;
use zerocopy::IntoBytes;

/// Structures of one kind, for seeds.
const SEEDS_MAX: usize = 24;

/// The parsers.
pub const TARGETS: &[Target] = &[
    parser("superblock", volume::superblock, || of(&[Kind::Superblock])),
    parser("group_desc", volume::group_desc, descriptors),
    parser("inode", volume::inode, || chosen(of(&[Kind::Inode]), &[0, 1, 2])),
    parser("extent_node", volume::extent_node, || of(&[Kind::MapNode])),
    parser("block_map", volume::block_map, || of(&[Kind::MapNode])),
    parser("small_blocks", volume::small_blocks, || of(&[Kind::Orphans])),
    parser("quota", volume::quota, quota_files),
    parser("member", volume::member, members),
    parser("data_sums", volume::sums, sums),
    parser("partition_table", disk::table, disk::seeds),
    parser("dir_block", names::dir_block, || chosen(of(&[Kind::Directory]), &[0, 2, 4, 12])),
    parser("htree", names::htree, || chosen(of(&[Kind::Directory]), &[0, 2, 4])),
    parser("inline_dir", names::inline_dir, || chosen(inline(), &[0x70, 0x11, 0x34])),
    parser("name", names::name, words),
    parser("xattr", names::xattr, || of(&[Kind::Attributes, Kind::Inode])),
    parser("acl", names::acl, access_lists),
    parser("journal_superblock", journal::superblock, || of(&[Kind::Journal])),
    parser("log_block", journal::log_block, || chosen(of(&[Kind::Log]), &[0, 2, 3, 7])),
    parser("fast_commit", journal::fast_commit, || of(&[Kind::Log])),
    parser("byte_log", journal::byte_log, || chosen(records(), &[0, 1, 3])),
    parser("fuse_request", fuse::request, requests),
    parser("words", given_words, words),
];

const fn parser(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<Vec<u8>>) -> Target {
    Target { name, run, seeds, weight: 1, longest: 70_000 }
}

/// Structures of `kinds` of all volumes, each different.
fn of(kinds: &[Kind]) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let mut per_volume =
        volumes::all().iter().map(|volume| places(volume, kinds)).collect::<Vec<_>>();
    // One of each volume, then the next of each.
    while found.len() < SEEDS_MAX && per_volume.iter().any(|places| !places.is_empty()) {
        for places in per_volume.iter_mut().filter(|places| !places.is_empty()) {
            let bytes = places.remove(0);
            if !found.contains(&bytes) && bytes.iter().any(|byte| *byte != 0) {
                found.push(bytes);
            }
        }
    }
    found
}

fn places(volume: &Volume, kinds: &[Kind]) -> Vec<Vec<u8>> {
    let of_kind = volume.rich.places.iter().filter(|place| kinds.contains(&place.kind));
    of_kind.map(|place| volume.rich.bytes[place.at..place.at + place.len].to_vec()).collect()
}

/// Each of `seeds` after the bytes that select a format.
fn chosen(seeds: Vec<Vec<u8>>, choices: &[u8]) -> Vec<Vec<u8>> {
    let with = |choice: &u8| {
        let choice = *choice;
        seeds.iter().map(move |seed| [&[choice], &seed[..]].concat())
    };
    choices.iter().flat_map(with).collect()
}

/// A descriptor and a bitmap.
fn descriptors() -> Vec<Vec<u8>> {
    let bitmaps = of(&[Kind::BlockBitmap]);
    let with = |desc: Vec<u8>| bitmaps.iter().take(3).map(move |map| [&desc[..64], map].concat());
    of(&[Kind::Descriptors]).into_iter().flat_map(with).collect()
}

/// All blocks of the quota files of a volume, one after the other.
fn quota_files() -> Vec<Vec<u8>> {
    let files = volumes::all().iter().map(|volume| places(volume, &[Kind::Quota]).concat());
    files.filter(|file| !file.is_empty()).collect()
}

fn members() -> Vec<Vec<u8>> {
    let at = |volume: &&Volume| volume.rich.bytes[512..520] == *b"extantMB";
    let mirrors = volumes::all().iter().filter(at);
    mirrors.map(|volume| volume.rich.bytes[512..1024].to_vec()).collect()
}

fn sums() -> Vec<Vec<u8>> {
    of(&[Kind::Sums]).into_iter().map(|block| [&[0; 8], &block[..]].concat()).collect()
}

/// `i_block` of inodes, and what follows it.
fn inline() -> Vec<Vec<u8>> {
    of(&[Kind::Inode]).iter().map(|slot| slot[0x28..].to_vec()).collect()
}

/// Blocks of the log from where a record of the byte log begins.
fn records() -> Vec<Vec<u8>> {
    let magic = extant_ondisk::byte_log::MAGIC.to_le_bytes();
    let from = |block: &Vec<u8>| {
        let at = block.chunks(64).position(|part| part.starts_with(&magic))?;
        Some(block[at * 64..].to_vec())
    };
    let logs = volumes::all().iter().flat_map(|volume| places(volume, &[Kind::Log]));
    logs.filter_map(|block| from(&block)).take(SEEDS_MAX).collect()
}

/// Lists as on disk and as calls pass them.
fn access_lists() -> Vec<Vec<u8>> {
    let disk = [
        &[1, 0, 0, 0][..],
        &[1, 0, 7, 0],
        &[2, 0, 5, 0, 0xE8, 3, 0, 0],
        &[4, 0, 5, 0],
        &[16, 0, 5, 0],
        &[32, 0, 0, 0],
    ];
    let entry = |tag: u8, perm: u8| [tag, 0, perm, 0, 0xFF, 0xFF, 0xFF, 0xFF];
    let call = [&[2, 0, 0, 0][..], &entry(1, 7), &entry(4, 5), &entry(32, 0)];
    vec![disk.concat(), call.concat()]
}

/// A request of each operation, for a filesystem that receives every open.
fn requests() -> Vec<Vec<u8>> {
    let request = |opcode: &Opcode| {
        let fixed = vec![0; opcode.struct_bytes()];
        let payload = b"name\0other name\0";
        let len = (size_of::<abi::InHeader>() + fixed.len() + payload.len()) as u32;
        let opcode = *opcode as u32;
        let head = abi::InHeader { len, opcode, unique: 2, nodeid: 1, ..Default::default() };
        [&[2], head.as_bytes(), &fixed, payload].concat()
    };
    Opcode::ALL.iter().map(request).collect()
}

/// What users write on the command line and in small files. The first line goes to the parsers of
/// one word, all lines to those of files.
fn given_words(data: &[u8]) {
    let line = data.split(|byte| *byte == b'\n').next().unwrap_or(data);
    let rest = data.get(line.len() + 1..).unwrap_or(&[]);
    if let Ok(text) = std::str::from_utf8(line) {
        let _ = extant::mkfs::MkfsOptions::new().features(text);
        let _ = extant::mkfs::MkfsOptions::of_type(text);
        let _ = extant::mkfs::MkfsOptions::new().label(text);
        let _ = extant::mkfs::MkfsOptions::new().last_mounted(text);
        let _ = extant::tune::Tune::default().features(text);
        let _ = extant_ondisk::features::FeatureBit::by_name(text);
        if let Ok(change) = ModeChange::parse(text) {
            assert!(change.apply(0o644, false) <= 0o7777 && change.apply(0o7777, true) <= 0o7777);
        }
    }
    let mut excludes = Excludes::new();
    if line.len() <= 4096 && excludes.add(line).is_ok() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(&rest[..rest.len().min(4096)]));
        let _ = (excludes.leave_out(path, true), excludes.leave_out(path, false));
    }
    let _ = Ownership::parse(data, Path::new("owners"));
}

fn words() -> Vec<Vec<u8>> {
    let words = [
        "metadata_csum,^has_journal,data_csum,bigalloc",
        "ext3",
        "u+rwX,go-w",
        "0755",
        "/usr/**/[a-z]*.s?\nusr/lib/deep/er/libx.so",
        "*a*a*a*a*a*b\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/aaaaaaaa",
        "!/etc/{a,b}/\netc/a",
        "/etc/shadow 0:42 0640\n/home/** user:group\n# words\n",
        "Straße und ÅNGSTRÖM",
        "각\u{345}\u{301}\u{200D}x",
        "user.attribute",
    ];
    words.map(|text| text.as_bytes().to_vec()).to_vec()
}
