//! Damaged volumes: single fields, whole collections of volumes, and random damage.

use extant::check::{self, Options, Report};
use extant::{Error, FileOptions, MemoryDevice, What};
use extant_testkit::e2fsprogs::{debugfs, dumpe2fs, e2fsck, mke2fs};
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use extant_testkit::{damaged, require};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

fn check(img: &Path) -> Report {
    let device = FileOptions::new().open(img).unwrap();
    check::check_device(Arc::new(device), &Options::default(), &()).unwrap()
}

fn check_bytes(bytes: &[u8]) -> Result<Report, Error> {
    check::check_device(Arc::new(MemoryDevice::from_bytes(bytes)), &Options::default(), &())
}

/// A small volume with a few files: inode 12 is `dir`, the others are looked up by name.
fn volume(scratch: &Scratch, options: &str) -> PathBuf {
    let tree = scratch.file("tree");
    if !tree.exists() {
        std::fs::create_dir_all(tree.join("dir/sub")).unwrap();
        std::fs::create_dir(tree.join("many")).unwrap();
        std::fs::write(tree.join("file"), vec![1; 20_000]).unwrap();
        std::os::unix::fs::symlink("target", tree.join("dir/link")).unwrap();
        std::os::unix::fs::symlink("t".repeat(90), tree.join("dir/long")).unwrap();
        let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
        for n in 0..20 {
            std::os::unix::fs::FileExt::write_at(&sparse, b"data", n * 8192).unwrap();
        }
        for n in 0..40 {
            std::fs::write(tree.join(format!("many/name {n}")), b"").unwrap();
        }
    }
    let img = scratch.file("volume.img");
    mke2fs(&img, 8 << 20, options, Some(&tree)).unwrap();
    img
}

/// Damages a volume with debugfs, which keeps checksums right.
fn damage(img: &Path, requests: &str) {
    for request in requests.split(';') {
        let done = Command::new("debugfs").args(["-w", "-R", request.trim()]).arg(img).output();
        assert!(done.unwrap().status.success(), "{request}");
    }
}

fn has(report: &Report, what: What) -> bool {
    report.findings.iter().any(|finding| finding.what == what)
}

