//! Structures of real images, and hostile bytes.

mod hostile;
mod hostile_dirs_journal;
#[path = "../parsers/mod.rs"]
mod parsers;
mod real_dirs;
mod real_images;
