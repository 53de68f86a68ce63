//! `extant mkfs`: makes an empty volume.
//!
//! ```text
//!   new file, with --size ──► sparse ─┐
//!   file, no foreign content ► emptied ├─► mkfs::format ──► report
//!   block device ─────────────────────┘       └ fails: a new file is removed
//! ```

pub(crate) mod format_options;
pub(crate) mod uuid;

use crate::failure::{Failure, explained, ignored_lock_message, print_message};
use crate::image::{Image, is_same_file};
use crate::out::Out;
use crate::shown::Shown;
use crate::stop::Stop;
use crate::{amount, disk, shown, signature};
use extant::environment::FixedClock;
use extant::mkfs::{self, InodeCount, Made, MkfsOptions};
use extant::raid::{Opening, Part, Wanted, assemble, create, record_of};
use extant::{BlockDevice, Environment, Error, FileOptions, Timestamp};
use extant_base::ByteOffset;
use extant_blockdev::Slice;
use extant_image::COMPAT_SETS;
use extant_ondisk::member::{MEMBER_OFFSET, MEMBER_SIZE};
use format_options::{Extended, FormatOptions};
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Create an empty volume in a file or on a block device.
///
/// Defaults are those of mke2fs 1.47: type ext4, blocks of 4 KiB for volumes of 512 MiB or more,
/// one inode per 16 KiB, a journal. With --size, the file is created or emptied, and stays sparse
/// where nothing is written. Sizes are in bytes; K, M, G and T mean powers of 1024.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant mkfs disk.img 10G                              or: --size 10G
  extant mkfs disk.img --size 1T -L data -m 0 -O ^resize_inode,inline_data
  extant mkfs /dev/vdb -t ext2 -b 1024 --force
  extant mkfs a.img --size 1G --layout raid1 b.img      then: extant mount 'a.img?member=b.img' /mnt
  SOURCE_DATE_EPOCH=0 extant mkfs same.img --size 64M -U 3f2b91c4-58a0-4d7c-9a1e-6c0d5e8f7a21 \\
      --hash-seed 8d1c7f0e-2b3a-4c5d-8e9f-a0b1c2d3e4f5

Exit status: 0 created, 1 failed (a file created by this command is removed), 2 wrong usage.")]
pub(crate) struct Args {
    /// File to create or fill, or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG", required_unless_present = "compat")]
    image: Option<OsString>,
    /// The size, as with --size; with --layout, the other files or devices
    #[arg(value_name = "SIZE|IMG2")]
    others: Vec<OsString>,
    /// Layout on several devices: raid0 for stripes, raid1 for mirrors
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<LayoutKind>,
    /// Length of a stripe on one device, a power of two
    #[arg(long, value_name = "SIZE", value_parser = amount::bytes, default_value = "64K")]
    stripe: u64,
    /// Size of the volume; default: the whole file, device, or partition
    #[arg(short, long, value_name = "SIZE", value_parser = amount::bytes)]
    size: Option<u64>,
    #[command(flatten)]
    format: FormatOptions,
    /// Bytes of space per inode
    #[arg(short = 'i', long, value_name = "BYTES", value_parser = amount::bytes,
          conflicts_with = "inodes")]
    inode_ratio: Option<u64>,
    /// Minimum number of inodes
    #[arg(short = 'N', long, value_name = "COUNT")]
    inodes: Option<u32>,
    /// Owner and group of the root directory
    #[arg(long, value_name = "UID:GID", value_parser = format_options::owner)]
    root_owner: Option<(u32, u32)>,
    /// Seed of the hashes of names in directories; default: random
    #[arg(long, value_name = "UUID", value_parser = uuid::parse)]
    hash_seed: Option<[u8; 16]>,
    /// Extended options of mke2fs: root_owner=UID:GID, hash_seed=UUID. lazy_itable_init,
    /// lazy_journal_init, discard and nodiscard have no effect, as the volume is complete at once
    #[arg(short = 'E', value_name = "OPTION,…", value_delimiter = ',', value_parser = format_options::extended)]
    extended: Vec<Extended>,
    /// Overwrite another filesystem, a partition table, or a file that is not empty
    #[arg(short, long)]
    force: bool,
    /// Print what was created as JSON (docs/JSON.md)
    #[arg(long)]
    json: bool,
    /// Print nothing
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

