//! What is done with a changed volume. Damage must give an error that says what is wrong. Nothing
//! may panic, or request more transfers than work on a volume of a few MiB can need.

use crate::image::patch::{EDIT, Patched, patched};
use crate::image::volumes::{self, members, parts, split};
use extant::check::{self, check_device};
use extant::{
    BlockDevice, Environment, Error, FileKind, Filesystem, OpenOptions, Result, resize, survey,
    tune,
};
use extant_compat_tests::bounded::Bounded;
use extant_compat_tests::script;
use extant_raid::{Opening, assemble};
use std::sync::Arc;

/// The most names that a walk reads.
const ENTRIES_MAX: usize = 2000;

/// A volume on a device that counts transfers, or on several such devices, and its external
/// journal.
pub(super) struct Whole {
    device: Arc<dyn BlockDevice>,
    journal: Option<Arc<dyn BlockDevice>>,
}

impl Whole {
    pub(super) fn of(patched: &Patched, write: bool) -> Result<Whole> {
        let device: Arc<dyn BlockDevice> = Bounded::over(patched.device.clone());
        if patched.volume.journal > 0 {
            let [device, journal] = split(&device, patched.volume.journal as u64);
            return Ok(Whole { device, journal: Some(journal) });
        }
        let opening = Opening { write, degraded: patched.choice & 1 != 0, together: false };
        let device = match patched.volume.members {
            1 => device,
            _ if patched.volume.striped => {
                let members = volumes::striped(&patched.device).into_iter().map(Bounded::over);
                assemble(parts(&members.collect::<Vec<_>>()), opening)?.device()
            }
            count => assemble(members(&device, count), opening)?.device(),
        };
        Ok(Whole { device, journal: None })
    }

    pub(super) fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.device)
    }

    fn options(&self) -> OpenOptions {
        let mut options = options();
        if let Some(journal) = &self.journal {
            options.journal_on(Arc::clone(journal));
        }
        options
    }

    fn check(&self) -> Option<check::Report> {
        let journal = self.journal.clone();
        let options = check::Options {
            threads: 2,
            findings_limit: 100,
            data: true,
            journal,
            ..Default::default()
        };
        checked(check_device(self.device(), &options, &()))
    }

    /// Checks the result of an input. If the input changed nothing, the check must find nothing.
    fn judge(&self, data: &[u8]) {
        let report = self.check();
        if data.len() < 2 + EDIT {
            let report = report.expect("it can be checked");
            let said: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
            assert!(report.clean, "{said:?}");
        }
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.cache_bytes(1 << 20).page_cache_bytes(2 << 20).commit_interval(None);
    options.environment(Environment::fixed(Default::default(), 7));
    options
}

fn has_message(error: &Error) {
    assert!(!error.to_string().is_empty());
}

/// Messages about damage are text, and are formatted here.
pub(super) fn checked<T>(done: Result<T>) -> Option<T> {
    done.inspect_err(has_message).ok()
}

/// Opens it for reading, which recovers it in memory, and reads everything.
pub fn read(data: &[u8]) {
    let Some(patched) = patched(data) else { return };
    let Some(whole) = checked(Whole::of(&patched, false)) else { return };
    if let Some(fs) = checked(whole.options().open_device(whole.device())) {
        look(&fs);
    }
}

fn look(fs: &Filesystem) {
    let _ = (fs.space(), checked(fs.journal_superblock()), checked(fs.journal_usage()));
    let mut buf = vec![0; 20_000];
    for entry in fs.walk("/").take(ENTRIES_MAX) {
        let Some(entry) = checked(entry) else { continue };
        let _ = (
            checked(entry.metadata()),
            checked(fs.node_of_ino(entry.ino()).and_then(|node| node.xattr_values())),
        );
        match entry.file_type() {
            FileKind::Regular => drop(checked(read_file(&entry, &mut buf))),
            FileKind::Symlink => drop(checked(entry.read_link())),
            _ => {}
        }
    }
    for path in ["victims/deep/er/../hard", "keep/short", "keep/many/none", "lost+found"] {
        let _ = checked(fs.metadata(path));
    }
    let wish = survey::Options { threads: 2, ..Default::default() };
    let _ = checked(fs.survey(&wish, &()));
}

