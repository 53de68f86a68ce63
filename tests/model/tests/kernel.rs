//! The same random operations on this machine's own ext4: Linux answers what the tree in memory
//! answers, errno for errno.

use extant_model_tests::acl::{self, Acl};
use extant_model_tests::op::{FLAGS, Op, Place, Pools, SLOTS, Way, content, name, target};
use extant_model_tests::tree::{Id, Tree};
use extant_model_tests::{Answer, Outcome, Stat};
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::require;
use extant_testkit::rng::Rng;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, RenameFlags, Uid,
    XattrFlags, chmodat, chownat, fallocate, getxattr, ioctl_getflags, ioctl_setflags, linkat,
    mkdirat, mknodat, openat, readlinkat, removexattr, renameat_with, setxattr, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A mounted volume, and what the slots hold.
struct Kernel {
    root: PathBuf,
    slots: [Option<OwnedFd>; SLOTS],
}

/// A path to what a slot holds, with or without a name.
fn through(held: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", held.as_raw_fd())
}

fn letter(kind: FileType) -> char {
    match kind {
        FileType::Fifo => 'p',
        FileType::CharacterDevice => 'c',
        FileType::Directory => 'd',
        FileType::BlockDevice => 'b',
        FileType::Symlink => 'l',
        FileType::Socket => 's',
        _ => 'f',
    }
}

fn stat(dir: &OwnedFd, name: &str) -> Result<Answer, Errno> {
    let flags = match name {
        "" => AtFlags::EMPTY_PATH,
        _ => AtFlags::SYMLINK_NOFOLLOW,
    };
    let known = statat(dir, name, flags)?;
    let kind = letter(FileType::from_raw_mode(known.st_mode));
    let target = match kind {
        'l' => Some(readlinkat(dir, name, Vec::new())?.to_string_lossy().into_owned()),
        _ => None,
    };
    Ok(Answer::Stat(Stat {
        kind,
        mode: (known.st_mode & 0o7777) as u16,
        uid: known.st_uid,
        gid: known.st_gid,
        links: known.st_nlink as u32,
        target,
    }))
}

fn attribute(path: &str, name: &str) -> Result<Answer, Errno> {
    let mut value = [0; 256];
    Ok(Answer::Value(match getxattr(path, name, &mut value[..]) {
        Ok(len) => Some(value[..len].to_vec()),
        Err(Errno::NODATA) => None,
        Err(error) => return Err(error),
    }))
}

impl Kernel {
    fn dir(&self, tree: &Tree, dir: Id) -> Result<OwnedFd, Errno> {
        let path = format!("{}{}", self.root.display(), tree.path(dir));
        openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
    }

    fn at(&self, tree: &Tree, place: Place) -> Result<(OwnedFd, String), Errno> {
        let dir = tree.dir(place.dir);
        let name = match name(place.name, tree.pools) {
            // The parent of the root is outside the volume.
            name if name == ".." && dir == 0 => ".".to_string(),
            name => name,
        };
        Ok((self.dir(tree, dir)?, name))
    }

