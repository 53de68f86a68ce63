//! Damaged blocks of which the journal still holds a copy: nothing is lost.

use crate::files;
use crate::repairs::repair;
use extant::{NewFile, OpenOptions, XattrMode};
use extant_repair::Class;
use extant_testkit::e2fsprogs::{debugfs, mke2fs};
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::process::Command;

const BLOCK: usize = 4096;
/// Blocks of the file with many extents, each after a hole of one block.
const PIECES: u64 = 700;

/// A volume on which everything was written through the journal.
fn written(img: &Path) -> extant::Result<()> {
    let fs = OpenOptions::new().write(true).open(img)?;
    fs.create_dir("/dir", &NewFile::directory())?;
    for n in 0..200 {
        let name = format!("/dir/a name that is long enough for several blocks {n:03}");
        fs.write(&name, format!("content of file {n}"))?;
    }
    let file = fs.create_file("/fragments", &NewFile::default())?.open()?;
    for n in 0..PIECES {
        file.write_at(&[b'x'; BLOCK], n * 2 * BLOCK as u64)?;
    }
    file.sync_all()?;
    fs.set_xattr("/fragments", "user.long", &[7; 3000], XattrMode::Any)?;
    drop(file);
    fs.close()
}

/// The numbers that stand before or after a word in what debugfs prints.
pub fn number_after(text: &str, word: &str) -> usize {
    let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("{word}: {text}"));
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{word}: {text}"))
}

/// Blocks of each kind of structure.
fn places(img: &Path) -> Vec<(&'static str, usize)> {
    let ask = |command: &str| debugfs(img, command).unwrap();
    let file = "/dir/a name that is long enough for several blocks 100";
    let table = number_after(&ask(&format!("imap \"{file}\"")), "located at block");
    let dir: Vec<usize> =
        ask("blocks /dir").split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let nodes = ask("stat /fragments");
    let node = number_after(&nodes, "(ETB0):");
    let attributes = number_after(&nodes, "File ACL:");
    vec![
        ("inode table", table),
        ("directory", dir[2]),
        ("extent node", node),
        ("attributes", attributes),
    ]
}

#[test]
fn what_the_journal_still_holds_comes_back_whole() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("img");
    mke2fs(&img, 64 << 20, "-b 4096 -I 256 -O metadata_csum,^dir_index", None).unwrap();
    written(&img).unwrap();
    let whole = std::fs::read(&img).unwrap();
    let wanted = files::all(&img);
    assert!(wanted.len() > 200);
    let places = places(&img);
    let mut cases: Vec<Vec<(&str, usize)>> = places.iter().map(|place| vec![*place]).collect();
    cases.push(places);
    for case in cases {
        let mut bytes = whole.clone();
        for (_, block) in &case {
            bytes[block * BLOCK..(block + 1) * BLOCK].fill(0);
        }
        std::fs::write(&img, &bytes).unwrap();
        let theirs = scratch.file("theirs");
        std::fs::write(&theirs, &bytes).unwrap();
        let report = repair(&img).unwrap();
        assert!(files::all(&img) == wanted, "{case:?}: {report:?}");
        assert!(report.counts().any(|(class, _)| class == Class::FromJournal), "{case:?}");
        assert!(!report.counts().any(|(class, _)| class.is_loss()), "{case:?}: {report:?}");
        Command::new("e2fsck").arg("-fy").arg(&theirs).output().unwrap();
        assert!(files::all(&theirs) != wanted, "{case:?}: e2fsck loses nothing");
    }
}
