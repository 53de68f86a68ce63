//! The volumes that inputs change: those of `tests/compat`, and some after a crash during work.

use extant::dax::ByteLogMode;
use extant::{Environment, FallocateMode, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_base::ByteOffset;
use extant_blockdev::{BlockDevice, Slice};
use extant_compat_tests::script;
use extant_compat_tests::sums::Sums;
use extant_compat_tests::volume::{self, Kind, Place, Rich};
use extant_crc32c::crc32c;
use extant_ondisk::member::MEMBER_OFFSET;
use extant_raid::{Opening, Part, Wanted};
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A volume, and what is needed to change it.
#[derive(Debug)]
pub struct Volume {
    /// Its bytes and structures. The second member of a mirror follows the first. For stripes the
    /// bytes are in the volume's order, and the members' records follow.
    pub rich: Rich,
    /// Corrects its checksums; `None` if its structures have none.
    pub sums: Option<Sums>,
    /// It was not closed, and needs recovery.
    pub dirty: bool,
    /// The number of members whose bytes these are, one after the other, or in stripes.
    pub members: usize,
    /// The members are stripes.
    pub striped: bool,
    /// Bytes of its external journal, which follow the volume's.
    pub journal: usize,
    /// Its bytes as a device, to be cloned.
    pub base: MemoryDevice,
}

/// (name, options of mke2fs, checksummed, how it was left)
type Left = (&'static str, &'static str, bool, fn(&MemoryDevice) -> MemoryDevice);

const DIRTY: &[Left] = &[
    ("log", "-b 1024 -I 256 -O metadata_csum,quota,orphan_file", true, in_log),
    ("old_log", "-b 1024 -I 128 -O ^metadata_csum,^64bit,^extent", false, in_log),
    ("fast", "-b 1024 -I 256 -O metadata_csum,fast_commit", true, in_fast_commits),
    (
        "fast_plain",
        "-b 1024 -I 256 -O ^metadata_csum,fast_commit,inline_data",
        false,
        in_fast_commits,
    ),
    ("bytes", "-b 1024 -I 256 -O metadata_csum,fast_commit", true, in_byte_log),
    ("orphans", "-b 1024 -I 256 -O ^metadata_csum,quota", false, with_orphans),
    ("orphan_file", "-b 1024 -I 256 -O metadata_csum,orphan_file", true, with_orphans),
];

const SIZE: u64 = 4 << 20;

/// The variable that names a folder with the volumes, written by [`write_to`]: making them takes
/// several seconds.
pub const KEPT: &str = "EXTANT_HOSTILE_VOLUMES";

/// All volumes, made once. mke2fs, e2fsck and extant make them, and debugfs reads where structures
/// are.
pub fn all() -> &'static [Volume] {
    static ALL: OnceLock<Vec<Volume>> = OnceLock::new();
    ALL.get_or_init(|| {
        if let Some(dir) = std::env::var_os(KEPT) {
            return super::kept::read(Path::new(&dir))
                .expect("the volumes that were written there");
        }
        let clean = volume::names().map(|name| Volume::new(volume::make(name), false));
        clean.chain(DIRTY.iter().map(left)).chain([mirror(), external(), stripes()]).collect()
    })
}

/// Writes the volumes to a folder, for programs that find it by [`KEPT`].
///
/// Errors: why a file could not be written.
pub fn write_to(dir: &Path) -> std::io::Result<()> {
    super::kept::write(dir)
}

/// The volume that the first byte of an input selects.
pub fn chosen(byte: u8) -> &'static Volume {
    &all()[usize::from(byte) % all().len()]
}

impl Volume {
    /// The number of its bytes that follow the volume and are not part of it.
    pub fn behind(&self) -> usize {
        if self.striped { self.members * RECORD } else { self.journal }
    }

    /// A volume with one member.
    pub(super) fn new(rich: Rich, dirty: bool) -> Volume {
        let (sums, base) = (Sums::of(&rich), MemoryDevice::from_bytes(&rich.bytes));
        Volume { rich, sums, dirty, members: 1, striped: false, journal: 0, base }
    }
}

fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(ByteOffset(0), &mut bytes).expect("memory");
    bytes
}

/// A volume with a log in use.
fn left(&(name, options, checksummed, leave): &Left) -> Volume {
    let mut rich = volume::make_as(name, SIZE, options, checksummed);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    std::fs::write(&image, &rich.bytes).expect("room");
    let mut log = volume::log_blocks(&image, rich.block);
    rich.bytes = bytes_of(&leave(&MemoryDevice::from_bytes(&rich.bytes)));
    let in_use = |place: &Place| rich.bytes[place.at..place.at + place.len].iter().any(|b| *b != 0);
    log.retain(in_use);
    rich.places.extend(log.into_iter().skip(1));
    let volume = Volume::new(rich, true);
    assert!(volume.rich.places.iter().any(|place| place.kind == Kind::Log), "{name} has no log");
    volume
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .commit_interval(None)
        .environment(Environment::fixed(Default::default(), 7));
    options
}

