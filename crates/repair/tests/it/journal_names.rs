//! Names that are lost at home and that the journal still holds: no file ends in lost+found.

use crate::files::{self, Entry};
use crate::journal_copies::number_after;
use crate::repairs::repair;
use extant::{NewFile, OpenOptions};
use extant_repair::{Class, Report};
use extant_testkit::e2fsprogs::{debugfs, debugfs_write, mke2fs};
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const BLOCK: usize = 4096;
type Files = BTreeMap<PathBuf, Entry>;

/// Files in two directories, one below the other, and one file with a name in each.
fn written(img: &Path) -> extant::Result<()> {
    let fs = OpenOptions::new().write(true).open(img)?;
    fs.create_dir("/dir", &NewFile::directory())?;
    fs.create_dir("/dir/below", &NewFile::directory())?;
    for n in 0..100 {
        let name = format!("a name that is long enough for several blocks {n:03}");
        fs.write(format!("/dir/{name}"), format!("content {n}"))?;
        fs.write(format!("/dir/below/{name}"), format!("content below {n}"))?;
    }
    fs.write("/dir/empty", b"")?;
    fs.hard_link("/dir/below/a name that is long enough for several blocks 007", "/dir/link")?;
    fs.close()
}

/// Repairs a volume, of which e2fsck loses names.
fn repaired(scratch: &Scratch, img: &Path, wanted: &Files) -> Report {
    let theirs = scratch.file("theirs");
    std::fs::copy(img, &theirs).unwrap();
    let report = repair(img).unwrap();
    let kept = files::all(img);
    assert_eq!(files::missing(wanted, &kept), [""; 0], "{report:?}");
    assert_eq!(kept.len(), wanted.len(), "{report:?}");
    let reconnected = report.counts().any(|(class, _)| class == Class::Reconnected);
    assert!(!reconnected, "{report:?}");
    assert!(report.counts().any(|(class, _)| class == Class::NameRestored), "{report:?}");
    Command::new("e2fsck").arg("-fy").arg(&theirs).output().unwrap();
    assert!(!files::missing(wanted, &files::all(&theirs)).is_empty(), "e2fsck loses nothing");
    report
}

fn blocks_of(img: &Path, dir: &str) -> Vec<usize> {
    let text = debugfs(img, &format!("blocks {dir}")).unwrap();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn zero(img: &Path, blocks: &[usize]) {
    let mut bytes = std::fs::read(img).unwrap();
    blocks.iter().for_each(|block| bytes[block * BLOCK..(block + 1) * BLOCK].fill(0));
    std::fs::write(img, bytes).unwrap();
}

#[test]
fn blocks_without_checksums_get_their_names_from_the_journal() {
    require!(E2fsprogs);
    for features in ["^metadata_csum,^dir_index", "^metadata_csum,dir_index", "^has_journal"] {
        let scratch = Scratch::new();
        let img = scratch.file("img");
        mke2fs(&img, 64 << 20, &format!("-b 4096 -t ext4 -O {features}"), None).unwrap();
        if features == "^has_journal" {
            // Nothing is known of the names.
            written(&img).unwrap();
            zero(&img, &blocks_of(&img, "/dir"));
            repair(&img).unwrap();
            continue;
        }
        written(&img).unwrap();
        let wanted = files::all(&img);
        assert!(wanted.len() > 200);
        zero(&img, &blocks_of(&img, "/dir"));
        let report = repaired(&scratch, &img, &wanted);
        let (_, file) =
            report.files().find(|(_, file)| file.path == Some(b"/dir/below".to_vec())).unwrap();
        assert_eq!(file.state(), "uncertain");
    }
}

#[test]
fn a_name_that_was_taken_away_past_the_journal_comes_back() {
    require!(E2fsprogs);
    for features in ["metadata_csum", "^metadata_csum"] {
        let scratch = Scratch::new();
        let img = scratch.file("img");
        mke2fs(&img, 64 << 20, &format!("-b 4096 -t ext4 -O {features}"), None).unwrap();
        written(&img).unwrap();
        let wanted = files::all(&img);
        for name in
            ["/dir/below", "/dir", "/dir/below/a name that is long enough for several blocks 050"]
        {
            debugfs_write(&img, &format!("unlink \"{name}\"")).unwrap();
        }
        repaired(&scratch, &img, &wanted);
    }
}

#[test]
fn the_root_directory_gets_its_names_from_the_journal() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("img");
    mke2fs(&img, 64 << 20, "-b 4096 -t ext4", None).unwrap();
    written(&img).unwrap();
    let wanted = files::all(&img);
    // No copy of the inode: the tail of the first table block is not what the log has.
    let table = debugfs(&img, "imap <2>").unwrap();
    let block = number_after(&table, "located at block");
    let inode = block * BLOCK + 256;
    let mut bytes = std::fs::read(&img).unwrap();
    let before = bytes[inode..inode + 256].to_vec();
    for at in (0..bytes.len()).step_by(BLOCK) {
        if bytes[at + 256..at + 512] == before {
            bytes[at + 256..at + 512].fill(0);
        }
    }
    std::fs::write(&img, bytes).unwrap();
    repaired(&scratch, &img, &wanted);
}

