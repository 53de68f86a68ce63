//! Each class of damage that e2fsck's passes detect, met while a volume is in use: the error names
//! what and where, the volume is marked, and everything else is unchanged.
//!
//! ```text
//!   volume ──debugfs writes one wrong value, with right checksums──► opened to write
//!     /victim, /dir, …   used in every way: the class, with an inode or a block
//!     /keep/**           read before and after: the same bytes
//!   closed ──► the superblock says ERROR ──► e2fsck repairs it, /keep is the same
//! ```

use extant::mkfs::{MkfsOptions, format};
use extant::{
    BlockSize, Environment, Error, FallocateMode, FileDevice, Filesystem, Ino, NewFile,
    OpenOptions, Site, Timestamp, What, XattrMode,
};
use extant_testkit::command::run;
use extant_testkit::e2fsprogs::{debugfs, debugfs_write, dumpe2fs, e2fsck};
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SHORT: Duration = Duration::from_secs(60);

/// Corrects the checksum of the damaged descriptor.
const SUMMED: &str = "set_bg 7 checksum calc";

/// The pass that would find it, the damage as requests to debugfs, and its name in the engine.
const CLASSES: &[(&str, &[&str], What)] = &[
    ("1 mode", &["set_inode_field /victim mode 0"], What::InodeMode),
    ("1 links", &["set_inode_field /victim links_count 0"], What::InodeUnlinked),
    ("1 extent magic", &["set_inode_field /victim block[0] 0"], What::ExtentMagic),
    ("1 extent length", &["set_inode_field /victim block[4] 0"], What::ExtentEmpty),
    ("1 extent outside", &["set_inode_field /victim block[5] 0xFFFFFF"], What::ExtentRange),
    ("1 extent on a table", &["set_inode_field /victim block[5] 3"], What::ExtentRange),
    ("1 attribute block", &["set_inode_field /victim file_acl 0xFFFFFF"], What::InodeFileAcl),
    ("1 attribute block on a table", &["set_inode_field /victim file_acl 3"], What::InodeFileAcl),
    ("1 symlink", &["set_inode_field /sym size 0"], What::SymlinkTarget),
    ("1 value inode", &["clri <VALUE>"], What::InodeMode),
    ("2 entry of a free inode", &["clri /victim"], What::InodeMode),
    ("2 directory size", &["set_inode_field /dir size 1000"], What::InodeSize),
    ("2 directory block", &["zap_block -f /dir -o 40 -l 8 -p 255 2"], What::DirectoryChecksum),
    ("2 index root", &["zap_block -f /dir -o 24 -l 16 -p 255 0"], What::HtreeRoot),
    ("5 block bitmap", &["freeb BLOCK 3"], What::BlockAlreadyFree),
    ("5 inode bitmap", &["freei /victim"], What::InodeAlreadyFree),
    ("0 orphan list", &["set_super_value last_orphan 0x00FFFFFF"], What::InodeNumber),
    ("1 quota file", &["zap_block -f <3> -o 0 -l 64 -p 255 0"], What::QuotaFile),
    ("0 descriptor's sum", &["set_bg 7 checksum 0x1234"], What::DescriptorChecksum),
    ("0 journal", &["zap_block -f <8> -o 0 -l 4 -p 255 0"], What::JournalMagic),
    ("0 journal's field", &["zap_block -f <8> -o 16 -l 4 -p 255 0"], What::JournalChecksum),
    ("0 orphan file", &["zap_block -f <ORPHANS> -o 0 -l 4 -p 255 0"], What::OrphanFileChecksum),
    ("1 attribute block's bytes", &["zap_block -o 40 -l 4 -p 255 ACL"], What::XattrChecksum),
    ("1 inline size", &["set_inode_field /small size 1000"], What::InodeSize),
    ("2 inline entry", &["set_inode_field /small block[2] 0xFFFFFFFF"], What::DirentLength),
    ("3 no parent", &["unlink /plain/.."], What::DirentDot),
    ("3 another parent", &["unlink /plain/..", "ln /dir /plain/.."], What::DirectoryParent),
    ("4 too few links", &["set_inode_field /two links_count 1"], What::InodeUnlinked),
    ("1 inline attribute", &["ea_rm /inline system.data"], What::InlineData),
    ("1 inline beyond any map", &["set_inode_field /inline size 9000000000000"], What::InodeSize),
    ("0 bitmap outside", &["set_bg 7 block_bitmap 0xFFFFFF", SUMMED], What::DescriptorBlock),
    ("0 inode bitmap outside", &["set_bg 7 inode_bitmap 65536", SUMMED], What::DescriptorBlock),
    ("0 bitmap on the superblock", &["set_bg 7 block_bitmap 1", SUMMED], What::DescriptorBlock),
    ("0 bitmap on a bitmap", &["set_bg 7 block_bitmap IBITMAP", SUMMED], What::DescriptorOverlap),
    ("0 bitmap in a table", &["set_bg 7 block_bitmap ITABLE", SUMMED], What::DescriptorOverlap),
    ("0 table over the end", &["set_bg 7 inode_table 65535", SUMMED], What::DescriptorBlock),
    ("0 journal's length", &["journal 0x10 0xFFFFFF"], What::JournalSuperblock),
    ("0 journal's first block", &["journal 0x14 0"], What::JournalSuperblock),
    ("0 journal's start", &["journal 0x1C 0xFFFFFF"], What::JournalSuperblock),
    ("0 journal's block size", &["journal 0x0C 4096"], What::JournalSuperblock),
    ("0 journal's sum", &["journal 0x50 2"], What::JournalSuperblock),
];

