//! Untrusted archives and container images, built into a volume.
//!
//! ```text
//!   input ─► archives with right digests and checksums ─► Tree ─► built ─► the check finds nothing
//! ```

mod oci;
mod tar;

use crate::Target;
use extant::check::{self, check_device};
use extant::{FileDevice, MemoryDevice};
use extant_image::{ImageBuilder, ImageSize, SourceOptions, SourceSpec, Tree};
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The readers of archives.
pub const TARGETS: &[Target] = &[
    Target { name: "tar", run: tar::run, seeds: tar::seeds, weight: 6, longest: 40_000 },
    Target { name: "oci", run: oci::run, seeds: oci::seeds, weight: 6, longest: 40_000 },
];

/// The most names that an archive of so few bytes may have.
const ENTRIES_MAX: usize = 4096;
/// Longer volumes are not built.
const BUILD_MAX: u64 = 64 << 20;

thread_local! {
    /// The directory for archives and volumes; one for each thread, because creating it costs more
    /// than a case.
    static SCRATCH: Scratch = Scratch::new();
}

/// Reads `spec` and builds a volume from it, in which the check finds nothing.
fn build(spec: &SourceSpec, scratch: &Path) {
    let options = SourceOptions::new().threads(1).max_archive_entries(ENTRIES_MAX);
    let options = options.spool_dir(scratch);
    let tree = match Tree::read(std::slice::from_ref(spec), &options, &()) {
        Ok(tree) => tree,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    tree.iter().for_each(|(id, _)| drop(tree.path(id)));
    if tree.data_bytes() > BUILD_MAX {
        return;
    }
    let image = scratch.join("image");
    let builder = ImageBuilder::new().threads(1).size(ImageSize::Auto { free: 0 });
    match builder.build(&tree, &image, &(), &AtomicBool::new(false)) {
        Ok(_) => {}
        Err(error) => return assert!(!error.to_string().is_empty()),
    }
    let device = FileDevice::open(&image).expect("it was built");
    let options = check::Options { threads: 2, ..Default::default() };
    let device = Arc::new(MemoryDevice::copy_of(&device).expect("room"));
    let report = check_device(device, &options, &()).expect("it can be checked");
    let said: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert!(report.clean, "{said:?}");
    std::fs::remove_file(&image).expect("it is there");
}
