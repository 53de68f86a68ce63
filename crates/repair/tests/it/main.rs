//! Repairs of damaged volumes, judged by e2fsck and by the files that are left.

mod damaged;
mod fields;
mod files;
mod journal_copies;
mod journal_names;
mod lost_superblock;
mod random;
mod repairs;
mod side;
mod wide;