/// The same in each run.
fn environment() -> Environment {
    Environment::fixed(Timestamp { sec: 1_700_000_000, nsec: 0 }, 5)
}

/// A volume with every structure that is damaged, and the numbers that requests name.
fn new_volume(image: &Path) -> Vec<(&'static str, u64)> {
    let device = FileDevice::create(image, 64 << 20).expect("room");
    let options =
        MkfsOptions::new().features("ea_inode,quota,inline_data,orphan_file").expect("features");
    let options = options.block_size(BlockSize::from_bytes(1024).expect("a size"));
    format(Arc::new(device), &options, &environment()).expect("a volume");
    let mut options = OpenOptions::new();
    options.write(true).environment(environment());
    let fs = options.open(image).expect("it opens");
    let new = NewFile::default();
    for dir in ["/keep", "/keep/dir", "/dir", "/small", "/plain"] {
        fs.create_dir(dir, &NewFile::directory()).expect("a directory");
    }
    for path in ["/keep/file", "/keep/dir/file", "/victim", "/value", "/two"] {
        let file = fs.create_file(path, &new).expect("a file");
        file.open().and_then(|f| f.write_all_at(&[path.len() as u8; 9000], 0)).expect("bytes");
    }
    fs.write("/inline", b"short").expect("bytes");
    fs.create_file("/small/a", &new).expect("a file");
    fs.set_xattr("/victim", "user.block", &[7; 500], XattrMode::Any).expect("an attribute");
    fs.set_xattr("/value", "user.value", &[7; 3000], XattrMode::Any).expect("an attribute");
    fs.symlink("long/".repeat(40), "/sym", &new).expect("a symlink");
    for n in 0..60 {
        fs.hard_link("/keep/file", format!("/dir/{n:-<120}")).expect("a name");
    }
    let block = fs.open_file("/victim").and_then(|f| f.extents()).expect("extents")[0].block.0;
    for n in 0..4 {
        fs.hard_link("/two", format!("/plain/{n:-<120}")).expect("a name");
    }
    fs.hard_link("/two", "/small/two").expect("a name");
    let number = |path: &str| u64::from(fs.metadata(path).expect("known").ino().get());
    let (value, victim) = (number("/value") + 1, number("/victim"));
    let orphans = u64::from(fs.superblock().orphan_file_inum);
    fs.close().expect("it closes");
    let output = run(Command::new("debugfs").args(["-R", "stat /victim"]).arg(image), SHORT);
    let output = output.expect("debugfs runs").out();
    let acl = output.split("File ACL: ").nth(1).expect("it has a block of attributes");
    let acl = acl.split_whitespace().next().and_then(|nr| nr.parse().ok()).expect("a number");
    // Where group 0 has its own; group 7 must not share it.
    let output = dumpe2fs(image).expect("dumpe2fs runs");
    let place = |what: &str| {
        let place = output.split(what).nth(1).expect("dumpe2fs prints it");
        place.split(|c: char| !c.is_ascii_digit()).next().and_then(|nr| nr.parse().ok())
    };
    let ibitmap = place("Inode bitmap at ").expect("a number");
    let itable: u64 = place("Inode table at ").expect("a number");
    vec![
        ("IBITMAP", ibitmap),
        ("ITABLE", itable),
        ("VALUE", value),
        ("BLOCK", block),
        ("ORPHANS", orphans),
        ("VICTIM", victim),
        ("ACL", acl),
    ]
}