    /// Gives what was just created the owner and the mode of `after`.
    fn settle(&self, at: (&OwnedFd, &str), after: &Tree) -> Result<(), Errno> {
        let made = after.nodes.last().expect("something was made");
        let (uid, gid) = (Uid::from_raw(made.uid), Gid::from_raw(made.gid));
        chownat(at.0, at.1, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        if made.kind != 'l' {
            chmodat(at.0, at.1, Mode::from_raw_mode(made.mode.into()), AtFlags::empty())?;
        }
        Ok(())
    }

    fn apply(&mut self, op: Op, tree: &Tree, after: &Tree) -> Outcome {
        self.try_apply(op, tree, after).map_err(Errno::raw_os_error)
    }

    fn try_apply(&mut self, op: Op, tree: &Tree, after: &Tree) -> Result<Answer, Errno> {
        let (file, none) = (Mode::from_raw_mode(0o600), AtFlags::empty());
        match op {
            Op::Create { at, .. } => {
                let (dir, name) = self.at(tree, at)?;
                mknodat(&dir, &name, FileType::RegularFile, file, 0)?;
                self.settle((&dir, &name), after)?;
            }
            Op::Mkdir { at, .. } => {
                let (dir, name) = self.at(tree, at)?;
                mkdirat(&dir, &name, file)?;
                self.settle((&dir, &name), after)?;
            }
            Op::Symlink { at, target: n } => {
                let (dir, name) = self.at(tree, at)?;
                symlinkat(target(n), &dir, &name)?;
                self.settle((&dir, &name), after)?;
            }
            Op::Mknod { at, kind } => {
                let (dir, name) = self.at(tree, at)?;
                let kinds = [
                    FileType::Fifo,
                    FileType::Socket,
                    FileType::CharacterDevice,
                    FileType::BlockDevice,
                ];
                mknodat(&dir, &name, kinds[kind], file, rustix::fs::makedev(300, 5))?;
                self.settle((&dir, &name), after)?;
            }
            Op::Link { from, to } => {
                let (from, old) = self.at(tree, from)?;
                let (to, new) = self.at(tree, to)?;
                linkat(&from, old, &to, new, none)?;
            }
            Op::Unlink { at } => {
                let (dir, name) = self.at(tree, at)?;
                unlinkat(&dir, name, none)?;
            }
            Op::Rmdir { at } => {
                // Neither "." nor ".." is looked up before it is refused.
                let (dir, _) = self.at(tree, at)?;
                unlinkat(&dir, name(at.name, tree.pools), AtFlags::REMOVEDIR)?;
            }
            Op::Rename { from, to, way } => {
                let (from, old) = self.at(tree, from)?;
                let (to, new) = self.at(tree, to)?;
                let flags = match way {
                    Way::Replace => RenameFlags::empty(),
                    Way::NoReplace => RenameFlags::NOREPLACE,
                    Way::Exchange => RenameFlags::EXCHANGE,
                    Way::Whiteout => RenameFlags::WHITEOUT,
                };
                renameat_with(&from, &old, &to, new, flags)?;
                if way == Way::Whiteout && after.nodes.len() > tree.nodes.len() {
                    self.settle((&from, &old), after)?;
                }
            }
            Op::Stat { at } => {
                let (dir, name) = self.at(tree, at)?;
                return stat(&dir, &name);
            }
            Op::List { dir } => return self.list(tree, tree.dir(dir)),
            Op::Hold { slot, at } => {
                let (dir, name) = self.at(tree, at)?;
                let flags = OFlags::PATH | OFlags::NOFOLLOW;
                self.slots[slot] = Some(openat(&dir, name, flags, Mode::empty())?);
            }
            Op::Tmpfile { slot } => {
                let flags = OFlags::TMPFILE | OFlags::RDWR;
                let made = openat(CWD, &self.root, flags, file)?;
                self.settle_held(&made, after)?;
                self.slots[slot] = Some(made);
            }
            Op::LinkHeld { slot, to } => {
                if let Some(source) = &self.slots[slot] {
                    let (dir, name) = self.at(tree, to)?;
                    linkat(source, "", &dir, name, AtFlags::EMPTY_PATH)?;
                }
            }
            Op::CreateInHeld { slot, name: n } => {
                if let Some(dir) = &self.slots[slot] {
                    let name = name(n, tree.pools);
                    mknodat(dir, &name, FileType::RegularFile, file, 0)?;
                    self.settle((dir, &name), after)?;
                }
            }
            Op::StatHeld { slot } => {
                if let Some(held) = &self.slots[slot] {
                    return stat(held, "");
                }
            }
            Op::WriteHeld { slot, offset, len } => {
                if let Some(file) = self.file(slot, tree) {
                    file.write_all_at(&content(offset, len), offset.into()).expect("a write");
                }
            }
            Op::AppendHeld { slot, len } => {
                if let Some(file) = self.file(slot, tree) {
                    let end = file.metadata().expect("a file").len();
                    file.write_all_at(&content(0, len), end).expect("a write");
                }
            }
            Op::ResizeHeld { slot, size } => {
                if let Some(file) = self.file(slot, tree) {
                    file.set_len(size.into()).expect("a new size");
                }
            }
            Op::PunchHeld { slot, offset, len } => {
                if let Some(file) = self.file(slot, tree) {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    fallocate(&file, flags, offset.into(), len.into())?;
                }
            }
            Op::ReadHeld { slot } => {
                if let Some(mut file) = self.file(slot, tree) {
                    let mut bytes = Vec::new();
                    file.read_to_end(&mut bytes).expect("a file reads");
                    return Ok(Answer::Content(Arc::new(bytes)));
                }
            }
            Op::ChmodHeld { slot, mode } => {
                if let Some(held) = &self.slots[slot]
                    && tree.held(slot, 'l').is_none()
                {
                    rustix::fs::chmod(through(held), Mode::from_raw_mode(mode.into()))?;
                }
            }
            Op::XattrHeld { slot, len } => {
                if let Some(held) = &self.slots[slot] {
                    return self.set_attribute(held, tree.held(slot, 'l').is_some(), len);
                }
            }
            Op::DefaultAclHeld { slot, list } => {
                if let (Some(held), Some(_)) = (&self.slots[slot], tree.held(slot, 'd')) {
                    let (path, none) = (through(held), XattrFlags::empty());
                    match list.map(Acl::of_pool) {
                        Some(list) => setxattr(path, acl::DEFAULT, &list.bytes(), none)?,
                        None => removexattr(path, acl::DEFAULT)?,
                    }
                }
            }
            Op::ReadAclHeld { slot } => {
                if let Some(held) = &self.slots[slot]
                    && tree.held(slot, 'l').is_none()
                {
                    return attribute(&through(held), acl::ACCESS);
                }
            }
            Op::FlagHeld { slot, flag, on } => {
                if let Some(held) = self.flagged(slot, tree) {
                    let mut flags = ioctl_getflags(&held)?;
                    flags.set(IFlags::from_bits_retain(FLAGS[flag]), on);
                    ioctl_setflags(&held, flags)?;
                }
            }
            Op::ReadFlagsHeld { slot } => {
                if let Some(held) = self.flagged(slot, tree) {
                    let all = FLAGS.iter().fold(0, |all, flag| all | flag);
                    return Ok(Answer::Flags(ioctl_getflags(&held)?.bits() & all));
                }
            }
            // Linux changes the map of few files, and does not mount every volume with projects.
            Op::ExtentsHeld { .. } | Op::ProjectHeld { .. } => {}
            Op::LetGo { slot } => self.slots[slot] = None,
            Op::Reopen => self.slots = Default::default(),
        }
        Ok(Answer::Done)
    }

    /// The file or directory that a slot holds, open for reading.
    fn flagged(&self, slot: usize, tree: &Tree) -> Option<File> {
        tree.held(slot, 'f').or_else(|| tree.held(slot, 'd'))?;
        let held = self.slots[slot].as_ref()?;
        Some(File::open(through(held)).expect("what is held opens"))
    }

    /// The file that a slot holds, if it holds one, open for reading and writing.
    fn file(&self, slot: usize, tree: &Tree) -> Option<File> {
        tree.held(slot, 'f')?;
        let held = self.slots[slot].as_ref()?;
        let file = File::options().read(true).write(true).open(through(held));
        Some(file.expect("what is held opens"))
    }

    fn set_attribute(
        &self,
        held: &OwnedFd,
        symlink: bool,
        len: Option<u8>,
    ) -> Result<Answer, Errno> {
        if symlink {
            // The link to it would be followed.
            return Err(Errno::PERM);
        }
        let (path, name) = (through(held), "user.model");
        match len {
            Some(len) => setxattr(&path, name, &vec![len; len.into()], XattrFlags::empty())?,
            None => removexattr(&path, name)?,
        }
        attribute(&path, name)
    }

    fn settle_held(&self, made: &OwnedFd, after: &Tree) -> Result<(), Errno> {
        let node = after.nodes.last().expect("something was made");
        rustix::fs::fchown(made, Some(Uid::from_raw(node.uid)), Some(Gid::from_raw(node.gid)))
    }

    fn list(&self, tree: &Tree, dir: Id) -> Result<Answer, Errno> {
        let path = format!("{}{}", self.root.display(), tree.path(dir));
        let dir = openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
        let mut list = Vec::new();
        for entry in rustix::fs::Dir::new(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if !matches!(&*name, "." | "..") {
                list.push((name, letter(entry.file_type())));
            }
        }
        list.sort();
        Ok(Answer::List(list))
    }
}

fn run(options: &str, seed: u64, steps: usize) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let image = scratch.path().join("img");
    mke2fs(&image, 32 << 20, options, None).expect("mke2fs makes a volume");
    let mount = LoopMount::rw(&image, "").expect("a clean volume mounts");
    std::fs::remove_dir(mount.path().join("lost+found")).expect("lost+found goes");
    let pools = Pools { names: 40, long_percent: 0 };
    let mut kernel = Kernel { root: mount.path().to_path_buf(), slots: Default::default() };
    let mut tree = Tree::new(false, pools);
    let mut rng = Rng::new(seed);
    for step in 0..steps {
        let op = Op::random(&mut rng, pools, step * 100 / steps);
        let before = tree.clone();
        let wanted = tree.apply(op);
        let got = kernel.apply(op, &before, &tree);
        assert_eq!(wanted, got, "{options:?}, seed {seed}, step {step}: {op:?}: tree | Linux");
    }
    kernel.slots = Default::default();
    mount.unmount().expect("the volume unmounts");
}

#[test]
fn the_tree_answers_as_linux_does() {
    require!(Root, Loop, E2fsprogs);
    for seed in 1..4 {
        run("-b 4096", seed, 3000);
    }
    run("-t ext2 -b 1024 -I 128", 4, 3000);
}