/// The content of `device` after `work`, as after a power cut.
fn cut_off(
    device: &MemoryDevice,
    options: &OpenOptions,
    work: impl FnOnce(&Filesystem),
) -> MemoryDevice {
    let device = Arc::new(device.clone());
    let fs = options.open_device(device.clone()).expect("it is whole");
    work(&fs);
    let left = MemoryDevice::clone(&device);
    fs.close().expect("it is whole");
    left
}

fn options_of_log() -> OpenOptions {
    let mut options = options();
    options.fast_commits(false);
    options
}

fn in_log(device: &MemoryDevice) -> MemoryDevice {
    cut_off(device, &options_of_log(), fill_log)
}

fn fill_log(fs: &Filesystem) {
    script::run_parts(fs, 3, 0b100_1001, &mut |_, _| {});
    fs.create_dir("last", &NewFile::directory()).expect("room");
    fs.sync().expect("room");
}

fn in_fast_commits(device: &MemoryDevice) -> MemoryDevice {
    cut_off(device, &options(), sync_files)
}

fn in_byte_log(device: &MemoryDevice) -> MemoryDevice {
    cut_off(device, options().byte_log(ByteLogMode::Force), sync_files)
}

/// Each fsync is a fast commit.
fn sync_files(fs: &Filesystem) {
    fs.sync().expect("room");
    for n in 0..12u64 {
        let name = format!("victims/file {n}");
        let file = fs.create_file(&name, &NewFile::default()).expect("room");
        let file = file.open().expect("it is there");
        file.write_all_at(&[n as u8; 3000], n % 3 * 5000).expect("room");
        file.sync_all().expect("room");
        match n % 4 {
            0 => fs.rename(&name, format!("victims/deep/{n}")).expect("room"),
            1 => fs.hard_link(&name, format!("victims/link {n}")).expect("room"),
            2 => fs.remove_file(&name).expect("it is there"),
            _ => file.allocate(FallocateMode::PunchHole, 1024, 3000).expect("room"),
        }
        file.sync_all().expect("room");
    }
}

fn with_orphans(device: &MemoryDevice) -> MemoryDevice {
    cut_off(device, &options_of_log(), |fs| {
        let names = ["tiny", "medium", "large", "holes", "deep/large", "many"];
        let held = names.map(|name| fs.node(format!("victims/{name}")).expect("it is there"));
        for name in &names[..5] {
            fs.remove_file(format!("victims/{name}")).expect("it is there");
        }
        fs.sync().expect("room");
        drop(held);
    })
}

/// Two members of a mirror, of which the second is slightly out of date.
fn mirror() -> Volume {
    let mut rich = volume::make_as("mirror", SIZE, "-b 1024 -I 256 -O metadata_csum", true);
    let one = rich.bytes.clone();
    rich.bytes.extend_from_slice(&one);
    let both: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(&rich.bytes));
    let parts = members(&both, 2);
    let wanted = Wanted::Mirrored { alike: true };
    extant_raid::create(&parts, wanted, [3; 16], SIZE).expect("they are alike");
    rich.bytes = bytes_of(&*both);
    for n in 0..2 {
        let at = n * SIZE as usize + 512;
        rich.places.push(Place { kind: Kind::Member, at, len: 512 });
    }
    Volume { members: 2, ..Volume::new(rich, false) }
}

const RECORD: usize = 512;
const STRIPES: Wanted = Wanted::Striped { stripe_bytes: 16 << 10 };

/// Blank members of two stripes.
fn blank_stripes() -> [Arc<MemoryDevice>; 2] {
    let len = STRIPES.member_bytes(2, SIZE);
    let members = [0, 1].map(|_| Arc::new(MemoryDevice::new(len)));
    let wanted = extant_raid::create(&parts(&members), STRIPES, [4; 16], SIZE);
    wanted.expect("they are large enough");
    members
}

/// Devices in the form that a layout takes.
pub fn parts<D: BlockDevice + 'static>(devices: &[Arc<D>]) -> Vec<Part> {
    let part = |(n, device): (usize, &Arc<D>)| Part::new(device.clone(), format!("member {n}"));
    devices.iter().enumerate().map(part).collect()
}