/// Applies a row in one run of debugfs, because debugfs may refuse to open the result. The fields
/// of the journal are written without it.
fn damage(image: &Path, requests: &[&str], numbers: &[(&'static str, u64)]) {
    if let Some(words) = requests[0].strip_prefix("journal ") {
        let number = |word: &str| match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).expect("a number"),
            None => word.parse().expect("a number"),
        };
        let (at, value) = words.split_once(' ').expect("a place and a value");
        return set_in_journal(image, number(at) as usize, number(value));
    }
    let number =
        |request: String, (name, number): &(&str, u64)| request.replace(name, &number.to_string());
    let lines = requests.iter().map(|request| numbers.iter().fold(request.to_string(), number));
    let script = image.with_extension("debugfs");
    std::fs::write(&script, lines.collect::<Vec<_>>().join("\n")).expect("a script");
    let done = run(Command::new("debugfs").arg("-wf").arg(&script).arg(image), SHORT);
    done.and_then(|done| done.success()).unwrap_or_else(|e| panic!("{requests:?}: {e}"));
}

/// Sets the big-endian word at `at` of the journal's superblock, and its checksum.
fn set_in_journal(image: &Path, at: usize, value: u32) {
    let output = debugfs(image, "bmap <8> 0").expect("debugfs runs");
    let block: usize = output.trim().parse().expect("a block");
    let mut bytes = std::fs::read(image).expect("the image");
    let superblock = &mut bytes[block * 1024..][..1024];
    superblock[at..at + 4].copy_from_slice(&value.to_be_bytes());
    superblock[0xFC..0x100].fill(0);
    let sum = extant_crc32c::crc32c(!0, superblock);
    superblock[0xFC..0x100].copy_from_slice(&sum.to_be_bytes());
    std::fs::write(image, bytes).expect("the image");
}

fn kept(fs: &Filesystem) -> Vec<Vec<u8>> {
    ["/keep/file", "/keep/dir/file"].map(|path| fs.read(path).expect("it stays")).to_vec()
}

/// Every operation that may meet the damage; most of them fail.
fn use_all(fs: &Filesystem) {
    for path in ["/victim", "/sym", "/value", "/dir"] {
        let _ = fs.metadata(path);
        let _ = fs.read(path);
        let _ = fs.read_link(path);
        let _ = fs.xattrs(path);
        let _ = fs.xattr(path, "user.value");
        let _ = fs.open_file(path).and_then(|file| file.write_all_at(&[9; 3000], 4000));
    }
    let _ = fs.read_dir("/dir").map(|all| all.filter(|entry| entry.is_err()).count());
    let _ = fs.create_file(format!("/dir/{:+<120}", "new"), &NewFile::default());
    let _ = fs.create_file("/small/new", &NewFile { uid: 77, ..NewFile::default() });
    let _ = fs.set_xattr("/victim", "user.block", &[8; 600], XattrMode::Any);
    for path in ["/inline", "/small", "/small/two"] {
        let _ = fs.read(path);
        let _ = fs.read_dir(path).map(|all| all.filter(|entry| entry.is_err()).count());
    }
    if fs.rename("/plain", "/small/plain").is_ok() {
        fs.rename("/small/plain", "/plain").expect("the way back");
    }
    assert!(fs.metadata("/plain").is_ok(), "what cannot move stays");
    let _ = fs.remove_file("/two");
    let _ = fs.remove_file("/small/two");
    let _ = fs.remove_file("/victim");
    let _ = fs.remove_file("/value");
    // Allocation tries every group.
    let fill = |file: extant::File| file.allocate(FallocateMode::Allocate, 0, 63 << 20);
    let _ = fs.create_file("/all", &NewFile::default()).and_then(|node| node.open()).and_then(fill);
}

