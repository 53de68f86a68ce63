//! Operations on whole images: make, build, tune, check, resize, replay.

use crate::answer::{Fault, answer};
use crate::options::{Options, owner, percent};
use crate::place::volume_at;
use crate::pointers::{path, put, strings, text_or_null};
use extant::check::{self, Severity, check_device};
use extant::mkfs::{self, JournalSize, MkfsOptions};
use extant::resize::{Size, resize};
use extant::tune::{ErrorPolicy, Tune, clear_mmp, tune_with};
use extant::{BlockSize, Environment, FileDevice};
use extant_image::{
    Compat, Excludes, ImageBuilder, ImageSize, ModeChange, Ownership, SourceError, SourceKind,
    SourceOptions, SourceSpec, Tree,
};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn block_size(bytes: u32) -> Result<BlockSize, Fault> {
    let known = BlockSize::from_bytes(bytes);
    known.ok_or_else(|| Fault::invalid("blocks have 1024 to 65536 bytes, a power of two"))
}

fn utf8(text: &CStr) -> Result<&str, Fault> {
    text.to_str().map_err(|_| Fault::invalid("a label or a list of features is not UTF-8"))
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkfs(
    image: *const c_char,
    bytes: u64,
    block_bytes: u32,
    label: *const c_char,
    features: *const c_char,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes strings; the last two may be NULL.
        let (image, label, features) =
            unsafe { (path(image)?, text_or_null(label), text_or_null(features)) };
        let mut options = MkfsOptions::new();
        if block_bytes != 0 {
            options = options.block_size(block_size(block_bytes)?);
        }
        if let Some(label) = label {
            options = options.label(utf8(label)?)?;
        }
        if let Some(features) = features {
            options = options.features(utf8(features)?)?;
        }
        // An existing file must stay unchanged.
        fs::File::create_new(image)?;
        let made = FileDevice::create(image, bytes).and_then(|device| {
            mkfs::format(Arc::new(device), &options.zeroed(true), &Environment::default())
        });
        if let Err(error) = made {
            let _ = fs::remove_file(image);
            return Err(error.into());
        }
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_build(
    source: *const c_char,
    image: *const c_char,
    free_bytes: u64,
    bytes: *mut u64,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes strings.
        let (source, image) = unsafe { (path(source)?, path(image)?) };
        let request = BuildRequest {
            builder: ImageBuilder::new().size(ImageSize::Auto { free: free_bytes }),
            options: SourceOptions::new().zeros_are_holes(BLOCK_BYTES),
            kind: None,
        };
        let (built, _) = request.build(&[source], image)?;
        if !bytes.is_null() {
            // SAFETY: the caller passes memory for the result.
            unsafe { put(bytes, built) }?;
        }
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_build_with(
    sources: *const *const c_char,
    image: *const c_char,
    options: *const *const c_char,
    left_out: Option<Hear>,
    context: *mut c_void,
    bytes: *mut u64,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes a string and lists of strings.
        let (sources, image, options) =
            unsafe { (strings(sources), path(image)?, Options::of(options)) };
        if sources.is_empty() {
            return Err(Fault::invalid("no source is given"));
        }
        let sources: Vec<&Path> =
            sources.iter().map(|source| Path::new(OsStr::from_bytes(source.to_bytes()))).collect();
        let (built, problems) = BuildRequest::of(options)?.build(&sources, image)?;
        for problem in problems {
            // SAFETY: the caller of this function guarantees it.
            unsafe { report_line(left_out, context, &problem.to_string(), false) };
        }
        if !bytes.is_null() {
            // SAFETY: the caller passes memory for the result.
            unsafe { put(bytes, built) }?;
        }
        Ok(0)
    })
}

/// The block size in bytes without an option.
const BLOCK_BYTES: usize = 4096;

/// What to build from the sources, and how to read them.
struct BuildRequest {
    builder: ImageBuilder,
    options: SourceOptions,
    kind: Option<SourceKind>,
}

impl BuildRequest {
    /// Reads options with the names of the command's.
    fn of(mut given: Options<'_>) -> Result<BuildRequest, Fault> {
        let mut builder = ImageBuilder::new();
        let mut mkfs = match (given.text("type")?, given.text("compat")?) {
            (Some(_), Some(_)) => return Err(Fault::invalid("type and compat exclude each other")),
            (Some(name), None) => MkfsOptions::of_type(name)?,
            (None, Some(name)) => {
                let set = Compat::by_name(name)?;
                builder = builder.compat(set);
                set.mkfs()
            }
            (None, None) => MkfsOptions::new(),
        };
        for features in given.list("features")? {
            let features =
                features.to_str().ok_or_else(|| Fault::invalid("features: not UTF-8"))?;
            mkfs = mkfs.features(features)?;
        }
        if let Some(bytes) = given.number("cluster-size")? {
            mkfs = mkfs.cluster_bytes(bytes);
        }
        if let Some(bytes) = given.number("inode-size")? {
            mkfs = mkfs.inode_size(bytes);
        }
        if let Some(label) = given.text("label")? {
            mkfs = mkfs.label(label)?;
        }
        mkfs = mkfs.reserved_percent(given.parsed("reserved", percent)?.unwrap_or(0.0));
        if let Some(bytes) = given.number("journal")? {
            mkfs = mkfs.journal(JournalSize::Bytes(bytes));
        }
        if let Some(blocks) = given.number("blocks-per-group")? {
            mkfs = mkfs.blocks_per_group(blocks);
        }
        if let Some(groups) = given.number("flex-groups")? {
            mkfs = mkfs.flex_groups(groups);
        }
        builder = builder.mkfs(mkfs).random(given.flag("random"));
        builder = builder.size(match (given.number("size")?, given.number("free")?) {
            (Some(_), Some(_)) => return Err(Fault::invalid("size and free exclude each other")),
            (Some(bytes), None) => ImageSize::Bytes(bytes),
            (None, free) => ImageSize::Auto { free: free.unwrap_or(0) },
        });
        let mut block_bytes = BLOCK_BYTES;
        if let Some(bytes) = given.number("block-size")? {
            let size = block_size(bytes)?;
            block_bytes = size.bytes();
            builder = builder.block_size(size);
        }
        if let Some(uuid) = given.uuid("uuid")? {
            builder = builder.uuid(uuid);
        }
        if let Some(count) = given.number("inodes")? {
            builder = builder.inodes(count);
        }
        if let Some(seconds) = given.number("source-date-epoch")? {
            builder = builder.source_date_epoch(seconds);
        }

        let mut excludes = Excludes::new();
        for pattern in given.list("exclude")? {
            excludes.add(pattern.as_bytes())?;
        }
        for file in given.list("exclude-from")? {
            excludes.add_file(Path::new(file))?;
        }
        let mut options = SourceOptions::new()
            .one_file_system(given.flag("one-file-system"))
            .keep_going(given.flag("keep-going"))
            .zeros_are_holes(block_bytes)
            .excludes(excludes);
        if let Some(threads) = given.number("threads")? {
            builder = builder.threads(threads);
            options = options.threads(threads);
        }
        if let Some((uid, gid)) = given.parsed("owner", owner)? {
            options = options.owner(uid, gid);
        }
        if let Some(change) = given.text("mode")? {
            options = options.mode(ModeChange::parse(change)?);
        }
        if let Some(file) = given.value("ownership")? {
            options = options.ownership(Ownership::read(Path::new(file))?);
        }
        if let Some(platform) = given.text("platform")? {
            options = options.platform(platform);
        }
        if let Some(name) = given.text("image-name")? {
            options = options.image_name(name);
        }
        if let Some(dir) = given.value("spool-dir")? {
            options = options.spool_dir(dir);
        }
        if let Some(bytes) = given.number("max-size")? {
            options = options.max_unpacked(bytes);
        }
        let kind = given.parsed("format", |name| match name {
            "dir" => Some(SourceKind::Directory),
            "tar" => Some(SourceKind::Tar),
            "oci" => Some(SourceKind::Image),
            _ => None,
        })?;
        given.finish()?;
        Ok(BuildRequest { builder, options, kind })
    }

    /// Builds the image. Returns its length in bytes, and the entries that were left out.
    fn build(self, sources: &[&Path], image: &Path) -> Result<(u64, Vec<SourceError>), Fault> {
        let spec = |path: &&Path| SourceSpec { path: path.to_path_buf(), kind: self.kind };
        let sources: Vec<SourceSpec> = sources.iter().map(spec).collect();
        let tree = Tree::read(&sources, &self.options, &())?;
        let built = self.builder.build(&tree, image, &(), &AtomicBool::new(false))?;
        Ok((built.bytes, tree.take_problems()))
    }
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_tune(
    image: *const c_char,
    offset: u64,
    options: *const *const c_char,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes a string and a list of strings.
        let (image, mut given) = unsafe { (path(image)?, Options::of(options)) };
        let (image, open) = volume_at(image, offset)?;
        let old = open.open(image)?.superblock().clone();
        let mut tune = Tune {
            label: given.text("label")?.map(str::to_owned),
            uuid: given.uuid("uuid")?,
            reserved_blocks: given.number("reserved-blocks")?,
            reserved_uid: given.number("reserved-user")?,
            reserved_gid: given.number("reserved-group")?,
            errors: given.parsed("errors", |what| match what {
                "continue" => Some(ErrorPolicy::CONTINUE),
                "remount-ro" => Some(ErrorPolicy::REMOUNT_RO),
                "panic" => Some(ErrorPolicy::PANIC),
                _ => None,
            })?,
            mount_text: given.text("mount-text")?.map(str::to_owned),
            max_mounts: given.number("max-mounts")?,
            check_interval: given.number("interval")?,
            ..Tune::default()
        };
        if let Some(percent) = given.parsed("reserved", percent)? {
            tune.reserved_blocks = Some((old.blocks_count as f64 * percent / 100.0) as u64);
        }
        if let Some(names) = given.text("mount-options")? {
            tune = tune.mount_options(names)?;
        }
        for features in given.list("features")? {
            let features =
                features.to_str().ok_or_else(|| Fault::invalid("features: not UTF-8"))?;
            tune = tune.features(features)?;
        }
        if let Some(bytes) = given.number::<u64>("journal")? {
            let blocks = u32::try_from(bytes >> old.block_size.log2());
            let blocks = blocks.map_err(|_| Fault::invalid("journal: it is too large"))?;
            tune.journal_blocks = Some(blocks);
            if !old.has_journal() {
                tune = tune.features("has_journal")?;
            }
        }
        let clear = given.flag("clear-mmp");
        given.finish()?;
        if clear {
            clear_mmp(&open, image)?;
        }
        if tune != Tune::default() {
            tune_with(&open, image, &tune)?;
        }
        Ok(0)
    })
}