/// The layouts of `--layout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LayoutKind {
    /// One device
    Single,
    /// Stripes: faster, but lost if any of its devices is lost
    Raid0,
    /// Mirrors: each device is a complete ext4 volume by itself
    Raid1,
}

#[derive(Serialize)]
struct Answer<'a> {
    image: String,
    bytes: u64,
    block_bytes: usize,
    blocks: u64,
    free_blocks: u64,
    inodes: u32,
    groups: u32,
    journal_blocks: u32,
    uuid: &'a str,
}

impl Args {
    pub(crate) fn run(mut self) -> Result<u8, Failure> {
        if self.format.wants_compat_list() {
            return compat_list();
        }
        self.take_positional_size()?;
        let Some(image) = &self.image else {
            return Err(Failure::usage("mkfs needs the name of the image to create"));
        };
        let image = Image::parse_for_new(image)?;
        let environment = environment()?;
        let mut options = self.format.options(None)?;
        let inodes = match (self.inode_ratio, self.inodes) {
            (Some(bytes), _) => InodeCount::BytesPerInode(bytes),
            (None, Some(count)) => InodeCount::AtLeast(count),
            (None, None) => InodeCount::Auto,
        };
        options = options.inodes(inodes);
        if let Some(uuid) = self.format.uuid_bytes(&environment) {
            options = options.uuid(uuid);
        }
        if let Some((uid, gid)) = self.root_owner {
            options = options.root_owner(uid, gid);
        }
        if let Some(seed) = self.hash_seed {
            options = options.hash_seed(seed);
        }
        for option in &self.extended {
            options = match *option {
                Extended::RootOwner(uid, gid) => options.root_owner(uid, gid),
                Extended::HashSeed(seed) => options.hash_seed(seed),
                Extended::Nothing => options,
            };
        }
        let stop = Stop::listen()?;
        let target = match self.layout {
            None | Some(LayoutKind::Single) if self.others.is_empty() => {
                self.target(&image, self.size, Some(&options), &stop)?
            }
            None | Some(LayoutKind::Single) => {
                return Err(Failure::usage("the layout 'single' has one device"));
            }
            Some(kind) => self.members(&image, kind, &environment, &stop)?,
        };
        let made = mkfs::format(target.device, &options.zeroed(target.zeroed), &environment);
        match made {
            Ok(made) => {
                stop.end_on_signals();
                self.answer(&image, &made)?;
                Ok(0)
            }
            Err(error) => {
                target.new_files.iter().for_each(|path| drop(fs::remove_file(path)));
                Err(Failure::of_image(&image.name, &error))
            }
        }
    }

