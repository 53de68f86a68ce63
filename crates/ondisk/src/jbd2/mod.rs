//! The journal's blocks: superblock, descriptor, revoke, commit. All big-endian.
//!
//! ```text
//!   log block 0   first                                            maxlen - fc      maxlen
//!   ┌────────────┬─────────────────────────────────────────────────┬─┬─────────────┐
//!   │ superblock │ … [revoke] [descriptor, blocks] … [commit] … ↺  │ │ fast commit │
//!   └────────────┴─────────────────────────────────────────────────┴─┴─────────────┘
//! ```

pub mod commit;
pub mod descriptor;
pub mod features;
pub mod header;
pub mod log_format;
pub mod revoke;
pub mod superblock;

pub use commit::{Commit, CommitSum};
pub use descriptor::{DescriptorWriter, Tag, TagFlags, Tags};
pub use features::{JournalCompat, JournalFeatures, JournalIncompat, JournalRoCompat};
pub use header::{BlockType, Header, MAGIC};
pub use log_format::{BlockSum, LogFormat};
pub use revoke::{RevokeWriter, Revokes};
pub use superblock::JournalSuperblock;
