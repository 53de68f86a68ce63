//! One run: a volume of some kind, a seed, a number of steps; then all judges.
//!
//! ```text
//!   EXTANT_SEED=7   another seed for every run of the suite
//!   a failure prints kind, seed and step, and the last operations before it
//! ```

use crate::acl::{self, Acl};
use crate::engine::{Engine, Memory, attribute, flags, letter, list, read};
use crate::op::{Op, Pools};
use crate::tree::{Id, Tree};
use extant::check::{Options, check_device};
use extant::mkfs::{MkfsOptions, format};
use extant::{Environment, FileDevice, Filesystem, InodeFlags, Node, Timestamp};
use extant_testkit::e2fsprogs;
use extant_testkit::rng::Rng;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// A kind of volume to run on.
pub struct Kind {
    /// Its name in messages.
    pub name: &'static str,
    /// How to make it: by extant, or by mke2fs.
    pub make: Make,
    /// Its size.
    pub mib: u64,
    /// Whether its directories fold case.
    pub folds: bool,
    /// The names to use.
    pub pools: Pools,
    /// Whether files belong to projects.
    pub projects: bool,
    /// How much it may keep in memory.
    pub memory: Memory,
}

/// What makes a volume.
pub enum Make {
    /// This project.
    Extant(Box<MkfsOptions>),
    /// mke2fs, with these options.
    Mke2fs(&'static str),
}

/// The seed of the suite.
fn seed() -> u64 {
    std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Runs `steps` operations on a volume of `kind`, and judges.
///
/// # Panics
/// When anything differs.
pub fn run(kind: &Kind, steps: usize) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let image = scratch.path().join("img");
    make(kind, &image);
    let mut engine = Engine::open(&image, kind.memory).expect("a fresh volume opens");
    let mut tree = Tree::new(kind.folds, kind.pools);
    tree.projects = kind.projects;
    // mkfs made it; it is removed before trees are compared.
    engine.fs().remove_dir("lost+found").expect("lost+found goes");
    let mut rng = Rng::new(seed());
    let mut log: Vec<Op> = Vec::new();
    for step in 0..steps {
        let op = Op::random(&mut rng, kind.pools, step * 100 / steps);
        log.push(op);
        let before = tree.clone();
        let (wanted, got) = (tree.apply(op), engine.apply(op, &before));
        if wanted != got {
            let last = &log[log.len().saturating_sub(12)..];
            panic!(
                "{}, seed {}, step {step}: {op:?}\n  wanted {wanted:?}\n  got    {got:?}\n{last:#?}",
                kind.name,
                seed()
            );
        }
    }
    compare(engine.fs(), &tree, kind.name);
    engine.close().expect("the volume closes");
    judge(kind.name, &image);
    let again = Filesystem::open(&image).expect("the volume opens to read");
    compare(&again, &tree, kind.name);
}

fn make(kind: &Kind, image: &Path) {
    match &kind.make {
        Make::Extant(options) => {
            let device = FileDevice::create(image, kind.mib << 20).expect("room for a volume");
            let now = Timestamp { sec: 1_700_000_000, nsec: 0 };
            format(Arc::new(device), options, &Environment::fixed(now, 3)).expect("a volume");
        }
        Make::Mke2fs(words) => {
            e2fsprogs::mke2fs(image, kind.mib << 20, words, None).expect("mke2fs makes a volume");
        }
    }
    if kind.folds {
        // The flag of the root, which all directories below inherit.
        e2fsprogs::debugfs_write(image, "set_inode_field / flags 0x40080000").expect("debugfs");
    }
}

/// Panics if a judge finds an error.
fn judge(name: &str, image: &Path) {
    let device = Arc::new(FileDevice::open(image).expect("the volume opens"));
    let options = Options { data: true, ..Options::default() };
    let report = check_device(device, &options, &()).expect("a check");
    assert!(report.clean, "{name}, seed {}: {:?}", seed(), report.findings);
    let copy = image.with_extension("copy");
    std::fs::copy(image, &copy).expect("the image is copied");
    e2fsprogs::clear_data_csum(&copy).expect("the copy's superblock is mended");
    let image = &copy;
    if let Err(report) = e2fsprogs::e2fsck(image, None).expect_clean() {
        if let Some(keep) = std::env::var_os("EXTANT_KEEP") {
            std::fs::copy(image, keep).expect("the image can be kept");
        }
        panic!("{name}, seed {}: {report}", seed());
    }
}

/// Panics unless the volume contains exactly the tree.
fn compare(fs: &Filesystem, tree: &Tree, name: &str) {
    let mut seen: HashMap<Id, u32> = HashMap::new();
    let mut stack = vec![(0, fs.root().expect("a root"))];
    while let Some((id, node)) = stack.pop() {
        let known = node.metadata();
        assert_eq!(known.nlink(), tree.nodes[id].links, "{name}: links of {}", tree.path(id));
        assert_eq!(known.flags().contains(InodeFlags::CASEFOLD), tree.folds, "{name}");
        assert_eq!(list(&node).expect("a directory lists"), tree.list(id), "{name}");
        for (stored, below) in tree.nodes[id].names.values() {
            let found: Node = node.lookup(stored).expect("a name that is listed is found");
            let wanted = &tree.nodes[*below];
            let known = found.metadata();
            assert_eq!(letter(known.file_type()), wanted.kind, "{name}: {stored}");
            assert_eq!(known.nlink(), wanted.links, "{name}: {stored}");
            assert_eq!(known.permissions(), wanted.mode, "{name}: {stored}");
            assert_eq!((known.uid(), known.gid()), (wanted.uid, wanted.gid), "{name}: {stored}");
            assert_eq!(flags(&found), wanted.flags, "{name}: flags of {stored}");
            assert_eq!(known.project(), wanted.project, "{name}: project of {stored}");
            let lists = [wanted.acl, wanted.default_acl].map(|list| list.map(Acl::bytes));
            let attributes = ["user.model", acl::ACCESS, acl::DEFAULT];
            for (of, value) in attributes.iter().zip([&wanted.xattr, &lists[0], &lists[1]]) {
                let found = attribute(&found, of).expect("attributes");
                assert_eq!(found, *value, "{name}: {of} of {stored}");
            }
            if wanted.kind == 'f' {
                let bytes = found.open().and_then(|file| read(&file)).expect("a file reads");
                assert!(bytes == *wanted.content, "{name}: bytes of {stored}");
            }
            // Names of one file lead to one inode.
            let ino = found.ino().get();
            assert_eq!(*seen.entry(*below).or_insert(ino), ino, "{name}: {stored}");
            if wanted.kind == 'd' {
                stack.push((*below, found));
            }
        }
    }
}
