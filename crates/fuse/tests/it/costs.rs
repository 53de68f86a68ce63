//! How many requests the calls of programs take on a mounted volume.

use crate::rig::Rig;
use extant::mkfs::{MkfsOptions, format};
use extant::{Environment, Filesystem, MemoryDevice, OpenOptions};
use extant_fuse::abi::Opcode;
use extant_fuse::{MountOptions, Volume, VolumeOptions};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::sync::Arc;

pub(crate) fn mounted() -> Option<Rig<Volume>> {
    mounted_with(|_| ())
}

/// A mount of a volume with the files that `prepare` makes, which the kernel does not know yet.
pub(crate) fn mounted_with(prepare: impl FnOnce(&Filesystem)) -> Option<Rig<Volume>> {
    if !extant_testkit::judge::require(&[extant_testkit::judge::Judge::Fuse]) {
        return None;
    }
    let device = Arc::new(MemoryDevice::new(64 << 20));
    format(device.clone(), &MkfsOptions::new(), &Environment::default()).unwrap();
    let mut options = OpenOptions::new();
    options.write(true).page_cache_bytes(16 << 20);
    let fs = options.open_device(device).unwrap();
    prepare(&fs);
    Rig::with(Volume::new(fs, VolumeOptions::default()).unwrap(), MountOptions::default())
}

/// Requests that a program waits for during `call`: all but FORGET, RELEASE and RELEASEDIR.
pub(crate) fn waits(rig: &Rig<Volume>, call: impl FnOnce()) -> Vec<(&'static str, u64)> {
    const OTHERS: [Opcode; 4] =
        [Opcode::Forget, Opcode::BatchForget, Opcode::Release, Opcode::Releasedir];
    let count = || rig.session().requests().by_name();
    let before = count();
    call();
    let old = |name| before.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    let new = count().into_iter().map(|(name, n)| (name, n - old(name)));
    new.filter(|(name, n)| *n > 0 && OTHERS.iter().all(|o| o.name() != *name)).collect()
}

#[test]
fn calls_take_no_more_requests_than_they_must() {
    let Some(rig) = mounted() else { return };
    let dir = rig.path("dir");
    let at = |name: &str| dir.join(name);
    fs::create_dir(&dir).unwrap();
    File::create(at("first")).unwrap();
    fs::metadata(&dir).unwrap();
    let at_most = |most: u64, what: &str, call: &mut dyn FnMut()| {
        let made = waits(&rig, call);
        assert!(made.iter().map(|(_, n)| n).sum::<u64>() <= most, "{what}: {made:?}");
    };

    // LOOKUP, CREATE, and FLUSH at its end, which makes a sync find the closed file.
    at_most(3, "create", &mut || drop(File::create(at("new")).unwrap()));
    // The directory's attributes changed, and the file's time of creation was never asked for.
    at_most(2, "first stat", &mut || assert!(fs::metadata(at("new")).is_ok()));
    at_most(0, "second stat", &mut || assert!(fs::metadata(at("new")).is_ok()));
    let mut file = Some(File::options().append(true).open(at("new")).unwrap());
    let mut write = |len: usize| file.as_mut().unwrap().write_all(&vec![7; len]).unwrap();
    // The kernel asks for capabilities once.
    at_most(2, "first append", &mut || write(4096));
    at_most(1, "second append", &mut || write(4096));
    at_most(1, "append of 1 MiB", &mut || write(1 << 20));
    at_most(1, "fsync", &mut || file.as_ref().unwrap().sync_all().unwrap());
    at_most(1, "close", &mut || drop(file.take()));
    let mut all = Vec::new();
    // OPEN, and the attributes that the writes changed: the content is in the kernel's cache.
    at_most(2, "read", &mut || {
        File::open(at("new")).unwrap().read_to_end(&mut all).unwrap();
    });
    assert_eq!(all.len(), (1 << 20) + 8192);
    at_most(1, "unlink", &mut || fs::remove_file(at("new")).unwrap());
    // LOOKUP, and the directory's attributes.
    at_most(2, "absent", &mut || assert!(fs::metadata(at("absent")).is_err()));
    at_most(0, "absent again", &mut || assert!(fs::metadata(at("absent")).is_err()));
    for n in 0..1000 {
        File::create(at(&format!("name {n:04}"))).unwrap();
    }
    let list = || assert_eq!(fs::read_dir(&dir).unwrap().count(), 1001);
    // OPENDIR, the directory's attributes, and replies of 32 KiB, the first one with attributes.
    at_most(5, "list", &mut || list());
    // OPENDIR, and the directory's attributes, which the listing has changed.
    at_most(2, "list again", &mut || list());
    at_most(1, "list once more", &mut || list());
    rig.end();
}
