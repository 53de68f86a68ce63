//! Each class of damage that e2fsck's passes know, met while a volume is in use: the error names what
//! and where, the volume is marked, and everything else stays as it was.
//!
//! ```text
//!   volume ──debugfs writes one wrong value, with right checksums──► opened to write
//!     /victim, /dir, …   used in every way: the class, with an inode or a block
//!     /keep/**           read before and after: the same bytes
//!   closed ──► the superblock says ERROR ──► e2fsck mends it, /keep is the same
//! ```

use extant::mkfs::{MkfsOptions, format};
use extant::{
    BlockSize, Environment, Error, FileDevice, Filesystem, NewFile, OpenOptions, Site, Timestamp,
    What, XattrMode,
};
use extant_testkit::command::run;
use extant_testkit::e2fsprogs::{debugfs_write, e2fsck};
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The pass that would find it, the damage as requests to debugfs, and how the engine names it.
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
];

/// The same run each time.
fn environment() -> Environment {
    Environment::fixed(Timestamp { sec: 1_700_000_000, nsec: 0 }, 5)
}

/// A volume with every structure that is damaged; the inode of a value, and a block of /victim.
fn new_volume(image: &Path) -> (u32, u64) {
    let device = FileDevice::create(image, 16 << 20).expect("room");
    let options = MkfsOptions::new().features("ea_inode,quota").expect("features");
    let options = options.block_size(BlockSize::from_bytes(1024).expect("a size"));
    format(Arc::new(device), &options, &environment()).expect("a volume");
    let mut options = OpenOptions::new();
    options.write(true).environment(environment());
    let fs = options.open(image).expect("it opens");
    let new = NewFile::default();
    for dir in ["/keep", "/keep/dir", "/dir", "/small"] {
        fs.create_dir(dir, &NewFile::directory()).expect("a directory");
    }
    for path in ["/keep/file", "/keep/dir/file", "/victim", "/value"] {
        let file = fs.create_file(path, &new).expect("a file");
        file.open().and_then(|f| f.write_all_at(0, &[path.len() as u8; 9000])).expect("bytes");
    }
    fs.set_xattr("/victim", "user.block", &[7; 500], XattrMode::Any).expect("an attribute");
    fs.set_xattr("/value", "user.value", &[7; 3000], XattrMode::Any).expect("an attribute");
    fs.symlink("long/".repeat(40), "/sym", &new).expect("a symlink");
    for n in 0..60 {
        fs.hard_link("/keep/file", format!("/dir/{n:-<120}")).expect("a name");
    }
    let block = fs.open_file("/victim").and_then(|f| f.extents()).expect("extents")[0].block.0;
    let value = fs.metadata("/value").expect("known").ino().get() + 1;
    fs.close().expect("it closes");
    (value, block)
}

fn kept(fs: &Filesystem) -> Vec<Vec<u8>> {
    ["/keep/file", "/keep/dir/file"].map(|path| fs.read(path).expect("it stays")).to_vec()
}

/// Everything that may meet the damage; most of it fails.
fn use_all(fs: &Filesystem) {
    for path in ["/victim", "/sym", "/value", "/dir"] {
        let _ = fs.metadata(path);
        let _ = fs.read(path);
        let _ = fs.read_link(path);
        let _ = fs.xattrs(path);
        let _ = fs.xattr(path, "user.value");
        let _ = fs.open_file(path).and_then(|file| file.write_all_at(4000, &[9; 3000]));
    }
    let _ = fs.read_dir("/dir").map(|all| all.filter(|entry| entry.is_err()).count());
    let _ = fs.create_file(format!("/dir/{:+<120}", "new"), &NewFile::default());
    let _ = fs.create_file("/small/new", &NewFile { uid: 77, ..NewFile::default() });
    let _ = fs.set_xattr("/victim", "user.block", &[8; 600], XattrMode::Any);
    let _ = fs.remove_file("/victim");
    let _ = fs.remove_file("/value");
}

#[test]
fn every_class_of_damage_is_named_marked_and_stays_where_it_is() {
    require!(E2fsprogs);
    let mut wrong = Vec::new();
    for (name, requests, what) in CLASSES {
        let scratch = Scratch::new();
        let image = scratch.file("img");
        let (value, block) = new_volume(&image);
        let whole = Filesystem::open(&image).expect("it is whole");
        let (before, victim) = (kept(&whole), whole.metadata("/victim").expect("known").ino());
        drop(whole);
        for request in *requests {
            let request = request.replace("VALUE", &value.to_string());
            let request = request.replace("BLOCK", &block.to_string());
            debugfs_write(&image, &request).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
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
        // Once more for the quota files, which it counts past what it mends.
        for _ in 0..2 {
            let mend = run(Command::new("e2fsck").arg("-fy").arg(&image), Duration::from_secs(60));
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
