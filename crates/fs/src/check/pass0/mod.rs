//! Pass 0: what the volume says of itself, before anything else is believed.
//!
//! ```text
//!   superblock ──► its fields, features, copies ──► descriptors ──► where metadata lies
//!       │ bad                                           │ bad
//!       └─► a copy that is good                         └─► the copies of that descriptor block
//! ```

mod backups;
mod descriptors;
mod fields;
pub(super) mod superblock;

use super::view::View;

/// Checks superblock and descriptors and fills in the groups.
pub(super) fn run(view: &mut View<'_>) {
    fields::check(view);
    if view.backups {
        backups::check(view);
    }
    descriptors::load(view);
}
