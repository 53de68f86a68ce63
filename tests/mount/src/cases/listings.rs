//! Listings of directories: many names, changes meanwhile, seeks backwards.

use crate::calls::*;
use crate::script::Script;
use rustix::fs::{AtFlags, Dir, FileType, OFlags, fstat, unlinkat};
use std::collections::{BTreeMap, BTreeSet};

const MANY: usize = 10_000;

pub fn run(s: &mut Script) {
    kinds(s);
    many(s);
    places(s);
    back(s);
    meanwhile(s);
    emptied(s);
}

/// All names in the order of the listing. The answer says if a name is not listed exactly once.
fn names(dir: &mut Dir) -> Answer<Vec<String>> {
    let mut all = Vec::new();
    for entry in dir {
        all.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(all)
}

fn opened(path: &str) -> Dir {
    Dir::new(open(path, READ | OFlags::DIRECTORY).expect("just made")).expect("a directory")
}

fn kinds(s: &mut Script) {
    s.tell("list an empty one", mkdir("empty", 0o755).and_then(|()| list("empty")));
    s.tell("mkdir", mkdir("kinds", 0o755));
    s.tell("make", put("kinds/file", b"x"));
    s.tell("make", mkdir("kinds/dir", 0o755));
    s.tell("make", symlink("x", "kinds/symlink"));
    for (name, kind) in [
        ("fifo", FileType::Fifo),
        ("socket", FileType::Socket),
        ("char", FileType::CharacterDevice),
        ("block", FileType::BlockDevice),
    ] {
        s.tell("make", mknod(&format!("kinds/{name}"), kind, 0o644, 0));
    }
    s.tell("list", list("kinds"));
    let mut agree = true;
    for entry in opened("kinds") {
        let entry = entry.expect("a healthy device");
        let name = entry.file_name().to_string_lossy().into_owned();
        let ino = stat(&format!("kinds/{name}")).expect("it is listed").stx_ino;
        agree &= ino == entry.ino();
    }
    s.tell("numbers are those of stat", agree);
    s.tell(
        "list a file",
        open("kinds/file", READ).and_then(|file| Dir::new(file)?.next().transpose().map(|_| ())),
    );
}

fn many(s: &mut Script) {
    s.tell("mkdir", mkdir("many", 0o755));
    let made = (0..MANY)
        .filter(|n| create(&format!("many/name-{n:05}-{}", "x".repeat(n % 40)), 0o644).is_ok());
    s.tell("make", made.count());
    let all = names(&mut opened("many"));
    let unique: BTreeSet<&String> = all.iter().flatten().collect();
    s.tell("listed", all.as_ref().map(Vec::len).map_err(|error| *error));
    s.tell("each once", unique.len());
    s.tell("sum", unique.iter().flat_map(|name| name.bytes()).collect::<Vec<u8>>());
    s.tell("links and size", stat("many").map(|stat| stat.stx_nlink));
}

/// `telldir`, `seekdir`, `rewinddir`.
fn places(s: &mut Script) {
    let mut dir = opened("many");
    let mut after = BTreeMap::new();
    let mut order = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry.expect("a healthy device");
        order.push(entry.file_name().to_owned());
        after.insert(order.len(), entry.offset());
    }
    let unique: BTreeSet<&i64> = after.values().collect();
    s.tell("places are unique", unique.len() == order.len());
    let mut right = 0;
    for at in [1, 2, 3, 100, 5000, MANY / 2, MANY - 1, 77, MANY + 1] {
        dir.seek(after[&at]).expect("a place it gave");
        let next = dir.read().map(|entry| entry.expect("a healthy device").file_name().to_owned());
        right += usize::from(next.as_ref() == order.get(at));
    }
    s.tell("places found again", right);
    dir.seek(after[&order.len()]).expect("a place it gave");
    s.tell("the end found again", dir.read().is_none());
    // As an NFS server continues a listing, and as xfstests generic/676: at random, and in another
    // opening.
    let mut other = opened("many");
    let found = |dir: &mut Dir, at: usize| {
        dir.seek(after[&at]).expect("a place of the directory");
        let next = dir.read().map(|entry| entry.expect("a healthy device").file_name().to_owned());
        next.as_ref() == order.get(at)
    };
    let at = |n: usize| 1 + n * 7919 % order.len();
    s.tell("random places", (0..200).filter(|n| found(&mut dir, at(*n))).count());
    s.tell("those of another opening", (0..200).filter(|n| found(&mut other, at(*n))).count());
    dir.rewind();
    s.tell("from the start again", names(&mut dir).map(|names| names.len()));
    dir.rewind();
    s.tell("make meanwhile", put("many/zzz", b""));
    s.tell(
        "a new one is seen after rewind",
        names(&mut dir).map(|names| names.contains(&"zzz".into())),
    );
    // Positions stay valid when other names are removed.
    let mut dir = opened("many");
    for _ in 0..4000 {
        dir.read();
    }
    let place = dir.read().expect("there are more").expect("a healthy device").offset();
    let rest: Vec<String> = names(&mut dir).expect("a healthy device");
    for name in order.iter().skip(10).take(1000) {
        let name = name.to_str().expect("plain names");
        let _ = unlink(&*format!("many/{name}"));
    }
    let mut other = opened("many");
    other.seek(place).expect("a place");
    s.tell("after deletes before the place", names(&mut other).map(|names| names == rest));
    // Which names were removed depends on each side's order: none may remain.
    for name in &order {
        let _ = unlink(&*format!("many/{}", name.to_string_lossy()));
    }
    s.tell("unlink", unlink("many/zzz"));
    s.tell("rmdir", rmdir("many"));
}