#[test]
fn each_damage_has_its_finding() {
    require!(E2fsprogs);
    let table: [(&str, What); 45] = [
        ("ssv free_blocks_count 7", What::FreeBlocksCount),
        ("ssv free_inodes_count 7", What::FreeInodesCount),
        ("ssv last_orphan 5000000", What::OrphanList),
        ("ssv usr_quota_inum 99", What::SuperblockFeatures),
        ("ssv feature_compat 0x80000018", What::SuperblockFeatures),
        ("ssv r_blocks_count 8000", What::SuperblockField),
        ("ssv log_groups_per_flex 37", What::SuperblockField),
        ("ssv inode_size 100", What::SuperblockInodeSize),
        ("ssv journal_inum 9", What::JournalInode),
        ("set_bg 0 free_blocks_count 3; set_bg 0 checksum calc", What::FreeBlocksCount),
        ("set_bg 0 free_inodes_count 3; set_bg 0 checksum calc", What::FreeInodesCount),
        ("set_bg 0 used_dirs_count 9; set_bg 0 checksum calc", What::UsedDirsCount),
        ("set_bg 0 itable_unused 6000; set_bg 0 checksum calc", What::DescriptorCount),
        ("set_bg 0 itable_unused 2030; set_bg 0 checksum calc", What::ItableUnused),
        ("set_bg 0 inode_bitmap 2; set_bg 0 checksum calc", What::DescriptorOverlap),
        ("set_bg 0 checksum 0x1234", What::DescriptorChecksum),
        ("set_bg 0 block_bitmap_csum 0x1234; set_bg 0 checksum calc", What::BitmapChecksum),
        ("sif /file links_count 5", What::LinkCount),
        ("sif /file mode 0", What::InodeMode),
        ("sif /file mode 0040755", What::DirentType),
        ("sif /file size 0", What::SizeBelowBlocks),
        ("sif /file blocks 4", What::InodeBlocks),
        ("sif /file dtime 5", What::DeletionTime),
        ("sif /file flags 0x10080000", What::InodeFlags),
        ("sif /file flags 0x40080000", What::InodeFlags),
        ("sif /file file_acl 9999999", What::InodeFileAcl),
        ("sif /file checksum 1", What::InodeChecksum),
        ("sif /file flags 0", What::MapBlockRange),
        ("sif /dir size 100", What::DirectorySize),
        ("sif /dir size 8192", What::InodeSize),
        ("sif /dir/link size 3", What::SymlinkTarget),
        ("sif /dir/long size 91", What::SymlinkTarget),
        ("sif <2> mode 0100644", What::RootDirectory),
        ("sif <6> mode 0100644", What::InodeReserved),
        ("sif <8> mode 0", What::JournalInode),
        ("sif <7> block[DIND] 0", What::ResizeInode),
        ("clri /file", What::DirentUnused),
        ("unlink /file", What::InodeUnattached),
        ("unlink /dir", What::DirectoryUnattached),
        ("link /file /dir/again", What::LinkCount),
        ("link /dir /dir2", What::DirentLink),
        ("link /file /many/name", What::LinkCount),
        ("freei /file", What::InodeNotMarked),
        ("seti <200>", What::InodeLeaked),
        ("setb 7000", What::BlockLeaked),
    ];
    let scratch = Scratch::new();
    let whole = volume(&scratch, "-b 1024");
    let report = check(&whole);
    assert!(report.clean, "{:#?}", report.findings);
    let copy = scratch.file("copy.img");
    let mut bad = Vec::new();
    for (requests, what) in table {
        std::fs::copy(&whole, &copy).unwrap();
        damage(&copy, requests);
        let report = check(&copy);
        if !has(&report, what) || report.clean || report.exit_code() == 0 {
            let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
            bad.push(format!("{requests}: wanted {}, found {found:#?}", what.name()));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// The number after `label` in the output of dumpe2fs or debugfs.
fn number_after(text: &str, label: &str) -> usize {
    let rest = text.split(label).nth(1).unwrap_or_else(|| panic!("no {label:?} in {text}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn first_block(img: &Path, path: &str) -> usize {
    let blocks = debugfs(img, &format!("blocks {path}")).unwrap();
    blocks.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_table_under_a_bitmap_is_read_even_so() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = volume(&scratch, "-b 1024 -N 512 -G 1");
    // The last block of the table of group 0, whose inodes are unused.
    let block = number_after(&debugfs(&img, "imap <512>").unwrap(), "located at block ");
    damage(&img, &format!("set_bg 0 block_bitmap {block}; set_bg 0 checksum calc"));
    let judged = e2fsck(&img, None).text;
    let report = check(&img);
    assert!(has(&report, What::DescriptorOverlap), "{:#?}", report.findings);
    // Otherwise each name of the group's files would lead to an unused inode.
    assert!(!judged.contains("deleted/unused"), "{judged}");
    assert!(!has(&report, What::DirentUnused), "{:#?}", report.findings);
}

#[test]
fn an_orphan_file_without_a_journal_is_found() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = volume(&scratch, "-b 1024 -O orphan_file");
    // This also removes the journal's inode, so that e2fsck finds nothing else except the blocks
    // that it had.
    damage(&img, "feature -has_journal; clri <8>; ssv journal_inum 0");
    let judged = e2fsck(&img, None).text;
    assert!(judged.contains("orphan file without journal"), "{judged}");
    let report = check(&img);
    let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
    assert!(
        found.iter().any(|text| text.contains("orphan_file without has_journal")),
        "{found:#?}"
    );
}

#[test]
fn one_flipped_bit_of_any_structure_breaks_its_checksum() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = volume(&scratch, "-b 1024");
    let text = dumpe2fs(&img).unwrap();
    let node = number_after(&debugfs(&img, "stat /sparse").unwrap(), "(ETB0):");
    let table = [
        // The superblock's write time.
        (1024 + 0x30, What::SuperblockChecksum),
        (number_after(&text, "Group descriptors at ") * 1024 + 0x34, What::DescriptorChecksum),
        (number_after(&text, "Block bitmap at ") * 1024 + 900, What::BitmapChecksum),
        (number_after(&text, "Inode bitmap at ") * 1024 + 200, What::BitmapChecksum),
        // The root's access time.
        (number_after(&text, "Inode table at ") * 1024 + 256 + 8, What::InodeChecksum),
        (node * 1024 + 700, What::ExtentChecksum),
        (first_block(&img, "/many") * 1024 + 990, What::DirectoryChecksum),
    ];
    let whole = std::fs::read(&img).unwrap();
    for (offset, what) in table {
        let mut bytes = whole.clone();
        bytes[offset] ^= 0x10;
        let report = check_bytes(&bytes).unwrap();
        assert!(has(&report, what), "{}: {:#?}", what.name(), report.findings);
    }
}

#[test]
fn a_block_of_two_files_names_both() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = volume(&scratch, "-b 1024 -O ^extent,^64bit");
    let block = first_block(&img, "/file");
    damage(&img, &format!("sif /sparse block[0] {block}"));
    let report = check(&img);
    let shared: Vec<_> =
        report.findings.iter().filter(|finding| finding.what == What::BlockShared).collect();
    assert_eq!(shared.len(), 2, "{:#?}", report.findings);
    assert!(shared.iter().all(|finding| finding.at.block.is_some_and(|b| b.0 == block as u64)));
    assert_ne!(shared[0].at.ino, shared[1].at.ino);
}

#[test]
fn a_bad_superblock_is_replaced_by_a_copy() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    mke2fs(&img, 32 << 20, "-b 1024", None).unwrap();
    let mut bytes = std::fs::read(&img).unwrap();
    bytes[1024..2048].fill(0);
    let report = check_bytes(&bytes).unwrap();
    assert!(report.ran && !report.clean);
    assert!(has(&report, What::SuperblockMagic));
    assert!(has(&report, What::FreeBlocksCount) || report.stats.inodes > 0);

    // Descriptors: the backups are right and are used.
    let mut bytes = std::fs::read(&img).unwrap();
    bytes[2048..3072].fill(0xA5);
    let report = check_bytes(&bytes).unwrap();
    assert!(has(&report, What::DescriptorChecksum) && report.stats.directories == 2);

    // No content at all.
    let report = check_bytes(&[0; 1 << 20]).unwrap();
    assert_eq!((report.ran, report.exit_code()), (false, 8));
    assert_eq!(check_bytes(&[]).unwrap().exit_code(), 8);
}

/// Damaged volumes that e2fsck 1.47.0 accepts, and why.
const DAMAGED_ALL_THE_SAME: [(&str, &str); 6] = [
    ("f_ea_inode_dir_ref", "a name leads to a value inode; later e2fsck finds it"),
    ("f_extent_too_deep", "deeper than Linux walks; e2fsck calls it an optimisation"),
    ("f_readonly_fsck", "a count is wrong; e2fsck says so and exits 0"),
    ("f_uninit_enable", "descriptor checksums are wrong; e2fsck says so and exits 0"),
    ("j_corrupt_revoke_rcount", "the log is damaged; e2fsck -n does not look at it"),
    ("j_recover_csum2_32bit", "the log brings home empty bitmaps; e2fsck -n does not replay it"),
];

#[test]
fn volumes_that_e2fsck_finds_damaged_are_found_damaged() {
    let Some(images) = damaged::images() else { return };
    let scratch = Scratch::new();
    let img = scratch.file("damaged.img");
    let mut bad = Vec::new();
    for image in images {
        image.unpack(&img).unwrap();
        let device = Arc::new(FileOptions::new().open(&img).unwrap());
        let exit = match check::check_device(device, &Options::default(), &()) {
            Ok(report) => report.exit_code(),
            Err(error) => {
                println!("{}: {error}", image.name);
                8
            }
        };
        let known = DAMAGED_ALL_THE_SAME.iter().any(|(name, _)| *name == image.name);
        let right = match image.e2fsck_exit {
            // e2fsck never ended.
            None => true,
            Some(_) => (exit != 0) == (image.has_errors() || known),
        };
        if !right {
            bad.push(format!(
                "{}: {exit}, e2fsck {:?}: {}",
                image.name, image.e2fsck_exit, image.first_finding
            ));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn random_damage_does_no_harm() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    for (n, options) in ["-b 1024", "-b 1024 -O ^metadata_csum", "-t ext2", "-O inline_data -I 512"]
        .into_iter()
        .enumerate()
    {
        let img = volume(&scratch, options);
        let whole = std::fs::read(&img).unwrap();
        // Only where the image has content, including zeros next to it, but not in large empty
        // areas.
        let live: Vec<usize> = (0..whole.len() / 64)
            .filter(|k| whole[k * 64..k * 64 + 64].iter().any(|byte| *byte != 0 && *byte != 0xFF))
            .collect();
        let mut rng = Rng::new(0x5eed + n as u64);
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..1 + rng.below(24) {
                let at = live[rng.below(live.len())] * 64 + rng.below(64);
                bytes[at] = match rng.below(4) {
                    0 => 0,
                    1 => 0xFF,
                    2 => bytes[at] ^ 1 << rng.below(8),
                    _ => rng.next_u64() as u8,
                };
            }
            if rng.below(10) == 0 {
                bytes.truncate(rng.below(bytes.len()));
            }
            if let Ok(report) = check_bytes(&bytes) {
                assert_eq!(report.clean, report.exit_code() == 0);
                assert!(report.findings.len() <= 10_000);
            }
        }
    }
}

/// An encryption context of this version; key and nonce are one byte repeated.
fn context(version: u8, key: u8, nonce: u8) -> Vec<u8> {
    let (head, key) = ([version, 1, 4, 2], [key; 16]);
    match version {
        1 => [&head[..], &key[..8], &[nonce; 16]].concat(),
        _ => [&head[..], &[0; 4], &key, &[nonce; 16]].concat(),
    }
}

/// debugfs has no name for the index of encryption contexts: it wrote them as "c" without a prefix.
fn name_contexts(img: &Path) {
    let mut bytes = std::fs::read(img).unwrap();
    for at in 0..bytes.len() - 17 {
        let word = |n: usize| u32::from_le_bytes(bytes[at + n..at + n + 4].try_into().unwrap());
        let is_entry = bytes[at..at + 2] == [1, 0] && bytes[at + 16] == b'c' && word(4) == 0;
        if is_entry && [1, 28, 30, 40].contains(&word(8)) {
            bytes[at + 1] = 9;
        }
    }
    std::fs::write(img, bytes).unwrap();
}

#[test]
fn a_tree_under_an_encryption_policy_has_the_findings_of_e2fsck() {
    require!(E2fsprogs);
    use What::{DirentEncryption, EncryptionContext, InodeEncryption};
    const NAME: &str = "a-name-of-20-letters";
    let scratch = Scratch::new();
    let mut contexts = vec![
        ("own", context(2, 7, 1)),
        ("same", context(2, 7, 9)),
        ("other", context(2, 8, 1)),
        ("old", context(1, 7, 1)),
        ("new", context(9, 7, 1)),
        ("short", context(2, 7, 1)[..30].to_vec()),
        ("byte", vec![77]),
        ("mode", context(2, 7, 1)),
        ("reserved", context(2, 7, 1)),
    ];
    contexts[7].1[1] = 99;
    contexts[8].1[5] = 1;
    for (name, bytes) in &contexts {
        std::fs::write(scratch.file(name), bytes).unwrap();
    }
    std::fs::write(scratch.file("data"), "data").unwrap();
    // The directory's context, its content, and the content's context.
    let table: [(&str, &str, &str, &[What]); 25] = [
        ("own", "file", "same", &[]),
        ("own", "dir", "same", &[]),
        ("own", "file", "other", &[DirentEncryption]),
        ("own", "dir", "other", &[DirentEncryption]),
        ("own", "file", "none", &[DirentEncryption]),
        ("own", "dir", "none", &[DirentEncryption]),
        ("own", "link", "none", &[DirentEncryption]),
        ("own", "fifo", "none", &[]),
        ("own", "file", "missing", &[DirentEncryption, InodeEncryption]),
        ("own", "file", "short", &[DirentEncryption, EncryptionContext]),
        ("own", "file", "byte", &[DirentEncryption]),
        ("own", "file", "mode", &[DirentEncryption]),
        ("own", "file", "reserved", &[DirentEncryption]),
        ("own", "file", "old", &[DirentEncryption]),
        ("own", "file", "new", &[DirentEncryption]),
        ("old", "file", "old", &[]),
        ("old", "file", "own", &[DirentEncryption]),
        ("new", "file", "new", &[]),
        ("new", "file", "byte", &[]),
        ("new", "file", "none", &[DirentEncryption]),
        ("missing", "file", "own", &[InodeEncryption]),
        ("missing", "file", "missing", &[InodeEncryption, InodeEncryption]),
        ("short", "file", "own", &[EncryptionContext]),
        ("short", "file", "none", &[EncryptionContext]),
        ("none", "file", "own", &[]),
    ];
    let mut bad = Vec::new();
    for (dir, kind, child, wanted) in table {
        let img = scratch.file("volume.img");
        mke2fs(&img, 2 << 20, "-b 1024 -I 256 -O encrypt,^metadata_csum", None).unwrap();
        let mut requests = vec!["mkdir d".to_owned(), "cd d".into()];
        let data = scratch.file("data");
        requests.push(match kind {
            "file" => format!("write {} {NAME}", data.display()),
            "dir" => format!("mkdir {NAME}"),
            "fifo" => format!("mknod {NAME} p"),
            _ => format!("symlink {NAME} {}", "t".repeat(34)),
        });
        let flags = if kind == "link" { "0x800" } else { "0x80800" };
        for (place, flags, context) in [("/d", "0x80800", dir), (NAME, flags, child)] {
            if context != "none" {
                requests.push(format!("sif {place} flags {flags}"));
            }
            if !["none", "missing"].contains(&context) {
                let file = scratch.file(context);
                requests.push(format!("ea_set -f {} {place} c", file.display()));
            }
        }
        let script = scratch.file("requests");
        std::fs::write(&script, requests.join("\n")).unwrap();
        let done = Command::new("debugfs").arg("-w").arg("-f").arg(&script).arg(&img).output();
        assert!(done.unwrap().status.success());
        name_contexts(&img);
        let verdict = e2fsck(&img, None);
        let report = check(&img);
        let found: Vec<What> = report.findings.iter().map(|finding| finding.what).collect();
        if found != wanted || verdict.clean() != wanted.is_empty() {
            bad.push(format!("{dir}, {kind}, {child}: {found:?}; {}", verdict.text));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn the_checksum_of_a_deleted_inode_counts() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = volume(&scratch, "-b 1024");
    let ino = number_after(&debugfs(&img, "stat /file").unwrap(), "Inode: ");
    damage(&img, "rm /file");
    assert!(check(&img).clean && e2fsck(&img, None).clean());
    damage(&img, &format!("sif <{ino}> checksum 1"));
    assert!(!e2fsck(&img, None).clean());
    let report = check(&img);
    let found: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    let wanted = format!("inode checksum does not match (ino {ino}, offset 124): of a freed inode");
    assert!(found.len() == 1 && found[0].ends_with(&wanted), "{found:?}");
}

#[test]
fn sizes_deletion_times_and_unused_fields_have_the_rules_of_e2fsck() {
    require!(E2fsprogs);
    const INLINE: &str = "-b 1024 -I 512 -O inline_data";
    let scratch = Scratch::new();
    let freed = {
        let img = volume(&scratch, "-b 1024");
        number_after(&debugfs(&img, "stat /file").unwrap(), "Inode: ")
    };
    // The map of /sparse ends with block 152 and has a leaf of its own.
    let table: [(&str, &str, Option<What>); 14] = [
        ("-b 1024", "sif /sparse size 155649", None),
        ("-b 1024", "sif /sparse size 155648", Some(What::SizeBelowBlocks)),
        ("-b 1024 -O verity", "sif /sparse size 155648; sif /sparse flags 0x180000", None),
        ("-b 1024", "sif /file size 19457", None),
        ("-b 1024", "sif /file size 19456", None),
        (INLINE, "sif /dir/long size 89", Some(What::InlineData)),
        (INLINE, "sif /dir/long size 91", Some(What::InlineData)),
        ("-b 1024", "rm /file; sif FREED dtime 12", Some(What::DeletionTime)),
        ("-b 1024 -N 2048", "rm /file; sif FREED dtime 2047", Some(What::DeletionTime)),
        ("-b 1024 -N 2048", "rm /file; sif FREED dtime 2048", None),
        ("-b 1024", "rm /file; sif FREED dtime 12; ssv mkfs_time 19700101000500", None),
        ("-b 1024", "feature lazy_bg", Some(What::SuperblockFeatures)),
        ("-b 1024 -O ^64bit", "ssv desc_size 2048", Some(What::SuperblockDescSize)),
        ("-b 1024 -O ^64bit", "ssv desc_size 16", None),
    ];
    let mut bad = Vec::new();
    for (options, requests, what) in table {
        let img = volume(&scratch, options);
        damage(&img, &requests.replace("FREED", &format!("<{freed}>")));
        let (judged, report) = (e2fsck(&img, None), check(&img));
        let found = what.is_none_or(|what| has(&report, what));
        if !found || report.clean != what.is_none() || judged.clean() != what.is_none() {
            bad.push(format!("{options}, {requests}: {:?}; {}", report.findings, judged.text));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_symlink_whose_map_has_a_block_of_its_own_is_damaged() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = volume(&scratch, "-b 1024 -O ^metadata_csum");
    let (target, leaf) = (u32::try_from(first_block(&img, "/dir/long")).unwrap(), 7000u32);
    let words = |all: &[u32]| all.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    // Magic and entries, room and depth, generation; then one extent.
    let node = words(&[0x0001_F30A, 84, 0, 0, 1, target]);
    let mut bytes = std::fs::read(&img).unwrap();
    bytes[leaf as usize * 1024..][..node.len()].copy_from_slice(&node);
    std::fs::write(&img, bytes).unwrap();
    let root = [0x0001_F30A, 0x0001_0004, 0, 0, leaf, 0];
    let set = |(n, word)| format!("sif /dir/long block[{n}] {word}");
    let mut requests: Vec<String> = (0..).zip(root).map(set).collect();
    requests.extend([format!("setb {leaf}"), "sif /dir/long blocks 4".into()]);
    damage(&img, &requests.join(";"));
    let judged = e2fsck(&img, None);
    assert!(judged.text.contains("Symlink /dir/long") && !judged.clean(), "{}", judged.text);
    let report = check(&img);
    assert!(has(&report, What::SymlinkTarget), "{:#?}", report.findings);
}
