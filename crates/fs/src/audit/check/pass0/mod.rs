//! Pass 0: what the volume says about itself, checked before anything else is used.
//!
//! ```text
//!   superblock ──► its fields, features, backups ──► descriptors ──► where metadata is
//!       │ bad                                           │ bad
//!       └─► a valid backup                              └─► a backup of that descriptor block
//! ```

mod backups;
mod descriptors;
mod fields;
pub(in crate::audit) mod superblock;

use super::view::View;

/// Checks the superblock and the descriptors, and fills in the groups.
pub(in crate::audit) fn run(view: &mut View<'_>) {
    fields::check(view);
    if view.backups {
        backups::check(view);
    }
    descriptors::load(view);
}
