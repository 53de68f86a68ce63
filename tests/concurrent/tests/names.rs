//! Storms of operations on names.

use extant::{Error, FileKind, NewFile, Node, RenameFlags};
use extant_concurrent_tests::{Field, kinds, names};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

const THREADS: usize = 6;

/// Names that one thread owns in a directory, and how many links each file has.
struct Keeper<'a> {
    dir: &'a Node,
    prefix: String,
    rng: Rng,
    /// From name to number of file.
    names: BTreeMap<String, usize>,
    files: usize,
}

impl Keeper<'_> {
    fn new(dir: &Node, prefix: String, seed: u64) -> Keeper<'_> {
        Keeper { dir, prefix, rng: Rng::new(seed), names: BTreeMap::new(), files: 0 }
    }

    /// One operation, whose answer follows from what this thread did before.
    fn step(&mut self) {
        let name = |keeper: &mut Self| format!("{}-{:-<60}", keeper.prefix, keeper.rng.below(60));
        let (a, b) = (name(self), name(self));
        let (at_a, at_b) = (self.names.get(&a).copied(), self.names.get(&b).copied());
        match self.rng.below(10) {
            0..=3 => match self.dir.create_file(&a, &NewFile::default()) {
                Ok(_) => {
                    assert_eq!(at_a, None);
                    self.names.insert(a, self.files);
                    self.files += 1;
                }
                Err(error) => assert!(matches!(error, Error::Exists) && at_a.is_some(), "{error}"),
            },
            4..=5 => match self.dir.remove_file(&a) {
                Ok(()) => assert!(self.names.remove(&a).is_some()),
                Err(error) => {
                    assert!(matches!(error, Error::NotFound) && at_a.is_none(), "{error}")
                }
            },
            6..=7 => match self.dir.rename(&a, self.dir, &b, RenameFlags::REPLACE) {
                Ok(()) if at_a == at_b => assert!(at_a.is_some()),
                Ok(()) => {
                    let file = self.names.remove(&a).expect("it was there");
                    self.names.insert(b, file);
                }
                Err(error) => {
                    assert!(matches!(error, Error::NotFound) && at_a.is_none(), "{error}")
                }
            },
            8 => {
                let Some(file) = at_a else { return };
                let node = self.dir.lookup(&a).expect("a name that is there is found");
                match self.dir.hard_link(&node, &b) {
                    Ok(()) => assert_eq!(self.names.insert(b, file), None),
                    Err(error) => assert!(matches!(error, Error::Exists) && at_b.is_some()),
                }
            }
            _ => {
                let Some(file) = at_a else { return };
                let links = self.names.values().filter(|other| **other == file).count();
                let node = self.dir.lookup(&a).expect("a name that is there is found");
                assert_eq!(node.metadata().nlink() as usize, links);
            }
        }
    }
}

#[test]
fn each_thread_finds_its_names_as_it_left_them() {
    require!(E2fsprogs);
    for kind in kinds() {
        let name = kind.name;
        for shared in [false, true] {
            eprintln!("{name}, shared {shared}");
            let field = Field::new(&kind);
            let root = field.fs.root().unwrap();
            let dirs: Vec<Node> = (0..THREADS)
                .map(|n| match (shared, n) {
                    (true, 1..) => root.lookup("dir0").unwrap(),
                    _ => root.create_dir(format!("dir{n}"), &NewFile::directory()).unwrap(),
                })
                .collect();
            let left = std::sync::Mutex::new(BTreeMap::new());
            field.storm(THREADS, |thread| {
                let mut keeper =
                    Keeper::new(&dirs[thread], format!("t{thread}"), thread as u64 + 100);
                (0..500).for_each(|_| keeper.step());
                left.lock().unwrap().insert(thread, keeper.names);
            });
            for (thread, left) in left.into_inner().unwrap() {
                let there = names(&dirs[thread]);
                let own: BTreeSet<_> = there
                    .iter()
                    .filter(|n| n.starts_with(&format!("t{thread}-")))
                    .cloned()
                    .collect();
                assert_eq!(own, left.keys().cloned().collect(), "{name}: thread {thread}");
            }
            drop((dirs, root));
            field.judge(name);
        }
    }
}

