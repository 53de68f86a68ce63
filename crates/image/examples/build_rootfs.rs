//! Builds a root filesystem: a directory, a tar or an OCI image becomes an ext4 image, without root
//! privileges, with the same bytes each time.
//!
//!   cargo run --example build_rootfs -- SRC IMG

use extant_image::{Compat, ImageBuilder, ImageSize, Ownership, SourceOptions, SourceSpec, Tree};
use std::path::Path;
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let (Some(source), Some(image)) = (args.next(), args.next()) else {
        eprintln!("build_rootfs SRC IMG");
        std::process::exit(2);
    };

    // Root owns the result, whichever user builds it. Later sources replace files of earlier ones.
    let rules = Ownership::parse(b"/etc/shadow 0 42 0640\n", Path::new("rules"))?;
    let options = SourceOptions::new().owner(0, 0).ownership(rules).keep_going(true);
    let tree = Tree::read(&[SourceSpec::parse(&source)], &options, &())?;
    println!("{} files and directories, {} bytes", tree.node_count(), tree.data_bytes());

    // The features that the guest's kernel knows; others are refused.
    let set = Compat::by_name("kernel-4.19")?;
    let built = ImageBuilder::new()
        .mkfs(set.mkfs().label("rootfs")?.reserved_percent(0.0))
        .compat(set)
        .size(ImageSize::Auto { free: 64 << 20 })
        .source_date_epoch(1_700_000_000)
        .build(&tree, image.as_ref(), &(), &AtomicBool::new(false))?;
    println!("{} bytes, {} of them free", built.bytes, built.free_bytes);

    // With `keep_going`, what could not be read is listed here and reads as zeros.
    for problem in tree.take_problems() {
        eprintln!("{problem}");
    }
    Ok(())
}
