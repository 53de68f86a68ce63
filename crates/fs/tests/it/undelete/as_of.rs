//! The tree as it was at a time.

use super::{KINDS, content_of, tree, write};
use extant::environment::Clock;
use extant::undelete::{AsOf, Options, PastFile, PastTree, State};
use extant::{Environment, Filesystem, Metadata, NewFile, OpenOptions, Timestamp};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The first time of the tests' clock, after all real times.
const START: i64 = 2_100_000_000;

/// A clock that the test sets.
#[derive(Default)]
pub(super) struct SetClock(AtomicI64);

impl SetClock {
    pub(super) fn set(&self, step: i64) {
        self.0.store(step * 100, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp { sec: START + self.0.load(Ordering::Relaxed), nsec: 7 }
    }
}

/// The time at the end of a step.
fn time(step: i64) -> u64 {
    (START + step * 100 + 99) as u64
}

pub(super) fn open(image: &Path, clock: &Arc<SetClock>) -> Filesystem {
    let clock = clock.clone();
    OpenOptions::new()
        .write(true)
        .commit_interval(None)
        .environment(Environment { clock, ..Environment::default() })
        .open(image)
        .unwrap()
}

/// Metadata and content of each file and directory below the root.
type Shown = BTreeMap<PathBuf, (Metadata, Option<Vec<u8>>)>;

fn shown(fs: &Filesystem) -> Shown {
    let mut shown = Shown::new();
    for entry in fs.walk("/").map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        let content = metadata.is_file().then(|| fs.read(entry.path()).unwrap());
        if entry.path() != Path::new("/") {
            shown.insert(entry.path().to_path_buf(), (metadata, content));
        }
    }
    shown
}

fn at(image: &Path, seconds: u64) -> PastTree {
    let before = std::fs::read(image).unwrap();
    let fs = Filesystem::open(image).unwrap();
    let AsOf::Tree(tree) = fs.files_as_of(seconds, &Options::default(), &()).unwrap() else {
        panic!("the log does not go back to {seconds}")
    };
    assert!(std::fs::read(image).unwrap() == before, "the search has written");
    tree
}

/// How many files of `want` the tree has whole and unchanged. Its names and metadata must be those
/// of `want`, and the content of these files, too.
fn compare(tree: &PastTree, want: &Shown, what: &str) -> usize {
    let files = tree.files();
    let mut found: Vec<&Path> =
        files.files().iter().flat_map(|file| file.paths()).map(PathBuf::as_path).collect();
    found.sort();
    assert_eq!(found, want.keys().map(PathBuf::as_path).collect::<Vec<_>>(), "{what}");
    assert_eq!(tree.incomplete(), [] as [PathBuf; 0], "{what}");
    let mut whole = 0;
    for file in files.files() {
        let path = file.path().unwrap();
        let (metadata, content) = &want[path];
        assert!(file.is_certain() && file.size_is_known(), "{what}: {}", path.display());
        let parts = |metadata: &Metadata| {
            let times = (metadata.modified(), metadata.changed());
            (metadata.len(), metadata.mode(), times, metadata.ino(), metadata.generation())
        };
        assert_eq!(parts(file.metadata()), parts(metadata), "{what}: {}", path.display());
        let Some(content) = content else { continue };
        if file.state() == State::Whole && !file.is_changed() {
            assert!(content_of(files, file) == *content, "{what}: {}", path.display());
            whole += 1;
        }
    }
    whole
}

#[test]
fn a_tree_is_shown_as_it_was_after_each_commit() {
    extant_testkit::require!(E2fsprogs);
    for kind in KINDS {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        mke2fs(&image, 64 << 20, kind, None).unwrap();
        let clock = Arc::new(SetClock::default());
        let fs = open(&image, &clock);
        let tree = tree(300);
        write(&fs, &tree);
        fs.hard_link("/old/dir 1/file 1", "/link").unwrap();
        fs.sync().unwrap();
        let first = shown(&fs);

        clock.set(1);
        fs.remove_dir_all("/old/dir 1").unwrap();
        fs.rename("/old/dir 2", "/moved").unwrap();
        fs.open_file("/old/dir 3/file 3").unwrap().write_at(b"changed", 0).unwrap();
        fs.create_dir("/new", &NewFile::directory()).unwrap();
        fs.write("/new/file", b"new").unwrap();
        fs.sync().unwrap();
        let second = shown(&fs);

        clock.set(2);
        fs.close().unwrap();
        let fs = open(&image, &clock);
        for path in ["/old", "/moved"] {
            fs.remove_dir_all(path).unwrap();
        }
        fs.sync().unwrap();
        clock.set(3);
        fs.remove_file("/link").unwrap();
        fs.write("/newest", b"newest").unwrap();
        let third = shown(&fs);
        fs.close().unwrap();
        e2fsck(&image, None).expect_clean().unwrap();

        let found = at(&image, time(0));
        assert_eq!(found.committed_at(), START as u64);
        // A small new file may get the place of one, and one was changed.
        let whole = compare(&found, &first, &format!("{kind}, first"));
        assert!(whole >= tree.len() - 4, "{kind}: {whole}");
        let files = found.files().files().iter().filter(|file| file.metadata().is_file());
        let changed: Vec<_> = files.filter(|file| file.is_changed()).map(PastFile::path).collect();
        assert_eq!(changed, [Some(Path::new("/old/dir 3/file 3"))], "{kind}");

        let found = at(&image, time(1));
        let whole = compare(&found, &second, &format!("{kind}, second"));
        assert!(whole >= second.values().filter(|(_, content)| content.is_some()).count() - 4);
        let found = at(&image, time(9));
        let whole = compare(&found, &third, &format!("{kind}, third"));
        assert_eq!(whole, 2, "{kind}");
        let files = found.files().files().iter();
        assert!(files.filter(|file| file.is_deleted() || file.is_changed()).count() == 0, "{kind}");
    }
}

