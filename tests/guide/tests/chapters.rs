//! Each chapter, from its first line to its last. Those with mounts need root and FUSE.

use extant_guide_tests::reader::{Reader, place};
use extant_testkit::require;
use std::fs;

#[test]
fn building_images() {
    require!(E2fsprogs);
    Reader::new().read("building.md");
}

#[test]
fn changing_images() {
    Reader::new().read("changing.md");
}

#[test]
fn disks_with_partitions() {
    require!(Program("sfdisk"));
    Reader::new().read("disks.md");
}

#[test]
fn mounting() {
    require!(Root, Fuse);
    Reader::new().read("mounting.md");
}

#[test]
fn what_is_safe_when() {
    require!(Root, Fuse);
    Reader::new().read("durability.md");
}

#[test]
fn performance() {
    require!(Root, Fuse);
    Reader::new().read("performance.md");
}

#[test]
fn mirrors_and_stripes() {
    Reader::new().read("devices.md");
}

#[test]
fn trouble() {
    require!(Root, Fuse, E2fsprogs);
    Reader::new().read("trouble.md");
}

#[test]
fn the_examples_in_c() {
    require!(Program("cc"), Program("pkg-config"));
    let mut reader = Reader::new();
    reader.install_library();
    reader.read("c.md");
}

#[test]
fn the_examples_in_python() {
    require!(Program("python3"));
    let mut reader = Reader::new();
    reader.install_module();
    reader.read("python.md");
}

/// If a chapter has no example that runs here, it names the test that runs it.
#[test]
fn what_is_installed_is_tested_elsewhere() {
    Reader::new().read("install.md");
    let text = fs::read_to_string(place("README.md")).unwrap();
    assert!(!text.contains("```console") || text.contains("$ extant"));
}