#[test]
fn the_last_of_several_names_comes_back() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("img");
    mke2fs(&img, 64 << 20, "-b 4096 -t ext4", None).unwrap();
    let fs = OpenOptions::new().write(true).open(&img).unwrap();
    for dir in ["/one", "/two"] {
        fs.create_dir(dir, &NewFile::directory()).unwrap();
    }
    fs.write("/one/deleted", b"deleted").unwrap();
    fs.sync().unwrap();
    fs.remove_file("/one/deleted").unwrap();
    fs.sync().unwrap();
    // It gets the number of the deleted file, and then another name in another directory.
    fs.write("/one/first", b"content").unwrap();
    fs.sync().unwrap();
    fs.rename("/one/first", "/two/last").unwrap();
    fs.close().unwrap();
    let wanted = files::all(&img);
    debugfs_write(&img, "unlink /two/last").unwrap();
    repaired(&scratch, &img, &wanted);
}

#[test]
fn a_name_that_only_fast_commits_have_comes_back() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let (open, img) = (scratch.file("open"), scratch.file("img"));
    mke2fs(&open, 32 << 20, "-b 4096 -t ext4 -O fast_commit", None).unwrap();
    let fs = OpenOptions::new().write(true).commit_interval(None).open(&open).unwrap();
    fs.write("/old", b"content").unwrap();
    fs.write("/other", b"other").unwrap();
    fs.sync().unwrap();
    let other = fs.open_file("/other").unwrap();
    other.append(b"more").unwrap();
    other.sync_all().unwrap();
    fs.rename("/old", "/new").unwrap();
    fs.open_file("/new").unwrap().sync_all().unwrap();
    assert_eq!(fs.stats().journal.unwrap().fast_commits, 2);
    // The power goes.
    std::fs::copy(&open, &img).unwrap();
    drop(other);
    drop(fs);
    repair(&img).unwrap();
    let wanted = files::all(&img);
    assert!(wanted.contains_key(Path::new("/new")));
    // Linux replays past the log, so that it has no copy with the name.
    let home = blocks_of(&img, "/")[0];
    let bytes = std::fs::read(&img).unwrap();
    let is_copy = |block: &usize| bytes[block * BLOCK..].starts_with(b"\x02\0\0\0\x0C\0\x01\x02.");
    let copies: Vec<usize> = (0..bytes.len() / BLOCK).filter(is_copy).collect();
    assert!(copies.len() > 1 && copies.contains(&home));
    zero(&img, &copies.into_iter().filter(|block| *block != home).collect::<Vec<_>>());
    debugfs_write(&img, "unlink /new").unwrap();
    repaired(&scratch, &img, &wanted);
}