/// A callback that receives a finding.
type Hear = unsafe extern "C" fn(context: *mut c_void, line: *const c_char, damage: c_int);

/// Passes a line to the caller's callback.
///
/// # Safety
/// The thread may call `hear` with `context`, the pointer that the caller passed with it.
unsafe fn report_line(hear: Option<Hear>, context: *mut c_void, line: &str, is_damage: bool) {
    let line = CString::new(line.replace('\0', "\\0")).unwrap_or_default();
    if let Some(hear) = hear {
        // SAFETY: the caller guarantees it; the line is valid during the call.
        unsafe { hear(context, line.as_ptr(), is_damage.into()) };
    }
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check(
    image: *const c_char,
    hear: Option<Hear>,
    context: *mut c_void,
) -> i32 {
    // SAFETY: this function has the same conditions.
    unsafe { extant_check_at(image, 0, hear, context) }
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check_at(
    image: *const c_char,
    offset: u64,
    hear: Option<Hear>,
    context: *mut c_void,
) -> i32 {
    answer(|| {
        // SAFETY: the caller passes a string.
        let image = unsafe { path(image) }?;
        let (image, open) = volume_at(image, offset)?;
        let device = open.assemble(image)?.device();
        let report = check_device(device, &check::Options::default(), &())?;
        for finding in report.findings.iter() {
            let is_damage = finding.severity == Severity::Error;
            // SAFETY: the caller of this function guarantees it.
            unsafe { report_line(hear, context, &finding.to_string(), is_damage) };
        }
        Ok(report.exit_code())
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_resize(image: *const c_char, bytes: u64, resized: *mut u64) -> i32 {
    answer(|| {
        // SAFETY: the caller passes a string.
        let image = unsafe { path(image) }?;
        let size = match bytes {
            0 => Size::Device,
            u64::MAX => Size::Minimum,
            bytes => Size::Bytes(bytes),
        };
        let done = resize(image, size, &())?;
        if !resized.is_null() {
            // SAFETY: the caller passes memory for the result.
            unsafe { put(resized, done.to_blocks * done.block_bytes as u64) }?;
        }
        Ok(0)
    })
}

/// # Safety
/// The rules of `include/extant.h` for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_replay(image: *const c_char, offset: u64) -> i32 {
    answer(|| {
        // SAFETY: the caller passes a string.
        let image = unsafe { path(image) }?;
        let (image, open) = volume_at(image, offset)?;
        let report = open.recover_in_place(image)?;
        match report.problems.into_iter().next() {
            Some(problem) => Err(problem.into()),
            None => Ok(report.was_needed.into()),
        }
    })
}