/// A volume on two stripes.
fn stripes() -> Volume {
    let mut rich = volume::make_as("stripes", SIZE, "-b 1024 -I 256 -O metadata_csum", true);
    for member in blank_stripes() {
        let mut record = [0; RECORD];
        member.read_at(ByteOffset(MEMBER_OFFSET), &mut record).expect("memory");
        let at = rich.bytes.len();
        rich.bytes.extend_from_slice(&record);
        rich.places.push(Place { kind: Kind::Member, at, len: RECORD });
    }
    Volume { members: 2, striped: true, ..Volume::new(rich, false) }
}

/// The members of stripes with the content of `device`.
pub fn striped(device: &MemoryDevice) -> Vec<MemoryDevice> {
    let bytes = bytes_of(device);
    let (volume, records) = bytes.split_at(SIZE as usize);
    let members = blank_stripes();
    let opening = Opening { together: false, ..Opening::write() };
    let both = extant_raid::assemble(parts(&members), opening).expect("they are whole").device();
    both.write_at(ByteOffset(0), volume).expect("memory");
    drop(both);
    let records = records.chunks(RECORD).zip(members);
    let changed = records.map(|(record, member)| {
        member.write_at(ByteOffset(MEMBER_OFFSET), record).expect("memory");
        MemoryDevice::clone(&member)
    });
    changed.collect()
}

/// A volume whose journal is on another device, after a crash.
fn external() -> Volume {
    const JOURNAL: usize = 1 << 20;
    const UUID: &str = "0f4d2c66-11d5-4a0b-9d5c-2b8b6a3f7c11";
    let mut rich =
        volume::make_as("external", SIZE, "-b 1024 -I 256 -O metadata_csum,^has_journal", true);
    let scratch = Scratch::new();
    let image = scratch.file("journal");
    let options = format!("-b 1024 -O journal_dev -U {UUID}");
    mke2fs(&image, JOURNAL as u64, &options, None).expect("mke2fs");
    rich.bytes.extend(std::fs::read(&image).expect("the journal"));
    // Each must name the other: mke2fs sets that for block devices only.
    let start = SIZE as usize;
    let (volume, journal) = rich.bytes.split_at_mut(start);
    let superblock = &mut volume[1024..2048];
    superblock[0x5C] |= 4;
    superblock[0xD0..0xE0].copy_from_slice(&journal[1024 + 0x68..1024 + 0x78]);
    superblock[0xE4] = 1;
    let sum = crc32c(!0, &superblock[..1020]).to_le_bytes();
    superblock[1020..].copy_from_slice(&sum);
    let users = &mut journal[2048..3072];
    users[0x43] = 1;
    users[0x100..0x110].copy_from_slice(&superblock[0x68..0x78]);
    let left = {
        let device = Arc::new(MemoryDevice::from_bytes(&rich.bytes));
        let [volume, journal] = split(&(device.clone() as Arc<dyn BlockDevice>), JOURNAL as u64);
        let fs = options_of_log().journal_on(journal).open_device(volume).expect("it is whole");
        fill_log(&fs);
        let left = bytes_of(&*device);
        fs.close().expect("it is whole");
        left
    };
    rich.bytes = left;
    rich.places.push(Place { kind: Kind::Superblock, at: start + 1024, len: 1024 });
    rich.places.push(Place { kind: Kind::Journal, at: start + 2048, len: 1024 });
    // Block 1 of the log is the device's superblock, and block 2 the log's own.
    let in_use = |at: &usize| rich.bytes[*at..at + 1024].iter().any(|byte| *byte != 0);
    let log: Vec<usize> =
        (start + 3072..rich.bytes.len()).step_by(1024).filter(|at| in_use(at)).collect();
    rich.places.extend(log.into_iter().map(|at| Place { kind: Kind::Log, at, len: 1024 }));
    Volume { journal: JOURNAL, ..Volume::new(rich, true) }
}

/// The part of a device before its last `len` bytes, and those.
pub fn split(device: &Arc<dyn BlockDevice>, len: u64) -> [Arc<dyn BlockDevice>; 2] {
    let front = device.len() - len;
    [(0, front), (front, len)].map(|(at, len)| {
        let slice = Slice::new(Arc::clone(device), ByteOffset(at), len);
        Arc::new(slice.expect("a part of it")) as Arc<dyn BlockDevice>
    })
}

/// The members that are on `device`, one after the other.
pub fn members(device: &Arc<dyn BlockDevice>, count: usize) -> Vec<Part> {
    let len = device.len() / count as u64;
    let part = |n: usize| {
        let slice = Slice::new(Arc::clone(device), ByteOffset(n as u64 * len), len);
        Part::new(Arc::new(slice.expect("a part of it")), format!("member {n}"))
    };
    (0..count).map(part).collect()
}