    /// Takes the size in `mkfs IMG SIZE`, the argument order of mke2fs.
    fn take_positional_size(&mut self) -> Result<(), Failure> {
        if self.layout.is_some() || self.others.is_empty() {
            return Ok(());
        }
        let text = self.others[0].to_string_lossy();
        let (1, Ok(bytes)) = (self.others.len(), amount::bytes(&text)) else {
            return Err(Failure::usage(format_args!(
                "'{}' is neither a size, as in 10G, nor a device of a --layout",
                Shown::path(Path::new(&self.others[0]))
            )));
        };
        if self.size.is_some() {
            return Err(Failure::usage(format_args!("the size is given twice: {text} and --size")));
        }
        // mke2fs counts a number without a unit in blocks, and --size counts it in bytes.
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Failure::usage(format_args!(
                "{text}: the size has no unit: write {text}K for KiB, or --size {text} for bytes"
            )));
        }
        self.size = Some(bytes);
        self.others.clear();
        Ok(())
    }

    fn answer(&self, image: &Image, made: &Made) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let mut out = Out::of_report();
        let uuid = shown::uuid(&made.uuid);
        let bytes = made.blocks * made.block_bytes as u64;
        match self.json {
            true => {
                use std::os::unix::ffi::OsStrExt;
                out.json(&Answer {
                    image: shown::encoded(image.name.as_os_str().as_bytes()),
                    bytes,
                    block_bytes: made.block_bytes,
                    blocks: made.blocks,
                    free_blocks: made.free_blocks,
                    inodes: made.inodes,
                    groups: made.groups,
                    journal_blocks: made.journal_blocks,
                    uuid: &uuid,
                })?;
            }
            false => {
                let journal = match made.journal_blocks {
                    0 => "no journal".into(),
                    n => {
                        let size = u64::from(n) * made.block_bytes as u64;
                        format!("a journal of {}", amount::shown(size))
                    }
                };
                let (name, size) = (Shown::path(&image.name), amount::shown(bytes));
                let (blocks, block_bytes, inodes) = (made.blocks, made.block_bytes, made.inodes);
                let free = amount::shown(made.free_blocks * made.block_bytes as u64);
                out.text(format_args!(
                    "{name}: {size}, {blocks} blocks of {block_bytes} bytes, {inodes} inodes, \
                     {journal}, {free} free\nUUID {uuid}\n"
                ))?;
            }
        }
        out.finish()
    }

    /// Opens the file or device for the volume. Before anything is written, checks that it holds no
    /// data of value and that a volume with `options` fits.
    fn target(
        &self,
        image: &Image,
        size: Option<u64>,
        options: Option<&MkfsOptions>,
        stop: &Stop,
    ) -> Result<Target, Failure> {
        let path = &image.path;
        let engine = |error| Failure::of_image(&image.name, &error);
        let fits = |bytes| options.map_or(Ok(()), |options| mkfs::fits(options, bytes));
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let Some(size) = size else {
                    let name = Shown::path(&image.name);
                    return Err(Failure::new(format!(
                        "{name}: no such file: give a size to create it, as in --size 10G"
                    )));
                };
                let len = image.offset.checked_add(size);
                let len = len.ok_or_else(|| Failure::usage("--size does not fit in 64 bits"))?;
                stop.defer_signals();
                let device = FileOptions::new().create_new(path, len).map_err(engine)?;
                stop.remove_when_ended(path);
                let device = slice(Arc::new(device), image, Some(size)).inspect_err(|_| {
                    let _ = fs::remove_file(path);
                })?;
                return Ok(Target { device, zeroed: true, new_files: vec![path.clone()] });
            }
            Err(error) => return Err(Failure::of_file("open", path, error)),
        };
        let size = self.within_partition(image, size)?;
        if !self.force
            && let Some(found) = signature::find(path, image.offset)
                .map_err(|error| Failure::of_file("read", path, error))?
        {
            return Err(Failure::new(format!(
                "{}: contains {found}: use --force to overwrite it",
                Shown::path(&image.name)
            )));
        }
        if meta.file_type().is_block_device() || image.offset > 0 || image.len.is_some() {
            let device = FileOptions::new().write(true).open(path).map_err(engine)?;
            device
                .passed_locks()
                .iter()
                .for_each(|&pid| print_message(ignored_lock_message(path, pid)));
            let device = slice(Arc::new(device), image, size)?;
            fits(device.len()).map_err(engine)?;
            if !matches!(record_of(&device), Ok(None)) {
                // It is no longer a member of a layout.
                device.zero(ByteOffset(MEMBER_OFFSET), MEMBER_SIZE as u64).map_err(engine)?;
            }
            return Ok(Target { device, zeroed: false, new_files: Vec::new() });
        }
        let len = size.unwrap_or(meta.len());
        if len == 0 {
            return Err(Failure::new(format!(
                "{}: the file is empty: give a size, as in --size 10G",
                Shown::path(&image.name)
            )));
        }
        fits(len).map_err(engine)?;
        let device = FileOptions::new().create(path, len).map_err(engine)?;
        device
            .passed_locks()
            .iter()
            .for_each(|&pid| print_message(ignored_lock_message(path, pid)));
        Ok(Target { device: Arc::new(device), zeroed: true, new_files: Vec::new() })
    }

    /// The size of a volume inside an image. If the image has a partition table, that is the size
    /// of the partition that starts at the volume's offset. Without --force nothing is written
    /// beyond the partition.
    fn within_partition(&self, image: &Image, size: Option<u64>) -> Result<Option<u64>, Failure> {
        let (name, offset) = (Shown::path(&image.name), image.offset);
        let partitions = match (offset, image.len) {
            (_, Some(_)) => Vec::new(),
            (0, None) => return Ok(size),
            (_, None) => match disk::table(&image.path) {
                Ok(Some(disk)) => disk.partitions,
                Ok(None) => return Ok(size),
                Err(Error::Disk(_)) if self.force => return Ok(size),
                Err(error) => return Err(Failure::of_image(&image.name, &error)),
            },
        };
        let partition = partitions.iter().find(|partition| partition.start == offset);
        match image.len.or(partition.map(|partition| partition.len)) {
            // A partition that was named bounds the volume even with --force.
            Some(len)
                if self.force && image.len.is_none() || size.is_none_or(|size| size <= len) =>
            {
                Ok(Some(size.unwrap_or(len)))
            }
            Some(len) => Err(Failure::new(format_args!(
                "{name}: the partition at byte {offset} has {len} bytes ({}): give a --size that \
                 fits, or omit --size; --force writes beyond the partition",
                amount::shown(len)
            ))),
            None if self.force => Ok(size),
            None => {
                let starts: Vec<String> = partitions
                    .iter()
                    .take(8)
                    .map(|partition| partition.start.to_string())
                    .collect();
                let starts = match starts.is_empty() {
                    true => "it is empty".into(),
                    false => format!("they start at bytes {}", starts.join(", ")),
                };
                Err(Failure::new(format_args!(
                    "{name}: its partition table has no partition that starts at byte {offset}, \
                     {starts}: give the start of a partition, or use --force"
                )))
            }
        }
    }

    /// Makes a layout of the files or devices and combines its members into one device.
    fn members(
        &self,
        image: &Image,
        kind: LayoutKind,
        environment: &Environment,
        stop: &Stop,
    ) -> Result<Target, Failure> {
        let stripe_bytes = u32::try_from(self.stripe).unwrap_or(0);
        let wanted = |alike| match kind {
            LayoutKind::Raid0 => Wanted::Striped { stripe_bytes },
            _ => Wanted::Mirrored { alike },
        };
        if !stripe_bytes.is_power_of_two() || stripe_bytes < 4096 {
            return Err(Failure::usage("--stripe must be a power of two, at least 4K"));
        }
        let mut images = vec![image.clone()];
        for other in &self.others {
            let other = Image::parse_for_new(other)?.placed_as(image);
            if other.offset != image.offset {
                return Err(Failure::new(format_args!(
                    "{}: starts at byte {} of its device, {} at byte {}: members of a layout start \
                     at the same byte",
                    Shown::path(&other.name),
                    other.offset,
                    Shown::path(&image.name),
                    image.offset
                )));
            }
            if let Some(same) = images.iter().find(|same| is_same_place(&same.path, &other.path)) {
                let (other, same) = (Shown::path(&other.path), Shown::path(&same.path));
                return Err(Failure::new(format_args!(
                    "{other}: the same file as {same}: a layout needs different devices"
                )));
            }
            images.push(other);
        }
        let count = images.len();
        if count < 2 {
            return Err(Failure::usage("--layout needs a second device: IMG --layout raid1 IMG2"));
        }
        let size = self.size.map(|size| wanted(true).member_bytes(count, size));
        let (mut parts, mut zeroed, mut new_files) = (Vec::new(), true, Vec::new());
        let made = images.iter().try_for_each(|image| {
            let target = self.target(image, size, None, stop)?;
            parts.push(Part::new(target.device, image.path.to_string_lossy()));
            zeroed &= target.zeroed;
            new_files.extend(target.new_files);
            Ok(())
        });
        let made = made.and_then(|()| {
            let failed = |error| Failure::of_image(&image.name, &error);
            let shortest = parts.iter().map(|part| part.device.len()).min().unwrap_or(0);
            let wanted = wanted(zeroed);
            let bytes = self.size.unwrap_or_else(|| wanted.volume_bytes(count, shortest));
            let mut uuid = [0; 16];
            environment.fill(&mut uuid);
            create(&parts, wanted, uuid, bytes).map_err(failed)?;
            assemble(parts, Opening::write()).map_err(failed)
        });
        match made {
            Ok(made) => Ok(Target { device: made.device(), zeroed, new_files }),
            Err(failure) => {
                new_files.iter().for_each(|path| drop(fs::remove_file(path)));
                Err(failure)
            }
        }
    }
}

