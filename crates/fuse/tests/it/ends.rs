//! How mounts end: by request, by other processes, with files open, without their server, and with
//! a filesystem that panics.

use crate::rig::Rig;
use extant_fuse::abi;
use extant_fuse::dispatch::Dispatch;
use extant_fuse::negotiate::Agreed;
use extant_fuse::request::Message;
use extant_fuse::{
    Answer, Attributes, Caller, Entry, HandleId, Log, MountError, MountOptions, NodeId, Operations,
    Session, SetAttr, Settings, Statistics, Transport,
};
use extant_nullfs::Null;
use extant_testkit::loop_mount::LoopDevice;
use extant_testkit::require;
use extant_testkit::scratch::{Scratch, make_sparse};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zerocopy::IntoBytes;

const BOTH: [Transport; 2] = [Transport::Dev, Transport::Best];

/// Unmounts as another program would. Retries, because programs that other tests start may hold
/// files open between fork and exec.
fn unmount_outside(dir: &Path) {
    for _ in 0..100 {
        match unmount(dir, UnmountFlags::empty()) {
            Err(Errno::BUSY) => std::thread::sleep(Duration::from_millis(50)),
            done => return done.unwrap(),
        }
    }
    panic!("{} stays busy", dir.display());
}

fn mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == dir.to_str())
}

/// A root and nothing else. `lookup` panics. Counts calls of `destroy`.
#[derive(Default)]
struct Bare {
    syncs: AtomicUsize,
    ends: AtomicUsize,
    forgets: AtomicUsize,
}

impl Operations for Bare {
    fn settings(&self) -> Settings {
        Null::default().settings()
    }

    fn lookup(&self, _: &Caller, _: NodeId, name: &OsStr) -> Answer<Entry> {
        panic!("{name:?} was looked up");
    }

    fn forget(&self, _: NodeId, _: u64) {
        self.forgets.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.ends.load(Ordering::SeqCst), 0, "it ended meanwhile");
        self.forgets.fetch_add(1, Ordering::SeqCst);
    }

    fn get_attributes(
        &self,
        _: &Caller,
        _: NodeId,
        _: Option<HandleId>,
    ) -> Answer<(Attributes, Duration)> {
        let root = Attributes { ino: 1, mode: 0o040_755, nlink: 2, ..Default::default() };
        Ok((root, Duration::ZERO))
    }

    fn set_attributes(
        &self,
        _: &Caller,
        _: NodeId,
        _: Option<HandleId>,
        _: &SetAttr,
    ) -> Answer<(Attributes, Duration)> {
        Err(Errno::ROFS)
    }

    fn sync_all(&self) -> Answer<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn statistics(&self) -> Answer<Statistics> {
        Ok(Statistics::default())
    }

    fn destroy(&self) {
        std::thread::sleep(Duration::from_millis(300));
        self.ends.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn unmounting_from_outside_ends_the_wait() {
    require!(Fuse);
    for transport in BOTH {
        let options = MountOptions { transport, ..Default::default() };
        let Some(mut rig) = Rig::with(Bare::default(), options) else { continue };
        let session = rig.take_session();
        let waiting = std::thread::spawn(move || session.wait());
        unmount_outside(rig.root());
        waiting.join().unwrap();
        assert_eq!(rig.operations.ends.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn an_unmounter_ends_it_and_takes_no_other_mount_away() {
    require!(Fuse);
    let mut first = Rig::new(Transport::Dev).unwrap();
    let unmounter = first.session().unmounter();
    let options = MountOptions { transport: Transport::Dev, ..Default::default() };
    // Mounted on top of the first mount. An unmount of the first must not remove it.
    let second =
        Session::mount(Arc::new(Null::default()), "other", first.root(), &options).unwrap();
    assert!(matches!(unmounter.unmount(), Err(MountError::NotMounted(_))));
    drop(second);
    let session = first.take_session();
    let again = unmounter.clone();
    let waiting = std::thread::spawn(move || session.wait());
    again.unmount().unwrap();
    waiting.join().unwrap();
    assert!(matches!(unmounter.unmount(), Err(MountError::NotMounted(_))));
}

#[test]
fn a_busy_mount_stays_until_it_is_free() {
    require!(Fuse);
    for transport in BOTH {
        let Some(mut rig) = Rig::new(transport) else { continue };
        fs::write(rig.path("a"), "still").unwrap();
        let mut open = fs::File::open(rig.path("a")).unwrap();
        let session = rig.take_session();
        let Err((session, MountError::Busy(_))) = session.unmount() else { panic!("not busy") };
        session.unmounter().detach().unwrap();
        assert!(!mounted(rig.root()));
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "still");
        let waiting = std::thread::spawn(move || session.wait());
        drop(open);
        waiting.join().unwrap();
    }
}

#[test]
fn dropping_a_session_unmounts() {
    require!(Fuse);
    let mut rig = Rig::new(Transport::Dev).unwrap();
    assert!(mounted(rig.root()));
    drop(rig.take_session());
    assert!(!mounted(rig.root()));
}

/// A mounted root, and the log messages of its server.
fn with_messages(dir: &Path, transport: Transport) -> (Session, Arc<Mutex<Vec<String>>>) {
    let messages = Arc::new(Mutex::new(Vec::new()));
    let log = {
        let messages = Arc::clone(&messages);
        Arc::new(move |text: &str| messages.lock().unwrap().push(text.to_owned()))
    };
    let bare = Arc::new(Bare::default());
    let options = MountOptions { transport, ..Default::default() };
    (Session::mount_logged(bare, "bare", dir, &options, log).unwrap(), messages)
}

#[test]
fn the_end_waits_for_what_is_being_let_go_of() {
    let bare = Arc::new(Bare::default());
    let offer = abi::InitIn { major: abi::MAJOR, minor: abi::MINOR, ..Default::default() };
    let agreed = Agreed::negotiate(&offer, &bare.settings()).unwrap();
    let log: Log = Arc::new(|text| println!("{text}"));
    let dispatch = Dispatch::new(Arc::clone(&bare) as Arc<dyn Operations>, agreed, log);
    let opcode = abi::Opcode::Forget as u32;
    let head = abi::InHeader { len: 48, opcode, nodeid: 5, ..Default::default() };
    let request = [head.as_bytes(), &1u64.to_ne_bytes()].concat();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let message = Message::whole(&request, &dispatch.agreed().limits()).unwrap();
            dispatch.answer(&message, &mut []);
        });
        while bare.forgets.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        dispatch.destroy();
        assert_eq!(bare.forgets.load(Ordering::SeqCst), 2);
    });
}