/// A position of this opening stays valid whatever is added and removed: after it comes each name
/// that was there and stays.
fn back(s: &mut Script) {
    s.tell("mkdir", mkdir("back", 0o755));
    for n in 0..3000 {
        put(&format!("back/name-{n:04}"), b"").expect("room");
    }
    let mut dir = opened("back");
    let (mut order, mut places) = (Vec::new(), Vec::new());
    while let Some(entry) = dir.read() {
        let entry = entry.expect("a healthy device");
        order.push(entry.file_name().to_string_lossy().into_owned());
        places.push(entry.offset());
    }
    let mut there: BTreeSet<String> = order.iter().cloned().collect();
    let good = |dir: &mut Dir, at: usize, there: &BTreeSet<String>| {
        dir.seek(places[at]).expect("a place it gave");
        let mut names = names(dir).expect("a healthy device");
        names.retain(|name| !name.starts_with("more"));
        names.sort();
        let mut want = order[at + 1..].to_vec();
        want.retain(|name| there.contains(name));
        want.sort();
        names == want
    };
    let all = [2999, 2500, 1500, 999, 1000, 1, 0, 2000];
    let count = |dir: &mut Dir, there: &BTreeSet<String>| {
        all.iter().filter(|at| good(dir, **at, there)).count()
    };
    s.tell("places that are good", count(&mut dir, &there));
    for name in order.iter().skip(7).step_by(3).filter(|name| !name.starts_with('.')) {
        unlink(&*format!("back/{name}")).expect("it is there");
        there.remove(name);
    }
    s.tell("places that are good after deletes", count(&mut dir, &there));
    // Leaves are split, and names move.
    for n in 0..3000 {
        put(&format!("back/more-{n:04}-{}", "x".repeat(n % 60)), b"").expect("room");
    }
    s.tell("places that are good after more came", count(&mut dir, &there));
    for name in order.iter().skip(8).step_by(3).filter(|name| !name.starts_with('.')) {
        unlink(&*format!("back/{name}")).expect("it is there");
        there.remove(name);
    }
    // Positions of one pass among those of another.
    dir.seek(places[100]).expect("a place it gave");
    let some: Vec<_> = (0..500).filter_map(|_| dir.read()).collect();
    let last = some.last().expect("more").as_ref().expect("a healthy device");
    let rest = names(&mut dir).expect("a healthy device");
    s.tell("places that are good between", count(&mut dir, &there));
    dir.seek(last.offset()).expect("a place it gave");
    s.tell("place of a later pass", names(&mut dir).map(|names| names == rest));
    for name in names(&mut opened("back")).expect("a healthy device") {
        let _ = unlink(&*format!("back/{name}"));
    }
    s.tell("rmdir", rmdir("back"));
}

/// A name that stays is listed once, whatever is added and removed.
fn meanwhile(s: &mut Script) {
    s.tell("mkdir", mkdir("busy", 0o755));
    for n in 0..3000 {
        put(&format!("busy/stay{n}"), b"").expect("room");
        put(&format!("busy/go{n}"), b"").expect("room");
    }
    let mut dir = opened("busy");
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut n = 0;
    while let Some(entry) = dir.read() {
        let name = entry.expect("a healthy device").file_name().to_string_lossy().into_owned();
        *seen.entry(name).or_default() += 1;
        if n < 3000 {
            let _ = unlink(&*format!("busy/go{n}"));
            let _ = put(&format!("busy/come{n}"), b"");
        }
        n += 1;
    }
    let stayed = (0..3000).filter(|n| seen.get(&format!("stay{n}")) == Some(&1)).count();
    s.tell("what stays is listed once", stayed);
    s.tell("nothing twice", seen.values().all(|count| *count == 1));
    s.tell("after it", names(&mut opened("busy")).map(|names| names.len()));
}

/// `rm -r`: each name is removed as it is listed.
fn emptied(s: &mut Script) {
    let mut dir = opened("busy");
    let handle = open("busy", READ).expect("it is there");
    let mut gone = 0;
    while let Some(entry) = dir.read() {
        let entry = entry.expect("a healthy device");
        if !entry.file_name().to_bytes().starts_with(b".") {
            gone += usize::from(unlinkat(&handle, entry.file_name(), AtFlags::empty()).is_ok());
        }
    }
    s.tell("unlinked while listing", gone);
    s.tell("left", list("busy"));
    s.tell("rmdir", rmdir("busy"));
    s.tell("links of what is gone", fstat(&handle).map(|stat| stat.st_nlink));
    dir.rewind();
    s.tell("list what is gone", names(&mut dir).map(|names| names.len()));
}