#[test]
fn directories_moved_into_each_other_make_no_loop() {
    require!(E2fsprogs);
    for kind in kinds() {
        let name = kind.name;
        eprintln!("{name}");
        let field = Field::new(&kind);
        let root = field.fs.root().unwrap();
        let dirs: Vec<Node> = (0..12)
            .map(|n| root.create_dir(format!("d{n}"), &NewFile::directory()).unwrap())
            .collect();
        let moved = AtomicUsize::new(0);
        field.storm(THREADS, |thread| {
            let mut rng = Rng::new(thread as u64);
            for _ in 0..300 {
                // Any directory, wherever it may be, into any other.
                let (what, from, to) = (rng.below(12), rng.below(13), rng.below(13));
                let place = |n: usize| dirs.get(n).unwrap_or(&root);
                let name = format!("d{what}");
                let flags = match rng.below(4) {
                    0 => RenameFlags::EXCHANGE,
                    _ => RenameFlags::REPLACE,
                };
                let to_name =
                    if flags.exchange { format!("d{}", rng.below(12)) } else { name.clone() };
                match place(from).rename(&name, place(to), to_name, flags) {
                    Ok(()) => moved.fetch_add(1, Ordering::Relaxed),
                    Err(Error::NotFound | Error::Invalid(_) | Error::NotEmpty | Error::Exists) => 0,
                    Err(error) => panic!("{error}"),
                };
            }
        });
        assert!(moved.into_inner() > 0);
        let mut found = HashSet::new();
        for entry in field.fs.walk("/") {
            let entry = entry.unwrap();
            if entry.file_type() == FileKind::Directory {
                assert!(found.insert(entry.ino()), "{name}: {}", entry.path().display());
            }
        }
        // All of them, the root and lost+found.
        assert_eq!(found.len(), 14, "{name}");
        drop((dirs, root));
        field.judge(name);
    }
}

#[test]
fn of_many_threads_that_want_one_name_one_gets_it() {
    require!(E2fsprogs);
    for kind in kinds() {
        let name = kind.name;
        eprintln!("{name}");
        let field = Field::new(&kind);
        let (root, rounds) = (field.fs.root().unwrap(), 40);
        let (made, gone, moved) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let count = |counter: &AtomicUsize, done: Result<(), Error>| match done {
            Ok(()) => {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Exists | Error::NotFound) => {}
            Err(error) => panic!("{error}"),
        };
        let new = NewFile::default();
        field.storm(THREADS, |_| {
            for n in 0..rounds {
                count(&made, root.create_file(format!("f{n}"), &new).map(drop));
            }
        });
        field.storm(THREADS, |_| {
            for n in 0..rounds {
                let flags = RenameFlags::NOREPLACE;
                count(&moved, root.rename(format!("f{n}"), &root, format!("g{n}"), flags));
            }
        });
        field.storm(THREADS, |_| {
            for n in 0..rounds {
                count(&gone, root.remove_file(format!("g{n}")));
            }
        });
        assert_eq!(
            [&made, &moved, &gone].map(|n| n.load(Ordering::Relaxed)),
            [rounds; 3],
            "{name}"
        );
        assert_eq!(names(&root).len(), 1);
        drop(root);
        field.judge(name);
    }
}

#[test]
fn what_is_held_stays_while_others_take_its_names() {
    require!(E2fsprogs);
    for kind in kinds() {
        let name = kind.name;
        eprintln!("{name}");
        let field = Field::new(&kind);
        let free = field.fs.space().free_inodes;
        let root = field.fs.root().unwrap();
        field.storm(THREADS, |thread| {
            let mut rng = Rng::new(thread as u64);
            let mut held: Vec<(Node, u32)> = Vec::new();
            for _ in 0..300 {
                let name = format!("f{}", rng.below(5));
                match rng.below(5) {
                    0 => match root.create_file(&name, &NewFile { uid: 9, ..NewFile::default() }) {
                        Ok(node) => held.push((node.clone(), node.metadata().generation())),
                        Err(error) => assert!(matches!(error, Error::Exists), "{error}"),
                    },
                    1 => match root.lookup(&name) {
                        Ok(node) => held.push((node.clone(), node.metadata().generation())),
                        Err(error) => assert!(matches!(error, Error::NotFound), "{error}"),
                    },
                    2 => match root.remove_file(&name) {
                        Ok(()) | Err(Error::NotFound) => {}
                        Err(error) => panic!("{error}"),
                    },
                    3 => held.push({
                        let node = root.tmpfile(&NewFile { uid: 9, ..NewFile::default() }).unwrap();
                        (node.clone(), node.metadata().generation())
                    }),
                    _ if held.is_empty() => {}
                    _ => {
                        let (node, generation) = held.swap_remove(rng.below(held.len()));
                        let known = node.metadata();
                        // Still the same inode; no other thread's file has its number.
                        assert_eq!((known.uid(), known.generation()), (9, generation));
                    }
                }
            }
        });
        for name in names(&root) {
            if name.starts_with('f') {
                root.remove_file(name).unwrap();
            }
        }
        assert_eq!(field.fs.space().free_inodes, free, "{name}");
        drop(root);
        field.judge(name);
    }
}