fn read_file(entry: &extant::WalkEntry, buf: &mut [u8]) -> Result<()> {
    let file = entry.open()?;
    let len = file.metadata().len();
    for at in [0, len / 2, len.saturating_sub(10_000)] {
        let _ = checked(file.read_at(buf, at));
    }
    let mut at = 0;
    for _ in 0..20 {
        let Some(data) = file.seek_data(at)? else { break };
        let Some(hole) = file.seek_hole(data)? else { break };
        assert!(hole > at, "seeking goes on");
        at = hole;
    }
    file.extents().map(drop)
}

/// Opens it for writing, runs parts of the script, closes it, and checks it.
pub fn write(data: &[u8]) {
    let Some(patched) = patched(data) else { return };
    let Some(whole) = checked(Whole::of(&patched, true)) else { return };
    let Some(fs) = checked(whole.options().write(true).open_device(whole.device())) else { return };
    let parts = u32::from(patched.choice) | 1;
    script::run_parts(&fs, patched.choice.into(), parts, &mut |_, error| has_message(&error));
    let _ = checked(fs.close());
    whole.judge(data);
}

/// Checks it.
pub fn check(data: &[u8]) {
    let Some(patched) = patched(data) else { return };
    let Some(whole) = checked(Whole::of(&patched, false)) else { return };
    if let Some(report) = whole.check() {
        assert!(report.findings.iter().all(|finding| !finding.to_string().is_empty()));
    }
}

/// Recovers it in place, twice, and then works on it; only for volumes after a crash.
pub fn recover(data: &[u8]) {
    let Some((&volume, rest)) = data.split_first() else { return };
    let dirty: Vec<u8> =
        (0..volumes::all().len() as u8).filter(|nr| volumes::chosen(*nr).dirty).collect();
    let volume = dirty[usize::from(volume) % dirty.len()];
    let Some(patched) = patched(&[&[volume], rest].concat()) else { return };
    let Some(whole) = checked(Whole::of(&patched, true)) else { return };
    if checked(whole.options().recover_device_in_place(whole.device())).is_some() {
        let again = whole.options().recover_device_in_place(whole.device());
        assert!(again.is_ok_and(|report| !report.was_needed), "it was recovered");
    }
    let Some(fs) = checked(whole.options().write(true).open_device(whole.device())) else { return };
    let parts = u32::from(patched.choice) & 0b100_0001 | 1;
    script::run_parts(&fs, 1, parts, &mut |_, error| has_message(&error));
    let _ = checked(fs.close());
    whole.judge(data);
}

/// Changes the volume as a whole: features, or its size.
pub fn change(data: &[u8]) {
    const FEATURES: [&str; 16] = [
        "metadata_csum",
        "^metadata_csum",
        "data_csum",
        "^data_csum",
        "quota",
        "^quota",
        "project",
        "has_journal",
        "^has_journal",
        "fast_commit",
        "^fast_commit",
        "orphan_file",
        "^orphan_file",
        "metadata_csum_seed",
        "large_dir",
        "extra_isize",
    ];
    let Some(patched) = patched(data) else { return };
    let Some(mut whole) = checked(Whole::of(&patched, true)) else { return };
    if patched.choice & 1 != 0 {
        whole.device = larger(&*whole.device);
    }
    if patched.choice & 3 == 2 {
        let feature = FEATURES[usize::from(patched.choice >> 2) % FEATURES.len()];
        if let Some(wish) = checked(tune::Tune::default().features(feature)) {
            let _ = checked(tune::tune_device(&whole.options(), &whole.device, &wish));
        }
    } else {
        let size = match patched.choice >> 1 & 1 {
            0 => resize::Size::Minimum,
            _ => resize::Size::Device,
        };
        let _ = checked(resize::resize_device(&whole.options(), &whole.device, size, &()));
    }
    whole.judge(data);
}

/// The same volume on a device that is half as large again.
fn larger(device: &dyn BlockDevice) -> Arc<dyn BlockDevice> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(extant::ByteOffset(0), &mut bytes).expect("memory");
    bytes.resize(bytes.len() * 3 / 2, 0);
    Bounded::new(&bytes)
}