#[test]
fn what_became_of_a_file_is_shown() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 16 << 20, "-t ext4", None).unwrap();
    let clock = Arc::new(SetClock::default());
    let fs = open(&image, &clock);
    for name in ["/deleted", "/changed", "/same"] {
        fs.write(name, vec![1; 9000]).unwrap();
    }
    fs.sync().unwrap();
    clock.set(1);
    fs.remove_file("/deleted").unwrap();
    fs.open_file("/changed").unwrap().write_at(b"newer", 0).unwrap();
    fs.close().unwrap();
    let tree = at(&image, time(0));
    let fate = |name: &str| {
        let file = super::find(tree.files(), name);
        assert_eq!(file.state(), State::Whole, "{name}");
        (file.is_deleted(), file.is_changed(), file.deleted_at().is_some())
    };
    assert_eq!(fate("/deleted"), (true, false, true));
    assert_eq!(fate("/changed"), (false, true, false));
    assert_eq!(fate("/same"), (false, false, false));
}

#[test]
fn a_log_that_does_not_go_back_says_since_when_it_does() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 32 << 20, "-t ext4 -b 1024 -J size=1", None).unwrap();
    let fs = Filesystem::open(&image).unwrap();
    let none = fs.files_as_of(time(0), &Options::default(), &()).unwrap();
    assert!(matches!(none, AsOf::TooEarly { since: None }), "{none:?}");
    drop(fs);
    let clock = Arc::new(SetClock::default());
    let fs = open(&image, &clock);
    fs.create_dir("/dir", &NewFile::directory()).unwrap();
    for n in 0..40 {
        fs.write(format!("/dir/{n}"), b"content").unwrap();
    }
    fs.create_dir("/busy", &NewFile::directory()).unwrap();
    fs.sync().unwrap();
    // The log forgets the directory. New inodes in blocks of their own.
    for n in 0..200 {
        fs.write(format!("/busy/{n}"), b"").unwrap();
    }
    for step in 1..600 {
        clock.set(step);
        let mode = 0o600 + (step % 8) as u16;
        super::set_mode(&fs, "/busy/150", mode);
        fs.sync().unwrap();
    }
    let second = shown(&fs);
    clock.set(600);
    fs.remove_file("/dir/20").unwrap();
    fs.close().unwrap();

    let fs = Filesystem::open(&image).unwrap();
    let early = fs.files_as_of(time(0), &Options::default(), &()).unwrap();
    let AsOf::TooEarly { since: Some(since) } = early else { panic!("{early:?}") };
    assert!(since > time(100) && since < time(599), "{since}");
    assert!(matches!(
        fs.files_as_of(since, &Options::default(), &()).unwrap(),
        AsOf::Tree(tree) if tree.committed_at() == since
    ));
    // The only copies of the directory's block and of its inodes have the file deleted.
    let tree = at(&image, time(599));
    assert_eq!(tree.incomplete(), [PathBuf::from("/dir")]);
    let files = tree.files().files();
    assert_eq!(files.len(), second.len() - 1, "the removed name is not known");
    // The others were not changed since, as their times show.
    let uncertain: Vec<_> = files.iter().filter(|file| !file.is_certain()).collect();
    assert_eq!(uncertain.len(), 1, "{uncertain:?}");
    assert_eq!(uncertain[0].path(), Some(Path::new("/dir")));
}

#[test]
fn a_tree_of_linux_is_shown_as_it_was() {
    extant_testkit::require!(Root, Loop, E2fsprogs);
    for kind in [KINDS[0], KINDS[3]] {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        mke2fs(&image, 64 << 20, kind, None).unwrap();
        let tree = tree(300);
        let mount = LoopMount::rw(&image, "").unwrap();
        for (path, content) in &tree {
            let path = mount.path().join(path.strip_prefix("/").unwrap());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        rustix::fs::syncfs(std::fs::File::open(mount.path()).unwrap()).unwrap();
        let then = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        std::thread::sleep(Duration::from_millis(1100));
        std::fs::remove_dir_all(mount.path().join("old")).unwrap();
        mount.unmount().unwrap();
        let found = at(&image, then);
        assert_eq!(found.incomplete(), [] as [PathBuf; 0], "{kind}");
        for (path, content) in &tree {
            let file = super::find(found.files(), path.to_str().unwrap());
            assert_eq!((file.state(), file.is_deleted()), (State::Whole, true), "{kind}");
            assert!(file.is_certain() && !file.is_changed(), "{kind}");
            assert!(content_of(found.files(), file) == *content, "{kind}");
        }
    }
}
