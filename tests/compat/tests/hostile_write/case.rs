//! One damaged volume: the requests to it, and the required results.

use extant::{Error, Filesystem, OpenOptions, Site, What};
use extant_compat_tests::bounded::Bounded;
use extant_compat_tests::damage::damage;
use extant_compat_tests::script;
use extant_compat_tests::volume::Rich;
use extant_testkit::command::run;
use extant_testkit::damaged::DamagedImage;
use extant_testkit::e2fsprogs::{clear_data_csum, e2fsck};
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Files and symlinks that can be read, with their content.
type Content = BTreeMap<String, Vec<u8>>;

const FSCK_LIMIT: Duration = Duration::from_secs(60);
/// Largest file that is read whole.
const READ_MAX: u64 = 4 << 20;

/// Damages `rich` by `seed`.
pub fn generated(rich: &Rich, seed: u64) {
    let mut rng = Rng::new(seed ^ rich.name.len() as u64);
    let mut bytes = rich.bytes.clone();
    let what = damage(rich, &mut bytes, &mut rng);
    println!("\ncase {}:{seed}: {what}", rich.name);
    if bytes == rich.bytes {
        return;
    }
    let right = read_all(&open_memory(&rich.bytes).expect("the volume before"), "/keep");
    judge(&bytes, seed, &right, rich.checksummed);
}

/// An image that was damaged from the start: its right content is unknown.
pub fn image(image: &DamagedImage) {
    println!("\ncase {}", image.name);
    let scratch = Scratch::new();
    let path = scratch.file("image");
    image.unpack(&path).expect("it unpacks");
    let bytes = std::fs::read(&path).expect("it is there");
    judge(&bytes, 1, &Content::new(), false);
}

fn judge(bytes: &[u8], seed: u64, right: &Content, checksummed: bool) {
    keep_as("before", bytes);
    let scratch = Scratch::new();
    let path = scratch.file("image");
    std::fs::write(&path, bytes).expect("room");
    // What e2fsck makes of the damage alone.
    let mendable = mend(&path);
    let survives = match Filesystem::open(&path) {
        Ok(fs) if mendable => same(right, &read_all(&fs, "/keep")),
        _ => Content::new(),
    };
    let readable = match open_memory(bytes) {
        Ok(fs) => same(right, &read_all(&fs, "/keep")),
        Err(_) => Content::new(),
    };
    let Some(after) = write_to(bytes, seed, &readable, checksummed) else { return };
    std::fs::write(&path, &after).expect("room");
    keep_as("after", &after);
    let mended = mend(&path);
    assert!(mended || !mendable, "spread: e2fsck mended it before the script, and does not after");
    if !checksummed || !mendable {
        return;
    }
    let fs = Filesystem::open(&path).expect("it is mended");
    let left = same(&survives, &read_all(&fs, "/keep"));
    let lost: Vec<&String> = survives.keys().filter(|path| !left.contains_key(*path)).collect();
    assert!(lost.is_empty(), "spread: {lost:?} lost");
}

/// Opens the volume for writing and runs the script. Returns the content of the device afterwards,
/// or `None` if the volume could not be opened.
fn write_to(bytes: &[u8], seed: u64, readable: &Content, checksummed: bool) -> Option<Vec<u8>> {
    let device = Bounded::new(bytes);
    let (recorded, marking) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut options = OpenOptions::new();
    options.write(true).cache_bytes(2 << 20).on_error({
        let (recorded, marking) = (Arc::clone(&recorded), Arc::clone(&marking));
        Arc::new(move |error| {
            assert_names_its_place(error);
            recorded.fetch_add(1, Ordering::Relaxed);
            // No checker repairs data or its checksums, so these do not require a repair.
            let of_data = [What::DataChecksum, What::DataSumsChecksum];
            let marks = !matches!(error, Error::Corrupt { what, .. } if of_data.contains(what));
            marking.fetch_add(marks.into(), Ordering::Relaxed);
        })
    });
    let fs = match options.open_device(device.clone()) {
        Ok(fs) => fs,
        Err(error) => {
            assert_names_its_place(&error);
            return None;
        }
    };
    let mut met = 0;
    script::run(&fs, seed, &mut |step, error| {
        assert!(!error.to_string().is_empty(), "{step}");
        if matches!(error, Error::Corrupt { .. }) {
            assert_names_its_place(&error);
            met += 1;
        }
    });
    if checksummed {
        let now = same(readable, &read_all(&fs, "/keep"));
        let lost: Vec<&String> = readable.keys().filter(|path| !now.contains_key(*path)).collect();
        assert!(lost.is_empty(), "spread: {lost:?} cannot be read any more");
    }
    let closed = fs.close();
    let recorded = recorded.load(Ordering::Relaxed);
    assert!(recorded >= met, "{met} steps met damage, {recorded} were recorded");
    let after = device.bytes();
    if closed.is_ok() && marking.load(Ordering::Relaxed) > 0 {
        // s_state, bit 1.
        assert!(after[1024 + 0x3A] & 2 != 0, "damage was met and the volume not marked");
    }
    Some(after)
}

