//! What is done to images as a whole: make, build, check.

use crate::answer::{Fault, answer};
use crate::pointers::{path, put, text_or_null};
use extant::check::{self, Severity, check_device};
use extant::mkfs::{self, MkfsOptions};
use extant::resize::{Size, resize};
use extant::{BlockSize, Environment, FileDevice, OpenOptions};
use extant_image::{ImageBuilder, ImageSize, Quiet, SourceOptions, SourceSpec, Tree};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
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
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkfs(
    image: *const c_char,
    bytes: u64,
    block_bytes: u32,
    label: *const c_char,
    features: *const c_char,
) -> i32 {
    answer(|| {
        // SAFETY: strings from C, the last two perhaps NULL.
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
        // A file that is there stays as it is.
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
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_build(
    source: *const c_char,
    image: *const c_char,
    free_bytes: u64,
    bytes: *mut u64,
) -> i32 {
    answer(|| {
        // SAFETY: strings from C.
        let (source, image) = unsafe { (path(source)?, path(image)?) };
        let tree = Tree::read(&[SourceSpec::new(source)], &SourceOptions::new(), &Quiet)?;
        let built = ImageBuilder::new().size(ImageSize::Auto { free: free_bytes }).build(
            &tree,
            image,
            &Quiet,
            &AtomicBool::new(false),
        )?;
        if !bytes.is_null() {
            // SAFETY: a place for the answer.
            unsafe { put(bytes, built.bytes) }?;
        }
        Ok(0)
    })
}

/// Hears a finding.
type Hear = unsafe extern "C" fn(context: *mut c_void, line: *const c_char, damage: c_int);

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check(
    image: *const c_char,
    hear: Option<Hear>,
    context: *mut c_void,
) -> i32 {
    // SAFETY: as here.
    unsafe { extant_check_at(image, 0, hear, context) }
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check_at(
    image: *const c_char,
    offset: u64,
    hear: Option<Hear>,
    context: *mut c_void,
) -> i32 {
    answer(|| {
        // SAFETY: a string from C.
        let image = unsafe { path(image) }?;
        let device = OpenOptions::new().offset(offset).assemble(image)?.device();
        let report = check_device(device, &check::Options::default(), &())?;
        for finding in report.findings.iter() {
            let line = CString::new(finding.to_string().replace('\0', "\\0")).unwrap_or_default();
            if let Some(hear) = hear {
                // SAFETY: the caller's own function, called in this thread, with the context that
                // came with it; the line is good for the call.
                unsafe {
                    hear(context, line.as_ptr(), (finding.severity == Severity::Error).into())
                };
            }
        }
        Ok(report.exit_code())
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_resize(image: *const c_char, bytes: u64, resized: *mut u64) -> i32 {
    answer(|| {
        // SAFETY: a string from C.
        let image = unsafe { path(image) }?;
        let size = match bytes {
            0 => Size::Device,
            u64::MAX => Size::Minimum,
            bytes => Size::Bytes(bytes),
        };
        let done = resize(image, size, &mut |_, _| {})?;
        if !resized.is_null() {
            // SAFETY: a place for the answer.
            unsafe { put(resized, done.to_blocks * done.block_bytes as u64) }?;
        }
        Ok(0)
    })
}

/// # Safety
/// As the header says of pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_replay(image: *const c_char, offset: u64) -> i32 {
    answer(|| {
        // SAFETY: a string from C.
        let image = unsafe { path(image) }?;
        let report = OpenOptions::new().offset(offset).recover_in_place(image)?;
        match report.problems.into_iter().next() {
            Some(problem) => Err(problem.into()),
            None => Ok(report.was_needed.into()),
        }
    })
}