#[test]
fn an_abort_is_logged_and_an_unmount_is_not() {
    require!(Root, Fuse);
    for transport in BOTH {
        let dir = tempfile::TempDir::new().unwrap();
        let (session, messages) = with_messages(dir.path(), transport);
        let root = fs::File::open(dir.path()).unwrap();
        assert_eq!(unmount(dir.path(), UnmountFlags::FORCE), Err(Errno::BUSY));
        session.wait();
        assert!(mounted(dir.path()));
        let expected =
            format!("{}: the connection was aborted, and not unmounted", dir.path().display());
        assert_eq!(*messages.lock().unwrap(), [expected]);
        drop(root);
        unmount_outside(dir.path());

        let (session, messages) = with_messages(dir.path(), transport);
        unmount_outside(dir.path());
        session.wait();
        assert!(messages.lock().unwrap().is_empty());
    }
}

#[test]
fn a_panic_of_the_filesystem_is_an_io_error_and_logged() {
    require!(Fuse);
    let dir = tempfile::TempDir::new().unwrap();
    let (session, messages) = with_messages(dir.path(), Transport::Dev);
    for name in ["one", "two"] {
        assert_eq!(rustix::fs::stat(dir.path().join(name)).err(), Some(Errno::IO));
    }
    drop(session);
    let messages = messages.lock().unwrap();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert!(
        messages[0].contains("Lookup of node 1 panicked: \"one\" was looked up"),
        "{messages:?}"
    );
}