#[test]
fn every_class_of_damage_is_named_marked_and_stays_where_it_is() {
    require!(E2fsprogs);
    let mut wrong = Vec::new();
    for (name, requests, what) in CLASSES {
        let scratch = Scratch::new();
        let image = scratch.file("img");
        let numbers = new_volume(&image);
        let whole = Filesystem::open(&image).expect("it is whole");
        let (before, victim) = (kept(&whole), whole.metadata("/victim").expect("known").ino());
        drop(whole);
        damage(&image, requests, &numbers);
        let met: Arc<Mutex<Vec<(What, Site)>>> = Arc::default();
        let mut options = OpenOptions::new();
        options.write(true).environment(environment()).on_error({
            let met = Arc::clone(&met);
            Arc::new(move |error| {
                if let Error::Corrupt { what, at } = error {
                    met.lock().unwrap().push((*what, *at));
                }
            })
        });
        match options.open(&image) {
            Ok(fs) => {
                use_all(&fs);
                assert!(kept(&fs) == before, "{name}: /keep changed");
                fs.close().unwrap_or_else(|e| panic!("{name}: close: {e}"));
                let state = std::fs::read(&image).expect("the image");
                // s_state, bit 1.
                if state[1024 + 0x3A] & 2 == 0 {
                    wrong.push(format!("{name}: the volume is not marked"));
                }
            }
            Err(Error::Corrupt { what, at }) => met.lock().unwrap().push((what, at)),
            Err(error) => panic!("{name}: {error}"),
        }
        let met = met.lock().unwrap();
        if !met.iter().any(|(found, _)| found == what) {
            let found: Vec<&str> = met.iter().map(|(found, _)| found.name()).collect();
            wrong.push(format!("{name}: met {found:?}"));
        }
        if name.starts_with('1')
            && requests[0].contains("/victim")
            && !met.iter().any(|(found, at)| found == what && at.ino == Some(victim))
        {
            wrong.push(format!("{name}: not said of inode {victim}: {met:?}"));
        }
        if met.iter().any(|(_, at)| *at == Site::NOWHERE) {
            wrong.push(format!("{name}: nowhere: {met:?}"));
        }
        // Once more for the quota files, whose count does not include what it repairs.
        for _ in 0..2 {
            let mend = run(Command::new("e2fsck").arg("-fy").arg(&image), SHORT);
            assert!(mend.is_ok_and(|done| !done.timed_out), "{name}");
        }
        if let Err(report) = e2fsck(&image, None).expect_clean() {
            wrong.push(format!("{name}: not mended: {report}"));
            continue;
        }
        let after = kept(&Filesystem::open(&image).expect("it is mended"));
        assert!(after == before, "{name}: /keep changed");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Nothing is below it any more; the caller gets the reason.
#[test]
fn a_root_that_is_no_directory_is_named() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("img");
    new_volume(&image);
    debugfs_write(&image, "set_inode_field <2> mode 0100644").expect("debugfs");
    let mut options = OpenOptions::new();
    let fs = options.write(true).environment(environment()).open(&image).expect("it opens");
    for error in [fs.metadata("/keep/file").err(), fs.create_dir("/d", &NewFile::directory()).err()]
    {
        let named = matches!(error, Some(Error::Corrupt { what: What::RootDirectory, at }) if at.ino == Ino::new(2));
        assert!(named, "{error:?}");
    }
    fs.close().expect("it closes");
    assert!(std::fs::read(&image).expect("the image")[1024 + 0x3A] & 2 != 0, "it is marked");
}