/// Whether both names lead to the same file. The file need not exist yet.
fn is_same_place(a: &Path, b: &Path) -> bool {
    let place = |path: &Path| {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = fs::canonicalize(dir.unwrap_or(Path::new("."))).ok()?;
        Some(dir.join(path.file_name()?))
    };
    is_same_file(a, b) || place(a).is_some_and(|a| place(b) == Some(a))
}

struct Target {
    device: Arc<dyn BlockDevice>,
    zeroed: bool,
    new_files: Vec<PathBuf>,
}

/// The part of a device for the volume.
fn slice(
    device: Arc<dyn BlockDevice>,
    image: &Image,
    size: Option<u64>,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    if image.offset == 0 && size.or(image.len).is_none_or(|size| size == device.len()) {
        return Ok(device);
    }
    let have = device.len();
    let rest = have.saturating_sub(image.offset);
    let len = size.or(image.len).unwrap_or(rest);
    match Slice::new(device, ByteOffset(image.offset), len) {
        Ok(part) => Ok(Arc::new(part)),
        Err(_) => Err(Failure::new(format!(
            "{}: the device has {have} bytes, too few for {len} bytes at byte {}",
            Shown::path(&image.name),
            image.offset
        ))),
    }
}

/// The system's clock and randomness. If `SOURCE_DATE_EPOCH` is set, it replaces the clock.
pub(crate) fn environment() -> Result<Environment, Failure> {
    let mut environment = Environment::default();
    if let Some(sec) = source_date_epoch()? {
        environment.clock = Arc::new(FixedClock(Timestamp::from_secs(sec)));
    }
    Ok(environment)
}

/// The seconds since 1970 in `SOURCE_DATE_EPOCH`, if it is set.
pub(crate) fn source_date_epoch() -> Result<Option<i64>, Failure> {
    match std::env::var_os("SOURCE_DATE_EPOCH") {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => match text.to_str().and_then(|text| text.parse().ok()) {
            Some(sec) => Ok(Some(sec)),
            None => Err(Failure::usage(
                "SOURCE_DATE_EPOCH in the environment is not a number of seconds: unset or \
                 correct it",
            )),
        },
    }
}

/// Prints the feature sets that `--compat` accepts.
pub(crate) fn compat_list() -> Result<u8, Failure> {
    let mut out = Out::new();
    for set in COMPAT_SETS {
        let features = if set.features.is_empty() { "as by mke2fs" } else { set.features };
        let (name, kind, readers) = (set.name, set.of_type, set.readers);
        out.text(format_args!("{name:12} {kind}, {features}\n{:12} {readers}\n", ""))?;
    }
    out.finish()?;
    Ok(0)
}

/// An error of an option, with the option's name.
pub(crate) fn of_option(option: &str, error: &extant::Error) -> Failure {
    Failure::usage(format!("{option}: {}", explained(error)))
}