#[test]
fn a_disk_mount_passes_sync_on_and_waits_for_the_end() {
    require!(Fuse, Loop);
    let scratch = Scratch::new();
    let image = scratch.file("disk");
    make_sparse(&image, 1 << 20).unwrap();
    let device = LoopDevice::attach(&image).unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let bare = Arc::new(Bare::default());
    let options =
        MountOptions { block_device: Some(4096), transport: Transport::Dev, ..Default::default() };
    let session = Session::mount(Arc::clone(&bare), device.path(), dir.path(), &options).unwrap();
    let root = fs::File::open(dir.path()).unwrap();
    rustix::fs::syncfs(&root).unwrap();
    assert!(bare.syncs.load(Ordering::SeqCst) > 0);
    drop(root);
    unmount_outside(dir.path());
    // The unmount itself waited for `destroy`.
    assert_eq!(bare.ends.load(Ordering::SeqCst), 1);
    session.wait();
    assert_eq!(bare.ends.load(Ordering::SeqCst), 1);
}

#[test]
fn places_that_are_none_are_refused() {
    require!(Fuse);
    let options = MountOptions::default();
    let error = Session::mount(Arc::new(Null::default()), "null", "/no/such/place", &options);
    let error = error.err().unwrap();
    assert!(matches!(error, MountError::Place { errno: Errno::NOENT, .. }));
    assert!(error.to_string().contains("/no/such/place"), "{error}");
}

/// Not a test: `without_its_server…` starts it as a program and kills it.
#[test]
fn serve_until_killed() {
    let Some(dir) = std::env::var_os("EXTANT_FUSE_SERVE") else { return };
    let options = MountOptions { transport: Transport::Dev, ..Default::default() };
    let session = Session::mount(Arc::new(Null::default()), "null", dir, &options).unwrap();
    eprintln!("serving");
    session.wait();
}

#[test]
fn without_its_server_a_mount_fails_and_can_be_taken_away() {
    require!(Fuse);
    for by_helper in [false, true] {
        let dir = tempfile::TempDir::new().unwrap();
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ends::serve_until_killed", "--nocapture"])
            .env("EXTANT_FUSE_SERVE", dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(server.stderr.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("serving")));
        fs::write(dir.path().join("a"), "there").unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        assert_eq!(rustix::fs::stat(dir.path().join("b")).err(), Some(Errno::NOTCONN));
        if by_helper {
            let helper = Command::new("fusermount3").arg("-u").arg(dir.path()).status();
            assert!(helper.unwrap().success());
        } else {
            unmount(dir.path(), UnmountFlags::DETACH).unwrap();
        }
        assert!(!mounted(dir.path()));
    }
}

/// In a mount namespace of its own, where every user may open `/dev/fuse`, as on most machines.
#[test]
fn a_user_who_may_not_mount_uses_the_helper() {
    use std::os::unix::fs::PermissionsExt;
    require!(Fuse);
    let all = fs::Permissions::from_mode(0o755);
    let scratch = tempfile::TempDir::new().unwrap();
    fs::set_permissions(scratch.path(), all.clone()).unwrap();
    let program = scratch.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, all).unwrap();
    let dir = scratch.path().join("mnt");
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(65534), Some(65534)).unwrap();
    let script = "set -e
        touch log && chmod 666 log
        mkdir dev && mount -t tmpfs none dev
        mknod dev/fuse c 10 229 && chmod 666 dev/fuse && mount --bind dev/fuse /dev/fuse
        exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
            ./program --exact ends::serve_until_killed --nocapture > log 2>&1 &
            for i in $(seq 100); do grep -q serving log && break; sleep 0.1; done
            echo there > mnt/a; cat mnt/a; grep \" $PWD/mnt fuse.extant \" /proc/self/mounts
            fusermount3 -u mnt
            wait'";
    let done = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .env("EXTANT_FUSE_SERVE", &dir)
        .current_dir(scratch.path())
        .output()
        .unwrap();
    let (expected, err) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let log = fs::read_to_string(scratch.path().join("log")).unwrap_or_default();
    assert!(done.status.success(), "{expected}{err}{log}");
    assert!(
        expected.starts_with("there\n") && expected.contains("user_id=65534"),
        "{expected}{err}{log}"
    );
}

#[test]
fn what_is_no_directory_is_not_mounted_on() {
    require!(Fuse);
    let file = tempfile::NamedTempFile::new().unwrap();
    let null = Arc::new(Null::default());
    let mounted = Session::mount(null, "null", file.path(), &MountOptions::default());
    match mounted.map(drop) {
        Err(MountError::Place { errno: Errno::NOTDIR, .. }) => {}
        other => panic!("{other:?}"),
    }
}