fn assert_names_its_place(error: &Error) {
    let Error::Corrupt { what, at } = error else { return };
    let says = error.to_string();
    let elsewhere = matches!(what, What::JournalMissing | What::JournalElsewhere);
    let whole = what.name().starts_with("Superblock") || elsewhere;
    assert!(*at != Site::NOWHERE || whole, "no place: {says}");
}

fn open_memory(bytes: &[u8]) -> extant::Result<Filesystem> {
    OpenOptions::new().cache_bytes(2 << 20).open_device(Bounded::new(bytes))
}

/// Everything that can be read below `top`; errors are skipped.
fn read_all(fs: &Filesystem, top: &str) -> Content {
    let mut content = Content::new();
    for entry in fs.walk(top).take(5000).flatten() {
        let path = entry.path().display().to_string();
        let bytes = match entry.file_type() {
            extant::FileKind::Regular => match entry.metadata() {
                Ok(metadata) if metadata.len() <= READ_MAX => fs.read(entry.path()),
                _ => continue,
            },
            extant::FileKind::Symlink => {
                entry.read_link().map(|to| to.display().to_string().into_bytes())
            }
            _ => Ok(Vec::new()),
        };
        if let Ok(bytes) = bytes {
            content.insert(path, bytes);
        }
    }
    content
}

/// The part of `right` that is equal in `now`.
fn same(right: &Content, now: &Content) -> Content {
    let both = right.iter().filter(|(path, bytes)| now.get(*path) == Some(bytes));
    both.map(|(path, bytes)| (path.clone(), bytes.clone())).collect()
}

/// Lets e2fsck repair the volume, twice if needed. Returns whether it is clean then.
fn mend(path: &Path) -> bool {
    (0..3).any(|_| {
        // It does not know checksums of data, and the log may restore them.
        let _ = clear_data_csum(path);
        fsck(path, "-fy");
        fsck(path, "-fn") == Some(0)
    })
}

fn fsck(path: &Path, how: &str) -> Option<i32> {
    let mut command = Command::new("e2fsck");
    let done = run(command.arg(how).arg(path), FSCK_LIMIT).ok()?;
    done.code().filter(|_| !done.timed_out)
}

/// Copies the volume of the examined case to the folder that `EXTANT_KEEP` names.
fn keep_as(when: &str, bytes: &[u8]) {
    if let Some(keep) = std::env::var_os("EXTANT_KEEP") {
        std::fs::write(Path::new(&keep).join(when), bytes).expect("room to keep it");
    }
}

/// The volume as it was made: nothing is wrong with it, before or after the script.
pub fn undamaged(rich: &Rich) {
    let device = Bounded::new(&rich.bytes);
    let fs = OpenOptions::new().write(true).open_device(device.clone()).expect("it is whole");
    let mut failed = Vec::new();
    script::run(&fs, 1, &mut |step, error| failed.push(format!("{step}: {error}")));
    fs.close().expect("it is whole");
    assert!(failed.iter().all(|line| !line.contains("corrupt")), "{}: {failed:?}", rich.name);
    let scratch = Scratch::new();
    let path = scratch.file("image");
    std::fs::write(&path, device.bytes()).expect("room");
    clear_data_csum(&path).expect("the superblock is mended");
    if let Err(says) = e2fsck(&path, None).expect_clean() {
        keep_as("after", &device.bytes());
        panic!("{}: {says}", rich.name);
    }
}
